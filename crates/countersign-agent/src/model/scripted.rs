//! A model that follows a script: for demos and tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use countersign::json::Json;
use futures::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_saphyr::{MergeKeyPolicy, Options};

use super::{Answer, Message, Model, ModelError, Piece, Prompt, Stop, Usage, Wanted};
use crate::limits;

/// A model that says what its script says.
///
/// Its n-th turn is its answer to a prompt that holds n turns of its own, so it has no state and goes on rightly after
/// a restart. Once the script is over it says nothing more.
///
/// ```
/// use countersign_agent::model::{Scripted, Turn};
///
/// let written = Scripted::new([Turn::new("Sending it.").call("transfer_money", r#"{"amount":100}"#), Turn::new("Sent.")]);
/// let read = Scripted::from_yaml("demo.yml", "
/// turns:
///   - text: Sending it.
///     calls: [{ tool: transfer_money, arguments: { amount: 100 } }]
///   - text: Sent.
/// ")?;
/// # Ok::<(), countersign_agent::model::ModelError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Scripted {
    name: Arc<str>,
    script: Arc<Script>,
    /// Whose part it plays. Nobody's is the part of everybody without one.
    agent: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct Script {
    turns: Vec<Turn>,
    agents: BTreeMap<String, Vec<Turn>>,
}

/// What a scripted model says at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    text: String,
    calls: Vec<(String, String)>,
    usage: Usage,
}

impl Turn {
    /// Says a text, which may be empty.
    pub fn new(text: impl Into<String>) -> Turn {
        Turn { text: text.into(), ..Turn::default() }
    }

    /// Also wants a call, with these arguments as they stand: they may be anything.
    #[must_use]
    pub fn call(mut self, tool: impl Into<String>, arguments: impl Into<String>) -> Turn {
        self.calls.push((tool.into(), arguments.into()));
        self
    }

    /// Also took these tokens.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Turn {
        self.usage = usage;
        self
    }
}

impl Scripted {
    /// Follows these turns.
    pub fn new(turns: impl IntoIterator<Item = Turn>) -> Scripted {
        let script = Script { turns: turns.into_iter().collect(), agents: BTreeMap::new() };
        Scripted { name: "scripted".into(), script: Arc::new(script), agent: None }
    }

    /// Reads a script: `turns:`, a list of `{text, calls: [{tool, arguments: {…} | raw: "…"}]}`, and `agents:`, such a
    /// list for each agent by its name. `name` is how errors call the file.
    pub fn from_yaml(name: &str, text: &str) -> Result<Scripted, ModelError> {
        let script = read(text).map_err(|why| ModelError::Settings(format!("{name}:{why}")))?;
        Ok(Scripted { name: "scripted".into(), script: Arc::new(script), agent: None })
    }

    /// The same script, in the part of this agent: its own section, or `turns:` if it has none.
    ///
    /// Turns of other agents in the same conversation, as after a hand-off, do not count for it.
    #[must_use]
    pub fn playing(&self, agent: &str) -> Scripted {
        Scripted { agent: Some(agent.into()), ..self.clone() }
    }

    fn turns(&self) -> &[Turn] {
        let own = self.agent.as_deref().and_then(|agent| self.script.agents.get(agent));
        own.unwrap_or(&self.script.turns)
    }

    /// How many turns of the prompt are its own: all but those marked as another's.
    fn taken(&self, prompt: &Prompt) -> usize {
        let own = |message: &&Message| match message {
            Message::Model(said) => {
                let mark = said.opaque.as_ref().and_then(|opaque| opaque.read::<Mark>().ok());
                mark.is_none_or(|mark| Some(&*mark.scripted) == self.agent.as_deref())
            }
            Message::User { .. } | Message::Results { .. } => false,
        };
        prompt.messages.iter().filter(own).count()
    }
}

/// Says in the history which part a turn belongs to.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mark {
    scripted: String,
}

