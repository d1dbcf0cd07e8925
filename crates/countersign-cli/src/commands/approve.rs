//! `countersign approve`.

use std::time::Duration;

use clap::ValueEnum;
use countersign::digest::CallDigest;
use countersign::gate;
use countersign::grant::{Remember, RememberCovers, RememberScope};
use countersign::json::Bounds;
use countersign::show::View;
use countersign::{Answer, Hold, HoldId, Json, Limits};
use countersign_api::wire;

use crate::commands::Form;
use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::inbox::on_the_wire;
use crate::offer;
use crate::out;
use crate::person::person;
use crate::prompt::{self, Asked, Choice, Question, on_one_line};
use crate::settings::Reach;
use crate::signals::Signals;

mod remote;

/// Let a call that waits run, after you have seen it
///
/// On a terminal it shows the hold and asks. In a script, say what you have seen: `--digest` is the digest
/// that `countersign holds --json` gives, and a hold with any other digest is not approved.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The hold
    id: HoldId,
    /// The digest of what you have seen; without it the hold is shown and you are asked
    #[arg(long, value_name = "DIGEST")]
    digest: Option<CallDigest>,
    /// Run these arguments instead; they are checked and judged again
    #[arg(long, value_name = "JSON")]
    arguments: Option<String>,
    /// Hand this to the tool, apart from its arguments
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Allow the same call from now on: in this session, or in all
    #[arg(long, value_name = "SCOPE")]
    remember: Option<ScopeArg>,
    /// What to remember: `exact` arguments, `fields:A,B` (calls that are equal in these arguments), `folder:FIELD`
    /// (wherever that argument leads into the same folder), or every call of the `tool`
    #[arg(long, value_name = "WHAT", requires = "remember", default_value = "exact", value_parser = covers)]
    covers: RememberCovers,
    /// For how long to remember it: `15m`, `8h`, `30d` at most
    #[arg(long, value_name = "TIME", requires = "remember")]
    expires_after: Option<wire::Span>,
    /// For how many calls after this one
    #[arg(long, value_name = "NUMBER", requires = "remember", value_parser = clap::value_parser!(u32).range(1..))]
    uses: Option<u32>,
    #[command(flatten)]
    reach: Reach,
}

const EXAMPLES: &str = r#"Examples:
  countersign approve hold_0190…
  countersign approve hold_0190… --digest cs1c:4f…
  countersign approve hold_0190… --digest cs1c:4f… --arguments '{"path": "a.txt"}'
  countersign approve hold_0190… --digest cs1c:4f… --remember session
  countersign approve hold_0190… --digest cs1c:4f… --remember global --covers fields:to --expires-after 8h --uses 5"#;

/// Where a grant holds.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScopeArg {
    /// In the session of the call
    Session,
    /// In every session
    Global,
}

/// What a grant covers.
fn covers(text: &str) -> Result<RememberCovers, String> {
    match text.split_once(':') {
        None if text == "exact" => Ok(RememberCovers::Exact),
        None if text == "tool" => Ok(RememberCovers::Tool),
        Some(("folder", field)) if !field.is_empty() => Ok(RememberCovers::Folder(field.to_owned())),
        Some(("fields", fields)) if fields.split(',').all(|field| !field.is_empty()) => {
            Ok(RememberCovers::Fields(fields.split(',').map(str::to_owned).collect()))
        }
        _ => Err("it is `exact`, `fields:A,B`, `folder:FIELD` or `tool`".to_owned()),
    }
}

/// Approves.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    if args.digest.is_none() && !prompt::is_interactive() {
        return Err(Fault::usage("without a terminal to show the hold on, --digest is required")
            .next("`countersign holds --json` has the digest; pass the one you have looked at"));
    }
    let wanted = wanted(&args)?;
    if let Some(client) = args.reach.client()? {
        let decision = match args.digest {
            Some(digest) => Some(on_the_wire(digest, wanted)),
            None => remote::ask(&client, args.id, wanted).await?,
        };
        return match decision {
            Some(decision) => report(&client.decide(args.id, &decision).await?, form),
            None => leave(),
        };
    }
    let desk = Desk::open_to_act(&args.reach.place, Care::Full).await?;
    let open = find(&desk, args.id).await?;
    let mut rule = Vec::new();
    if let Answer::Approve { arguments, remember: Some(remember), .. } = &wanted {
        let preview = offer::preview(&desk.gate, &open, arguments.as_ref(), remember).await?;
        rule = preview.map_err(|error| Fault::refused(format!("nothing can be remembered: {error}")))?;
    }
    let (answer, digest) = match args.digest {
        Some(digest) => {
            rule.iter().for_each(out::say);
            (wanted, digest)
        }
        None => match ask(&desk, &open, wanted, rule).await? {
            Some(answer) => (answer, open.digest),
            None => return leave(),
        },
    };
    let mut decision = open.decision(person(), "cli", answer);
    decision.digest = digest;
    let decided = desk.gate.decide(open.id, decision).await?;
    desk.sign().await;
    report_local(&decided, args.id, form)
}

fn leave() -> Result<(), Fault> {
    out::say("Nothing was decided; the call goes on waiting.");
    Ok(())
}

