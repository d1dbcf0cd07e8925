//! The programs behind the guide in `docs/guide`, one for each page.
//!
//! Each needs no key and no network, tells its story on the terminal, and fails if the story ends otherwise. Run one
//! with `cargo run -p countersign-examples -- ask_first`.
#![allow(clippy::print_stdout, reason = "telling a story on the terminal is what these programs do")]

pub mod ask_by_arguments;
pub mod ask_first;
pub mod ask_mid_run;
pub mod async_handle;
pub mod custom_tools;
pub mod hand_off;
pub mod policies;
pub mod pre_approved;
pub mod resume;
pub mod streaming;
pub mod sub_agents;
pub mod timeouts;
pub mod tool_descriptions;
pub mod toolset;

use std::sync::Arc;

use anyhow::Result;
use countersign::Hold;
use countersign_agent::model::Message;
use countersign_agent::{Agent, Session};
use futures::future::BoxFuture;

/// A program of the guide.
pub type Example = fn() -> BoxFuture<'static, Result<()>>;

/// Every program by its name, in the order of the guide.
pub const EXAMPLES: [(&str, Example); 14] = [
    ("ask_first", || Box::pin(ask_first::run())),
    ("ask_by_arguments", || Box::pin(ask_by_arguments::run())),
    ("ask_mid_run", || Box::pin(ask_mid_run::run())),
    ("toolset", || Box::pin(toolset::run())),
    ("policies", || Box::pin(policies::run())),
    ("pre_approved", || Box::pin(pre_approved::run())),
    ("hand_off", || Box::pin(hand_off::run())),
    ("sub_agents", || Box::pin(sub_agents::run())),
    ("streaming", || Box::pin(streaming::run())),
    ("async_handle", || Box::pin(async_handle::run())),
    ("timeouts", || Box::pin(timeouts::run())),
    ("custom_tools", || Box::pin(custom_tools::run())),
    ("resume", || Box::pin(resume::run())),
    ("tool_descriptions", || Box::pin(tool_descriptions::run())),
];

/// Says something to an agent, prints what its model read as results, and gives that back with the reply.
async fn converse(agent: &Agent, text: &str) -> Result<(Arc<str>, Vec<String>)> {
    let session = agent.new_session();
    let reply = session.run(text).await?;
    println!("the agent said: {}", reply.text);
    Ok((reply.text, read_by_model(&session).await?))
}

/// What the model read as the results of its calls, in order.
async fn read_by_model(session: &Session) -> Result<Vec<String>> {
    let mut read = Vec::new();
    for message in session.messages().await?.iter() {
        if let Message::Results { results } = message {
            read.extend(results.iter().map(|given| given.text.to_string()));
        }
    }
    for text in &read {
        println!("the model read: {text}");
    }
    Ok(read)
}

/// Prints a hold as a very small approval screen would.
fn show(hold: &Hold) {
    let agents: Vec<&str> = hold.call.facts.path.agents.iter().map(|agent| &**agent).collect();
    println!("{} wants {} {}", agents.join(" > "), hold.call.facts.tool, hold.call.shown_arguments());
    println!("  it says: {}", hold.hint.as_deref().unwrap_or("nothing"));
    for because in hold.because.iter() {
        println!("  asked by {}: {}", because.rule, because.reason.as_deref().unwrap_or("no reason given"));
    }
    if let Some(payload) = &hold.payload {
        println!("  look at: {payload}");
    }
}

/// The front page of the project is tested too.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
