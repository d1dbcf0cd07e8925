//! Agents that work with agents.

use std::sync::Arc;

use countersign::{Answer, Gate, Policy};
use countersign_agent::model::Message;
use countersign_agent::{Agent, RunError, RunEvent};

use crate::bed::{ALLOW, Bed, EVERY, Ran, Script, calls, recorder, says};
use crate::loop_restart::{DURABLE, reborn_under, restart_under};

fn agents(hold: &countersign::Hold) -> Vec<String> {
    hold.call.facts.path.agents.iter().map(ToString::to_string).collect()
}

const ASK_TOOLS: &str = "otherwise: ask\nrules: [{ id: agents, allow: 'agent:*' }]";

/// B113: after a hand-over the target's tools, hooks and approver count, else the source's approver; rules keep binding.
#[tokio::test]
async fn a_handover_takes_the_targets_tools_and_keeps_the_rules() {
    let policy = "
policy: { otherwise: ask, unattended: deny, rules: [{ id: agents, allow: 'agent:*' }] }
agents:
  boss: { policy: { rules: [{ id: boss-says-no, deny: drop, reason: boss says no }] } }
  audit: { policy: { rules: [{ id: audit-says-no, deny: read, reason: audit forbids it }] } }
";
    for (kind, own_approver) in EVERY.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let stores = kind.fresh().await.unwrap();
        let gate = Gate::builder().policy(Policy::from_yaml(policy).unwrap()).store(stores.store()).build().unwrap();
        let ran = Ran::default();
        let wanted = [("send", "{}"), ("drop", "{}"), ("only_boss", "{}"), ("read", "{}")];
        let target = Script::new([calls(wanted), says("from audit")]);
        let audit = Agent::builder("audit", target.clone()).gate(gate.clone()).instructions("You audit.");
        let audit = audit.tool(recorder("send", &ran)).tool(recorder("drop", &ran)).tool(recorder("read", &ran));
        let deny = |_| async { Ok(Answer::deny("audit says no")) };
        let audit = if own_approver { audit.approver(deny) } else { audit }.build().unwrap();
        let source = Script::new([calls([("transfer_to_audit", r#"{"reason":"money"}"#)])]);
        let boss = Agent::builder("boss", source.clone()).gate(gate).tool(recorder("only_boss", &ran));
        let boss = boss.approver(|_| async { Ok(Answer::approve()) }).handoff(audit).build().unwrap();
        let reply = boss.run("go").await.unwrap();
        assert_eq!((&*reply.text, &*reply.agent, source.asked()), ("from audit", "audit", 1), "{kind:?}");
        assert_eq!(target.prompts()[0].instructions.as_deref(), Some("You audit."));
        assert_eq!(target.prompts()[0].messages.len(), 3, "the whole conversation goes over");
        let texts: Vec<String> = target.results().iter().map(|given| given.text.to_string()).collect();
        if own_approver {
            assert!(texts[0].contains("audit says no"), "{texts:?}");
        } else {
            assert_eq!(texts[0], "send done");
        }
        assert!(texts[1].contains("boss says no"), "{texts:?}");
        assert!(texts[2].contains("no tool `only_boss`"), "{kind:?} {texts:?}");
        assert!(texts[3].contains("audit forbids it"), "{kind:?} {texts:?}");
    }
}

/// B114: a hand-over or a task that is refused does not happen.
#[tokio::test]
async fn a_refused_delegation_does_not_happen() {
    let bed = Bed::new("otherwise: allow\nrules: [{ deny: 'agent:*', reason: alone }]");
    let other = Script::new([says("never")]);
    let helper = bed.named("helper", &other, |builder| builder);
    let aide = bed.named("aide", &other, |builder| builder);
    let script =
        Script::new([calls([("transfer_to_helper", "{}"), ("ask_aide", r#"{"task":"x"}"#)]), says("alone then")]);
    let boss = bed.agent_with(&script, |builder| builder.handoff(helper).sub_agent(aide));
    let reply = boss.run("go").await.unwrap();
    assert_eq!((&*reply.text, &*reply.agent, other.asked()), ("alone then", "boss", 0));
    assert!(script.results().iter().all(|given| given.is_error && given.text.contains("alone")));
}

/// One turn hands over once: the second is refused before anybody is asked.
#[tokio::test]
async fn one_turn_hands_over_to_one_agent() {
    let bed = Bed::new(ALLOW);
    let (one, two) = (Script::new([says("one")]), Script::new([says("two")]));
    let first = bed.named("first", &one, |builder| builder);
    let second = bed.named("second", &two, |builder| builder);
    let script = Script::new([calls([("transfer_to_first", "{}"), ("transfer_to_second", "{}")])]);
    let boss = bed.agent_with(&script, |builder| builder.handoff(first).handoff(second));
    assert_eq!(&*boss.run("go").await.unwrap().text, "one");
    assert_eq!(two.asked(), 0);
    assert!(one.results()[1].is_error);
    let log = bed.log().await;
    assert_eq!(log.iter().filter(|name| **name == "call.refused").count(), 1, "it is on the record");
}

/// B115, B117: a task is a call judged by the parent; the child's answer is its result, and an inner hold pauses both.
#[tokio::test]
async fn a_childs_answer_is_the_result_of_the_parents_call() {
    let bed = Bed::new("otherwise: ask");
    let inner = Script::new([calls([("send", "{}")]), says("42")]);
    let math = bed.named("math", &inner, |builder| builder.description("Counts."));
    let script = Script::new([calls([("ask_math", r#"{"task":"count"}"#)]), says("it is 42")]);
    let run = bed.agent_with(&script, |builder| builder.sub_agent(math)).spawn("how many?");
    let delegation = bed.hold().await;
    assert_eq!((delegation.call.facts.tool.delegate(), agents(&delegation)), (Some("math"), vec!["boss".to_owned()]));
    assert_eq!(inner.asked(), 0, "nothing begins before somebody approves");
    let task = countersign::Json::of(&serde_json::json!({"task": "count twice"})).unwrap();
    bed.answer(&delegation, Answer::Approve { arguments: Some(task), payload: None, remember: None }).await;
    let hold = loop {
        let hold = bed.hold().await;
        match hold.call.facts.tool.delegate() {
            // The edit was judged anew, and asks once more.
            Some(_) => bed.approve(&hold).await,
            None => break hold,
        }
    };
    assert_eq!((&*hold.call.facts.tool.name, agents(&hold)), ("send", vec!["boss".to_owned(), "math".to_owned()]));
    assert_eq!(hold.call.facts.path.thread.as_deref(), Some(&*delegation.call.id.to_string()));
    let parent = bed.gate.get(delegation.call.id).await.unwrap();
    assert_eq!(parent.state, countersign::CallState::Succeeded, "no claim is held while people think");
    bed.approve(&hold).await;
    let reply = run.await.unwrap();
    assert_eq!((&*reply.text, &*script.result().text, reply.turns), ("it is 42", "42", 4));
    let Message::User { text } = &inner.prompts()[0].messages[0] else { panic!() };
    assert_eq!(&**text, "count twice", "the task is what was approved");
}

/// B116: a hold two levels down shows on the root's stream with its path, and is decided by its id alone.
#[tokio::test]
async fn a_hold_at_depth_two_shows_on_the_root_stream() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, ASK_TOOLS).await;
        let deep = Script::new([calls([("send", "{}")]), says("deep")]);
        let middle = Script::new([calls([("ask_deep", r#"{"task":"dig"}"#)]), says("middle")]);
        let root = Script::new([calls([("ask_middle", r#"{"task":"go down"}"#)]), says("top")]);
        let deep = bed.named("deep", &deep, |builder| builder);
        let middle = bed.named("middle", &middle, |builder| builder.sub_agent(deep));
        let mut stream = bed.agent_with(&root, |builder| builder.sub_agent(middle)).stream("go");
        let (mut held, mut texts) = (Vec::new(), Vec::new());
        while let Some(event) = stream.next().await {
            match event {
                RunEvent::Held { hold } => {
                    held.push(agents(&hold).join("/"));
                    bed.approve(&hold).await;
                }
                RunEvent::Text { place, text, .. } => texts.push((place.agents.len(), text.to_string())),
                _ => {}
            }
        }
        assert_eq!(held, ["boss/middle/deep"]);
        assert_eq!(texts, [(3, "deep".to_owned()), (2, "middle".to_owned()), (1, "top".to_owned())]);
    }
}

/// B116: after a restart the hold two levels down is the first thing that the root's stream shows.
#[tokio::test]
async fn a_hold_at_depth_two_shows_on_the_root_stream_after_a_restart() {
    for kind in DURABLE {
        let (stores, bed) = restart_under(kind, ASK_TOOLS).await;
        let nested = |bed: &Bed, root: &Script, middle: &Script, deep: &Script| {
            let deep = bed.named("deep", deep, |builder| builder);
            let middle = bed.named("middle", middle, |builder| builder.sub_agent(deep));
            bed.agent_with(root, |builder| builder.sub_agent(middle)).session("s")
        };
        let root = Script::new([calls([("ask_middle", r#"{"task":"go down"}"#)])]);
        let middle = Script::new([calls([("ask_deep", r#"{"task":"dig"}"#)])]);
        let run = nested(&bed, &root, &middle, &Script::new([calls([("send", "{}")])])).spawn("go");
        let hold = bed.hold().await;
        run.park();
        let bed = reborn_under(&*stores, &bed, ASK_TOOLS).await;
        let said = |text| Script::new([says(text)]);
        let mut stream = nested(&bed, &said("top"), &said("middle"), &said("deep")).resume_stream();
        let first = stream.next().await.unwrap();
        let RunEvent::Held { hold: shown } = first else { panic!("{kind:?} {first:?}") };
        assert_eq!((shown.id, agents(&shown).join("/")), (hold.id, "boss/middle/deep".to_owned()), "{kind:?}");
        bed.approve(&shown).await;
        assert_eq!(&*stream.reply().await.unwrap().text, "top", "{kind:?}");
        assert_eq!(bed.ran(), ["send {}"], "{kind:?}");
    }
}

/// A boss who gives tasks to `ann` and `bo` at once, and one to `late` in the background.
fn family(bed: &Bed, boss: &Script, [ann, bo, late]: [&Script; 3]) -> Agent {
    let child = |name, script| bed.named(name, script, |builder| builder);
    let (ann, bo, late) = (child("ann", ann), child("bo", bo), child("late", late));
    bed.agent_with(boss, |builder| builder.sub_agent(ann).sub_agent(bo).background_agent(late))
}

const TASKS: [(&str, &str); 3] =
    [("ask_ann", r#"{"task":"a"}"#), ("ask_bo", r#"{"task":"b"}"#), ("ask_late", r#"{"task":"c"}"#)];

/// B118: parallel and background children each have their own holds, labelled as theirs; answers arrive before the end.
#[tokio::test]
async fn holds_of_parallel_and_background_children_are_not_lost() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, ASK_TOOLS).await;
        let work = |say| Script::new([calls([("send", "{}")]), says(say)]);
        let script = Script::new([calls(TASKS), says("so far"), says("all")]);
        let boss = family(&bed, &script, [&work("from ann"), &work("from bo"), &work("from late")]);
        let run = boss.spawn("go");
        let mut seen = Vec::new();
        for hold in bed.holds_open(2).await {
            seen.push(agents(&hold).join("/"));
            bed.approve(&hold).await;
        }
        let hold = bed.hold().await;
        seen.push(agents(&hold).join("/"));
        while script.asked() < 2 {
            tokio::task::yield_now().await;
        }
        let texts: Vec<_> = script.results().iter().map(|given| given.text.to_string()).collect();
        assert_eq!(texts[..2], ["from ann", "from bo"], "{kind:?}");
        assert!(texts[2].contains("will report"), "{kind:?}");
        bed.approve(&hold).await;
        seen.sort();
        assert_eq!(seen, ["boss/ann", "boss/bo", "boss/late"], "{kind:?}");
        let reply = run.await.unwrap();
        assert_eq!((&*reply.text, reply.turns), ("all", 9), "{kind:?}");
        let Some(Message::User { text }) = script.prompts()[2].messages.last().cloned() else { panic!() };
        assert_eq!(&*text, "[agent late finished: from late]", "{kind:?}");
    }
}

/// B118: the root's stream alone shows the holds of all children, each once and as its own, and is enough to decide them.
#[tokio::test]
async fn holds_of_children_show_on_the_root_stream() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, ASK_TOOLS).await;
        let work = |say| Script::new([calls([("send", "{}")]), says(say)]);
        let script = Script::new([calls(TASKS), says("so far"), says("all")]);
        let mut stream = family(&bed, &script, [&work("a"), &work("b"), &work("c")]).stream("go");
        let mut seen = Vec::new();
        while let Some(event) = stream.next().await {
            if let RunEvent::Held { hold } = event {
                seen.push(agents(&hold).join("/"));
                bed.approve(&hold).await;
            }
        }
        seen.sort();
        assert_eq!(seen, ["boss/ann", "boss/bo", "boss/late"], "{kind:?}");
        assert_eq!(&*stream.reply().await.unwrap().text, "all", "{kind:?}");
        assert_eq!(bed.ran().len(), 3, "{kind:?}");
    }
}

/// B118: the holds of children that work side by side are open at once, stay each with its child through a restart, and a
/// denial reaches the child it was meant for and no other.
#[tokio::test]
async fn holds_of_parallel_children_stay_theirs_through_a_restart() {
    for kind in DURABLE {
        let (stores, bed) = restart_under(kind, ASK_TOOLS).await;
        let send = |arguments| Script::new([calls([("send", arguments)])]);
        let (ann, bo) = (send(r#"{"by":"ann"}"#), send(r#"{"by":"bo"}"#));
        let boss = Script::new([calls([TASKS[0], TASKS[1]])]);
        let run = family(&bed, &boss, [&ann, &bo, &Script::default()]).session("s").spawn("go");
        bed.holds_open(2).await;
        run.park();
        let bed = reborn_under(&*stores, &bed, ASK_TOOLS).await;
        for hold in bed.holds_open(2).await {
            let by: String = hold.call.facts.arguments.field("by").unwrap().read().unwrap();
            assert_eq!(agents(&hold), ["boss", &*by], "{kind:?}");
            match &*by {
                "ann" => bed.answer(&hold, Answer::deny("not ann")).await,
                _ => bed.approve(&hold).await,
            }
        }
        let (boss, ann, bo) = (Script::new([says("all")]), Script::new([says("sorry")]), Script::new([says("sent")]));
        family(&bed, &boss, [&ann, &bo, &Script::default()]).resume("s").await.unwrap();
        assert!(ann.result().text.contains("not ann"), "{kind:?} {:?}", ann.result());
        assert_eq!(&*bo.result().text, "send done", "{kind:?}");
        let texts: Vec<_> = boss.results().iter().map(|given| given.text.to_string()).collect();
        assert_eq!(texts, ["sorry", "sent"], "{kind:?}");
        assert_eq!(bed.ran(), [r#"send {"by":"bo"}"#], "{kind:?}");
    }
}

/// B119: the same tool name in another agent neither claims nor repeats a permit.
#[tokio::test]
async fn a_same_named_tool_of_another_agent_is_another_call() {
    let bed = Bed::new(ASK_TOOLS);
    let inner = Script::new([calls([("send", "{}")]), says("mine")]);
    let kid = bed.named("kid", &inner, |builder| builder);
    let script = Script::new([calls([("send", "{}"), ("ask_kid", r#"{"task":"t"}"#)]), says("ok")]);
    let run = bed.agent_with(&script, |builder| builder.sub_agent(kid)).spawn("go");
    let holds = bed.holds_open(2).await;
    bed.approve(&holds[0]).await;
    let other = bed.hold().await;
    assert_ne!(other.call.id, holds[0].call.id);
    bed.answer(&other, Answer::deny("not twice")).await;
    run.await.unwrap();
    assert_eq!(bed.ran().len(), 1);
}

/// B120: too deep is refused before anybody is asked, although everything else is asked about.
#[tokio::test]
async fn too_deep_is_refused_before_anybody_is_asked() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, "otherwise: ask").await;
        let last = Script::new([says("never reached")]);
        let mut agent = bed.named("a17", &last, |builder| builder);
        let mut deepest = None;
        for depth in (1..=16).rev() {
            let name: &'static str = Box::leak(format!("ask_a{}", depth + 1).into_boxed_str());
            let script = Script::new([calls([(name, r#"{"task":"down"}"#)]), says("up")]);
            deepest.get_or_insert_with(|| script.clone());
            agent = bed.named(&format!("a{depth}"), &script, |builder| builder.sub_agent(agent));
        }
        let run = agent.spawn("go");
        for depth in 1..=15 {
            let hold = bed.hold().await;
            assert_eq!(agents(&hold).len(), depth, "{kind:?}");
            bed.approve(&hold).await;
        }
        run.await.unwrap();
        assert_eq!(last.asked(), 0, "{kind:?}");
        let refused = deepest.unwrap().result();
        assert!(refused.is_error && refused.text.contains("more than 16 agents"), "{kind:?} {refused:?}");
        let log = bed.log().await;
        let count = |what: &str| log.iter().filter(|name| **name == what).count();
        let counted = (count("call.submitted"), count("call.refused"), count("hold.opened"));
        assert_eq!(counted, (16, 1, 15), "{kind:?}: it is on the record");
    }
}

/// B115: what the child may do is the strictest of both policies, unless the parent lets it follow its own.
#[tokio::test]
async fn inner_calls_take_the_strictest_of_both_policies() {
    let rules = [("allow: 'agent:*'", true), ("allow: 'agent:*', inside: own", false)];
    for (kind, (rule, asked)) in EVERY.into_iter().flat_map(|kind| rules.map(|rule| (kind, rule))) {
        let top = format!("policy: {{ otherwise: ask, rules: [{{ {rule} }}] }}");
        let policy = format!("{top}\nagents: {{ kid: {{ policy: {{ otherwise: allow }} }} }}");
        let (_stores, bed) = restart_under(kind, &policy).await;
        let inner = Script::new([calls([("send", "{}")]), says("did")]);
        let kid = bed.named("kid", &inner, |builder| builder);
        let script = Script::new([calls([("ask_kid", r#"{"task":"t"}"#)]), says("ok")]);
        let run = bed.agent_with(&script, |builder| builder.sub_agent(kid)).spawn("go");
        if asked {
            bed.approve(&bed.hold().await).await;
        }
        run.await.unwrap();
        assert_eq!(bed.log().await.contains(&"hold.opened"), asked, "{kind:?}");
    }
}

/// B115: a child that follows its own policy is still bound by what its parent denies and by what it must ask about.
#[tokio::test]
async fn a_childs_own_policy_lifts_no_deny_and_no_must_ask() {
    let policy = "
policy:
  otherwise: ask
  rules:
    - { allow: 'agent:*', inside: own }
    - { deny: drop, reason: never }
    - { ask: send, human: required }
agents: { kid: { policy: { otherwise: allow, rules: [{ allow: '*' }] } } }
";
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, policy).await;
        let inner = Script::new([calls([("read", "{}"), ("drop", "{}"), ("send", "{}")]), says("did")]);
        let kid = bed.named("kid", &inner, |builder| builder);
        let script = Script::new([calls([("ask_kid", r#"{"task":"t"}"#)]), says("ok")]);
        let run = bed.agent_with(&script, |builder| builder.sub_agent(kid)).spawn("go");
        let hold = bed.hold().await;
        assert_eq!((&*hold.call.facts.tool.name, agents(&hold).join("/")), ("send", "boss/kid".to_owned()), "{kind:?}");
        bed.answer(&hold, Answer::deny("not now")).await;
        run.await.unwrap();
        let texts: Vec<_> = inner.results().iter().map(|given| given.text.to_string()).collect();
        assert_eq!(texts[0], "read done", "{kind:?}: its own policy lets it");
        assert!(texts[1].contains("never") && texts[2].contains("not now"), "{kind:?} {texts:?}");
        assert_eq!(bed.ran(), ["read {}"], "{kind:?}");
    }
}

/// B97, B118: cancelling a run ends what its children wait for, in front and in the background.
#[tokio::test]
async fn cancelling_reaches_every_child() {
    for kind in EVERY {
        let (_stores, bed) = restart_under(kind, ASK_TOOLS).await;
        let work = || Script::new([calls([("send", "{}")])]);
        let kid = bed.named("kid", &work(), |builder| builder);
        let late = bed.named("late", &work(), |builder| builder);
        let script = Script::new([
            calls([("ask_late", r#"{"task":"t"}"#)]),
            calls([("ask_kid", r#"{"task":"t"}"#)]),
            says("fresh start"),
        ]);
        let boss = bed.agent_with(&script, |builder| builder.sub_agent(kid).background_agent(late));
        let run = boss.session("s").spawn("go");
        bed.holds_open(2).await;
        run.cancel();
        assert!(run.await.is_err(), "{kind:?}");
        assert!(bed.holds().await.is_empty(), "{kind:?}");
        assert_eq!(&*boss.session("s").run("again").await.unwrap().text, "fresh start");
    }
}

/// B94, B116: a child's hold may end the whole run, and the conversation goes on with a whole history.
#[tokio::test(start_paused = true)]
async fn a_childs_expired_hold_may_end_the_run() {
    let bed = Bed::new("otherwise: allow\nrules: [{ allow: 'agent:*' }, { ask: send, on_expired: stop_run }]");
    let kid = bed.named("kid", &Script::new([calls([("send", "{}")])]), |builder| builder);
    let script = Script::new([calls([("ask_kid", r#"{"task":"t"}"#), ("read", "{}")]), says("fine")]);
    let boss = bed.agent_with(&script, |builder| builder.sub_agent(kid));
    assert!(matches!(boss.session("s").run("go").await, Err(RunError::Expired { .. })));
    assert!(matches!(boss.resume("s").await, Err(RunError::Expired { .. })));
    assert_eq!(&*boss.session("s").run("never mind").await.unwrap().text, "fine");
}

/// One agent serves many conversations at once.
#[tokio::test]
async fn an_agent_can_be_shared_between_tasks() {
    let bed = Bed::new(ALLOW);
    let script = Script::new([says("a"), says("b")]);
    let agent = Arc::new(bed.agent(&script));
    let (one, two) = tokio::join!(agent.run("x"), agent.run("y"));
    assert_ne!(one.unwrap().session, two.unwrap().session);
}
