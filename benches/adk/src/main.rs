//! The work of the agent bench done by adk-rs: a session of its own, a scripted model in the process, one trivial tool,
//! confirmed at once. Prints one JSON object a line: `{"figure", "value", "unit"}`.
#![allow(clippy::print_stdout, reason = "printing figures is what this program does")]

use std::sync::Arc;
use std::time::Instant;

use adk_rs::agents::LlmAgent;
use adk_rs::core::{
    Event, EventStream, LlmRequest, LlmResponse, Model, REQUEST_CONFIRMATION_FUNCTION_NAME, RunConfig, SessionService,
    ToolContext,
};
use adk_rs::genai_types::{Content, FunctionCall, FunctionResponse, Part, Role};
use adk_rs::runner::Runner;
use adk_rs::services::mem::InMemorySessionService;
use adk_rs::services::sql::SqliteSessionService;
use adk_rs::tools::FunctionTool;
use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::runtime::Builder;

const TOOL: &str = "write_file";
const USER: &str = "bench";
/// Calls of one sample by the processor's clock, enough for its ticks to tell a microsecond.
const CALLS: u32 = 10_000;
/// Calls of a long conversation.
const MANY: u32 = 50;

/// Calls the tool so often, then says that it is done.
#[derive(Debug)]
struct Scripted(u32);

#[async_trait]
impl Model for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn supported_models(&self) -> &'static [&'static str] {
        &["scripted"]
    }

    async fn generate_content(&self, request: LlmRequest) -> adk_rs::Result<LlmResponse> {
        let parts = request.contents.iter().flat_map(|content| &content.parts);
        let mut results: Vec<&str> = parts.filter_map(result).collect();
        // A call that waits for its confirmation has a result too, of the same id.
        results.dedup();
        let given = results.len();
        let content = match given >= self.0 as usize {
            true => Content::model_text("Done."),
            false => {
                let arguments = json!({"path": "notes/today.md", "text": "buy milk and bread"});
                let call = FunctionCall::new(TOOL, arguments).with_id(id(given + 1));
                Content { role: Role::Model, parts: vec![Part::FunctionCall(call)] }
            }
        };
        Ok(LlmResponse { content: Some(content), ..LlmResponse::default() })
    }
}

fn id(number: usize) -> String {
    format!("call-{number}")
}

/// The id of the call that a part is the result of.
fn result(part: &Part) -> Option<&str> {
    match part {
        Part::FunctionResponse(given) if given.name == TOOL => given.id.as_deref(),
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gated {
    Yes,
    No,
}

struct Bed {
    runner: Runner,
    sessions: Arc<dyn SessionService>,
    gated: Gated,
    calls: u32,
    begun: u64,
}

impl Bed {
    fn new(sessions: Arc<dyn SessionService>, gated: Gated, calls: u32) -> Result<Bed> {
        let tool = FunctionTool::from_async(
            TOOL,
            "Writes a text to a file.",
            None,
            |arguments: Value, _: &mut ToolContext| async move { Ok(arguments) },
        );
        let tool = tool.require_confirmation(gated == Gated::Yes);
        let agent = LlmAgent::builder("bench").model(Arc::new(Scripted(calls))).tool(Arc::new(tool));
        let agent = agent.max_iterations(calls + 1).build()?;
        let runner = Runner::builder().app_name("bench").agent(Arc::new(agent));
        let runner = runner.session_service(Arc::clone(&sessions)).build()?;
        Ok(Bed { runner, sessions, gated, calls, begun: 0 })
    }

    /// One conversation, from what the user says to the model's last word.
    async fn converse(&mut self) -> Result<()> {
        self.begun += 1;
        let session = format!("session-{}", self.begun);
        self.sessions.create_session("bench", USER, None, Some(&session)).await?;
        let mut last = drain(self.runner.run(USER, Some(&session), "Write it down").await?).await?;
        let confirmations = if self.gated == Gated::Yes { self.calls } else { 0 };
        for number in 1..=confirmations {
            ensure!(!is_done(&last), "the tool was not confirmed yet");
            let confirmation = confirmation(number as usize);
            let confirmed = self.runner.run_with(USER, Some(&session), confirmation, RunConfig::default()).await?;
            last = drain(confirmed).await?;
        }
        ensure!(is_done(&last), "the run is not done");
        Ok(())
    }
}

fn confirmation(number: usize) -> Content {
    let confirmed = FunctionResponse {
        id: Some(id(number)),
        name: REQUEST_CONFIRMATION_FUNCTION_NAME.to_owned(),
        response: json!({"confirmed": true}),
        will_continue: None,
        scheduling: None,
    };
    Content { role: Role::User, parts: vec![Part::FunctionResponse(confirmed)] }
}

async fn drain(mut events: EventStream<'static>) -> Result<Event> {
    let mut last = None;
    while let Some(event) = events.next().await {
        last = Some(event?);
    }
    last.context("the run told nothing")
}

fn is_done(event: &Event) -> bool {
    event.response.content.as_ref().is_some_and(|content| content.text_concat() == "Done.")
}

/// Processor time of this process, all threads together, in seconds; the kernel counts in ticks of 10 ms.
fn cpu_seconds() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = text.rsplit_once(')').context("stat has no name")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>()? as f64 / 100.0)
}

fn wall_seconds() -> Result<f64> {
    static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    Ok(BEGIN.get_or_init(Instant::now).elapsed().as_secs_f64())
}

/// The best of several samples, in microseconds a call, so that a busy machine disturbs little.
async fn measure(bed: &mut Bed, calls: u32, clock: fn() -> Result<f64>) -> Result<f64> {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let begin = clock()?;
        for _ in 0..calls / bed.calls {
            bed.converse().await?;
        }
        best = best.min((clock()? - begin) / f64::from(calls));
    }
    Ok(best * 1e6)
}

fn print(figure: &str, value: f64) {
    println!("{}", json!({"figure": figure, "value": value, "unit": "us"}));
}

/// The runtimes are those that our side of the bench has: more threads would only cost the rival more.
fn main() -> Result<()> {
    Builder::new_current_thread().enable_all().build()?.block_on(in_memory())?;
    Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(on_sqlite())
}

async fn in_memory() -> Result<()> {
    for (name, gated, calls) in [
        ("gated", Gated::Yes, 1),
        ("ungated", Gated::No, 1),
        ("gated of many", Gated::Yes, MANY),
        ("ungated of many", Gated::No, MANY),
    ] {
        // The longer a conversation, the more each call of it takes.
        let sample = if calls == 1 { CALLS } else { CALLS / 10 };
        let mut bed = Bed::new(Arc::new(InMemorySessionService::new()), gated, calls)?;
        print(name, measure(&mut bed, sample, cpu_seconds).await?);
    }
    Ok(())
}

async fn on_sqlite() -> Result<()> {
    for (name, calls, sample) in [("durable", 1, 20), ("durable of many", MANY, MANY)] {
        let folder = tempfile::tempdir()?;
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("adk.db").display());
        let sqlite = Arc::new(SqliteSessionService::connect(&url).await?);
        print(name, measure(&mut Bed::new(sqlite, Gated::Yes, calls)?, sample, wall_seconds).await?);
    }
    Ok(())
}
