//! B134: lint of tool definitions.

use countersign::store::CallFilter;
use countersign::{Definition, Json};
use countersign_agent::lint::{FindingKind, lint};
use countersign_agent::tools::{WebSearch, builtin};
use serde_json::{Value, json};

use super::World;
use crate::bed::{ALLOW, EVERY, Script, calls, says};
use crate::loop_restart::restart_under;

#[track_caller]
fn check(name: &str, description: &str, schema: Value, expected: &[(&str, FindingKind)]) {
    let definition = Definition::new(name, description).with_schema(&schema).unwrap();
    let findings = lint(&definition);
    let found: Vec<_> = findings.iter().map(|finding| (finding.place.as_str(), finding.kind)).collect();
    assert_eq!(found, expected, "{findings:#?}");
}

const GOOD: &str = "Finds the orders of one customer, newest first.";

fn object(properties: Value, required: Value) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}

#[test]
fn a_description_must_say_something() {
    let schema = object(json!({}), json!([]));
    check("find_orders", GOOD, schema.clone(), &[]);
    check("find_orders", " ", schema.clone(), &[("", FindingKind::NoDescription)]);
    check("findOrders", "Finds the order.", schema.clone(), &[("", FindingKind::RepeatsName)]);
    check("find_orders", "Queries them.", schema.clone(), &[("", FindingKind::ThinDescription)]);
    check("run", GOOD, schema, &[("", FindingKind::AmbiguousName)]);
    check("find_orders", GOOD, json!({}), &[("", FindingKind::NoObject)]);
}

#[test]
fn a_parameter_must_be_described() {
    let inner = object(json!({ "zip": { "type": "string" } }), json!([]));
    let properties = json!({
        "customer": { "type": "string", "description": "The customer's number, such as `C-17`." },
        "address": { "type": "string", "description": "Address" },
        "places": { "type": "array", "description": "Where they have been so far.", "items": inner },
    });
    let expected = [("address", FindingKind::UndescribedParameter), ("places.zip", FindingKind::UndescribedParameter)];
    check("find_orders", GOOD, object(properties, json!(["customer"])), &expected);
}

#[test]
fn nothing_is_required_needlessly() {
    let properties = json!({
        "limit": { "type": "integer", "description": "How many at most.", "default": 10 },
        "page": { "type": "integer", "description": "Optional: which page to show." },
    });
    let required = json!(["limit", "page", "ghost"]);
    let expected = [
        ("ghost", FindingKind::UnknownRequired),
        ("limit", FindingKind::NeedlessRequired),
        ("page", FindingKind::NeedlessRequired),
    ];
    check("find_orders", GOOD, object(properties, required), &expected);
}

#[test]
fn names_and_values_must_be_told_apart() {
    let properties = json!({
        "data": { "type": "string", "description": "The rows to write down." },
        "dry_run": { "type": "boolean", "description": "Simulation mode." },
        "order": { "enum": ["asc", "desc"], "description": "Sort order: asc is oldest first." },
        "user_id": { "type": "string", "description": "Who asks for it." },
        "userid": { "type": "string", "description": "Who is asked about it." },
    });
    let expected = [
        ("userid", FindingKind::AmbiguousName),
        ("data", FindingKind::AmbiguousName),
        ("dry_run", FindingKind::UndescribedValues),
        ("order", FindingKind::UndescribedValues),
    ];
    check("find_orders", GOOD, object(properties, json!([])), &expected);
    let many: serde_json::Map<String, Value> = (0..11)
        .map(|number| (format!("field_{number}"), json!({ "type": "string", "description": "One part of the name." })))
        .collect();
    check("find_orders", GOOD, object(many.into(), json!([])), &[("", FindingKind::TooManyParameters)]);
}

/// B134: what is found about a tool is found about what the store keeps of it too, in any store.
#[tokio::test]
async fn a_definition_on_record_is_found_fault_with_alike() {
    for kind in EVERY {
        let (stores, bed) = restart_under(kind, ALLOW).await;
        let schema = object(json!({ "q": { "type": "string", "default": "all" } }), json!(["q"]));
        let definition = Definition::new("query", "Query.").with_schema(&schema).unwrap();
        let found = lint(&definition);
        assert!(found.len() >= 3, "{found:?}");
        let tool = countersign::tool::tool(definition, |_| async { Ok(Json::empty()) });
        let script = Script::new([calls([("query", r#"{"q":"x"}"#)]), says("ok")]);
        bed.agent_with(&script, |builder| builder.tool(tool)).run("go").await.unwrap();
        let store = stores.reopen().await;
        let call = store.calls(CallFilter::default()).await.unwrap().remove(0);
        let kept = store.record("definitions", &call.definition.unwrap().to_string()).await.unwrap().unwrap();
        let kept: Definition = serde_json::from_slice(&kept.value).unwrap();
        assert_eq!(lint(&kept), found, "{kind:?}");
    }
}

#[test]
fn our_own_tools_are_clean() {
    super::server::install_tls();
    let world = World::new();
    let mut tools = builtin(&world.workspace());
    tools.push(std::sync::Arc::new(WebSearch::new("https://search.example/v1", None).unwrap()));
    assert_eq!(tools.len(), 8);
    for tool in tools {
        assert_eq!(lint(&tool.definition()), [], "{}", tool.definition().tool);
        tool.definition().schema().unwrap();
    }
}
