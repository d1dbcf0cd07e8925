//! safety 4.7: a process is killed while its command runs, and whoever goes on tells a command that ended from one that
//! nobody knows of.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use countersign::config::Config;
use countersign::testing::{Fault, FaultStore};
use countersign::{CallState, Gate, Policy, Store};
use countersign_agent::Agent;
use countersign_agent::model::Given;
use countersign_agent::tools::{Bash, Made, Processes, Workspace, from_config, keep_status};
use countersign_testkit::stores;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::life::die;
use super::{Place, place, quick_folder};
use crate::bed::{Script, calls, says};

/// Says to this program that it is the process that is killed: the scene, and whether it dies before a result is kept.
const LIFE: &str = "COUNTERSIGN_COMMAND_LIFE";
const LIFE_TEST: &str = "kill::command::the_process_that_is_killed";
const KEEPER_TEST: &str = "kill::command::the_keeper";

/// Tells that it runs, waits until it is told to go on, and leaves a trace.
const COMMAND: &str = r#"{"command":"echo > up; read -r how < go; echo ran >> trace; eval \"$how\""}"#;
const PROGRAM: &str = "[bash, -c, 'echo > up; read -r how < go; echo ran >> trace; eval \"$how\"']";

struct Scene {
    place: Place,
    folder: tempfile::TempDir,
}

