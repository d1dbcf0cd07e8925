//! Behaviours of the gate on the memory store, one promise a test.

mod approvers;
mod backend;
mod basics;
pub(crate) mod desk;
mod edits;
mod first;
mod folders;
mod grants;
mod identity;
mod in_run;
mod order;
mod policies;
mod preview;
mod repeat;
mod scope;
mod secrets;
mod time;
