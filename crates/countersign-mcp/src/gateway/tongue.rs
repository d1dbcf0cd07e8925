//! Client and server of different eras, and what the gateway does between them.
//!
//! ```text
//! client      server       the gateway
//! newer       handshake    shakes hands itself; takes the protocol's `_meta` out of requests and gives results their
//!                          type; a server that asks for something is told that its client cannot be asked
//! handshake   newer        shakes hands in the server's name; gives requests their `_meta`; asks the client what the
//!                          server wants to know, and sends the request again with the answers
//! ```
//!
//! A client of the newer era that can be asked something, and finds a server of the other one, is told so: most of them
//! know both eras, and lose nothing if they shake hands themselves. One that goes on in the newer era is served all the
//! same.

use std::collections::HashSet;
use std::sync::{Mutex, OnceLock, PoisonError};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use super::Core;
use super::able::{Able, CAPABILITIES_KEY, CLIENT_KEY};
use super::caller::Caller;
use super::link::Missing;
use super::listing::of_the_protocol;
use super::message::{Envelope, Id, members, pick, with_member};
use super::request::{HANDSHAKES, VERSION_KEY, meta, protocol_version, without};
use super::words::{self, ELICIT, NO_METHOD};
use crate::limits;

/// The revision of the newer era.
const NEWER: &str = "2026-07-28";
/// The last revision of the handshake era.
const LAST_HANDSHAKE: &str = "2025-11-25";
/// The `_meta` key by which a server of the newer era says who it is.
const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";
/// The `_meta` key by which a request says how much it wants to be told.
const LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";
/// What a server may ask of a client that shook hands.
const ASKABLE: [&str; 3] = [ELICIT, "sampling/createMessage", "roots/list"];
/// What a server that shook hands may tell a client that subscribed to nothing.
const TOLD: [&str; 3] = ["notifications/progress", "notifications/message", "notifications/cancelled"];

/// By which a server says that its tools are not what they were.
pub(super) const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

/// How the server speaks, seen from its client. Found out once in a conversation.
#[derive(Default)]
pub(super) struct Tongue {
    spoken: OnceLock<Spoken>,
    /// Held while it is found out.
    asking: AsyncMutex<()>,
}

enum Spoken {
    /// As its client does.
    Alike,
    /// With a handshake, unlike its client: what it said when we shook hands.
    Older(Hello),
    /// Without one, unlike its client: what requests carry instead.
    Newer(Dress),
}

/// What a server says about itself.
struct Hello {
    capabilities: Box<RawValue>,
    info: Option<Box<RawValue>>,
    instructions: Option<Box<RawValue>>,
}

/// What requests of the newer era carry, from what their client said when it shook hands.
struct Dress {
    capabilities: String,
    info: String,
    /// How much the client wants to be told, once it has said so.
    level: Mutex<Option<String>>,
}

/// What is to be done with something that the server said.
pub(super) enum Said {
    /// It is for the client, in words that the client knows.
    Pass(String),
    /// It is not for the client; the server gets this answer.
    Answer(String),
    /// The server's tools may have changed, and the client has no ear for that.
    Change,
    /// The client has no ear for it.
    Drop,
}

/// What a server of the newer era wants to know before it answers.
pub(super) struct Questions {
    requests: Vec<(String, String, Option<Box<RawValue>>)>,
    state: Option<Box<RawValue>>,
}

impl Tongue {
    fn is_found(&self) -> bool {
        self.spoken.get().is_some()
    }

    fn found(&self, spoken: Spoken) {
        // Whoever was quicker found the same.
        let _ = self.spoken.set(spoken);
    }

    fn older(&self) -> Option<&Hello> {
        match self.spoken.get() {
            Some(Spoken::Older(hello)) => Some(hello),
            _ => None,
        }
    }

    fn newer(&self) -> Option<&Dress> {
        match self.spoken.get() {
            Some(Spoken::Newer(dress)) => Some(dress),
            _ => None,
        }
    }

    /// A message as the server knows it. None where it cannot be put so.
    pub(super) fn outgoing(&self, line: String) -> Option<String> {
        match self.spoken.get() {
            None | Some(Spoken::Alike) => Some(line),
            Some(Spoken::Older(_)) => {
                let keys = [VERSION_KEY, CLIENT_KEY, CAPABILITIES_KEY, LEVEL_KEY];
                keys.iter().try_fold(line, |line, key| without(&line, &["_meta"], key))
            }
            Some(Spoken::Newer(dress)) => dressed(line, &dress.members()),
        }
    }

