//! From the client to the server.

use std::sync::Arc;

use countersign::CallId;
use serde_json::value::RawValue;
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

use super::able::Able;
use super::caller::Caller;
use super::frame::{Frame, Lines};
use super::link::{Asked, Missing};
use super::message::{Envelope, Id, is_spelling_of, pick, range_of, splice};
use super::request::{Request, meta, progress_token};
use super::tongue::with_answers;
use super::words::{self, INTERNAL, INVALID_PARAMS, INVALID_REQUEST, NO_METHOD, PARSE_ERROR};
use super::{Core, InHand};
use crate::limits;

/// Where methods begin that ask for nothing.
const NOTIFICATIONS: &str = "notifications/";

/// Every request of every revision that is the server's business alone.
const PASSED: [&str; 18] = [
    "completion/complete",
    "initialize",
    "logging/setLevel",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    "subscriptions/listen",
    "tasks/cancel",
    "tasks/get",
    "tasks/list",
    "tasks/result",
    "tasks/update",
];

/// What the answer to a request is to us.
#[derive(Clone, Copy)]
enum Kind {
    /// What the server says when it shakes hands.
    Greeting,
    /// What there is, for a client that takes tasks of ours or does not.
    Discovery(Tasks),
    /// The server's tools.
    Listing,
    Other,
}

#[derive(Clone, Copy)]
enum Tasks {
    Taken,
    Unknown,
}

impl Kind {
    fn of(envelope: &Envelope<'_>) -> Kind {
        let takes_tasks = || meta(envelope.params).is_some_and(|meta| Able::declared(meta).tasks);
        match envelope.method.as_deref() {
            Some("initialize") => Kind::Greeting,
            Some("server/discover") => Kind::Discovery(if takes_tasks() { Tasks::Taken } else { Tasks::Unknown }),
            Some("tools/list") => Kind::Listing,
            _ => Kind::Other,
        }
    }
}

/// A call that was taken in hand, and is yet to be seen to.
pub(super) struct Taken {
    pub(super) request: Box<Request>,
    /// Is cancelled when the client cancels or is gone.
    pub(super) left: CancellationToken,
}

fn unreadable() -> String {
    "it cannot be read".to_owned()
}

/// A request that goes to the server under an id of ours, otherwise as it came.
struct Relay {
    id: Id,
    token: Option<Id>,
    line: String,
    ids: Vec<std::ops::Range<usize>>,
}

impl Relay {
    /// Reads a request; none where it cannot be answered.
    fn read(line: &str, envelope: &Envelope<'_>, caller: &Caller) -> Option<Relay> {
        let raw = envelope.id?;
        // Requests over HTTP share a connection to the server: what one of them names must be nobody else's.
        let token = match caller {
            Caller::Pipe(_) | Caller::Nobody => None,
            Caller::Exchange(_) => progress_token(envelope.params),
        };
        let mut ids = vec![range_of(line, raw.get())?];
        ids.extend(token.and_then(|token| range_of(line, token.get())));
        ids.sort_by_key(|range| range.start);
        Some(Relay { id: Id::read(raw)?, token: token.and_then(Id::read), line: line.to_owned(), ids })
    }

    fn under(&self, ours: &Id) -> Option<String> {
        let edits: Vec<_> = self.ids.iter().map(|range| (range.clone(), ours.0.as_str())).collect();
        splice(&self.line, &edits)
    }
}

