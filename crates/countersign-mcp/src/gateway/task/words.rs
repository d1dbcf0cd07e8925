//! What a client reads about its tasks.

use std::time::Duration;

use countersign::{Call, HoldId, Time};
use serde_json::{Value, json};

use crate::gateway::able::TASKS;
use crate::gateway::message::{Id, pick};
use crate::gateway::request::Era;
use crate::gateway::words::{self, ELICIT, NO_CAPABILITY};
use crate::limits;

/// What every message about a task says of it.
pub(super) struct Task {
    pub(super) name: String,
    pub(super) begun: Time,
    /// How long it is kept, from its beginning; none where it is kept for ever.
    pub(super) life: Option<Duration>,
    pub(super) updated: Time,
}

impl Task {
    fn members(&self, result_type: &str, status: &str, message: &str) -> Value {
        json!({
            "resultType": result_type,
            "taskId": self.name,
            "status": status,
            "statusMessage": message,
            "createdAt": self.begun.to_string(),
            "lastUpdatedAt": self.updated.to_string(),
            "ttlMs": self.life.map(|life| u64::try_from(life.as_millis()).unwrap_or(u64::MAX)),
            "pollIntervalMs": u64::try_from(limits::TASK_POLL.as_millis()).unwrap_or(u64::MAX),
        })
    }
}

fn result(id: &Id, result: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.0)
}

const WAITING: &str = "It waits for a person's approval.";

/// Gives a client a task in place of a result.
pub(super) fn begun(id: &Id, task: &Task) -> String {
    result(id, &task.members("task", "working", WAITING))
}

/// Says that a call waits; with a prompt, that its client's user is to be asked.
pub(super) fn waiting(id: &Id, task: &Task, prompt: Option<(HoldId, &Value)>) -> String {
    let Some((hold, params)) = prompt else { return result(id, &task.members("complete", "working", WAITING)) };
    let mut members = task.members("complete", "input_required", WAITING);
    if let Some(members) = members.as_object_mut() {
        let prompts = json!({hold.to_string(): {"method": ELICIT, "params": params}});
        members.insert("inputRequests".into(), prompts);
    }
    result(id, &members)
}

/// Says that a call runs, or is about to.
pub(super) fn running(id: &Id, task: &Task) -> String {
    result(id, &task.members("complete", "working", "It was allowed to run."))
}

/// Says that a call was withdrawn.
pub(super) fn cancelled(id: &Id, task: &Task) -> String {
    result(id, &task.members("complete", "cancelled", "It was withdrawn and never ran."))
}

/// Says how a call ended, with its result as it was kept. A refusal is a result, too.
pub(super) fn ended(id: &Id, task: &Task, call: &Call) -> String {
    let members = task.members("complete", "completed", "It has ended.").to_string();
    let line = words::ended(id, Era::Modern, call);
    let result = pick(&line, ["result"]).ok().and_then(|[result]| result).map_or("{}", |result| result.get());
    // The result keeps its own bytes.
    let members = members.strip_suffix('}').unwrap_or(&members);
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{members},"result":{result}}}}}"#, id.0)
}

/// Says that a wish was heard.
pub(super) fn heard(id: &Id) -> String {
    result(id, &json!({"resultType": "complete"}))
}

/// Says that a client must know the extension to ask about tasks.
pub(super) fn unable(id: &Id) -> String {
    let error = json!({
        "code": NO_CAPABILITY,
        "message": "countersign: a client that asks about tasks must say that it knows them",
        "data": {"requiredCapabilities": {"extensions": {TASKS: {}}}},
    });
    format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.0)
}
