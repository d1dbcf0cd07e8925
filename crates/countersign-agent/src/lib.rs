//! The agent runtime: models, the loop, tools, hooks, hand-offs and sub-agents, with the gate in the middle.
//!
//! An agent proposes calls; each goes through the [`Gate`](countersign::Gate) and runs only with a permit. What the
//! agent did is a transcript in the store, so a run goes on after a restart where it stopped.

pub mod limits;
pub mod lint;
pub mod model;
pub mod tools;
