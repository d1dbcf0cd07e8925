//! Calls that wait as tasks: a client of the newer era that knows the extension gets a name for its call, and asks how it
//! stands for as long as it likes.
//!
//! SECURITY: a task is a random name of a record in our store, for one principal. It says which call is meant and how it
//! was asked for; what became of the call is in the call's own record, so a gateway that starts anew knows as much as the
//! one before. Nothing runs for a client that does not ask any more: an approved call is claimed when its client asks.

mod words;

use std::sync::Arc;

use countersign::store::{Expect, Op};
use countersign::{Call, CallId, CallState, Claimed, GateError, Json, Permit, Time, limits as core_limits};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::able::Able;
use super::call::Matter;
use super::caller::Caller;
use super::catalog::Listed;
use super::forward::Forwarding;
use super::listing::Standing;
use super::message::{Envelope, Id, pick};
use super::prompt::Way;
use super::request::{Request, meta};
use super::retry::{identity, proposed};
use super::state::{is_random, random};
use super::words::{INTERNAL, INVALID_PARAMS, error};
use super::{Core, InHand};
use crate::limits;
use words::Task;

/// Where tasks are kept among the store's records.
const NAMESPACE: &str = "gateway-tasks";
/// What the name of a task begins with, so that no state is taken for one.
const MARK: char = 't';

/// What a task's record says.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    principal: Arc<str>,
    server: Arc<str>,
    call: CallId,
    at: Time,
    /// The request that runs once it may.
    line: String,
    /// When the record is gone; the store says.
    #[serde(skip)]
    until: Option<Time>,
}

impl Kept {
    /// What its request brings the server beside the arguments.
    fn more(&self, ours: &str) -> Option<Json> {
        Request::read(&self.line, &Envelope::read(&self.line).ok()?, ours).ok()?.more
    }

    fn task(&self, name: String, updated: Time) -> Task {
        Task { name, begun: self.at, life: self.until.map(|until| self.at.until(until)), updated }
    }
}

/// A call that was claimed for its task.
struct Ready {
    permit: Permit,
    request: Request,
    listed: Option<Arc<Listed>>,
}

/// What a client wants of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// To know how it stands.
    Get,
    /// To answer what its user was asked.
    Update,
    /// That it does not go on.
    Cancel,
}

impl Wish {
    /// What a method wishes; none where it is about no task.
    pub(super) fn of(method: &str) -> Option<Wish> {
        match method {
            "tasks/get" => Some(Wish::Get),
            "tasks/update" => Some(Wish::Update),
            "tasks/cancel" => Some(Wish::Cancel),
            _ => None,
        }
    }
}

/// A request about a task of ours.
#[derive(Debug)]
pub(super) struct About {
    id: Id,
    wish: Wish,
    task: String,
    able: Able,
    /// What the client answers to prompts, as it stands in the message.
    answers: Option<String>,
}

impl About {
    /// Reads a request; none where it is about no task of ours.
    pub(super) fn read(envelope: &Envelope<'_>, ours: &str) -> Option<About> {
        let wish = Wish::of(envelope.method.as_deref()?)?;
        let [task, answers] = pick(envelope.params?.get(), ["taskId", "inputResponses"]).ok()?;
        let task: String = serde_json::from_str(task?.get()).ok().filter(|task: &String| task.starts_with(ours))?;
        let able = meta(envelope.params).map_or_else(Able::default, Able::declared);
        Some(About { id: Id::read(envelope.id?)?, wish, task, able, answers: answers.map(|raw| raw.get().to_owned()) })
    }
}

