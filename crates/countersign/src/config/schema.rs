//! The JSON Schema of `countersign.yml`, for editors.
//!
//! Keys and words come from the lists the loader itself reads by, so neither can know one that the other does not. The
//! loader stays the judge: it also checks what no schema can say.

use serde_json::{Map, Value, json};

use super::budget::{PRICE_KEYS, RUN_LIMIT_KEYS};
use super::notify::{EMAIL_KEYS, INCLUDES, NOTIFY_KEYS, SMTP_TLS, event_words};
use super::parts::{
    AGENT_KEYS, BATCHES, LIMIT_KEYS, MODEL_KEYS, PROVIDERS, REDACT_KEYS, REPEATS, RUN_KEYS, RUNNER_KEYS, SERVER_KEYS,
    TOOL_KEYS,
};
use super::web::{FETCH_KEYS, WEB_SEARCH_KEYS};
use crate::limits;
use crate::policy::examples::EXAMPLE_KEYS;
use crate::policy::presets;
use crate::policy::read::{
    AGENT_POLICY_KEYS, EXCEPTION_KEYS, HUMAN, IN_CLIENT, INSIDE, MEMORIES, ON_EXPIRED, OTHERWISES, POLICY_KEYS,
    REQUESTERS, RISKS, RULE_KEYS, UNATTENDED,
};
use crate::policy::translate::{MODES, PERMISSIONS, STORAGES, TOOL_CONFIRMATION_KEYS};
use crate::policy::{APPROVER_KEYS, FILE_KEYS};

/// The schema of a whole file.
pub(super) fn file() -> Value {
    let mut schema = object(&FILE_KEYS, |key| match key {
        "store" => text("Where calls are kept: `memory:`, `sqlite:PATH` or `postgres://…`."),
        "listen" => text("The address the server listens on."),
        "server" => object(&RUNNER_KEYS, |key| match key {
            "tools_as" => text("The user that local tools of the server's agents run as."),
            _ => said(
                "Whether they may run as the server's own user where nobody sits at a terminal.",
                json!({ "type": "boolean" }),
            ),
        }),
        "model" => model(),
        "policy" => policy(&POLICY_KEYS),
        "limits" => object(&LIMIT_KEYS, |key| said(&format!("The bound `{key}`."), json!(whole(u64::from(u32::MAX))))),
        "web_search" => web_search(),
        "fetch" => object(&FETCH_KEYS, |_| {
            said("Addresses outside the open internet that `fetch_url` may connect to, too.", one_or_many(name()))
        }),
        "tools" => list(tool()),
        "mcp_servers" => map(server()),
        "agents" => map(agent()),
        "toolConfirmation" => object(&TOOL_CONFIRMATION_KEYS, tool_confirmation),
        "approvers" => object(&APPROVER_KEYS, |_| said("Groups of approvers, by name.", map(one_or_many(name())))),
        "notify" => list(object(&NOTIFY_KEYS, notify)),
        "redact" => object(&REDACT_KEYS, |key| match key {
            "keys" => said("Globs over the names of fields whose values are never recorded.", list(string())),
            _ => said("Regular expressions over texts that are never recorded.", list(string())),
        }),
        _ => Value::Null,
    });
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
        schema.insert("title".into(), "countersign.yml".into());
    }
    schema
}

fn policy(keys: &[&str]) -> Value {
    object(keys, |key| match key {
        "preset" => said("Rules to begin with.", any_of(presets::NAMES.iter().copied())),
        "otherwise" => said("What happens to a call that no rule matches.", words(&OTHERWISES)),
        "unattended" => said("What happens where nobody can be asked.", words(&UNATTENDED)),
        "expires_after" => length("How long a hold waits: `4s`, `10m`, `2h`, `7d` or `never`."),
        "in_client" => said("Whether an MCP client's own prompt may decide.", words(&IN_CLIENT)),
        "rules" => said("Rules; the strictest that matches wins, so their order never matters.", list(rule())),
        _ => Value::Null,
    })
}