fn closed_meanwhile() -> Fault {
    Fault::refused("the hold closed meanwhile: it expired, or somebody else decided")
}

/// What the options ask for.
fn wanted(args: &Args) -> Result<Answer, Fault> {
    let bad = |option: &str, error: &dyn std::fmt::Display| Fault::usage(format!("{option} is not valid: {error}"));
    let arguments = args.arguments.as_deref().map(|text| Json::arguments(text, &Limits::default())).transpose();
    let payload = args.payload.as_deref().map(|text| Json::ingest(text, Bounds::PAYLOAD)).transpose();
    let remember = args.remember.map(|scope| Remember {
        scope: match scope {
            ScopeArg::Session => RememberScope::Session,
            ScopeArg::Global => RememberScope::Global,
        },
        covers: args.covers.clone(),
        expires_after: args.expires_after.map(|span| span.0),
        uses: args.uses,
    });
    Ok(Answer::Approve {
        arguments: arguments.map_err(|error| bad("--arguments", &error))?,
        payload: payload.map_err(|error| bad("--payload", &error))?,
        remember,
    })
}

/// Shows the hold and asks. None: nothing is decided.
async fn ask(desk: &Desk, open: &Hold, wanted: Answer, rule: Vec<String>) -> Result<Option<Answer>, Fault> {
    let now = desk.store().now().await?;
    let plain = wanted == Answer::approve();
    let mut view = desk.gate.view(open, now).await?;
    add_wishes(&mut view, &wanted, &rule);
    let (offers, fields) = match plain {
        true => (offer::offers(&desk.gate, open).await?, offer::fields(&desk.gate, open).await?),
        false => Default::default(),
    };
    let mut choices = vec![Choice::Leave, Choice::Approve];
    if plain {
        choices.extend(prompt::choices(open, &offers).into_iter().filter(|choice| *choice != Choice::Approve));
    }
    let (arguments, payload) = (open.call.shown_arguments().clone(), open.payload.clone());
    let question = Question { view, arguments, payload, choices, offers, fields, notice: None };
    let begin = std::time::Instant::now();
    let life: Option<Duration> = open.expires_at.map(|at| now.until(at));
    let left = move || life.map(|life| life.saturating_sub(begin.elapsed()));
    let mut signals = Signals::listen()?;
    let look = async |fields: &[String]| offer::by_fields(&desk.gate, open, fields).await;
    let closed = prompt::closed(&desk.gate, open);
    match prompt::ask(question, left, closed, std::future::pending(), look, &mut signals).await? {
        Asked::Answer(answer) if answer == Answer::approve() => Ok(Some(wanted)),
        Asked::Answer(answer) => Ok(Some(answer)),
        Asked::Left | Asked::Joined | Asked::Stop => Ok(None),
        Asked::Closed => Err(closed_meanwhile()),
    }
}

/// Puts what the options ask for where it is read before anything is approved.
fn add_wishes(view: &mut View, wanted: &Answer, rule: &[String]) {
    use countersign::show::{Line, LineKind};
    let mut add = |label: &str, text: String| {
        view.lines.push(Line { kind: LineKind::Fact, indent: 0, label: label.to_owned(), text });
    };
    if let Answer::Approve { arguments, payload, .. } = wanted {
        if let Some(arguments) = arguments {
            add("you change", format!("the arguments to {}", on_one_line(arguments.as_str())));
        }
        if let Some(payload) = payload {
            add("you add", format!("for the tool: {}", on_one_line(payload.as_str())));
        }
    }
    for line in rule {
        add("you allow", line.clone());
    }
}

/// Finds an open or closed hold.
pub(crate) async fn find(desk: &Desk, id: HoldId) -> Result<Hold, Fault> {
    let call = desk.store().call_of_hold(id).await?;
    let open = call.as_ref().and_then(|call| Hold::of(call, id));
    open.ok_or_else(|| Fault::failed(format!("there is no hold `{id}`")).next("`countersign holds` lists what waits"))
}

/// Says what came of a decision made here.
pub(crate) fn report_local(decided: &gate::Decided, id: HoldId, form: Form) -> Result<(), Fault> {
    let decided = wire::Decided::of(decided, id);
    report(&decided.ok_or_else(|| Fault::failed("the hold is gone"))?, form)
}

/// Says what came of a decision.
pub(crate) fn report(decided: &wire::Decided, form: Form) -> Result<(), Fault> {
    if form == Form::Json {
        return Ok(out::json(decided)?);
    }
    let again = if decided.replayed { " (as decided before)" } else { "" };
    let state = decided.state.as_str();
    out::data(format_args!("{} {state}{again}; the call is {}", decided.hold, decided.call.state))?;
    if let Some(next) = decided.superseded_by {
        out::data(format_args!("the edit needs a decision of its own: {next}"))?;
    } else if state == "pending" {
        out::say("More approvals are needed before it runs.");
    }
    if let Some(grant) = &decided.grant {
        out::data(format_args!("{} made: {}", grant.id, countersign::show::escape(&grant.rule)))?;
    }
    if decided.released > 0 {
        out::data(format_args!("{} other holds are released by it", decided.released))?;
    }
    Ok(())
}
