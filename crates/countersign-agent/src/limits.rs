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

// Tools: files.

/// Bytes of a path that a tool is given.
pub const PATH_BYTES: usize = 4 * 1024;
/// Links followed on the way to one file.
pub const PATH_LINKS: usize = 40;
/// Folders inside one another on the way to one file.
pub const PATH_DEPTH: usize = 128;
/// Bytes of a file that is read or edited.
pub const FILE_BYTES: u64 = 8 * 1024 * 1024;
/// Bytes of text one result carries. Escaped as JSON it stays within what the gate records.
pub const RESULT_BYTES: usize = 40 * 1024;
/// Bytes of one line in a result; the rest of a longer one is counted.
pub const RESULT_LINE_BYTES: usize = 2 * 1024;
/// Lines of a file one call reads when nobody says how many.
pub const READ_LINES: usize = 2_000;
/// Bytes of a file's old text that a preview carries.
pub const PREVIEW_BYTES: usize = 48 * 1024;
/// Files one listing names.
pub const LIST_FILES: usize = 1_000;
/// Folders inside one another that a listing or a search enters.
pub const WALK_DEPTH: usize = 32;
/// Entries a listing or a search looks at before it gives up.
pub const WALK_ENTRIES: usize = 100_000;
/// Bytes of a file that is searched; a larger one is passed over and counted.
pub const SEARCH_FILE_BYTES: u64 = 2 * 1024 * 1024;
/// Bytes one search reads in all.
pub const SEARCH_BYTES: u64 = 256 * 1024 * 1024;
/// Lines one search finds.
pub const SEARCH_LINES: usize = 500;
/// Bytes of a glob or a regular expression that a tool is given.
pub const PATTERN_BYTES: usize = 1_000;
/// Bytes a regular expression may take once compiled.
pub const PATTERN_COMPILED_BYTES: usize = 1024 * 1024;

// Tools: processes.

/// How long a command may run when nobody says how long.
pub const COMMAND_TIME: Duration = Duration::from_secs(2 * 60);
/// How long a command may be allowed to run.
pub const COMMAND_TIME_MOST: Duration = Duration::from_secs(10 * 60);
/// Bytes kept from each end of a command's output.
pub const COMMAND_OUTPUT_END: usize = 15 * 1024;
/// Bytes of a custom command's answer.
pub const COMMAND_RESULT_BYTES: usize = 200 * 1024;
/// How long a pipe may stay open after its command and all that it started have ended.
pub const COMMAND_DRAIN: Duration = Duration::from_secs(2);
/// Bytes kept of what went wrong, for the model to read.
pub const FAILURE_BYTES: usize = 2 * 1024;
/// How long it is kept how a program ended while the process that started it lives: until its call is long on record.
pub const STATUS_OF_THE_LIVING: Duration = Duration::from_secs(10 * 60);
/// How long it is kept when that process is gone, for whoever goes on with the session.
pub const STATUS_OF_THE_DEAD: Duration = Duration::from_secs(7 * 24 * 60 * 60);

// Tools: HTTP.

/// How long one request of a tool may take, redirects included.
pub const FETCH_TIME: Duration = Duration::from_secs(30);
/// How long connecting may take.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Redirects followed, each checked anew.
pub const FETCH_REDIRECTS: usize = 5;
/// Bytes of an answer that are read.
pub const FETCH_BYTES: usize = 2 * 1024 * 1024;
/// Bytes of a URL.
pub const URL_BYTES: usize = 2 * 1024;
/// How long a custom HTTP tool may be allowed to take.
pub const HTTP_TIME_MOST: Duration = Duration::from_secs(10 * 60);
/// Results one web search gives.
pub const SEARCH_RESULTS: usize = 20;

// Tools: lint.

/// Parameters a model still tells apart.
pub const LINT_PARAMETERS: usize = 10;
/// Words of a description below which it says too little.
pub const LINT_WORDS: usize = 4;
/// Objects inside one another whose parameters are looked at.
pub const LINT_DEPTH: usize = 4;
