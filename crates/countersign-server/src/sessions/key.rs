//! The name of a session on this server: whose it is, and its own.

use std::fmt;
use std::sync::Arc;

use countersign::call::Chain;
use serde::{Deserialize, Serialize};

/// The name of a session. The same name under two principals is two sessions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) principal: Arc<str>,
    pub(crate) session: Arc<str>,
}

impl Key {
    pub(crate) fn new(principal: &Arc<str>, session: &str) -> Key {
        Key { principal: Arc::clone(principal), session: session.into() }
    }

    /// The session that a chain of events belongs to; none for the system's own. A principal holds no `/`.
    pub(crate) fn of(chain: &Chain) -> Option<Key> {
        let (principal, session) = chain.0.split_once('/')?;
        Some(Key { principal: principal.into(), session: session.into() })
    }

    /// The chain of its events.
    pub(crate) fn chain(&self) -> Chain {
        Chain(format!("{}/{}", self.principal, self.session).into())
    }
}

/// As it is written among records: no session's name is the beginning of another's.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let session = self.session.replace('%', "%25").replace('/', "%2F");
        write!(f, "{}/{session}", self.principal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_found_by_its_chain_whatever_its_name() {
        for name in ["s", "a/b", "a%2Fb", "%"] {
            let key = Key::new(&"bot".into(), name);
            assert_eq!(Key::of(&key.chain()), Some(key.clone()));
            assert_eq!(key.to_string().matches('/').count(), 1, "{key}");
        }
        assert_eq!(Key::of(&Chain::system()), None);
    }
}
