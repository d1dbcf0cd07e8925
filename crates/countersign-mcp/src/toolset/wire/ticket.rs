//! A call on its way: the approved bytes, and whether they have left us.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use countersign::Json;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

const WAITING: u8 = 0;
const SENT: u8 = 1;
const WITHDRAWN: u8 = 2;

/// Travels with a `tools/call` to the place where bytes are written.
///
/// INVARIANT: a call is either sent or withdrawn, never both. Whoever gives up on a call withdraws it, and learns by
/// that whether the server may have seen it; what is withdrawn is never written.
#[derive(Clone)]
pub(crate) struct Ticket {
    arguments: Json,
    state: Arc<AtomicU8>,
}

impl Ticket {
    pub(crate) fn new(arguments: Json) -> Ticket {
        Ticket { arguments, state: Arc::new(AtomicU8::new(WAITING)) }
    }

    /// Takes the call for sending, right before the first byte. False if it was withdrawn or taken before.
    pub(crate) fn take(&self) -> bool {
        self.state.compare_exchange(WAITING, SENT, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Gives up on the call. True if the server has not seen it, and never will.
    pub(crate) fn withdraw(&self) -> bool {
        match self.state.compare_exchange(WAITING, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(state) => state == WITHDRAWN,
        }
    }

    /// Says that the server did not take what was sent: it was not reached, or it refused to look at it.
    pub(crate) fn came_back(&self) {
        self.state.store(WITHDRAWN, Ordering::Release);
    }
}

/// The ticket of a message that is a call of ours.
pub(crate) fn ticket_of(message: &ClientJsonRpcMessage) -> Option<&Ticket> {
    match message {
        ClientJsonRpcMessage::Request(request) => match &request.request {
            ClientRequest::CallToolRequest(call) => call.extensions.get::<Ticket>(),
            _ => None,
        },
        _ => None,
    }
}

/// A message as it is sent. The arguments of a call are the approved bytes, not a second spelling of them.
pub(crate) fn encode(message: &ClientJsonRpcMessage) -> Result<Vec<u8>, serde_json::Error> {
    let Some(ticket) = ticket_of(message) else { return serde_json::to_vec(message) };
    let mut value = serde_json::to_value(message)?;
    let mut params = BTreeMap::new();
    if let Some(Value::Object(members)) = value.get_mut("params").map(Value::take) {
        for (key, member) in members {
            params.insert(key, to_raw_value(&member)?);
        }
    }
    params.insert("arguments".to_owned(), RawValue::from_string(ticket.arguments.as_str().to_owned())?);
    serde_json::to_vec(&Envelope { jsonrpc: "2.0", id: value.get("id"), method: value.get("method"), params })
}

#[derive(Serialize)]
struct Envelope<'a> {
    jsonrpc: &'static str,
    id: Option<&'a Value>,
    method: Option<&'a Value>,
    params: BTreeMap<String, Box<RawValue>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign::json::Bounds;
    use rmcp::model::{CallToolRequest, CallToolRequestParams, RequestId};

    fn call(arguments: &str) -> (ClientJsonRpcMessage, Ticket) {
        let arguments = Json::ingest(arguments, Bounds::PAYLOAD).unwrap();
        let ticket = Ticket::new(arguments.clone());
        let params = CallToolRequestParams::new("pay").with_arguments(arguments.read().unwrap());
        let mut request = CallToolRequest::new(params);
        request.extensions.insert(ticket.clone());
        (ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::Number(7)), ticket)
    }

    /// Typed JSON would make 9007199254740993.0, 1.10 and a 30-digit account something else.
    #[test]
    fn the_approved_spelling_of_numbers_is_what_is_sent() {
        let arguments = r#"{"account":123456789012345678901234567890,"amount":1.10,"rate":1e2}"#;
        let sent = String::from_utf8(encode(&call(arguments).0).unwrap()).unwrap();
        assert!(sent.contains(&format!(r#""arguments":{arguments}"#)), "{sent}");
        let read: Value = serde_json::from_str(&sent).unwrap();
        assert_eq!(
            (&read["id"], &read["method"], &read["params"]["name"]),
            (&7.into(), &"tools/call".into(), &"pay".into())
        );
    }

    #[test]
    fn a_call_is_either_sent_or_withdrawn() {
        let (_, ticket) = call("{}");
        assert!(ticket.withdraw());
        assert!(!ticket.take(), "what is withdrawn is not sent");
        let (_, ticket) = call("{}");
        assert!(ticket.take());
        assert!(!ticket.withdraw(), "what is sent is not withdrawn");
        ticket.came_back();
        assert!(ticket.withdraw());
    }
}
