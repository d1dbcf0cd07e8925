//! `countersign policy explain`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use countersign::call::Declared;
use countersign::digest::argument_digest;
use countersign::grant::Grant;
use countersign::place::Places;
use countersign::show::escape;
use countersign::time::{Clock as _, SystemClock};
use countersign::verdict::{Because, Effect, Terms};
use countersign::{Facts, Json, Limits, Path, Store, ToolId, Verdict};
use countersign_api::wire;
use serde::Serialize;

use crate::commands::Form;
use crate::desk::{must_be_there, store_policy};
use crate::fault::Fault;
use crate::home::Home;
use crate::out;
use crate::settings::{Place, Settings};

/// Say what the rules make of one call, and why
///
/// Judges with the same code that judges real calls. With --store the policy that the store holds counts, if it holds one,
/// and a grant that covers the call is looked for too.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The tool's name
    #[arg(long, value_name = "NAME")]
    tool: String,
    /// The MCP server the tool is on; none for a local tool
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// The session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// The agent that calls; several, from the root down, with several --agent
    #[arg(long, value_name = "NAME")]
    agent: Vec<String>,
    /// The arguments
    #[arg(long, value_name = "JSON", default_value = "{}")]
    arguments: String,
    #[command(flatten)]
    place: Place,
}

const EXAMPLES: &str = r#"Example:
  countersign policy explain --config countersign.yml --tool transfer_money --arguments '{"amount": 20000}'"#;

/// The word on a call.
#[derive(Serialize)]
struct Explained<'a> {
    effect: Effect,
    because: Vec<Reason<'a>>,
    matched: Vec<Reason<'a>>,
    grant: Option<wire::Grant>,
    terms: Option<&'a Terms>,
    policy: &'a str,
    /// Where that policy was found.
    source: String,
}

/// Where a policy was found.
enum Source {
    /// All nodes follow it.
    Store,
    File(PathBuf),
    /// There is no file.
    Default,
}

impl Source {
    fn of(settings: &Settings) -> Source {
        settings.file.as_ref().map_or(Source::Default, |found| Source::File(found.path.clone()))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Store => f.write_str("the store"),
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Default => f.write_str("the default, for there is no configuration file"),
        }
    }
}

/// One rule's part in it.
#[derive(Serialize)]
struct Reason<'a> {
    rule: &'a str,
    effect: Effect,
    reason: Option<&'a str>,
}

impl<'a> Reason<'a> {
    fn of(because: &'a Because) -> Reason<'a> {
        Reason { rule: &because.rule, effect: because.effect, reason: because.reason.as_deref() }
    }
}

/// Explains.
pub(crate) async fn run(args: Args, form: Form) -> Result<(), Fault> {
    let settings = Settings::load(&args.place, &Home::from_env())?;
    let facts = facts(&args)?;
    let store = match &args.place.store {
        Some(url) => {
            must_be_there(url)?;
            Some(countersign_store::connect(url).await?)
        }
        None => None,
    };
    let kept = match &store {
        Some(store) => store_policy(store, &settings).await?,
        None => None,
    };
    let (policy, source) = match &kept {
        Some(policy) => (policy, Source::Store),
        None => (&settings.config.policy, Source::of(&settings)),
    };
    policy.admits(&facts).map_err(Fault::usage)?;
    let verdict = policy.judge(&facts);
    let grant = match &store {
        Some(store) => covering(store, &facts, &verdict).await?,
        None => None,
    };
    match form {
        Form::Json => {
            let explained = Explained {
                effect: verdict.effect,
                because: verdict.because().iter().map(Reason::of).collect(),
                matched: verdict.matched.iter().map(Reason::of).collect(),
                grant: grant.as_ref().map(|grant| wire::Grant::of(grant, facts.at)),
                terms: (verdict.effect == Effect::Ask).then_some(&*verdict.terms),
                policy: &verdict.policy,
                source: source.to_string(),
            };
            Ok(out::json(&explained)?)
        }
        Form::Text => print(&facts, &verdict, grant.as_ref(), &source),
    }
}

fn facts(args: &Args) -> Result<Facts, Fault> {
    let arguments = Json::arguments(&args.arguments, &Limits::default())
        .map_err(|error| Fault::usage(format!("--arguments is not valid: {error}")))?;
    let tool = match &args.server {
        Some(server) => ToolId::on(server.as_str(), args.tool.as_str()),
        None => ToolId::local(args.tool.as_str()),
    };
    let agents = args.agent.iter().map(|agent| Arc::from(agent.as_str())).collect();
    let path = Path { session: args.session.as_deref().map(Arc::from), agents, ..Path::default() };
    let declared = Declared::Nothing;
    let at = SystemClock.now();
    Ok(Facts { tool, toolset: None, arguments, path, declared, annotations: None, places: Places::default(), at })
}

/// A grant that lifts the ask. Tools are compared without their definition, which nobody gives here.
async fn covering(store: &Arc<dyn Store>, facts: &Facts, verdict: &Verdict) -> Result<Option<Grant>, Fault> {
    let now = store.now().await?;
    let covers = |grant: &Grant| {
        let digest = argument_digest(&facts.tool, grant.definition.as_ref(), &facts.arguments);
        grant.covers(facts, grant.definition.as_ref(), &digest, verdict, now)
    };
    Ok(store.grants().await?.into_iter().find(covers))
}

fn print(facts: &Facts, verdict: &Verdict, grant: Option<&Grant>, source: &Source) -> Result<(), Fault> {
    let (style, words) = match verdict.effect {
        Effect::Allow => (out::GOOD, "it runs, and nobody is asked"),
        Effect::Ask => (out::WAIT, "it waits for a decision"),
        Effect::Deny => (out::BAD, "it never runs"),
    };
    let effect = out::paint(style, verdict.effect.as_str());
    out::data(format_args!("{effect}  {}: {words}", escape(&facts.tool.to_string())))?;
    for because in verdict.because() {
        out::data(format_args!("  because  {}", reason(because)))?;
    }
    for matched in verdict.matched.iter().skip(verdict.because().len()) {
        out::data(format_args!("  matched  {}", reason(matched)))?;
    }
    if verdict.effect == Effect::Ask {
        for quorum in &verdict.terms.quorums {
            let from =
                if quorum.from.is_empty() { String::new() } else { format!(" from {}", quorum.from.join(" or ")) };
            out::data(format_args!("  needs    {} approval(s){}", quorum.approvals, escape(&from)))?;
        }
    }
    if let Some(grant) = grant {
        out::data(format_args!("  grant    {} lifts it: {}", grant.id, escape(&grant.as_rule())))?;
    }
    let (policy, source) = (escape(&verdict.policy), source.to_string());
    Ok(out::data(format_args!("  policy   {policy}, from {}", escape(&source)))?)
}

fn reason(because: &Because) -> String {
    let effect = because.effect.as_str();
    match &because.reason {
        Some(reason) => format!("{} ({effect}): {}", escape(&because.rule), escape(reason)),
        None => format!("{} ({effect})", escape(&because.rule)),
    }
}
