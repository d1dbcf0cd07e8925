//! `countersign trust`.

use std::path::PathBuf;

use serde_json::json;

use crate::commands::Form;
use crate::fault::Fault;
use crate::home::{CONFIG_NAME, Home};
use crate::out;
use crate::settings::{self, read_bytes};
use crate::trusted::Trusted;

/// Accept a folder's countersign.yml, exactly as it is now
///
/// An agent can write in its working folder, so a countersign.yml there counts only after you have accepted it,
/// by digest. Change a byte, and it must be accepted again. Read it first.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The file, or its folder [default: countersign.yml in this folder]
    file: Option<PathBuf>,
    /// No longer accept it
    #[arg(long)]
    forget: bool,
}

const EXAMPLES: &str = r#"Examples:
  countersign trust                     # ./countersign.yml
  countersign trust ~/work/countersign.yml
  countersign trust --forget"#;

/// Records or forgets the digest.
pub(crate) fn run(args: Args, form: Form) -> Result<(), Fault> {
    let mut path = args.file.unwrap_or_else(|| PathBuf::from(CONFIG_NAME));
    if path.is_dir() {
        path.push(CONFIG_NAME);
    }
    let path = absolute(path)?;
    let mut trusted = Trusted::load(&Home::from_env())?;
    if args.forget {
        let known = trusted.forget(&path)?;
        let words = if known { "no longer trusted" } else { "was not trusted" };
        return match form {
            Form::Json => Ok(out::json(&json!({ "file": path, "trusted": false }))?),
            Form::Text => Ok(out::data(format_args!("{}: {words}", out::safe_lines(&path.display().to_string())))?),
        };
    }
    let bytes = read_bytes(&path)?;
    let config = settings::try_parse(&path, &bytes)?.map_err(|errors| {
        crate::diagnostics::fault(&errors).next("mend the file first; a broken one is not trusted")
    })?;
    let digest = trusted.accept(&path, &bytes)?;
    match form {
        Form::Json => out::json(&json!({ "file": path, "trusted": true, "digest": digest }))?,
        Form::Text => {
            out::data(format_args!("{}: trusted as {digest}", out::safe_lines(&path.display().to_string())))?;
            out::say(format_args!("It has {} rules. Change it, and it must be trusted again.", config.policy.rules()));
        }
    }
    Ok(())
}

/// The path as the records name it: absolute, and without links in its folder.
fn absolute(path: PathBuf) -> Result<PathBuf, Fault> {
    let path = std::env::current_dir()?.join(path);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Fault::usage(format!("`{}` names no file", path.display())));
    };
    let folder = folder
        .canonicalize()
        .map_err(|error| Fault::usage(format!("cannot find the folder `{}`: {error}", folder.display())))?;
    Ok(folder.join(name))
}
