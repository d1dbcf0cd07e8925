//! B108, B111, B112: a session of several turns, with agents nested two deep and holds side by side, killed with
//! `kill -9` at every step that it takes, and gone on with by another process.
#![expect(clippy::print_stdout, reason = "what was counted is part of the proof")]

mod command;
mod life;
mod team;

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::sync::Arc;

use countersign::audit::{VerifyOptions, verify_store};
use countersign::call::Repeat;
use countersign::store::CallFilter;
use countersign::{Call, CallState, Store};
use countersign_agent::model::Message;
use countersign_testkit::model::{Dialect, ModelServer};
use countersign_testkit::{TestDatabase, TestPostgres, stores};
use futures::StreamExt as _;

use self::life::{Death, die_at, live};
use self::team::{AT_ONCE, CALLS, NOTES_AT_ONCE, Scene, TURNS, gate, reply, team};
use crate::bed::check_messages;

/// Every step that changes something, and how often a life without an accident takes it: it lists the session,
/// appends 26 entries, of which 3 go with the next one, and keeps 6 definitions, proposes 14 calls, one of which it claims
/// along with that, decides 9 holds, and claims, acts on and finishes what was not denied.
const STEPS: [(&str, usize); 6] =
    [("put record", 31), ("submit", 14), ("decide", 9), ("claim", 12), ("effect", 9), ("finish", 13)];

/// Sessions that are killed at once. Most of a life is waiting, above all for the lease of whoever was killed.
const SIDE_BY_SIDE: usize = 4;

/// Where a durable store is.
struct Place {
    url: String,
    _database: Option<TestDatabase>,
}

/// A place for a fresh store: a file in the folder, or a database of its own.
async fn place(kind: &str, folder: &Path) -> Place {
    if kind != "postgres" {
        let url = format!("sqlite:{}", folder.join("countersign.db").display());
        return Place { url, _database: None };
    }
    let made = tokio::task::spawn_blocking(|| TestPostgres::shared().unwrap().create_database());
    let database = made.await.unwrap().unwrap();
    Place { url: database.url().to_owned(), _database: Some(database) }
}

/// A folder in memory where there is one. What `kill -9` leaves is what the kernel has, on a disk or not: waiting for a
/// disk would prove nothing more.
fn quick_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.unwrap()
}

/// A durable store by its address, and a strict model server.
struct World {
    place: Place,
    store: Arc<dyn Store>,
    server: ModelServer,
    folder: tempfile::TempDir,
}

/// What was counted.
#[derive(Debug, Default)]
struct Counted {
    kills: usize,
    effects: usize,
    in_doubt: usize,
    asked_again: usize,
}

impl Counted {
    fn and(self, other: Counted) -> Counted {
        Counted {
            kills: self.kills + other.kills,
            effects: self.effects + other.effects,
            in_doubt: self.in_doubt + other.in_doubt,
            asked_again: self.asked_again + other.asked_again,
        }
    }
}

impl World {
    async fn new(kind: &str) -> World {
        let folder = quick_folder();
        let place = place(kind, folder.path()).await;
        let store = stores::open(&place.url).await.unwrap();
        World { place, store, server: ModelServer::answering(reply).await.unwrap(), folder }
    }

    fn scene(&self, session: &str, dialect: Dialect) -> Scene {
        let effects = self.folder.path().join("effects");
        Scene { model_url: self.server.url(), dialect, effects, session: session.to_owned() }
    }

    /// Kills a life at a step. It must die there, and of nothing else.
    async fn kill(&self, scene: &Scene, death: Death) {
        let (scene, url) = (scene.clone(), self.place.url.clone());
        let status = tokio::task::spawn_blocking(move || die_at(&scene, &url, death)).await.unwrap();
        assert_eq!(status.signal(), Some(9), "it never came by {death:?}: {status}");
    }

    /// Goes on with a session to its end, and looks at everything that is left of it.
    async fn bring_to_an_end(&self, scene: &Scene, kills: usize, counted: &mut Counted) {
        live(scene, Arc::clone(&self.store), None).await;
        counted.kills += kills;
        self.check_calls(scene, counted).await;
        self.check_history(scene, kills, counted).await;
    }

    async fn check_calls(&self, scene: &Scene, counted: &mut Counted) {
        let filter =
            CallFilter { session: Some(scene.session.as_str().into()), limit: Some(1_000), ..CallFilter::default() };
        let calls = self.store.calls(filter).await.unwrap();
        assert_eq!(calls.len(), CALLS, "no call is lost and none is proposed twice: {}", scene.session);
        let lines = std::fs::read_to_string(&scene.effects).unwrap_or_default();
        for call in calls {
            let id = call.id.to_string();
            let effects = lines.lines().filter(|line| *line == id).count();
            check_effects(&call, effects);
            counted.effects += effects;
            counted.in_doubt += usize::from(call.state == CallState::InDoubt);
        }
    }

