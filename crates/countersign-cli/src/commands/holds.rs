//! `countersign holds`.

use std::collections::BTreeMap;
use std::sync::Arc;

use countersign::store::CallFilter;
use countersign::{Hold, HoldId, Store, callers, limits};
use countersign_api::wire::{self, timestamp};
use jiff::Timestamp;
use tokio::sync::mpsc::unbounded_channel;

use crate::commands::Form;
use crate::desk::{Care, Desk};
use crate::fault::{Exit, Fault};
use crate::inbox::{Link, Listing, News, Source, follow};
use crate::out::{self, Cell};
use crate::settings::Reach;

/// List the calls that wait for a decision, oldest first
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Stay, and print each hold as it opens and closes; with --json one a line
    #[arg(long)]
    watch: bool,
    /// Only holds of this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    #[command(flatten)]
    reach: Reach,
}

const EXAMPLES: &str = r#"Examples:
  countersign holds
  countersign holds --json | jq -r '.[].id'
  countersign holds --watch                   # each hold as it opens and closes; also with --url
  countersign holds --store sqlite:agent.db

Then decide: `countersign approve ID` or `countersign deny ID --reason "…"`."#;

/// Lists the holds.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    let session = args.session.as_deref();
    let (holds, now) = match args.reach.client()? {
        Some(client) if args.watch => return watch(Source::Server(client), session, form).await,
        Some(client) => (client.all_holds(session).await?, client.me().await?.now),
        None => {
            let desk = Desk::open_to_look(&args.reach.place, Care::Rescue).await?;
            if args.watch {
                return watch(Source::Local(Arc::new(desk)), session, form).await;
            }
            let holds = open_holds(desk.store(), session).await?;
            let calls: Vec<_> = holds.iter().map(|hold| Arc::clone(&hold.call)).collect();
            let alone = callers::without(&**desk.store(), &calls).await?;
            let shown = |hold: &Hold| wire::Hold { no_caller: alone.contains(&hold.call.id), ..wire::Hold::from(hold) };
            (holds.iter().map(shown).collect(), timestamp(desk.store().now().await?))
        }
    };
    match form {
        Form::Json => out::json(&holds)?,
        Form::Text if holds.is_empty() => out::say("Nothing waits for a decision."),
        Form::Text => print(&holds, now)?,
    }
    Ok(())
}

/// All open holds, oldest first.
pub(crate) async fn open_holds(store: &Arc<dyn Store>, session: Option<&str>) -> Result<Vec<Hold>, Fault> {
    let mut filter = CallFilter {
        holding: true,
        session: session.map(Arc::from),
        limit: Some(limits::PAGE_ROWS),
        ..CallFilter::default()
    };
    let mut holds = Vec::new();
    loop {
        let calls = store.calls(filter.clone()).await?;
        let Some(last) = calls.last() else { return Ok(holds) };
        filter.after = Some(last.id);
        holds.extend(calls.iter().filter_map(|call| Hold::of(call, call.open_hold()?.id)));
    }
}

fn print(holds: &[wire::Hold], now: Timestamp) -> Result<(), Fault> {
    let rows: Vec<Vec<Cell>> = holds.iter().map(|hold| row(hold, now)).collect();
    for line in out::table(&["hold", "expires", "session", "tool", "arguments"], &rows, out::columns()) {
        out::data(line)?;
    }
    out::say("Look at one and decide: countersign approve ID, or countersign deny ID --reason TEXT");
    Ok(())
}

fn row(hold: &wire::Hold, now: Timestamp) -> Vec<Cell> {
    let server = hold.server.as_deref().map(|server| format!("{server}/")).unwrap_or_default();
    vec![
        Cell::styled(out::BOLD, hold.id),
        Cell::styled(out::WAIT, expiry(hold, now)),
        Cell::new(hold.session.as_deref().unwrap_or("-")),
        Cell::new(format_args!("{server}{}{}", hold.tool, if hold.no_caller { " (no caller)" } else { "" })),
        Cell::json(&hold.arguments),
    ]
}

/// When it expires; where that is never, for how long it has waited.
fn expiry(hold: &wire::Hold, now: Timestamp) -> String {
    match hold.expires_at {
        Some(at) => span(at.duration_since(now).as_secs()),
        None => format!("never, {} old", span(now.duration_since(hold.opened_at).as_secs())),
    }
}

fn span(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds @ 3600..86400 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86400),
    }
}

/// Prints each hold when it opens, and once more when it closes.
async fn watch(source: Source, session: Option<&str>, form: Form) -> Result<(), Fault> {
    // What cannot be reached at all is a failure, not something to wait for.
    source.list().await?;
    let (sender, mut news) = unbounded_channel();
    let _follower = AbortOnDrop(tokio::spawn(follow(source.clone(), sender)));
    out::say("Watching. Ctrl-C ends it.");
    let (mut known, mut link) = (BTreeMap::new(), Link::Live);
    while let Some(told) = news.recv().await {
        match told {
            News::Listed(listing) => {
                link = Link::Live;
                tell_changes(&source, &mut known, listing, session, form).await?;
            }
            News::Lost(Link::Refused(words)) => return Err(Fault::refused(words)),
            News::Lost(lost) => {
                if let (Link::Live, Link::Lost(words)) = (&link, &lost) {
                    out::warn(format_args!("{words}; trying again"));
                }
                link = lost;
            }
        }
    }
    Err(Fault::failed("nothing more is told"))
}

/// A task that ends with whoever started it.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn tell_changes(
    source: &Source,
    known: &mut BTreeMap<HoldId, wire::Hold>,
    listing: Listing,
    session: Option<&str>,
    form: Form,
) -> Result<(), Fault> {
    let now = listing.now;
    let wanted = |hold: &&wire::Hold| session.is_none() || hold.session.as_deref() == session;
    let open: BTreeMap<HoldId, &wire::Hold> = listing.holds.iter().filter(wanted).map(|hold| (hold.id, hold)).collect();
    for hold in listing.holds.iter().filter(wanted) {
        if known.insert(hold.id, hold.clone()).is_none() {
            tell(hold, now, form)?;
        }
    }
    let gone: Vec<wire::Hold> = known.values().filter(|hold| !open.contains_key(&hold.id)).cloned().collect();
    for hold in gone {
        let closed = match source.detail(hold.id).await {
            Ok(detail) => detail.hold,
            // Told once it can be read again.
            Err(fault) if fault.exit == Exit::Unreachable => return Ok(()),
            Err(fault) => return Err(fault),
        };
        known.remove(&hold.id);
        tell(&wire::Hold { title: hold.title, ..closed }, now, form)?;
    }
    Ok(())
}

fn tell(hold: &wire::Hold, now: Timestamp, form: Form) -> Result<(), Fault> {
    if form == Form::Json {
        return Ok(out::json(hold)?);
    }
    let state = hold.state.as_str();
    let mut cells = vec![Cell::styled(out::WAIT, state)];
    cells.extend(row(hold, now));
    if state != "pending" {
        cells.remove(2);
    }
    let head = vec![""; cells.len()];
    let lines = out::table(&head, &[cells], out::columns());
    Ok(out::data(lines.last().map(String::as_str).unwrap_or_default())?)
}
