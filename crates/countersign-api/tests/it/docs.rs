//! Keeps the examples of `docs/reference/api.md` true.

use countersign_api::wire;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/reference/api.md");

/// The examples of the page, by the name of their type.
fn examples() -> Vec<(&'static str, Value)> {
    let example = |part: &'static str| {
        let (name, rest) = part.split_once(" -->\n```json\n")?;
        let (json, _) = rest.split_once("\n```")?;
        Some((name, serde_json::from_str(json).unwrap_or_else(|error| panic!("{name}: {error}"))))
    };
    PAGE.split("<!-- ").skip(1).filter_map(example).collect()
}

/// Reads an example as its type; whole, so that a member the type lacks, or one the example lacks, is found.
fn reads<T: DeserializeOwned + Serialize>(example: &Value) -> Value {
    let read: T = serde_json::from_str(&example.to_string()).unwrap();
    serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap()
}

#[test]
fn every_example_of_the_page_is_what_its_type_writes() {
    let examples = examples();
    assert!(examples.len() >= 15, "{} examples", examples.len());
    for (name, example) in &examples {
        let read = match *name {
            "Me" => reads::<wire::Me>(example),
            "Hold" => reads::<wire::Hold>(example),
            "HoldDetail" => reads::<wire::HoldDetail>(example),
            "NewDecision" => reads::<wire::NewDecision>(example),
            "Decided" => reads::<wire::Decided>(example),
            "PreviewGrant" => reads::<wire::PreviewGrant>(example),
            "GrantPreview" => reads::<wire::GrantPreview>(example),
            "Call" => reads::<wire::Call>(example),
            "Claimed" => reads::<wire::Claimed>(example),
            "Grant" => reads::<wire::Grant>(example),
            "Event" => reads::<wire::Event>(example),
            "Policy" => reads::<wire::Policy>(example),
            "Explained" => reads::<wire::Explained>(example),
            "Insights" => reads::<wire::Insights>(example),
            "MadeToken" => reads::<wire::MadeToken>(example),
            "Token" => reads::<wire::Token>(example),
            "NewSession" => reads::<wire::NewSession>(example),
            "NewMessage" => reads::<wire::NewMessage>(example),
            "ToolResult" => reads::<wire::ToolResult>(example),
            "SessionDetail" => reads::<wire::SessionDetail>(example),
            "SessionText" => reads::<wire::SessionText>(example),
            "Delivery" => reads::<wire::Delivery>(example),
            "Problem" => reads::<wire::Problem>(example),
            unknown => panic!("the page names a type `{unknown}` that this test does not know"),
        };
        assert_eq!(&read, example, "{name}");
    }
}
