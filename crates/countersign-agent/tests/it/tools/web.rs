//! Fetching and searching the web.

use std::net::IpAddr;

use countersign::config::Secret;
use countersign_agent::limits;
use countersign_agent::tools::{FetchUrl, Reach, WebSearch};
use serde_json::json;

use super::World;
use super::server::{Server, ok, redirect, status};

fn loopback() -> FetchUrl {
    FetchUrl::new(Reach::PublicAnd([IpAddr::from([127, 0, 0, 1])].into()))
}

#[tokio::test]
async fn a_page_is_fetched_as_text() {
    let world = World::new();
    let server = Server::start(ok("text/html; charset=utf-8", "<p>Hello <b>you</b></p><script>x</script>")).await;
    let page = world.answer(&loopback(), json!({ "url": server.url("/a?b=c#d") })).await;
    assert_eq!((page["content"].as_str(), page["more"].as_bool()), (Some("Hello you\n"), Some(false)));
    let request = server.requests.lock().unwrap()[0].to_lowercase();
    assert!(request.starts_with("get /a?b=c http/1.1"), "{request}");
    for header in ["authorization", "cookie", "referer"] {
        assert!(!request.contains(header), "{request}");
    }
}

#[tokio::test]
async fn an_endless_answer_is_cut() {
    let world = World::new();
    let server = Server::start(ok("text/plain", &"x".repeat(limits::FETCH_BYTES + 1))).await;
    let page = world.answer(&loopback(), json!({ "url": server.url("/") })).await;
    assert_eq!(page["content"].as_str().unwrap().len(), limits::RESULT_BYTES);
    assert_eq!(page["more"], true);
}

#[tokio::test]
async fn what_is_no_text_or_no_success_is_an_error() {
    let world = World::new();
    let server = Server::start(ok("image/png", "x")).await;
    assert!(world.failure(&loopback(), json!({ "url": server.url("/") })).await.contains("`image/png`"));
    let server = Server::start(status("404 Not Found", "")).await;
    assert!(world.failure(&loopback(), json!({ "url": server.url("/") })).await.contains("404"));
}

#[tokio::test]
async fn addresses_that_are_not_public_are_never_connected_to() {
    super::server::install_tls();
    let world = World::new();
    let server = Server::start(ok("text/plain", "inside")).await;
    let port = server.address.port();
    let hosts = ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "0", "[::1]", "[::ffff:127.0.0.1]", "localhost"];
    let others = ["10.0.0.1", "169.254.169.254", "[fd00:ec2::254]", "100.64.0.1", "[fe80::1]"];
    for host in hosts.into_iter().chain(others) {
        let url = format!("http://{host}:{port}/");
        let error = world.failure(&FetchUrl::new(Reach::Public), json!({ "url": url })).await;
        assert!(error.contains("is not public"), "{host}: {error}");
    }
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn a_redirect_is_checked_like_any_address() {
    let world = World::new();
    let inside = Server::at([127, 0, 0, 2].into(), ok("text/plain", "inside")).await;
    let named = format!("http://localhost:{}/", inside.address.port());
    let forbidden = FetchUrl::new(Reach::PublicAnd([IpAddr::from([127, 0, 0, 3])].into()));
    for target in [inside.url("/"), named, "file:///etc/passwd".to_owned(), "http://u:p@127.0.0.3/".to_owned()] {
        let first = Server::at([127, 0, 0, 3].into(), redirect(&target)).await;
        let error = world.failure(&forbidden, json!({ "url": first.url("/") })).await;
        assert!(["not public", "neither http", "user name"].iter().any(|why| error.contains(why)), "{error}");
        assert_eq!(first.count(), 1);
    }
    assert_eq!(inside.count(), 0);
    let target = Server::start(ok("text/plain", "there")).await;
    let first = Server::start(redirect(&target.url("/next"))).await;
    assert_eq!(world.answer(&loopback(), json!({ "url": first.url("/") })).await["content"], "there");
}

#[tokio::test]
async fn redirects_end() {
    let world = World::new();
    let server = Server::start(redirect("/again")).await;
    let error = world.failure(&loopback(), json!({ "url": server.url("/") })).await;
    assert!(error.contains("more than 5 redirects"), "{error}");
    assert_eq!(server.count(), limits::FETCH_REDIRECTS + 1);
}

#[tokio::test]
async fn only_plain_web_addresses_are_taken() {
    let world = World::new();
    for url in ["file:///etc/passwd", "ftp://x/", "http://user:pass@example.com/", "javascript:1", "no url", "http://"]
    {
        world.failure(&FetchUrl::new(Reach::Public), json!({ "url": url })).await;
    }
}

#[tokio::test]
async fn a_search_asks_the_configured_service() {
    let world = World::new();
    let body = json!({ "results": [{ "title": "T", "url": "https://x", "snippet": "S", "score": 1 }], "took": 3 });
    let server = Server::start(ok("application/json", &body.to_string())).await;
    let search = WebSearch::new(&server.url("/search"), Some(Secret::new("key-123456"))).unwrap();
    let found = world.answer(&search, json!({ "query": "rust" })).await;
    assert_eq!(found, json!({ "results": [{ "title": "T", "url": "https://x", "snippet": "S" }] }));
    let request = server.requests.lock().unwrap()[0].clone();
    assert!(request.contains("Bearer key-123456") || request.contains("bearer key-123456"), "{request}");
    assert!(request.ends_with(r#"{"count":10,"query":"rust"}"#), "{request}");
    assert!(WebSearch::new("ftp://x", None).is_err());
}
