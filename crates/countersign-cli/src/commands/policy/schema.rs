//! `countersign policy schema`.

use countersign::config::Config;

use crate::fault::Fault;
use crate::out;

/// Print the JSON Schema of countersign.yml, for your editor
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

const EXAMPLES: &str = r#"Examples:
  countersign policy schema > countersign.schema.json

Then, as the first line of countersign.yml:
  # yaml-language-server: $schema=countersign.schema.json"#;

/// Prints the schema.
pub(crate) fn run(_args: &Args) -> Result<(), Fault> {
    let text = serde_json::to_string_pretty(&Config::schema()).map_err(Fault::failed)?;
    Ok(out::data(text)?)
}
