//! The whole file, and what other sections say about permission.

use super::*;
use crate::call::{Declared, Facts, Path, Repeat, ToolId};
use crate::event::EventName;
use crate::json::{Bounds, Json};
use crate::policy::presets;
use crate::schema::Schema;
use crate::time::Time;
use crate::verdict::{Effect, Life, Memory};
use std::sync::LazyLock;
use std::time::Duration;

fn env(name: &str) -> Option<String> {
    (name == "KEY").then(|| "k3y".to_owned())
}

/// What an editor says about a file.
fn edited(text: &str) -> Result<(), Vec<String>> {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::compile(&Json::of(&Config::schema()).unwrap()).unwrap());
    let node = yaml::read(text, &mut Problems::new("countersign.yml", text)).unwrap();
    SCHEMA.check(&Json::ingest(&node.to_json(), Bounds::STORED).unwrap())
}

/// What loads, an editor accepts.
#[track_caller]
fn config(text: &str) -> Config {
    match Config::from_yaml("countersign.yml", text, &env) {
        Ok(config) => {
            assert_eq!(edited(text), Ok(()), "{text}");
            config
        }
        Err(errors) => panic!("{errors}"),
    }
}

/// A key or word that the loader does not know, an editor does not know either.
#[track_caller]
fn check_refused(text: &str, expected: &str) {
    let errors = Config::from_yaml("countersign.yml", text, &env).expect_err(text).to_string();
    assert!(errors.contains(expected), "{expected:?} not in\n{errors}");
    if errors.contains("unknown ") {
        assert!(edited(text).is_err(), "{text}");
    }
}

#[track_caller]
fn check(text: &str, tool: ToolId, expected: Effect, rule: &str) {
    let facts = Facts {
        tool,
        toolset: None,
        arguments: Json::empty(),
        path: Path::default(),
        declared: Declared::Nothing,
        annotations: None,
        places: Default::default(),
        at: Time(0),
    };
    let verdict = config(text).policy.judge(&facts);
    assert_eq!((verdict.effect, &*verdict.rules()[0]), (expected, rule), "{text}");
}

/// The example of the configuration reference loads as it stands, but for what is not there yet.
#[test]
fn the_reference_file_loads() {
    let config = config(REFERENCE);
    assert_eq!(config.store.as_deref(), Some("sqlite:countersign.db"));
    assert_eq!(config.listen.as_deref(), Some("127.0.0.1:7117"));
    let model = config.model.unwrap();
    assert_eq!(model.api_key.as_ref().map(Secret::reveal), Some("k3y"));
    assert!(!format!("{model:?}").contains("k3y"));
    assert_eq!(config.limits.submits_per_second, 50);
    assert_eq!(config.limits.lease(), Duration::from_secs(30));
    assert_eq!(config.tools[0].repeat, Repeat::ReadOnly);
    assert_eq!(config.tools[0].run, ToolRun::Command(vec!["python3".into(), "query.py".into()]));
    assert_eq!(config.mcp_servers[0].args.len(), 3);
    assert_eq!(config.agents[0].approval_timeout, Some(Duration::from_secs(300)));
    assert_eq!(config.policy.groups_of("bo"), [std::sync::Arc::from("finance")]);
    assert_eq!(config.policy.groups_of("eve"), []);
    assert_eq!(config.notify.len(), 1);
    assert_eq!(config.notify[0].to, NotifyTo::Webhook { url: Secret::new("https://example.org"), secret: None });
    assert!(
        config.notify[0].about.names(EventName::HoldOpened) && !config.notify[0].about.names(EventName::HoldDecided)
    );
    assert_eq!(config.redact.keys, ["*password*"]);
    assert_eq!(config.policy.lint(), []);
    // What the store keeps of the policy reads back as the same policy.
    let source = config.policy.source().unwrap();
    assert!(!source.contains("k3y"));
    assert_eq!(Policy::from_yaml(source).unwrap().version(), config.policy.version());
}

