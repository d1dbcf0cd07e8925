//! What every request must be before anything looks at it: for this host, from no foreign page, and JSON.

use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use countersign_api::wire::Code;

use crate::app::App;
use crate::dialects::is_for_programs;
use crate::problem::Refused;

/// Refuses what no page of ours and no program of a user would send.
pub(crate) fn check(app: &App, request: &Request) -> Result<(), Refused> {
    let headers = request.headers();
    if !app.hosts.iter().any(|host| Some(host.as_str()) == host_of(request)) {
        return Err(Refused::new(Code::WrongHost));
    }
    for origin in headers.get_all(header::ORIGIN) {
        if !app.origins().any(|ours| origin.as_bytes() == ours.as_bytes()) {
            return Err(Refused::new(Code::WrongOrigin));
        }
    }
    let is_api = is_for_programs(request.uri().path());
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    // A link to our page may stand anywhere; our data is for our page alone.
    let foreign = sent(headers, "sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"));
    if foreign && (is_api || !reads) {
        return Err(Refused::new(Code::WrongOrigin));
    }
    // A form can send neither JSON nor DELETE: another page cannot make a change without asking us first, and we never
    // say yes.
    let bare = *request.method() == Method::DELETE && !headers.contains_key(header::CONTENT_TYPE);
    if !reads && is_api && !bare && !is_json(headers) {
        return Err(Refused::new(Code::NotJson));
    }
    Ok(())
}

/// The one Host of a request. One without, or with several, is for nobody.
fn host_of(request: &Request) -> Option<&str> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next(), request.uri().authority()) {
        (Some(host), None, None) => host.to_str().ok(),
        (None, None, Some(authority)) => Some(authority.as_str()),
        (Some(host), None, Some(authority)) => host.to_str().ok().filter(|host| *host == authority.as_str()),
        _ => None,
    }
}

fn sent<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("unreadable"))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = sent(headers, "content-type").unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}
