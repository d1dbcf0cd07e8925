//! A gate, a server with a folder of its own, and short words for both.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use countersign::call::Outcome;
use countersign::config::Config;
use countersign::memory::MemoryStore;
use countersign::store::CallFilter;
use countersign::{Answer, Call, CallState, Gate, Hold, Proposal, Tool, Toolset as _, Who};
use countersign_mcp::{McpServer, McpToolset, http, stdio};
use countersign_testkit::mcp::{Era, McpFixture, VARIABLE};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

const TEST: &str = "bed::one_life_of_a_server";

/// A server that a test began. Without one it has nothing to serve, and is over.
#[test]
fn one_life_of_a_server() {
    let Ok(words) = std::env::var(VARIABLE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(McpFixture::from_words(&words).unwrap().serve_stdio()).unwrap();
}

/// How a server is reached, and what it speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Pipes,
    PipesHandshake,
    Http,
    HttpHandshake,
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Pipes, Kind::PipesHandshake, Kind::Http, Kind::HttpHandshake];
}

/// A server over HTTP, on threads of its own: when it ends, its connections end too.
pub(crate) struct Serving {
    pub(crate) address: String,
    pub(crate) fixture: McpFixture,
    runtime: Option<Runtime>,
}

impl Serving {
    fn start(fixture: McpFixture, address: &str) -> Serving {
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let serves = fixture.clone();
        runtime.spawn(async move { serves.serve_http(TcpListener::from_std(listener)?).await });
        Serving { address, fixture, runtime: Some(runtime) }
    }

    /// Ends it, and returns when its connections are closed.
    pub(crate) async fn stop(mut self) {
        let runtime = self.runtime.take();
        let stop = move || runtime.map(|runtime| runtime.shutdown_timeout(Duration::from_secs(10)));
        tokio::task::spawn_blocking(stop).await.unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub(crate) struct Bed {
    pub(crate) gate: Gate,
    folder: TempDir,
}

impl Bed {
    /// A gate under this configuration, whose holds the test decides.
    pub(crate) fn new(config: &str) -> Bed {
        let config = Config::from_yaml("test", config, &|_| None).unwrap();
        let gate = Gate::builder().store(Arc::new(MemoryStore::new())).policy(config.policy);
        let gate = gate.decided_elsewhere().without_sweeper().build().unwrap();
        Bed { gate, folder: tempfile::tempdir().unwrap() }
    }

    /// A file that the server writes.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The server `files` as a program.
    pub(crate) fn program(&self, era: Era) -> McpServer {
        let program = std::env::current_exe().unwrap().display().to_string();
        let words = match era {
            Era::Every | Era::Newer => format!("stdio {}", self.folder.path().display()),
            Era::Handshake => format!("stdio {} handshake", self.folder.path().display()),
        };
        let command = [&*program, TEST, "--exact", "--nocapture", "--test-threads=2"];
        stdio("files", command).env(VARIABLE, words)
    }

    /// The server `files` over HTTP, and what ends it.
    pub(crate) fn listening(&self, era: Era, address: &str) -> (McpServer, Serving) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let serving = Serving::start(McpFixture::new(self.folder.path(), era), address);
        (http("files", format!("http://{}/mcp", serving.address)), serving)
    }

    /// The server `files`, and what must live for as long as it.
    pub(crate) fn server(&self, kind: Kind) -> (McpServer, Option<Serving>) {
        let over_http = |era| {
            let (server, serving) = self.listening(era, "127.0.0.1:0");
            (server, Some(serving))
        };
        match kind {
            Kind::Pipes => (self.program(Era::Every), None),
            Kind::PipesHandshake => (self.program(Era::Handshake), None),
            Kind::Http => over_http(Era::Every),
            Kind::HttpHandshake => over_http(Era::Handshake),
        }
    }

    pub(crate) async fn connect(&self, kind: Kind) -> (McpToolset, Option<Serving>) {
        let (server, serving) = self.server(kind);
        (server.connect(&self.gate).await.unwrap(), serving)
    }

    /// Proposes a call, runs it if it may, and returns where it stands.
    pub(crate) async fn call(&self, toolset: &McpToolset, name: &str, arguments: &str) -> Arc<Call> {
        let tool = tool(toolset, name);
        let mut proposal = Proposal::new(name, arguments).session("s1");
        proposal.tool = tool.definition().tool.clone();
        let call = self.gate.submit(&*tool, proposal).await.unwrap();
        match call.state {
            CallState::Allowed => self.gate.resume(&*tool, call.id).await.unwrap(),
            _ => call,
        }
    }

    /// The output of a call that succeeds.
    pub(crate) async fn output(&self, toolset: &McpToolset, name: &str, arguments: &str) -> String {
        let call = self.call(toolset, name, arguments).await;
        output(&call)
    }

    pub(crate) async fn holds(&self) -> Vec<Hold> {
        let calls = self.gate.store().calls(CallFilter { holding: true, ..CallFilter::default() }).await.unwrap();
        calls.iter().filter_map(|call| Hold::of(call, call.open_hold()?.id)).collect()
    }

    pub(crate) async fn approve(&self, hold: &Hold) {
        self.gate.decide(hold.id, hold.decision(Who::person("ann"), "test", Answer::approve())).await.unwrap();
    }
}

/// The tool of this name, as it is offered now.
#[track_caller]
pub(crate) fn tool(toolset: &McpToolset, name: &str) -> Arc<dyn Tool> {
    find(toolset, name).unwrap_or_else(|| panic!("there is no `{name}`"))
}

pub(crate) fn find(toolset: &McpToolset, name: &str) -> Option<Arc<dyn Tool>> {
    toolset.tools().into_iter().find(|tool| &*tool.definition().tool.name == name)
}

/// What a call that succeeded gave.
#[track_caller]
pub(crate) fn output(call: &Call) -> String {
    match &call.outcome {
        Some(Outcome::Succeeded { output }) => output.as_str().to_owned(),
        other => panic!("{other:?}"),
    }
}

/// Nothing is asked about.
pub(crate) const ALLOW: &str = "policy: { otherwise: allow }";