/// 002's words: per-tool permissions become rules.
#[test]
fn permissions_become_rules() {
    let text = |word: &str| format!("tools: [{{ name: query, client: true, permission: {word} }}]");
    check(&text("auto_allow"), ToolId::local("query"), Effect::Allow, "tools.query.permission");
    check(&text("always_ask"), ToolId::local("query"), Effect::Ask, "tools.query.permission");
    check(&text("auto_deny"), ToolId::local("query"), Effect::Deny, "tools.query.permission");
    check_refused(&text("auto_alow"), "did you mean `auto_allow`?");
}

/// 003's words: what an MCP server's `confirm` names is asked about, whatever else allows it.
#[test]
fn confirm_becomes_a_rule() {
    let text = |word: &str| {
        format!("policy: {{ otherwise: allow }}\nmcp_servers: {{ files: {{ command: x, confirm: {word} }} }}")
    };
    check(&text("all"), ToolId::on("files", "read"), Effect::Ask, "mcp_servers.files.confirm");
    check(&text("all"), ToolId::on("other", "read"), Effect::Allow, "otherwise");
    check(&text("[write]"), ToolId::on("files", "write"), Effect::Ask, "mcp_servers.files.confirm");
    check(&text("[write]"), ToolId::on("files", "read"), Effect::Allow, "otherwise");
    check(&text("none"), ToolId::on("files", "read"), Effect::Allow, "otherwise");
    check_refused(&text("some"), "`confirm` is `none`, `all` or a list");
}

/// B70: 004's section is accepted as written, `memory` ends with the session; contradicting the policy is an error.
#[test]
fn tool_confirmation_is_translated() {
    let text =
        |mode: &str| format!("toolConfirmation: {{ mode: {mode}, timeout: 45000, allowedToolsStorage: memory }}");
    check(&text("event-based"), ToolId::local("x"), Effect::Ask, "otherwise");
    check(&text("auto-approve"), ToolId::local("x"), Effect::Allow, "otherwise");
    check(&text("auto-deny"), ToolId::local("x"), Effect::Deny, "toolConfirmation.mode");
    let config = config(&text("event-based"));
    let facts = Facts {
        tool: ToolId::local("x"),
        toolset: None,
        arguments: Json::empty(),
        path: Path::default(),
        declared: Declared::Nothing,
        annotations: None,
        places: Default::default(),
        at: Time(0),
    };
    let terms = config.policy.judge(&facts).terms;
    assert_eq!((terms.life, terms.remember), (Life::For(Duration::from_secs(45)), Memory::Session));
    check_refused(&format!("policy: {{ otherwise: allow }}\n{}", text("event-based")), "contradicts");
    check_refused(&format!("policy: {{ preset: allow-all }}\n{}", text("auto-deny")), "contradicts");
    check_refused(&format!("policy: {{ expires_after: 10m }}\n{}", text("event-based")), "contradicts");
    check_refused("toolConfirmation: { mode: auto }", "unknown `mode` `auto`");
    check_refused("toolConfirmation: { timeout: soon }", "`timeout` must be");
}

/// Every preset is a policy that an editor accepts, and so is every section left blank.
#[test]
fn the_schema_accepts_presets_and_blank_sections() {
    for name in presets::NAMES {
        let indented: String = presets::text(name).unwrap().lines().map(|line| format!("  {line}\n")).collect();
        config(&format!("policy:\n{indented}"));
        config(&format!("policy: {{ preset: {name} }}"));
    }
    config("policy:\nlimits:\nagents:\nmcp_servers:\n");
    config("listen: 'x${KEY}'\npolicy: { rules: }");
}

