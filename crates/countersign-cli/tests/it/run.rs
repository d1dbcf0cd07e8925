//! `countersign run`, off a terminal: by its policy, its events, and after a crash.

use std::process::{Child, Stdio};

use serde_json::Value;

use crate::bed::{Bed, Ran, read};

/// A script that writes a file and then says so.
pub(crate) const SCRIPT: &str = r#"
turns:
  - text: Writing it.
    calls: [{ tool: write_file, arguments: { path: a.txt, content: hello } }]
  - text: Finished.
"#;

/// A user with an agent that follows a script, under this policy.
pub(crate) fn scene(policy: &str, script: &str) -> Bed {
    let bed = Bed::new();
    bed.write("script.yml", script);
    let config = format!(
        "store: sqlite:agent.db\nmodel: {{ provider: scripted, name: script.yml }}\n\
         agents: {{ helper: {{ tools: [builtin] }} }}\npolicy:\n{policy}"
    );
    bed.write("run.yml", &config);
    bed
}

pub(crate) const ASKS: &str = "  otherwise: ask\n";

fn run(bed: &Bed, rest: &[&str]) -> Ran {
    bed.run([&["run", "--config", "run.yml", "--session", "s1"], rest].concat())
}

fn holds(bed: &Bed) -> Vec<Value> {
    bed.say("holds --json --config run.yml").expect(0).json().as_array().unwrap().clone()
}

/// Waits for the one hold of a run that is under way.
fn first_hold(bed: &Bed, running: &mut Child) -> Value {
    loop {
        if let Some(hold) = holds(bed).into_iter().next() {
            return hold;
        }
        assert!(running.try_wait().unwrap().is_none(), "it ended without a hold");
    }
}

fn approve(bed: &Bed, hold: &Value) {
    let (id, digest) = (hold["id"].as_str().unwrap(), hold["digest"].as_str().unwrap());
    bed.run(["approve", id, "--digest", digest, "--config", "run.yml"]).expect(0);
}

#[test]
fn a_rule_that_allows_needs_nobody() {
    let bed = scene("  otherwise: allow\n", SCRIPT);
    let ran = run(&bed, &["helper", "go"]).expect(0);
    assert_eq!(ran.stdout, "Writing it.\nFinished.\n");
    assert!(ran.stderr.contains("write_file") && ran.stderr.contains("done"), "{}", ran.stderr);
    assert_eq!(read(bed.work().join("a.txt")), "hello");
}

/// Off a terminal nobody is asked, the call is refused, and the exit code says so.
#[test]
fn without_a_terminal_unattended_decides() {
    let bed = scene(ASKS, SCRIPT);
    let ran = run(&bed, &["helper", "go"]).expect(3);
    assert!(ran.stderr.contains("nobody can be asked here") && ran.stderr.contains("unattended: deny"), "{ran:?}");
    assert!(ran.stdout.contains("Finished."), "the model could still react: {ran:?}");
    assert!(!bed.work().join("a.txt").exists());
}

