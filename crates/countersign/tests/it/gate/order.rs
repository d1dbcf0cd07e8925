//! B14 to B26: what is checked, in which order, and what hooks may do.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use countersign::call::Outcome;
use countersign::gate::{Authorized, GateBuilder, HookAnswer};
use countersign::grant::Remember;
use countersign::memory::MemoryStore;
use countersign::testing::{Fault, FaultStore};
use countersign::tool::{FnTool, asks_first, tool};
use countersign::{Answer, CallState, Definition, Json, Proposal, RefusalKind, Tool, ToolError, Toolset, Who};

use super::desk::{Desk, json, kind, memory, recorder, remember};

type Log = Arc<Mutex<Vec<String>>>;

fn noted(builder: GateBuilder, log: &Log) -> GateBuilder {
    let (hook, authorizer, approver, after) = (log.clone(), log.clone(), log.clone(), log.clone());
    let note = |log: &Log, what: String| log.lock().unwrap().push(what);
    builder
        .before_tool(move |proposed| {
            note(&hook, format!("hook {}", proposed.arguments));
            async { Ok(HookAnswer::Pass) }
        })
        .authorizer(move |proposed| {
            note(&authorizer, format!("authorizer {}", proposed.arguments));
            async { Ok(Authorized::Yes) }
        })
        .approver(move |hold| {
            note(&approver, format!("approver {}", hold.call.facts.arguments));
            async { Ok(Answer::approve()) }
        })
        .after_tool(move |call| {
            note(&after, format!("after {}", call.state));
            async {}
        })
}

/// A tool that takes only `{ "n": integer }`.
fn strict(log: &Log) -> FnTool {
    let schema = serde_json::json!({
        "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"], "additionalProperties": false
    });
    let log = log.clone();
    tool(Definition::new("deploy", "Strict.").with_schema(&schema).unwrap(), move |running| {
        log.lock().unwrap().push(format!("run {}", running.arguments()));
        async { Ok(Json::empty()) }
    })
}

