//! `countersign inbox`.

use std::sync::Arc;

use countersign::show::escape;

use crate::commands::Form;
use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::home::Home;
use crate::inbox::{self, Source};
use crate::prompt;
use crate::settings::{Reach, Settings};

/// Decide the calls that wait on a full screen, as they come
///
/// Shows every hold exactly as it would run, from a server (--url) or from a store, and keeps itself up to date.
/// Keys: j k choose, Enter read, a approve, d deny, e edit, r respond, m remember, h history, / filter, ? help, q quit.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    reach: Reach,
}

const EXAMPLES: &str = r#"Examples:
  countersign inbox                                   # the store of your configuration
  countersign inbox --store sqlite:agent.db
  COUNTERSIGN_TOKEN=cs_approver_… countersign inbox --url http://127.0.0.1:7117

In scripts: `countersign holds --json`, `countersign approve ID --digest D`, `countersign deny ID`."#;

/// Shows the inbox.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    if form == Form::Json || !prompt::is_interactive() {
        return Err(Fault::usage("the inbox needs a terminal to draw on")
            .next("in scripts use `countersign holds --json`, and `approve ID --digest D` or `deny ID`"));
    }
    let (source, place) = match args.reach.client()? {
        Some(client) => (Source::Server(client), args.reach.url.clone().unwrap_or_default()),
        None => {
            let home = Home::from_env();
            let desk = Desk::open_to_look(&args.reach.place, Care::Full).await?;
            let store = Settings::load(&args.reach.place, &home)?.store(&args.reach.place, &home)?;
            (Source::Local(Arc::new(desk)), without_password(&store))
        }
    };
    inbox::run(source, escape(&place)).await
}

/// The address of a store without what only its owner should read.
fn without_password(store: &str) -> String {
    match store.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, host)) => format!("{scheme}://{}", host.split('?').next().unwrap_or_default()),
            None => format!("{scheme}://{}", rest.split('?').next().unwrap_or_default()),
        },
        None => store.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_drawn() {
        assert_eq!(without_password("postgres://ann:se@cret@db:5432/a?password=x"), "postgres://db:5432/a");
        assert_eq!(without_password("sqlite:/a/b.db"), "sqlite:/a/b.db");
    }
}
