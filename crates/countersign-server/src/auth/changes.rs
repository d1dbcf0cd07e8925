//! Tells that somebody's access changed: whoever remembers credentials in this process at once, every other server by an
//! event.

use countersign::CallId;
use countersign::bell::Listener;
use countersign::call::Chain;
use countersign::event::{Draft, EventName};
use countersign::store::{Failure, Op, Store};

/// What changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Changed<'a> {
    /// This token was revoked by somebody.
    Token { id: &'a str, by: &'a str },
    /// This session was ended.
    Session { id: &'a str },
    /// This person's roles or groups are others, or there is no such person any more.
    Person { name: &'a str },
}

impl Changed<'_> {
    fn draft(self) -> Draft {
        let draft = Draft::new(EventName::AccessChanged);
        match self {
            Changed::Token { id, by } => draft.text("what", "token").text("id", id).text("by", by),
            Changed::Session { id } => draft.text("what", "session").text("id", id),
            Changed::Person { name } => draft.text("what", "person").text("id", name),
        }
    }
}

/// Tells of a change that is durable by now.
///
/// INVARIANT: the change comes before its event, so whoever reads the store after hearing of it reads what is new.
pub(crate) async fn tell(store: &dyn Store, changed: Changed<'_>) -> Result<(), Failure> {
    ring(store);
    store.run(Op::Note { chain: Chain::system(), draft: changed.draft() }).await?;
    Ok(())
}

/// Rings for those who remember credentials of this store.
pub(crate) fn ring(store: &dyn Store) {
    store.bell().ring(key());
}

/// Hears the next ring.
pub(crate) fn listen(store: &dyn Store) -> Listener<CallId> {
    store.bell().listen(key())
}

/// The bell rings for calls. An id of a call holds the moment it was made, so none has this one.
fn key() -> CallId {
    CallId::from_bytes([0; 16])
}
