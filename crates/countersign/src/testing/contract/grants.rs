//! What is remembered: grants, and denials within a run.

use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::call::{Call, CallState, Repeat};
use crate::digest::DefinitionDigest;
use crate::grant::{Covers, Grant, Remember, RememberCovers, Scope};
use crate::hold::{Answer, Who};
use crate::json::Json;
use crate::kept::{Keep, KeptGrants};
use crate::limits;
use crate::place::Place;
use crate::refusal::RefusalKind;
use crate::store::{Failure, Op, Store};
use crate::testing::{Proposal, TestStore, claim, claimant, decide, decide_with, grant_for, proposal, submit};

async fn make(store: &dyn Store, grant: Grant) -> Grant {
    *store.run(Op::Grant(Box::new(grant))).await.unwrap().grant.unwrap()
}

fn remember(remember: Remember) -> Answer {
    Answer::Approve { arguments: None, payload: None, remember: Some(remember) }
}

fn pay(session: &str) -> Proposal {
    proposal("pay", json!({"n": 1}), session)
}

/// B57, B59: an approval that asks for it makes a grant; the session's own is found before a global one.
pub async fn a_session_grant_comes_before_a_global_one(test: &dyn TestStore) {
    let store = test.store();
    let first = submit(&*store, pay("s")).await;
    let global = make(&*store, grant_for(&first, store.now().await.unwrap())).await;
    let decided = store.run(decide(&first, "ann", remember(Remember::session()))).await.unwrap();
    let made = *decided.grant.unwrap();
    assert_eq!(made.scope, Scope::Session { session: "s".into() });
    assert_eq!(store.grant(made.id).await.unwrap(), Some(made.clone()));
    assert_eq!(store.grants().await.unwrap(), [global.clone(), made.clone()]);
    assert_eq!(store.grants_after(None, 1).await.unwrap(), slice::from_ref(&global));
    assert_eq!(store.grants_after(Some(global.id), 9).await.unwrap(), slice::from_ref(&made));
    assert_eq!(store.grants_after(Some(made.id), 9).await.unwrap(), []);
    assert_eq!(submit(&*store, pay("s")).await.grant, Some(made.id));
    let elsewhere = submit(&*store, pay("t")).await;
    assert_eq!((elsewhere.state, elsewhere.grant), (CallState::Allowed, Some(global.id)));
}

/// B70: a grant kept in mind counts like any other for whoever has it in mind, and no store ever has it.
pub async fn a_grant_kept_in_mind_is_never_stored(test: &dyn TestStore) {
    let store = test.store();
    let kept = Arc::new(KeptGrants::default());
    let first = submit(&*store, pay("s")).await;
    let wish = Remember { uses: Some(1), ..Remember::session() };
    let in_mind = decide_with(&first, "ann", remember(wish), |deciding| deciding.keep = Keep::InMind);
    let made = *store.run(in_mind).await.unwrap().grant.unwrap();
    assert_eq!((store.grants().await.unwrap(), store.grant(made.id).await.unwrap()), (Vec::new(), None));
    assert_eq!(submit(&*store, pay("s")).await.state, CallState::Pending, "who has it not in mind is asked");
    kept.keep(made.clone(), made.made_at);
    let next = || async { store.run(kept.beside(pay("s").op())).await.unwrap().call.unwrap() };
    let (one, two, three) = (next().await, next().await, next().await);
    assert_eq!((one.state, one.grant), (CallState::Allowed, Some(made.id)));
    let run = |call: &Call| Op::Claim { call: call.id, claimant: claimant("w"), policy: crate::Policy::ask_all() };
    let running = store.run(kept.beside(run(&one))).await.unwrap().call.unwrap();
    assert_eq!(running.state, CallState::Executing);
    assert_eq!(kept.get(made.id).unwrap().uses_left, Some(0), "a use is consumed at claim");
    let spent = store.run(kept.beside(run(&two))).await.unwrap().call.unwrap();
    assert_eq!(spent.state, CallState::Lapsed);
    let forgotten = store.run(run(&three)).await.unwrap().call.unwrap();
    assert_eq!(forgotten.refusal.as_ref().unwrap().kind, RefusalKind::Revoked, "its grant went with its process");
    let revoke = Op::Revoke { grant: made.id, by: Who::person("olga") };
    store.run(kept.beside(revoke)).await.unwrap();
    assert!(kept.get(made.id).unwrap().revoked.is_some());
    assert_eq!(next().await.state, CallState::Pending);
    assert_eq!(store.grants().await.unwrap(), [], "nothing of it was ever written");
}

