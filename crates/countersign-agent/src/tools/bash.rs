//! `bash`: runs a command in the workspace.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign::call::{Declared, Repeat};
use countersign::tool::Verified;
use countersign::{Call, Definition, Json, Running, Tool, ToolError};
use serde::Deserialize;
use serde_json::json;

use super::clip::Clip;
use super::process::{self, Ended, Processes, Status, Watch};
use super::{Workspace, answer, define};
use crate::limits;

/// In place of what a command wrote after nobody was there to read it.
const LOST: &str = "[the output is lost: the process that ran this command was killed before the command ended]";

/// Runs shell commands, each in a process group of its own that ends with it.
///
/// This is no sandbox: a command can do whatever the user it runs as can do. Commands that plainly name a protected
/// file are refused, which stops mistakes and nothing else. What decides is the policy, and the person it asks.
///
/// What a command started ends with it, also what left its process group (`setsid`, `nohup`), found on Linux by a variable
/// that descendants inherit. A program that clears its environment as well outlives its command.
pub struct Bash {
    definition: Arc<Definition>,
    workspace: Workspace,
    variables: Vec<(String, String)>,
    processes: Option<Processes>,
}

#[derive(Deserialize)]
struct Input {
    command: String,
    timeout_seconds: Option<u64>,
}

impl Bash {
    /// A shell that starts in the workspace's folder, with an almost empty environment.
    pub fn new(workspace: &Workspace) -> Bash {
        Bash {
            definition: Arc::new(definition()),
            workspace: workspace.clone(),
            variables: Vec::new(),
            processes: None,
        }
    }

    /// Gives commands an environment variable. Commands get no other than these and a few harmless ones.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Bash {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Writes down what runs, so that what outlives this process is found.
    #[must_use]
    pub fn noted_in(mut self, processes: Processes) -> Bash {
        self.processes = Some(processes);
        self
    }

    async fn execute(&self, input: Input, watch: &Watch) -> Result<Json, ToolError> {
        if let Some(path) = self.workspace.mentions_protected(&input.command) {
            let text = format!("the command names `{path}`, which is protected: configuration, store and keys");
            return Err(ToolError::Failed(text));
        }
        let time = input.timeout_seconds.map_or(limits::COMMAND_TIME, Duration::from_secs);
        let time = time.min(limits::COMMAND_TIME_MOST);
        let folder: PathBuf = self.workspace.root().to_owned();
        let mut command = process::command("bash", &folder, watch, self.workspace.user());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        // `--` keeps a command that begins with a dash from being read as an option.
        command.args(["--noprofile", "--norc", "-c", "--", &input.command]);
        let ran = process::run_merged(command, watch, time, Clip::new(limits::COMMAND_OUTPUT_END)).await;
        let ran = ran.map_err(|error| ToolError::Failed(format!("the shell could not be started: {error}")))?;
        match ran.ended {
            Ended::Exited(code) => answer(&json!({ "exit_code": code, "output": ran.output.text() })),
            Ended::Killed(signal) => Err(ToolError::NoAnswer(format!("signal {signal} killed the command"))),
            Ended::TimedOut => {
                let seconds = time.as_secs();
                Err(ToolError::NoAnswer(format!("the command was killed after {seconds} s, with all it had started")))
            }
        }
    }
}

fn definition() -> Definition {
    let description = "Runs a command with bash in the workspace folder and returns its exit code and its output \
        (standard output and errors, in the order they were written). Each call is a new shell: no variable and no \
        `cd` carries over. There is no terminal and no input. Everything the command started is ended with it, so do \
        not start things in the background. Of a long output only the beginning and the end are returned. Use the \
        file tools, not this, to read, write, edit, list or search files.";
    let most = limits::COMMAND_TIME_MOST.as_secs();
    let usual = limits::COMMAND_TIME.as_secs();
    let schema = json!({
        "type": "object",
        "properties": {
            "command": {
                "type": "string", "minLength": 1,
                "description": "The command line, as bash reads it. May have several lines.",
            },
            "timeout_seconds": {
                "type": "integer", "minimum": 1, "maximum": most, "default": usual,
                "description": "After how many seconds the command is killed.",
            },
        },
        "required": ["command"],
        "additionalProperties": false,
    });
    let mut definition = define("bash", description, "Run a shell command", &schema);
    // Never again by itself; but how it ended may be on record when nobody was there to see it.
    definition.repeat = Repeat::Verifiable;
    definition
}

#[async_trait]
impl Tool for Bash {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.definition)
    }

    fn declares(&self, _arguments: &Json) -> Result<Declared, String> {
        Ok(Declared::Ask)
    }

    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        self.execute(running.input()?, &Watch::of(&running, self.processes.as_ref())).await
    }

    /// A command that ended by itself after we were gone gave an answer; its output is lost.
    async fn verify(&self, call: &Call) -> Verified {
        match process::status_of(self.processes.as_ref(), call.id).await {
            Some(Status::Exited(code)) => match answer(&json!({ "exit_code": code, "output": LOST })) {
                Ok(answer) => Verified::Applied(answer),
                Err(_) => Verified::Unknown,
            },
            Some(Status::NotStarted(why)) => Verified::Failed(format!("the shell could not be started: {why}")),
            Some(Status::Killed(_)) | None => Verified::Unknown,
        }
    }
}