fn rule() -> Value {
    let mut schema = object(&RULE_KEYS, |key| match key {
        "id" => text("The rule's name, for verdicts and the log."),
        "allow" | "auto_allow" => tools("Tools whose calls run without asking."),
        "ask" | "always_ask" => tools("Tools whose calls people are asked about."),
        "deny" | "auto_deny" => tools("Tools whose calls never run."),
        "when" => condition(),
        "except" => one_or_many(exception()),
        "reason" => text("Why, for people and the model."),
        "approvals" => said("How many people must approve.", json!(whole(limits::DECISIONS_PER_HOLD as u64))),
        "from" => said("Who may approve: people or groups.", one_or_many(name())),
        "expires_after" => length("How long its holds wait."),
        "remember" => said("The widest memory a decision may ask for.", words(&MEMORIES)),
        "human" => said("Must-ask: nothing but people lifts it.", words(&HUMAN)),
        "requester" => said("Whether whoever asked for the work may approve it.", words(&REQUESTERS)),
        "risk" => said("How much is at stake.", words(&RISKS)),
        "on_expired" => said("What happens when nobody decides in time.", words(&ON_EXPIRED)),
        "hide" => said("Do not even list the tools to the model.", json!({ "type": "boolean" })),
        "inside" => said("Let the delegate follow its own policy.", words(&INSIDE)),
        "examples" => object(&EXAMPLE_KEYS, |_| list(json!({ "type": "object" }))),
        _ => Value::Null,
    });
    let effects = ["allow", "ask", "deny", "auto_allow", "always_ask", "auto_deny"];
    let one: Vec<Value> = effects.iter().map(|effect| json!({ "required": [effect] })).collect();
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("type".into(), "object".into());
        schema.insert("oneOf".into(), one.into());
    }
    schema
}

fn exception() -> Value {
    let more = object(&EXCEPTION_KEYS, |key| match key {
        "tool" => tools("The tools it is about."),
        "when" => condition(),
        _ => Value::Null,
    });
    json!({ "anyOf": [string(), more] })
}

fn model() -> Value {
    let mut schema = object(&MODEL_KEYS, |key| match key {
        "provider" => said("Who runs the model.", words(&PROVIDERS)),
        "name" => text("The model's name there."),
        "base_url" => text("Where the provider is, if not at its usual place."),
        "api_key" => text("The key to it; write `${NAME}` to read it from the environment."),
        "max_tokens" => said("The most tokens that one answer may have.", json!(whole(u64::from(u32::MAX)))),
        "price" => price(),
        _ => Value::Null,
    });
    require(&mut schema, &["provider"]);
    schema
}

fn price() -> Value {
    let mut schema = object(&PRICE_KEYS, |key| match key {
        "input" => dollars("Dollars for a million tokens read."),
        "output" => dollars("Dollars for a million tokens written."),
        "cached" => dollars("Dollars for a million tokens read from a cache; as `input`, if left out."),
        _ => Value::Null,
    });
    require(&mut schema, &["input", "output"]);
    schema
}

fn run_limit(key: &str) -> Value {
    match key {
        "turns" => said("Turns of models.", json!(whole(u64::MAX))),
        "tokens" => said("Tokens read and written.", json!(whole(u64::MAX))),
        "dollars" => dollars("What the tokens cost; every model that takes part needs a `price`."),
        "extensions" => said(
            "How often people are asked for as much again; without it, never.",
            json!({ "type": "integer", "minimum": 0, "maximum": limits::RUN_EXTENSIONS }),
        ),
        _ => Value::Null,
    }
}

fn web_search() -> Value {
    let mut schema = object(&WEB_SEARCH_KEYS, |key| match key {
        "url" => text("The search service that `web_search` asks."),
        "api_key" => text("The key to it; write `${NAME}` to read it from the environment."),
        _ => Value::Null,
    });
    require(&mut schema, &["url"]);
    schema
}

fn tool() -> Value {
    let mut schema = object(&TOOL_KEYS, |key| match key {
        "name" => text("Its name."),
        "description" => text("What the model reads about it."),
        "input_schema" => said("The JSON Schema of its arguments.", json!({ "type": "object" })),
        "permission" => said("What happens to its calls.", words(&PERMISSIONS)),
        "repeat" => said("What a crash while it runs means.", words(&REPEATS)),
        "run" => object(&RUN_KEYS, run),
        "http" | "client" => run(key),
        _ => Value::Null,
    });
    require(&mut schema, &["name"]);
    schema
}

fn run(key: &str) -> Value {
    match key {
        "command" => said("The program, and its first arguments.", list(string())),
        "timeout" => length("How long the program may run; two minutes, if nobody says."),
        "http" => said("The HTTP request it makes.", json!({ "type": "object" })),
        "client" => said("The session's client runs it and sends the result.", json!({ "type": "boolean" })),
        _ => Value::Null,
    }
}

fn server() -> Value {
    object(&SERVER_KEYS, |key| match key {
        "command" => text("The program to start."),
        "args" => said("Its arguments.", list(string())),
        "env" => said("Environment variables it gets.", map(string())),
        "cwd" => text("The folder it starts in."),
        "url" => text("Where it listens, in place of a program."),
        "headers" => said("Headers sent to it.", map(string())),
        "confirm" => said(
            "Which of its tools people are asked about.",
            json!({ "anyOf": [any_of(["none", "all"].into_iter()), list(string())] }),
        ),
        "trust_hints" => said("Whether what it claims about its tools may loosen.", json!({ "type": "boolean" })),
        _ => Value::Null,
    })
}