/// B61: uses are consumed in the claim's own transaction, once per call however many attempts it takes.
pub async fn uses_are_consumed_at_claim(test: &dyn TestStore) {
    let store = test.store();
    let next = || pay("s").repeat(Repeat::Idempotent);
    let first = submit(&*store, next()).await;
    let grant = Grant { uses_left: Some(1), ..grant_for(&first, store.now().await.unwrap()) };
    let grant = make(&*store, grant).await;
    let (one, two) = (submit(&*store, next()).await, submit(&*store, next()).await);
    assert_eq!((one.grant, two.grant), (Some(grant.id), Some(grant.id)), "allowed, not yet used");
    assert_eq!(claim(&*store, one.id, "w").await.unwrap().call.unwrap().state, CallState::Executing);
    assert_eq!(store.grant(grant.id).await.unwrap().unwrap().uses_left, Some(0));
    let over = claim(&*store, two.id, "w").await.unwrap().call.unwrap();
    assert_eq!((over.state, over.refusal.as_ref().unwrap().kind), (CallState::Lapsed, RefusalKind::Lapsed));
    test.advance(limits::LEASE).await;
    assert_eq!(claim(&*store, one.id, "w2").await.unwrap().call.unwrap().lease.as_ref().unwrap().attempt, 2);
    assert_eq!(submit(&*store, next()).await.state, CallState::Pending, "used up");
}

/// B69: a revoke acts at claim.
pub async fn a_revoked_grant_stops_the_claim(test: &dyn TestStore) {
    let store = test.store();
    let first = submit(&*store, pay("s")).await;
    let grant = make(&*store, grant_for(&first, store.now().await.unwrap())).await;
    let allowed = submit(&*store, pay("s")).await;
    let revoke = || Op::Revoke { grant: grant.id, by: Who::person("olga") };
    let revoked = store.run(revoke()).await.unwrap();
    assert_eq!(revoked.grant.unwrap().revoked.unwrap().1, "olga".into());
    assert!(store.run(revoke()).await.unwrap().replayed);
    let stopped = claim(&*store, allowed.id, "w").await.unwrap().call.unwrap();
    assert_eq!((stopped.state, stopped.refusal.as_ref().unwrap().kind), (CallState::Lapsed, RefusalKind::Revoked));
    assert_eq!(submit(&*store, pay("s")).await.state, CallState::Pending);
    assert_eq!(store.grants().await.unwrap().len(), 1, "ended ones are listed too");
}

/// B60: a grant covers its principal, its agents' tree, its definition and its arguments, and nothing beside.
pub async fn a_grant_never_leaves_its_scope(test: &dyn TestStore) {
    let store = test.store();
    let first = submit(&*store, pay("s").agent("clerk")).await;
    make(&*store, grant_for(&first, store.now().await.unwrap())).await;
    let outside = [
        pay("s").agent("clerk").principal("bob"),
        pay("s").agent("other"),
        pay("s"),
        proposal("pay", json!({"n": 2}), "s").agent("clerk"),
        proposal("pay2", json!({"n": 1}), "s").agent("clerk"),
        pay("s").agent("clerk").server("bank"),
        pay("s").agent("clerk").definition(DefinitionDigest::of(b"new")),
    ];
    for next in outside {
        let call = submit(&*store, next).await;
        assert_eq!((call.state, call.grant), (CallState::Pending, None), "{:?}", call.facts);
    }
    assert_eq!(submit(&*store, pay("s").agent("clerk")).await.state, CallState::Allowed);
    let without = |call: Proposal| call.agent("clerk").path(|path| path.session = None);
    assert_eq!(submit(&*store, without(pay("s"))).await.state, CallState::Allowed, "global is global");
}

/// B48, B62: wide grants are found by (server, tool), and look at the fields they name.
pub async fn a_wide_grant_covers_its_tool_on_its_server(test: &dyn TestStore) {
    let store = test.store();
    let with = |path: &str, n: u32| proposal("c", json!({"path": path, "n": n}), "s").server("a_b");
    let first = submit(&*store, with("x", 1)).await;
    let fields = BTreeMap::from([("path".to_owned(), Json::string("x"))]);
    let base = grant_for(&first, store.now().await.unwrap());
    make(&*store, Grant { covers: Covers::Fields(fields), ..base.clone() }).await;
    assert_eq!(submit(&*store, with("x", 2)).await.state, CallState::Allowed);
    assert_eq!(submit(&*store, with("y", 2)).await.state, CallState::Pending);
    let whole = Grant { id: crate::id::GrantId::new(), covers: Covers::Tool, ..base };
    make(&*store, whole).await;
    assert_eq!(submit(&*store, with("y", 3)).await.state, CallState::Allowed);
    let joined = proposal("b_c", json!({"path": "x", "n": 1}), "s").server("a");
    assert_eq!(submit(&*store, joined).await.state, CallState::Pending);
    assert_eq!(submit(&*store, proposal("c", json!({"path": "x", "n": 1}), "s")).await.state, CallState::Pending);
}

