//! What a hostile page, a hostile name in the DNS, or a careless program may try.

use countersign::event::{Cursor, EventName};
use countersign::store::EventFilter;
use countersign_server::limits;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HOST, ORIGIN};
use serde_json::{Value, json};

use crate::people::Browser;
use crate::stage::{Stage, read};

/// Only the exact Host with its port is answered, whatever the route.
#[tokio::test]
async fn only_exact_hosts() {
    let stage = Stage::new().await;
    let ann = stage.ann().await;
    let port = stage.host().rsplit(':').next().unwrap().to_owned();
    for name in ["127.0.0.1", "localhost", "[::1]"] {
        let request = ann.request(Method::GET, "/v1/me").header(HOST, format!("{name}:{port}"));
        read(request.send().await.unwrap()).await.expect(200);
    }
    let mut foreign = vec![
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        "127.0.0.1".to_owned(),
        "localhost".to_owned(),
        format!("localhost.:{port}"),
        format!("LOCALHOST:{port}"),
        format!("127.0.0.1.evil.example:{port}"),
        format!("0.0.0.0:{port}"),
        format!("127.1:{port}"),
        format!("localhost:{port}0"),
        format!("ann@localhost:{port}"),
        String::new(),
    ];
    foreign.extend(disguised(&port));
    assert!(foreign.len() > 300, "{}", foreign.len());
    for (n, host) in foreign.iter().enumerate() {
        let path = ["/v1/me", "/", "/healthz", "/v1/events"][n % 4];
        let request = ann.request(Method::GET, path).header(HOST, host);
        read(request.send().await.unwrap()).await.problem(403, "wrong_host");
    }
    let recorded = refusals(&stage, "wrong_host").await;
    assert_eq!(recorded.len(), limits::REFUSALS_NOTED as usize, "it is on the record, and a flood does not fill it");
    assert_eq!((&recorded[0]["address"], &recorded[0]["path"]), (&json!("127.0.0.1"), &json!("/v1/me")));
}

/// Our own hosts with something before, after or within them, that some parser somewhere takes for ours.
fn disguised(port: &str) -> Vec<String> {
    let mut hosts = Vec::new();
    for name in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "LocalHost", "0x7f000001", "2130706433"] {
        for before in ["", "ann@", "ann:pw@", "http://", "//", ".", "www.", "evil.example,", "evil.example ", "%20"] {
            for after in ["", ".", "/", "#", "?", ",", ";", "@evil.example", ".evil.example", "%00", "\\"] {
                for port in ["", ":", ":0", &format!(":{port}"), &format!(":0{port}"), &format!(":{port}0")] {
                    hosts.push(format!("{before}{name}{after}{port}"));
                    hosts.push(format!("{before}{name}{port}{after}"));
                }
            }
        }
    }
    let ours = ["127.0.0.1", "localhost", "[::1]"].map(|name| format!("{name}:{port}"));
    hosts.sort();
    hosts.dedup();
    hosts.retain(|host| !ours.contains(host));
    // One in seven is enough of a crowd; seven divides none of the numbers above.
    hosts.into_iter().step_by(7).collect()
}

/// What is on the record about those who were sent away for this.
pub(crate) async fn refusals(stage: &Stage, why: &str) -> Vec<Value> {
    let log = stage.gate.store().events(Cursor::default(), EventFilter::default()).await.unwrap();
    let refused = log.iter().filter(|event| event.name == EventName::AccessRefused);
    let bodies = refused.map(|event| serde_json::from_str::<Value>(&event.body).unwrap());
    bodies.filter(|body| body["why"] == why).collect()
}

