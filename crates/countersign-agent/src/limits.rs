//! Every bound of the agent runtime, in one place.

use std::time::Duration;

// The loop.

/// Calls a model may want in one turn.
pub const CALLS_PER_TURN: usize = 128;
/// Bytes of one turn of a model: its text and the arguments of its calls.
pub const TURN_BYTES: usize = 8 * 1024 * 1024;
/// Bytes of what a user says at once.
pub const USER_BYTES: usize = 1024 * 1024;
/// Turns of a run when nobody says how many.
pub const RUN_TURNS: u64 = 100;
/// How often the limits of one run may be extended at most.
pub const RUN_EXTENSIONS: u32 = 10;
/// Entries of one thread's transcript.
pub const TRANSCRIPT_ENTRIES: u32 = 100_000;
/// Events a slow reader of a run may be behind before it misses some.
pub const EVENTS_BEHIND: usize = 1_024;
/// How long before a run's time is up its last hold expires, so that the model can still react.
pub const REACTION_TIME: Duration = Duration::from_secs(30);
/// Tools one agent may have.
pub const TOOLS_PER_AGENT: usize = 1_000;
/// Letters of a tool's name as models are offered it.
pub const OFFERED_NAME: usize = 64;
/// How often the end of a run is written again because somebody else wrote meanwhile.
pub const SETTLE_ATTEMPTS: usize = 5;
