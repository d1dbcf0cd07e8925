//! Puts on the record that somebody tried what they may not. A flood of tries does not fill it.

use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, Uri, header};
use countersign::call::Chain;
use countersign::event::{Draft, EventName};
use countersign::limits as core_limits;
use countersign::store::Op;
use countersign_api::wire::Code;

use crate::app::App;
use crate::auth::{Principal, names};
use crate::serve::Peer;

/// A request as it is recorded if nobody of ours sent it.
pub(crate) struct Stranger {
    method: Method,
    uri: Uri,
    origin: Option<String>,
    peer: Option<Peer>,
}

impl Stranger {
    /// Whoever sent this request, for as long as nothing else is known.
    pub(crate) fn of(request: &axum::extract::Request) -> Stranger {
        let peer = request.extensions().get::<ConnectInfo<Peer>>().map(|peer| peer.0.clone());
        let (method, uri) = (request.method().clone(), request.uri().clone());
        Stranger { method, uri, origin: origin(request.headers()), peer }
    }

    /// Records why they were sent away, if it was for what they are and not for what they asked.
    pub(crate) async fn sent_away(self, app: &App, why: Option<Code>) {
        let Some(code) = why.filter(|code| is_of_strangers(*code)) else { return };
        let address = self.peer.as_ref().map(|peer| peer.0.peer.ip());
        if !app.rates.may_note_stranger(address, code) {
            return;
        }
        let mut draft = drafted(&self.method, self.uri.path()).text("why", code.as_str());
        if let Some(address) = address {
            draft = draft.text("address", &address.to_string());
        }
        if let Some(origin) = &self.origin {
            draft = draft.text("origin", origin);
        }
        record(app, draft).await;
    }
}

/// What a hostile page or somebody without a credential is told.
fn is_of_strangers(code: Code) -> bool {
    matches!(code, Code::WrongHost | Code::WrongOrigin | Code::WrongCsrf | Code::NotJson | Code::Unauthenticated)
}

/// Records that a credential tried what it may not, by whatever surface.
pub(crate) async fn note(app: &App, principal: &Principal, method: &Method, path: &str) {
    if !app.rates.may_note(principal) {
        return;
    }
    let draft = drafted(method, path).text("who", &principal.name).text("roles", &names(&principal.roles));
    record(app, draft).await;
}

fn drafted(method: &Method, path: &str) -> Draft {
    Draft::new(EventName::AccessRefused).text("method", &head(method.as_str())).text("path", &head(path))
}

async fn record(app: &App, draft: Draft) {
    if let Err(error) = app.store().run(Op::Note { chain: Chain::system(), draft }).await {
        tracing::warn!(%error, "a refused access could not be recorded");
    }
}

fn origin(headers: &HeaderMap) -> Option<String> {
    headers.get(header::ORIGIN).map(|origin| head(&String::from_utf8_lossy(origin.as_bytes())))
}

fn head(text: &str) -> String {
    text.chars().take(core_limits::NAME_BYTES).collect()
}
