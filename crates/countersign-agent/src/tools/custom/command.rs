//! A tool that is a program: the arguments go in as JSON, the result comes out.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use countersign::tool::Verified;
use countersign::{Call, Definition, Json, Running, Tool, ToolError};

use super::result_of;
use crate::limits;
use crate::tools::clip::Clip;
use crate::tools::process::{self, Ended, Processes, Status, Watch};
use crate::tools::user::User;

/// In place of what a program answered after nobody was there to read it.
const LOST: &str =
    "It ended well (exit code 0). Its answer is lost: the process that ran it was killed before it ended.";

/// Runs a program of the operator's choice. The agent chooses its input, never its name or its words.
pub(super) struct CommandTool {
    definition: Arc<Definition>,
    program: String,
    words: Vec<String>,
    folder: PathBuf,
    time: Duration,
    processes: Option<Processes>,
    user: Option<User>,
}

impl CommandTool {
    pub(super) fn new(definition: Arc<Definition>, program: String, words: Vec<String>, folder: PathBuf) -> Self {
        CommandTool { definition, program, words, folder, time: limits::COMMAND_TIME, processes: None, user: None }
    }

    pub(super) fn within(mut self, time: Option<Duration>) -> Self {
        self.time = time.unwrap_or(limits::COMMAND_TIME);
        self
    }

    pub(super) fn run_by(mut self, user: Option<User>) -> Self {
        self.user = user;
        self
    }

    pub(super) fn noted_in(mut self, processes: Option<Processes>) -> Self {
        self.processes = processes;
        self
    }
}

#[async_trait]
impl Tool for CommandTool {
    fn definition(&self) -> Arc<Definition> {
        Arc::clone(&self.definition)
    }

    async fn run(&self, running: Running) -> Result<Json, ToolError> {
        let watch = Watch::of(&running, self.processes.as_ref());
        let mut command = process::command(&self.program, &self.folder, &watch, self.user);
        command.args(&self.words).env("COUNTERSIGN_IDEMPOTENCY_KEY", running.idempotency_key());
        let input = running.arguments().as_str().as_bytes().to_vec();
        // Both ends together are as long as an answer may be, so nothing of one that fits is cut.
        let output = Clip::new(limits::COMMAND_RESULT_BYTES / 2);
        let ran = process::run_with_input(command, &watch, self.time, input, output).await;
        let ran = ran.map_err(|error| ToolError::Failed(format!("`{}` could not be run: {error}", self.program)))?;
        match ran.ended {
            Ended::Exited(0) => Ok(result_of(ran.output.text().as_bytes())),
            Ended::Exited(code) => {
                Err(ToolError::Failed(format!("exit code {code}: {}", ran.errors.text().trim_end())))
            }
            Ended::Killed(signal) => Err(ToolError::NoAnswer(format!("signal {signal} killed the program"))),
            Ended::TimedOut => {
                let seconds = self.time.as_secs_f32();
                Err(ToolError::NoAnswer(format!("the program was killed after {seconds} s, with all it had started")))
            }
        }
    }

    /// A program that ended by itself after we were gone gave an answer; what it wrote is lost.
    async fn verify(&self, call: &Call) -> Verified {
        match process::status_of(self.processes.as_ref(), call.id).await {
            Some(Status::Exited(0)) => Verified::Applied(Json::string(LOST)),
            Some(Status::Exited(code)) => Verified::Failed(format!("exit code {code}; what it said is lost")),
            Some(Status::NotStarted(why)) => Verified::Failed(format!("`{}` could not be run: {why}", self.program)),
            Some(Status::Killed(_)) | None => Verified::Unknown,
        }
    }
}
