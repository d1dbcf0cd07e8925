//! From the client to the server.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

use super::frame::{Frame, Lines};
use super::message::{Envelope, Id, is_spelling_of, pick, range_of, splice};
use super::request::Request;
use super::words::{self, INVALID_PARAMS, INVALID_REQUEST, NO_METHOD, PARSE_ERROR};
use super::{Core, InHand};
use crate::limits;

impl Core {
    /// Reads what the client says until it closes its end.
    pub(super) async fn read_client(self: &Arc<Self>, input: impl AsyncRead + Unpin) {
        let mut lines = Lines::new(input, limits::CLIENT_MESSAGE_BYTES);
        loop {
            match lines.next().await {
                Ok(Some(Frame::Line(line))) if line.trim().is_empty() => {}
                Ok(Some(Frame::Line(line))) => self.hear_client(line).await,
                Ok(Some(Frame::TooLong)) => {
                    let most = limits::CLIENT_MESSAGE_BYTES;
                    self.answer(words::error(None, INVALID_REQUEST, &format!("a message has over {most} bytes"))).await;
                }
                Ok(Some(Frame::NotText)) => {
                    self.answer(words::error(None, PARSE_ERROR, "a message is not UTF-8")).await;
                }
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Takes one line. Nothing goes on to the server that was not read here.
    async fn hear_client(self: &Arc<Self>, line: String) {
        if line.trim_start().starts_with('[') {
            return self.refuse_batch(&line).await;
        }
        let envelope = match Envelope::read(&line) {
            Ok(envelope) => envelope,
            Err(error) => {
                let code = if error.is_data() { INVALID_REQUEST } else { PARSE_ERROR };
                return self.answer(words::error(None, code, &format!("a message cannot be read: {error}"))).await;
            }
        };
        match envelope.method.as_deref() {
            Some("tools/call") => self.take_call(&line, &envelope).await,
            Some("tools/list") => self.take_listing(&line, &envelope).await,
            Some("notifications/cancelled") => self.take_cancel(&line, &envelope).await,
            Some("notifications/initialized") => {
                self.forward(&line).await;
                self.listing.want();
            }
            Some(method) if is_spelling_of(method.trim(), "tools/call") => {
                let id = envelope.id.and_then(Id::read);
                self.answer(words::error(id.as_ref(), NO_METHOD, "there is no such method; it is `tools/call`")).await;
            }
            Some(_) | None => self.forward(&line).await,
        }
    }

    async fn forward(&self, line: &str) {
        if self.link.send(line).await.is_err() {
            self.note("the server takes no more messages");
        }
    }

    /// Answers the client. One that is gone is noticed where its input ends.
    pub(super) async fn answer(&self, line: String) {
        let _ = self.client.send(&line).await;
    }

    /// Batches belong to one old version of the protocol only, and to no client that we know of.
    async fn refuse_batch(&self, line: &str) {
        let why = "batches are not taken; send one message a line";
        let Ok(entries) = serde_json::from_str::<Vec<&RawValue>>(line) else {
            return self.answer(words::error(None, PARSE_ERROR, "a message cannot be read")).await;
        };
        let ids = entries.iter().filter_map(|entry| pick(entry.get(), ["id"]).ok()?.into_iter().flatten().next());
        let errors: Vec<String> =
            ids.filter_map(Id::read).map(|id| words::error(Some(&id), INVALID_REQUEST, why)).collect();
        match errors.is_empty() {
            true => self.answer(words::error(None, INVALID_REQUEST, why)).await,
            false => self.answer(format!("[{}]", errors.join(","))).await,
        }
    }

    async fn take_call(self: &Arc<Self>, line: &str, envelope: &Envelope<'_>) {
        let request = match Request::read(line, envelope) {
            Ok(request) => request,
            Err(why) => {
                let id = envelope.id.and_then(Id::read);
                return self.answer(words::error(id.as_ref(), INVALID_PARAMS, &why)).await;
            }
        };
        let token = CancellationToken::new();
        if !self.take(&request.id, InHand::Call(token.clone())).await {
            return;
        }
        self.tasks.spawn(Arc::clone(self).attend(request, token));
    }

    async fn take_listing(self: &Arc<Self>, line: &str, envelope: &Envelope<'_>) {
        let Some((raw, id)) = envelope.id.and_then(|raw| Some((raw, Id::read(raw)?))) else {
            return self.answer(words::error(None, INVALID_REQUEST, "an id must be a string or a number")).await;
        };
        let Some(at) = range_of(line, raw.get()) else { return };
        let line = line.to_owned();
        let core = Arc::clone(self);
        self.tasks.spawn(async move {
            let listed = core.relay_listing(&id, |ours| splice(&line, &[(at, ours.0.as_str())])).await;
            core.in_hand().remove(&id);
            if let Some(listed) = listed {
                core.answer(listed).await;
            }
        });
    }

    /// Takes a request in hand; false where that cannot be.
    pub(super) async fn take(&self, id: &Id, what: InHand) -> bool {
        let full = {
            let mut in_hand = self.in_hand();
            if in_hand.contains_key(id) {
                drop(in_hand);
                // An answer would pass for that of the request before, which may well be running.
                self.note("a request was dropped: its id is that of a request in hand");
                return false;
            }
            let full = in_hand.len() >= limits::CALLS;
            if !full {
                in_hand.insert(id.clone(), what);
            }
            full
        };
        if full {
            self.answer(words::error(Some(id), INVALID_REQUEST, "too many requests are in hand")).await;
        }
        !full
    }

    /// A cancelled call detaches; what the server knows under another id is cancelled under that one.
    async fn take_cancel(&self, line: &str, envelope: &Envelope<'_>) {
        let named = envelope.params.and_then(|params| pick(params.get(), ["requestId"]).ok());
        let Some(raw) = named.and_then(|[raw]| raw) else { return self.forward(line).await };
        let renamed = match Id::read(raw).and_then(|id| self.in_hand().remove(&id)) {
            None => return self.forward(line).await,
            Some(InHand::Call(token)) => return token.cancel(),
            Some(InHand::List(ours)) => ours,
        };
        if let Some(line) = range_of(line, raw.get()).and_then(|at| splice(line, &[(at, renamed.0.as_str())])) {
            self.forward(&line).await;
        }
    }
}
