//! What a client can do for its user while a call waits.

use serde_json::value::RawValue;

use super::message::{Envelope, pick};

/// The `_meta` key by which requests of the newer era say what their client can do.
pub(crate) const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

/// The `_meta` key by which requests of the newer era say who their client is.
pub(crate) const CLIENT_KEY: &str = "io.modelcontextprotocol/clientInfo";

/// The extension by which a call becomes a task.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// What a client says that it can do. What it does not say plainly, it cannot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Able {
    /// Put a form before its user.
    pub(crate) forms: bool,
    /// Offer its user an address to open.
    pub(crate) links: bool,
    /// Ask for the outcome of a call later, under a name that it is given.
    pub(crate) tasks: bool,
}

impl Able {
    /// Reads what a client declares when it shakes hands.
    pub(crate) fn greeted(envelope: &Envelope<'_>) -> Able {
        let declared =
            envelope.params.and_then(|params| pick(params.get(), ["capabilities"]).ok()?.into_iter().next()?);
        declared.map_or_else(Able::default, Able::read)
    }

    /// Reads what a request of the newer era declares in its `_meta`.
    pub(crate) fn declared(meta: &RawValue) -> Able {
        let declared = pick(meta.get(), [CAPABILITIES_KEY]).ok().and_then(|[declared]| declared);
        declared.map_or_else(Able::default, Able::read)
    }

    /// Whether a client that declares this in its `_meta` can be asked anything by a server.
    pub(crate) fn is_askable(meta: &RawValue) -> bool {
        let declared = pick(meta.get(), [CAPABILITIES_KEY]).ok().and_then(|[declared]| declared);
        let ways = declared.map(|declared| pick(declared.get(), ["elicitation", "sampling", "roots"]));
        ways.is_some_and(|ways| ways.is_ok_and(|ways| ways.iter().any(Option::is_some)))
    }

    fn read(capabilities: &RawValue) -> Able {
        let declared = pick(capabilities.get(), ["elicitation", "extensions"]).ok();
        let Some([elicitation, extensions]) = declared else { return Able::default() };
        let extension = extensions.and_then(|extensions| pick(extensions.get(), [TASKS]).ok());
        let tasks = matches!(extension, Some([Some(_)]));
        let modes = elicitation.and_then(|elicitation| pick(elicitation.get(), ["form", "url"]).ok());
        let Some([form, url]) = modes else { return Able { tasks, ..Able::default() } };
        // One that names no way at all knows only forms: there was nothing else before.
        Able { forms: form.is_some() || url.is_none(), links: url.is_some(), tasks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_can_do_only_what_it_says_plainly() {
        let able = |capabilities: &str| {
            let hello = format!(r#"{{"id":1,"method":"initialize","params":{{"capabilities":{capabilities}}}}}"#);
            let greeted = Able::greeted(&Envelope::read(&hello).unwrap());
            let meta = RawValue::from_string(format!(r#"{{"{CAPABILITIES_KEY}":{capabilities}}}"#)).unwrap();
            assert_eq!(greeted, Able::declared(&meta));
            (greeted.forms, greeted.links)
        };
        assert_eq!(able("{}"), (false, false));
        assert_eq!(able(r#"{"elicitation":{}}"#), (true, false));
        assert_eq!(able(r#"{"elicitation":{"form":{}}}"#), (true, false));
        assert_eq!(able(r#"{"elicitation":{"url":{}}}"#), (false, true));
        assert_eq!(able(r#"{"elicitation":{"url":{},"form":{}}}"#), (true, true));
        assert_eq!(able(r#"{"elicitation":true}"#), (false, false));
        assert_eq!(able(r#"{"elicitation":{"url":{},"url":{}}}"#), (false, false));
        assert_eq!(able(r#"{"Elicitation":{"url":{}}}"#), (false, false));
        assert_eq!(able("[]"), (false, false));
        let meta = |extensions: &str| format!(r#"{{"{CAPABILITIES_KEY}":{{"extensions":{extensions}}}}}"#);
        let tasks = |extensions: &str| Able::declared(&RawValue::from_string(meta(extensions)).unwrap()).tasks;
        assert!(tasks(r#"{"io.modelcontextprotocol/tasks":{}}"#) && !tasks(r#"{"other":{}}"#) && !tasks("7"));
    }
}