impl Core {
    /// Makes a task of a call that waits, once, however often it is asked for. None where the request cannot be kept.
    pub(super) async fn begin_task(&self, request: &Request, call: &Call) -> Result<Option<String>, GateError> {
        if let Some(task) = self.task_of(call).await? {
            return Ok(Some(words::begun(&request.id, &task)));
        }
        let Some(line) = request.kept().filter(|line| line.len() <= limits::TASK_BYTES) else { return Ok(None) };
        let store = self.gate.store();
        let at = store.now().await?;
        let life = call
            .open_hold()
            .and_then(|hold| hold.expires_at)
            .map(|expires| at.until(expires) + core_limits::CLAIM_WITHIN + self.run_within + limits::LINGER);
        let (principal, server) = (Arc::clone(&self.path.principal), Arc::clone(&self.server));
        let kept = Kept { principal, server, call: call.id, at, line, until: None };
        let value = serde_json::to_vec(&kept).map_err(|error| GateError::BadInput(error.to_string()))?;
        let name = format!("{MARK}{}", random());
        // Before the client hears of it: whoever asks for it from now on finds it.
        store.put_record(NAMESPACE, &name, &value, Expect::Absent, life).await?;
        store.put_record(NAMESPACE, &key_of(call.id), name.as_bytes(), Expect::Any, life).await?;
        let task = Task { name: format!("{}{name}", self.states), begun: at, life, updated: at };
        Ok(Some(words::begun(&request.id, &task)))
    }

    /// The task that an identical request was given for this call.
    async fn task_of(&self, call: &Call) -> Result<Option<Task>, GateError> {
        let record = self.gate.store().record(NAMESPACE, &key_of(call.id)).await?;
        let Some(name) = record.and_then(|record| String::from_utf8(record.value).ok()) else { return Ok(None) };
        let name = format!("{}{name}", self.states);
        let kept = self.kept(&name).await?.filter(|kept| kept.call == call.id);
        Ok(kept.map(|kept| kept.task(name, call.updated_at)))
    }

    /// Takes a request about a task of ours. False where it is about none.
    pub(super) async fn takes_task(self: &Arc<Self>, envelope: &Envelope<'_>, caller: &Caller) -> bool {
        let Some(about) = About::read(envelope, &self.states) else { return false };
        if self.take(&about.id, InHand::Call(CancellationToken::new()), caller).await {
            self.tasks.spawn(Arc::clone(self).attend_task(about, caller.clone()));
        }
        true
    }

    /// Answers, and runs the task's call where it may run now.
    async fn attend_task(self: Arc<Self>, about: About, caller: Caller) {
        let (answer, ready) = match self.wished(&about).await {
            Ok(answered) => answered,
            Err(why) => (error(Some(&about.id), INTERNAL, &why.to_string()), None),
        };
        self.in_hand().remove(&(caller.lane(), about.id));
        let answering = async move { drop(caller.answer(answer).await) };
        let running = async {
            if let Some(ready) = ready {
                self.run_task(ready).await;
            }
        };
        // What was claimed runs even if its client is slow to read.
        tokio::join!(answering, running);
    }

    async fn wished(self: &Arc<Self>, about: &About) -> Result<(String, Option<Ready>), GateError> {
        if !about.able.tasks {
            return Ok((words::unable(&about.id), None));
        }
        let Some(kept) = self.kept(&about.task).await? else {
            return Ok((error(Some(&about.id), INVALID_PARAMS, "there is no such task"), None));
        };
        // What time brought to the call counts, too: it may have expired.
        drop(self.gate.store().run(Op::Tick { call: kept.call }).await);
        let call = self.gate.get(kept.call).await?;
        match about.wish {
            Wish::Get => return self.look(about, &kept, &call).await,
            Wish::Update => self.update(about, &call).await?,
            // A call that runs or has ended cannot be withdrawn, and one that others wait for is theirs, too.
            Wish::Cancel if self.retries.is_attended(call.id) => {}
            Wish::Cancel => drop(self.gate.cancel(call.id).await),
        }
        Ok((words::heard(&about.id), None))
    }

    /// A task of this principal. Absent and foreign are the same.
    async fn kept(&self, task: &str) -> Result<Option<Kept>, GateError> {
        let Some(name) = task.strip_prefix(&*self.states).filter(|name| is_name(name)) else { return Ok(None) };
        let Some(record) = self.gate.store().record(NAMESPACE, name).await? else { return Ok(None) };
        let kept = serde_json::from_slice::<Kept>(&record.value).ok();
        let ours = kept.filter(|kept| kept.principal == self.path.principal && kept.server == self.server);
        Ok(ours.map(|kept| Kept { until: record.expires_at, ..kept }))
    }

