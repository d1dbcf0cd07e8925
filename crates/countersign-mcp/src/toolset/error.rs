//! Why a server cannot be used, and what to do about it.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rmcp::ServiceError;
use rmcp::service::ClientInitializeError;

use super::wire::{Ended, Failure};
use crate::limits;

/// Why a server's tools are not there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// It has neither a program nor an address.
    #[error("the MCP server `{0}` has neither `command` nor `url`: say how to start it or where it listens")]
    Nowhere(Arc<str>),
    /// Its address or headers cannot be used. Which value it was is not repeated: it may be a secret.
    #[error("the MCP server `{server}` cannot be used: {why}")]
    Settings {
        /// The server.
        server: Arc<str>,
        /// What is wrong.
        why: String,
    },
    /// Its program cannot be started.
    #[error("the MCP server `{server}` cannot be started: {}", not_started(.command, .error))]
    Start {
        /// The server.
        server: Arc<str>,
        /// The program.
        command: String,
        /// What the system says.
        error: io::Error,
    },
    /// Its program ended before it answered.
    #[error("the MCP server `{server}` ended before it answered{}{}", in_brackets(.how), last_words(.said))]
    Ended {
        /// The server.
        server: Arc<str>,
        /// How it ended, if the system knows.
        how: Option<String>,
        /// Its last words.
        said: String,
    },
    /// It does not answer.
    #[error("the MCP server `{server}` did not answer within {seconds} s: is it an MCP server?{}", last_words(.said))]
    Silent {
        /// The server.
        server: Arc<str>,
        /// How long we waited.
        seconds: u64,
        /// What its program said meanwhile.
        said: String,
    },
    /// It answers in ways we cannot use.
    #[error("the MCP server `{server}` cannot be talked to: {why}")]
    Spoke {
        /// The server.
        server: Arc<str>,
        /// What went wrong.
        why: String,
    },
}

fn not_started(command: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("there is no program `{command}`; install it, or write its whole path"),
        io::ErrorKind::PermissionDenied => format!("`{command}` may not be run; look at its permissions"),
        _ => format!("`{command}`: {error}"),
    }
}

fn in_brackets(how: &Option<String>) -> String {
    how.as_ref().map_or_else(String::new, |how| format!(" ({how})"))
}

fn last_words(said: &str) -> String {
    match said.is_empty() {
        true => String::new(),
        false => {
            let lines: Vec<String> =
                said.lines().map(|line| format!("  {}", countersign::show::escape(line))).collect();
            format!("; its last words:\n{}", lines.join("\n"))
        }
    }
}

/// How a connection attempt failed, before it is known what became of the server.
pub(super) enum Trouble {
    Silent,
    Spoke(String),
}

impl Trouble {
    /// What to tell, once it is known how the program ended.
    pub(super) fn told(self, server: Arc<str>, ended: Option<Ended>) -> ConnectError {
        if let Some(why) = ended.as_ref().and_then(|ended| ended.cut_off) {
            return ConnectError::Spoke { server, why: why.to_owned() };
        }
        let (how, said) = ended.map_or((None, String::new()), |ended| (ended.how, ended.said));
        match (self, how) {
            (_, Some(how)) => ConnectError::Ended { server, how: Some(how), said },
            (Trouble::Silent, None) => ConnectError::Silent { server, seconds: limits::CONNECT_WITHIN.as_secs(), said },
            (Trouble::Spoke(why), None) => ConnectError::Spoke { server, why },
        }
    }
}

impl From<ClientInitializeError> for Trouble {
    fn from(error: ClientInitializeError) -> Self {
        Trouble::Spoke(match &error {
            ClientInitializeError::LegacyFallbackFailed { fallback, .. } => words(fallback),
            error => words(error),
        })
    }
}

impl From<ServiceError> for Trouble {
    fn from(error: ServiceError) -> Self {
        Trouble::Spoke(words(&error))
    }
}

/// The deepest cause of an error, in bounded words. What lies above it names types and addresses, not reasons.
pub(super) fn words(error: &(dyn Error + 'static)) -> String {
    let deepest = causes(error).last().map(ToString::to_string).unwrap_or_default();
    clipped(&countersign::show::escape(&deepest))
}

/// An error and what caused it, down to the deepest.
pub(super) fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        // These keep what went wrong on the wire out of the chain.
        if let Some(Failure::Client(error)) = error.downcast_ref() {
            return Some(error);
        }
        if let Some(ServiceError::TransportSend(sending)) = error.downcast_ref() {
            return Some(&*sending.error);
        }
        if let Some(ClientInitializeError::TransportError { error: sending, .. }) = error.downcast_ref() {
            return Some(&*sending.error);
        }
        error.source()
    })
}

/// The beginning of a text that a server gave.
pub(super) fn clipped(text: &str) -> String {
    match text.len() > limits::ERROR_BYTES {
        true => format!("{}…", text.get(..text.floor_char_boundary(limits::ERROR_BYTES)).unwrap_or_default()),
        false => text.to_owned(),
    }
}