/// B67: a folder grant looks at where the tool says an argument leads, at submit and once more at claim; for its own
/// tool only, so that a grant to read never covers a write.
pub async fn a_folder_grant_covers_what_lies_below(test: &dyn TestStore) {
    let store = test.store();
    let at = |tool: &str, path: &str| {
        // The argument's own spelling says nothing: it may be a link.
        proposal(tool, json!({"path": "link", "to": path}), "s").place("path", Place::File(path.into()))
    };
    let first = submit(&*store, at("read", "/a/b/one")).await;
    let wish = Remember { covers: RememberCovers::Folder("path".into()), ..Remember::session() };
    let made = store.run(decide(&first, "ann", remember(wish))).await.unwrap().grant.unwrap();
    assert_eq!(store.grant(made.id).await.unwrap().as_ref(), Some(&*made), "as it was made");
    for inside in ["/a/b/one", "/a/b/two", "/a/b/deep/er"] {
        let call = submit(&*store, at("read", inside)).await;
        assert_eq!((call.state, call.grant), (CallState::Allowed, Some(made.id)), "{inside}");
        assert_eq!(claim(&*store, call.id, "w").await.unwrap().call.unwrap().state, CallState::Executing);
    }
    let unsaid = proposal("read", json!({"path": "/a/b/two"}), "s");
    let elsewhere = proposal("read", json!({"path": "x"}), "s").place("other", Place::File("/a/b/two".into()));
    let outside = ["/a/c/one", "/a/bc/one", "/a/b", "/a/b/../c", "b/one", ""].map(|path| at("read", path));
    for next in outside.into_iter().chain([at("write", "/a/b/two"), unsaid, elsewhere]) {
        let call = submit(&*store, next).await;
        assert_eq!((call.state, call.grant), (CallState::Pending, None), "{:?}", call.facts);
    }
}

/// B69: every grant ends.
pub async fn an_expired_grant_covers_nothing(test: &dyn TestStore) {
    let store = test.store();
    let first = submit(&*store, pay("s")).await;
    let now = store.now().await.unwrap();
    let soon = now.after(Duration::from_secs(60));
    make(&*store, Grant { expires_at: soon, ..grant_for(&first, now) }).await;
    let allowed = submit(&*store, pay("s")).await;
    assert_eq!(allowed.state, CallState::Allowed);
    test.advance(Duration::from_secs(60)).await;
    assert_eq!(submit(&*store, pay("s")).await.state, CallState::Pending);
    let late = claim(&*store, allowed.id, "w").await.unwrap().call.unwrap();
    assert_eq!(late.state, CallState::Lapsed);
}

/// B69: a grant that is saved again does not come back to life.
pub async fn no_save_undoes_a_revoke(test: &dyn TestStore) {
    let store = test.store();
    let first = submit(&*store, pay("s")).await;
    let grant = make(&*store, grant_for(&first, store.now().await.unwrap())).await;
    store.run(Op::Revoke { grant: grant.id, by: Who::person("olga") }).await.unwrap();
    for version in [0, 1, 7] {
        let saved = store.run(Op::Grant(Box::new(Grant { version, ..grant.clone() }))).await;
        assert!(matches!(saved, Err(Failure::Store(_))), "version {version}");
    }
    assert!(store.grant(grant.id).await.unwrap().unwrap().revoked.is_some());
    assert_eq!(submit(&*store, pay("s")).await.state, CallState::Pending);
}

/// B12: an identical call after an approver's no is refused in the same run, without asking again.
pub async fn a_denial_is_remembered_in_its_run(test: &dyn TestStore) {
    let store = test.store();
    let denied = submit(&*store, pay("s").run("r")).await;
    store.run(decide(&denied, "ann", Answer::deny("never"))).await.unwrap();
    let again = submit(&*store, pay("s").run("r")).await;
    assert_eq!(again.state, CallState::Denied);
    assert_eq!(again.refusal.as_ref().unwrap().reason.as_deref(), Some("never"));
    assert!(again.holds.is_empty());
    let elsewhere = [pay("s").run("q"), pay("s"), pay("t").run("r"), pay("s").run("r").principal("bob")];
    for next in elsewhere {
        assert_eq!(submit(&*store, next).await.state, CallState::Pending);
    }
    let other = proposal("pay", json!({"n": 2}), "s").run("r");
    assert_eq!(submit(&*store, other).await.state, CallState::Pending);
    // Without a session the chain is everybody's; the principal still is not.
    let alone = |principal: &str| pay("s").run("r").principal(principal).path(|path| path.session = None);
    let denied = submit(&*store, alone("ann")).await;
    store.run(decide(&denied, "olga", Answer::deny("no"))).await.unwrap();
    assert_eq!(submit(&*store, alone("ann")).await.state, CallState::Denied);
    assert_eq!(submit(&*store, alone("bob")).await.state, CallState::Pending);
}
