//! Every bound on what MCP servers and clients may do to us, in one place: first the toolset's, then the gateway's.

use std::time::Duration;

/// Bytes of one message of a server. One that sends more is cut off.
pub const MESSAGE_BYTES: usize = 4 * 1024 * 1024;
/// Lines in a row that a server may write which are no messages. Some greet on the wrong pipe.
pub const STRAY_LINES: usize = 100;
/// Bytes of a server's last words on its error output that are kept.
pub const STDERR_BYTES: usize = 8 * 1024;
/// Lines of them that an error shows.
pub const STDERR_LINES: usize = 10;
/// Bytes of a tool's result that go to the model, unless the operator says otherwise.
pub const RESULT_BYTES: usize = countersign::limits::OUTPUT_BYTES;
/// Bytes of the words of an error that a server gives.
pub const ERROR_BYTES: usize = countersign::limits::NOTE_BYTES;
/// Tools of one server, those it took back included.
pub const TOOLS_PER_SERVER: usize = 1_000;
/// Bytes of one tool's description. Every turn of a model pays for it.
pub const DESCRIPTION_BYTES: usize = 32 * 1024;
/// Pages of one listing of tools.
pub const LIST_PAGES: usize = 100;
/// How long a server may take to start and to greet. Some download themselves first.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(60);
/// How long one page of a listing may take.
pub const LIST_WITHIN: Duration = Duration::from_secs(30);
/// How long one call may take, unless the operator says otherwise. It begins when the call is sent.
pub const CALL_WITHIN: Duration = Duration::from_secs(5 * 60);
/// How long a call waits for a server that is being connected to again.
pub const BACK_WITHIN: Duration = Duration::from_secs(10);
/// The first wait before connecting again; each further one is twice as long.
pub const BACK_OFF_FIRST: Duration = Duration::from_millis(100);
/// The longest such wait.
pub const BACK_OFF_MOST: Duration = Duration::from_secs(30);
/// How often a stream of events that was cut is taken up again, each time after twice the wait.
pub const RESUMES: usize = 8;
/// How long a server must have stayed for the waits to begin anew. One that dies at once is not started in a loop.
pub const STAYED: Duration = Duration::from_secs(30);
/// How soon tools are listed again while some of them wait to be accepted.
pub const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How long to wait for the end of a server that closed its output, to tell how it ended.
pub const END_WITHIN: Duration = Duration::from_secs(1);

/// Bytes of one message of the client's.
pub const CLIENT_MESSAGE_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of one message of the server's; results may carry pictures. A server that sends more is stopped.
pub const SERVER_MESSAGE_BYTES: usize = 32 * 1024 * 1024;
/// Bytes of all messages together that the servers at an address may have in one gateway's memory while they are read
/// and until they are handed on.
pub const ANSWERS_BYTES: usize = 8 * SERVER_MESSAGE_BYTES;
/// Bytes of one line of the server's standard error that are told; the rest of the line is left out.
pub const TOLD_BYTES: usize = 4 * 1024;
/// Calls of one client that may be in hand at once.
pub const CALLS: usize = 4_096;
/// Tools of one server that are known, and names of its tools that are ever pinned. Further ones are refused.
pub const TOOLS: usize = 10_000;
/// Definitions that are compared with their pins at once.
pub const PINS_AT_ONCE: usize = 64;
/// Pages of a listing that are asked for.
pub const PAGES: usize = 200;
/// How long the gateway's own listing of tools may take; a call waits for it.
pub const OWN_LISTING_WITHIN: Duration = Duration::from_secs(20);
/// How long the server may take to list its tools once more, before a call runs that people were asked about.
pub const LIST_AGAIN_WITHIN: Duration = Duration::from_secs(5);
/// How long a server may take to say how it speaks.
pub const GREET_WITHIN: Duration = Duration::from_secs(20);
/// How often in one request a server of the newer era may ask for more, of a client that shook hands.
pub const QUESTION_ROUNDS: usize = 16;
/// How long a held call keeps its client waiting: just under the 60 seconds at which common clients give up.
pub const WAIT: Duration = Duration::from_secs(50);
/// How often a waiting client is told that its call still waits.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long to wait before a hold whose time is over is closed once more, where that could not be written down.
pub const TICK_AGAIN: Duration = Duration::from_millis(250);
/// How long a server may take to answer a call; at an address, any other request that is to have an end, too.
pub const RUN_WITHIN: Duration = Duration::from_secs(15 * 60);
/// How often a gateway says that it is there, while calls wait in it.
pub const PRESENT_EVERY: Duration = Duration::from_secs(3);
/// How long a hold without a caller stays open, and an outcome that nobody got is kept.
pub const LINGER: Duration = Duration::from_secs(10 * 60);
/// How long a server may still answer a call that its client cancelled.
pub const CANCEL_WITHIN: Duration = Duration::from_secs(5);
/// How long running calls may go on once the client has left, and then how long the server may take to end.
pub const LEAVE_WITHIN: Duration = Duration::from_secs(5);
/// How long a server over HTTP may take to accept a notification.
pub const NOTICE_WITHIN: Duration = Duration::from_secs(30);
/// How long a connection to a server on this machine is kept that nobody uses.
pub const IDLE_CONNECTION: Duration = Duration::from_secs(90);
/// Messages that a reader over HTTP may be behind; what comes then is lost to it.
pub const BEHIND: usize = 256;
/// Bytes that are kept of what was said on the streams of a session, for a client that was cut off.
pub const REPLAY_BYTES: usize = 1024 * 1024;
/// Events that are kept so.
pub const REPLAY_EVENTS: usize = 1_024;
/// Streams of a session that can be taken up again.
pub const REPLAY_STREAMS: usize = 64;
/// How long a client that comes back waits to be told what has become of its request.
pub const RESUME_WITHIN: Duration = Duration::from_secs(30);
/// How long a client that was cut off should wait before it comes back.
pub const REPLAY_AFTER: Duration = Duration::from_millis(500);
/// Conversations over HTTP at once, each with a connection of its own to the server.
pub const CONVERSATIONS: usize = 256;
/// Those of one principal: beyond them, the one that was idle longest ends for a new one.
pub const CONVERSATIONS_OF_ONE: usize = 32;
/// How long a conversation over HTTP stays without anybody reading or asking.
pub const IDLE: Duration = Duration::from_secs(30 * 60);
/// How long a client over HTTP may wait for the head of an answer; then it is told that a stream begins.
pub const HEAD_WITHIN: Duration = Duration::from_secs(2);
/// How long the answer to a request of a session may take to be sent in one piece with its head. What takes longer comes as
/// a stream that has begun by then.
pub const AT_ONCE: Duration = Duration::from_millis(20);
/// Bytes of the answer to a call that is sent as one message and not as a stream: so few that they come in one packet with
/// the head, and a client has all of it or nothing, and nothing to take up again.
pub const PLAIN_BYTES: usize = 512;
/// Legs of one wait for which a client is told to go on; common clients give up after ten.
pub const LEGS: usize = 9;
/// Bytes of a form that is put before a person in their client. What is longer is decided elsewhere.
pub const PROMPT_BYTES: usize = 4 * 1024;
/// Bytes of a request that is kept for a task. One that is longer waits in another way.
pub const TASK_BYTES: usize = 512 * 1024;
/// How often the client of a task should ask how it stands.
pub const TASK_POLL: Duration = Duration::from_secs(2);
/// Calls that the status server lists at once.
pub const STATUS_CALLS: usize = 100;