    /// What is to be done with a message of the server's.
    pub(super) fn incoming(&self, line: String) -> Said {
        if self.older().is_none() {
            return Said::Pass(line);
        }
        // What cannot be read is refused where messages are taken.
        let Ok(envelope) = Envelope::read(&line) else { return Said::Pass(line) };
        match (envelope.method.as_deref(), envelope.id.and_then(Id::read)) {
            (Some("ping"), Some(id)) => Said::Answer(words::plain(&id, "{}")),
            (Some(method), Some(id)) => {
                let why = format!("the client cannot be asked for `{}`", countersign::show::escape(method));
                Said::Answer(words::error(Some(&id), NO_METHOD, &why))
            }
            (Some(TOOLS_CHANGED), None) => Said::Change,
            (Some(method), None) if !TOLD.contains(&method) => Said::Drop,
            (Some(_), None) => Said::Pass(line),
            (None, _) => Said::Pass(typed(&line, &envelope).unwrap_or(line)),
        }
    }

    /// What the server wants to know before it answers, if its client is to be asked by us.
    pub(super) fn questions(&self, answer: &str) -> Option<Questions> {
        self.newer()?;
        let result = Envelope::read(answer).ok()?.result?;
        let [kind, requests, state] = pick(result.get(), ["resultType", "inputRequests", "requestState"]).ok()?;
        if kind?.get() != r#""input_required""# {
            return None;
        }
        let requests = requests.map_or_else(|| Some(Vec::new()), |requests| members(requests.get()).ok())?;
        let read = |(name, request): (String, &RawValue)| {
            let [method, params] = pick(request.get(), ["method", "params"]).ok()?;
            Some((name, serde_json::from_str(method?.get()).ok()?, params.map(ToOwned::to_owned)))
        };
        let requests = requests.into_iter().map(read).collect::<Option<Vec<_>>>()?;
        let names: HashSet<&str> = requests.iter().map(|(name, ..)| name.as_str()).collect();
        (names.len() == requests.len()).then_some(())?;
        Some(Questions { requests, state: state.map(ToOwned::to_owned) })
    }
}

impl Hello {
    /// Reads what a server said when it shook hands.
    fn shaken(answer: &str) -> Option<Hello> {
        let result = Envelope::read(answer).ok()?.result?;
        let [capabilities, info, instructions] =
            pick(result.get(), ["capabilities", "serverInfo", "instructions"]).ok()?;
        Some(Hello {
            capabilities: capabilities?.to_owned(),
            info: info.map(ToOwned::to_owned),
            instructions: instructions.map(ToOwned::to_owned),
        })
    }

    /// Reads what a server of the newer era says about itself. None where it does not speak as we do.
    fn discovered(answer: &str) -> Option<Hello> {
        let result = Envelope::read(answer).ok()?.result?;
        let [versions, capabilities, instructions, meta] =
            pick(result.get(), ["supportedVersions", "capabilities", "instructions", "_meta"]).ok()?;
        let versions: Vec<String> = serde_json::from_str(versions?.get()).ok()?;
        let [info] = meta.and_then(|meta| pick(meta.get(), [SERVER_KEY]).ok()).unwrap_or_default();
        versions.iter().any(|version| version == NEWER).then_some(())?;
        Some(Hello {
            capabilities: capabilities?.to_owned(),
            info: info.map(ToOwned::to_owned),
            instructions: instructions.map(ToOwned::to_owned),
        })
    }

