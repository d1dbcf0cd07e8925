//! A tool of the server's, as the gate knows tools: the request goes on, the answer is the outcome.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use countersign::call::Declared;
use countersign::json::Bounds;
use countersign::{Call, Definition, Json, Running, Tool, ToolError};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Core;
use super::call::Matter;
use super::caller::Caller;
use super::catalog::Listed;
use super::link::{Asked, Missing};
use super::message::{Envelope, Id, pick};
use super::post::mirrored;
use super::request::{Era, Renamed, Request};
use super::retry::{identity, proposed};
use super::tongue::with_answers;
use super::words;
use crate::limits;
use crate::toolset::tool::claimed;

/// The server's tool: to run it is to send the request on.
pub(super) struct Forwarding<'a> {
    core: &'a Core,
    request: &'a Request,
    caller: &'a Caller,
    left: &'a CancellationToken,
    /// What the server says about it; no more than its name where it says nothing.
    definition: Arc<Definition>,
    pub(super) is_listed: bool,
    /// Whether only people may let it run.
    pub(super) must_ask: bool,
    answer: Mutex<Option<String>>,
}

impl<'a> Forwarding<'a> {
    pub(super) fn new(matter: &Matter<'a>, listed: Option<&Listed>) -> Forwarding<'a> {
        let bare = || {
            let mut bare = Definition::new(matter.request.name.as_str(), "");
            bare.tool = matter.tool();
            Arc::new(bare)
        };
        Forwarding {
            core: matter.core,
            request: matter.request,
            caller: matter.caller,
            left: matter.left,
            definition: listed.map_or_else(bare, |listed| Arc::clone(&listed.definition)),
            is_listed: listed.is_some(),
            must_ask: false,
            answer: Mutex::default(),
        }
    }

    /// The server's answer, as it came.
    pub(super) fn answered(&self) -> Option<String> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The call as the server is to read it, with answers to what it wanted to know.
    fn line(&self, id: &Id, arguments: &Json, answers: Option<&str>) -> Option<String> {
        let renamed = match self.caller {
            Caller::Pipe(_) | Caller::Nobody => Renamed::Id,
            Caller::Exchange(_) => Renamed::IdAndToken,
        };
        let line = self.request.outgoing(id, renamed, arguments)?;
        let line = match answers {
            Some(answers) => with_answers(&line, answers)?,
            None => line,
        };
        self.core.link.tongue.outgoing(line)
    }

    /// Waits for the answer; an error says why none came.
    async fn wait(&self, asked: &mut Asked<'_>, call: &Call) -> Result<String, Missing> {
        let late = sleep(self.core.run_within);
        tokio::pin!(late);
        let why = tokio::select! {
            answer = asked.answer() => return answer,
            () = self.left.cancelled() => "the client cancelled the call while it ran".to_owned(),
            () = &mut late => format!("no answer within {:?}", self.core.run_within),
        };
        if self.left.is_cancelled() {
            // Before the outcome is known, so that no identical call slips in between.
            self.core.still_owe(&identity(&proposed(call), self.request.more.as_ref()), call).await;
        }
        // In the older era a connection that is cut says nothing about what its client wants.
        if self.caller.gone().is_cancelled() && self.request.era == Era::Handshake {
            tokio::select! {
                answer = asked.answer() => return answer,
                () = late => {}
            }
        }
        let _ = self.core.link.send(words::cancelled(&asked.id, &why)).await;
        match tokio::time::timeout(limits::CANCEL_WITHIN, asked.answer()).await {
            Ok(answer) => answer,
            Err(_) => Err(Missing::Cut(why)),
        }
    }
}

#[async_trait]
impl Tool for Forwarding<'_> {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.definition)
    }

    fn declares(&self, _arguments: &Json) -> Result<Declared, String> {
        Ok(if self.must_ask { Declared::MustAsk } else { claimed(&self.definition) })
    }

    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        let unsent = |why: &str| ToolError::Failed(format!("nothing was sent to the server: {why}"));
        let (link, mut answers) = (&self.core.link, None);
        let mut rounds = 0;
        let answer = loop {
            let mut asked = link.ask().ok_or_else(|| unsent("it has ended"))?;
            let line = self.line(&asked.id, running.arguments(), answers.as_deref());
            let line = line.ok_or_else(|| unsent("the message cannot be put together"))?;
            let (id, token) = (&self.request.id, self.request.token.as_ref());
            let _attached = self.core.client.attach(&asked.id, self.caller, id, token);
            let mirrored = || mirrored(&self.definition.input_schema, running.arguments());
            let sent = asked.say(line, mirrored).await;
            sent.map_err(|error| ToolError::NoAnswer(format!("the message may have been sent in part: {error}")))?;
            let answer = self.wait(&mut asked, running.call()).await.map_err(|missing| match missing {
                Missing::Unsent(_) => ToolError::Failed(missing.to_string()),
                Missing::Gone | Missing::Cut(_) => ToolError::NoAnswer(missing.to_string()),
            })?;
            let Some(questions) = link.tongue.questions(&answer).filter(|_| rounds < limits::QUESTION_ROUNDS) else {
                break answer;
            };
            rounds += 1;
            answers = tokio::select! {
                put = self.core.put(questions, self.caller) => Some(put.map_err(ToolError::Failed)?),
                () = self.left.cancelled() => return Err(ToolError::Failed("the client cancelled the call".to_owned())),
            };
        };
        let outcome = outcome(&answer);
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        outcome
    }
}

/// What an answer says about the run.
fn outcome(answer: &str) -> Result<Json, ToolError> {
    let unreadable = |error: serde_json::Error| ToolError::NoAnswer(format!("the answer cannot be read: {error}"));
    let envelope = Envelope::read(answer).map_err(unreadable)?;
    let Some(result) = envelope.result else {
        let error = envelope.error.map_or("the answer is empty", |error| error.get());
        return Err(ToolError::Failed(error.to_owned()));
    };
    let [kind, requests, is_error, content] =
        pick(result.get(), ["resultType", "inputRequests", "isError", "content"]).map_err(unreadable)?;
    if kind.is_some_and(|kind| kind.get() == r#""input_required""#) {
        return Err(ToolError::Failed(words::unfinished(requests)));
    }
    if is_error.is_some_and(|is_error| is_error.get() == "true") {
        return Err(ToolError::Failed(texts(content.map_or("[]", |content| content.get()))));
    }
    Ok(Json::ingest(result.get(), Bounds::STORED)
        .unwrap_or_else(|error| Json::string(&format!("[the result was delivered and cannot be kept: {error}]"))))
}

/// The texts of a result's content.
fn texts(content: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Block {
        text: Option<String>,
    }
    let blocks: Vec<Block> = serde_json::from_str(content).unwrap_or_default();
    let texts: Vec<String> = blocks.into_iter().filter_map(|block| block.text).collect();
    if texts.is_empty() { "the tool reports an error".to_owned() } else { texts.join("\n") }
}
