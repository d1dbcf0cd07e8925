//! `countersign policy apply`.

use std::path::PathBuf;

use countersign::store::Op;
use serde_json::json;

use crate::commands::Form;
use crate::fault::Fault;
use crate::home::Home;
use crate::out;
use crate::person::person;
use crate::settings::{Place, Settings};

/// Make a file's rules the ones that everything on a store follows
///
/// For several servers on one PostgreSQL: all of them judge by the policy in the store, from the next call on.
/// The store is --store, else the one FILE names, else your configuration's.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A countersign.yml, or its `policy:` section alone
    file: PathBuf,
    #[command(flatten)]
    place: Place,
}

const EXAMPLES: &str = r#"Example:
  countersign policy apply countersign.yml --store postgres://db.internal/countersign"#;

/// Applies.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    let home = Home::from_env();
    let named = Settings::load(&Place { config: Some(args.file.clone()), store: None }, &home)?;
    let policy = named.config.policy.clone();
    let source = policy.source().ok_or_else(|| Fault::failed("a policy with code of its own cannot be applied"))?;
    let place = match (&args.place.store, &named.config.store) {
        (None, Some(_)) => Place { config: Some(args.file.clone()), store: None },
        _ => args.place.clone(),
    };
    let desk = crate::desk::Desk::open(&place, crate::desk::Care::Full).await?;
    let version = policy.version();
    let op = Op::SetPolicy { version: version.clone(), source: source.into(), by: person().id };
    desk.store().run(op).await?;
    desk.sign().await;
    match form {
        Form::Json => out::json(&json!({ "policy": version, "rules": policy.rules() }))?,
        Form::Text => out::data(format_args!("policy {version} is in force, with {} rules", policy.rules()))?,
    }
    Ok(())
}
