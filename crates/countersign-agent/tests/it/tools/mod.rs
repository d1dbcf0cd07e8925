//! The tools, each run through a real gate: a body is reachable only with a permit.

mod bash;
mod custom;
mod files;
mod lint;
mod paths;
mod places;
mod preview;
mod server;
mod web;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use countersign::call::Outcome;
use countersign::{Call, Gate, Policy, Proposal, Tool};
use countersign_agent::tools::Workspace;
use serde_json::Value;
use tempfile::TempDir;

static SESSIONS: AtomicUsize = AtomicUsize::new(0);

/// A workspace `work` beside a folder `outside`, and a gate that allows everything.
struct World {
    folder: TempDir,
    gate: Gate,
}

impl World {
    fn new() -> World {
        let folder = TempDir::new().unwrap();
        std::fs::create_dir(folder.path().join("work")).unwrap();
        std::fs::create_dir(folder.path().join("outside")).unwrap();
        World { folder, gate: Gate::builder().policy(Policy::allow_all()).build().unwrap() }
    }

    fn workspace(&self) -> Workspace {
        Workspace::new(self.folder.path().join("work")).unwrap()
    }

    /// A path in the workspace.
    fn work(&self, path: &str) -> PathBuf {
        self.folder.path().join("work").join(path)
    }

    /// A path outside of it.
    fn outside(&self, path: &str) -> PathBuf {
        self.folder.path().join("outside").join(path)
    }

    fn write(&self, path: &str, text: &str) {
        std::fs::create_dir_all(self.work(path).parent().unwrap()).unwrap();
        std::fs::write(self.work(path), text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.work(path)).unwrap()
    }

    async fn call(&self, tool: &dyn Tool, arguments: Value) -> Arc<Call> {
        // A session each: a call like one in doubt would be asked about.
        let session = format!("s{}", SESSIONS.fetch_add(1, Ordering::Relaxed));
        let proposal = Proposal::new(Arc::clone(&tool.definition().tool.name), arguments.to_string()).session(session);
        self.gate.call(tool, proposal).await.unwrap()
    }

    /// What a call that succeeds returns.
    async fn answer(&self, tool: &dyn Tool, arguments: Value) -> Value {
        let call = self.call(tool, arguments).await;
        match &call.outcome {
            Some(Outcome::Succeeded { output }) => output.value(),
            other => panic!("{other:?} {:?}", call.refusal),
        }
    }

    /// What a call that fails says.
    async fn failure(&self, tool: &dyn Tool, arguments: Value) -> String {
        let call = self.call(tool, arguments).await;
        match &call.outcome {
            Some(Outcome::Failed { error, .. }) => error.clone(),
            other => panic!("{other:?} {:?}", call.refusal),
        }
    }

    /// Why nobody knows what a call did.
    async fn doubt(&self, tool: &dyn Tool, arguments: Value) -> String {
        let call = self.call(tool, arguments).await;
        match &call.outcome {
            Some(Outcome::MayHaveApplied { why }) => why.clone(),
            other => panic!("{other:?} {:?}", call.refusal),
        }
    }
}