fn agent() -> Value {
    object(&AGENT_KEYS, |key| match key {
        "description" => text("What other agents read about it."),
        "instructions" => text("What it is told."),
        "model" => model(),
        "tools" => said("The tools it has.", list(string())),
        "mcp_servers" => said("The MCP servers whose tools it has.", list(string())),
        "sub_agents" => said("Agents it may use as tools.", list(string())),
        "handoffs" => said("Agents it may hand over to.", list(string())),
        "policy" => policy(&AGENT_POLICY_KEYS),
        "batch" => said("How the calls of one turn hang together.", words(&BATCHES)),
        "timeout" => length("How long a run may take."),
        "approval_timeout" => length("How long a hold of it may wait; less than `timeout`."),
        "limits" => said("How much a run may take, its sub-agents included.", object(&RUN_LIMIT_KEYS, run_limit)),
        _ => Value::Null,
    })
}

fn tool_confirmation(key: &str) -> Value {
    match key {
        "mode" => said("What happens to calls that no rule matches.", words(&MODES)),
        "timeout" => said("Milliseconds a hold waits.", json!({ "type": "integer", "minimum": 1 })),
        "allowedToolsStorage" => said("Where approvals are remembered.", words(&STORAGES)),
        _ => Value::Null,
    }
}

fn notify(key: &str) -> Value {
    match key {
        "webhook" => text("A URL that gets a signed request (Standard Webhooks)."),
        "slack" => text("The URL of an incoming webhook of Slack's kind."),
        "email" => email(),
        "secret" => text("The key requests are signed with, `whsec_…`; the server's own, if left out."),
        "events" => said("What is told; `hold.opened`, if left out.", one_or_many(words(&event_words()))),
        "risk" => said("Only holds of at least this risk.", words(&RISKS)),
        "rules" => said("Only calls that one of these rules asks about.", one_or_many(name())),
        "tools" => tools("Only calls of these tools."),
        "include" => said("What may leave the server beside names.", one_or_many(words(&INCLUDES))),
        "allow_private" => {
            said("Whether this machine and its network may be connected to.", json!({ "type": "boolean" }))
        }
        _ => Value::Null,
    }
}

fn email() -> Value {
    let mut schema = object(&EMAIL_KEYS, |key| match key {
        "to" => said("Who gets the letter.", one_or_many(name())),
        "from" => text("Who sends it."),
        "smtp" => text("The mail server: `smtp.example.com:587`."),
        "tls" => said("How the way there is kept private; `starttls`, if left out.", words(&SMTP_TLS)),
        "username" => text("Who signs in there."),
        "password" => text("With what; write `${NAME}` to read it from the environment."),
        _ => Value::Null,
    });
    require(&mut schema, &["to", "from", "smtp"]);
    schema
}

/// A mapping of known keys and no others. An empty one may be left blank, as the loader lets it.
fn object(keys: &[&str], value: impl Fn(&str) -> Value) -> Value {
    let properties: Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), value(key))).collect();
    json!({ "type": ["object", "null"], "properties": properties, "additionalProperties": false })
}

/// A mapping whose keys are names.
fn map(value: Value) -> Value {
    json!({ "type": ["object", "null"], "additionalProperties": value })
}

fn require(schema: &mut Value, keys: &[&str]) {
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("type".into(), "object".into());
        schema.insert("required".into(), json!(keys));
    }
}

fn said(description: &str, mut schema: Value) -> Value {
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("description".into(), description.into());
    }
    schema
}

fn string() -> Value {
    json!({ "type": "string" })
}

fn text(description: &str) -> Value {
    said(description, string())
}

fn name() -> Value {
    json!({ "type": "string", "minLength": 1 })
}

fn list(item: Value) -> Value {
    json!({ "type": ["array", "null"], "items": item })
}

fn one_or_many(item: Value) -> Value {
    json!({ "anyOf": [item, { "type": "array", "items": item, "minItems": 1 }] })
}

fn tools(description: &str) -> Value {
    said(description, one_or_many(name()))
}

fn condition() -> Value {
    said("A CEL condition on the call.", json!({ "type": ["string", "boolean"] }))
}

fn whole(most: u64) -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": most })
}

fn length(description: &str) -> Value {
    said(description, json!({ "type": "string", "pattern": r"^(never|[0-9]+(ms|s|m|h|d))$|\$\{" }))
}

fn dollars(description: &str) -> Value {
    said(description, json!({ "type": "number", "minimum": 0 }))
}

fn words<T>(words: &[(&str, T)]) -> Value {
    any_of(words.iter().map(|(word, _)| *word))
}

/// One of a few words, or one from the environment.
fn any_of<'w>(words: impl Iterator<Item = &'w str>) -> Value {
    json!({ "anyOf": [{ "enum": words.collect::<Vec<_>>() }, { "type": "string", "pattern": r"\$\{" }] })
}
