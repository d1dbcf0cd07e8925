//! Links to the web app: those that sign somebody in, once, and those to what waits.

use countersign::{HoldId, Store};
use countersign_api::wire::Role;
use countersign_server::people;
use serde_json::json;

use crate::commands::Form;
use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::out;
use crate::person::person;
use crate::settings::Place;

/// Where a link leads.
#[derive(Debug, clap::Args)]
pub(crate) struct LinkArgs {
    /// Where the server is
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7117")]
    url: String,
    #[command(flatten)]
    place: Place,
}

/// Whom a link signs in.
#[derive(Debug)]
pub(crate) enum Whom {
    /// Whoever makes it.
    Me,
    /// Somebody with an account.
    Member(String),
}

/// Where in the web app a hold is looked at and decided. It signs nobody in.
pub(crate) fn to_hold(url: &str, hold: HoldId) -> String {
    format!("{}/#/inbox/{hold}", url.trim_end_matches('/'))
}

/// Makes a link and prints it.
pub(crate) async fn give(whom: Whom, args: LinkArgs, form: Form) -> Result<(), Fault> {
    let desk = Desk::open(&args.place, Care::Full).await?;
    let (store, url) = (&**desk.store(), args.url.trim_end_matches('/'));
    let link = match whom {
        Whom::Me => for_me(store, url).await?,
        Whom::Member(name) => address(url, &people::create_link_for(store, &name, &person().id).await?),
    };
    match form {
        Form::Json => out::json(&json!({ "sign_in": link }))?,
        Form::Text => out::data(link)?,
    }
    Ok(())
}

/// Whoever starts the server may do everything in it but submit.
pub(crate) async fn for_me(store: &dyn Store, url: &str) -> Result<String, Fault> {
    let me = person().id;
    people::put_user(store, &me, &[Role::Approver, Role::Operator, Role::Auditor]).await?;
    Ok(address(url, &people::create_link(store, &me, &me).await?))
}

/// Behind the `#`, so that no log and no server sees it.
fn address(url: &str, secret: &str) -> String {
    format!("{url}/sign-in#{secret}")
}
