//! stub
use crate::json::Json;
use std::borrow::Cow;
/// x
pub struct Redactor;
impl Redactor {
    /// x
    pub fn standard() -> Redactor {
        Redactor
    }
    /// x
    pub fn arguments(&self, _a: &Json, _s: Option<&Json>) -> Option<Json> {
        None
    }
    /// x
    pub fn text<'a>(&self, t: &'a str) -> Cow<'a, str> {
        t.into()
    }
}
