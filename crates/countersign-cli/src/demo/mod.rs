//! The demo: a scripted agent, and everything else real.

mod answers;
mod files;
mod inbox;
mod report;
mod run;
mod script;

pub(crate) use answers::Answers;
pub(crate) use files::tools;
pub(crate) use inbox::{Inbox, Pressed};
pub(crate) use report::{file_changes, print_calls, print_trail};
pub(crate) use run::{Answering, Ended, Run};
pub(crate) use script::{CONFIG, FILES};
