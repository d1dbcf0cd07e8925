//! The store: whether it opens, takes what is written, tells the time, and what waits in it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use countersign::store::{CallFilter, Expect, StoreError};
use countersign::{CallState, Policy, Store, limits};
use countersign_api::wire::Role;
use countersign_server::{people, tokens};
use countersign_store::{postgres::probe_notify, schema};

use super::{Finding, Health};
use crate::fault::Fault;
use crate::settings::Settings;

/// How far a database's clock may be from ours before somebody should know.
const SKEW: Duration = Duration::from_secs(2);
/// How long a notification may take.
const HEARD_WITHIN: Duration = Duration::from_secs(3);
/// Where the store is tried out.
const NAMESPACE: &str = "doctor";
/// How long what is written there lives, should we not come to remove it.
const LIFE: Duration = Duration::from_secs(60);

/// Looks at the store at this address.
pub(super) async fn look(address: &str, settings: &Settings) -> Vec<Finding> {
    if let Some(path) = address.strip_prefix("sqlite:")
        && !Path::new(path).exists()
    {
        // Opening it would make it.
        return vec![Finding::ok("store", format_args!("{path} is not there yet; it is made when it is first used"))];
    }
    let store = match countersign_store::connect(address).await {
        Ok(store) => store,
        Err(error) => return vec![Finding::fault("store", &Fault::from(error))],
    };
    let schema = schema(address).map(|schema| format!(", schema {schema}")).unwrap_or_default();
    let kind = address.split(':').next().unwrap_or_default();
    let mut findings = vec![Finding::ok("store", format_args!("{kind} opens{schema}"))];
    findings.push(or_failed("store writes", writes(&*store).await));
    if kind.starts_with("postgres") {
        findings.push(or_failed("database clock", clock(&*store).await));
        findings.push(notifications(address).await);
    }
    findings.push(or_failed("policy in force", in_force(&*store, &settings.config.policy).await));
    findings.push(or_failed("approvers", approvers(&*store, &settings.config.policy).await));
    findings.push(or_failed("waiting", waiting(&store).await));
    findings.push(or_failed("doubts", doubts(&store).await));
    findings
}

fn or_failed(check: &'static str, found: Result<Finding, Fault>) -> Finding {
    found.unwrap_or_else(|fault| Finding::fault(check, &fault))
}

async fn writes(store: &dyn Store) -> Result<Finding, Fault> {
    let key = std::process::id().to_string();
    store.put_record(NAMESPACE, &key, b"1", Expect::Any, Some(LIFE)).await?;
    let read = store.record(NAMESPACE, &key).await?;
    store.delete_record(NAMESPACE, &key, Expect::Any).await?;
    Ok(match read.is_some_and(|record| record.value == b"1") {
        true => Finding::ok("store writes", "what is written can be read again"),
        false => Finding::fail(
            "store writes",
            "what was written could not be read again",
            "check the disk and the database's own log",
        ),
    })
}

async fn clock(store: &dyn Store) -> Result<Finding, Fault> {
    let here = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (before, there, after) = (here(), store.now().await?, here());
    let there = Duration::from_micros(u64::try_from(there.0).unwrap_or_default());
    let off = before.saturating_sub(there).max(there.saturating_sub(after));
    Ok(match off > SKEW {
        false => Finding::ok("database clock", "agrees with this machine's"),
        true => Finding::warn(
            "database clock",
            format_args!("{} s from this machine's; deadlines follow the database's", off.as_secs()),
            "let both machines follow a time server",
        ),
    })
}

async fn notifications(address: &str) -> Finding {
    let next = "connect to PostgreSQL itself, not through a pooler in transaction mode; until then news takes a second";
    match probe_notify(address, HEARD_WITHIN).await {
        Ok(Some(took)) => Finding::ok("notifications", format_args!("heard after {} ms", took.as_millis())),
        Ok(None) => Finding::warn("notifications", "none was heard", next),
        Err(error) => Finding::warn("notifications", error, next),
    }
}