/// The schema knows every place where a key can be wrong.
#[test]
fn the_schema_refuses_unknown_keys_everywhere() {
    for text in [
        "policy: { otherwize: ask }",
        "policy: { rules: [{ ask: x, aprovals: 2 }] }",
        "policy: { rules: [{ ask: x, except: [{ tool: y, wen: true }] }] }",
        "policy: { rules: [{ ask: x, examples: { mach: [] } }] }",
        "agents: { a: { policy: { preset: ask-all } } }",
        "agents: { a: { model: { provider: openai, nam: x } } }",
        "agents: { a: { limits: { turn: 5 } } }",
        "model: { provider: openai, price: { inputs: 1 } }",
        "web_search: { urls: https://x }",
        "fetch: { allows: 10.0.0.1 }",
        "tools: [{ name: a, run: { comand: [x] } }]",
        "toolConfirmation: { mod: auto-deny }",
        "approvers: { group: {} }",
        "notify: [{ webhook: x, risc: low }]",
        "notify: [{ email: { too: a@example.org } }]",
        "redact: { key: [] }",
    ] {
        check_refused(text, "unknown key");
        assert!(edited(text).is_err(), "{text}");
    }
    for text in ["policy: { rules: [{ ask: x, deny: y }] }", "policy: { rules: [{ id: x }] }"] {
        assert!(edited(text).is_err(), "{text}");
    }
}

/// B121: what a run may take is read to the millionth of a dollar, and a limit that nothing counts towards is refused.
#[test]
fn budgets_are_read_exactly() {
    let read = config(
        "
model: { provider: anthropic, name: m, max_tokens: 500, price: { input: 3, output: 15.25, cached: 0.000001 } }
agents:
  a: { limits: { turns: 5, tokens: 100000, dollars: 2.5, extensions: 0 } }
  b: { model: { provider: manual } }
",
    );
    let model = read.model.unwrap();
    let price = PriceConfig { input: 3_000_000, output: 15_250_000, cached: 1 };
    assert_eq!((model.max_tokens, model.price), (Some(500), Some(price)));
    let limits =
        RunLimitsConfig { turns: Some(5), tokens: Some(100_000), micro_dollars: Some(2_500_000), extensions: Some(0) };
    assert_eq!((read.agents[0].limits, read.agents[1].limits), (limits, RunLimitsConfig::default()));
    let uncached = config("model: { provider: openai, price: { input: 1, output: 2 } }").model.unwrap().price;
    assert_eq!(uncached, Some(PriceConfig { input: 1_000_000, output: 2_000_000, cached: 1_000_000 }));
    let limited = |limit: &str| format!("agents: {{ a: {{ limits: {{ {limit} }} }} }}");
    check_refused(&limited("turns: 0"), "`turns` must be at least 1");
    check_refused(&limited("turns: -1"), "`turns` must be a whole number");
    check_refused(&limited("tokens: 1.5"), "`tokens` must be a whole number");
    check_refused(&limited("tokens: many"), "`tokens` must be a whole number");
    check_refused(&limited("extensions: 11"), "`extensions` must be at most 10");
    for wrong in ["-1", "1e-9", "0.0000001", "2 dollars", "99999999999999999999"] {
        check_refused(&limited(&format!("dollars: {wrong}")), "`dollars` must be dollars");
    }
    for wrong in [".nan", ".inf"] {
        check_refused(&limited(&format!("dollars: {wrong}")), "non-finite float");
    }
    check_refused(&limited("dollars: 0"), "`dollars` must be more than 0");
    check_refused("model: { provider: openai, max_tokens: 0 }", "`max_tokens` must be at least 1");
    check_refused("model: { provider: openai, price: { input: 1 } }", "needs `input` and `output`");
    let unpriced = "model: { provider: openai }\nagents: { a: { sub_agents: [b], model: { provider: scripted, name: s }, \
                    limits: { dollars: 1 } }, b: {} }";
    check_refused(unpriced, "the model of agent `b` needs a `price`");
}

/// The web beyond the open internet is named address by address.
#[test]
fn the_web_is_read_strictly() {
    let read = config(
        "web_search: { url: 'https://search.example/v1', api_key: '${KEY}' }\nfetch: { allow: [10.0.0.5, 'fd00::5'] }",
    );
    assert_eq!(read.web_search.as_ref().unwrap().url, "https://search.example/v1");
    assert_eq!(read.fetch.allow.len(), 2);
    assert!(!format!("{read:?}").contains("k3y"));
    check_refused("web_search: { api_key: x }", "`web_search` needs a `url`");
    check_refused("web_search: { url: 'file:///etc' }", "must begin with `https://`");
    check_refused("fetch: { allow: intranet.example }", "is not an IP address");
    check_refused("fetch: { allow: 10.0.0.0/8 }", "is not an IP address");
}

