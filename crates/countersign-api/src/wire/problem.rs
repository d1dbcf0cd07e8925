//! Problems: why a request was not done, for programs (RFC 9457).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $variant:ident = $code:literal, $status:literal;)*) => {
        /// A stable name for what went wrong. `docs/reference/errors.md` lists them all.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[doc = $doc])* $variant,)*
            /// A code that a newer server added.
            Unknown,
        }

        impl Code {
            /// Every code that can be sent.
            pub const ALL: &'static [Code] = &[$(Code::$variant),*];

            /// The word used on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $code,)* Code::Unknown => "unknown" }
            }

            /// The status that goes with it.
            pub fn status(self) -> u16 {
                match self { $(Code::$variant => $status,)* Code::Unknown => 500 }
            }

            /// What it means, in one line.
            pub fn title(self) -> &'static str {
                match self { $(Code::$variant => concat!($($doc),*).trim_ascii(),)* Code::Unknown => "Unknown." }
            }
        }
    };
}

codes! {
    /// The body, a parameter or a header is not what this route takes.
    BadRequest = "bad_request", 400;
    /// The arguments are not valid JSON, or not an object.
    InvalidArguments = "invalid_arguments", 400;
    /// The decision combines members that do not belong together.
    InvalidDecision = "invalid_decision", 400;
    /// No valid credential came with the request.
    Unauthenticated = "unauthenticated", 401;
    /// The credential does not have the role this route needs.
    Forbidden = "forbidden", 403;
    /// The Host header is not one this server answers to.
    WrongHost = "wrong_host", 403;
    /// The request comes from a page of another origin.
    WrongOrigin = "wrong_origin", 403;
    /// The CSRF value is missing or wrong.
    WrongCsrf = "wrong_csrf", 403;
    /// The decider is not among those who may approve this.
    NotEligible = "not_eligible", 403;
    /// Only a person may approve this.
    HumanRequired = "human_required", 403;
    /// Whoever asked for the work may not approve it.
    Requester = "requester", 403;
    /// There is no such thing, or it belongs to somebody else.
    NotFound = "not_found", 404;
    /// The route does not take this method.
    MethodNotAllowed = "method_not_allowed", 405;
    /// The hold is closed.
    HoldClosed = "hold_closed", 409;
    /// The decision names another digest than the hold's.
    DigestMismatch = "digest_mismatch", 409;
    /// This person has already decided this hold.
    AlreadyDecided = "already_decided", 409;
    /// The policy denies the edited call; the hold stays open.
    EditDenied = "edit_denied", 409;
    /// A hold from inside a running tool takes approve or deny, and a payload, nothing else.
    InRunOnly = "in_run_only", 409;
    /// The grant asked for may not be made.
    GrantRefused = "grant_refused", 409;
    /// The call was already claimed.
    AlreadyClaimed = "already_claimed", 409;
    /// The call is in a state from which this cannot happen.
    WrongState = "wrong_state", 409;
    /// Nothing is claimed while halted.
    Halted = "halted", 409;
    /// Another attempt has begun; this fence is no longer the current one.
    StaleFence = "stale_fence", 409;
    /// The key was used before for a call with other arguments.
    KeyReused = "key_reused", 409;
    /// The tool is not what was looked at; read it again.
    ToolChanged = "tool_changed", 409;
    /// It changed meanwhile; read it again.
    Conflict = "conflict", 409;
    /// The one-time link was used before, or its time is over.
    LinkSpent = "link_spent", 410;
    /// The body is larger than this route takes.
    TooLarge = "too_large", 413;
    /// The body is not `application/json`.
    NotJson = "not_json", 415;
    /// The edited arguments do not fit the tool.
    InvalidEdit = "invalid_edit", 422;
    /// Too many requests, waiting calls or open connections.
    Limit = "limit", 429;
    /// The server failed; whether it was done is unknown.
    Internal = "internal", 500;
    /// The policy in force cannot be read.
    BrokenPolicy = "broken_policy", 503;
    /// The store cannot be reached, or the server shuts down.
    Unavailable = "unavailable", 503;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
        let word = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Ok(Code::ALL.iter().copied().find(|code| code.as_str() == word).unwrap_or(Code::Unknown))
    }
}

/// Why a request was not done: `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Names the kind of problem: `urn:countersign:problem:` and the code.
    pub r#type: String,
    /// The kind of problem in one line.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable code.
    #[schema(value_type = String, example = "hold_closed")]
    pub code: Code,
    /// What went wrong this time. Holds names that others chose: escape it before it is printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Seconds after which to try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(code: Code) -> Problem {
        Problem {
            r#type: format!("urn:countersign:problem:{code}"),
            title: code.title().to_owned(),
            status: code.status(),
            code,
            detail: None,
            retry_after: None,
        }
    }

    /// Says what went wrong this time.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Problem {
        self.detail = Some(detail.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Some(detail) => write!(f, "{detail} ({})", self.code),
            None => write!(f, "{} ({})", self.title.trim_end_matches('.'), self.code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_word_and_reads_back() {
        let mut words = std::collections::HashSet::new();
        for code in Code::ALL {
            assert!(words.insert(code.as_str()), "{code}");
            assert!((400..600).contains(&code.status()));
            assert!(code.title().ends_with('.'), "{code}");
            let text = serde_json::to_string(code).unwrap();
            assert_eq!(serde_json::from_str::<Code>(&text).unwrap(), *code);
        }
        assert_eq!(serde_json::from_str::<Code>("\"quantum\"").unwrap(), Code::Unknown);
    }
}