impl Scene {
    async fn new(kind: &str) -> Scene {
        let folder = quick_folder();
        for pipe in ["up", "go"] {
            let made = std::process::Command::new("mkfifo").arg(folder.path().join(pipe)).status().unwrap();
            assert!(made.success());
        }
        Scene { place: place(kind, folder.path()).await, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the process that is to be killed, and returns when its command runs.
    async fn begin(&self, tool: &str, dies: &str) -> Child {
        let words = [&self.place.url, &self.folder.path().display().to_string(), tool, dies].join("\n");
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args([LIFE_TEST, "--exact", "--nocapture"]).env(LIFE, words).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let up = self.path("up");
        tokio::task::spawn_blocking(move || std::fs::read(up).unwrap()).await.unwrap();
        while self.noted()["program"].is_null() {
            tokio::task::yield_now().await;
        }
        child
    }

    /// What is written down about the command.
    fn noted(&self) -> serde_json::Value {
        let mut files = std::fs::read_dir(self.path("processes")).unwrap().map(|file| file.unwrap().path());
        let entry = files.find(|path| path.extension().is_some_and(|extension| extension == "json")).unwrap();
        serde_json::from_slice(&std::fs::read(entry).unwrap()).unwrap()
    }

    /// Lets the command go on: it ends as these words say.
    async fn go_on(&self, words: &'static str) {
        let go = self.path("go");
        tokio::task::spawn_blocking(move || std::fs::write(go, format!("{words}\n")).unwrap()).await.unwrap();
    }

    /// The keeper of the command, held so that its end can be seen.
    fn keeper(&self) -> Keeper {
        let pid = Pid::from_raw(self.noted()["program"]["pid"].as_i64().unwrap().try_into().unwrap()).unwrap();
        Keeper { pid, held: pidfd_open(pid, PidfdFlags::empty()).unwrap() }
    }

    fn survivors(&self) -> usize {
        processes(self.folder.path()).survivors().unwrap().len()
    }

    /// Goes on with the session in this process: what the model reads of the command, and how its call stands.
    async fn resume(&self, tool: &str) -> (Given, CallState) {
        let script = Script::new([says("ok")]);
        let store = stores::open(&self.place.url).await.unwrap();
        agent(Arc::clone(&store), self.folder.path(), tool, &script).resume("s").await.unwrap();
        let calls = store.calls(Default::default()).await.unwrap();
        assert_eq!(calls.len(), 1);
        (script.result(), calls[0].state)
    }

    /// Waits until a sweeper, as every server has one, has seen that the starter is lost.
    async fn sweep(&self) {
        let store = stores::open(&self.place.url).await.unwrap();
        let gate = Gate::builder().store(store).policy(Policy::allow_all()).build().unwrap();
        loop {
            let moved = gate.store().bell().listen_any();
            if gate.store().calls(Default::default()).await.unwrap()[0].state == CallState::InDoubt {
                return;
            }
            moved.await;
        }
    }

    /// How often the command did its work.
    fn traces(&self) -> usize {
        std::fs::read_to_string(self.path("trace")).unwrap_or_default().lines().count()
    }
}

/// The process that keeps a command. It ends after what it keeps.
struct Keeper {
    pid: Pid,
    held: OwnedFd,
}

impl Keeper {
    async fn ends(self) {
        let ended = move || poll(&mut [PollFd::new(&self.held, PollFlags::IN)], None);
        assert_eq!(tokio::task::spawn_blocking(ended).await.unwrap(), Ok(1));
    }
}

/// Programs are kept by this very program.
fn processes(folder: &Path) -> Processes {
    let words = [KEEPER_TEST, "--exact", "--nocapture", "--"].map(Into::into);
    Processes::at(folder.join("processes")).unwrap().kept_by(std::env::current_exe().unwrap(), words)
}

fn agent(store: Arc<dyn Store>, folder: &Path, tool: &str, script: &Script) -> Agent {
    let gate = Gate::builder().store(store).policy(Policy::allow_all()).without_sweeper();
    let gate = gate.lease(Duration::from_millis(1_500)).build().unwrap();
    let builder = Agent::builder("boss", script.clone()).gate(gate);
    let builder = match tool {
        "bash" => builder.tool(Bash::new(&Workspace::new(folder).unwrap()).noted_in(processes(folder))),
        _ => {
            let yaml = format!("tools: [{{ name: work, run: {{ command: {PROGRAM} }}, description: Works. }}]");
            let config = Config::from_yaml("test.yml", &yaml, &|_| None).unwrap();
            let Made::Tool(made) = from_config(&config.tools[0], folder, Some(&processes(folder)), None).unwrap()
            else {
                panic!("a command runs here")
            };
            builder.shared_tool(made)
        }
    };
    builder.build().unwrap()
}

/// The process that is killed. Without a word from its parent it has nothing to do.
#[test]
fn the_process_that_is_killed() {
    let Ok(words) = std::env::var(LIFE) else { return };
    let words: Vec<&'static str> = words.leak().lines().collect();
    let [url, folder, tool, dies] = words[..] else { panic!("{words:?}") };
    let wanted = if tool == "bash" { ("bash", COMMAND) } else { ("work", "{}") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = stores::open(url).await.unwrap();
        let store = FaultStore::new(store, move |_, step| match step {
            "finish" if dies == "before finish" => die(),
            _ => Fault::None,
        });
        let script = Script::new([calls([wanted])]);
        let _ = agent(Arc::new(store), Path::new(folder), tool, &script).session("s").run("go").await;
    });
}

/// The keeper of a command: its words come behind `--`. Without any it has nothing to do.
#[test]
fn the_keeper() {
    let words: Vec<_> = std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
    if !words.is_empty() {
        std::process::exit(keep_status(words).unwrap());
    }
}

/// How a command ends after its starter was killed, and what comes of its call.
const ENDS: [(&str, &str, &str, CallState); 5] = [
    ("bash", "exit 3", r#"{"exit_code":3,"output":"[the output is lost"#, CallState::Resolved),
    ("bash", "kill -9 $$", "Outcome unknown", CallState::InDoubt),
    ("work", "exit 0", "It ended well (exit code 0)", CallState::Resolved),
    ("work", "exit 4", "exit code 4", CallState::Resolved),
    ("work", "kill -9 $$", "Outcome unknown", CallState::InDoubt),
];

/// Whether a sweeper has put the call in doubt before somebody goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swept {
    Yes,
    No,
}

/// A command that comes to its end after its starter was killed is told by its code; killed by a signal it stays in doubt.
async fn ends_are_told(kind: &str, swept: Swept) {
    for (tool, words, told, state) in ENDS {
        let scene = Scene::new(kind).await;
        let mut starter = scene.begin(tool, "while it runs").await;
        starter.kill().unwrap();
        assert_eq!(starter.wait().unwrap().signal(), Some(9));
        assert_eq!(scene.survivors(), 1, "{tool} {words}");
        let keeper = scene.keeper();
        scene.go_on(words).await;
        keeper.ends().await;
        if swept == Swept::Yes {
            scene.sweep().await;
        }
        let (given, stands) = scene.resume(tool).await;
        assert!(given.text.contains(told), "{kind} {tool} {words}: {given:?}");
        assert_eq!((stands, scene.traces()), (state, 1), "{kind} {tool} {words}");
    }
}

#[tokio::test]
async fn a_command_that_outlived_its_starter_is_told_by_its_code_on_sqlite() {
    ends_are_told("sqlite", Swept::No).await;
}

#[tokio::test]
async fn a_command_that_outlived_its_starter_is_told_by_its_code_on_postgres() {
    ends_are_told("postgres", Swept::No).await;
}

/// What a sweeper did meanwhile takes nothing from it.
#[tokio::test]
async fn a_command_that_a_sweeper_put_in_doubt_is_told_by_its_code() {
    for kind in ["sqlite", "postgres"] {
        ends_are_told(kind, Swept::Yes).await;
    }
}

/// Killed between the end of a command and the record of it: how it ended is on the disk, and it does not run again.
#[tokio::test]
async fn a_command_whose_result_was_not_recorded_is_told_by_its_code() {
    for kind in ["sqlite", "postgres"] {
        let scene = Scene::new(kind).await;
        let mut starter = scene.begin("bash", "before finish").await;
        scene.go_on("exit 7").await;
        assert_eq!(starter.wait().unwrap().signal(), Some(9));
        let (given, stands) = scene.resume("bash").await;
        assert!(given.text.contains(r#""exit_code":7"#), "{kind}: {given:?}");
        assert_eq!((stands, scene.traces()), (CallState::Resolved, 1), "{kind}");
    }
}

/// A command that dies with its starter, keeper and all, leaves nothing to go by: its call is in doubt.
#[tokio::test]
async fn a_command_killed_with_its_starter_is_in_doubt() {
    let scene = Scene::new("sqlite").await;
    let mut starter = scene.begin("bash", "while it runs").await;
    starter.kill().unwrap();
    starter.wait().unwrap();
    let keeper = scene.keeper();
    kill_process_group(keeper.pid, Signal::KILL).unwrap();
    keeper.ends().await;
    let (given, stands) = scene.resume("bash").await;
    assert!(given.is_error && given.text.contains("Outcome unknown"), "{given:?}");
    assert_eq!((stands, scene.traces()), (CallState::InDoubt, 0));
    assert_eq!(std::fs::read_dir(scene.path("processes")).unwrap().count(), 1, "nothing is forgotten behind our back");
    assert_eq!(scene.survivors(), 0);
    assert_eq!(std::fs::read_dir(scene.path("processes")).unwrap().count(), 0);
}

/// A command that still runs when somebody goes on is in doubt, is named as a survivor, and is not started again.
#[tokio::test]
async fn a_command_that_still_runs_is_in_doubt() {
    let scene = Scene::new("sqlite").await;
    let mut starter = scene.begin("bash", "while it runs").await;
    starter.kill().unwrap();
    starter.wait().unwrap();
    let (given, stands) = scene.resume("bash").await;
    assert!(given.text.contains("Outcome unknown"), "{given:?}");
    assert_eq!((stands, scene.traces()), (CallState::InDoubt, 0));
    assert_eq!(scene.survivors(), 1);
    let keeper = scene.keeper();
    scene.go_on("exit 0").await;
    keeper.ends().await;
    assert_eq!(scene.traces(), 1);
}

/// What the keeper says of a program that is not there is what was said without one.
#[tokio::test]
async fn a_program_that_is_not_there_fails_alike() {
    let folder = tempfile::tempdir().unwrap();
    let yaml = "tools: [{ name: work, run: { command: [/no/such/program] }, description: Works. }]";
    let config = Config::from_yaml("test.yml", yaml, &|_| None).unwrap();
    let mut texts = Vec::new();
    for kept in [Some(processes(folder.path())), None] {
        let Made::Tool(tool) = from_config(&config.tools[0], folder.path(), kept.as_ref(), None).unwrap() else {
            panic!()
        };
        let script = Script::new([calls([("work", "{}")]), says("ok")]);
        let gate = Gate::builder().policy(Policy::allow_all()).build().unwrap();
        let agent = Agent::builder("boss", script.clone()).gate(gate).shared_tool(tool).build().unwrap();
        agent.run("go").await.unwrap();
        texts.push(script.result().text);
    }
    assert!(texts[0].contains("could not be run: No such file"), "{texts:?}");
    assert_eq!(texts[0], texts[1]);
}
