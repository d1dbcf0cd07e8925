//! One life of a process: goes on with a session as far as it gets.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use countersign::store::CallFilter;
use countersign::testing::{Fault, FaultStore};
use countersign::{Answer, Gate, Hold, Store, Who};
use countersign_agent::{Agent, RunError};
use countersign_testkit::model::Dialect;
use countersign_testkit::stores;
use rustix::process::{Signal, getpid, kill_process};

use super::team::{DENIED, Scene, gate, team};

/// Says to this program that it is one life of another: its words are the scene.
const LIFE: &str = "COUNTERSIGN_AGENT_LIFE";

/// The test below, as the test program names it.
const TEST: &str = "kill::life::one_life_of_a_process";

/// Where a life ends: at the n-th time that it comes by a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    pub(super) step: &'static str,
    pub(super) side: &'static str,
    pub(super) number: usize,
}

/// How often each step was come by.
pub(super) type Steps = BTreeMap<&'static str, usize>;

/// Goes on with the session until both of its runs are done, deciding every hold.
pub(super) async fn live(scene: &Scene, store: Arc<dyn Store>, death: Option<Death>) -> Steps {
    let steps: Arc<Mutex<Steps>> = Arc::default();
    let seen = Arc::clone(&steps);
    let pass = move |step: &'static str| {
        let mut seen = seen.lock().unwrap();
        let number = seen.entry(step).or_default();
        *number += 1;
        let dies = death.is_some_and(|death| death.step == step && death.number == *number);
        death.filter(|_| dies).map(|death| death.side)
    };
    let at_store = pass.clone();
    let store = FaultStore::new(store, move |_, step| match at_store(step) {
        None => Fault::None,
        Some("before") => die(),
        Some(_) => Fault::After(|| die()),
    });
    let gate = gate(Arc::new(store));
    let decider = tokio::spawn(decide_all(gate.clone(), scene.session.clone()));
    let acted = move || -> fn() {
        match pass("effect") {
            None => || {},
            Some("before") => die(),
            Some(_) => || die(),
        }
    };
    go_on(&team(scene, &gate, acted), &scene.session).await;
    decider.abort();
    let steps = steps.lock().unwrap();
    steps.clone()
}

/// As `kill -9` does it: nothing is flushed, dropped or said.
pub(super) fn die() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}

async fn go_on(agent: &Agent, session: &str) {
    let session = agent.session(session);
    let first = match session.resume().await {
        Err(RunError::NoSession(_)) => session.run("go").await,
        resumed => resumed,
    };
    let first = first.unwrap();
    let last = match &*first.run {
        "r1" => {
            assert_eq!((&*first.text, &*first.agent), ("first done", "boss"));
            session.run("once more").await.unwrap()
        }
        _ => first,
    };
    assert_eq!((&*last.text, &*last.agent, &*last.run), ("all done", "audit", "r2"));
}

/// Decides each hold of the session as soon as it opens. All but one are approved.
async fn decide_all(gate: Gate, session: String) {
    loop {
        let rung = gate.store().bell().listen_any();
        let filter = CallFilter { holding: true, session: Some(session.as_str().into()), ..CallFilter::default() };
        for call in gate.store().calls(filter).await.unwrap() {
            let Some(hold) = call.open_hold().and_then(|hold| Hold::of(&call, hold.id)) else { continue };
            let n: u64 = call.facts.arguments.field("n").unwrap().read().unwrap();
            let answer = if n == DENIED { Answer::deny("no") } else { Answer::approve() };
            let _ = gate.decide(hold.id, hold.decision(Who::person("ann"), "test", answer)).await;
        }
        rung.await;
    }
}

/// Starts this program again as a life that ends where it is told, and waits until it has.
pub(super) fn die_at(scene: &Scene, store: &str, death: Death) -> std::process::ExitStatus {
    let words = [
        store,
        &scene.model_url,
        &format!("{:?}", scene.dialect),
        &scene.effects.display().to_string(),
        &scene.session,
        death.step,
        death.side,
        &death.number.to_string(),
    ]
    .join("\n");
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args([TEST, "--exact", "--nocapture"]).env(LIFE, words);
    command.stdout(std::process::Stdio::null()).status().unwrap()
}

/// A life that its parent began. Without one it has nothing to go on with, and is over.
#[test]
fn one_life_of_a_process() {
    let Ok(words) = std::env::var(LIFE) else { return };
    let words: Vec<&'static str> = words.leak().lines().collect();
    let [store, model_url, dialect, effects, session, step, side, number] = words[..] else { panic!("{words:?}") };
    let dialect = Dialect::ALL.into_iter().find(|known| format!("{known:?}") == dialect).unwrap();
    let (model_url, session) = (model_url.to_owned(), session.to_owned());
    let scene = Scene { model_url, dialect, effects: PathBuf::from(effects), session };
    let death = Death { step, side, number: number.parse().unwrap() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { live(&scene, stores::open(store).await.unwrap(), Some(death)).await });
}
