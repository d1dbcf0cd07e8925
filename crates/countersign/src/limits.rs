//! Every bound, in one place.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Bounds an operator may set under `limits:`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of one call's arguments.
    pub argument_bytes: usize,
    /// Nesting of one call's arguments.
    pub argument_depth: usize,
    /// Keys in one call's arguments, all levels together.
    pub argument_keys: usize,
    /// Calls of one session that may wait at once, and questions of its running tools with them.
    pub pending_per_session: u64,
    /// Calls of one principal (a token's agent, or this machine's own) that may wait at once, all its sessions together.
    pub pending_per_agent: u64,
    /// Calls that may wait at once, everybody's together.
    pub pending_total: u64,
    /// Submissions per second of one token of a server.
    pub submits_per_second: u32,
    /// Attempts of one call whose tool may be repeated.
    pub attempts: u32,
    /// Holds a running tool may open.
    pub holds_per_call: usize,
    /// Seconds that a claim holds without being renewed.
    pub lease_seconds: u32,
}

impl Limits {
    /// How long a claim holds without being renewed.
    pub fn lease(&self) -> Duration {
        Duration::from_secs(self.lease_seconds.into())
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            argument_bytes: 256 * 1024,
            argument_depth: 64,
            argument_keys: 10_000,
            pending_per_session: 100,
            pending_per_agent: 1_000,
            pending_total: 100_000,
            submits_per_second: 50,
            attempts: 3,
            holds_per_call: 100,
            lease_seconds: LEASE_SECONDS,
        }
    }
}

/// How many calls wait, and questions of running tools with them. Those of one principal and in all may lag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// In the same session; none where there is no session.
    pub in_session: u64,
    /// Of the same principal.
    pub of_agent: u64,
    /// In all.
    pub in_all: u64,
}

impl Waiting {
    /// Why no further call may wait, if none may.
    pub fn beyond(&self, limits: &Limits) -> Option<String> {
        let Waiting { in_session, of_agent, in_all } = *self;
        let beyond = in_session >= limits.pending_per_session
            || of_agent >= limits.pending_per_agent
            || in_all >= limits.pending_total;
        beyond.then(|| {
            format!(
                "{in_session} calls of this session, {of_agent} of this agent and {in_all} in all are waiting already"
            )
        })
    }
}

