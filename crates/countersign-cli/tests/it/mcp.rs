//! `countersign run` with the tools of an MCP server.

use countersign_testkit::mcp::{McpFixture, VARIABLE};

use crate::bed::Bed;

const TEST: &str = "mcp::one_life_of_a_server";

/// Writes one file by a tool that is allowed, and tries one that is not.
const SCRIPT: &str = r#"
turns:
  - calls: [{ tool: files__writes, arguments: { file: allowed.txt } }]
  - calls: [{ tool: files__wipes, arguments: {} }]
  - text: Finished.
"#;

/// A server that a run began. Without one it has nothing to serve, and is over.
#[test]
fn one_life_of_a_server() {
    let Ok(words) = std::env::var(VARIABLE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(McpFixture::from_words(&words).unwrap().serve_stdio()).unwrap();
}

fn scene(server: &str) -> Bed {
    let bed = Bed::new();
    bed.write("script.yml", SCRIPT);
    let config = format!(
        "store: sqlite:agent.db\nmodel: {{ provider: scripted, name: script.yml }}\n\
         agents: {{ helper: {{ mcp_servers: [files] }} }}\nmcp_servers:\n  files: {server}\n\
         policy: {{ otherwise: ask, rules: [{{ id: writes, allow: files/writes }}] }}\n"
    );
    bed.write("run.yml", &config);
    bed
}

fn fixture(bed: &Bed) -> String {
    let program = std::env::current_exe().unwrap();
    serde_json::json!({
        "command": program,
        "args": [TEST, "--exact", "--nocapture", "--test-threads=2"],
        "env": { VARIABLE: format!("stdio {}", bed.work().display()) },
    })
    .to_string()
}

/// The tools are there under their server's name; rules on `server/tool` decide, and what nobody allows does not run.
#[test]
fn the_tools_of_a_server_run_by_rule_and_are_refused_by_rule() {
    let folder = Bed::new();
    let bed = scene(&fixture(&folder));
    let ran = bed.run(["run", "--config", "run.yml", "helper", "go"]).expect(3);
    assert!(ran.stdout.contains("Finished."), "{ran:?}");
    assert!(folder.work().join("allowed.txt").exists(), "{ran:?}");
    assert!(!folder.work().join("wipes").exists(), "{ran:?}");
    assert!(ran.stderr.contains("the tool `odd` of the MCP server `files` is not offered"), "{ran:?}");
}

#[track_caller]
fn check_fault(server: &str, code: i32, expected: &str) {
    let ran = scene(server).run(["run", "--config", "run.yml", "helper", "go"]).expect(code);
    assert!(ran.stderr.contains(expected), "{ran:?}");
    assert!(ran.stderr.contains("next: correct its entry under `mcp_servers:`"), "{ran:?}");
}

/// A server that does not come up is told as what it is, with what to do.
#[test]
fn a_server_that_does_not_start_says_why() {
    check_fault("{ command: no-such-program-here }", 2, "there is no program `no-such-program-here`; install it");
    check_fault("{ }", 2, "has neither `command` nor `url`");
    let dies = r#"{ command: sh, args: ["-c", "echo the disk is full >&2; exit 7"] }"#;
    check_fault(dies, 4, "ended before it answered (exit status: 7)");
    check_fault(dies, 4, "the disk is full");
    check_fault("{ url: 'http://127.0.0.1:1/mcp' }", 4, "the MCP server `files` cannot be talked to");
}

#[test]
fn a_server_that_is_nowhere_is_a_mistake_in_the_file() {
    let bed = scene("{ command: x }");
    let text = crate::bed::read(bed.work().join("run.yml")).replace("mcp_servers: [files]", "mcp_servers: [fils]");
    bed.write("run.yml", &text);
    let ran = bed.run(["run", "--config", "run.yml", "helper", "go"]).expect(2);
    assert!(ran.stderr.contains("names the MCP server `fils`"), "{ran:?}");
    assert!(ran.stderr.contains("there is `files`"), "{ran:?}");
}

/// B134: what a server offers is linted too, at the place of the server in the file. Its words are not the user's, so
/// they fail nothing; a server that cannot be asked does.
#[test]
fn the_tools_of_a_server_are_linted() {
    let folder = Bed::new();
    let bed = scene(&fixture(&folder));
    let ran = bed.say("tools lint --config run.yml --json").expect(0);
    let findings = ran.json()["findings"].as_array().unwrap().clone();
    let text = findings.iter().find(|finding| finding["place"] == "text").unwrap_or_else(|| panic!("{ran:?}"));
    assert_eq!(text["tool"], serde_json::json!({ "server": "files", "name": "echo" }), "{ran:?}");
    assert_eq!((&text["file"], &text["line"], &text["column"]), (&"run.yml".into(), &5.into(), &3.into()));
    let ran = bed.say("tools lint --config run.yml").expect(0);
    assert!(ran.stdout.contains("run.yml:5:3: files/echo at `text`: it is not described"), "{ran:?}");
    let alone = bed.say("tools lint --no-servers --config run.yml --json").expect(0);
    assert_eq!(alone.json()["findings"], serde_json::json!([]), "{alone:?}");

    let ran = scene("{ command: no-such-program-here }").say("tools lint --config run.yml --json").expect(2);
    assert!(ran.json()["tools"].as_u64() > Some(5) && ran.stderr.contains("no-such-program-here"), "{ran:?}");
    scene("{ command: no-such-program-here }").say("tools lint --no-servers --config run.yml").expect(0);
}
