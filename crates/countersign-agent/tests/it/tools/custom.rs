//! Tools from the configuration: programs, HTTP requests, and tools that a client runs.

use std::sync::Arc;

use countersign::Tool;
use countersign::config::Config;
use countersign_agent::tools::{Made, from_config};
use serde_json::json;

use super::World;
use super::server::{Server, ok, status};

fn made(world: &World, run: &str) -> Result<Made, String> {
    let yaml = format!("tools:\n  - name: probe\n    description: Probes.\n    {run}\n");
    let config = Config::from_yaml("test.yml", &yaml, &|_| None).map_err(|error| error.to_string())?;
    from_config(&config.tools[0], &world.work(""), None, None).map_err(|error| error.to_string())
}

fn tool(world: &World, run: &str) -> Arc<dyn Tool> {
    match made(world, run).unwrap() {
        Made::Tool(tool) => tool,
        Made::Client(_) => panic!("it runs at the client"),
    }
}

fn shell(world: &World, script: &str) -> Arc<dyn Tool> {
    let words = json!(["sh", "-c", script]);
    tool(world, &format!("run: {{ command: {words} }}"))
}

fn http(world: &World, description: serde_json::Value) -> Arc<dyn Tool> {
    super::server::install_tls();
    tool(world, &format!("http: {description}"))
}

#[tokio::test]
async fn a_program_gets_the_approved_bytes_and_answers() {
    let world = World::new();
    let echoed = world.answer(&*shell(&world, "cat"), json!({ "b": 1, "a": "x" })).await;
    assert_eq!(echoed, json!({ "a": "x", "b": 1 }));
    assert_eq!(world.answer(&*shell(&world, "echo not json"), json!({})).await, json!("not json\n"));
    let bytes = world.answer(&*shell(&world, "wc -c"), json!({ "n": 1.50, "a": 1 })).await;
    assert_eq!(bytes, json!(r#"{"a":1,"n":1.5}"#.len()));
    // A program that does not read its input is not hung up on.
    let unread = world.answer(&*shell(&world, "echo 1"), json!({ "big": "x".repeat(200_000) })).await;
    assert_eq!(unread, json!(1));
}

/// An operator says how long a program may run; what takes longer is killed and in doubt.
#[tokio::test]
async fn a_program_has_the_time_its_operator_gives_it() {
    let world = World::new();
    let slow = tool(&world, "run: { command: [sleep, '1000'], timeout: 1s }");
    let why = world.doubt(&*slow, json!({})).await;
    assert!(why.contains("killed after 1 s"), "{why}");
    for (run, problem) in [
        ("run: { command: [\"true\"], timeout: 11m }", "timeout"),
        ("run: { command: [\"true\"], timeout: never }", "must end"),
        ("run: { client: true, timeout: 1s }", "`timeout` is for a `command`"),
    ] {
        let error = made(&world, run).unwrap_err();
        assert!(error.contains(problem), "{run}: {error}");
    }
}

#[tokio::test]
async fn an_exit_code_is_a_failure_and_a_signal_is_a_doubt() {
    let world = World::new();
    let error = world.failure(&*shell(&world, "echo out; echo bad >&2; exit 4"), json!({})).await;
    assert_eq!(error, "exit code 4: bad");
    assert_eq!(world.doubt(&*shell(&world, "kill -9 $$"), json!({})).await, "signal 9 killed the program");
    let missing = tool(&world, "run: { command: [no-such-program-here] }");
    assert!(world.failure(&*missing, json!({})).await.contains("could not be run"));
    assert!(world.failure(&*shell(&world, "env | grep ^CARGO"), json!({})).await.contains("exit code 1"));
}

#[tokio::test]
async fn a_request_carries_arguments_and_key() {
    let world = World::new();
    let server = Server::start(ok("application/json", r#"{"done":true}"#)).await;
    let tool = http(&world, json!({ "url": server.url("/do"), "headers": { "X-Key": "secret-42" }, "timeout": "5s" }));
    let call = world.call(&*tool, json!({ "b": 2, "a": 1 })).await;
    assert_eq!(call.state, countersign::CallState::Succeeded);
    let request = server.requests.lock().unwrap()[0].clone();
    assert!(request.starts_with("POST /do HTTP/1.1"), "{request}");
    assert!(request.ends_with(r#"{"a":1,"b":2}"#), "{request}");
    assert!(request.contains(&format!("idempotency-key: {}", call.id)), "{request}");
    assert!(request.contains("x-key: secret-42"), "{request}");
}

/// Answered is failed; surely not sent is failed; all else is doubt.
#[tokio::test]
async fn a_request_without_an_answer_is_in_doubt() {
    let world = World::new();
    let at = |server: &Server| http(&world, json!({ "url": server.url("/") }));
    let server = Server::start(status("422 Unprocessable", "no such customer")).await;
    assert!(world.failure(&*at(&server), json!({})).await.ends_with(": no such customer"));
    for answer in [status("500 Internal Server Error", ""), status("503 Service Unavailable", ""), String::new()] {
        world.doubt(&*at(&Server::start(answer).await), json!({})).await;
    }
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
    assert!(world.doubt(&*at(&Server::start(cut).await), json!({})).await.contains("broke off"));
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    world.failure(&*http(&world, json!({ "url": format!("http://{gone}/") })), json!({})).await;
}

#[tokio::test]
async fn a_server_that_is_silent_is_a_doubt() {
    super::server::install_tls();
    let world = World::new();
    // Connections are accepted by the system and never answered.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    world.doubt(&*http(&world, json!({ "url": url, "timeout": "200ms" })), json!({})).await;
}

#[tokio::test]
async fn no_secret_comes_back() {
    let world = World::new();
    let secret = "canary-7171";
    let headers = json!({ "Authorization": format!("Bearer {secret}") });
    for answer in [status("400 Bad Request", &format!("bad token {secret}")), ok("text/plain", secret)] {
        let server = Server::start(answer).await;
        let url = server.url(&format!("/?key={secret}"));
        let call = world.call(&*http(&world, json!({ "url": url, "headers": headers })), json!({})).await;
        assert!(!format!("{:?}", call.outcome).contains(secret), "{:?}", call.outcome);
    }
    let unreachable = json!({ "url": format!("http://127.0.0.1:1/?key={secret}"), "headers": headers });
    let error = world.failure(&*http(&world, unreachable), json!({})).await;
    assert!(!error.contains(secret), "{error}");
    let bad = json!({ "url": "http://x/", "headers": { "X": format!("{secret}\n") } });
    assert!(!made(&world, &format!("http: {bad}")).unwrap_err().contains(secret));
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_when_made() {
    let world = World::new();
    for http in ["{}", "{ url: 'ftp://x' }", "{ url: 'http://x', method: GET }", "{ url: 'http://x', more: 1 }"] {
        assert!(made(&world, &format!("http: {http}")).unwrap_err().contains("`http`"), "{http}");
    }
    for timeout in ["0", "1h", "99999s", "x"] {
        made(&world, &format!("http: {{ url: 'http://x', timeout: {timeout} }}")).unwrap_err();
    }
}

#[tokio::test]
async fn a_client_tool_is_only_a_definition() {
    let world = World::new();
    match made(&world, "client: true").unwrap() {
        Made::Client(definition) => assert_eq!(&*definition.tool.name, "probe"),
        Made::Tool(_) => panic!("it runs here"),
    }
}