impl Core {
    /// Reads what the client says until it closes its end.
    pub(super) async fn read_client(self: &Arc<Self>, input: impl AsyncRead + Unpin, caller: &Caller) {
        let mut lines = Lines::new(input, limits::CLIENT_MESSAGE_BYTES);
        loop {
            match lines.next().await {
                Ok(Some(Frame::Line(line))) if line.trim().is_empty() => {}
                Ok(Some(Frame::Line(line))) => {
                    if let Some(taken) = self.hear_client(&line, caller).await {
                        self.begin(taken, caller);
                    }
                }
                Ok(Some(Frame::TooLong)) => {
                    let most = limits::CLIENT_MESSAGE_BYTES;
                    self.refuse(caller, None, INVALID_REQUEST, &format!("a message has over {most} bytes")).await;
                }
                Ok(Some(Frame::NotText)) => self.refuse(caller, None, PARSE_ERROR, "a message is not UTF-8").await,
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Takes one line. Nothing goes on to the server that was not read here. A call is for whoever hears it to see to.
    pub(super) async fn hear_client(self: &Arc<Self>, line: &str, caller: &Caller) -> Option<Taken> {
        if line.trim_start().starts_with('[') {
            self.refuse_batch(line, caller).await;
            return None;
        }
        match Envelope::read(line) {
            Ok(envelope) => self.hear_message(line, &envelope, caller).await,
            Err(error) => {
                let code = if error.is_data() { INVALID_REQUEST } else { PARSE_ERROR };
                self.refuse(caller, None, code, &format!("a message cannot be read: {error}")).await;
                None
            }
        }
    }

    /// The same with a line that was read.
    pub(super) async fn hear_message(
        self: &Arc<Self>,
        line: &str,
        envelope: &Envelope<'_>,
        caller: &Caller,
    ) -> Option<Taken> {
        self.find_tongue(envelope).await;
        match envelope.method.as_deref() {
            None if self.takes_answer(envelope) => {}
            Some(_) if self.answers_for_server(envelope, caller).await => {}
            Some("tools/call") => return self.take_call(line, envelope, None, caller).await,
            Some("tools/list") => self.relay(line, envelope, caller).await,
            Some("notifications/cancelled") => self.take_cancel(line, envelope, caller).await,
            Some("tasks/get" | "tasks/update" | "tasks/cancel") if self.takes_task(envelope, caller).await => {}
            Some("server/discover") => self.relay(line, envelope, caller).await,
            Some("initialize") => {
                self.greeted_by(Able::greeted(envelope));
                self.relay(line, envelope, caller).await;
            }
            Some("notifications/initialized") => {
                self.forward(line).await;
                self.listing.want();
            }
            Some(method) if is_spelling_of(method.trim(), "tools/call") => {
                let id = envelope.id.and_then(Id::read);
                self.refuse(caller, id.as_ref(), NO_METHOD, "there is no such method; it is `tools/call`").await;
            }
            Some(method) if !self.passes(method) => self.refuse_method(method, envelope, caller).await,
            Some(_) | None => self.pass(line, envelope, caller).await,
        }
        None
    }

    /// Sees to a call in a task of its own.
    pub(super) fn begin(self: &Arc<Self>, taken: Taken, caller: &Caller) {
        self.tasks.spawn(Arc::clone(self).attend(taken, caller.clone()));
    }

    fn passes(&self, method: &str) -> bool {
        self.pass_unknown || PASSED.contains(&method) || method.starts_with(NOTIFICATIONS)
    }

    /// SECURITY: nobody knows what a server does by a method that no revision has; it may be another way to its tools.
    async fn refuse_method(&self, method: &str, envelope: &Envelope<'_>, caller: &Caller) {
        let method = countersign::show::escape(method);
        match envelope.id.and_then(Id::read) {
            Some(id) => {
                let why = format!("`{method}` is a method of no revision, and does not pass (see `--pass-unknown`)");
                self.refuse(caller, Some(&id), NO_METHOD, &why).await;
            }
            None => self.note(&format!("a message of the client's was dropped: `{method}` is of no revision")),
        }
    }

    /// Passes on what is the server's business alone.
    async fn pass(self: &Arc<Self>, line: &str, envelope: &Envelope<'_>, caller: &Caller) {
        // SECURITY: every request goes under an id of ours, so that no answer under one of the client's is anybody's.
        match envelope.method.is_some() && envelope.id.is_some() {
            true => self.relay(line, envelope, caller).await,
            false => self.forward(line).await,
        }
    }

    /// Takes an answer to a prompt of ours. No such answer goes any further, not even one that nobody waits for.
    fn takes_answer(&self, envelope: &Envelope<'_>) -> bool {
        let Some(id) = envelope.id.and_then(Id::read).filter(|id| self.prompts.is_ours(id)) else { return false };
        if !self.prompts.answered(&id, envelope) {
            self.note("an answer of the client's was ignored: nobody waits for it any more");
        }
        true
    }

    async fn forward(&self, line: &str) {
        if self.link.send(line.to_owned()).await.is_err() {
            self.note("the server takes no more messages");
        }
    }

    /// Answers a message that goes no further. A client that is gone is noticed where its input ends.
    async fn refuse(&self, caller: &Caller, id: Option<&Id>, code: i32, why: &str) {
        let _ = caller.answer(words::error(id, code, why)).await;
    }

    /// Batches belong to one old version of the protocol only, and to no client that we know of.
    async fn refuse_batch(&self, line: &str, caller: &Caller) {
        let why = "batches are not taken; send one message a line";
        let Ok(entries) = serde_json::from_str::<Vec<&RawValue>>(line) else {
            return self.refuse(caller, None, PARSE_ERROR, "a message cannot be read").await;
        };
        let ids = entries.iter().filter_map(|entry| pick(entry.get(), ["id"]).ok()?.into_iter().flatten().next());
        let errors: Vec<String> =
            ids.filter_map(Id::read).map(|id| words::error(Some(&id), INVALID_REQUEST, why)).collect();
        if errors.is_empty() {
            return self.refuse(caller, None, INVALID_REQUEST, why).await;
        }
        let _ = caller.answer(format!("[{}]", errors.join(","))).await;
    }

    /// Takes a request whose answer was cut off, and that has become this call, once more.
    pub(super) async fn hear_again(self: &Arc<Self>, line: &str, call: CallId, caller: &Caller) {
        if let Ok(envelope) = Envelope::read(line)
            && let Some(taken) = self.take_call(line, &envelope, Some(call), caller).await
        {
            self.begin(taken, caller);
        }
    }

    async fn take_call(
        self: &Arc<Self>,
        line: &str,
        envelope: &Envelope<'_>,
        resumes: Option<CallId>,
        caller: &Caller,
    ) -> Option<Taken> {
        let request = match Request::read(line, envelope, &self.states) {
            Ok(mut request) => {
                request.resumes = resumes;
                request
            }
            Err(why) => {
                let id = envelope.id.and_then(Id::read);
                self.refuse(caller, id.as_ref(), INVALID_PARAMS, &why).await;
                return None;
            }
        };
        let left = caller.left();
        let is_taken = self.take(&request.id, InHand::Call(left.clone()), caller).await;
        is_taken.then(|| Taken { request: Box::new(request), left })
    }

    /// Asks the server in the client's name, and passes on what it answers.
    async fn relay(self: &Arc<Self>, line: &str, envelope: &Envelope<'_>, caller: &Caller) {
        let Some(relay) = Relay::read(line, envelope, caller) else {
            return self.refuse(caller, None, INVALID_REQUEST, "an id must be a string or a number").await;
        };
        let kind = Kind::of(envelope);
        let (core, caller) = (Arc::clone(self), caller.clone());
        self.tasks.spawn(async move {
            let Some(answer) = core.relayed(&relay, &caller).await else { return };
            let answer = match kind {
                Kind::Greeting => core.greeted(&relay.line, &relay.id, answer).await,
                Kind::Discovery(_) => core.discovered(&relay.line, &relay.id, answer).await,
                Kind::Listing | Kind::Other => answer,
            };
            let answer = match (kind, answer) {
                (Kind::Listing, Ok(answer)) => core
                    .list_for_client(&relay.id, &answer)
                    .await
                    .map_err(|why| format!("the server's list of tools cannot be used: {why}")),
                (Kind::Discovery(Tasks::Taken), Ok(answer)) => {
                    let answer = words::offering_tasks(&answer).unwrap_or(answer);
                    words::under(&relay.id, &answer).ok_or_else(unreadable)
                }
                (_, Ok(answer)) => words::under(&relay.id, &answer).ok_or_else(unreadable),
                (_, Err(missing)) => Err(missing.to_string()),
            };
            let answer = answer.unwrap_or_else(|why| words::error(Some(&relay.id), INTERNAL, &why));
            let _ = caller.answer(answer).await;
        });
    }

    /// The server's answer, under our id; none where nobody is to be answered.
    async fn relayed(&self, relay: &Relay, caller: &Caller) -> Option<Result<String, Missing>> {
        let Some(mut asked) = self.link.ask() else { return Some(Err(Missing::Gone)) };
        if !self.take(&relay.id, InHand::Asked(asked.id.clone()), caller).await {
            return None;
        }
        let mut line = relay.under(&asked.id)?;
        let mut answer = self.asked(relay, line, &mut asked, caller).await?;
        for _ in 0..limits::QUESTION_ROUNDS {
            let Some(questions) = answer.as_deref().ok().and_then(|answer| self.link.tongue.questions(answer)) else {
                break;
            };
            let put = tokio::select! {
                put = self.put(questions, caller) => put,
                () = caller.gone().cancelled_owned() => Err("the client is gone".to_owned()),
            };
            let Some(again) = self.link.ask() else { break };
            asked = again;
            let known = self.in_hand().get_mut(&(caller.lane(), relay.id.clone())).map(|known| {
                *known = InHand::Asked(asked.id.clone());
            });
            known?;
            line = relay.under(&asked.id)?;
            answer = match put.map(|answers| with_answers(&line, &answers)) {
                Ok(Some(line)) => self.asked(relay, line, &mut asked, caller).await?,
                Ok(None) => Err(Missing::Unsent(unreadable())),
                Err(why) => Err(Missing::Unsent(why)),
            };
        }
        // What was cancelled meanwhile is not answered.
        self.in_hand().remove(&(caller.lane(), relay.id.clone())).map(|_| answer)
    }

    /// Sends a request under our id and waits for its answer; none where its client is gone.
    async fn asked(
        &self,
        relay: &Relay,
        line: String,
        asked: &mut Asked<'_>,
        caller: &Caller,
    ) -> Option<Result<String, Missing>> {
        let _attached = self.client.attach(&asked.id, caller, &relay.id, relay.token.as_ref());
        if let Err(error) = asked.send(line).await {
            return Some(Err(Missing::Cut(error.to_string())));
        }
        tokio::select! {
            answer = asked.answer() => Some(answer),
            () = caller.gone().cancelled_owned() => {
                self.in_hand().remove(&(caller.lane(), relay.id.clone()));
                let _ = self.link.send(words::cancelled(&asked.id, "the client is gone")).await;
                None
            }
        }
    }

    /// Takes a request in hand; false where that cannot be.
    pub(super) async fn take(&self, id: &Id, what: InHand, caller: &Caller) -> bool {
        let key = (caller.lane(), id.clone());
        let is_double = {
            let mut in_hand = self.in_hand();
            let is_double = in_hand.contains_key(&key);
            if !is_double && in_hand.len() < limits::CALLS {
                in_hand.insert(key, what);
                return true;
            }
            is_double
        };
        match (is_double, caller) {
            // On a pipe an answer would pass for that of the request before, which may well be running.
            (true, Caller::Pipe(_) | Caller::Nobody) => {
                self.note("a request was dropped: its id is that of a request in hand")
            }
            (true, Caller::Exchange(_)) => {
                self.refuse(caller, Some(id), INVALID_REQUEST, "this id is that of a request in hand").await;
            }
            (false, _) => self.refuse(caller, Some(id), INVALID_REQUEST, "too many requests are in hand").await,
        }
        false
    }

    /// A cancelled call detaches; what the server knows under another id is cancelled under that one.
    async fn take_cancel(&self, line: &str, envelope: &Envelope<'_>, caller: &Caller) {
        let named = envelope.params.and_then(|params| pick(params.get(), ["requestId"]).ok());
        let Some(raw) = named.and_then(|[raw]| raw) else { return self.forward(line).await };
        let renamed = match Id::read(raw).and_then(|id| self.in_hand().remove(&(caller.lane(), id))) {
            None => return self.forward(line).await,
            Some(InHand::Call(left)) => return left.cancel(),
            Some(InHand::Asked(ours)) => ours,
        };
        if let Some(line) = range_of(line, raw.get()).and_then(|at| splice(line, &[(at, renamed.0.as_str())])) {
            self.forward(&line).await;
        }
    }
}
