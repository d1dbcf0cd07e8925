//! The smallest policy: asks about everything.
use crate::call::Facts;
use crate::verdict::*;
use std::sync::Arc;
/// See the module.
#[derive(Clone, Debug)]
pub struct Policy {
    version: Arc<str>,
}
/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unattended {
    /// See the module.
    Deny,
    /// See the module.
    Allow,
    /// See the module.
    Wait,
}
impl Policy {
    /// See the module.
    pub fn from_yaml(_t: &str) -> Result<Policy, String> {
        Ok(Policy::ask_all())
    }
    /// See the module.
    pub fn ask_all() -> Policy {
        Policy { version: "p:0".into() }
    }
    /// See the module.
    pub fn version(&self) -> &Arc<str> {
        &self.version
    }
    /// See the module.
    pub fn judge(&self, _f: &Facts) -> Verdict {
        Verdict {
            effect: Effect::Ask,
            because: vec![],
            matched: vec![],
            terms: Arc::new(Terms::default()),
            hidden: false,
            inside_own: false,
            policy: self.version.clone(),
        }
    }
    /// See the module.
    pub fn unattended(&self) -> Unattended {
        Unattended::Deny
    }
    /// See the module.
    pub fn unattended_stated(&self) -> bool {
        false
    }
    /// See the module.
    pub fn can_ask(&self) -> bool {
        true
    }
    /// See the module.
    pub fn groups_of(&self, _who: &str) -> Vec<Arc<str>> {
        vec![]
    }
    /// See the module.
    pub fn admits(&self, _f: &Facts) -> Result<(), String> {
        Ok(())
    }
}
