//! Commands: what they get, what they leave, and that nothing of them survives.

use std::io::Read as _;
use std::path::Path;

use countersign::call::Declared;
use countersign::{CallState, Json, Proposal, Tool as _};
use countersign_agent::limits;
use countersign_agent::tools::{Bash, Processes};
use serde_json::json;

use super::World;

fn pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Reads a pipe until nobody has it open for writing any more.
fn read_to_the_end(path: &Path) -> tokio::task::JoinHandle<String> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || std::fs::read_to_string(path).unwrap())
}

#[tokio::test]
async fn output_and_errors_come_in_order_with_the_exit_code() {
    let world = World::new();
    let bash = Bash::new(&world.workspace());
    let ran = world.answer(&bash, json!({ "command": "echo one; echo two >&2; echo three; exit 3" })).await;
    assert_eq!(ran, json!({ "exit_code": 3, "output": "one\ntwo\nthree\n" }));
    let ran = world.answer(&bash, json!({ "command": "pwd; read -r line; echo \"<$line>\"" })).await;
    let root = world.work("").canonicalize().unwrap();
    assert_eq!(ran["output"], format!("{}\n<>\n", root.display()));
    assert_eq!(world.answer(&bash, json!({ "command": "-x" })).await["exit_code"], 127);
}

#[tokio::test]
async fn commands_ask_first_and_never_run_twice() {
    let world = World::new();
    let bash = Bash::new(&world.workspace());
    assert_eq!(bash.declares(&Json::empty()), Ok(Declared::Ask));
    assert!(!bash.definition().repeat.may_run_again());
}

/// Nothing of our own environment reaches a command.
#[tokio::test]
async fn no_variable_of_ours_is_inherited() {
    let world = World::new();
    // The test runner sets this one; a secret would be inherited the same way.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let bash = Bash::new(&world.workspace()).with_variable("GIVEN", "yes");
    let ran = world.answer(&bash, json!({ "command": "env | cut -d= -f1 | sort" })).await;
    let names: Vec<&str> = ran["output"].as_str().unwrap().split_whitespace().collect();
    assert_eq!(names, ["COUNTERSIGN_RUN", "GIVEN", "HOME", "LANG", "PATH", "PWD", "SHLVL", "TERM", "_"]);
}

#[tokio::test]
async fn long_output_keeps_both_ends_and_says_what_is_missing() {
    let world = World::new();
    let command = "echo begin; head -c 1000000 /dev/zero | tr '\\0' x; echo end";
    let ran = world.answer(&Bash::new(&world.workspace()), json!({ "command": command })).await;
    let output = ran["output"].as_str().unwrap();
    let cut = 1_000_000 + "begin\nend\n".len() - 2 * limits::COMMAND_OUTPUT_END;
    assert!(output.starts_with("begin\nxxx") && output.ends_with("xxxend\n"));
    assert!(output.contains(&format!("[… {cut} bytes left out …]")));
    assert!(output.len() < 2 * limits::COMMAND_OUTPUT_END + 100);
}

/// On time-out the whole group dies: the grandchild holds the pipe open, and its end is seen.
#[tokio::test]
async fn a_command_that_is_late_dies_with_all_it_started() {
    let world = World::new();
    pipe(&world.work("alive"));
    let end = read_to_the_end(&world.work("alive"));
    let command = "(sleep 1000 & echo up >&3; wait) 3>alive & wait";
    let bash = Bash::new(&world.workspace());
    let why = world.doubt(&bash, json!({ "command": command, "timeout_seconds": 5 })).await;
    assert!(why.contains("killed after 5 s"), "{why}");
    assert_eq!(end.await.unwrap(), "up\n");
}

#[tokio::test]
async fn what_stays_in_the_background_ends_with_the_command() {
    let world = World::new();
    pipe(&world.work("alive"));
    let end = read_to_the_end(&world.work("alive"));
    let command = "{ sleep 1000; } 3>alive & echo up > alive";
    let ran = world.answer(&Bash::new(&world.workspace()), json!({ "command": command })).await;
    assert_eq!(ran["exit_code"], 0);
    assert_eq!(end.await.unwrap(), "up\n");
}

