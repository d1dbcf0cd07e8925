//! What a client of the newer era carries from one leg of a wait to the next.
//!
//! SECURITY: a state is a random name of a record in our store, bound to the principal, the server, the tool and the
//! digest of the arguments, and good once. It says where a wait stands and what was asked, never that anything was
//! decided: that is in the call's own record.

use countersign::digest::ArgumentDigest;
use countersign::store::{Expect, Failure, Store};
use countersign::{CallId, GateError, HoldId, Json};
use serde::{Deserialize, Serialize};

use super::Core;
use super::request::Request;
use crate::limits;

/// Where states are kept among the store's records.
const NAMESPACE: &str = "gateway-states";
/// Under which of them stands what tells our own states from those of others.
const TAG: &str = "tag";

/// A wait that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Leg {
    /// The call that is waited for.
    pub(super) call: CallId,
    /// How many legs there were before.
    pub(super) round: usize,
    /// The hold that the person at the client was asked about with a form.
    pub(super) asked: Option<HoldId>,
    /// What the call brings the server beside its arguments, which its client does not bring again.
    pub(super) more: Option<Json>,
}

/// What is kept of it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// Who may go on with it.
    binding: String,
    leg: Leg,
}

impl Leg {
    /// What is kept of it, for whoever can show this binding.
    pub(super) fn write(self, binding: &str) -> Result<Vec<u8>, GateError> {
        let kept = Kept { binding: binding.to_owned(), leg: self };
        serde_json::to_vec(&kept).map_err(|error| GateError::BadInput(error.to_string()))
    }

    /// Reads what was kept. None where it is no such thing, or was kept under another binding.
    pub(super) fn read(value: &[u8], binding: &str) -> Option<Leg> {
        let kept: Kept = serde_json::from_slice(value).ok()?;
        (kept.binding == binding).then_some(kept.leg)
    }
}

/// How every state of this server begins. A server behind us may have states of its own, even one that is a gateway of
/// another store.
pub(super) async fn prefix(store: &dyn Store, server: &str) -> Result<String, GateError> {
    let new = uuid::Uuid::new_v4().simple().to_string();
    let tag = match store.put_record(NAMESPACE, TAG, new.as_bytes(), Expect::Absent, None).await {
        Ok(_) => new,
        Err(Failure::Rejected(_)) => {
            let kept = store.record(NAMESPACE, TAG).await?.map(|record| record.value);
            kept.and_then(|value| String::from_utf8(value).ok()).unwrap_or(new)
        }
        Err(Failure::Store(error)) => return Err(error.into()),
    };
    Ok(format!("countersign.{tag}.{server}."))
}

/// A name that nobody guesses.
pub(super) fn random() -> String {
    [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(|uuid| uuid.simple().to_string()).concat()
}

/// Whether a name may be such a one.
pub(super) fn is_random(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl Core {
    /// Gives a client something to go on waiting with.
    pub(super) async fn issue(
        &self,
        request: &Request,
        digest: &ArgumentDigest,
        leg: Leg,
    ) -> Result<String, GateError> {
        let name = random();
        let value = leg.write(&self.binding(request, digest))?;
        let life = Some(limits::LINGER);
        match self.gate.store().put_record(NAMESPACE, &name, &value, Expect::Absent, life).await {
            Ok(_) => Ok(format!("{}{name}", self.states)),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Takes a state back. None where it is forged, used before, too old, or of another wait.
    pub(super) async fn redeem(
        &self,
        state: &str,
        request: &Request,
        digest: &ArgumentDigest,
    ) -> Result<Option<Leg>, GateError> {
        let Some(name) = state.strip_prefix(&*self.states).filter(|name| is_random(name)) else { return Ok(None) };
        let store = self.gate.store();
        let Some(record) = store.record(NAMESPACE, name).await? else { return Ok(None) };
        let Some(leg) = Leg::read(&record.value, &self.binding(request, digest)) else { return Ok(None) };
        // Whoever removes the record has used the state.
        match store.delete_record(NAMESPACE, name, Expect::Version(record.version)).await {
            Ok(()) => Ok(Some(leg)),
            Err(Failure::Rejected(_)) => Ok(None),
            Err(Failure::Store(error)) => Err(error.into()),
        }
    }

    /// What a state is good for. The digest covers server, tool and arguments; the names are for whoever reads records.
    fn binding(&self, request: &Request, digest: &ArgumentDigest) -> String {
        format!("{}/{}/{digest}/{}", self.server, self.path.principal, request.name)
    }
}
