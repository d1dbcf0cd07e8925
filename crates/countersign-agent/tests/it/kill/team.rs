//! The team that is killed: five agents on four threads, nested two deep, with holds side by side.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use countersign::call::Repeat;
use countersign::tool::FnTool;
use countersign::{Definition, Gate, Json, Policy, Running, Store, ToolError};
use countersign_agent::model::{Anthropic, Gemini, Model, OpenAi, Responses};
use countersign_agent::{Agent, AgentBuilder};
use countersign_testkit::model::{Dialect, Received, Reply, Turn};

/// Short, so that whoever goes on finds a lost claim soon; long enough for a busy machine to keep one.
const LEASE: Duration = Duration::from_millis(1_500);

const POLICY: &str = "
otherwise: deny
rules:
  - { id: notes, ask: note }
  - { id: free, allow: [touch, 'agent:*'] }
";

/// Calls of the whole session.
pub(super) const CALLS: usize = 14;
/// Turns of all models together.
pub(super) const TURNS: usize = 13;
/// Threads that may be at work at once: the session's own, and a child with a child.
pub(super) const AT_ONCE: usize = 3;
/// Notes that may be written at once: two of `boss`, one of `mid` and two of `leaf`, each in its first turn.
pub(super) const NOTES_AT_ONCE: usize = 5;
/// The one note that is denied.
pub(super) const DENIED: u64 = 8;

/// What each model says follows from who it is and how often it spoke: asked again, it says the same again. All labels
/// are the same, which must confuse nobody.
pub(super) fn reply(received: &Received) -> Reply {
    let note = |turn: Turn, n: u64| turn.call("same", "note", &format!(r#"{{"n":{n}}}"#));
    let ask = |turn: Turn, whom: &str| turn.call("same", whom, r#"{"task":"do it"}"#);
    let turn = Turn::new("");
    Reply::Turn(match (received.model(), received.turns()) {
        ("boss", 0) => ask(note(note(turn, 1), 2), "ask_mid").call("same", "touch", "{}"),
        ("boss", 1) => note(ask(turn, "ask_late"), 6),
        ("boss", 2) => Turn::new("waiting"),
        ("boss", 3) => Turn::new("first done"),
        ("boss", 4) => turn.call("same", "transfer_to_audit", "{}"),
        ("audit", 5) => note(note(turn, DENIED), 9),
        ("audit", 6) => Turn::new("all done"),
        ("mid", 0) => ask(note(turn, 3), "ask_leaf"),
        ("leaf", 0) => note(note(turn, 4), 5),
        ("late", 0) => note(turn, 7),
        ("mid" | "leaf" | "late", 1) => Turn::new("done"),
        (model, turns) => panic!("`{model}` is asked a {turns}th time"),
    })
}

/// Where the team works, and how its models speak.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) model_url: String,
    pub(super) dialect: Dialect,
    pub(super) effects: PathBuf,
    pub(super) session: String,
}

pub(super) fn gate(store: Arc<dyn Store>) -> Gate {
    let policy = Policy::from_yaml(POLICY).unwrap();
    Gate::builder().store(store).policy(policy).without_sweeper().lease(LEASE).decided_elsewhere().build().unwrap()
}

/// Builds the team. `acted` is called before each effect, and what it returns after it.
pub(super) fn team(scene: &Scene, gate: &Gate, acted: impl Fn() -> fn() + Clone + Send + Sync + 'static) -> Agent {
    let begin = |name: &str| -> AgentBuilder {
        let note = acting("note", Repeat::AtMostOnce, scene, acted.clone());
        let touch = acting("touch", Repeat::Idempotent, scene, acted.clone());
        let builder = Agent::builder(name, model(scene, name)).gate(gate.clone()).tool(note).tool(touch);
        // Tells the server whose request it is.
        builder.instructions(format!("session {};", scene.session))
    };
    let leaf = begin("leaf").build().unwrap();
    let mid = begin("mid").sub_agent(leaf).build().unwrap();
    let late = begin("late").build().unwrap();
    let audit = begin("audit").build().unwrap();
    begin("boss").sub_agent(mid).background_agent(late).handoff(audit).build().unwrap()
}

fn model(scene: &Scene, name: &str) -> Arc<dyn Model> {
    let url = scene.model_url.clone();
    match scene.dialect {
        Dialect::Anthropic => Arc::new(Anthropic::new("key", name).base_url(url)),
        Dialect::Chat => Arc::new(OpenAi::new("key", name).base_url(url)),
        Dialect::Responses => Arc::new(Responses::new("key", name).base_url(url)),
        Dialect::Gemini => Arc::new(Gemini::new("key", name).base_url(url)),
    }
}

/// A tool that acts on the world outside: one synced line for each run.
fn acting(name: &str, repeat: Repeat, scene: &Scene, acted: impl Fn() -> fn() + Send + Sync + 'static) -> FnTool {
    let mut definition = Definition::new(name, "Writes a line.");
    definition.repeat = repeat;
    let (effects, acted) = (scene.effects.clone(), Arc::new(acted));
    countersign::tool::tool(definition, move |running| {
        let (effects, acted) = (effects.clone(), Arc::clone(&acted));
        async move {
            let after = acted();
            write_line(&effects, &running).map_err(|error| ToolError::NoAnswer(error.to_string()))?;
            after();
            Ok(Json::string("done"))
        }
    })
}

fn write_line(effects: &Path, running: &Running) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(effects)?;
    file.write_all(format!("{}\n", running.id()).as_bytes())?;
    file.sync_data()
}
