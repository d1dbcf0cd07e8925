//! `countersign user`.

use std::sync::Arc;

use clap::Subcommand;
use countersign::show::escape;
use countersign_api::wire::Role;
use countersign_server::people::{self, User};

use crate::commands::Form;
use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::link::{self, LinkArgs, Whom};
use crate::out::{self, Cell};
use crate::settings::Place;

/// People read at once.
const PAGE: usize = 1_000;

/// Say who may sign in to the web app, and to which groups of approvers they belong
///
/// Works on the store, whether or not a server runs. A rule's `from: [finance]` takes decisions of people whose group is
/// `finance`: here, or under `approvers: groups:` in the configuration. Groups count for a person's tokens, too.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = r#"Examples:
  countersign user add ann --group finance
  countersign user add bo --role approver --role auditor
  countersign user link ann                          # a link that signs ann in, once, within ten minutes
  countersign user list
  countersign user remove bo"#;

#[derive(Debug, Subcommand)]
enum Command {
    /// Add a person, or change what they may do
    Add(AddArgs),
    /// List people
    List(ListArgs),
    /// Forget a person, from their next request on
    Remove(NameArgs),
    /// Make a link that signs a person in to the web app, once, within ten minutes
    Link(MemberLinkArgs),
}

#[derive(Debug, clap::Args)]
struct AddArgs {
    /// Their name, as decisions are recorded
    name: String,
    /// What they may do: approver, operator or auditor; may be repeated
    #[arg(long, value_name = "ROLE", default_value = "approver")]
    role: Vec<Role>,
    /// A group of approvers they belong to; may be repeated
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct NameArgs {
    /// Their name
    name: String,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct MemberLinkArgs {
    /// Their name
    name: String,
    #[command(flatten)]
    link: LinkArgs,
}

/// Adds, lists, removes or signs in.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    match args.command {
        Command::Add(args) => add(args, form).await,
        Command::List(args) => list(args, form).await,
        Command::Remove(args) => remove(args, form).await,
        Command::Link(args) => link::give(Whom::Member(args.name), args.link, form).await,
    }
}

async fn add(args: AddArgs, form: Form) -> Result<(), Fault> {
    let desk = Desk::open(&args.place, Care::Full).await?;
    let groups: Vec<Arc<str>> = args.group.into_iter().map(Arc::from).collect();
    let user = people::put_member(&**desk.store(), &args.name, &args.role, &groups).await?;
    match form {
        Form::Json => out::json(&user)?,
        Form::Text => {
            out::data(format_args!("{} may be {}", escape(&user.name), joined(&user.roles)))?;
            out::say(format_args!("`countersign user link {}` signs them in.", escape(&user.name)));
        }
    }
    Ok(())
}

async fn list(args: ListArgs, form: Form) -> Result<(), Fault> {
    let desk = Desk::open_to_look(&args.place, Care::Rescue).await?;
    let mut users: Vec<User> = Vec::new();
    loop {
        let page = people::users(&**desk.store(), users.last().map(|last| last.name.as_str()), PAGE).await?;
        let full = page.len() == PAGE;
        users.extend(page);
        if !full {
            break;
        }
    }
    if form == Form::Json {
        return Ok(out::json(&users)?);
    }
    if users.is_empty() {
        out::say("Nobody may sign in; `countersign serve` adds who starts it.");
        return Ok(());
    }
    let row = |user: &User| {
        vec![Cell::styled(out::BOLD, &user.name), Cell::new(joined(&user.roles)), Cell::new(user.groups.join(", "))]
    };
    let rows: Vec<Vec<Cell>> = users.iter().map(row).collect();
    for line in out::table(&["name", "roles", "groups"], &rows, out::columns()) {
        out::data(line)?;
    }
    Ok(())
}

async fn remove(args: NameArgs, form: Form) -> Result<(), Fault> {
    let desk = Desk::open_to_act(&args.place, Care::Rescue).await?;
    people::remove_user(&**desk.store(), &args.name).await?;
    match form {
        Form::Json => out::json(&serde_json::json!({ "removed": args.name }))?,
        Form::Text => out::data(format_args!("{} removed", escape(&args.name)))?,
    }
    Ok(())
}

fn joined(roles: &[Role]) -> String {
    roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", ")
}
