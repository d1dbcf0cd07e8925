//! Shows what was said in a session before now, so that whoever goes on with it sees where it stands.

use std::sync::Arc;

use countersign::show::escape;
use countersign::{CallId, GateError, Store};
use countersign_agent::{Entry, SessionReader, Stopped};

use super::teller::ended_line;
use crate::fault::Fault;
use crate::out::{self, BOLD, DIM, WAIT};

/// Entries that are shown; what is older is only counted.
const SHOWN: u32 = 200;

/// Shows the session's own thread as it is written down. All of it is talk: none of it is said now.
pub(crate) async fn show(store: &Arc<dyn Store>, session: &str) -> Result<(), Fault> {
    let principal = countersign::Path::session("").principal;
    let Some(reader) = SessionReader::open(Arc::clone(store), principal, session).await? else { return Ok(()) };
    let from = reader.outline().await?.entries.saturating_sub(SHOWN);
    if from > 0 {
        out::say(out::paint(DIM, format_args!("({from} earlier entries are not shown)")));
    }
    for entry in reader.entries("main", from, SHOWN as usize).await? {
        show_entry(&entry);
        if let Entry::Results { calls, .. } = &entry {
            show_calls(store, calls).await?;
        }
    }
    Ok(())
}

fn show_entry(entry: &Entry) {
    match entry {
        Entry::User { text, .. } => out::say(format_args!("{}{}", out::paint(BOLD, "you> "), out::safe_lines(text))),
        Entry::Told { text, .. } => out::say(out::paint(DIM, out::safe_lines(text))),
        Entry::Model { said, stop, .. } => {
            if !said.text.trim().is_empty() {
                out::say(out::safe_lines(&said.text));
            }
            if let Some(warning) = stop.warning() {
                out::say(out::paint(WAIT, warning));
            }
        }
        Entry::Results { .. } => {}
        Entry::Stopped { why } => out::say(out::paint(WAIT, stopped(why))),
        // What a newer version wrote down.
        _ => out::say(out::paint(DIM, "(an entry that this version cannot show)")),
    }
}

/// Calls are shown as the store has them, secrets masked, and not as the model wrote them.
async fn show_calls(store: &Arc<dyn Store>, calls: &[CallId]) -> Result<(), Fault> {
    for id in calls {
        if let Some(call) = store.call(*id).await.map_err(GateError::from)? {
            out::say(ended_line(&call));
        }
    }
    Ok(())
}

fn stopped(why: &Stopped) -> String {
    match why {
        Stopped::Cancelled => "the run was cancelled".to_owned(),
        Stopped::TimedOut => "the run took too long and was ended".to_owned(),
        Stopped::Expired { tool, .. } => format!("nobody decided about {} in time: the run was ended", escape(tool)),
        Stopped::Limit { limit, allowed } => format!("the run reached its limit of {allowed} {}", escape(limit)),
        _ => "the run was ended".to_owned(),
    }
}
