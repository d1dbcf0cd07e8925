//! Rules over tools that know nothing of being asked about.

use anyhow::Result;
use countersign::{Answer, Definition, Gate, Json, Policy, tool};
use countersign_agent::Agent;
use countersign_agent::model::{Scripted, Turn};

const POLICY: &str = r#"
otherwise: ask
rules:
  - { id: reads, allow: "read_*" }
  - { id: small-refunds, allow: refund, when: arguments.cents <= 1000 }
  - { id: no-drops, deny: "drop_*", reason: Only the operator drops tables }
"#;

/// A tool that takes anything and says that it did it.
fn does(name: &'static str, description: &'static str) -> tool::FnTool {
    tool::tool(Definition::new(name, description), move |_| async move { Ok(Json::string(&format!("{name} done"))) })
}

/// Reading and a small refund pass, a large one is asked about, dropping is denied without a question.
pub async fn run() -> Result<()> {
    let gate = Gate::builder().policy(Policy::from_yaml(POLICY)?).approver(|hold| async move {
        crate::show(&hold);
        assert_eq!(hold.call.facts.arguments.as_str(), r#"{"cents":99000}"#, "only the large refund is asked about");
        Ok(Answer::approve())
    });

    let model = Scripted::new([
        Turn::new("")
            .call("read_orders", "{}")
            .call("refund", r#"{"cents":900}"#)
            .call("refund", r#"{"cents":99000}"#)
            .call("drop_table", r#"{"table":"orders"}"#),
        Turn::new("Refunded. The table stays."),
    ]);
    let agent = Agent::builder("clerk", model)
        .gate(gate.build()?)
        .tool(does("read_orders", "Lists the orders of today with their states."))
        .tool(does("refund", "Pays the price of an order back, in cents, at once."))
        .tool(does("drop_table", "Deletes a table of the database with all that is in it."));
    let (_, read) = crate::converse(&agent.build()?, "Refund both orders and tidy up").await?;

    let denied = "Not run. The policy does not allow this call. Reason: Only the operator drops tables. \
                  Do not retry the same call.";
    assert_eq!(read, ["read_orders done", "refund done", "refund done", denied]);
    Ok(())
}