    async fn look(
        self: &Arc<Self>,
        about: &About,
        kept: &Kept,
        call: &Arc<Call>,
    ) -> Result<(String, Option<Ready>), GateError> {
        let task = kept.task(about.task.clone(), call.updated_at);
        let mut ready = None;
        let answer = match call.state {
            CallState::Pending => {
                let prompt = self.prompt(about.able, call).await?;
                let prompt = prompt.as_ref().map(|prompt| (prompt.hold, &prompt.params));
                words::waiting(&about.id, &task, prompt)
            }
            CallState::Allowed | CallState::Approved => {
                ready = self.claim_task(kept, call).await?;
                words::running(&about.id, &task)
            }
            CallState::Executing => words::running(&about.id, &task),
            CallState::Cancelled => words::cancelled(&about.id, &task),
            CallState::Denied
            | CallState::Answered
            | CallState::Expired
            | CallState::Lapsed
            | CallState::Succeeded
            | CallState::Failed
            | CallState::InDoubt
            | CallState::Resolved => {
                // It is about to reach its client: an identical call from now on is a new one.
                self.paid(&identity(&proposed(call), kept.more(&self.states).as_ref()), call.id).await;
                words::ended(&about.id, &task, call)
            }
        };
        Ok((answer, ready))
    }

    /// Takes what the person at the client said. Only a form of ours that they can have seen is answered.
    async fn update(&self, about: &About, call: &Arc<Call>) -> Result<(), GateError> {
        let Some(prompt) = self.prompt(about.able, call).await?.filter(|prompt| prompt.way == Way::Form) else {
            return Ok(());
        };
        let key = prompt.hold.to_string();
        let said = about.answers.as_deref().and_then(|answers| pick(answers, [key.as_str()]).ok());
        if let Some([Some(said)]) = said {
            self.take_answer(prompt.hold, call, said.get()).await;
        }
        Ok(())
    }

    /// Claims a task's call for its client, who has just asked. None where it cannot be claimed now.
    async fn claim_task(&self, kept: &Kept, call: &Call) -> Result<Option<Ready>, GateError> {
        let unreadable = |why: String| GateError::BadInput(format!("the task's request cannot be read: {why}"));
        let envelope = Envelope::read(&kept.line).map_err(|error| unreadable(error.to_string()))?;
        let request = Request::read(&kept.line, &envelope, &self.states).map_err(unreadable)?;
        // SECURITY: as for any call that people were asked about.
        if call.definition.is_some() && !self.listed_anew(&request).await {
            return Ok(None);
        }
        let listed = match self.standing(&request).await? {
            Standing::Known(listed) => Some(listed),
            Standing::Unknown => None,
            // It lapses, unless the change is accepted in time.
            Standing::Stopped(..) => return Ok(None),
        };
        let known = listed.as_ref().map(|listed| listed.definition.digest());
        match self.gate.claim(call.id, known).await {
            Ok(Claimed::Permit(permit)) => Ok(Some(Ready { permit, request, listed })),
            // Another has it, or all calls are halted: the next time its client asks tells.
            Ok(Claimed::Not(_)) | Err(GateError::Rejected(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Runs a task's call. Its outcome is on record, for whoever asks.
    async fn run_task(self: &Arc<Self>, ready: Ready) {
        let Ready { permit, request, listed } = ready;
        let (caller, left) = (Caller::Nobody, CancellationToken::new());
        let matter = Matter { core: self, request: &request, caller: &caller, left: &left };
        let tool = Forwarding::new(&matter, listed.as_deref());
        if let Err(error) = self.gate.run(permit, &tool).await {
            // When its lease ends it is in doubt.
            self.note(&format!("the outcome of a task could not be recorded: {error}"));
        }
    }
}

/// Where the name of a call's task stands. No task has such a name.
fn key_of(call: CallId) -> String {
    format!("of-{call}")
}

pub(super) fn is_name(name: &str) -> bool {
    name.strip_prefix(MARK).is_some_and(is_random)
}
