//! The web app, as the embedder hands it in.

use std::borrow::Cow;

use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use countersign_api::wire::Code;

use crate::app::App;
use crate::dialects::is_for_programs;
use crate::problem::Refused;

/// A file of the web app: its bytes and its media type.
pub type Asset = (Cow<'static, [u8]>, Cow<'static, str>);

/// The files of the web app.
#[derive(Clone, Copy, Debug)]
pub struct Ui {
    asset: fn(&str) -> Option<Asset>,
}

impl Ui {
    /// Files by their path without the leading `/`; `index.html` is the page itself.
    pub fn new(asset: fn(&str) -> Option<Asset>) -> Ui {
        Ui { asset }
    }

    /// A page that says how to get the web app.
    pub fn placeholder() -> Ui {
        Ui::new(|path| match path {
            "index.html" => Some((Cow::Borrowed(PLACEHOLDER.as_bytes()), Cow::Borrowed("text/html; charset=utf-8"))),
            _ => None,
        })
    }
}

const PLACEHOLDER: &str = include_str!("placeholder.html");
/// Files whose names change with their content.
const HASHED: &str = "assets/";

/// Serves a file, or the page itself: the app knows its own addresses. What is for programs is never a page.
pub(crate) async fn serve(State(app): State<App>, uri: Uri) -> Response {
    if is_for_programs(uri.path()) {
        return Refused::not_found().into_response();
    }
    let path = uri.path().trim_start_matches('/');
    let found = (app.ui.asset)(path).filter(|_| path != "index.html");
    let cache =
        if found.is_some() && path.starts_with(HASHED) { "private, max-age=31536000, immutable" } else { "no-store" };
    // A missing file is missing: a page in place of a script would only confuse.
    let is_page = !path.starts_with(HASHED);
    match found.or_else(|| (app.ui.asset)("index.html").filter(|_| is_page)) {
        Some((bytes, kind)) => {
            let headers = [(header::CONTENT_TYPE, kind.into_owned()), (header::CACHE_CONTROL, cache.to_owned())];
            (StatusCode::OK, headers, bytes).into_response()
        }
        None => Refused::new(Code::NotFound).into_response(),
    }
}
