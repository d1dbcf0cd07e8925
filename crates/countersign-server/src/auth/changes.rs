//! Tells that somebody's access changed: whoever remembers credentials in this process at once, every other server by an
//! event.

use countersign::CallId;
use countersign::bell::Listener;
use countersign::call::Chain;
use countersign::event::{Draft, EventName};
use countersign::store::{Failure, Op, Store};
use countersign_api::wire::Role;

/// What changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Changed<'a> {
    /// This token was made by somebody.
    TokenMade { id: &'a str, role: Role, name: &'a str, r#for: Option<&'a str>, by: &'a str },
    /// This token was revoked by somebody.
    Token { id: &'a str, by: &'a str },
    /// Somebody made a link that signs this person in.
    Link { name: &'a str, by: &'a str },
    /// This person signed in.
    SignedIn { id: &'a str, name: &'a str },
    /// This session was ended.
    Session { id: &'a str },
    /// This person's roles or groups are others, or there is no such person any more.
    Person { name: &'a str },
    /// From now on tools run as the user of a server, whose store and keys they can reach. Somebody said so.
    ToolsAsServer { by: &'a str },
}

impl Changed<'_> {
    fn draft(self) -> Draft {
        let draft = Draft::new(EventName::AccessChanged);
        match self {
            Changed::TokenMade { id, role, name, r#for, by } => {
                let draft = draft.text("what", "token").text("how", "made").text("id", id).text("by", by);
                draft.text("role", role.as_str()).text("name", name).text_if("for", r#for)
            }
            Changed::Token { id, by } => {
                draft.text("what", "token").text("how", "revoked").text("id", id).text("by", by)
            }
            Changed::Link { name, by } => {
                draft.text("what", "link").text("how", "made").text("id", name).text("by", by)
            }
            Changed::SignedIn { id, name } => {
                draft.text("what", "session").text("how", "begun").text("id", id).text("by", name)
            }
            Changed::Session { id } => draft.text("what", "session").text("how", "ended").text("id", id),
            Changed::Person { name } => draft.text("what", "person").text("how", "changed").text("id", name),
            Changed::ToolsAsServer { by } => draft.text("what", "tools_as_server").text("by", by),
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
