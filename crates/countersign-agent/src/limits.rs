//! Every bound of the agent runtime, in one place.

use std::time::Duration;

// Models.

/// Bytes of one frame of a model's answer, which is one line for most providers.
pub const MODEL_FRAME_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of one whole answer as it comes over the wire.
pub const MODEL_ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// Calls of one answer.
pub const MODEL_CALLS: usize = 128;
/// Parts (texts, calls, signed thoughts) of one answer.
pub const MODEL_PARTS: usize = 10_000;
/// Bytes read of an answer that is an error.
pub const MODEL_ERROR_BYTES: usize = 64 * 1024;
/// Characters kept of what a provider says about an error.
pub const MODEL_ERROR_SHOWN: usize = 500;
/// How long a connection to a provider may take.
pub const MODEL_CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long a provider may be silent: before its answer and within it. Models that think first say nothing for minutes.
pub const MODEL_SILENCE: Duration = Duration::from_secs(5 * 60);
/// How long one answer may take in all.
pub const MODEL_ANSWER_WITHIN: Duration = Duration::from_secs(30 * 60);
/// How often a provider is asked the same before that counts as a failure.
pub const MODEL_ATTEMPTS: u32 = 4;
/// The first pause before asking again; it doubles each time.
pub const MODEL_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause before asking again. A provider that wants a longer one is an error.
pub const MODEL_LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Tokens of an answer where the provider needs a bound and nobody set one.
pub const MODEL_MAX_TOKENS: u32 = 8_192;
/// Bytes of a model's label for a call, as providers take it back.
pub const MODEL_LABEL_BYTES: usize = 64;
/// Bytes of a scripted model's file.
pub const SCRIPT_BYTES: usize = 1024 * 1024;
/// Nesting of a scripted model's file.
pub const SCRIPT_DEPTH: usize = 64;
/// Bytes of one line a person types for a model.
pub const MANUAL_LINE_BYTES: usize = 256 * 1024;

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
