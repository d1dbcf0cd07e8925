//! Records: bytes under a name, with compare-and-set.

use std::sync::Arc;
use std::time::Duration;

use crate::store::{Expect, Record};
use crate::testing::{TestStore, rejection};
use crate::transition::Rejection;

/// DESIGN 6: a write happens only if the record is as its writer expects.
pub async fn a_record_is_written_only_as_expected(test: &dyn TestStore) {
    let store = test.store();
    let put = |value: &'static [u8], expect| {
        let store = Arc::clone(&store);
        async move { store.put_record("users", "ann", value, expect, None).await }
    };
    assert_eq!(rejection(put(b"x", Expect::Version(1)).await), Rejection::Conflict);
    assert_eq!(rejection(put(b"x", Expect::Version(0)).await), Rejection::Conflict);
    assert_eq!(put(b"one", Expect::Absent).await.unwrap(), 1);
    assert_eq!(rejection(put(b"x", Expect::Absent).await), Rejection::Conflict);
    assert_eq!(put(b"two", Expect::Version(1)).await.unwrap(), 2);
    assert_eq!(rejection(put(b"x", Expect::Version(1)).await), Rejection::Conflict);
    assert_eq!(put(b"three\0\xff", Expect::Any).await.unwrap(), 3);
    let expected = Record { key: "ann".into(), value: b"three\0\xff".to_vec(), version: 3, expires_at: None };
    assert_eq!(store.record("users", "ann").await.unwrap(), Some(expected));
    assert_eq!(store.record("tokens", "ann").await.unwrap(), None);
    let delete = |expect| store.delete_record("users", "ann", expect);
    assert_eq!(rejection(delete(Expect::Version(2)).await), Rejection::Conflict);
    assert_eq!(rejection(delete(Expect::Absent).await), Rejection::Conflict);
    delete(Expect::Version(3)).await.unwrap();
    assert_eq!(store.record("users", "ann").await.unwrap(), None);
    delete(Expect::Any).await.unwrap();
    assert_eq!(put(b"anew", Expect::Absent).await.unwrap(), 1);
}

/// DESIGN 6: an expired record is as if it had never been.
pub async fn an_expired_record_is_gone(test: &dyn TestStore) {
    let store = test.store();
    let life = Some(Duration::from_secs(60));
    for key in ["a", "b"] {
        store.put_record("tokens", key, b"x", Expect::Absent, life).await.unwrap();
    }
    store.put_record("tokens", "c", b"x", Expect::Absent, None).await.unwrap();
    let found = store.record("tokens", "a").await.unwrap().unwrap();
    let now = store.now().await.unwrap();
    assert!(found.expires_at.is_some_and(|at| at > now));
    test.advance(Duration::from_secs(60)).await;
    assert_eq!(store.record("tokens", "a").await.unwrap(), None);
    let left: Vec<String> = keys(&store.records("tokens", "", None, 10).await.unwrap());
    assert_eq!(left, ["c"]);
    let stale = store.put_record("tokens", "a", b"y", Expect::Version(1), None).await;
    assert_eq!(rejection(stale), Rejection::Conflict);
    assert_eq!(rejection(store.delete_record("tokens", "b", Expect::Version(1)).await), Rejection::Conflict);
    assert_eq!(store.put_record("tokens", "a", b"y", Expect::Absent, None).await.unwrap(), 1);
    let found = store.record("tokens", "a").await.unwrap().unwrap();
    assert_eq!((found.version, found.expires_at), (1, None));
}

fn keys(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| record.key.clone()).collect()
}

/// DESIGN 6: a prefix is text, not a pattern, and pages follow each other by key.
pub async fn records_are_listed_by_prefix_in_pages(test: &dyn TestStore) {
    let store = test.store();
    for key in ["a", "a%", "a%b", "a/1", "a/2", "a/3", "a_", "b", "ä", "a/\u{10ffff}"] {
        store.put_record("n", key, key.as_bytes(), Expect::Absent, None).await.unwrap();
    }
    store.put_record("m", "a/9", b"", Expect::Absent, None).await.unwrap();
    let list = |prefix: &'static str, after: Option<&'static str>, limit| {
        let store = Arc::clone(&store);
        async move { keys(&store.records("n", prefix, after, limit).await.unwrap()) }
    };
    assert_eq!(list("a/", None, 10).await, ["a/1", "a/2", "a/3", "a/\u{10ffff}"]);
    assert_eq!(list("a%", None, 10).await, ["a%", "a%b"]);
    assert_eq!(list("a_", None, 10).await, ["a_"]);
    assert_eq!(list("a/", None, 2).await, ["a/1", "a/2"]);
    assert_eq!(list("a/", Some("a/2"), 2).await, ["a/3", "a/\u{10ffff}"]);
    assert_eq!(list("a/", Some("a/\u{10ffff}"), 2).await, [""; 0]);
    assert_eq!(list("a/", Some("A"), 1).await, ["a/1"], "a cursor before the prefix");
    assert_eq!(list("", None, 100).await.len(), 10);
    assert_eq!(list("zzz", None, 100).await, [""; 0]);
}
