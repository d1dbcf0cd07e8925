//! Live stores: tampering with rows is found, pages and late commits are not tampering.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::world::{Dice, World, now, proposal};
use crate::audit::{ExportOptions, VerifyOptions, What, export, verify, verify_store};
use crate::bell::Bell;
use crate::call::{Call, Chain, Path};
use crate::digest::EventHash;
use crate::event::{Cursor, Event, EventName};
use crate::grant::Grant;
use crate::id::{CallId, GrantId, HoldId};
use crate::limits;
use crate::memory::MemoryStore;
use crate::store::{Applied, CallFilter, EventFilter, Expect, Failure, Op, Record, Store, StoreError};
use crate::time::Time;
use crate::verdict::Effect;

/// A store that reads its log through somebody else's hands.
struct Through<F> {
    store: MemoryStore,
    hands: F,
    /// Whether it begins anew whatever cursor it is given.
    deaf: bool,
}

fn through<F: Fn(Vec<Event>) -> Vec<Event> + Send + Sync>(world: World, hands: F) -> Through<F> {
    Through { store: world.store, hands, deaf: false }
}

#[async_trait]
impl<F: Fn(Vec<Event>) -> Vec<Event> + Send + Sync> Store for Through<F> {
    async fn run(&self, op: Op) -> Result<Applied, Failure> {
        self.store.run(op).await
    }
    async fn now(&self) -> Result<Time, StoreError> {
        self.store.now().await
    }
    async fn call(&self, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
        self.store.call(id).await
    }
    async fn call_of_hold(&self, hold: HoldId) -> Result<Option<Arc<Call>>, StoreError> {
        self.store.call_of_hold(hold).await
    }
    async fn calls(&self, filter: CallFilter) -> Result<Vec<Arc<Call>>, StoreError> {
        self.store.calls(filter).await
    }
    async fn due(&self, limit: usize) -> Result<Vec<CallId>, StoreError> {
        self.store.due(limit).await
    }
    async fn grant(&self, id: GrantId) -> Result<Option<Grant>, StoreError> {
        self.store.grant(id).await
    }
    async fn grants_after(&self, after: Option<GrantId>, limit: usize) -> Result<Vec<Grant>, StoreError> {
        self.store.grants_after(after, limit).await
    }
    async fn events(&self, after: Cursor, filter: EventFilter) -> Result<Vec<Event>, StoreError> {
        let events = (self.hands)(all_events(&self.store).await?);
        let of_chain = |event: &Event| filter.chain.as_ref().is_none_or(|chain| event.chain == *chain);
        let most = filter.limit.unwrap_or(limits::PAGE_ROWS_DEFAULT);
        Ok(events
            .into_iter()
            .filter(|event| (self.deaf || event.cursor > after) && of_chain(event))
            .take(most)
            .collect())
    }
    async fn halted(&self, path: &Path) -> Result<bool, StoreError> {
        self.store.halted(path).await
    }
    async fn policy(&self) -> Result<Option<(Arc<str>, Arc<str>)>, StoreError> {
        self.store.policy().await
    }
    async fn record(&self, namespace: &str, key: &str) -> Result<Option<Record>, StoreError> {
        self.store.record(namespace, key).await
    }
    async fn records(
        &self,
        namespace: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.store.records(namespace, prefix, after, limit).await
    }
    async fn put_record(
        &self,
        namespace: &str,
        key: &str,
        value: &[u8],
        expect: Expect,
        life: Option<Duration>,
    ) -> Result<u64, Failure> {
        self.store.put_record(namespace, key, value, expect, life).await
    }
    async fn delete_record(&self, namespace: &str, key: &str, expect: Expect) -> Result<(), Failure> {
        self.store.delete_record(namespace, key, expect).await
    }
    fn bell(&self) -> &Bell<CallId> {
        self.store.bell()
    }
    fn is_shared(&self) -> bool {
        false
    }
}

