//! `gateway install` and `gateway doctor` on the files that clients really keep.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::bed::{Bed, read};
use crate::gateway_peer::{Peer, Stage, plain};

const CURSOR: &str = r#"{
  // Two servers.
  "mcpServers": {
    "files": {
      "command": "npx",
      "args": ["-y", "server-filesystem", "."], // here
      "env": { "TOKEN": "s3cr3t" },
      "odd": [ 1,2 ],
    },
    "web": { "url": "https://mcp.example.com" },
  },
}
"#;

/// The user's file of a client, with this text and mode.
fn file(bed: &Bed, name: &str, text: &str) -> PathBuf {
    let path = bed.work().parent().unwrap().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    path
}

#[test]
fn a_clients_servers_go_through_the_gateway_and_back_byte_for_byte() {
    let bed = Bed::new();
    let path = file(&bed, ".cursor/mcp.json", CURSOR);
    let dry = bed.say("gateway install cursor --dry-run").expect(0);
    assert!(dry.stderr.contains("- npx -y server-filesystem .") && dry.stderr.contains("not behind"), "{dry:?}");
    assert!(!dry.stderr.contains("s3cr3t"), "what is shown holds no secret: {dry:?}");
    let refused = bed.say("gateway install cursor").expect(3);
    assert!(refused.stderr.contains("--yes"), "{refused:?}");
    assert_eq!(read(&path), CURSOR, "nobody said yes");

    let done = bed.say("gateway install cursor --yes --json").expect(0).json();
    assert_eq!(done["changes"].as_array().unwrap().len(), 1);
    let program = env!("CARGO_BIN_EXE_countersign");
    let expected = CURSOR
        .replace("\"command\": \"npx\"", &format!("\"command\": \"{program}\""))
        .replace("[\"-y\"", r#"["gateway", "--server=files", "--", "npx", "-y""#);
    assert_eq!(read(&path), expected);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    let backup = done["backup"].as_str().unwrap();
    assert_eq!(read(backup), CURSOR);
    assert_eq!(std::fs::metadata(backup).unwrap().permissions().mode() & 0o777, 0o640);

    let again = bed.say("gateway install cursor --yes --json").expect(0).json();
    assert_eq!((&again["done"], &again["changes"]), (&json!(false), &json!([])));
    bed.say("gateway install cursor --undo --yes").expect(0);
    assert_eq!(read(&path), CURSOR);
}

/// Claude Code keeps its servers, those of its projects and much else in one file that it writes all the time.
#[test]
fn undoing_keeps_what_the_client_wrote_since() {
    let bed = Bed::new();
    let text = r#"{"numStartups":3,"mcpServers":{"a":{"type":"stdio","command":"one"}},"projects":{"/w":{"mcpServers":{"a":{"command":"two","args":[]}},"history":["x"]}}}"#;
    let path = file(&bed, ".claude.json", text);
    bed.say("gateway install claude-code --yes --config policy.yml").expect(0);
    let installed: Value = serde_json::from_str(&read(&path)).unwrap();
    let args = installed["mcpServers"]["a"]["args"].as_array().unwrap();
    assert_eq!(args[1], "--config");
    assert!(args[2].as_str().is_some_and(|path| path.starts_with('/') && path.ends_with("/work/policy.yml")));
    let other = &installed["projects"]["/w"]["mcpServers"]["a"]["args"][3];
    assert!(other.as_str().is_some_and(|name| name.starts_with("--server=a-")), "two commands, two names: {other}");
    std::fs::write(&path, read(&path).replace("\"numStartups\":3", "\"numStartups\":4")).unwrap();
    bed.say("gateway install claude-code --undo --yes").expect(0);
    let undone: Value = serde_json::from_str(&read(&path)).unwrap();
    assert_eq!((&undone["numStartups"], &undone["mcpServers"]["a"]["command"]), (&json!(4), &json!("one")));
    assert_eq!(
        undone["projects"]["/w"],
        json!({"mcpServers": {"a": {"command": "two", "args": []}}, "history": ["x"]})
    );
}

#[test]
fn a_file_that_cannot_be_understood_is_left_alone() {
    let bed = Bed::new();
    let missing = bed.say("gateway install windsurf").expect(2);
    assert!(missing.stderr.contains(".codeium/windsurf/mcp_config.json"), "{missing:?}");
    let text = r#"{"mcpServers": {"a": {"command": "x", "command": "y"}}}"#;
    let path = bed.write("twice.json", text);
    let broken = bed.say("gateway install cursor --file twice.json --yes").expect(1);
    assert!(broken.stderr.contains("`command` is there twice"), "{broken:?}");
    assert_eq!(read(path), text);
    let linked = bed.write("real.json", r#"{"servers": {"a": {"command": "x"}}}"#);
    std::os::unix::fs::symlink(&linked, bed.work().join("link.json")).unwrap();
    bed.say("gateway install vscode --file link.json --yes").expect(0);
    assert!(bed.work().join("link.json").is_symlink() && read(linked).contains("--server=a"));
}

/// What was installed is what a client starts: the entry works as it stands.
#[test]
fn an_installed_entry_starts_the_gateway() {
    let stage = Stage::new(
        "{ otherwise: ask, rules: [{ id: reads, allow: 'plain/read' }] }\nmcp_servers: { own: { command: x, args: [y] } }",
    );
    let entry = json!({"mcpServers": {"plain": {"command": plain(), "args": ["log"]}}});
    file(&stage.bed, ".cursor/mcp.json", &entry.to_string());
    stage.say("gateway install cursor --yes").expect(0);
    let path = stage.bed.work().parent().unwrap().join(".cursor/mcp.json");
    let installed: Value = serde_json::from_str(&read(path)).unwrap();
    let entry = &installed["mcpServers"]["plain"];
    let args = entry["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned());
    let mut peer = Peer::start(stage.bed.command(args));
    peer.call(1, "read", &json!({}));
    assert_eq!(peer.answer(1), (false, "done: read".into()));
    peer.leave();

    let seen = stage.say("gateway doctor --json").expect(0).json();
    let server = &seen["clients"][0]["servers"][0];
    assert_eq!(
        (&server["way"], &server["server"], &server["note"]),
        (&json!("gateway"), &json!("plain"), &Value::Null)
    );
    assert_eq!(seen["configured"], json!([{"name": "own", "command": ["x", "y"], "url": null}]));
    let effect = |tool: &str| {
        let tools = seen["tools"].as_array().unwrap();
        tools.iter().find(|found| found["tool"] == tool).map(|found| (found["effect"].clone(), found["rules"].clone()))
    };
    assert_eq!(effect("read"), Some((json!("allow"), json!(["reads"]))));
    assert_eq!(effect("write").unwrap().0, "ask");
}

/// A changed tool is said to be refused, with the way to accept it; a swapped command is noted.
#[test]
fn the_doctor_tells_of_changed_tools_and_swapped_servers() {
    let stage = Stage::new("{ preset: allow-all }");
    let mut peer = stage.client(&[]);
    peer.ask(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    stage.bed.write("log.changed", "");
    peer.ask(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#);
    let program = env!("CARGO_BIN_EXE_countersign");
    let entry =
        json!({"mcpServers": {"p": {"command": program, "args": ["gateway", "--server", "plain", "--", "evil"]}}});
    file(&stage.bed, ".cursor/mcp.json", &entry.to_string());
    let told = stage.say("gateway doctor").expect(0);
    assert!(told.stdout.contains("countersign gateway accept plain write"), "{told:?}");
    assert!(told.stdout.contains("another command was first seen"), "{told:?}");
    let seen = stage.say("gateway doctor --json").expect(0).json();
    let write = seen["tools"].as_array().unwrap().iter().find(|tool| tool["tool"] == "write").unwrap();
    assert_eq!((&write["changed"], &write["effect"]), (&json!(true), &json!("deny")));
    assert_eq!(write["also_on"], json!([]));
}

/// Names that shadow one another across servers are told.
#[test]
fn the_doctor_tells_of_names_on_two_servers() {
    let stage = Stage::new("{ preset: allow-all }");
    for server in ["plain", "other"] {
        let mut command = stage.bed.command(["gateway", "--config", "policy.yml", "--server", server]);
        command.args(["--store", &stage.bed.url(), "--"]).arg(crate::gateway_peer::plain()).arg("log");
        crate::gateway_peer::Peer::start(command).ask(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    }
    let seen = stage.say("gateway doctor --json").expect(0).json();
    let on = |server: &str| {
        let tools = seen["tools"].as_array().unwrap();
        let read = tools.iter().find(|tool| tool["server"] == server && tool["tool"] == "read");
        read.unwrap()["also_on"].clone()
    };
    assert_eq!((on("plain"), on("other")), (json!(["other"]), json!(["plain"])));
    let told = stage.say("gateway doctor").expect(0).stdout;
    assert!(told.contains("there is one of this look on"), "{told}");
}
