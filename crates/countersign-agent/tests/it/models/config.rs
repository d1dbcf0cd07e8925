//! The model a configuration names.

use std::sync::Arc;

use countersign::config::Config;
use countersign_agent::model::{Model, ModelError, Sources, from_config};
use countersign_testkit::model::ModelServer;

use super::{KEY, prompt, read, user};

fn made(section: &str, sources: Sources<'_>) -> Result<Arc<dyn Model>, ModelError> {
    let config = Config::from_yaml("c.yml", &format!("model: {section}\n"), &|_| None).unwrap();
    from_config(&config.model.unwrap(), sources)
}

#[tokio::test]
async fn every_provider_is_asked_in_its_own_dialect() {
    for (provider, path) in [
        ("anthropic", "/v1/messages"),
        ("openai", "/v1/responses"),
        ("openai-compatible", "/v1/chat/completions"),
        ("gemini", "/v1beta/models/m:streamGenerateContent?alt=sse"),
    ] {
        let server = ModelServer::start([]).await.unwrap();
        for (base, key) in [(server.url(), format!("api_key: {KEY}")), (format!("{}/", server.url()), String::new())] {
            let section = format!("{{ provider: {provider}, name: m, base_url: '{base}', {key} }}");
            let model = made(&section, Sources::default()).unwrap();
            assert_eq!(&*model.name(), "m");
            let (whole, error) = read(&*model, prompt(vec![user("go")])).await;
            assert_eq!((&whole.said.text[..], error), ("over", None), "{provider}");
        }
        let targets: Vec<String> = server.received().into_iter().map(|received| received.target).collect();
        assert_eq!(targets, [path, path]);
    }
}

#[tokio::test]
async fn what_is_missing_is_said_with_the_line_to_write() {
    for (section, words) in [
        ("{ provider: anthropic, name: m }", "`api_key: ${ANTHROPIC_API_KEY}` under `model:`"),
        ("{ provider: openai, name: m, api_key: ' ' }", "`api_key: ${OPENAI_API_KEY}` under `model:`"),
        ("{ provider: gemini, api_key: k }", "needs the name of a model: put `name: …`"),
        ("{ provider: openai-compatible, name: m }", "`base_url: http"),
        ("{ provider: scripted }", "needs a script: put `name: script.yml`"),
        ("{ provider: scripted, name: s.yml }", "the script `s.yml` was not read"),
        ("{ provider: manual }", "somebody who types"),
    ] {
        let error = made(section, Sources::default()).err().unwrap().to_string();
        assert!(error.contains(words), "{section}: {error}");
    }
}

#[tokio::test]
async fn a_script_is_played_in_the_part_of_the_agent() {
    let script = "turns: [{ text: anybody }]\nagents: { auditor: [{ text: the auditor }] }\n";
    for (agent, text) in [("auditor", "the auditor"), ("banker", "anybody")] {
        let sources = Sources { agent, script: Some(script), lines: None };
        let model = made("{ provider: scripted, name: s.yml }", sources).unwrap();
        assert_eq!(read(&*model, prompt(vec![user("go")])).await.0.said.text, text);
    }
    let sources = Sources { script: Some("turns: [{ txt: a }]"), ..Sources::default() };
    let error = made("{ provider: scripted, name: s.yml }", sources).err().unwrap().to_string();
    assert!(error.starts_with("s.yml:1:"), "{error}");
}
