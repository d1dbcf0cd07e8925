//! B49 to B51: policies and definitions that change while calls are under way.

use std::sync::{Arc, Mutex};

use countersign::grant::Remember;
use countersign::show::View;
use countersign::tool::{FnTool, tool};
use countersign::{Call, CallState, Definition, GateError, Json, Policy, Proposal, RefusalKind, Tool, Toolset};

use super::desk::{Desk, kind, recorder, remember};

fn described(name: &str, description: &str) -> FnTool {
    tool(Definition::new(name, description), |_| async { Ok(Json::empty()) })
}

/// A toolset that grows.
struct Growing(Mutex<Vec<Arc<dyn Tool>>>);

impl Toolset for Growing {
    fn name(&self) -> Arc<str> {
        "files".into()
    }
    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.0.lock().unwrap().clone()
    }
}

/// B49: a tool that appears later falls under no rule about the others: `otherwise` decides.
#[tokio::test(start_paused = true)]
async fn a_tool_that_appears_later_is_judged_as_unmatched() {
    for (otherwise, expected) in [("ask", CallState::Pending), ("deny", CallState::Denied)] {
        let yaml = format!("otherwise: {otherwise}\nrules: [{{ id: reads, allow: [read_file, list_files] }}]");
        let desk = Desk::under(&yaml);
        let files = Growing(Mutex::new(vec![Arc::new(recorder("read_file", &desk.ran))]));
        let submit = async |name: &str| {
            let tools = files.tools();
            let tool = tools.iter().find(|tool| &*tool.definition().tool.name == name).unwrap();
            desk.gate.submit(&**tool, Proposal::new(name, "{}").session("s1")).await.unwrap()
        };
        assert_eq!(submit("read_file").await.state, CallState::Allowed);
        files.0.lock().unwrap().push(Arc::new(recorder("read_files_and_delete", &desk.ran)));
        let newcomer = submit("read_files_and_delete").await;
        assert_eq!((newcomer.state, newcomer.verdict.rules()), (expected, vec!["otherwise".into()]), "{otherwise}");
    }
}

/// B49: a changed definition withdraws what waits for the old one, whatever its state before the run, and voids its
/// grants, for good. Other tools' calls and grants stay.
#[tokio::test(start_paused = true)]
async fn a_changed_definition_ends_its_holds_and_grants() {
    let desk = Desk::new();
    let (old, new, other) = (described("pay", "Pays."), described("pay", "Pays twice."), described("read", "Reads."));
    let submit = async |tool: &FnTool, n: u32| {
        let proposal = Proposal::new(tool.definition().tool.name.clone(), format!(r#"{{"n":{n}}}"#)).session("s1");
        desk.gate.submit(tool, proposal).await.unwrap()
    };
    let mut bound = Vec::new();
    for tool in [&old, &other] {
        let approved = submit(tool, 1).await;
        desk.ann(&approved, remember(Remember::session())).await.unwrap();
        let allowed = submit(tool, 1).await;
        assert_eq!(allowed.state, CallState::Allowed);
        bound.push([approved, allowed, submit(tool, 2).await]);
    }
    // Nothing is claimed while all is halted, but what is void is void: lifting the halt brings none of it back.
    desk.gate.halt(None, "ann", None).await.unwrap();
    assert_eq!(desk.gate.supersede(&old.definition().digest()).await.unwrap(), 3);
    desk.gate.lift(None, "ann").await.unwrap();
    for call in &bound[0] {
        let ended = desk.now(call).await;
        assert_eq!((ended.state, kind(&ended)), (CallState::Cancelled, Some(RefusalKind::Superseded)));
    }
    let mut unrelated = Vec::new();
    for call in &bound[1] {
        unrelated.push(desk.now(call).await.state);
    }
    assert_eq!(unrelated, [CallState::Approved, CallState::Allowed, CallState::Pending]);
    assert_eq!(submit(&new, 1).await.state, CallState::Pending, "the new definition has no grant");
    assert_eq!(submit(&old, 1).await.state, CallState::Pending, "and putting the old one back revives none");
    assert_eq!(submit(&other, 1).await.state, CallState::Allowed);
    assert_eq!(desk.count("grant.revoked").await, 1);
    assert_eq!(desk.gate.supersede(&old.definition().digest()).await.unwrap(), 1, "again: only what came since");
}

/// B50: a broken file at start gives no policy to start with; while running it changes nothing and is on record.
#[tokio::test(start_paused = true)]
async fn a_broken_policy_refuses_to_start_and_never_replaces_a_good_one() {
    let broken = ["otherwise: perhaps", "rules: [{ id: a, alow: x }]", "rules: [", "otherwise: ask\notherwise: allow"];
    for yaml in broken {
        assert!(Policy::from_yaml(yaml).is_err(), "{yaml}");
    }
    let desk = Desk::under("otherwise: deny");
    let version = Arc::clone(desk.gate.policy().version());
    for (tried, yaml) in broken.iter().enumerate() {
        assert!(matches!(desk.gate.load_policy(yaml).await, Err(GateError::BrokenPolicy(_))), "{yaml}");
        assert_eq!(desk.gate.policy().version(), &version);
        assert_eq!(desk.count("policy.rejected").await, tried + 1);
        assert_eq!(desk.submit("{}").await.state, CallState::Denied);
    }
    assert_eq!(desk.count("policy.loaded").await, 0);
}

/// B51: a new version counts for the next judging at once.
#[tokio::test(start_paused = true)]
async fn a_new_policy_judges_the_next_call() {
    let desk = Desk::under("otherwise: ask");
    for (yaml, expected) in [
        ("otherwise: allow", CallState::Allowed),
        ("otherwise: deny", CallState::Denied),
        ("otherwise: ask", CallState::Pending),
    ] {
        desk.gate.load_policy(yaml).await.unwrap();
        let call = desk.submit("{}").await;
        assert_eq!((call.state, &call.verdict.policy), (expected, desk.gate.policy().version()), "{yaml}");
    }
}

fn shown(desk: &Desk, call: &Call) -> Option<String> {
    let view = View::of(call, call.open_hold().unwrap(), call.created_at).under(call, &desk.gate.policy());
    view.lines.into_iter().find(|line| line.label == "policy").map(|line| line.text)
}

/// B51: an open hold outlives a change of policy, with the digest it was shown by, and shows what changed.
#[tokio::test(start_paused = true)]
async fn an_open_hold_stays_and_shows_the_change() {
    for (yaml, says) in [
        ("otherwise: allow", "now it would be allowed, by otherwise"),
        ("rules: [{ id: still, ask: deploy }]", "now it is still asked about, by still"),
        (
            "rules: [{ id: no-deploys, deny: deploy }]",
            "now it is denied, and will not run even if approved, by no-deploys",
        ),
    ] {
        let desk = Desk::under("otherwise: ask");
        let call = desk.submit("{}").await;
        assert_eq!(shown(&desk, &call), None);
        desk.gate.load_policy(yaml).await.unwrap();
        let after = desk.now(&call).await;
        assert_eq!(*after, *call, "the hold is as it was");
        let text = shown(&desk, &after).unwrap();
        assert!(text.contains("changed since this was asked") && text.contains(says), "{text}");
        desk.approve(&call).await;
        let ended = desk.resume(&call).await.state;
        let expected = if yaml.contains("deny") { CallState::Lapsed } else { CallState::Succeeded };
        assert_eq!(ended, expected, "{yaml}");
    }
}
