//! Several agents on one gate: each with checks, an approver and a hold life of its own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign::gate::{Authorized, HookAnswer, Scope};
use countersign::tool::came_with;
use countersign::{Answer, Call, Definition, Gate, Json, Policy, Running, Tool, ToolError};

use super::desk::{Desk, kind, policy};

async fn call(gate: &Gate, tool: &dyn Tool) -> Arc<Call> {
    gate.call(tool, Desk::proposal("{}")).await.unwrap()
}

/// A scope adds to the gate and takes nothing away: the gate's own checks come first and still refuse.
#[tokio::test]
async fn a_scope_only_tightens() {
    let desk = Desk::build(|builder| {
        builder.policy(Policy::allow_all()).authorizer(|_| async { Ok(Authorized::No("the gate says no".into())) })
    });
    let lax = desk.gate.scoped(&Scope::new().authorizer(|_| async { Ok(Authorized::Yes) }));
    let refused = call(&lax, &*desk.tool).await;
    assert_eq!(refused.refusal.as_ref().unwrap().reason.as_deref(), Some("the gate says no"));

    let desk = Desk::build(|builder| builder.policy(Policy::allow_all()));
    let strict = desk.gate.scoped(&Scope::new().before_tool(|_| async { Ok(HookAnswer::Refuse("not here".into())) }));
    assert_eq!(kind(&*call(&strict, &*desk.tool).await), Some(countersign::RefusalKind::Hook));
    assert!(call(&desk.gate, &*desk.tool).await.refusal.is_none(), "the gate itself is as it was");
    assert!(strict.is_same(&desk.gate) && !strict.is_same(&Desk::new().gate));
}

/// B95: of the rule's and the scopes' lives the shortest counts, inside a run too.
#[tokio::test]
async fn the_shortest_life_counts() {
    for (rule, caps, expected) in [
        ("10m", vec![60], Some(60)),
        ("10s", vec![60], Some(10)),
        ("never", vec![60, 20, 40], Some(20)),
        ("never", vec![], None),
    ] {
        let desk = Desk::under(&format!("otherwise: ask\nexpires_after: {rule}"));
        let cap = |gate: Gate, life: u64| gate.scoped(&Scope::new().hold_life(Duration::from_secs(life)));
        let gate = caps.iter().fold(desk.gate.clone(), |gate, life| cap(gate, *life));
        let asked = gate.submit(&*desk.tool, Desk::proposal("{}")).await.unwrap();
        let hold = asked.open_hold().unwrap();
        let life = hold.expires_at.map(|at| hold.opened_at.until(at).as_secs());
        assert_eq!(life, expected, "{rule} {caps:?}");
    }
}

/// B113: a scope's approver is asked instead of the gate's; without one whoever was asked before is.
#[tokio::test]
async fn a_scopes_approver_is_asked_instead() {
    let asked: Arc<Mutex<Vec<&str>>> = Arc::default();
    let answers = |who: &'static str, asked: &Arc<Mutex<Vec<&'static str>>>| {
        let asked = Arc::clone(asked);
        move |_| {
            asked.lock().unwrap().push(who);
            async { Ok(Answer::approve()) }
        }
    };
    let gates = answers("gate", &asked);
    let desk = Desk::build(|builder| builder.approver(gates));
    let one = desk.gate.scoped(&Scope::new().approver(answers("one", &asked)));
    let two = desk.gate.asking_like(&one).scoped(&Scope::new());
    for gate in [&desk.gate, &one, &two] {
        call(gate, &*desk.tool).await;
    }
    assert_eq!(*asked.lock().unwrap(), ["gate", "one", "one"]);
}

/// B44, B49: a tool knows its toolset for the rules, and shows at once that its definition changed.
#[tokio::test]
async fn a_tool_of_a_toolset_still_shows_that_it_changed() {
    struct Changing(Mutex<Arc<Definition>>);
    #[async_trait::async_trait]
    impl Tool for Changing {
        fn definition(&self) -> Arc<Definition> {
            Arc::clone(&self.0.lock().unwrap())
        }
        async fn run(&self, _running: Running) -> Result<Json, ToolError> {
            Ok(Json::empty())
        }
    }
    let changing = Arc::new(Changing(Mutex::new(Arc::new(Definition::new("deploy", "Deploys.")))));
    let tool = came_with(&"ops".into(), Arc::clone(&changing) as Arc<dyn Tool>);
    let desk = Desk::build(|builder| {
        builder.policy(policy("otherwise: allow\nrules: [{ ask: 'skill:ops' }]")).decided_elsewhere()
    });
    let asked = desk.gate.submit(&*tool, Desk::proposal("{}")).await.unwrap();
    desk.approve(&asked).await;
    *changing.0.lock().unwrap() = Arc::new(Definition::new("deploy", "Deletes."));
    let ended = desk.gate.resume(&*tool, asked.id).await.unwrap();
    assert_eq!(kind(&ended), Some(countersign::RefusalKind::Superseded));
    assert_eq!(tool.definition().toolset.as_deref(), Some("ops"));
}