/// What is piped in is what is said; a run that waits goes on when somebody else decides.
#[test]
fn a_waiting_run_goes_on_when_another_process_approves() {
    use std::io::Write as _;
    let bed = scene("  otherwise: ask\n  unattended: wait\n", SCRIPT);
    let mut command = bed.command(["run", "--config", "run.yml", "helper"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    running.stdin.take().unwrap().write_all(b"go").unwrap();
    let hold = first_hold(&bed, &mut running);
    approve(&bed, &hold);
    let ran = Ran::from(running.wait_with_output().unwrap()).expect(0);
    assert!(ran.stdout.contains("Finished."), "{ran:?}");
    assert_eq!(read(bed.work().join("a.txt")), "hello");
}

/// The process dies while a hold waits, somebody approves meanwhile, and the session goes on where it stopped.
#[test]
fn a_killed_run_is_resumed_with_the_decision_made_meanwhile() {
    let bed = scene("  otherwise: ask\n  unattended: wait\n", SCRIPT);
    let mut command = bed.command(["run", "--config", "run.yml", "--session", "s1", "helper", "go"]);
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let hold = first_hold(&bed, &mut running);
    running.kill().unwrap();
    running.wait().unwrap();
    approve(&bed, &hold);
    assert!(!bed.work().join("a.txt").exists());
    let ran = bed.say("run --config run.yml --resume s1").expect(0);
    assert!(ran.stdout.contains("Finished."), "{ran:?}");
    assert_eq!(read(bed.work().join("a.txt")), "hello");
    let listed = bed.say("run --list --config run.yml --json").expect(0).json();
    assert_eq!((&listed[0]["session"], &listed[0]["agent"]), (&"s1".into(), &"helper".into()));
}

#[test]
fn json_is_one_event_a_line_and_ends_with_the_reply() {
    let bed = scene("  otherwise: allow\n", SCRIPT);
    let ran = run(&bed, &["helper", "go", "--json"]).expect(0);
    let events: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    for name in ["text", "turn", "called", "ended"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["text"], &last["session"]), (&"done".into(), &"Finished.".into(), &"s1".into()));
}

/// B128: what a model says paints nothing, neither as its answer nor as the arguments of a call.
#[test]
fn hostile_text_is_escaped() {
    let script = "turns:\n  - text: \"a\\e[2Jb\\u202ec\"\n    calls: [{ tool: read_file, arguments: { path: \"x\\e]0;t\\a\" } }]\n";
    let ran = run(&scene("  otherwise: allow\n", script), &["helper", "go"]).expect(0);
    assert!(ran.stdout.contains("a\\u{1b}[2Jb\\u{202e}c"), "{ran:?}");
    assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'), "{ran:?}");
}

/// A person's lines drive every tool without a model; in a pipe, too.
#[test]
fn the_model_can_be_typed() {
    use std::io::Write as _;
    let bed = scene("  otherwise: allow\n", SCRIPT);
    let mut command = bed.command(["run", "--config", "run.yml", "--manual", "helper", "go"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    running.stdin.take().unwrap().write_all(b"write_file path=b.txt content=typed\nsay that is all\n").unwrap();
    let ran = Ran::from(running.wait_with_output().unwrap()).expect(0);
    assert_eq!(ran.stdout, "that is all\n");
    assert_eq!(read(bed.work().join("b.txt")), "typed");
}

/// The file, the store and the keys are out of reach for the agent's own tools.
#[test]
fn an_agent_cannot_touch_its_own_configuration() {
    let script = "turns: [{ calls: [{ tool: write_file, arguments: { path: run.yml, content: x } }, { tool: read_file, \
                  arguments: { path: agent.db } }, { tool: write_file, arguments: { path: countersign.yml, content: x } }] }]\n";
    let bed = scene("  otherwise: allow\n", script);
    let before = read(bed.work().join("run.yml"));
    let ran = run(&bed, &["helper", "go"]).expect(0);
    assert_eq!(ran.stderr.matches("is protected").count(), 3, "{ran:?}");
    assert_eq!(read(bed.work().join("run.yml")), before);
    assert!(!bed.work().join("countersign.yml").exists());
}

#[test]
fn mistakes_say_what_to_do() {
    let bed = Bed::new();
    let ran = bed.say("run agent go").expect(2);
    assert!(ran.stderr.contains("`model:`") && ran.stderr.contains("--manual"), "{ran:?}");
    let bed = scene(ASKS, SCRIPT);
    let ran = run(&bed, &["nobody", "go"]).expect(2);
    assert!(ran.stderr.contains("`nobody`") && ran.stderr.contains("`helper`"), "{ran:?}");
    let ran = bed.say("run --config run.yml --resume s9").expect(2);
    assert!(ran.stderr.contains("run --list"), "{ran:?}");
    bed.write("wrong.yml", "agents: { a: { tools: [builtin, raed_file] } }\n");
    let ran = bed.say("run --config wrong.yml --script script.yml a go").expect(2);
    assert!(ran.stderr.contains("raed_file") && ran.stderr.contains("`read_file`"), "{ran:?}");
    bed.write("wrong.yml", "agents: { a: { sub_agents: [b] }, b: { sub_agents: [a] } }\n");
    let ran = bed.say("run --config wrong.yml --script script.yml a go").expect(2);
    assert!(ran.stderr.contains("a → b → a"), "{ran:?}");
}

/// Agents that hand over to one another load and talk.
#[test]
fn configured_agents_hand_over_to_and_fro() {
    let script = "agents:\n  sales: [{ calls: [{ tool: transfer_to_support, arguments: {} }] }, { text: Sold. }]\n  \
                  support: [{ calls: [{ tool: transfer_to_sales, arguments: {} }] }]\n";
    let bed = scene("  otherwise: allow\n", script);
    let agents = "agents: { sales: { handoffs: [support] }, support: { handoffs: [sales] } }\n";
    bed.write("two.yml", &format!("store: sqlite:agent.db\n{agents}policy: {{ otherwise: allow }}\n"));
    let ran = bed.say("run --config two.yml --script script.yml sales go").expect(0);
    assert_eq!(ran.stdout, "Sold.\n", "{ran:?}");
    assert!(ran.stderr.contains("support › sales"), "{ran:?}");
}

/// What a sub-agent says comes word by word, as models speak, and is shown in lines; the answer alone is data.
#[test]
fn a_sub_agents_words_are_shown_in_lines() {
    let script = "agents:\n  boss: [{ calls: [{ tool: ask_kid, arguments: { task: count } }] }, { text: It is two. }]\n  \
                  kid: [{ text: \"one and one\\nmake two\" }]\n";
    let bed = scene("  otherwise: allow\n", script);
    let agents = "agents: { boss: { sub_agents: [kid] }, kid: {} }\n";
    let policy = "policy: { otherwise: allow, rules: [{ allow: 'agent:*' }] }\n";
    bed.write("two.yml", &format!("store: sqlite:agent.db\n{agents}{policy}"));
    let ran = bed.say("run --config two.yml --script script.yml boss go").expect(0);
    assert_eq!(ran.stdout, "It is two.\n", "{ran:?}");
    assert!(ran.stderr.contains("boss › kid:\none and one\nmake two\nboss › kid is done\n"), "{ran:?}");
}

/// B121: what a run may take is said in the file, and reaching it ends the run.
#[test]
fn a_configured_limit_ends_the_run() {
    let bed = scene("  otherwise: allow\n", SCRIPT);
    let config = read(bed.work().join("run.yml")).replace("tools: [builtin]", "tools: [builtin], limits: { turns: 1 }");
    bed.write("run.yml", &config);
    let ran = run(&bed, &["helper", "go"]).expect(1);
    assert!(ran.stderr.contains("turns") && !ran.stdout.contains("Finished."), "{ran:?}");
    bed.write("run.yml", &config.replace("turns: 1", "turns: 2"));
    let ran = bed.say("run --config run.yml helper go").expect(0);
    assert!(ran.stdout.contains("Finished."), "{ran:?}");
}

/// There is no web search before the file names a service, and then there is.
#[test]
fn a_web_search_is_there_once_it_is_configured() {
    let bed = scene("  otherwise: allow\n", SCRIPT);
    let config = read(bed.work().join("run.yml")).replace("[builtin]", "[web_search]");
    bed.write("run.yml", &config);
    let ran = run(&bed, &["helper", "go"]).expect(2);
    assert!(ran.stderr.contains("`web_search`"), "{ran:?}");
    bed.write("run.yml", &format!("web_search: {{ url: 'http://127.0.0.1:9/' }}\n{config}"));
    let ran = run(&bed, &["helper", "go"]).expect(0);
    assert!(ran.stdout.contains("Finished."), "{ran:?}");
    let linted = bed.say("tools lint --config run.yml --json").expect(0).json();
    assert_eq!(linted["findings"], Value::Array(Vec::new()), "{linted}");
}

/// A tool that a client runs has nobody here: that is said at once, to the person and to the model.
#[test]
fn a_client_tool_without_a_client_is_refused_at_once() {
    let script = "turns: [{ calls: [{ tool: locate, arguments: {} }] }, { text: Then not. }]\n";
    let bed = scene("  otherwise: ask\n", script);
    let tools = "tools: [{ name: locate, description: Where the user is., client: true }]\n";
    let config = "store: sqlite:agent.db\nagents: { helper: { tools: [locate] } }\npolicy: { otherwise: ask }\n";
    bed.write("client.yml", &format!("{config}{tools}"));
    let ran = bed.say("run --config client.yml --script script.yml helper go").expect(0);
    assert!(ran.stderr.contains("a client runs the tool `locate`, and there is none here"), "{ran:?}");
    assert!(ran.stderr.contains("none is connected"), "{ran:?}");
    assert_eq!(ran.stdout, "Then not.\n");
}

/// A program that outlived a killed run is found by the next one, and no longer once it is gone.
#[cfg(target_os = "linux")]
#[test]
fn a_program_that_outlived_its_run_is_shown() {
    let script = "turns: [{ calls: [{ tool: bash, arguments: { command: \"echo $$ > up; exec sleep 1000\" } }] }]\n";
    let bed = scene("  otherwise: allow\n", script);
    let mut command = bed.command(["run", "--config", "run.yml", "--session", "s1", "helper", "go"]);
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let up = bed.work().join("up");
    while !std::fs::read_to_string(&up).is_ok_and(|text| text.ends_with('\n')) {
        assert!(running.try_wait().unwrap().is_none(), "it ended without a program");
        std::thread::yield_now();
    }
    running.kill().unwrap();
    running.wait().unwrap();
    let pid = read(&up).trim().to_owned();
    bed.write("other.yml", "turns: [{ text: Hello. }]\n");
    let hello = ["run", "--config", "run.yml", "--script", "other.yml", "helper", "hello"];
    let ran = bed.run(hello).expect(0);
    assert!(ran.stderr.contains(&format!("still runs: bash, process {pid}, for ")), "{ran:?}");
    assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    while std::path::Path::new("/proc").join(&pid).exists() {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            break;
        }
    }
    let ran = bed.run(hello).expect(0);
    assert!(!ran.stderr.contains("still runs"), "{ran:?}");
}

/// safety 4.7: commands run under a keeper, this program itself, which writes down how they ended.
#[cfg(target_os = "linux")]
#[test]
fn commands_are_kept_and_their_ends_are_written_down() {
    let command = "cat /proc/$PPID/cmdline > keeper";
    let script =
        format!("turns: [{{ calls: [{{ tool: bash, arguments: {{ command: \"{command}\" }} }}] }}, {{ text: Ok. }}]\n");
    let bed = scene("  otherwise: allow\n", &script);
    run(&bed, &["helper", "go"]).expect(0);
    let keeper = read(bed.work().join("keeper")).replace('\0', " ");
    assert!(keeper.contains(" keep-status ") && keeper.contains(".status bash "), "{keeper}");
    for (does, code, written) in [("exit 3", 3, r#"{"exited":3}"#), ("kill -9 $$", 137, r#"{"killed":9}"#)] {
        bed.run(["keep-status", "ended", "sh", "-c", does, "--json"]).expect(code);
        assert_eq!(read(bed.work().join("ended")), written);
    }
    bed.run(["keep-status", "ended", "no-such-program"]).expect(127);
    assert!(read(bed.work().join("ended")).contains("not_started"));
    bed.run(["keep-status", "no/such/folder/ended", "true"]).expect(1);
    bed.run(["keep-status", "ended"]).expect(2);
}

/// `--model PROVIDER/NAME` takes another provider, with its own key and never with the configured one's.
#[test]
fn another_provider_needs_its_own_key() {
    let bed = Bed::new();
    bed.write("keyed.yml", "store: sqlite:agent.db\nmodel: { provider: anthropic, name: a, api_key: sk-configured }\n");
    let ran = bed.say("run --config keyed.yml --model gemini/gemini-3-pro agent hello").expect(2);
    assert!(ran.stderr.contains("GEMINI_API_KEY"), "{ran:?}");
    let script = "model: { provider: scripted, name: script.yml }\n";
    bed.write("script.yml", "turns: [{ text: Hello. }]\n");
    bed.write("other.yml", "turns: [{ text: Other. }]\n");
    bed.write("scripted.yml", &format!("store: sqlite:agent.db\n{script}"));
    let ran = bed.say("run --config scripted.yml --model other.yml agent hello").expect(0);
    assert_eq!(ran.stdout, "Other.\n", "a name alone is one of the configured provider: {ran:?}");
}

/// B134: findings in configured tools fail, and say where in the file; built-in tools have none.
#[test]
fn tools_are_linted() {
    let bed = Bed::new();
    assert_eq!(bed.say("tools lint --json").expect(0).json()["findings"], serde_json::json!([]));
    let good = "{ name: find_orders, description: 'Finds the orders of one customer, newest first.', \
                input_schema: { type: object }, client: true }";
    bed.write("tools.yml", &format!("tools:\n  - {good}\n  -\n    name: run\n    run: {{ command: [\"true\"] }}\n"));
    let ran = bed.say("tools lint --config tools.yml --json").expect(1);
    let findings = ran.json()["findings"].as_array().unwrap().clone();
    assert!(findings.iter().any(|finding| finding["kind"] == "no_description"), "{ran:?}");
    for finding in findings {
        let at = (&finding["file"], &finding["line"], &finding["column"]);
        assert_eq!(at, (&"tools.yml".into(), &4.into(), &5.into()), "{finding}");
    }
    let ran = bed.say("tools lint --config tools.yml").expect(1);
    assert!(ran.stdout.contains("tools.yml:4:5: run: it has no description"), "{ran:?}");
}
