//! A user of their own for each test: home, data folder, working folder and store.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use countersign::{Call, Gate, Hold, Policy, Proposal, Store};
use tempfile::TempDir;

/// One user.
pub(crate) struct Bed {
    folder: TempDir,
}

/// What a command printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// What it printed, as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Fails unless it ended like this.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Bed {
    /// A user who has never used it.
    pub(crate) fn new() -> Bed {
        let bed = Bed { folder: tempfile::tempdir().unwrap() };
        std::fs::create_dir(bed.work()).unwrap();
        bed
    }

    /// The working folder.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Where data is kept.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data/countersign")
    }

    /// Where the user's own configuration is.
    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("config/countersign/countersign.yml")
    }

    /// Writes a file in the working folder.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The command, in this user's place and working folder.
    pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
        command
            .args(args)
            .current_dir(self.work())
            .env_clear()
            .env("HOME", self.folder.path())
            .env("XDG_CONFIG_HOME", self.folder.path().join("config"))
            .env("XDG_DATA_HOME", self.folder.path().join("data"))
            .env("TERM", "xterm-256color")
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null());
        command
    }

    /// Runs the command.
    pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// Runs the command with words split at blanks.
    pub(crate) fn say(&self, line: &str) -> Ran {
        self.run(line.split_whitespace())
    }

    /// The address of a store in the working folder.
    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.work().join("agent.db").display())
    }

    /// That store, opened as an agent's process would.
    pub(crate) async fn store(&self) -> Arc<dyn Store> {
        countersign_store::connect(&self.url()).await.unwrap()
    }
}

/// A gate of an agent whose holds are decided elsewhere.
pub(crate) fn gate(store: &Arc<dyn Store>, policy: &str) -> Gate {
    Gate::builder()
        .policy(Policy::from_yaml(policy).unwrap())
        .store(Arc::clone(store))
        .decided_elsewhere()
        .without_sweeper()
        .lease(Duration::from_millis(1))
        .build()
        .unwrap()
}

/// Proposes a call of a tool that runs elsewhere.
pub(crate) async fn submit(gate: &Gate, tool: &str, arguments: &str) -> Arc<Call> {
    gate.submit_undefined(Proposal::new(tool, arguments).session("s1")).await.unwrap()
}

/// The hold a call waits behind.
pub(crate) fn hold(call: &Arc<Call>) -> Hold {
    Hold::of(call, call.open_hold().expect("it waits").id).unwrap()
}

/// The text of a file.
pub(crate) fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}
