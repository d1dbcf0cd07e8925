//! `countersign token`.

use clap::Subcommand;
use countersign_api::wire::{NewToken, Role, Span, Token};
use countersign_server::tokens::{self, TokenError};

use crate::commands::Form;
use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::link::{self, LinkArgs, Whom};
use crate::out::{self, Cell};
use crate::person::person;
use crate::settings::Place;

/// Tokens read at once.
const PAGE: usize = 1_000;

/// Make, list and revoke the tokens that programs use on a server
///
/// Works on the store, whether or not a server runs. A token has one role: an agent's can submit and never decide,
/// an approver's can decide and never submit.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = r#"Examples:
  countersign token create --role agent --name bank-bot
  countersign token create --role agent --name anns-bot --for ann
  countersign token create --role approver --name ann --expires-after 2h --json
  countersign token list
  countersign token revoke tok_7f3a…
  countersign token link                             # sign in once more, in another browser"#;

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a token; its secret is shown this once
    Create(CreateArgs),
    /// List tokens, without their secrets
    List(ListArgs),
    /// End a token, from its next request on
    Revoke(RevokeArgs),
    /// Make a link that signs you in to the web app, once, within ten minutes
    Link(LinkArgs),
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    /// What it may do: agent, approver, operator or auditor
    #[arg(long, value_name = "ROLE")]
    role: Role,
    /// Whose it is: the agent's principal, or the person decisions are recorded as
    #[arg(long, value_name = "NAME")]
    name: String,
    /// How long it lives, as in 30m, 8h or 7d [default: agent 24h, approver and auditor 8h, operator 1h]
    #[arg(long, value_name = "TIME")]
    expires_after: Option<Span>,
    /// The person for whom the agent's calls are made, whatever it says itself: a rule that excludes the requester keeps
    /// that person from approving them
    #[arg(long, value_name = "PERSON")]
    r#for: Option<String>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Also those that ended
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct RevokeArgs {
    /// The token's id
    id: String,
    #[command(flatten)]
    place: Place,
}

/// Makes, lists or revokes.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    match args.command {
        Command::Create(args) => create(args, form).await,
        Command::List(args) => list(args, form).await,
        Command::Revoke(args) => revoke(args, form).await,
        Command::Link(args) => link::give(Whom::Me, args, form).await,
    }
}

async fn create(args: CreateArgs, form: Form) -> Result<(), Fault> {
    let desk = Desk::open(&args.place, Care::Full).await?;
    let new = NewToken { role: args.role, name: args.name, expires_after: args.expires_after, r#for: args.r#for };
    let made = tokens::create(&**desk.store(), new, &person().id).await?;
    match form {
        Form::Json => out::json(&made)?,
        Form::Text => {
            let name = countersign::show::escape(&made.name);
            out::say(format_args!("{} for {} `{name}`, until {}", made.id, made.role, made.expires_at));
            out::data(&made.token)?;
            out::say("Keep it now: it is not shown again.");
        }
    }
    Ok(())
}

async fn list(args: ListArgs, form: Form) -> Result<(), Fault> {
    let desk = Desk::open_to_look(&args.place, Care::Rescue).await?;
    let mut tokens: Vec<Token> = Vec::new();
    loop {
        let page = tokens::list(&**desk.store(), tokens.last().map(|last| last.id.as_str()), PAGE).await?;
        let full = page.len() == PAGE;
        tokens.extend(page);
        if !full {
            break;
        }
    }
    tokens.retain(|token| args.all || token.live);
    if form == Form::Json {
        return Ok(out::json(&tokens)?);
    }
    if tokens.is_empty() {
        out::say("There is no token.");
        return Ok(());
    }
    let row = |token: &Token| {
        let state = match (token.revoked_at, token.live) {
            (Some(_), _) => Cell::styled(out::BAD, "revoked"),
            (None, true) => Cell::styled(out::GOOD, "live"),
            (None, false) => Cell::styled(out::DIM, "ended"),
        };
        let id = Cell::styled(out::BOLD, &token.id);
        vec![id, state, Cell::new(token.role), Cell::new(&token.name), Cell::new(token.expires_at)]
    };
    let rows: Vec<Vec<Cell>> = tokens.iter().map(row).collect();
    for line in out::table(&["token", "state", "role", "name", "expires"], &rows, out::columns().max(120)) {
        out::data(line)?;
    }
    Ok(())
}

async fn revoke(args: RevokeArgs, form: Form) -> Result<(), Fault> {
    let desk = Desk::open_to_act(&args.place, Care::Rescue).await?;
    let token = tokens::revoke(&**desk.store(), &args.id, &person().id).await?;
    match form {
        Form::Json => out::json(&token)?,
        Form::Text => out::data(format_args!("{} revoked", token.id))?,
    }
    Ok(())
}

impl From<TokenError> for Fault {
    fn from(error: TokenError) -> Fault {
        match error {
            TokenError::BadName(_) | TokenError::TooLong => Fault::usage(error),
            TokenError::NotFound => Fault::failed(error).next("`countersign token list` lists them"),
            TokenError::Store(failure) => Fault::from(failure),
            error => Fault::failed(error),
        }
    }
}
