//! What a model would trip over in a tool's definition, found before any model does.

use anyhow::Result;
use countersign::Definition;
use countersign_agent::lint::{FindingKind, lint};
use serde_json::json;

/// The same tool twice: as it is often written, and as a model can use it.
pub async fn run() -> Result<()> {
    let bad = Definition::new("process", "Process tool.").with_schema(&json!({
        "type": "object",
        "properties": {
            "amount": { "type": "integer" },
            "data": { "type": "string", "description": "The receiver; optional." },
        },
        "required": ["amount", "data"],
    }))?;
    let found = lint(&bad);
    found.iter().for_each(|finding| println!("{finding}"));
    let kinds: Vec<FindingKind> = found.iter().map(|finding| finding.kind).collect();
    for kind in [FindingKind::AmbiguousName, FindingKind::UndescribedParameter, FindingKind::NeedlessRequired] {
        assert!(kinds.contains(&kind), "{kind:?} is not among {kinds:?}");
    }

    let description = "Transfers money from the user's account at once and returns the new balance in euros. It cannot be \
                       taken back; use `plan_transfer` for a later day.";
    let good = Definition::new("transfer_money", description).with_schema(&json!({
        "type": "object",
        "properties": {
            "euros": { "type": "integer", "minimum": 1, "description": "How much, in whole euros." },
            "to": { "type": "string", "description": "The account that gets it, as an IBAN without blanks." },
        },
        "required": ["euros", "to"],
    }))?;
    println!("{}: {} findings", good.tool, lint(&good).len());
    assert!(lint(&good).is_empty());
    Ok(())
}