/// What left the command's group and session is found by its mark, and ends with the command all the same.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_left_the_group_ends_with_the_command() {
    let world = World::new();
    pipe(&world.work("alive"));
    pipe(&world.work("up"));
    let end = read_to_the_end(&world.work("alive"));
    let command = "setsid sh -c 'echo up; echo > up; exec sleep 1000' > alive & read -r _ < up";
    let ran = world.answer(&Bash::new(&world.workspace()), json!({ "command": command })).await;
    assert_eq!(ran["exit_code"], 0, "{ran}");
    assert_eq!(end.await.unwrap(), "up\n");
}

/// A program is written down while it runs, and forgotten with its end; one of a process that lives is no survivor.
#[tokio::test]
async fn a_program_is_written_down_while_it_runs() {
    let world = World::new();
    let folder = world.outside("processes");
    let processes = Processes::at(&folder).unwrap();
    let bash = Bash::new(&world.workspace()).noted_in(processes.clone());
    let command = format!("cat {}/*.json", folder.display());
    let ran = world.answer(&bash, json!({ "command": command })).await;
    let noted: serde_json::Value = serde_json::from_str(ran["output"].as_str().unwrap()).unwrap();
    assert_eq!((&noted["tool"], &noted["owner"]["pid"]), (&json!("bash"), &json!(std::process::id())));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    assert_eq!(processes.survivors().unwrap(), []);
}

#[tokio::test]
async fn a_run_that_is_dropped_leaves_no_process() {
    let world = World::new();
    pipe(&world.work("alive"));
    let path = world.work("alive");
    let (up, mut is_up) = tokio::sync::mpsc::unbounded_channel();
    let end = tokio::task::spawn_blocking(move || {
        let mut alive = std::fs::File::open(path).unwrap();
        let mut byte = [0; 1];
        alive.read_exact(&mut byte).unwrap();
        up.send(()).unwrap();
        alive.read_to_end(&mut Vec::new()).unwrap()
    });
    let (gate, bash) = (world.gate.clone(), Bash::new(&world.workspace()));
    let arguments = json!({ "command": "(printf x >&3; sleep 1000) 3>alive" }).to_string();
    let run = tokio::spawn(async move { gate.call(&bash, Proposal::new("bash", arguments)).await });
    is_up.recv().await.unwrap();
    run.abort();
    assert!(run.await.unwrap_err().is_cancelled());
    assert_eq!(end.await.unwrap(), 0);
}

#[tokio::test]
async fn a_command_killed_by_a_signal_is_in_doubt() {
    let world = World::new();
    let why = world.doubt(&Bash::new(&world.workspace()), json!({ "command": "kill -9 $$" })).await;
    assert_eq!(why, "signal 9 killed the command");
}

/// A mention is refused, which stops mistakes; whoever hides the name passes. This is no sandbox.
#[tokio::test]
async fn commands_that_name_protected_files_are_refused() {
    let world = World::new();
    world.write("countersign.yml", "x");
    world.write("keys/a.pem", "x");
    let workspace = world.workspace().protect("countersign.yml").protect("keys");
    let bash = Bash::new(&workspace);
    let whole = format!("ls {}", workspace.root().join("keys").display());
    for command in ["cat countersign.yml", "cat ./COUNTERSIGN.yml", "echo>countersign.yml", "cat keys/a.pem", &whole] {
        let error = world.failure(&bash, json!({ "command": command })).await;
        assert!(error.contains("is protected"), "{command}: {error}");
    }
    for command in ["ls countersign.yml.bak", "cat mycountersign.yml", "echo monkeys"] {
        assert_eq!(world.call(&bash, json!({ "command": command })).await.state, CallState::Succeeded, "{command}");
    }
}
