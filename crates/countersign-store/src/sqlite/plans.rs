//! Every read finds its rows by an index, so that a million old rows cost nothing.

use countersign::call::CallState;
use countersign::digest::ArgumentDigest;
use countersign::id::CallId;
use countersign::store::{CallFilter, Order};
use rusqlite::Connection;

use super::listing::{self, Way};
use super::{events, migrate, read, state};

/// A new file with our schema.
fn fresh() -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let path = super::file::prepare(&folder.path().join("countersign.db")).unwrap();
    (folder, migrate::open_writer(&path).unwrap())
}

/// How SQLite would answer a statement.
fn plan(connection: &Connection, sql: &str) -> String {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    for at in 1..=statement.parameter_count() {
        statement.raw_bind_parameter(at, 1).unwrap();
    }
    let mut rows = statement.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        steps.push(row.get::<_, String>(3).unwrap());
    }
    steps.join("; ")
}

#[track_caller]
fn check(connection: &Connection, sql: &str, index: &str) {
    let plan = plan(connection, sql);
    assert!(plan.contains(index), "`{sql}` must use {index}: {plan}");
    assert!(!plan.contains("SCAN calls") && !plan.contains("SCAN e") && !plan.contains("SCAN grants"), "{sql}: {plan}");
}

/// I16: lookups inside a transaction are by index.
#[test]
fn transitions_find_their_rows_by_index() {
    let (_folder, connection) = fresh();
    check(&connection, state::OF_HOLD, "SEARCH calls USING INTEGER PRIMARY KEY");
    check(&connection, state::BY_KEY, "calls_key");
    check(&connection, state::DENIAL, "calls_denied");
    check(&connection, state::DOUBT, "calls_doubt");
    // Whether there is any at all: the first row of an index that holds nothing else.
    assert!(plan(&connection, state::ANY_DOUBT).contains("SCAN calls USING COVERING INDEX calls_doubt"));
    assert!(plan(&connection, state::ANY_DENIAL).contains("SCAN calls USING COVERING INDEX calls_denied"));
    check(&connection, state::GRANTS, "grants_target");
    check(&connection, state::MOVED, "INTEGER PRIMARY KEY");
    check(&connection, read::DUE, "calls_due");
    assert!(!plan(&connection, read::DUE).contains("TEMP B-TREE"), "due calls come sorted");
    check(&connection, events::ENDS_OF_CALL, "sqlite_autoindex_calls_1");
    check(&connection, listing::OLDEST_FROM, "sqlite_autoindex_calls_1");
    check(&connection, listing::NEWEST_FROM, "sqlite_autoindex_calls_1");
    for (condition, index) in [
        (events::TAIL, "INTEGER PRIMARY KEY"),
        (events::TAIL_OF_CALL, "events_chain (<expr>=? AND chain=? AND rowid>?)"),
        (events::TAIL_OF_CHAIN, "events_chain (<expr>=? AND chain=? AND rowid>?)"),
    ] {
        let sql = events::events_where(condition);
        check(&connection, &sql, index);
        assert!(!plan(&connection, &sql).contains("TEMP B-TREE"), "events come sorted");
    }
}

/// I16: each filter is answered by the index that leaves least to look at, already sorted.
#[test]
fn listings_find_their_rows_by_index() {
    let (_folder, connection) = fresh();
    let filter = CallFilter::default;
    let digest = Some(ArgumentDigest::of(b"x"));
    let of = |state| CallFilter { state: Some(state), ..filter() };
    let cases = [
        (CallFilter { holding: true, ..filter() }, "calls_holding"),
        (
            CallFilter { holding: true, session: Some("s".into()), principal: Some("p".into()), ..filter() },
            "calls_holding",
        ),
        (CallFilter { holding: true, argument_digest: digest, ..filter() }, "calls_holding"),
        (of(CallState::Pending), "calls_holding"),
        (CallFilter { argument_digest: digest, ..filter() }, "calls_arguments (<expr>=? AND <expr>=? AND rowid>?)"),
        (
            CallFilter { session: Some("s".into()), ..of(CallState::Denied) },
            "calls_chain (<expr>=? AND chain=? AND rowid>?)",
        ),
        (
            CallFilter { principal: Some("p".into()), ..filter() },
            "calls_principal (<expr>=? AND principal=? AND rowid>?)",
        ),
        (of(CallState::InDoubt), "calls_seldom"),
        (of(CallState::Denied), "calls_seldom"),
        (of(CallState::Executing), "calls_due"),
        (CallFilter { after: Some(CallId::new()), ..filter() }, "sqlite_autoindex_calls_1"),
    ];
    let sql_of = |filter: &CallFilter| match Way::of(filter) {
        Way::Whole(index) => listing::whole(index, filter).0,
        Way::Stretches(by) => listing::in_stretch(by, filter).0,
    };
    let newest = cases.clone().map(|(filter, index)| (CallFilter { order: Order::Newest, ..filter }, index));
    for (filter, index) in cases.into_iter().chain(newest) {
        let plan = plan(&connection, &sql_of(&CallFilter { after: Some(CallId::new()), ..filter.clone() }));
        let index = match filter.order {
            Order::Oldest => index.to_owned(),
            Order::Newest => index.replace("rowid>?", "rowid<?"),
        };
        assert!(plan.contains(&index), "{filter:?}: {plan}");
        // The few calls that are on their way are sorted after they are found.
        let sorted = index != "calls_due";
        assert_eq!(plan.contains("TEMP B-TREE"), !sorted, "{filter:?}: {plan}");
        for state in CallState::ALL {
            // Every filter can be prepared with every state.
            connection.prepare(&sql_of(&CallFilter { state: Some(state), ..filter.clone() })).unwrap();
        }
    }
}
