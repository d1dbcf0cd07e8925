//! B56 to B64, B69: what is remembered, and for whom.

use std::time::Duration;

use countersign::gate::{Counted, GrantPreview};
use countersign::grant::{Covers, GrantError, Remember, RememberCovers, RememberScope};
use countersign::store::Op;
use countersign::transition::{Deciding, Rejection};
use countersign::{Answer, Call, CallState, Decision, GateError, Limits, Proposal, RefusalKind, Who, limits};

use super::desk::{Desk, edit, kind, recorder, remember};

fn whole_tool() -> Remember {
    Remember { covers: RememberCovers::Tool, ..Remember::session() }
}

fn by_fields(names: &[&str]) -> Remember {
    let covers = RememberCovers::Fields(names.iter().map(|name| (*name).to_owned()).collect());
    Remember { covers, ..Remember::session() }
}

fn global() -> Remember {
    Remember { scope: RememberScope::Global, ..Remember::session() }
}

/// Has a first call approved and remembered.
async fn granted(desk: &Desk, arguments: &str, wish: Remember) -> countersign::grant::Grant {
    let call = desk.submit(arguments).await;
    desk.ann(&call, remember(wish)).await.unwrap().grant.unwrap()
}

fn grant_error<T: std::fmt::Debug>(result: Result<T, GateError>) -> GrantError {
    match result {
        Err(GateError::Rejected(Rejection::Grant(error))) => error,
        other => panic!("{other:?}"),
    }
}

async fn state(desk: &Desk, arguments: &str) -> CallState {
    desk.submit(arguments).await.state
}