/// Whoever is told is named exactly, and what would leave in the clear is said at its place.
#[test]
fn who_is_told_is_read_strictly() {
    let text = "
notify:
  - webhook: https://hooks.example.org/a?b=c
    secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw
    events: [hold.opened, call.in_doubt]
    risk: high
    rules: big-*
    tools: ['db/*', transfer]
    include: arguments
  - slack: http://127.0.0.1:1/x
    allow_private: true
  - email: { to: [ann@example.org, Bo <bo@example.org>], from: gate@example.org, smtp: smtp.example.org, username: u, password: '${KEY}' }
";
    let read = config(text);
    assert!(read.notify[0].arguments && read.notify[0].about.names(EventName::CallInDoubt));
    assert!(!read.notify[1].arguments && read.notify[1].allow_private);
    let NotifyTo::Email(email) = &read.notify[2].to else { panic!("{:?}", read.notify[2]) };
    assert_eq!((&*email.host, email.port, email.tls, email.to.len()), ("smtp.example.org", 587, SmtpTls::StartTls, 2));
    let shown = format!("{:?}", read.notify);
    for secret in ["k3y", "MfKQ9r8", "b=c", "127.0.0.1"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    check_refused("notify: [{ risk: low }]", "1:10: `notify` needs one of `webhook`, `slack` and `email`");
    check_refused("notify: [{ webhook: https://x, slack: https://y }]", "needs one of");
    check_refused("notify: [{ webhook: http://example.org }]", "1:21: `webhook` would be sent in the clear");
    check_refused("notify: [{ webhook: ftp://example.org }]", "must be a URL that begins with https://");
    check_refused("notify: [{ webhook: https://u:p@example.org }]", "a user name or a password");
    check_refused("notify: [{ webhook: 'https:///x' }]", "`webhook` is not a URL");
    check_refused("notify: [{ webhook: https://x, secret: abc }]", "1:40: `secret` must be `whsec_`");
    check_refused("notify: [{ webhook: https://x, secret: whsec_c2hvcnQ= }]", "24 to 64 bytes");
    check_refused("notify: [{ slack: https://x, secret: abc }]", "nothing else is signed");
    check_refused("notify: [{ webhook: https://x, events: [] }]", "names none");
    check_refused("notify: [{ webhook: https://x, events: hold.open }]", "did you mean `hold.opened`?");
    check_refused("notify: [{ webhook: https://x, tools: 'a b' }]", "`tools`: pattern `a b`");
    check_refused("notify: [{ email: { from: a@b, smtp: x } }]", "`email` needs `to`");
    check_refused("notify: [{ email: { to: [], from: a@b, smtp: x } }]", "`email` needs `to`");
    check_refused("notify: [{ email: { to: a, from: a@b, smtp: x } }]", "`a` is not an address");
    check_refused("notify: [{ email: { to: a@b, from: \"a@b\\nBcc: c@d\", smtp: x } }]", "`from`:");
    check_refused("notify: [{ email: { to: a@b, from: a@b, smtp: 'x:0' } }]", "`smtp` must be a host");
    check_refused("notify: [{ email: { to: a@b, from: a@b, smtp: x, tls: none } }]", "sent in the clear");
    check_refused("notify: [{ email: { to: a@b, from: a@b, smtp: x, username: u } }]", "go together");
}

/// B46: unknown keys are errors everywhere, and an unset variable is an error at its place.
#[test]
fn unknown_keys_and_unset_variables_are_errors() {
    check_refused("stor: x", "1:1: unknown key `stor` in the file");
    check_refused("rules: [{ allow: x }]", "unknown key `rules` in the file");
    check_refused("limits: { pending_per_sesion: 5 }", "did you mean `pending_per_session`?");
    check_refused("limits: { attempts: 0 }", "at least 1");
    check_refused("limits: { lease_seconds: 0 }", "at least 1");
    check_refused("limits: { lease_seconds: 1s }", "`lease_seconds`");
    check_refused("model: { provider: anthropc }", "did you mean `anthropic`?");
    check_refused("agents: { a: { instruction: x } }", "did you mean `instructions`?");
    check_refused("mcp_servers: { a: { comand: x } }", "did you mean `command`?");
    check_refused("tools: [{ name: a, client: true, repeats: x }]", "did you mean `repeat`?");
    check_refused("store: x\nlisten: \"a ${NOPE} b\"", "2:9: environment variable `NOPE` is not set");
    check_refused("listen: '${NOPE'", "never closed");
    check_refused("listen: '${}'", "does not name");
    assert_eq!(config("listen: a$${KEY}b${KEY}").listen.as_deref(), Some("a${KEY}bk3y"));
    check_refused("agents: { a: { timeout: 5m, approval_timeout: 5m } }", "must be less than `timeout`");
    check_refused("agents: { a: { sub_agents: [b] } }", "names agent `b`, which is not there");
    check_refused("redact: { values: ['('] }", "not a regular expression");
    check_refused("tools: [{ name: 'a b', client: true }]", "cannot be the name of a tool");
    check_refused("tools: [{ name: a }]", "needs one of");
    check_refused("mcp_servers: { 'a/b': { command: x } }", "cannot be the name of a server");
}

/// One reading reports every problem, in the order of the file.
#[test]
fn one_reading_reports_every_problem() {
    let text = "stor: x\npolicy:\n  otherwise: maybe\n  rules:\n  - { allow: 'a b' }\n  - { ask: x, when: 'arguments.' }\nlimits: { x: 1 }\n";
    let errors = Config::from_yaml("c.yml", text, &env).unwrap_err();
    let lines: Vec<usize> = errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, [1, 3, 5, 6, 7], "{errors}");
    let shown = errors.to_string();
    assert!(shown.contains("c.yml:3:14: unknown `otherwise` `maybe`"), "{shown}");
    assert!(shown.contains(" 3 |   otherwise: maybe\n   |              ^\n"), "{shown}");
}

