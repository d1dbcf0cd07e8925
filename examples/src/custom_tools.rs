//! Tools without code of ours: one that the client runs, and programs and requests that the configuration describes.

use anyhow::{Context as _, Result};
use countersign::config::Config;
use countersign::{Answer, Definition, Gate, Json, Policy, Who};
use countersign_agent::model::{Scripted, Turn};
use countersign_agent::tools::{Made, from_config};
use countersign_agent::{Agent, RunEvent};

/// Tools as an operator writes them into `countersign.yml`: the agent chooses the arguments, never program or address.
const CONFIG: &str = r#"
tools:
  - name: count_words
    description: Counts the words of a text and returns the number.
    permission: auto_allow
    repeat: read_only
    input_schema:
      type: object
      properties: { text: { type: string, description: The text whose words are counted. } }
      required: [text]
    run: { command: [wc, -w], timeout: 10s }
  - name: open_ticket
    description: Opens a ticket with the help desk and returns its number.
    permission: always_ask
    input_schema:
      type: object
      properties: { summary: { type: string, description: What is wrong, in one sentence. } }
      required: [summary]
    http: { url: https://desk.example/tickets, headers: { Authorization: 'Bearer ${DESK_KEY}' }, timeout: 10s }
"#;

/// First the tools of a file, then one that a client runs.
pub async fn run() -> Result<()> {
    from_the_file().await?;
    by_the_client().await
}

/// A program gets the approved arguments as JSON on its input; what it prints is the result.
async fn from_the_file() -> Result<()> {
    let key = |name: &str| (name == "DESK_KEY").then(|| "secret".to_owned());
    let config = Config::from_yaml("countersign.yml", CONFIG, &key)?;
    let gate =
        Gate::builder().policy(config.policy.clone()).approver(|_| async { Ok(Answer::deny("not today")) }).build()?;
    let text = r#"{"text":"one two three"}"#;
    let wanted = Turn::new("").call("count_words", text).call("open_ticket", r#"{"summary":"It rains."}"#);
    let mut agent = Agent::builder("clerk", Scripted::new([wanted, Turn::new("Counted.")])).gate(gate);
    for described in &config.tools {
        let Made::Tool(tool) = from_config(described, &std::env::current_dir()?, None, None)? else { continue };
        agent = agent.shared_tool(tool);
    }
    let (_, read) = crate::converse(&agent.build()?, "How many words?").await?;
    assert!(read.iter().any(|answer| answer.contains("not today")), "{read:?}");
    Ok(())
}

/// The agent asks where the user is; their phone answers, after they said yes.
async fn by_the_client() -> Result<()> {
    let gate = Gate::builder().policy(Policy::ask_all()).decided_elsewhere().build()?;
    let locate = Definition::new("locate_user", "Says in which town the user is right now, as their phone knows it.");
    let model = Scripted::new([Turn::new("").call("locate_user", "{}"), Turn::new("It rains in Ghent.")]);
    let agent = Agent::builder("weather", model).gate(gate.clone()).client_tool(locate).build()?;
    let session = agent.new_session();

    let mut stream = session.stream("Do I need an umbrella?");
    while let Some(event) = stream.next().await {
        let RunEvent::Held { hold } = event else { continue };
        crate::show(&hold);
        gate.decide(hold.id, hold.decision(Who::person("user"), "phone", Answer::approve())).await?;
        // From here on it is the phone: it takes what was approved, once, and gives one result.
        let waiting = session.client_calls().await?;
        let call = waiting.first().context("the client has nothing to run")?;
        let taken = session.take(call.id).await?;
        println!("the phone runs {} {}", taken.tool, taken.arguments);
        assert!(session.take(call.id).await.is_err(), "nobody can take it a second time");
        session.give(taken.id, taken.fence, Ok(Json::string("Ghent"))).await?;
    }
    let reply = stream.reply().await?;
    println!("the agent said: {}", reply.text);
    assert_eq!(&*reply.text, "It rains in Ghent.");
    assert_eq!(crate::read_by_model(&session).await?, ["Ghent"]);
    Ok(())
}
