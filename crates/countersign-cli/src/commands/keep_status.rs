//! `countersign keep-status`: runs a program for a tool, and writes down how it ended. For this program itself, not for
//! people.

use std::ffi::OsString;
use std::process::ExitCode;

use countersign_agent::tools::keep_status;

use crate::out;

/// How this program calls itself to keep another.
pub(crate) const NAME: &str = "keep-status";

/// Runs a program and writes down how it ended.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file to write to, the program, and its words.
    #[arg(required = true, num_args = 2.., trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Ends as the program did, as far as one process can end like another.
pub(crate) fn run(args: Args) -> ExitCode {
    match keep_status(args.words) {
        Ok(code) => u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            out::say(format_args!("how a program ended could not be written down: {error}"));
            ExitCode::FAILURE
        }
    }
}
