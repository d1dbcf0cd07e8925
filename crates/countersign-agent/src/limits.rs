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