/// B14: schema, hooks, authorizer, hold, run, after-hooks, in that order.
#[tokio::test]
async fn checks_come_in_one_order() {
    let log = Log::default();
    let desk = Desk::build(|builder| noted(builder, &log)).with_tool(strict(&log));
    assert_eq!(desk.call(r#"{"n":1}"#).await.state, CallState::Succeeded);
    let expected =
        [r#"hook {"n":1}"#, r#"authorizer {"n":1}"#, r#"approver {"n":1}"#, r#"run {"n":1}"#, "after succeeded"];
    assert_eq!(*log.lock().unwrap(), expected);
}

/// B15: bad arguments are refused before any hook, authorizer or approver hears of them.
#[tokio::test]
async fn bad_arguments_reach_nobody() {
    let log = Log::default();
    let desk = Desk::build(|builder| noted(builder, &log)).with_tool(strict(&log));
    let bad =
        ["", "{", "[]", "7", "null", r#"{"n":1,"n":2}"#, r#"{"n":"x"}"#, r#"{}"#, r#"{"n":1,"m":2}"#, "{\"n\":1}x"];
    for arguments in bad {
        let ended = desk.call(arguments).await;
        assert_eq!(kind(&ended), Some(RefusalKind::InvalidArguments), "{arguments}");
        assert_eq!(ended.state, CallState::Denied, "{arguments}");
    }
    assert_eq!(*log.lock().unwrap(), vec!["after denied"; bad.len()], "only the after-hooks are told");
    assert_eq!(desk.count("hold.opened").await, 0);
}

/// B16: a hook that denies, errs or panics refuses; nobody is asked.
#[tokio::test]
async fn a_hook_that_denies_or_fails_refuses() {
    type Answers = fn() -> Result<HookAnswer, String>;
    let answers: [(&str, Answers); 3] = [
        ("rate limit", || Ok(HookAnswer::Refuse("rate limit".into()))),
        ("no database", || Err("no database".into())),
        ("the check panicked", || panic!("boom")),
    ];
    for (reason, answer) in answers {
        let log = Log::default();
        let desk = Desk::build(|builder| noted(builder.before_tool(move |_| async move { answer() }), &log));
        let ended = desk.call("{}").await;
        assert_eq!(kind(&ended), Some(RefusalKind::Hook), "{reason}");
        assert_eq!(ended.refusal.as_ref().unwrap().reason.as_deref(), Some(reason));
        assert_eq!(*log.lock().unwrap(), ["after denied"], "{reason}");
        assert!(desk.ran().is_empty());
    }
}

/// B17: a rewrite is validated, then frozen: what the approver sees is the rewrite, and that runs.
#[tokio::test]
async fn a_rewrite_is_validated_shown_and_run() {
    for (rewritten, expected) in [(r#"{"n":2}"#, None), (r#"{"n":"two"}"#, Some(RefusalKind::InvalidArguments))] {
        let log = Log::default();
        let rewrite = move |_| async move { Ok(HookAnswer::Rewrite(json(rewritten))) };
        let desk = Desk::build(|builder| noted(builder.before_tool(rewrite), &log)).with_tool(strict(&log));
        let ended = desk.call(r#"{"n":1}"#).await;
        assert_eq!(kind(&ended), expected);
        if expected.is_none() {
            assert_eq!(log.lock().unwrap()[2..4], [r#"approver {"n":2}"#, r#"run {"n":2}"#]);
            assert_eq!(ended.raw.as_deref(), Some(r#"{"n":1}"#), "the agent's text is kept as evidence");
        }
    }
}

/// A hook may raise an allow to an ask; it never lowers anything.
#[tokio::test(start_paused = true)]
async fn a_hook_raises_and_never_lowers() {
    let ask = |_| async { Ok(HookAnswer::Ask("unusual hour".into())) };
    let pass = |_| async { Ok(HookAnswer::Pass) };
    let build = |yaml: &str| Desk::build(|b| b.policy(super::desk::policy(yaml)).decided_elsewhere().before_tool(ask));
    let raised = build("otherwise: allow").submit("{}").await;
    assert_eq!(raised.state, CallState::Pending);
    assert_eq!(raised.open_hold().unwrap().because[0].reason.as_deref(), Some("unusual hour"));
    assert_eq!(build("otherwise: deny").submit("{}").await.state, CallState::Denied);
    let desk = Desk::build(|builder| builder.decided_elsewhere().before_tool(pass));
    assert_eq!(desk.submit("{}").await.state, CallState::Pending, "a pass is no allow");
}

/// B18: whoever hands other bytes to the run than were frozen gets no permit.
#[tokio::test(start_paused = true)]
async fn other_bytes_at_claim_get_no_permit() {
    let changes: [fn(&mut countersign::Call); 3] = [
        |call| Arc::make_mut(&mut call.facts).arguments = json(r#"{"to":"evil"}"#),
        |call| Arc::make_mut(&mut call.facts).tool.name = "other".into(),
        |call| Arc::make_mut(&mut call.facts).path.session = Some("other".into()),
    ];
    for change in changes {
        let lies = move |_, site| if site == "claim" { Fault::Tamper(change) } else { Fault::None };
        let store = Arc::new(FaultStore::new(memory(), lies));
        let desk = Desk::build(|builder| builder.store(store).decided_elsewhere());
        let call = desk.submit(r#"{"to":"prod"}"#).await;
        desk.approve(&call).await;
        let ended = desk.resume(&call).await;
        assert_eq!((ended.state, kind(&ended)), (CallState::Failed, Some(RefusalKind::Error)));
        assert!(desk.ran().is_empty());
    }
}

/// B19: the authorizer passes or denies; its error is an error; siblings go on.
#[tokio::test(start_paused = true)]
async fn the_authorizer_passes_or_denies() {
    let judge = |proposed: countersign::gate::Proposed| async move {
        match proposed.arguments.as_str() {
            r#"{"n":1}"# => Ok(Authorized::No("not yours".into())),
            r#"{"n":2}"# => Err("directory down".into()),
            r#"{"n":3}"# => panic!("boom"),
            _ => Ok(Authorized::Yes),
        }
    };
    let desk = Desk::build(|builder| builder.decided_elsewhere().authorizer(judge));
    let expected = [(1, RefusalKind::Authorizer), (2, RefusalKind::Error), (3, RefusalKind::Error)];
    for (n, refusal) in expected {
        let call = desk.submit(&format!(r#"{{"n":{n}}}"#)).await;
        assert_eq!((call.state, kind(&call)), (CallState::Denied, Some(refusal)), "{n}");
    }
    assert_eq!(desk.submit(r#"{"n":4}"#).await.state, CallState::Pending);
}

/// B20: after-hooks are told once, of every ending, and change none.
#[tokio::test]
async fn after_hooks_are_told_once_and_change_nothing() {
    let log = Log::default();
    let told = log.clone();
    let desk = Desk::build(|builder| {
        builder
            .policy(super::desk::policy("otherwise: allow\nrules: [{ id: no, deny: deploy, when: arguments.n == 1 }]"))
            .after_tool(|_| async { panic!("an after-hook of no consequence") })
            .after_tool(move |call| {
                told.lock().unwrap().push(format!("{} {}", call.facts.arguments, call.state));
                async {}
            })
    });
    let denied = desk.call(r#"{"n":1}"#).await;
    let ran = desk.call(r#"{"n":2}"#).await;
    assert_eq!((denied.state, ran.state), (CallState::Denied, CallState::Succeeded));
    assert_eq!(*log.lock().unwrap(), [r#"{"n":1} denied"#, r#"{"n":2} succeeded"#]);
}

/// A gate of one store that refuses by rule (1), hook (2) and authorizer (3, and 14 by its error), and whose after-hook
/// notes how each call was refused.
fn telling(log: &Log, store: &Arc<MemoryStore>, reach: fn(GateBuilder) -> GateBuilder) -> Desk {
    let rules = "rules: [{ id: no, deny: deploy, when: arguments.n == 1 }]\nexpires_after: 1m";
    let (told, store) = (log.clone(), store.clone());
    let desk = Desk::build(move |builder| {
        reach(builder.store(store).policy(super::desk::policy(rules)))
            .before_tool(|proposed| async move {
                Ok(match proposed.arguments.as_str() {
                    r#"{"n":2}"# => HookAnswer::Refuse("never".into()),
                    _ => HookAnswer::Pass,
                })
            })
            .authorizer(|proposed| async move {
                match proposed.arguments.as_str() {
                    r#"{"n":3}"# => Ok(Authorized::No("not you".into())),
                    r#"{"n":14}"# => Err("directory down".to_owned()),
                    _ => Ok(Authorized::Yes),
                }
            })
            .after_tool(move |call| {
                let kind = call.refusal.as_ref().map_or("none", |refusal| refusal.kind.as_str());
                told.lock().unwrap().push(format!("{} {kind}", call.facts.arguments));
                async {}
            })
    });
    desk.with_tool(strict(&Log::default()))
}

/// B20: however a call is refused and by whichever door it came, the hooks are told, alike and once: also when the
/// same call is proposed, waited for and taken up again, here or after a restart.
#[tokio::test(start_paused = true)]
async fn after_hooks_are_told_once_of_every_refusal() {
    let (log, store) = (Log::default(), memory());
    let keyed = |arguments: &str| Desk::proposal(arguments).key(arguments);
    let first = telling(&log, &store, GateBuilder::decided_elsewhere);
    for arguments in ["[]", r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#] {
        first.propose(keyed(arguments)).await;
    }
    first.gate.refuse_unknown(Proposal::new("nothing", "{}").session("s1")).await.unwrap();
    let refusal = countersign::Refusal::new(RefusalKind::Limit);
    first.gate.refuse(first.tool.as_ref(), keyed(r#"{"n":9}"#), refusal).await.unwrap();
    let denied = first.propose(keyed(r#"{"n":4}"#)).await;
    first.ann(&denied, Answer::deny("no")).await.unwrap();
    let cancelled = first.propose(keyed(r#"{"n":5}"#)).await;
    first.gate.cancel(cancelled.id).await.unwrap();
    first.gate.wait(denied.id).await.unwrap();
    first.gate.wait(cancelled.id).await.unwrap();
    first.gate.call(first.tool.as_ref(), keyed(r#"{"n":6}"#)).await.unwrap();
    let superseded = first.propose(keyed(r#"{"n":10}"#)).await;
    assert_eq!(first.gate.supersede(&first.tool.definition().digest()).await.unwrap(), 1);
    first.gate.wait(superseded.id).await.unwrap();
    let lapsed = first.propose(keyed(r#"{"n":11}"#)).await;
    first.approve(&lapsed).await;
    tokio::time::advance(countersign::limits::CLAIM_WITHIN).await;
    first.resume(&lapsed).await;
    let granted = first.submit(r#"{"n":12}"#).await;
    let grant = first.ann(&granted, remember(Remember::session())).await.unwrap().grant.unwrap();
    let revoked = first.propose(keyed(r#"{"n":12}"#)).await;
    first.gate.revoke(grant.id, Who::person("op")).await.unwrap();
    first.resume(&revoked).await;
    telling(&log, &store, GateBuilder::unattended).propose(keyed(r#"{"n":13}"#)).await;
    first.propose(keyed(r#"{"n":14}"#)).await;
    let expected = [
        "{} invalid_arguments",
        r#"{"n":1} denied_by_rule"#,
        r#"{"n":2} hook"#,
        r#"{"n":3} authorizer"#,
        "{} unknown_tool",
        r#"{"n":9} limit"#,
        r#"{"n":4} denied_by_approver"#,
        r#"{"n":5} cancelled"#,
        r#"{"n":6} expired"#,
        r#"{"n":10} superseded"#,
        r#"{"n":11} lapsed"#,
        r#"{"n":12} revoked"#,
        r#"{"n":13} no_approver"#,
        r#"{"n":14} error"#,
    ];
    assert_eq!(*log.lock().unwrap(), expected);
    for desk in [first, telling(&log, &store, GateBuilder::decided_elsewhere)] {
        for n in (1..=6).chain(10..=14) {
            let replayed = desk.propose(keyed(&format!(r#"{{"n":{n}}}"#))).await;
            desk.resume(&replayed).await;
        }
    }
    assert_eq!(*log.lock().unwrap(), expected, "a replay is no second end");
}

/// B22, B49: a tool whose definition changed since it was judged does not run.
#[tokio::test(start_paused = true)]
async fn a_changed_definition_does_not_run() {
    let desk = Desk::new();
    let call = desk.submit("{}").await;
    desk.approve(&call).await;
    let ran = desk.ran.clone();
    let changed = tool(Definition::new("deploy", "Now it deletes."), move |_| {
        ran.lock().unwrap().push("changed".into());
        async { Ok(Json::empty()) }
    });
    let ended = desk.gate.resume(&changed, call.id).await.unwrap();
    assert_eq!((ended.state, kind(&ended)), (CallState::Lapsed, Some(RefusalKind::Superseded)));
    let waiting = desk.submit(r#"{"n":1}"#).await;
    assert_eq!(desk.gate.supersede(&desk.tool.definition().digest()).await.unwrap(), 1);
    assert_eq!(kind(&*desk.now(&waiting).await), Some(RefusalKind::Superseded));
    assert!(desk.ran().is_empty());
}

/// B51, B22: at claim only effects count: an allowed call must still be allowed, an approved one must not be denied.
#[tokio::test(start_paused = true)]
async fn a_new_policy_counts_at_claim() {
    let cases = [
        ("otherwise: allow", "otherwise: ask", CallState::Lapsed, Some(RefusalKind::Lapsed)),
        ("otherwise: allow", "otherwise: deny", CallState::Lapsed, Some(RefusalKind::DeniedByRule)),
        ("otherwise: ask", "otherwise: deny", CallState::Lapsed, Some(RefusalKind::DeniedByRule)),
        ("otherwise: ask", "otherwise: allow", CallState::Succeeded, None),
        ("otherwise: ask", "rules: [{ id: two, ask: deploy, approvals: 2 }]", CallState::Succeeded, None),
        ("otherwise: allow", "rules: [{ id: yes, allow: deploy }]", CallState::Succeeded, None),
    ];
    for (before, after, state, refusal) in cases {
        let desk = Desk::under(before);
        let call = desk.submit("{}").await;
        if call.state == CallState::Pending {
            desk.approve(&call).await;
        }
        desk.gate.load_policy(after).await.unwrap();
        let ended = desk.resume(&call).await;
        assert_eq!((ended.state, kind(&ended)), (state, refusal), "{before}, then {after}");
    }
}

/// B50: a broken policy changes nothing and is on record.
#[tokio::test(start_paused = true)]
async fn a_broken_policy_keeps_the_last_good_one() {
    let desk = Desk::under("otherwise: deny");
    assert!(desk.gate.load_policy("otherwise: perhaps").await.is_err());
    assert_eq!(desk.submit("{}").await.state, CallState::Denied);
    assert_eq!(desk.count("policy.rejected").await, 1);
}

struct Kit(Vec<Arc<dyn Tool>>);

impl Toolset for Kit {
    fn name(&self) -> Arc<str> {
        "kit".into()
    }
    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.0.clone()
    }
}

/// B23: a toolset wrapper declares for all its tools, keeps their names and runs, and leaves the originals alone.
#[tokio::test(start_paused = true)]
async fn a_wrapped_toolset_asks_and_the_originals_do_not() {
    let desk = Desk::under("otherwise: declared");
    let plain: Arc<dyn Tool> = Arc::new(recorder("deploy", &desk.ran));
    let wrapped = asks_first(Kit(vec![Arc::clone(&plain)])).tools().remove(0);
    assert_eq!(wrapped.definition().digest(), plain.definition().digest());
    let asked = desk.gate.submit(wrapped.as_ref(), Desk::proposal(r#"{"n":1}"#)).await.unwrap();
    assert_eq!(asked.state, CallState::Pending);
    desk.approve(&asked).await;
    assert_eq!(desk.gate.resume(wrapped.as_ref(), asked.id).await.unwrap().state, CallState::Succeeded);
    let free = desk.gate.call(plain.as_ref(), Desk::proposal(r#"{"n":2}"#)).await.unwrap();
    assert_eq!(free.state, CallState::Succeeded);
    assert_eq!(desk.ran(), [r#"{"n":1}"#, r#"{"n":2}"#]);
}

/// B24: small amounts run, large ones ask; a predicate that errs or panics asks, and never sees invalid arguments.
#[tokio::test(start_paused = true)]
async fn a_predicate_asks_by_the_arguments() {
    let desk = Desk::under("otherwise: declared");
    let amount = |arguments: &Json| {
        let amount = arguments.field("n").ok_or("no amount")?.read::<i64>().map_err(|error| error.to_string())?;
        if amount == 13 {
            panic!("unlucky");
        }
        Ok(amount > 100)
    };
    let desk = {
        let recorder = recorder("deploy", &desk.ran).asks_when(amount);
        desk.with_tool(recorder)
    };
    let cases = [
        (r#"{"n":5}"#, CallState::Allowed),
        (r#"{"n":500}"#, CallState::Pending),
        (r#"{"n":13}"#, CallState::Pending),
        (r#"{"m":1}"#, CallState::Pending),
        (r#"{"n":"#, CallState::Denied),
    ];
    for (arguments, state) in cases {
        assert_eq!(desk.submit(arguments).await.state, state, "{arguments}");
    }
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let desk = desk.with_tool(strict(&Log::default()).asks_when(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(true)
    }));
    for arguments in [r#"{"n":"#, "[]", r#"{"n":"x"}"#, "{}", r#"{"n":1,"m":2}"#] {
        assert_eq!(desk.submit(arguments).await.state, CallState::Denied, "{arguments}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0, "it never sees what the schema refuses");
    assert_eq!(desk.submit(r#"{"n":1}"#).await.state, CallState::Pending);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

/// B25: a declaration is read anew at each call.
#[tokio::test(start_paused = true)]
async fn a_declaration_is_never_cached() {
    let asks = Arc::new(AtomicBool::new(false));
    let desk = Desk::under("otherwise: declared");
    let read = Arc::clone(&asks);
    let tool = recorder("deploy", &desk.ran).asks_when(move |_| Ok(read.load(Ordering::SeqCst)));
    let desk = desk.with_tool(tool);
    assert_eq!(desk.submit("{}").await.state, CallState::Allowed);
    asks.store(true, Ordering::SeqCst);
    assert_eq!(desk.submit("{}").await.state, CallState::Pending);
}

/// B38, B43, B47: a must-ask declaration asks under every policy that does not deny.
#[tokio::test(start_paused = true)]
async fn a_must_ask_tool_asks_under_every_policy() {
    for (yaml, state) in [
        ("otherwise: allow", CallState::Pending),
        ("otherwise: declared", CallState::Pending),
        ("rules: [{ id: yes, allow: deploy }]", CallState::Pending),
        ("otherwise: deny", CallState::Denied),
    ] {
        let desk = Desk::under(yaml);
        let tool = recorder("deploy", &desk.ran).always_asks();
        assert_eq!(desk.with_tool(tool).submit("{}").await.state, state, "{yaml}");
    }
}

/// B26: the hint is the tool's, or names the tool; the payload is empty unless given.
#[tokio::test(start_paused = true)]
async fn a_hint_is_the_tools_own_or_its_name() {
    let desk = Desk::new();
    let hold = desk.submit("{}").await.open_hold().unwrap().clone();
    assert_eq!((hold.hint.as_deref(), hold.payload), (Some("Run `deploy`"), None));
    let mut definition = Definition::new("deploy", "");
    definition.hint = Some("Goes live at once".into());
    let desk = desk.with_tool(tool(definition, |_| async { Err(ToolError::Failed("no".into())) }));
    let call = desk.submit("{}").await;
    assert_eq!(call.open_hold().unwrap().hint.as_deref(), Some("Goes live at once"));
    desk.approve(&call).await;
    let ended = desk.resume(&call).await;
    assert_eq!(ended.outcome, Some(Outcome::Failed { error: "no".into(), refusal: None }), "a failure is an answer");
    assert_eq!(ended.state, CallState::Failed);
}

/// B10: a refusal before judging is on record like any other, with its kind.
#[tokio::test(start_paused = true)]
async fn every_refusal_is_on_record() {
    let desk = Desk::under("otherwise: deny");
    desk.submit("{}").await;
    desk.submit("nonsense").await;
    desk.gate.refuse_unknown(Proposal::new("x", "{}").session("s1")).await.unwrap();
    let kinds: Vec<_> = desk.log().await.iter().map(|event| event.value()["kind"].clone()).collect();
    let none = serde_json::Value::Null;
    assert_eq!(
        kinds,
        [&none, &"denied_by_rule".into(), &none, &"invalid_arguments".into(), &none, &"unknown_tool".into()]
            .map(Clone::clone)
    );
}