#[async_trait]
impl Model for Scripted {
    fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    async fn answer(&self, prompt: Prompt) -> Result<Answer, ModelError> {
        let taken = self.taken(&prompt);
        let turn = self.turns().get(taken).cloned().unwrap_or_default();
        let mut pieces: Vec<Piece> = turn.text.split_inclusive(' ').map(|word| Piece::Text(word.to_owned())).collect();
        let stop = if turn.calls.is_empty() { Stop::Done } else { Stop::Calls };
        let call = |(index, (tool, arguments)): (usize, (String, String))| Wanted {
            label: format!("scripted-{}-{index}", prompt.messages.len()).into(),
            name: tool.into(),
            arguments: arguments.into(),
        };
        pieces.extend(turn.calls.into_iter().enumerate().map(call).map(Piece::Call));
        let mark = self.agent.as_ref().and_then(|agent| Json::of(&Mark { scripted: agent.to_string() }).ok());
        pieces.extend(mark.map(Piece::Opaque));
        pieces.extend([Piece::Usage(turn.usage), Piece::End(stop)]);
        Ok(stream::iter(pieces.into_iter().map(Ok)).boxed())
    }
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenScript {
    #[serde(default)]
    turns: Vec<WrittenTurn>,
    #[serde(default)]
    agents: BTreeMap<String, Vec<WrittenTurn>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTurn {
    #[serde(default)]
    text: String,
    #[serde(default)]
    calls: Vec<WrittenCall>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCall {
    tool: String,
    arguments: Option<serde_json::Map<String, serde_json::Value>>,
    raw: Option<String>,
}

/// Reads a file, or says at which line it is wrong.
fn read(text: &str) -> Result<Script, String> {
    if text.len() > limits::SCRIPT_BYTES {
        return Err(format!("1: a script of {} bytes is over the limit of {}", text.len(), limits::SCRIPT_BYTES));
    }
    let written: WrittenScript = serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        let message = error.without_snippet().to_string();
        let message = message.lines().find(|line| !line.trim().is_empty()).unwrap_or("not YAML");
        format!("{line}: {}", message.trim_start_matches("error: "))
    })?;
    let turns = |turns: Vec<WrittenTurn>| turns.into_iter().map(turn).collect::<Result<Vec<Turn>, String>>();
    let agents = written.agents.into_iter().map(|(agent, own)| Ok((agent, turns(own)?)));
    Ok(Script { agents: agents.collect::<Result<_, String>>()?, turns: turns(written.turns)? })
}

fn turn(written: WrittenTurn) -> Result<Turn, String> {
    let call = |WrittenCall { tool, arguments, raw }| match (arguments, raw) {
        (Some(_), Some(_)) => Err(format!("1: the call of `{tool}` has both `arguments` and `raw`")),
        (None, raw) => Ok((tool, raw.unwrap_or_else(|| "{}".to_owned()))),
        (Some(arguments), None) => Ok((tool, serde_json::Value::Object(arguments).to_string())),
    };
    let calls = written.calls.into_iter().map(call).collect::<Result<_, String>>()?;
    Ok(Turn { text: written.text, calls, usage: Usage::default() })
}

fn options() -> Options {
    let budget = serde_saphyr::budget! {
        max_depth: limits::SCRIPT_DEPTH,
        flow_nesting_limit: limits::SCRIPT_DEPTH,
        max_documents: 1,
        max_anchors: 256,
        max_aliases: 1_000,
    };
    serde_saphyr::options! {
        budget: budget,
        strict_booleans: true,
        merge_keys: MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt as _;

    use super::*;
    use crate::model::Said;

    async fn pieces(model: &Scripted, messages: &[Message]) -> Vec<Piece> {
        let prompt = Prompt { messages: messages.to_vec().into(), ..Prompt::default() };
        model.answer(prompt).await.unwrap().try_collect().await.unwrap()
    }

    async fn said(model: &Scripted, messages: &[Message]) -> Said {
        let mut said = Said::default();
        for piece in pieces(model, messages).await {
            match piece {
                Piece::Text(text) => said.text.push_str(&text),
                Piece::Call(call) => said.calls.push(call),
                Piece::Opaque(opaque) => said.opaque = Some(opaque),
                Piece::Usage(_) | Piece::End(_) => {}
            }
        }
        said
    }

    const SCRIPT: &str = "
turns:
  - text: One by one.
    calls:
      - { tool: send, arguments: { amount: 100, to: Bo Li, tags: [1, no] } }
      - { tool: send, raw: '{\"a\":1,\"a\":2' }
      - { tool: ping }
  - text: Done.
agents:
  auditor:
    - text: I audit.
    - text: All is well.
";

    #[tokio::test]
    async fn a_turn_is_given_for_every_turn_there_was_and_then_nothing() {
        let model = Scripted::from_yaml("demo.yml", SCRIPT).unwrap();
        let first = pieces(&model, &[]).await;
        let texts: Vec<&Piece> = first.iter().take(3).collect();
        assert_eq!(texts, [&Piece::Text("One ".into()), &Piece::Text("by ".into()), &Piece::Text("one.".into())]);
        assert_eq!(first.last(), Some(&Piece::End(Stop::Calls)));
        let one = said(&model, &[]).await;
        let arguments: Vec<&str> = one.calls.iter().map(|call| &*call.arguments).collect();
        assert_eq!(arguments[1..], ["{\"a\":1,\"a\":2", "{}"]);
        let first: serde_json::Value = serde_json::from_str(arguments[0]).unwrap();
        assert_eq!(first, serde_json::json!({ "amount": 100, "to": "Bo Li", "tags": [1, "no"] }));
        let user = Message::User { text: "go".into() };
        let second = [user.clone(), Message::Model(one.clone()), user];
        assert_eq!(said(&model, &second).await.text, "Done.");
        let over = [Message::Model(one.clone()), Message::Model(one)];
        assert_eq!(pieces(&model, &over).await, [Piece::Usage(Usage::default()), Piece::End(Stop::Done)]);
    }

    #[tokio::test]
    async fn after_a_hand_over_each_agent_goes_on_with_its_own_part() {
        let script = Scripted::from_yaml("demo.yml", SCRIPT).unwrap();
        let (banker, auditor) = (script.playing("banker"), script.playing("auditor"));
        let mut messages = vec![Message::Model(said(&banker, &[]).await)];
        messages.push(Message::Model(said(&auditor, &messages).await));
        let texts: Vec<&str> = messages
            .iter()
            .map(|message| if let Message::Model(said) = message { &said.text[..] } else { "" })
            .collect();
        assert_eq!(texts, ["One by one.", "I audit."]);
        assert_eq!(said(&auditor, &messages).await.text, "All is well.");
        assert_eq!(said(&banker, &messages).await.text, "Done.", "the auditor's turn does not count");
    }

    #[track_caller]
    fn refused(text: &str, line: &str, word: &str) {
        let error = Scripted::from_yaml("demo.yml", text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("demo.yml:{line}:")) && error.contains(word), "{error}");
    }

    #[test]
    fn what_a_script_does_not_know_is_refused_at_its_line() {
        refused("turns:\n  - text: a\n    say: b\n", "3", "say");
        refused("turn: []\n", "1", "turn");
        refused("turns:\n  - calls: [{ tool: t, arguments: [1] }]\n", "2", "map");
        refused("turns:\n  - calls: [{ arguments: {} }]\n", "2", "tool");
        refused("turns:\n  - calls: [{ tool: t, raw: a, arguments: {} }]\n", "1", "both");
        refused("turns:\n  - text: a\n    text: b\n", "3", "text");
        refused(&"x".repeat(limits::SCRIPT_BYTES + 1), "1", "limit");
    }
}
