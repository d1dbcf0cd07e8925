//! `countersign holds`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use countersign::store::CallFilter;
use countersign::{Hold, HoldId, Store, limits};
use countersign_api::wire::{self, timestamp};
use jiff::Timestamp;

use crate::commands::Form;
use crate::desk::{Care, Desk};
use crate::fault::Fault;
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
  countersign holds --watch                   # each hold as it opens and closes
  countersign holds --store sqlite:agent.db

Then decide: `countersign approve ID` or `countersign deny ID --reason "…"`."#;

/// Lists the holds.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    let session = args.session.as_deref();
    let (holds, now) = match args.reach.client()? {
        Some(_) if args.watch => {
            return Err(Fault::usage("--watch looks at a store").next("with a server, follow GET /v1/events"));
        }
        Some(client) => (client.all_holds(session).await?, client.me().await?.now),
        None => {
            let desk = Desk::open(&args.reach.place, Care::Rescue).await?;
            if args.watch {
                return watch(&desk, session, form).await;
            }
            let holds = open_holds(desk.store(), session).await?;
            (holds.iter().map(wire::Hold::from).collect(), timestamp(desk.store().now().await?))
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
        Cell::new(format_args!("{server}{}", hold.tool)),
        Cell::json(&hold.arguments),
    ]
}

fn expiry(hold: &wire::Hold, now: Timestamp) -> String {
    let Some(at) = hold.expires_at else { return "never".to_owned() };
    let seconds = at.duration_since(now).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86400),
    }
}

/// Prints each hold when it opens, and once more when it closes.
async fn watch(desk: &Desk, session: Option<&str>, form: Form) -> Result<(), Fault> {
    let mut known: BTreeMap<HoldId, Hold> = BTreeMap::new();
    out::say("Watching. Ctrl-C ends it.");
    loop {
        let listener = desk.store().bell().listen_any();
        let now = timestamp(desk.store().now().await?);
        let open = open_holds(desk.store(), session).await?;
        for hold in &open {
            if known.insert(hold.id, hold.clone()).is_none() {
                tell(hold, now, form)?;
            }
        }
        let gone: Vec<Hold> = known.values().filter(|hold| !open.iter().any(|at| at.id == hold.id)).cloned().collect();
        for hold in gone {
            known.remove(&hold.id);
            let call = desk.gate.get(hold.call.id).await?;
            if let Some(closed) = Hold::of(&call, hold.id) {
                tell(&closed, now, form)?;
            }
        }
        // Expiry rings no bell by itself.
        let _ = tokio::time::timeout(Duration::from_secs(1), listener).await;
        desk.gate.sweep().await?;
    }
}

fn tell(hold: &Hold, now: Timestamp, form: Form) -> Result<(), Fault> {
    let shown = wire::Hold::from(hold);
    if form == Form::Json {
        return Ok(out::json(&shown)?);
    }
    let mut cells = vec![Cell::styled(out::WAIT, hold.state.as_str())];
    cells.extend(row(&shown, now));
    if !hold.is_pending() {
        cells.remove(2);
    }
    let head = vec![""; cells.len()];
    let lines = out::table(&head, &[cells], out::columns());
    Ok(out::data(lines.last().map(String::as_str).unwrap_or_default())?)
}