/// Several servers on one database follow the policy it keeps, not their files.
async fn in_force(store: &dyn Store, own: &Policy) -> Result<Finding, Fault> {
    Ok(match store.policy().await? {
        None => Finding::ok("policy in force", "the configuration's"),
        Some((version, _)) if version == *own.version() => Finding::ok("policy in force", "the store's, the same"),
        Some((version, _)) => Finding::warn(
            "policy in force",
            format_args!("the store's, {version}; this configuration's does not count"),
            "`countersign policy apply FILE` changes it for all",
        ),
    })
}

/// Whether those whom rules ask can decide at all: by an account or by a token.
async fn approvers(store: &dyn Store, policy: &Policy) -> Result<Finding, Fault> {
    let known = deciders(store).await?;
    let absent: Vec<String> = policy
        .groups()
        .iter()
        .flat_map(|(group, members)| members.iter().map(move |member| (group, member)))
        .filter(|(_, member)| !member.starts_with("os:") && !known.contains(&***member))
        .map(|(group, member)| format!("`{member}` of `{group}`"))
        .collect();
    Ok(match absent.is_empty() {
        true => Finding::ok("approvers", format_args!("{} with an account or a token", known.len())),
        false => Finding::warn(
            "approvers",
            format_args!("rules ask people who can decide nowhere: {}", absent.join(", ")),
            "`countersign user add NAME` gives them an account, `countersign token create --role approver` a token",
        ),
    })
}

/// The names of those with an account or a token to decide with.
async fn deciders(store: &dyn Store) -> Result<BTreeSet<String>, Fault> {
    let mut known = BTreeSet::new();
    let mut after: Option<String> = None;
    loop {
        let users = people::users(store, after.as_deref(), limits::PAGE_ROWS).await?;
        let Some(last) = users.last() else { break };
        after = Some(last.name.clone());
        known.extend(users.into_iter().filter(|user| user.roles.contains(&Role::Approver)).map(|user| user.name));
    }
    after = None;
    loop {
        let tokens = tokens::list(store, after.as_deref(), limits::PAGE_ROWS).await?;
        let Some(last) = tokens.last() else { return Ok(known) };
        after = Some(last.id.clone());
        let live = tokens.into_iter().filter(|token| token.live && token.role == Role::Approver);
        known.extend(live.map(|token| token.name));
    }
}

async fn waiting(store: &Arc<dyn Store>) -> Result<Finding, Fault> {
    let halted = store.halted(&Default::default()).await?;
    let count = count(store, CallFilter { holding: true, ..CallFilter::default() }).await?;
    Ok(match (halted, count.as_str()) {
        (true, _) => Finding::warn(
            "waiting",
            format_args!("{count} waiting for a decision, and nothing runs: claims are halted"),
            "`countersign resume` lets calls go on",
        ),
        (false, "0") => Finding::ok("waiting", "nothing"),
        (false, _) => Finding::new("waiting", Health::Ok, format_args!("{count} waiting for a decision"))
            .next("`countersign inbox` decides them"),
    })
}

async fn doubts(store: &Arc<dyn Store>) -> Result<Finding, Fault> {
    let count = count(store, CallFilter { state: Some(CallState::InDoubt), ..CallFilter::default() }).await?;
    Ok(match count.as_str() {
        "0" => Finding::ok("doubts", "none"),
        _ => Finding::warn(
            "doubts",
            format_args!("{count} that began, and nobody knows whether it happened"),
            "`countersign doubts` lists them; find out, then settle each",
        ),
    })
}

/// How many such calls there are, as far as one page shows.
async fn count(store: &Arc<dyn Store>, filter: CallFilter) -> Result<String, StoreError> {
    let found = store.calls(CallFilter { limit: Some(limits::PAGE_ROWS), ..filter }).await?.len();
    Ok(if found < limits::PAGE_ROWS { found.to_string() } else { format!("{found} or more") })
}
