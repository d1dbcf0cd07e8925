//! What a client reads is byte for byte the same through the gateway: reference servers, and one with the names that the
//! official conformance suite wants.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::bed::read;
use crate::gateway_peer::Peer;
use crate::gateway_real::{Files, reference};

fn request(id: u64, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// The answers to these requests, as they came; what a server says in between is left out.
fn answers(mut peer: Peer, requests: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for (id, request) in requests.iter().enumerate() {
        peer.send(request);
        found.push(loop {
            let line = peer.line();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id && message.get("method").is_none() {
                break line;
            }
        });
    }
    found
}

fn same_bytes(direct: Command, through: Command, requests: &[String]) {
    let (direct, through) = (answers(Peer::start(direct), requests), answers(Peer::start(through), requests));
    for (direct, through) in direct.iter().zip(&through) {
        assert_eq!(direct, through);
    }
    assert!(through.iter().all(|answer| answer.contains("\"result\":")), "{through:#?}");
}

#[test]
fn the_everything_server_reads_the_same_through_the_gateway() {
    let files = Files::new("{ preset: allow-all }");
    let server = reference("server-everything", "stdio");
    let gateway: Vec<String> =
        files.gateway().into_iter().take_while(|word| word != "node").chain(server.clone()).collect();
    let call =
        |id, name: &str, arguments: Value| request(id, "tools/call", &json!({"name": name, "arguments": arguments}));
    let requests = [
        request(0, "tools/list", &json!({})),
        request(1, "resources/templates/list", &json!({})),
        request(2, "prompts/list", &json!({})),
        request(3, "prompts/get", &json!({"name": "simple-prompt"})),
        call(4, "echo", json!({"message": "é\u{0}\u{2028}"})),
        call(5, "get-sum", json!({"a": 1, "b": 2.50})),
        call(6, "get-tiny-image", json!({})),
        call(7, "get-structured-content", json!({"location": "New York"})),
        call(8, "get-annotated-message", json!({"messageType": "error", "includeImage": true})),
        call(9, "no-such-tool", json!({})),
    ];
    same_bytes(files.start(&server), files.start(&gateway), &requests);
}

#[test]
fn the_filesystem_server_reads_the_same_through_the_gateway() {
    let files = Files::new("{ preset: allow-all }");
    std::fs::write(files.path("a.txt"), "first\nsecond\n").unwrap();
    let call =
        |id, name: &str, arguments: Value| request(id, "tools/call", &json!({"name": name, "arguments": arguments}));
    let requests = [
        request(0, "tools/list", &json!({})),
        call(1, "read_text_file", json!({"path": files.path("a.txt"), "head": 1})),
        call(2, "write_file", json!({"path": files.path("b.txt"), "content": "b"})),
        call(3, "list_directory", json!({"path": files.path("").trim_end_matches('/')})),
        call(4, "read_text_file", json!({"path": "/etc/passwd"})),
    ];
    same_bytes(files.start(&files.server()), files.start(&files.gateway()), &requests);
    assert_eq!(read(files.path("b.txt")), "b");
}

/// Everything that comes before the answer, and the answer. What the server asks meanwhile is answered.
fn transcript(peer: &mut Peer, id: usize, request: &Value) -> Vec<String> {
    peer.send(request.to_string());
    let mut heard = Vec::new();
    loop {
        let line = peer.line();
        let message: Value = serde_json::from_str(&line).unwrap();
        heard.push(line);
        match (message["method"].as_str(), message.get("id")) {
            (Some("sampling/createMessage"), Some(asked)) => {
                let result = json!({"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "m"});
                peer.send(json!({"jsonrpc": "2.0", "id": asked, "result": result}).to_string());
            }
            (Some(_), Some(asked)) => {
                let result = json!({"action": "accept", "content": {"name": "x", "status": "active"}});
                peer.send(json!({"jsonrpc": "2.0", "id": asked, "result": result}).to_string());
            }
            (None, Some(answered)) if *answered == id => return heard,
            _ => {}
        }
    }
}

/// What the conformance suite would do, in the era with a handshake and in the one without.
fn conformance(meta: Option<&Value>) -> Vec<Value> {
    let mut params: Vec<(&str, Value)> = Vec::new();
    for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        params.push((method, json!({})));
    }
    let tools = [
        "simple_text",
        "image_content",
        "audio_content",
        "embedded_resource",
        "multiple_content_types",
        "tool_with_logging",
        "tool_with_progress",
        "error_handling",
        "sampling",
        "elicitation",
        "elicitation_sep1034_defaults",
        "elicitation_sep1330_enums",
        "unknown",
    ];
    params.extend(tools.map(|tool| {
        (
            "tools/call",
            json!({"name": format!("test_{tool}"), "arguments": {},
        "_meta": {"progressToken": tool}}),
        )
    }));
    params.push(("prompts/get", json!({"name": "test_simple_prompt"})));
    params
        .push(("prompts/get", json!({"name": "test_prompt_with_arguments", "arguments": {"arg1": "a", "arg2": "b"}})));
    params.push((
        "prompts/get",
        json!({"name": "test_prompt_with_embedded_resource", "arguments": {"resourceUri": "x"}}),
    ));
    params.push(("prompts/get", json!({"name": "test_prompt_with_image"})));
    for uri in ["static-text", "static-binary", "template/1/data", "watched-resource"] {
        params.push(("resources/read", json!({"uri": format!("test://{uri}")})));
    }
    let requests = params.into_iter().enumerate().map(|(id, (method, mut params))| {
        if let Some(meta) = meta {
            for (key, value) in meta.as_object().unwrap() {
                params["_meta"][key] = value.clone();
            }
        }
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    });
    requests.collect()
}

/// The names that the official suite wants, directly and through the gateway, with every message on the way.
#[test]
fn the_conformance_server_says_the_same_through_the_gateway_in_both_eras() {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, "sampling": {}}});
    let files = Files::new("{ preset: allow-all }");
    let program = Path::new(env!("CARGO_BIN_EXE_countersign")).with_file_name("mcp-conformance").display().to_string();
    let direct = vec![program];
    let gateway: Vec<String> =
        files.gateway().into_iter().take_while(|word| word != "node").chain(direct.clone()).collect();
    for meta in [None, Some(&meta)] {
        let begin = |words: &[String]| match meta {
            None => Peer::able(files.start(words), &json!({"sampling": {}, "elicitation": {}})),
            Some(_) => Peer::bare(files.start(words)),
        };
        let (mut direct, mut through) = (begin(&direct), begin(&gateway));
        for (id, request) in conformance(meta).iter().enumerate() {
            let mut heard = transcript(&mut through, id, request);
            // The one thing that is added: whose question it is.
            heard.iter_mut().for_each(|line| *line = line.replace("\"[files] ", "\""));
            assert_eq!(transcript(&mut direct, id, request), heard, "{request}");
        }
    }
}
