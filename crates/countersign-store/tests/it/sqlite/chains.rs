//! Chains that grow side by side through a long log, read one at a time.

use countersign::call::Chain;
use countersign::event::{Cursor, Draft, Event, EventName};
use countersign::store::{EventFilter, Op, Store};
use futures::future::join_all;

use super::TestSqlite;

fn note(chain: &str) -> Op {
    Op::Note { chain: Chain(chain.into()), draft: Draft::new(EventName::PolicyLoaded) }
}

/// Reads a filter's events from a place on, a page at a time.
async fn read(store: &dyn Store, filter: &EventFilter, mut after: Cursor) -> Vec<Event> {
    let mut found = Vec::new();
    loop {
        let page = store.events(after, filter.clone()).await.unwrap();
        let Some(last) = page.last() else { return found };
        after = last.cursor;
        found.extend(page);
    }
}

fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.seq).collect()
}

/// I16: the index of chains goes by stretches of the log. No page is short or double where one stretch ends, nor where
/// a chain has nothing in it.
#[tokio::test]
async fn a_chain_is_read_whole_across_a_long_log() {
    let test = TestSqlite::new().await;
    let store = test.sqlite();
    for (chain, count) in [("local/rare", 2), ("local/busy", 1_500), ("local/other", 1_500), ("local/rare", 3)] {
        join_all((0..count).map(|_| store.run(note(chain)))).await.into_iter().for_each(|noted| drop(noted.unwrap()));
    }
    let of = |chain: &str| EventFilter { chain: Some(Chain(chain.into())), limit: Some(700), ..EventFilter::default() };
    let busy = read(&*store, &of("local/busy"), Cursor::default()).await;
    assert_eq!(numbers(&busy), (1..=1_500).collect::<Vec<_>>());
    let rare = read(&*store, &of("local/rare"), Cursor::default()).await;
    assert_eq!(numbers(&rare), [1, 2, 3, 4, 5]);
    for at in [0, 1, 1_021, 1_022, 1_023, 1_498] {
        let rest = read(&*store, &of("local/busy"), busy[at].cursor).await;
        assert_eq!(rest, busy[at + 1..], "after {}", busy[at].seq);
    }
    assert_eq!(read(&*store, &of("local/rare"), busy[9].cursor).await, rare[2..]);
    assert_eq!(read(&*store, &of("local/busy"), busy[1_499].cursor).await, []);
    let session = EventFilter { session: Some("rare".into()), limit: Some(2), ..EventFilter::default() };
    assert_eq!(read(&*store, &session, Cursor::default()).await, rare);
}