/// Grants that one process keeps in mind alone.
pub const KEPT_GRANTS: usize = 10_000;
/// Bytes of a policy or configuration file.
pub const POLICY_BYTES: usize = 1024 * 1024;
/// Rules of one policy, agents' own included.
pub const POLICY_RULES: usize = 100_000;
/// Bytes of one CEL condition.
pub const CONDITION_BYTES: usize = 4 * 1024;
/// Nesting of one CEL condition, in its text and in its syntax tree.
pub const CONDITION_DEPTH: usize = 32;
/// Comprehensions (`all`, `exists`, `map`, …) inside one another.
pub const CONDITION_COMPREHENSIONS: usize = 2;
/// Steps nested comprehensions may take: list length to the power of their depth.
pub const CONDITION_STEPS: usize = 10_000;
/// Stack a condition is compiled on.
pub const CONDITION_STACK: usize = 16 * 1024 * 1024;
/// Bytes of one tool's input schema.
pub const SCHEMA_BYTES: usize = 256 * 1024;
/// Bytes one pattern may take once compiled: in a schema, a redaction or a rule.
pub const PATTERN_BYTES: usize = 1024 * 1024;
/// Work of checking one call's arguments: evaluations of subschemas, weighed by what each compares.
pub const SCHEMA_STEPS: u64 = 4_000_000;
/// Places one schema may refer to.
pub const SCHEMA_REFERENCES: usize = 256;
/// Subschemas above one another for one and the same value.
pub const SCHEMA_HEIGHT: usize = 32;
/// Faults named when arguments do not fit their schema.
pub const SCHEMA_FAULTS: usize = 10;
/// Bytes of one such fault.
pub const SCHEMA_FAULT_BYTES: usize = 300;
/// Stack one subschema of one value may take while it is checked.
pub const SCHEMA_FRAME: usize = 32 * 1024;
/// Stack a schema is compiled on, and one is checked on that needs more than is left.
pub const SCHEMA_STACK: usize = 64 * 1024 * 1024;
/// Redaction patterns of one kind.
pub const REDACTIONS: usize = 1_000;
/// Steps the search for a schema's secrets may take; beyond them everything is masked.
pub const REDACTION_STEPS: usize = 4_000_000;
/// Bytes of a hint or a description that are shown; what is left out is counted.
pub const SHOWN_NOTE_BYTES: usize = 1_000;
/// Bytes of a payload that are shown beside a call; what is left out is counted.
pub const SHOWN_PAYLOAD_BYTES: usize = 4_000;
/// Lines of two texts together that are shown as a difference; longer ones are shown whole, one after the other.
pub const DIFF_LINES: usize = 4_000;
/// Bytes of a hint, a reason or another short text a person or program attaches.
pub const NOTE_BYTES: usize = 4 * 1024;
/// Bytes of a name: session, run, thread, agent, tool, server, key, label.
pub const NAME_BYTES: usize = 256;
/// Bytes of a URL in the configuration.
pub const URL_BYTES: usize = 2 * 1024;
/// Entries of `notify:`.
pub const NOTIFIED: usize = 32;
/// Places one call's arguments may point to.
pub const PLACES: usize = 16;
/// Bytes of one such place.
pub const PLACE_BYTES: usize = 4 * 1024;
/// Bytes of an argument that is looked at as a path.
pub const PATH_BYTES: usize = 4 * 1024;
/// Bytes of arguments from which people are told that they are large.
pub const LARGE_ARGUMENT_BYTES: usize = 16 * 1024;
/// Tools of principals that a gate knows to have been seen, so that it need not look them up.
pub const NOTED_TOOLS: usize = 10_000;
/// Holds that a gate knows to have put to its approver or channel, so that it does so once.
pub const ASKED_HOLDS: usize = 100_000;
/// How long a store keeps in mind that after-hooks were told of a call's end.
pub const TOLD_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Agents inside one another.
pub const AGENT_DEPTH: usize = 16;
/// Times that people may extend a limit of a run.
pub const RUN_EXTENSIONS: u32 = 10;
/// Bytes of a payload handed between tool and approver, and of a response given instead of running.
pub const PAYLOAD_BYTES: usize = 64 * 1024;
/// Nesting of such a payload.
pub const PAYLOAD_DEPTH: usize = 64;
/// Keys in such a payload, all levels together.
pub const PAYLOAD_KEYS: usize = 10_000;
/// Bytes of one JSON text in our own rows and files.
pub const STORED_BYTES: usize = 16 * 1024 * 1024;
/// Nesting of such a text. No other bound lets one nest deeper.
pub const STORED_DEPTH: usize = 96;
/// Keys in such a text, all levels together.
pub const STORED_KEYS: usize = 1_000_000;
/// Bytes of a tool's recorded output; more is kept as its head and its digest.
pub const OUTPUT_BYTES: usize = 256 * 1024;
/// Decisions kept on one hold.
pub const DECISIONS_PER_HOLD: usize = 100;
/// Rows of one page of a listing.
pub const PAGE_ROWS: usize = 1_000;
/// Rows of one page when nobody says how many.
pub const PAGE_ROWS_DEFAULT: usize = 100;
/// Life of a hold when no rule says otherwise.
pub const HOLD_LIFE: Duration = Duration::from_secs(10 * 60);
/// A hold with a shorter life gives nobody the time to find, read and decide it. It is allowed, and warned about.
pub const SHORT_HOLD_LIFE: Duration = Duration::from_secs(60);
/// How long an allowed or approved call may wait to be claimed.
pub const CLAIM_WITHIN: Duration = Duration::from_secs(5 * 60);
/// How long a gateway counts as being there after it last said so.
pub const GATEWAY_PRESENT: Duration = Duration::from_secs(10);
/// How long it is kept who waits for a call: by then it is over in any case, or some gateway has seen to it.
pub const CALLER_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Tools that are named to whoever is asked about one that looks like them.
pub const LOOK_ALIKES: usize = 3;
/// How long a claim holds without being renewed, when nobody says otherwise.
pub const LEASE: Duration = Duration::from_secs(LEASE_SECONDS as u64);
const LEASE_SECONDS: u32 = 30;
/// The shortest lease a run reckons with, whatever length its claim came with.
pub const LEAST_LEASE: Duration = Duration::from_millis(10);
/// Longest life of a grant.
pub const GRANT_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Past calls that are looked through to show what a grant would have covered.
pub const PREVIEW_CALLS: usize = 20 * PAGE_ROWS;
/// Calls named as examples of what a grant covers.
pub const PREVIEW_EXAMPLES: usize = 3;
/// Events of a log that may wait for others before their order is given up.
pub const AUDIT_WAITING: usize = 10_000;
/// Hashes of the youngest events that are kept: a checkpoint may sign a head that has moved on when it is written.
pub const AUDIT_RECENT: usize = 10_000;
/// Steps of the clock in a log that are reported one by one.
pub const AUDIT_CLOCK_STEPS: usize = 100;
/// Events after which a checkpoint is due.
pub const CHECKPOINT_EVENTS: u64 = 1_000;
/// Chain heads that one checkpoint signs; more are signed by several. The longest names fit one event.
pub const CHECKPOINT_HEADS: usize = 4_000;
/// Time after which a checkpoint is due if anything happened.
pub const CHECKPOINT_EVERY: Duration = Duration::from_secs(60);
/// Nesting of a policy or configuration file.
pub const POLICY_DEPTH: usize = 64;
/// Values in a policy or configuration file, all levels together.
pub const POLICY_NODES: usize = 1_000_000;
/// Characters shown of the line a problem stands on.
pub const PROBLEM_LINE: usize = 200;
/// Operators chained or nested in one CEL condition, as its text shows before it is compiled.
pub const CONDITION_CHAIN: usize = 64;
/// Bytes a regular expression of a condition may compile to.
pub const REGEX_BYTES: usize = 1024 * 1024;
/// Longest life of a hold that has an end.
pub const LONGEST_LIFE: Duration = Duration::from_secs(3_650 * 24 * 60 * 60);
/// How long a store may take to answer the gate. Silence counts as a failure, so nothing hangs for ever.
pub const STORE_ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// How long a tool may take to show what a call would change. Later than that, people decide without it.
pub const PREVIEW_WITHIN: Duration = Duration::from_secs(5);
