//! Every bound of the server, in one place. Those of calls and holds are the core's.

use std::time::Duration;

/// Names of tools that one request may ask about.
pub const HIDDEN_NAMES: usize = 1_000;
/// Bytes of a request's body.
pub const BODY_BYTES: usize = 1024 * 1024;
/// Bytes of one message on a WebSocket.
pub const MESSAGE_BYTES: usize = 512 * 1024;
/// Connections at once, all kinds together: ten thousand readers, and room for whoever decides.
pub const CONNECTIONS: usize = 12_000;
/// Streams at once of one principal, server-sent events and WebSockets together.
pub const STREAMS: usize = 100;
/// Requests at once in which one principal waits for people.
pub const WAITS: usize = 500;
/// Requests at once of one principal to MCP servers: a client that repeats itself joins its own call, and each waits.
pub const EXCHANGES: usize = 2_000;
/// Bytes of a request's line and headers.
pub const HEADER_BYTES: usize = 16 * 1024;
/// How long a request's headers may take, and how long a connection may say nothing.
pub const HEADERS_WITHIN: Duration = Duration::from_secs(20);
/// How long a request's body may take.
pub const BODY_WITHIN: Duration = Duration::from_secs(30);
/// Requests at once on one connection of HTTP/2.
pub const REQUESTS_PER_CONNECTION: u32 = 128;
/// Pause before connections are accepted again where the system had no more to give.
pub const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// How long a TLS handshake may take.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// How long a request may wait for a call to leave `pending`.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long open requests may take when the server ends.
pub const DRAIN_WITHIN: Duration = Duration::from_secs(10);
/// Events a slow reader may be behind before it is told to begin anew.
pub const BEHIND: usize = 1_024;
/// How often a quiet stream says that it is alive, and looks whether its credential still holds.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long the other end of a WebSocket may take to read one message.
pub const SEND_WITHIN: Duration = Duration::from_secs(20);
/// When to come back where too much waits for people: they decide in their own time.
pub const FULL_FOR: Duration = Duration::from_secs(5);
/// Submissions a token may make at once, beyond the rate per second that `limits:` sets.
pub const SUBMIT_BURST: u32 = 200;
/// Requests per second of one principal.
pub const REQUESTS_PER_SECOND: u32 = 200;
/// Requests one principal may make at once.
pub const REQUEST_BURST: u32 = 1_000;
/// Wrong credentials per minute from one address; beyond it the answer says to wait.
pub const FAILURES_PER_MINUTE: u32 = 5;
/// Refused accesses of one principal that are put on the record at once; after that one a second.
pub const REFUSALS_NOTED: u32 = 10;
/// Strangers who were sent away that are put on the record at once, from all addresses. From one of them, and for one
/// reason, as many as refused accesses of a principal, and then one a minute.
pub const STRANGERS_NOTED: u32 = 100;
/// After that, one in so long.
pub const STRANGER_NOTED_EVERY: Duration = Duration::from_secs(10);
/// Principals or addresses whose rates are remembered.
pub const RATES: usize = 10_000;
/// How long what the store said about a credential is believed, even if no change was heard of.
pub const BELIEVED_FOR: Duration = Duration::from_secs(1);
/// How long ago the event log may have been read to its end by a server that takes itself for one that hears changes.
pub const HEARS_WITHIN: Duration = Duration::from_secs(1);
/// How often a server reads on in a quiet event log.
pub const LOG_LOOKED: Duration = Duration::from_millis(400);
/// Credentials that are remembered at once, and as many people's groups.
pub const REMEMBERED: usize = 10_000;
/// Calls of which it is remembered whose they are.
pub const SEEN: usize = 20_000;
/// How long the event log rests after a reading that nobody waited for.
pub const LOG_RESTS: Duration = Duration::from_millis(10);
/// Life of an agent's token when nobody says otherwise.
pub const AGENT_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Life of an approver's or auditor's token, and of a browser's session.
pub const APPROVER_LIFE: Duration = Duration::from_secs(8 * 3600);
/// Life of an operator's token.
pub const OPERATOR_LIFE: Duration = Duration::from_secs(3600);
/// Longest life of a token.
pub const TOKEN_LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
/// How long a token that ended stays listed.
pub const TOKEN_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a browser's session lives without being used.
pub const IDLE: Duration = Duration::from_secs(30 * 60);
/// How stale the record of a session's last use may be.
pub const SEEN_EVERY: Duration = Duration::from_secs(60);
/// Life of a one-time sign-in link.
pub const LINK_LIFE: Duration = Duration::from_secs(10 * 60);
/// Calls that a search looks through for one page.
pub const SEARCHED: usize = 20_000;
/// Holds with the same arguments that are named beside one.
pub const SIBLINGS: usize = 100;
/// Events that insights look through.
pub const INSIGHT_EVENTS: usize = 50_000;
/// Hours that insights may look back.
pub const INSIGHT_HOURS: u32 = 24 * 30;
/// Steps of time in insights.
pub const INSIGHT_STEPS: usize = 48;
/// Rules and tools that insights name.
pub const INSIGHT_ROWS: usize = 50;
/// How often people must have said yes, and never no, before a rule is worth a thought.
pub const INSIGHT_YESES: u64 = 3;
/// Where one stretch of the time that people take ends and the next begins.
pub const INSIGHT_WAITS: [Duration; 6] = [
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(15 * 60),
    Duration::from_secs(60 * 60),
];
/// Holds that wait of which it is remembered since when, to count how long people take.
pub const OPEN_TIMED: usize = 100_000;
/// Tokens in one listing.
pub const TOKENS: usize = 10_000;
/// Combinations of method and status that are counted, for each route.
pub const COUNTED: usize = 10_000;
/// Bytes of one message to an agent that the server runs.
pub const SAID_BYTES: usize = 256 * 1024;
/// Messages of one session that wait for its run to end.
pub const MESSAGES_QUEUED: usize = 16;
/// Sessions that one server drives at once; the others wait their turn.
pub const SESSIONS_DRIVEN: usize = 256;
/// How long a server has a session to itself before it must say again that it drives it.
pub const SESSION_LEASE: Duration = Duration::from_secs(10);
/// How often it says so.
pub const SESSION_RENEWED: Duration = Duration::from_secs(3);
/// How often a server looks for sessions that nobody drives and that should be driven.
pub const SESSIONS_SWEPT: Duration = Duration::from_secs(5);
/// How long a run may wait for people or its client before it is put away. It comes back when something happens.
pub const PARKED_AFTER: Duration = Duration::from_secs(3);
/// How often a run is tried again whose store or gate failed.
pub const SESSION_ATTEMPTS: u32 = 5;
/// The first pause before that; it doubles each time.
pub const SESSION_PAUSE: Duration = Duration::from_millis(500);
/// How often a record that others write, too, is read and written anew.
pub const WRITE_ATTEMPTS: usize = 20;
/// Pieces of text that a reader of a session may be behind before it gets the text so far anew.
pub const TEXT_BEHIND: usize = 256;
/// Bytes of a model's unfinished answer that are kept for readers who come late.
pub const TEXT_KEPT: usize = 256 * 1024;
/// How often people see more of an unfinished answer: secrets are masked in all of it each time.
pub const TEXT_EVERY: Duration = Duration::from_millis(250);
/// How often a stream of a session looks whether another server moved it.
pub const SESSION_LOOKED: Duration = Duration::from_secs(2);
/// Bytes of a cursor of a session's stream.
pub const SESSION_CURSOR_BYTES: usize = 16 * 1024;
/// Threads of a session that are open at once, as a cursor of its stream names them.
pub const SESSION_THREADS: usize = 256;
/// Entries or events of a session that are read at once.
pub const SESSION_ROWS: usize = 200;
/// How long a receiver of a notification may take, from the first byte to the last.
pub const TELL_WITHIN: Duration = Duration::from_secs(10);
/// Deliveries to one receiver that wait to arrive. Beyond it the event log keeps the rest until there is room.
pub const DELIVERIES_PENDING: usize = 10_000;
/// Notifications on their way at once to one receiver.
pub const TELL_AT_ONCE: usize = 8;
/// Wait before the first repetition of a delivery; each further one takes four times as long.
pub const TELL_AGAIN: Duration = Duration::from_secs(5);
/// Longest wait between two tries of a delivery.
pub const TELL_AGAIN_MOST: Duration = Duration::from_secs(6 * 3600);
/// How old news may be to be told at all.
pub const NEWS: Duration = Duration::from_secs(3 * 24 * 3600);
/// How long a delivery stays listed after its end.
pub const DELIVERY_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// For how long one node alone tends a receiver. Longer than a round of tries takes.
pub const SEAT: Duration = Duration::from_secs(30);
/// How often a node looks for deliveries that others made due, and for receivers that nobody tends.
pub const SEAT_LOOK: Duration = Duration::from_secs(5);
/// Longest wait while a delivery is due later: the store's clock need not be ours.
pub const TICK: Duration = Duration::from_secs(1);
/// Bytes of arguments that a notification takes along; longer ones are left out.
pub const TOLD_BYTES: usize = 16 * 1024;