async fn all_events(store: &MemoryStore) -> Result<Vec<Event>, StoreError> {
    let mut all: Vec<Event> = Vec::new();
    loop {
        let after = all.last().map_or_else(Cursor::default, |event| event.cursor);
        let page =
            store.events(after, EventFilter { limit: Some(limits::PAGE_ROWS), ..EventFilter::default() }).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

fn check(store: &dyn Store) -> Result<crate::audit::Report, crate::audit::Problem> {
    now(verify_store(store, &VerifyOptions::default()))
}

/// A world whose log is all under signature.
fn signed(seed: u64) -> World {
    let world = World::lived(seed, 80);
    world.sign();
    world
}

/// B136: an untouched store verifies and says how far it is signed.
#[test]
fn a_store_verifies_as_its_export_does() {
    let world = signed(1);
    let live = check(&world.store).unwrap();
    assert!(live.complete && live.unproven == 0);
    let exported = verify(world.export().as_slice(), &VerifyOptions::default()).unwrap();
    assert_eq!(live, exported);
    world.run(Op::Halt { agent: Some("a".into()), by: "ops".into(), reason: None }).unwrap();
    let live = check(&world.store).unwrap();
    assert_eq!((live.complete, live.unproven), (false, 1));
}

/// B136: one row altered, removed or doubled behind the store's back is found, whichever row it is.
#[test]
fn a_tampered_row_is_found_wherever_it_is() {
    let world = signed(2);
    let count = now(all_events(&world.store)).unwrap().len();
    assert!(count > 30, "{count}");
    let alter: [fn(&mut Event); 8] = [
        |event| event.body = event.body.replacen("\"at\":1", "\"at\":2", 1).into(),
        |event| event.hash = EventHash::from_bytes([9; 32]),
        |event| event.seq += 1,
        |event| event.chain = Chain("local/elsewhere".into()),
        |event| event.name = EventName::PolicyRejected,
        |event| event.at = Time(event.at.0 + 1),
        |event| event.call = Some(CallId::new()),
        |event| event.hold = Some(HoldId::new()),
    ];
    let mut store = through(world, |events| events);
    check(&store).unwrap();
    for at in 0..count {
        for (which, alter) in alter.iter().enumerate() {
            let hands = move |mut events: Vec<Event>| {
                alter(&mut events[at]);
                events
            };
            let tampered = Through { store: store.store, hands, deaf: false };
            assert!(check(&tampered).is_err(), "row {at}, alteration {which}");
            store.store = tampered.store;
        }
        let hands = move |mut events: Vec<Event>| {
            events.remove(at);
            events
        };
        let tampered = Through { store: store.store, hands, deaf: false };
        // What the last checkpoint signed cannot go. That checkpoint itself can: only a copy kept elsewhere has it.
        assert!(check(&tampered).is_err() || at == count - 1, "row {at} removed");
        store.store = tampered.store;
    }
}

/// B136: an export of a tampered store is written, and does not verify.
#[test]
fn the_export_of_a_tampered_store_does_not_verify() {
    let world = signed(3);
    let signer = Arc::clone(&world.signer);
    let tampered = through(world, |mut events| {
        events.remove(20);
        events
    });
    let mut file = Vec::new();
    now(export(&tampered, Some(&signer), &ExportOptions::default(), &mut file)).unwrap();
    let problem = verify(file.as_slice(), &VerifyOptions::default()).unwrap_err();
    assert!(matches!(problem.what, What::Gap { .. } | What::Head { .. }), "{problem}");
}

/// A store of many nodes may hand out events in another order than their chains have: no tampering.
#[test]
fn events_that_commit_late_are_put_in_order() {
    for seed in 0..40 {
        let world = signed(seed);
        let straight = check(&world.store).unwrap();
        let signer = Arc::clone(&world.signer);
        // Neighbours change places, as transactions that overlap do, and take each other's cursors.
        let shuffled = through(world, move |mut events| {
            let mut dice = Dice(seed);
            for at in 1..events.len() {
                let other = at - 1 - dice.below(3).min(at - 1);
                let (one, two) = (events[at].cursor, events[other].cursor);
                events.swap(at, other);
                events[at].cursor = one;
                events[other].cursor = two;
            }
            events
        });
        let report = check(&shuffled).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
        assert_eq!(report, straight);
        let mut file = Vec::new();
        now(export(&shuffled, Some(&signer), &ExportOptions::default(), &mut file)).unwrap();
        verify(file.as_slice(), &VerifyOptions::default()).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
    }
}

/// A checkpoint can be seen a moment before what it signs; the reading waits for it.
#[test]
fn a_checkpoint_waits_for_what_it_signs() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let mut world = World::new();
    world.one_whole_call(Some("alpha"));
    world.sign();
    let looks = AtomicUsize::new(0);
    let hands = move |mut events: Vec<Event>| {
        // The checkpoint stands first, and what it signs shows only at the fourth look.
        let mut checkpoint = events.pop().unwrap();
        checkpoint.cursor = Cursor { major: 0, minor: 1 };
        for event in &mut events {
            event.cursor.minor += 1;
        }
        if looks.fetch_add(1, Ordering::SeqCst) < 3 {
            events.clear();
        }
        events.insert(0, checkpoint);
        events
    };
    let late = through(world, hands);
    let report = check(&late).unwrap();
    assert_eq!((report.events, report.unproven), (6, 0));
}

/// A key that signs for the first time while an export runs is in no header; the export fails rather than lie.
#[test]
fn a_new_key_during_an_export_fails_it() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let mut world = World::new();
    world.one_whole_call(None);
    world.sign();
    let key = world.signer.public_key();
    let seen = AtomicBool::new(false);
    let late = through(world, move |mut events| {
        if !seen.swap(true, Ordering::SeqCst) {
            events.pop();
        }
        events
    });
    let error = now(export(&late, None, &ExportOptions::default(), &mut Vec::new())).unwrap_err();
    assert!(error.to_string().contains(&key), "{error}");
}

/// I16: many pages, and a session's export among them; memory is that of a page.
#[test]
fn a_log_of_many_pages_is_read_to_its_end() {
    let mut world = World::new();
    for round in 0..700 {
        let session = ["alpha", "beta", "gamma"][round % 3];
        world.submit(proposal(Some(session), Effect::Deny));
        world.submit(proposal(None, Effect::Allow));
        if round % 50 == 0 {
            world.sign();
        }
    }
    world.sign();
    let all = check(&world.store).unwrap();
    assert_eq!((all.events, all.complete), (2_800 + 15, true));
    let file = world.export_with(Some(&world.signer), Some("beta"));
    let report = verify(file.as_slice(), &VerifyOptions::default()).unwrap();
    let chains: Vec<_> = report.chains.iter().map(|chain| chain.events).collect();
    assert_eq!((chains, report.complete), (vec![466, 1_415], true));
}

/// A store that hands out the same events for ever is damaged, and nobody waits for its end.
#[test]
fn a_store_that_never_comes_to_an_end_is_damaged() {
    let mut world = World::new();
    world.one_whole_call(None);
    world.clock.turn(60);
    let deaf = Through { deaf: true, ..through(world, |events| events) };
    let problem = check(&deaf).unwrap_err();
    assert!(matches!(problem.what, What::Unreadable(_)), "{problem}");
}