    /// Nothing is asked again but what a kill kept from being written down, and the providers take every history.
    async fn check_history(&self, scene: &Scene, kills: usize, counted: &mut Counted) {
        let mark = format!("session {};", scene.session);
        let mut asked: HashMap<(String, usize), usize> = HashMap::new();
        for received in self.server.received().iter().filter(|received| received.text.contains(&mark)) {
            assert_eq!(received.refused, None, "{}", received.text);
            *asked.entry((received.model().to_owned(), received.turns())).or_default() += 1;
        }
        assert_eq!(asked.len(), TURNS, "{asked:?}");
        let again = asked.values().sum::<usize>() - TURNS;
        assert!(again <= kills * AT_ONCE, "{again} turns were asked for again after {kills} kills: {asked:?}");
        counted.asked_again += again;
        let agent = team(scene, &gate(Arc::clone(&self.store)), || || {});
        let messages = agent.session(scene.session.as_str()).messages().await.unwrap();
        check_messages(&messages);
        assert!(matches!(messages.last(), Some(Message::Model(said)) if said.text == "all done"), "{messages:?}");
    }
}

/// One effect for each approved call; of a call in doubt nobody knows; a call that may repeat may have.
fn check_effects(call: &Call, effects: usize) {
    let expected = match (call.state, call.repeat) {
        _ if call.facts.tool.delegate().is_some() => 0..=0,
        (CallState::Succeeded, Repeat::AtMostOnce) => 1..=1,
        (CallState::InDoubt, Repeat::AtMostOnce) => 0..=1,
        (CallState::Succeeded, _) => 1..=2,
        (CallState::Denied, _) => 0..=0,
        (state, _) => panic!("{} is {state}", call.facts.tool),
    };
    assert!(expected.contains(&effects), "{} {} ran {effects} times", call.facts.tool, call.facts.arguments);
}

/// How many calls that must not be repeated may run when somebody dies there: none before the first is claimed.
fn may_run_at(death: Death) -> usize {
    match (death.step, death.side, death.number) {
        ("put record" | "submit" | "decide" | "claim", "before", 1) => 0,
        _ => NOTES_AT_ONCE,
    }
}

/// Kills one session before and one after each time that the step is taken.
async fn kill_at_every(step: &'static str, kind: &str) {
    let world = World::new(kind).await;
    let times = STEPS.into_iter().find(|(name, _)| *name == step).unwrap().1;
    let deaths = (1..=times).flat_map(|number| ["before", "after"].map(|side| Death { step, side, number }));
    let killed = futures::stream::iter(deaths).map(|death| {
        let world = &world;
        async move {
            let dialect = Dialect::ALL[(death.number - 1) % Dialect::ALL.len()];
            let scene = world.scene(&format!("{step}-{}-{}", death.side, death.number), dialect);
            world.kill(&scene, death).await;
            let mut counted = Counted::default();
            world.bring_to_an_end(&scene, 1, &mut counted).await;
            assert!(counted.in_doubt <= may_run_at(death), "{death:?} left {} in doubt", counted.in_doubt);
            counted
        }
    });
    let each: Vec<Counted> = killed.buffer_unordered(SIDE_BY_SIDE).collect().await;
    let counted = each.into_iter().fold(Counted::default(), Counted::and);
    verify_store(&*world.store, &VerifyOptions::default()).await.unwrap();
    println!("{kind}, killed at each `{step}`: {counted:?}");
    assert_eq!(counted.kills, times * 2);
}

macro_rules! killed_at {
    ($($name:ident: $step:literal,)*) => {$(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn loses_nothing_on_sqlite() {
                super::kill_at_every($step, "sqlite").await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn loses_nothing_on_postgres() {
                super::kill_at_every($step, "postgres").await;
            }
        }
    )*};
}

killed_at! {
    a_kill_at_each_proposal: "submit",
    a_kill_at_each_decision: "decide",
    a_kill_at_each_claim: "claim",
    a_kill_at_each_effect: "effect",
    a_kill_at_each_finish: "finish",
}

/// B111: killed at each append, the session goes on with a history that strict providers take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_each_append_the_history_stays_whole() {
    kill_at_every("put record", "sqlite").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_each_append_the_history_stays_whole_on_postgres() {
    kill_at_every("put record", "postgres").await;
}

/// The table above is what a life really does, and one without an accident leaves no doubt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_undisturbed_life_takes_the_steps_that_kills_are_made_at() {
    for dialect in Dialect::ALL {
        let world = World::new("sqlite").await;
        let scene = world.scene("calm", dialect);
        let steps = live(&scene, Arc::clone(&world.store), None).await;
        let taken = STEPS.map(|(step, _)| (step, steps.get(step).copied().unwrap_or_default()));
        assert_eq!(taken, STEPS, "{dialect:?}");
        let mut counted = Counted::default();
        world.bring_to_an_end(&scene, 0, &mut counted).await;
        assert_eq!((counted.effects, counted.in_doubt, counted.asked_again), (9, 0, 0), "{dialect:?}");
    }
}

/// A session whose every life ends right after its first append comes to its end all the same.
async fn one_append_a_life(kind: &str) {
    let world = World::new(kind).await;
    let scene = world.scene("again and again", Dialect::Anthropic);
    let death = Death { step: "put record", side: "after", number: 1 };
    // Threads write side by side, so a life may leave two entries: this many lives there always are.
    let kills = 10;
    for _ in 0..kills {
        world.kill(&scene, death).await;
    }
    let mut counted = Counted::default();
    world.bring_to_an_end(&scene, kills, &mut counted).await;
    assert!(counted.in_doubt <= kills * NOTES_AT_ONCE, "{counted:?}");
    println!("{kind}, killed after each append: {counted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_killed_again_and_again_comes_to_its_end_on_sqlite() {
    one_append_a_life("sqlite").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_killed_again_and_again_comes_to_its_end_on_postgres() {
    one_append_a_life("postgres").await;
}
