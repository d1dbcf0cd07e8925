//! What a gate notes about tools as it meets them: their definitions, and when people first see them.
//!
//! The first is for whoever checks an edit elsewhere. The second is one small record for each tool of each principal,
//! written when people are first asked about it: the answer takes one reading by key, however long the log is.

use sha2::{Digest as _, Sha256};

use crate::call::{Call, Facts};
use crate::digest::push_hex;
use crate::gate::GateError;
use crate::gate::local::{DEFINITIONS, Local};
use crate::json::write_string;
use crate::limits;
use crate::looks;
use crate::store::{Expect, Store as _};
use crate::tool::Definition;

/// Where the first call of each tool is kept among the store's records.
const FIRST_CALLS: &str = "first-calls";

impl Local {
    /// Writes a definition down where other processes find it.
    pub(crate) async fn write_down(&self, definition: &Definition) -> Result<(), GateError> {
        let digest = definition.digest();
        if self.known.lock().is_ok_and(|known| known.contains(&digest)) {
            return Ok(());
        }
        let text = serde_json::to_vec(definition).map_err(|error| GateError::BadInput(error.to_string()))?;
        self.store.put_record(DEFINITIONS, &digest.to_string(), &text, Expect::Any, None).await?;
        if let Ok(mut known) = self.known.lock() {
            known.insert(digest);
        }
        Ok(())
    }

    /// Notes that people are asked about this tool of this principal.
    ///
    /// The call itself is durable by now. Where the note is lost, by an error or by our end, the next call counts as
    /// the first: a warning too many, never one too few.
    pub(crate) async fn note_tool(&self, call: &Call) {
        if call.open_hold().is_none() {
            return;
        }
        let key = key(&call.facts);
        if self.noted.lock().is_ok_and(|noted| noted.contains(&key)) {
            return;
        }
        let id = call.id.to_string();
        // A conflict is an earlier call.
        let _ = self.store.put_record(FIRST_CALLS, &key, id.as_bytes(), Expect::Absent, None).await;
        // Where this is lost, the next process that meets the tool notes it.
        let _ = Box::pin(looks::note(&*self.store, &call.facts.tool)).await;
        if let Ok(mut noted) = self.noted.lock()
            && noted.len() < limits::NOTED_TOOLS
        {
            noted.insert(key);
        }
    }

    pub(crate) async fn is_first(&self, call: &Call) -> Result<bool, GateError> {
        if call.holds.iter().all(|hold| hold.in_run()) {
            return Ok(false);
        }
        let first = self.store.record(FIRST_CALLS, &key(&call.facts)).await?;
        Ok(first.is_none_or(|first| first.value == call.id.to_string().as_bytes()))
    }
}

/// A key of one length, whatever the names are.
fn key(facts: &Facts) -> String {
    let mut text = String::new();
    write_string(&mut text, &facts.path.principal);
    if let Some(server) = &facts.tool.server {
        write_string(&mut text, server);
    }
    // Between the two, so that a local tool is never mistaken for a server's.
    text.push('/');
    write_string(&mut text, &facts.tool.name);
    let mut key = String::with_capacity(64);
    push_hex(&mut key, &Sha256::digest(text.as_bytes()));
    key
}