/// A page of another origin changes and reads nothing, though the browser sends the cookie along.
#[tokio::test]
async fn cross_site_changes_nothing() {
    let stage = Stage::new().await;
    let browser = Browser::sign_in(&stage, "os:ann").await;
    let port = stage.host().rsplit(':').next().unwrap();
    let halt = |browser: &Browser| browser.request(Method::POST, "/v1/halt").json(&json!({}));
    for origin in ["https://evil.example", "null", &format!("http://localhost:{port}.evil.example"), "http://localhost"]
    {
        read(halt(&browser).header(ORIGIN, origin).send().await.unwrap()).await.problem(403, "wrong_origin");
        let read_it = browser.request(Method::GET, "/v1/me").header(ORIGIN, origin);
        read(read_it.send().await.unwrap()).await.problem(403, "wrong_origin");
    }
    for site in ["cross-site", "same-site"] {
        read(halt(&browser).header("sec-fetch-site", site).send().await.unwrap()).await.problem(403, "wrong_origin");
    }
    // Forms can send these; none of them is taken.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let request = browser.request(Method::POST, "/v1/halt").header(CONTENT_TYPE, kind).body("{}");
        read(request.send().await.unwrap()).await.problem(415, "not_json");
    }
    read(browser.bare(Method::POST, "/v1/halt").json(&json!({})).send().await.unwrap())
        .await
        .problem(403, "wrong_csrf");
    let wrong = browser.bare(Method::POST, "/v1/halt").header("x-countersign-csrf", "guess").json(&json!({}));
    read(wrong.send().await.unwrap()).await.problem(403, "wrong_csrf");
    assert_eq!(browser.get("/v1/me").await.expect(200)["halted"], false);
    for (why, times) in [("wrong_origin", 10), ("not_json", 3), ("wrong_csrf", 2)] {
        assert_eq!(refusals(&stage, why).await.len(), times, "{why}");
    }
    assert_eq!(refusals(&stage, "wrong_origin").await[0]["origin"], "https://evil.example");

    let ours = halt(&browser).header(ORIGIN, &stage.url).header("sec-fetch-site", "same-origin");
    read(ours.send().await.unwrap()).await.expect(200);
    assert_eq!(browser.get("/v1/me").await.expect(200)["halted"], true);
}

/// No answer says that another origin may read it.
#[tokio::test]
async fn headers_on_every_route() {
    let stage = Stage::new().await;
    let ann = stage.ann().await;
    for (client, path) in [(&ann, "/v1/me"), (&ann, "/"), (&stage.nobody(), "/v1/me"), (&ann, "/v1/nothing")] {
        let headers = client.get(path).await.headers;
        let policy = headers["content-security-policy"].to_str().unwrap();
        for part in
            ["default-src 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "base-uri 'none'"]
        {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["referrer-policy"], "no-referrer");
        assert_eq!(headers["cross-origin-opener-policy"], "same-origin");
        assert_eq!(headers["cross-origin-resource-policy"], "same-origin");
        assert_eq!(headers["cache-control"], "no-store");
        assert!(!headers.contains_key("access-control-allow-origin"));
    }
    let preflight = stage.nobody().request(Method::OPTIONS, "/v1/halt").header(ORIGIN, "https://evil.example");
    assert_eq!(preflight.send().await.unwrap().status(), 403);
}

/// Larger than may be is refused before it is read.
#[tokio::test]
async fn oversize_is_refused() {
    let stage = Stage::new().await;
    let agent = stage.agent().await;
    let body = format!(r#"{{"tool": "write_file", "arguments": {{"text": "{}"}}}}"#, "x".repeat(2 << 20));
    let request = agent.request(Method::POST, "/v1/calls").header(CONTENT_TYPE, "application/json").body(body);
    read(request.send().await.unwrap()).await.problem(413, "too_large");
    let deep = format!(r#"{{"tool": "write_file", "arguments": {}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let request = agent.request(Method::POST, "/v1/calls").header(CONTENT_TYPE, "application/json").body(deep);
    let call = read(request.send().await.unwrap()).await.expect(200);
    assert_eq!(call["refusal"]["kind"], "invalid_arguments");
}

/// Guessing credentials is told to wait; who has a good one is not kept waiting by it.
#[tokio::test]
async fn guessing_hits_nothing() {
    let stage = Stage::new().await;
    let ann = stage.ann().await;
    let guess = stage.nobody().token("cs_approver_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let mut answers = Vec::new();
    for _ in 0..8 {
        answers.push(guess.get("/v1/holds").await);
    }
    let last = answers.pop().unwrap();
    answers.into_iter().next().unwrap().problem(401, "unauthenticated");
    assert!(last.headers.contains_key("retry-after"));
    last.problem(429, "limit");
    assert_eq!(refusals(&stage, "unauthenticated").await.len(), limits::FAILURES_PER_MINUTE as usize);
    ann.get("/v1/holds").await.expect(200);
}

/// A flood of one agent is cut; another's calls are taken.
#[tokio::test]
async fn a_flood_is_told_to_wait() {
    let stage = Stage::new().await;
    let (bot, other) = (stage.agent().await, stage.with(countersign_api::wire::Role::Agent, "other").await);
    let mut limited = None;
    for n in 0..2_000 {
        let answered = bot.submit("read_file", json!({ "n": n })).await;
        if answered.status == 429 {
            limited = Some(answered);
            break;
        }
    }
    limited.expect("nobody was told to wait").problem(429, "limit");
    other.submit("read_file", json!({})).await.expect(200);
}
