//! Sessions in the words of the API.

use std::sync::Arc;

use countersign::redact::Redactor;
use countersign::{Call, CallId, GateError};
use countersign_agent::model::{Given, Usage, Wanted};
use countersign_agent::{Entry, RunError, Spent, Stopped};
use countersign_api::wire::{CallResult, ClientCall, SessionEntry, SessionUsage, WantedCall, What};

/// What a reader may see of texts: an agent its own as they are, people with secrets masked.
#[derive(Clone, Copy)]
pub(crate) enum Eyes<'a> {
    /// Whose session it is.
    Own,
    /// Everybody else.
    Others(&'a Redactor),
}

impl Eyes<'_> {
    /// A text as this reader sees it.
    pub(crate) fn text(self, text: &str) -> String {
        match self {
            Eyes::Own => text.to_owned(),
            Eyes::Others(redactor) => redactor.text(text).into_owned(),
        }
    }
}

/// An entry of a thread, as a reader sees it.
pub(crate) fn entry(thread: &str, agents: &[Arc<str>], number: u32, entry: &Entry, eyes: Eyes<'_>) -> SessionEntry {
    let what = match entry {
        Entry::User { text, run, .. } => What::Message { text: eyes.text(text), run: run.to_string() },
        Entry::Model { said, usage: took, .. } => What::Said {
            text: eyes.text(&said.text),
            calls: said.calls.iter().map(|call| wanted(call, eyes)).collect(),
            usage: usage(&Spent { turns: 1, usage: *took }),
        },
        Entry::Results { given, calls, agent, .. } => {
            What::Results { results: results(given, calls, eyes), handed_to: agent.as_deref().map(str::to_owned) }
        }
        Entry::Told { text, thread, .. } => What::Told { text: eyes.text(text), child: thread.to_string() },
        Entry::Stopped { why } => stopped(why),
        // What a newer version wrote down is told as nothing more than that there is something.
        _ => What::Stopped { why: "unknown".to_owned(), detail: None },
    };
    SessionEntry { thread: thread.to_owned(), agents: names(agents), entry: number, what }
}

fn wanted(call: &Wanted, eyes: Eyes<'_>) -> WantedCall {
    WantedCall { label: call.label.to_string(), name: call.name.to_string(), arguments: eyes.text(&call.arguments) }
}

/// A call that was never proposed has a result and no id, so the two lists are matched only where they are as long.
fn results(given: &[Given], calls: &[CallId], eyes: Eyes<'_>) -> Vec<CallResult> {
    let known = given.len() == calls.len();
    let result = |(index, given): (usize, &Given)| CallResult {
        call: calls.get(index).copied().filter(|_| known),
        label: given.label.to_string(),
        name: given.name.to_string(),
        text: eyes.text(&given.text),
        is_error: given.is_error,
    };
    given.iter().enumerate().map(result).collect()
}

fn stopped(why: &Stopped) -> What {
    let (why, detail) = match why {
        Stopped::Cancelled => ("cancelled", None),
        Stopped::TimedOut => ("timed_out", None),
        Stopped::Expired { call, tool } => ("expired", Some(format!("{tool} ({call})"))),
        Stopped::Limit { limit, allowed } => ("limit", Some(format!("{allowed} {limit}"))),
        _ => ("unknown", None),
    };
    What::Stopped { why: why.to_owned(), detail }
}

/// What was taken.
pub(crate) fn usage(spent: &Spent) -> SessionUsage {
    let Usage { input, cached, output, micro_dollars } = spent.usage;
    SessionUsage { turns: spent.turns, input, cached, output, micro_dollars }
}

/// A call that waits for the client.
pub(crate) fn client_call(call: &Arc<Call>) -> ClientCall {
    let path = &call.facts.path;
    ClientCall {
        call: call.id,
        tool: call.facts.tool.to_string(),
        thread: path.thread.as_deref().map(str::to_owned),
        agents: names(&path.agents),
    }
}

/// Names as texts.
pub(crate) fn names(names: &[Arc<str>]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// Why a run broke off, as its owner may know it.
pub(crate) fn told(error: &RunError) -> String {
    match error {
        // The store's words name files and hosts: they are for the operator's log.
        RunError::Gate(GateError::Store(_)) => "the store failed".to_owned(),
        error => error.to_string(),
    }
}