const REFERENCE: &str = r#"
store: sqlite:countersign.db
listen: 127.0.0.1:7117
model:
  provider: anthropic
  name: claude-sonnet-4-6
  base_url: https://example.org
  api_key: ${KEY}
policy:
  preset: ask-all
  otherwise: ask
  unattended: deny
  expires_after: 10m
  in_client: deny
  rules:
    - id: reads
      allow: ["read_*", "list_*", "github/get_*"]
    - id: big-transfers
      ask: transfer_money
      when: arguments.amount > 10000
      reason: Transfers above 10,000 need a second pair of eyes
      approvals: 2
      from: [finance]
      expires_after: 1h
      remember: none
      human: required
      requester: excluded
      risk: high
      on_expired: refuse
      examples: { match: [{ amount: 20000 }], no_match: [{ amount: 5 }] }
    - { id: no-drops, deny: "db/drop_*", hide: true }
    - { id: delegate-math, allow: "agent:math_specialist", inside: own }
limits: { pending_per_session: 100, submits_per_second: 50 }
redact: { keys: ["*password*"], values: ["sk-[a-z]+"] }
tools:
  - name: query_customer_database
    description: Looks a customer up.
    input_schema: { type: object, properties: { customer_id: { type: string, description: The id } }, required: [customer_id] }
    permission: always_ask
    repeat: read_only
    run: { command: [python3, query.py] }
mcp_servers:
  files: { command: npx, args: ["-y", "@modelcontextprotocol/server-filesystem", "."], confirm: all, trust_hints: false }
agents:
  banker:
    instructions: Be careful.
    tools: [transfer_money, read_file]
    sub_agents: [math_specialist]
    handoffs: [auditor]
    policy: { rules: [{ ask: transfer_money }] }
    batch: independent
    timeout: 10m
    approval_timeout: 5m
  math_specialist: {}
  auditor: {}
approvers:
  groups: { finance: [ann, bo] }
notify:
  - webhook: https://example.org
"#;