    /// What a client hears that asks what there is.
    fn as_discovery(&self, id: &Id) -> String {
        let meta = self.info.as_ref().map(|info| format!(r#","_meta":{{"{SERVER_KEY}":{info}}}"#)).unwrap_or_default();
        let result = format!(
            r#"{{"resultType":"complete","supportedVersions":["{NEWER}"],"capabilities":{},"ttlMs":0,"cacheScope":"private"{}{meta}}}"#,
            self.capabilities,
            self.told(),
        );
        words::plain(id, &result)
    }

    /// What a client hears that shakes hands.
    fn as_handshake(&self, id: &Id, version: &str, server: &str) -> String {
        let unnamed = || json!({"name": server, "version": "0"}).to_string();
        let info = self.info.as_ref().map_or_else(unnamed, ToString::to_string);
        let result = format!(
            r#"{{"protocolVersion":"{version}","capabilities":{},"serverInfo":{info}{}}}"#,
            self.capabilities,
            self.told(),
        );
        words::plain(id, &result)
    }

    fn told(&self) -> String {
        self.instructions.as_ref().map(|told| format!(r#","instructions":{told}"#)).unwrap_or_default()
    }
}

impl Dress {
    /// Reads what a client says when it shakes hands.
    fn of(envelope: &Envelope<'_>) -> Option<Dress> {
        let [capabilities, info] = pick(envelope.params?.get(), ["capabilities", "clientInfo"]).ok()?;
        let or_nothing = |raw: Option<&RawValue>| raw.map_or_else(|| "{}".to_owned(), |raw| raw.get().to_owned());
        Some(Dress { capabilities: or_nothing(capabilities), info: or_nothing(info), level: Mutex::default() })
    }

    fn members(&self) -> String {
        let level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let level = level.as_ref().map(|level| format!(r#","{LEVEL_KEY}":{level}"#)).unwrap_or_default();
        let (capabilities, info) = (&self.capabilities, &self.info);
        format!(r#""{VERSION_KEY}":"{NEWER}","{CLIENT_KEY}":{info},"{CAPABILITIES_KEY}":{capabilities}{level}"#)
    }
}

/// A request with these members in its `_meta`. Anything else stays as it is, as does one that has them already; one that
/// has some of them is none that two readers would read in one way.
fn dressed(line: String, wanted: &str) -> Option<String> {
    let envelope = Envelope::read(&line).ok()?;
    if envelope.method.is_none() || envelope.id.is_none() || protocol_version(&envelope).is_some() {
        return Some(line);
    }
    let Some(params) = envelope.params else {
        let whole: &RawValue = serde_json::from_str(&line).ok()?;
        return with_member(&line, whole, &format!(r#""params":{{"_meta":{{{wanted}}}}}"#));
    };
    match meta(Some(params)) {
        Some(meta) => match pick(meta.get(), [CLIENT_KEY, CAPABILITIES_KEY, LEVEL_KEY]).ok()? {
            [None, None, None] => with_member(&line, meta, wanted),
            _ => None,
        },
        None => with_member(&line, params, &format!(r#""_meta":{{{wanted}}}"#)),
    }
}

/// An answer whose result says of what type it is; none where it does already, or is no such result.
fn typed(line: &str, envelope: &Envelope<'_>) -> Option<String> {
    let result = envelope.result?;
    with_member(line, result, type_of(result)?)
}

/// What a result lacks to be one of the newer era; none where it lacks nothing.
pub(super) fn type_of(result: &RawValue) -> Option<&'static str> {
    let names = ["resultType", "tools", "resources", "resourceTemplates", "prompts", "contents"];
    let [kind, listed @ ..] = pick(result.get(), names).ok()?;
    if kind.is_some() {
        return None;
    }
    // What may be kept for a while says for how long.
    Some(match listed.iter().any(Option::is_some) {
        true => r#""resultType":"complete","ttlMs":0,"cacheScope":"private""#,
        false => r#""resultType":"complete""#,
    })
}

impl Core {
    /// Finds out how the server speaks, before a request of a client of the newer era goes to it.
    pub(super) async fn find_tongue(&self, envelope: &Envelope<'_>) {
        let tongue = &self.link.tongue;
        let is_probe = envelope.method.as_deref() == Some("server/discover");
        if tongue.is_found() || is_probe || envelope.id.is_none() || protocol_version(envelope).is_none() {
            return;
        }
        let _alone = tongue.asking.lock().await;
        if tongue.is_found() {
            return;
        }
        let dress = meta(envelope.params).map(|meta| of_the_protocol(meta.get())).unwrap_or_default();
        let answer = self.ask_for("server/discover", &format!(r#"{{"_meta":{dress}}}"#)).await;
        let is_newer = answer.is_ok_and(|answer| Envelope::read(&answer).is_ok_and(|answer| answer.result.is_some()));
        match is_newer {
            true => tongue.found(Spoken::Alike),
            false => self.shake_hands(envelope).await,
        }
    }

    /// Shakes hands with a server that knows nothing newer. Where that fails, too, its own errors say why.
    async fn shake_hands(&self, envelope: &Envelope<'_>) {
        let info = meta(envelope.params).and_then(|meta| pick(meta.get(), [CLIENT_KEY]).ok()?.into_iter().next()?);
        let info = info.map_or(r#"{"name":"countersign","version":"1"}"#, RawValue::get);
        let params = format!(r#"{{"protocolVersion":"{LAST_HANDSHAKE}","capabilities":{{}},"clientInfo":{info}}}"#);
        let answer = self.ask_for("initialize", &params).await.ok();
        let spoken = match answer.and_then(|answer| Hello::shaken(&answer)) {
            Some(hello) => {
                let shaken = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
                if self.link.send(shaken.to_owned()).await.is_err() {
                    self.note("the server takes no more messages");
                }
                Spoken::Older(hello)
            }
            None => Spoken::Alike,
        };
        self.link.tongue.found(spoken);
    }

    /// A question of our own, and its answer.
    async fn ask_for(&self, method: &str, params: &str) -> Result<String, Missing> {
        let mut asked = self.link.ask().ok_or(Missing::Gone)?;
        let line = format!(r#"{{"jsonrpc":"2.0","id":{},"method":"{method}","params":{params}}}"#, asked.id.0);
        asked.send(line).await.map_err(|error| Missing::Cut(error.to_string()))?;
        let late = |_| Err(Missing::Cut("it did not come in time".to_owned()));
        timeout(limits::GREET_WITHIN, asked.answer()).await.unwrap_or_else(late)
    }

    /// Takes what the server answered to a client that shook hands. One that knows no handshake is spoken to in its own
    /// way from now on.
    pub(super) async fn greeted(
        &self,
        line: &str,
        id: &Id,
        answer: Result<String, Missing>,
    ) -> Result<String, Missing> {
        let tongue = &self.link.tongue;
        if let Ok(answer) = &answer
            && Envelope::read(answer).is_ok_and(|answer| is_shaken(&answer))
        {
            tongue.found(Spoken::Alike);
            return Ok(answer.clone());
        }
        let hello = Envelope::read(line).ok();
        let Some((dress, version)) = hello.and_then(|hello| Some((Dress::of(&hello)?, wished(&hello)?))) else {
            return answer;
        };
        let params = format!(r#"{{"_meta":{{{}}}}}"#, dress.members());
        let discovered = self.ask_for("server/discover", &params).await.ok();
        let Some(hello) = discovered.and_then(|discovered| Hello::discovered(&discovered)) else { return answer };
        tongue.found(Spoken::Newer(dress));
        Ok(hello.as_handshake(id, version, &self.server))
    }

    /// Takes what the server answered to a client that asked what there is. A client that cannot be asked anything
    /// loses nothing if we shake hands for it.
    pub(super) async fn discovered(
        &self,
        line: &str,
        id: &Id,
        answer: Result<String, Missing>,
    ) -> Result<String, Missing> {
        if let Ok(answer) = &answer
            && Envelope::read(answer).is_ok_and(|answer| answer.result.is_some())
        {
            self.link.tongue.found(Spoken::Alike);
            return Ok(answer.clone());
        }
        let Ok(envelope) = Envelope::read(line) else { return answer };
        let is_askable = meta(envelope.params).is_some_and(Able::is_askable);
        if is_askable || protocol_version(&envelope).is_none() {
            return answer;
        }
        let _alone = self.link.tongue.asking.lock().await;
        if !self.link.tongue.is_found() {
            self.shake_hands(&envelope).await;
        }
        self.link.tongue.older().map_or(answer, |hello| Ok(hello.as_discovery(id)))
    }

    /// Answers what is not the server's business, because it is said to it in another way. False where it is.
    pub(super) async fn answers_for_server(&self, envelope: &Envelope<'_>, caller: &Caller) -> bool {
        let Some(method) = envelope.method.as_deref() else { return false };
        let Some(dress) = self.link.tongue.newer() else {
            return match (method, self.link.tongue.older(), envelope.id.and_then(Id::read)) {
                ("server/discover", Some(hello), Some(id)) => {
                    let answer = hello.as_discovery(&id);
                    let tasks = meta(envelope.params).is_some_and(|meta| Able::declared(meta).tasks);
                    let offered = tasks.then(|| words::offering_tasks(&answer)).flatten();
                    let _ = caller.answer(offered.unwrap_or(answer)).await;
                    true
                }
                _ => false,
            };
        };
        match (method, envelope.id.and_then(Id::read)) {
            ("notifications/initialized", None) => {
                self.listing.want();
            }
            ("ping", Some(id)) => drop(caller.answer(words::plain(&id, "{}")).await),
            ("logging/setLevel", Some(id)) => {
                let level =
                    envelope.params.and_then(|params| pick(params.get(), ["level"]).ok()?.into_iter().next()?);
                let level = level.map(|level| level.get().to_owned());
                *dress.level.lock().unwrap_or_else(PoisonError::into_inner) = level;
                drop(caller.answer(words::plain(&id, "{}")).await);
            }
            _ => return false,
        }
        true
    }

    /// Puts the server's questions to the client, one after the other. The members that go to the server with its
    /// answers; an error says why there are none.
    pub(super) async fn put(&self, questions: Questions, caller: &Caller) -> Result<String, String> {
        let mut answers = Vec::with_capacity(questions.requests.len());
        for (name, method, params) in &questions.requests {
            if !ASKABLE.contains(&method.as_str()) {
                return Err(format!(
                    "the server asks for `{}`, which nobody can answer",
                    countersign::show::escape(method)
                ));
            }
            let mut asked = self.prompts.question();
            let params = params.as_ref().map(|params| format!(r#","params":{params}"#)).unwrap_or_default();
            caller.note(format!(r#"{{"jsonrpc":"2.0","id":{},"method":"{method}"{params}}}"#, asked.id.0)).await;
            let said = tokio::select! {
                said = timeout(self.run_within, asked.answer()) => said.unwrap_or_default(),
                () = self.leaving.cancelled() => String::new(),
            };
            if said.is_empty() {
                return Err(format!("the client gave no answer to `{method}`, which the server asked for"));
            }
            answers.push(format!("{}:{said}", Value::from(name.as_str())));
        }
        let state = questions.state.map(|state| format!(r#","requestState":{state}"#)).unwrap_or_default();
        Ok(format!(r#""inputResponses":{{{}}}{state}"#, answers.join(",")))
    }
}

/// Whether a server shook hands, in whatever revision but the one that knows no handshake.
fn is_shaken(answer: &Envelope<'_>) -> bool {
    let Some(result) = answer.result else { return false };
    let [version] = pick(result.get(), ["protocolVersion"]).unwrap_or_default();
    version
        .and_then(|version| serde_json::from_str::<String>(version.get()).ok())
        .is_none_or(|version| version != NEWER)
}

/// The revision of the handshake era that a client is answered in.
fn wished(hello: &Envelope<'_>) -> Option<&'static str> {
    let [version] = pick(hello.params?.get(), ["protocolVersion"]).ok()?;
    let version: String = serde_json::from_str(version?.get()).ok()?;
    Some(HANDSHAKES.into_iter().find(|known| *known == version).unwrap_or(LAST_HANDSHAKE))
}

/// A request with the answers to what its server wanted to know.
pub(super) fn with_answers(line: &str, answers: &str) -> Option<String> {
    with_member(line, Envelope::read(line).ok()?.params?, answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tongue(spoken: Spoken) -> Tongue {
        let tongue = Tongue::default();
        tongue.found(spoken);
        tongue
    }

    fn older() -> Tongue {
        tongue(Spoken::Older(Hello::shaken(r#"{"id":1,"result":{"capabilities":{"tools":{}}}}"#).unwrap()))
    }

    fn newer() -> Tongue {
        let hello =
            r#"{"id":1,"method":"initialize","params":{"capabilities":{"roots":{}},"clientInfo":{"name":"c"}}}"#;
        tongue(Spoken::Newer(Dress::of(&Envelope::read(hello).unwrap()).unwrap()))
    }

    /// Only what says the era is taken out; everything else stays byte for byte.
    #[test]
    fn a_server_that_shakes_hands_hears_nothing_of_the_newer_era() {
        let dress = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/clientCapabilities":{}"#;
        let line =
            |meta: &str| format!(r#"{{"id":7, "method":"tools/call","params":{{"name":"t","_meta":{{{meta}}}}}}}"#);
        let outgoing = |line: String| older().outgoing(line).unwrap();
        assert_eq!(outgoing(line(dress)), line(""));
        assert_eq!(
            outgoing(line(&format!(r#""progressToken":1 ,{dress}, "k":[1 ]"#))),
            line(r#""progressToken":1 , "k":[1 ]"#)
        );
        for same in [r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#, r#"{"id":1,"method":"ping"}"#]
        {
            assert_eq!(outgoing(same.to_owned()), same);
            assert_eq!(Tongue::default().outgoing(same.to_owned()).unwrap(), same);
        }
        let escaped = line(r#""io.modelcontextprotocol\u002fprotocolVersion":"2026-07-28""#);
        assert_eq!(older().outgoing(escaped), None, "what cannot be taken out is not sent");
    }

    #[test]
    fn a_newer_client_hears_only_what_it_knows() {
        let pass = |line: &str| match older().incoming(line.to_owned()) {
            Said::Pass(line) => line,
            Said::Answer(line) => format!("answer {line}"),
            Said::Change => "change".to_owned(),
            Said::Drop => "drop".to_owned(),
        };
        for (line, expected) in [
            (r#"{"id":1,"result":{}}"#, r#"{"id":1,"result":{"resultType":"complete"}}"#),
            (r#"{"id":1,"result":{"content":[]}}"#, r#"{"id":1,"result":{"resultType":"complete","content":[]}}"#),
            (
                r#"{"id":1,"result":{"tools":[]}}"#,
                r#"{"id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[]}}"#,
            ),
            (r#"{"id":1,"result":{"resultType":"task"}}"#, r#"{"id":1,"result":{"resultType":"task"}}"#),
            (r#"{"id":1,"error":{"code":1}}"#, r#"{"id":1,"error":{"code":1}}"#),
            (r#"{"id":1,"result":[1]}"#, r#"{"id":1,"result":[1]}"#),
            (r#"{"id":"p","method":"ping"}"#, r#"answer {"jsonrpc":"2.0","id":"p","result":{}}"#),
            (r#"{"method":"notifications/tools/list_changed"}"#, "change"),
            (r#"{"method":"notifications/resources/updated"}"#, "drop"),
            (r#"{"method":"notifications/progress"}"#, r#"{"method":"notifications/progress"}"#),
        ] {
            assert_eq!(pass(line), expected);
        }
        assert!(pass(r#"{"id":1,"method":"roots/list"}"#).contains("cannot be asked"));
    }

    #[test]
    fn requests_to_a_newer_server_say_what_its_client_said() {
        let dress = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/clientCapabilities":{"roots":{}}"#;
        let line = |params: &str| format!(r#"{{"id":1{params}}}"#);
        for (params, expected) in [
            (r#","method":"ping""#, format!(r#"{{"params":{{"_meta":{{{dress}}}}},"id":1,"method":"ping"}}"#)),
            (r#","method":"m","params":{}"#, format!(r#"{{"id":1,"method":"m","params":{{"_meta":{{{dress}}}}}}}"#)),
            (
                r#","method":"m","params":{"_meta":{"k":1},"z":1.50}"#,
                format!(r#"{{"id":1,"method":"m","params":{{"_meta":{{{dress},"k":1}},"z":1.50}}}}"#),
            ),
            (r#","result":{}"#, line(r#","result":{}"#)),
        ] {
            assert_eq!(newer().outgoing(line(params)).unwrap(), expected);
        }
        let twice = r#","method":"m","params":{"_meta":{"io.modelcontextprotocol/clientInfo":{}}}"#;
        assert_eq!(newer().outgoing(line(twice)), None);
    }

    #[test]
    fn only_a_server_of_the_newer_era_asks_through_us() {
        let asks = r#"{"id":1,"result":{"resultType":"input_required","requestState":"s","inputRequests":{"a":{"method":"roots/list"}}}}"#;
        let questions = newer().questions(asks).unwrap();
        assert_eq!((questions.requests.len(), questions.state.unwrap().get()), (1, r#""s""#));
        assert!(older().questions(asks).is_none() && Tongue::default().questions(asks).is_none());
        for other in [
            r#"{"id":1,"result":{"resultType":"complete","inputRequests":{}}}"#,
            r#"{"id":1,"result":{"resultType":"input_required","inputRequests":{"a":{"method":"m"},"a":{"method":"m"}}}}"#,
            r#"{"id":1,"result":{"resultType":"input_required","inputRequests":{"a":{"method":7}}}}"#,
            r#"{"id":1,"error":{"code":1}}"#,
        ] {
            assert!(newer().questions(other).is_none(), "{other}");
        }
    }
}