/// B56, B57, B58: a remembered approval turns the next identical ask into an allow, in its session.
#[tokio::test(start_paused = true)]
async fn a_grant_allows_the_same_call_again() {
    let desk = Desk::new();
    granted(&desk, r#"{"n":1}"#, Remember::session()).await;
    let next = desk.call(r#"{ "n":1 }"#).await;
    assert_eq!((next.state, next.holds.len()), (CallState::Succeeded, 0));
    assert!(next.grant.is_some(), "and says which grant let it run");
    assert_eq!(state(&desk, r#"{"n":2}"#).await, CallState::Pending, "other arguments");
    assert_eq!(state(&desk, r#"{"n":1.0}"#).await, CallState::Pending, "another spelling is another call");
}

/// B70: where the policy keeps approvals in memory, they count for this process, can be listed and revoked, and end with
/// it; the store never has them.
#[tokio::test(start_paused = true)]
async fn grants_in_memory_end_with_their_process() {
    let text = "toolConfirmation: { mode: event-based, allowedToolsStorage: memory }";
    let config = countersign::config::Config::from_yaml("countersign.yml", text, &|_| None).unwrap();
    let store = super::desk::memory();
    let start = || {
        let gate = countersign::Gate::builder().store(store.clone()).policy(config.policy.clone()).without_sweeper();
        Desk::build(|_| gate.decided_elsewhere())
    };
    let desk = start();
    let twin = desk.submit(r#"{"n":1}"#).await;
    let grant = granted(&desk, r#"{"n":1}"#, Remember::session()).await;
    assert_eq!(desk.now(&twin).await.state, CallState::Approved, "it releases what waits beside it");
    assert_eq!(desk.call(r#"{"n":1}"#).await.state, CallState::Succeeded);
    assert_eq!(desk.count("grant.made").await, 1, "on the record all the same");
    assert_eq!(desk.gate.store().grants().await.unwrap(), std::slice::from_ref(&grant), "listed where it counts");
    assert_eq!(countersign::Store::grants(&*store).await.unwrap(), [], "and in no store");
    let allowed = desk.submit(r#"{"n":1}"#).await;
    assert_eq!(allowed.state, CallState::Allowed);

    let after = start();
    assert_eq!(state(&after, r#"{"n":1}"#).await, CallState::Pending, "a restart forgets it");
    assert_eq!(kind(&*after.resume(&allowed).await), Some(RefusalKind::Revoked), "and what it had let pass");

    desk.gate.revoke(grant.id, Who::person("olga")).await.unwrap();
    assert_eq!(state(&desk, r#"{"n":1}"#).await, CallState::Pending);
}

/// B57: a plain approval and a denial make no grant.
#[tokio::test(start_paused = true)]
async fn only_an_approval_that_asks_for_it_is_remembered() {
    let desk = Desk::new();
    let call = desk.submit(r#"{"n":1}"#).await;
    assert!(desk.ann(&call, Answer::approve()).await.unwrap().grant.is_none());
    assert_eq!(state(&desk, r#"{"n":1}"#).await, CallState::Pending);
    let call = desk.submit(r#"{"n":2}"#).await;
    desk.ann(&call, Answer::deny("no")).await.unwrap();
    assert!(desk.gate.store().grants().await.unwrap().is_empty());
}

/// B56, B42: a grant lifts no deny and no must-ask.
#[tokio::test(start_paused = true)]
async fn a_grant_lifts_an_ask_and_nothing_else() {
    for (yaml, expected) in [
        ("otherwise: deny", CallState::Denied),
        ("rules: [{ id: people, ask: deploy, human: required }]", CallState::Pending),
        ("rules: [{ id: worst, ask: deploy, risk: critical }]", CallState::Pending),
        ("rules: [{ id: fresh, ask: deploy, remember: none }]", CallState::Pending),
    ] {
        let desk = Desk::new();
        granted(&desk, "{}", Remember::session()).await;
        desk.gate.load_policy(yaml).await.unwrap();
        assert_eq!(state(&desk, "{}").await, expected, "{yaml}");
    }
}

/// B58: what a rule does not let be remembered makes no grant, and the decision is not taken in half.
#[tokio::test(start_paused = true)]
async fn a_wish_too_wide_is_refused_whole() {
    let cases = [
        ("rules: [{ id: a, ask: deploy, remember: none }]", Remember::session()),
        ("rules: [{ id: a, ask: deploy, remember: session }]", global()),
        ("rules: [{ id: a, ask: deploy, human: required }]", Remember::session()),
        ("rules: [{ id: a, ask: deploy, risk: critical }]", Remember::session()),
        ("rules: [{ id: a, ask: deploy, approvals: 2 }]", Remember::session()),
        ("rules: [{ id: a, ask: deploy, when: arguments.n > 0 }]", whole_tool()),
    ];
    for (yaml, wish) in cases {
        let desk = Desk::under(yaml);
        let call = desk.submit(r#"{"n":1}"#).await;
        grant_error(desk.ann(&call, remember(wish)).await);
        assert_eq!(*desk.now(&call).await, *call, "{yaml}: nothing changed");
    }
    let desk = Desk::new();
    let homeless = desk.propose(Proposal::new("deploy", "{}")).await;
    assert_eq!(grant_error(desk.ann(&homeless, remember(Remember::session())).await), GrantError::NoSession);
}

/// B58: a missing scope is an error, and "once" makes no grant.
#[test]
fn a_wish_without_a_scope_is_no_wish() {
    assert!(serde_json::from_str::<Remember>(r#"{"covers":"exact"}"#).is_err());
    assert!(serde_json::from_str::<Remember>(r#"{"scope":"once"}"#).is_err());
    assert!(serde_json::from_str::<Remember>(r#"{"scope":"session","extra":1}"#).is_err());
    assert_eq!(serde_json::from_str::<Remember>(r#"{"scope":"session"}"#).unwrap(), Remember::session());
}

/// B59: the session's grants first, then global ones; a call without a session sees only global ones.
#[tokio::test(start_paused = true)]
async fn the_sessions_grant_is_found_before_the_global_one() {
    let desk = Desk::new();
    let waiting = desk.submit("{}").await;
    let wide = granted(&desk, "{}", global()).await;
    let released = desk.now(&waiting).await;
    assert_eq!((released.state, released.grant), (CallState::Approved, Some(wide.id)));
    assert_eq!(desk.propose(Proposal::new("deploy", "{}")).await.grant, Some(wide.id), "no session");
    let mut narrow = wide.clone();
    narrow.id = countersign::GrantId::new();
    narrow.scope = countersign::grant::Scope::Session { session: "s1".into() };
    let op = countersign::store::Op::Grant(Box::new(countersign::grant::Grant { version: 0, ..narrow.clone() }));
    desk.gate.store().run(op).await.unwrap();
    assert_eq!(desk.submit("{}").await.grant, Some(narrow.id));
}

/// B60: a grant crosses neither session, principal, agent tree nor tool.
#[tokio::test(start_paused = true)]
async fn a_grant_stays_where_it_was_given() {
    let elsewhere: [fn(&mut Proposal); 4] = [
        |proposal| proposal.path.session = Some("s2".into()),
        |proposal| proposal.path.principal = "other".into(),
        |proposal| proposal.path.agents = ["root".into()].into(),
        |proposal| proposal.path.session = None,
    ];
    let desk = Desk::new();
    granted(&desk, "{}", Remember::session()).await;
    for change in elsewhere {
        let mut proposal = Desk::proposal("{}");
        change(&mut proposal);
        assert_eq!(desk.propose(proposal.clone()).await.state, CallState::Pending, "{:?}", proposal.path);
    }
    let other = recorder("delete", &desk.ran);
    let call = desk.gate.submit(&other, Proposal::new("delete", "{}").session("s1")).await.unwrap();
    assert_eq!(call.state, CallState::Pending, "another tool");
}

/// B61: uses are consumed by claims, and a used-up grant covers nothing.
#[tokio::test(start_paused = true)]
async fn uses_are_consumed_by_claims() {
    let desk = Desk::new();
    granted(&desk, "{}", Remember { uses: Some(1), ..Remember::session() }).await;
    let (first, second) = (desk.submit("{}").await, desk.submit("{}").await);
    assert_eq!((first.state, second.state), (CallState::Allowed, CallState::Allowed), "submitting uses nothing up");
    assert_eq!(desk.resume(&first).await.state, CallState::Succeeded);
    let late = desk.resume(&second).await;
    assert_eq!((late.state, kind(&late)), (CallState::Lapsed, Some(RefusalKind::Lapsed)));
    assert_eq!(state(&desk, "{}").await, CallState::Pending);
}

/// B61: a narrower grant never replaces a wider one.
#[tokio::test(start_paused = true)]
async fn a_narrow_grant_replaces_no_wide_one() {
    let desk = Desk::new();
    let held = desk.submit(r#"{"n":1}"#).await;
    granted(&desk, r#"{"n":2}"#, whole_tool()).await;
    desk.ann(&held, remember(Remember { uses: Some(1), ..Remember::session() })).await.unwrap();
    for _ in 0..3 {
        assert_eq!(desk.call(r#"{"n":1}"#).await.state, CallState::Succeeded);
    }
}

/// B62: a grant by key covers that key only; a blank, padded or missing key is no key.
#[tokio::test(start_paused = true)]
async fn a_grant_by_field_covers_that_field_only() {
    let desk = Desk::new();
    let grant = granted(&desk, r#"{"to":"test","n":1}"#, by_fields(&["to"])).await;
    assert!(matches!(grant.covers, Covers::Fields(_)));
    assert_eq!(state(&desk, r#"{"to":"test","n":2}"#).await, CallState::Allowed);
    assert_eq!(state(&desk, r#"{"to":"prod","n":1}"#).await, CallState::Pending);
    assert_eq!(state(&desk, r#"{"n":1}"#).await, CallState::Pending);
    for (arguments, fields) in
        [(r#"{"to":""}"#, &["to"][..]), (r#"{"to":" x"}"#, &["to"]), (r#"{"n":1}"#, &["to"]), (r#"{"n":3}"#, &[])]
    {
        let call = desk.submit(arguments).await;
        grant_error(desk.ann(&call, remember(by_fields(fields))).await);
    }
}

/// B63, B66: a whole-tool grant is a deliberate act, and never for a tool that runs other programs.
#[tokio::test(start_paused = true)]
async fn a_whole_tool_grant_is_asked_for_by_name() {
    let desk = Desk::new();
    granted(&desk, r#"{"n":1}"#, whole_tool()).await;
    assert_eq!(state(&desk, r#"{"n":2}"#).await, CallState::Allowed);
}

/// B66: of a shell, interpreter, wrapper or task runner only the very same call is remembered.
#[tokio::test(start_paused = true)]
async fn a_runner_of_programs_gets_exact_grants_only() {
    let folder = || Remember { covers: RememberCovers::Folder("path".into()), ..Remember::session() };
    for name in ["bash", "python3", "sudo", "npm", "run_tests", "ShellTool"] {
        let desk = Desk::new();
        let desk = Desk { tool: std::sync::Arc::new(recorder(name, &desk.ran)), ..desk };
        let propose = |text: &str| {
            let arguments = serde_json::json!({ "text": text, "path": "/a/b/c" }).to_string();
            desk.propose(Proposal::new(name, arguments).session("s1"))
        };
        let call = propose("ls").await;
        for wish in [whole_tool(), by_fields(&["text"]), folder()] {
            let refused = grant_error(desk.ann(&call, remember(wish)).await);
            assert_eq!(refused, GrantError::Wrapper(name.into()));
        }
        desk.ann(&call, remember(Remember::session())).await.unwrap();
        assert_eq!(propose("ls").await.state, CallState::Allowed);
        for other in ["ls; rm -r x", "ls | sh", "ls $(id)", "A=1 ls", "ls x", "ls ", " ls"] {
            assert_eq!(propose(other).await.state, CallState::Pending, "{name} {other}");
        }
    }
}

/// B63: a whole-tool grant does not cover an ask that depends on the arguments.
#[tokio::test(start_paused = true)]
async fn a_whole_tool_grant_covers_no_ask_about_arguments() {
    let desk = Desk::new();
    granted(&desk, r#"{"n":1}"#, whole_tool()).await;
    desk.gate.load_policy("rules: [{ id: big, ask: deploy, when: arguments.n > 10 }]").await.unwrap();
    assert_eq!(state(&desk, r#"{"n":5}"#).await, CallState::Allowed);
    assert_eq!(state(&desk, r#"{"n":50}"#).await, CallState::Pending);
}

/// B64: a new grant releases the waiting calls it covers, each with its own event, and nothing else.
#[tokio::test(start_paused = true)]
async fn a_new_grant_releases_identical_waiting_calls() {
    let desk = Desk::new();
    let twin = desk.submit(r#"{"n":1}"#).await;
    let other = desk.submit(r#"{"n":2}"#).await;
    let foreign = desk.propose(Proposal::new("deploy", r#"{"n":1}"#).session("s2")).await;
    let call = desk.submit(r#"{"n":1}"#).await;
    let decided = desk.ann(&call, remember(whole_tool())).await.unwrap();
    assert_eq!(decided.released, 1, "only the same arguments, though the grant covers the tool");
    assert_eq!(desk.now(&twin).await.state, CallState::Approved);
    assert_eq!(desk.now(&other).await.state, CallState::Pending);
    assert_eq!(desk.now(&foreign).await.state, CallState::Pending);
    assert_eq!(desk.count("hold.released").await, 1);
    assert_eq!(desk.gate.store().grants().await.unwrap().len(), 1, "a release makes no grant");
    assert_eq!(desk.resume(&twin).await.state, CallState::Succeeded);
}

/// B64: a process that died between the decision and the releases leaves nothing asked about for good: the decision, sent
/// again, releases what it covers, and is told its grant. What has uses to count stays asked about.
#[tokio::test(start_paused = true)]
async fn a_repeated_decision_releases_what_the_first_did_not_get_to() {
    for (uses, left) in [(None, CallState::Approved), (Some(3), CallState::Pending)] {
        let desk = Desk::new();
        let twin = desk.submit("{}").await;
        let call = desk.submit("{}").await;
        let wish = Remember { uses, ..Remember::session() };
        let hold = call.open_hold().unwrap();
        let decision = Decision::new(Who::person("ann"), "test", hold.digest, remember(wish));
        desk.gate.store().run(Op::Decide(Box::new(Deciding::new(hold.id, decision.clone())))).await.unwrap();
        assert_eq!(desk.now(&twin).await.state, CallState::Pending, "it died here");
        let again = desk.gate.decide(hold.id, decision).await.unwrap();
        assert!(again.replayed);
        assert_eq!(again.grant.unwrap().hold, Some(hold.id));
        assert_eq!(desk.now(&twin).await.state, left, "{uses:?}");
        assert_eq!(desk.gate.store().grants().await.unwrap().len(), 1, "a repetition makes no grant");
    }
}

/// B64: what its maker could not decide, a grant does not release.
#[tokio::test(start_paused = true)]
async fn a_grant_releases_nothing_its_maker_could_not_decide() {
    let desk = Desk::under("rules: [{ id: own, ask: deploy, requester: excluded }]");
    let mine = |requester: &str| {
        let mut proposal = Desk::proposal("{}");
        proposal.path.requester = Some(requester.into());
        proposal
    };
    let anns = desk.propose(mine("ann")).await;
    let bos = desk.propose(mine("bo")).await;
    assert!(desk.ann(&anns, Answer::approve()).await.is_err(), "nobody approves their own");
    assert_eq!(desk.ann(&bos, remember(Remember::session())).await.unwrap().released, 0);
    assert_eq!(desk.now(&anns).await.state, CallState::Pending);
}

/// B64: a hold whose rule lets nothing so wide be remembered, or wants more than one approval, stays open beside a new
/// grant for the same call.
#[tokio::test(start_paused = true)]
async fn a_grant_releases_no_hold_of_stricter_terms() {
    let cases = [
        ("remember: none", Remember::session()),
        ("remember: session", global()),
        ("approvals: 2", Remember::session()),
        ("human: required", Remember::session()),
        ("risk: critical", Remember::session()),
    ];
    for (terms, wish) in cases {
        let desk = Desk::under(&format!("rules: [{{ id: strict, ask: deploy, {terms} }}]"));
        let twin = desk.submit("{}").await;
        desk.gate.load_policy("otherwise: ask").await.unwrap();
        let call = desk.submit("{}").await;
        let decided = desk.ann(&call, remember(wish)).await.unwrap();
        assert_eq!((decided.grant.is_some(), decided.released), (true, 0), "{terms}");
        assert_eq!(*desk.now(&twin).await, *twin, "{terms}: it is asked about as before");
    }
}

/// B69: grants expire, are listed, and a revoke acts at claim.
#[tokio::test(start_paused = true)]
async fn a_revoke_beats_a_claim_and_every_grant_expires() {
    let desk = Desk::new();
    let grant = granted(&desk, "{}", Remember::session()).await;
    let allowed = desk.submit("{}").await;
    desk.gate.revoke(grant.id, Who::person("op")).await.unwrap();
    let ended = desk.resume(&allowed).await;
    assert_eq!((ended.state, kind(&ended)), (CallState::Lapsed, Some(RefusalKind::Revoked)));
    assert_eq!(state(&desk, "{}").await, CallState::Pending);
    assert!(desk.gate.revoke(grant.id, Who::person("op")).await.is_ok(), "revoking twice is no error");
    assert!(desk.gate.store().grants().await.unwrap()[0].revoked.is_some());

    let hour = Duration::from_secs(3600);
    granted(&desk, r#"{"n":1}"#, Remember { expires_after: Some(hour), ..Remember::session() }).await;
    assert_eq!(state(&desk, r#"{"n":1}"#).await, CallState::Allowed);
    tokio::time::advance(hour).await;
    assert_eq!(state(&desk, r#"{"n":1}"#).await, CallState::Pending);
    let long = Remember { expires_after: Some(hour * 24 * 365), ..Remember::session() };
    let grant = granted(&desk, r#"{"n":2}"#, long).await;
    assert_eq!(grant.made_at.until(grant.expires_at), countersign::limits::GRANT_LIFE);
}

/// B33, B57: an edited approval remembers the edited bytes, not the proposed ones.
#[tokio::test(start_paused = true)]
async fn an_edited_approval_remembers_what_was_approved() {
    let desk = Desk::new();
    let call: std::sync::Arc<Call> = desk.submit(r#"{"n":1}"#).await;
    let Answer::Approve { arguments, .. } = edit(r#"{"n":2}"#) else { unreachable!() };
    let answer = Answer::Approve { arguments, payload: None, remember: Some(Remember::session()) };
    desk.ann(&call, answer).await.unwrap();
    assert_eq!(state(&desk, r#"{"n":2}"#).await, CallState::Allowed);
    assert_eq!(state(&desk, r#"{"n":1}"#).await, CallState::Pending);
}

/// B65: before it is made, a grant reads as a rule.
#[tokio::test(start_paused = true)]
async fn a_grant_reads_as_a_rule() {
    let desk = Desk::new();
    let grant = granted(&desk, r#"{"to":"test"}"#, by_fields(&["to"])).await;
    let rule = grant.as_rule();
    assert!(rule.starts_with("allow deploy whenever the same in to, in session s1, until "), "{rule}");
    assert_eq!(desk.log().await.last().unwrap().value()["rule"], rule);
}

fn wide(covers: RememberCovers) -> Remember {
    Remember { covers, ..Remember::session() }
}

/// B65: a grant is shown as a rule, with three calls it covers and how many it would have covered; making it changes
/// none of that, and the next identical call is allowed.
#[tokio::test(start_paused = true)]
async fn a_grant_is_shown_before_it_is_made() {
    let desk = Desk::new();
    for arguments in [r#"{"to":"b"}"#, r#"{"n":1,"to":"a"}"#, r#"{"n":2,"to":"a"}"#, r#"{"n":1,"to":"a"}"#] {
        desk.submit(arguments).await;
    }
    desk.propose(Proposal::new("deploy", r#"{"n":2,"to":"a"}"#).session("s2")).await;
    let call = desk.submit(r#"{"n":2,"to":"a"}"#).await;
    let hold = call.open_hold().unwrap().id;
    let preview = async |wish: Remember| desk.gate.preview_grant(hold, &wish).await.unwrap();
    let shown = |preview: &GrantPreview| -> Vec<String> {
        preview.examples.iter().map(|example| example.arguments.to_string()).collect()
    };
    let this = r#"{"n":2,"to":"a"}"#;

    let exact = preview(Remember::session()).await;
    assert_eq!((shown(&exact), exact.past_calls), (vec![this.to_owned()], 1));
    let everywhere = preview(global()).await;
    assert_eq!((shown(&everywhere), everywhere.past_calls), (vec![this.to_owned()], 2));
    let by_field = preview(by_fields(&["to"])).await;
    let both = vec![this.to_owned(), r#"{"n":1,"to":"a"}"#.to_owned()];
    assert_eq!((shown(&by_field), by_field.past_calls), (both.clone(), 3));
    let tool = preview(whole_tool()).await;
    assert_eq!(
        (shown(&tool), tool.past_calls, tool.counted),
        ([&both[..1], &[r#"{"to":"b"}"#.into()], &both[1..]].concat(), 4, Counted::All)
    );

    let made = desk.ann(&call, remember(by_fields(&["to"]))).await.unwrap().grant.unwrap();
    assert_eq!(made.as_rule(), by_field.rule);
    assert_eq!(desk.submit(this).await.grant, Some(made.id));
}

/// B65: what may not be made is not shown as if it might.
#[tokio::test(start_paused = true)]
async fn a_grant_that_may_not_be_made_has_no_preview() {
    let desk = Desk::under("rules: [{ id: a, ask: deploy, remember: session }]");
    let call = desk.submit("{}").await;
    let hold = call.open_hold().unwrap().id;
    for wish in [global(), by_fields(&[]), by_fields(&["to"]), wide(RememberCovers::Folder("to".into()))] {
        let previewed = grant_error(desk.gate.preview_grant(hold, &wish).await);
        assert_eq!(previewed, grant_error(desk.ann(&call, remember(wish)).await));
    }
    assert!(desk.gate.preview_grant(countersign::HoldId::new(), &Remember::session()).await.is_err());
    assert_eq!(desk.count("grant.made").await, 0, "looking makes nothing");
}

/// B65: past calls are counted up to a bound, and where it is reached the preview says so.
#[tokio::test(start_paused = true)]
async fn a_preview_says_where_it_stopped_counting() {
    let desk = Desk::under("otherwise: allow");
    let limit = countersign::limits::PREVIEW_CALLS;
    for _ in 0..limit {
        desk.submit("{}").await;
    }
    desk.gate.load_policy("otherwise: ask").await.unwrap();
    let call = desk.submit("{}").await;
    let preview = desk.gate.preview_grant(call.open_hold().unwrap().id, &Remember::session()).await.unwrap();
    assert_eq!((preview.past_calls, preview.counted), (0, Counted::Stopped), "what was allowed needed no grant");
}

/// B33, B65: of an edited approval the edited bytes are shown, since they are what is remembered.
#[tokio::test(start_paused = true)]
async fn a_preview_of_an_edit_shows_the_edit() {
    let desk = Desk::new();
    desk.submit(r#"{"n":2}"#).await;
    let call = desk.submit(r#"{"n":1}"#).await;
    let Answer::Approve { arguments: Some(arguments), .. } = edit(r#"{"n":2}"#) else { unreachable!() };
    let hold = call.open_hold().unwrap().id;
    let preview = desk.gate.preview_edited_grant(hold, &arguments, &Remember::session()).await.unwrap();
    assert_eq!((preview.examples[0].arguments.as_str(), preview.past_calls), (r#"{"n":2}"#, 1));
}

/// B61, B64: a grant releases no more waiting calls than it has uses.
#[tokio::test(start_paused = true)]
async fn a_grant_releases_no_more_than_its_uses() {
    let desk = Desk::new();
    let mut twins = Vec::new();
    for _ in 0..4 {
        twins.push(desk.submit("{}").await);
    }
    let wish = Remember { uses: Some(2), ..Remember::session() };
    let decided = desk.ann(&twins[0], remember(wish)).await.unwrap();
    assert_eq!(decided.released, 2);
    assert_eq!(desk.waiting().await, [twins[3].id], "the rest is still asked about");
}

/// B64: a grant releases every waiting call it covers, however many pages they fill.
#[tokio::test(start_paused = true)]
async fn a_grant_releases_more_than_one_page() {
    let many = limits::PAGE_ROWS + 1;
    let most = many as u64 + 2;
    let room = Limits { pending_per_session: most, pending_per_agent: most, pending_total: most, ..Limits::default() };
    let desk = Desk::build(|builder| builder.limits(room).decided_elsewhere());
    for _ in 0..many {
        desk.submit("{}").await;
    }
    let last = desk.submit("{}").await;
    assert_eq!(desk.ann(&last, remember(Remember::session())).await.unwrap().released, many);
    assert!(desk.waiting().await.is_empty());
}
