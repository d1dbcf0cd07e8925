//! `countersign policy test`.

use std::path::PathBuf;
use std::sync::Arc;

use countersign::call::Declared;
use countersign::show::escape;
use countersign::time::{Clock as _, SystemClock};
use countersign::verdict::Effect;
use countersign::{Facts, Json, Path, Policy, ToolId, Verdict, limits};
use serde::{Deserialize, Serialize};
use serde_saphyr::{MergeKeyPolicy, Spanned};

use crate::commands::Form;
use crate::fault::Fault;
use crate::home::Home;
use crate::out;
use crate::settings::{Place, Settings, read_bytes};

/// Judge a list of calls and compare with what you expect, for your CI
///
/// FILE is YAML or JSON: a list of {tool, server?, agent?, session?, arguments, expect: allow|ask|deny, rule?}.
/// `rule` names a rule that must be among those that decide. Exit code 1 if any call is judged otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The calls
    file: PathBuf,
    /// Configuration file [default: countersign.yml in your config folder, else a trusted one in this folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const EXAMPLES: &str = r#"Example:
  - { tool: read_file, arguments: { path: a.txt }, expect: allow }
  - { tool: delete_file, arguments: { path: a.txt }, expect: ask, rule: deletes }

  countersign policy test calls.yml --config countersign.yml"#;

/// One call and what should become of it.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    tool: String,
    server: Option<String>,
    agent: Option<OneOrMany>,
    session: Option<String>,
    #[serde(default)]
    arguments: serde_json::Map<String, serde_json::Value>,
    expect: Effect,
    rule: Option<String>,
}

/// One agent, or the path to it.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// How one call came out.
#[derive(Serialize)]
struct Tested {
    line: u64,
    tool: String,
    ok: bool,
    expected: Effect,
    found: Effect,
    rules: Vec<Arc<str>>,
}

/// Tests.
pub(crate) fn run(args: Args, form: Form) -> Result<(), Fault> {
    let settings = Settings::load(&Place { config: args.config, store: None }, &Home::from_env())?;
    let name = args.file.display().to_string();
    let text =
        String::from_utf8(read_bytes(&args.file)?).map_err(|_| Fault::usage(format!("`{name}` is not UTF-8")))?;
    let cases = read(&name, &text)?;
    let tested = cases.iter().map(|case| test(&settings.config.policy, &name, case)).collect::<Result<Vec<_>, _>>()?;
    let failed = tested.iter().filter(|tested| !tested.ok).count();
    match form {
        Form::Json => out::json(&serde_json::json!({
            "passed": tested.len() - failed,
            "failed": failed,
            "calls": tested,
        }))?,
        Form::Text => print(&name, &tested, failed)?,
    }
    match failed {
        0 => Ok(()),
        failed => Err(Fault::failed(format!("{failed} of {} calls are judged otherwise", tested.len()))),
    }
}

/// Reads the calls as strictly as a policy is read: what is misspelled or ambiguous is an error with its place.
fn read(name: &str, text: &str) -> Result<Vec<Spanned<Case>>, Fault> {
    let budget = serde_saphyr::budget! {
        max_depth: limits::POLICY_DEPTH,
        flow_nesting_limit: limits::POLICY_DEPTH,
        max_documents: 1,
        max_nodes: limits::POLICY_NODES,
        max_events: 2 * limits::POLICY_NODES,
    };
    let options = serde_saphyr::options! {
        budget: budget,
        strict_booleans: true,
        merge_keys: MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let (line, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
        let message = error.without_snippet().to_string();
        let message = message.lines().next().unwrap_or_default();
        // The place is said once, in front.
        let message = message.split_once(" at line ").map_or(message, |(message, _)| message);
        let place = format!("{}:{line}:{column}", escape(name));
        Fault::usage(format!("{place}: {}", escape(message))).next("`countersign policy test --help` has the form")
    })
}

fn test(policy: &Policy, name: &str, case: &Spanned<Case>) -> Result<Tested, Fault> {
    let at = case.referenced;
    let line = at.line();
    let wrong = |why: String| Fault::usage(format!("{}:{line}:{}: {why}", escape(name), at.column()));
    let case = &case.value;
    let arguments = Json::of(&case.arguments).map_err(|error| wrong(error.to_string()))?;
    let agents = match &case.agent {
        None => Vec::new(),
        Some(OneOrMany::One(agent)) => vec![Arc::from(agent.as_str())],
        Some(OneOrMany::Many(agents)) => agents.iter().map(|agent| Arc::from(agent.as_str())).collect(),
    };
    let facts = Facts {
        tool: match &case.server {
            Some(server) => ToolId::on(server.as_str(), case.tool.as_str()),
            None => ToolId::local(case.tool.as_str()),
        },
        toolset: None,
        arguments,
        path: Path { session: case.session.as_deref().map(Arc::from), agents: agents.into(), ..Path::default() },
        declared: Declared::Nothing,
        annotations: None,
        places: Default::default(),
        at: SystemClock.now(),
    };
    policy.admits(&facts).map_err(|error| wrong(error.to_string()))?;
    let verdict: Verdict = policy.judge(&facts);
    let rules = verdict.rules();
    let rule_ok = case.rule.as_ref().is_none_or(|wanted| rules.iter().any(|rule| **rule == **wanted));
    let ok = verdict.effect == case.expect && rule_ok;
    Ok(Tested { line, tool: facts.tool.to_string(), ok, expected: case.expect, found: verdict.effect, rules })
}

fn print(name: &str, tested: &[Tested], failed: usize) -> Result<(), Fault> {
    for tested in tested.iter().filter(|tested| !tested.ok) {
        let rules = escape(&tested.rules.join(", "));
        out::data(format_args!(
            "{}:{}:1: {} {}: expected {}, found {} by {rules}",
            escape(name),
            tested.line,
            out::paint(out::BAD, "FAILED"),
            escape(&tested.tool),
            tested.expected.as_str(),
            tested.found.as_str(),
        ))?;
    }
    Ok(out::data(format_args!("{} passed, {failed} failed", tested.len() - failed))?)
}
