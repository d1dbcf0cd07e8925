//! `countersign run-as`: becomes another user, then another program. For this program itself, not for people.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use countersign_agent::tools::User;

use crate::out;

/// How this program calls itself to run another as somebody else.
pub(crate) const NAME: &str = "run-as";

/// Becomes another user, then another program.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The user.
    user: String,
    /// The program, and its words.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Returns only if it could not.
pub(crate) fn run(args: Args) -> ExitCode {
    let mut words = args.words.into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    let error = match User::find(&args.user) {
        Ok(user) => {
            user.apply(&mut command);
            command.exec().to_string()
        }
        Err(error) => error.to_string(),
    };
    out::say(format_args!("a program could not be started as another user: {error}"));
    ExitCode::FAILURE
}
