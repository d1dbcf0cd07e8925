//! What is wrong with a log, where, and what to do about it.

use std::fmt;

use crate::call::Chain;
use crate::id::CallId;

/// The first thing that is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line of the file, from 1; none where a store was checked.
    pub line: Option<u64>,
    /// The chain, where one is concerned.
    pub chain: Option<Chain>,
    /// The event in that chain.
    pub seq: Option<u64>,
    /// What is wrong.
    pub what: What,
}

/// What is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum What {
    /// The file or store could not be read.
    #[error("the log cannot be read: {0}")]
    Unreadable(String),
    /// The first line is not the header of an export.
    #[error("the first line is not the header of an export")]
    NoHeader,
    /// A newer version wrote it.
    #[error("it is written in version {0} of the form, and only version 1 is known here")]
    Version(u64),
    /// There is no end mark.
    #[error("the end mark is missing: the file was cut")]
    Cut,
    /// Something follows the end mark.
    #[error("there is more after the end mark")]
    AfterEnd,
    /// A line is longer than any event.
    #[error("the line is longer than {0} bytes")]
    LongLine(usize),
    /// A line is not what an export consists of.
    #[error("the line is not an event, or not spelled as an export spells it")]
    Line,
    /// A body is not strict JSON, or not an event's.
    #[error("the event cannot be read: {0}")]
    Body(String),
    /// Events are missing or out of order.
    #[error("event {expected} of the chain was expected here: one was removed, doubled or moved")]
    Gap {
        /// The event that should be here.
        expected: u64,
    },
    /// The hash is not the event's.
    #[error("the hash does not fit the event and the one before it: one of them was changed")]
    Hash,
    /// A store's columns say something else than the event.
    #[error("the row says something else than the event it holds")]
    Row,
    /// A chain of another session.
    #[error("the chain does not belong to the session the export is about")]
    Scope,
    /// A checkpoint is not one.
    #[error("the checkpoint is not on the chain `system`, or its statement cannot be read")]
    Checkpoint,
    /// A checkpoint's signature is wrong.
    #[error("the signature of the checkpoint is not by key `{key}` over its statement")]
    Signature {
        /// The key it claims.
        key: String,
    },
    /// A checkpoint does not follow the one before.
    #[error("the checkpoint does not name the checkpoint before it: one was removed or rewritten")]
    Previous,
    /// A checkpoint signed something else than the log holds.
    #[error("a checkpoint signed event {seq} of chain `{}`, and the log {found}", .chain.0)]
    Head {
        /// The chain that was signed.
        chain: Chain,
        /// The event that was signed.
        seq: u64,
        /// What the log has instead.
        found: &'static str,
    },
    /// A key nobody vouched for.
    #[error("key `{key}` signed this, and it is not among the {among}")]
    Key {
        /// The key.
        key: String,
        /// The keys that would do.
        among: &'static str,
    },
    /// Keys were pinned and none of them signed anything.
    #[error("nothing in this log is signed by a pinned key")]
    NotSigned,
    /// The end mark counts other events than there are.
    #[error("the end mark counts {marked} events, and there are {found}")]
    Count {
        /// Events the end mark counts.
        marked: u64,
        /// Events there are.
        found: u64,
    },
    /// The digest of the end mark is not that of the lines.
    #[error("the digest of the end mark is not that of the lines before it: one was changed, removed or moved")]
    Digest,
    /// The end mark's signature is wrong or gone.
    #[error("the end mark is not signed by the key the header names")]
    EndSignature,
    /// A call went a way no call can go.
    #[error("{call} went a way no call can go: {why}")]
    Walk {
        /// The call.
        call: CallId,
        /// What is wrong with it.
        why: String,
    },
}

impl What {
    /// What to do next.
    pub fn next_step(&self) -> &'static str {
        match self {
            What::Unreadable(_) => "check the file or the store and verify again",
            What::Version(_) => "verify with the version of countersign that wrote it, or a newer one",
            What::NoHeader | What::Cut | What::AfterEnd | What::LongLine(_) | What::Line => {
                "fetch the file again or export anew; if it stays so, keep both as evidence"
            }
            What::Key { .. } | What::NotSigned => {
                "ask the operator which keys sign here, through a channel the log does not come from"
            }
            What::Body(_)
            | What::Gap { .. }
            | What::Hash
            | What::Row
            | What::Scope
            | What::Checkpoint
            | What::Signature { .. }
            | What::Previous
            | What::Head { .. }
            | What::Count { .. }
            | What::Digest
            | What::EndSignature
            | What::Walk { .. } => "trust nothing from here on; keep this log and compare with a copy kept elsewhere",
        }
    }
}

impl Problem {
    /// A problem of the whole log.
    pub(super) fn whole(what: What) -> Problem {
        Problem { line: None, chain: None, seq: None, what }
    }

    /// A problem of one event.
    pub(super) fn event(chain: &Chain, seq: u64, what: What) -> Problem {
        Problem { line: None, chain: Some(chain.clone()), seq: Some(seq), what }
    }

    /// Adds the line it was found at.
    #[must_use]
    pub(super) fn at_line(mut self, line: u64) -> Problem {
        self.line = Some(line);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        let mut text = String::new();
        if let (Some(seq), Some(chain)) = (self.seq, &self.chain) {
            text = format!("event {seq} of chain `{}`: ", chain.0);
        }
        text.push_str(&self.what.to_string());
        // SECURITY: the log may be anybody's, and its names must not move the reader's cursor.
        for found in text.chars() {
            match found {
                '\'' | '"' | '\\' => f.write_str(found.encode_utf8(&mut [0; 4]))?,
                found => write!(f, "{}", found.escape_debug())?,
            }
        }
        write!(f, "; {}", self.what.next_step())
    }
}

impl std::error::Error for Problem {}
