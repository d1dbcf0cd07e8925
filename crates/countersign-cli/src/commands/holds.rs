//! `countersign holds`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use countersign::store::CallFilter;
use countersign::{Hold, HoldId, Store, Time, limits};

use crate::commands::Form;
use crate::desk::{Care, Desk};
use crate::fault::Fault;
use crate::out::{self, Cell};
use crate::settings::Place;
use crate::shapes;

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
    place: Place,
}

const EXAMPLES: &str = r#"Examples:
  countersign holds
  countersign holds --json | jq -r '.[].id'
  countersign holds --watch                   # each hold as it opens and closes
  countersign holds --store sqlite:agent.db

Then decide: `countersign approve ID` or `countersign deny ID --reason "…"`."#;

/// Lists the holds.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    let desk = Desk::open(&args.place, Care::Rescue).await?;
    if args.watch {
        return watch(&desk, args.session.as_deref(), form).await;
    }
    let holds = open_holds(desk.store(), args.session.as_deref()).await?;
    match form {
        Form::Json => out::json(&holds.iter().map(shapes::Hold::of).collect::<Vec<_>>())?,
        Form::Text if holds.is_empty() => out::say("Nothing waits for a decision."),
        Form::Text => print(&holds, desk.store().now().await?)?,
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

fn print(holds: &[Hold], now: Time) -> Result<(), Fault> {
    let rows: Vec<Vec<Cell>> = holds.iter().map(|hold| row(hold, now)).collect();
    for line in out::table(&["hold", "expires", "session", "tool", "arguments"], &rows, out::columns()) {
        out::data(line)?;
    }
    out::say("Look at one and decide: countersign approve ID, or countersign deny ID --reason TEXT");
    Ok(())
}

fn row(hold: &Hold, now: Time) -> Vec<Cell> {
    let call = &hold.call;
    vec![
        Cell::styled(out::BOLD, hold.id),
        Cell::styled(out::WAIT, expiry(hold, now)),
        Cell::new(call.facts.path.session.as_deref().unwrap_or("-")),
        Cell::new(&call.facts.tool),
        Cell::json(call.shown_arguments()),
    ]
}

fn expiry(hold: &Hold, now: Time) -> String {
    let Some(at) = hold.expires_at else { return "never".to_owned() };
    let seconds = now.until(at).as_secs();
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
        let now = desk.store().now().await?;
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

fn tell(hold: &Hold, now: Time, form: Form) -> Result<(), Fault> {
    if form == Form::Json {
        return Ok(out::json(&shapes::Hold::of(hold))?);
    }
    let mut cells = vec![Cell::styled(out::WAIT, hold.state.as_str())];
    cells.extend(row(hold, now));
    if !hold.is_pending() {
        cells.remove(2);
    }
    let head = vec![""; cells.len()];
    let lines = out::table(&head, &[cells], out::columns());
    Ok(out::data(lines.last().map(String::as_str).unwrap_or_default())?)
}
