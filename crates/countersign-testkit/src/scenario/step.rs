//! Reads one step.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use countersign::call::{Outcome, ResolvedAs};
use countersign::grant::{Remember, RememberCovers};
use countersign::{Answer, Json, Limits, Who};

/// Something that happens in a story.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// `submit c1 deploy session=s2 key=k1 {…}`
    Submit { call: String, tool: String, options: Vec<(String, String)>, arguments: String },
    /// `ann approves c1`, `ann denies c1 because …`, `ann edits c1 {…}`, `ann answers c1 "…"`, `ann remembers c1 session`
    Decide { by: Who, call: String, seen: String, answer: Answer },
    /// `clock +5m`
    Clock(Duration),
    /// `claim c1`, `claim c1 changed`
    Claim { call: String, changed: bool },
    /// `ask c1 {…}`
    Ask { call: String, payload: Json },
    /// `finish c1 ok`, `finish c1 failed`, `finish c1 nothing`, `finish c1 ok by 1`
    Finish { call: String, outcome: Outcome, fence: Option<u64> },
    /// `crash c1`: whoever ran it is gone, and its lease ends.
    Crash,
    /// `cancel c1`
    Cancel(String),
    /// `resolve c1 applied because …`
    Resolve { call: String, word: ResolvedAs, reason: String },
    /// `halt`, `halt banker`
    Halt(Option<String>),
    /// `resume`, `resume banker`
    Resume(Option<String>),
    /// `revoke g1`
    Revoke(String),
    /// `policy …`
    Policy(String),
    /// `reopen`
    Reopen,
}

impl Step {
    pub(super) fn read(text: &str) -> Result<Step> {
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        let (call, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        let named = (!rest.is_empty()).then(|| rest.to_owned());
        Ok(match verb {
            "submit" => submit(call, tail)?,
            "clock" => Step::Clock(duration(rest.strip_prefix('+').context("`clock +5m`")?)?),
            "claim" => Step::Claim { call: call.into(), changed: tail == "changed" },
            "ask" => Step::Ask { call: call.into(), payload: json(tail)? },
            "finish" => finish(call, tail)?,
            "crash" => Step::Crash,
            "cancel" => Step::Cancel(call.into()),
            "resolve" => resolve(call, tail)?,
            "halt" => Step::Halt(named),
            "resume" => Step::Resume(named),
            "revoke" => Step::Revoke(call.into()),
            "policy" => Step::Policy(rest.into()),
            "reopen" => Step::Reopen,
            who => decide(who, rest)?,
        })
    }
}

fn json(text: &str) -> Result<Json> {
    let text = if text.is_empty() { "{}" } else { text };
    Ok(Json::arguments(text, &Limits::default())?)
}

fn submit(call: &str, tail: &str) -> Result<Step> {
    let (head, arguments) = match tail.find('{') {
        Some(at) => tail.split_at(at),
        None => (tail, "{}"),
    };
    let mut words = head.split_whitespace();
    let tool = words.next().context("`submit CALL TOOL …`")?.to_owned();
    let options = words.map(|word| {
        let (key, value) = word.split_once('=').with_context(|| format!("`{word}` is no `key=value`"))?;
        Ok((key.to_owned(), value.to_owned()))
    });
    Ok(Step::Submit { call: call.into(), tool, options: options.collect::<Result<_>>()?, arguments: arguments.into() })
}

fn decide(who: &str, rest: &str) -> Result<Step> {
    let by = if who.starts_with("bot") { Who::program(who) } else { Who::person(who) };
    let (verb, rest) = rest.split_once(' ').context("`WHO VERB CALL …`")?;
    let (call, tail) = rest.split_once(' ').unwrap_or((rest, ""));
    let approve = |arguments, remember| Answer::Approve { arguments, payload: None, remember };
    // `ann approves c1 as c2`: a decision made for what another hold shows.
    let seen = tail.strip_prefix("as ").unwrap_or(call).to_owned();
    let answer = match verb {
        "approves" => Answer::approve(),
        "denies" => Answer::Deny { reason: tail.strip_prefix("because ").map(str::to_owned) },
        "edits" => approve(Some(json(tail)?), None),
        "answers" => Answer::Respond { response: Json::string(tail) },
        "remembers" => approve(None, Some(remember(tail)?)),
        other => bail!("nobody knows how to `{other}`"),
    };
    Ok(Step::Decide { by, call: call.into(), seen, answer })
}

/// `session`, `global`, each with `tool`, `fields=a,b`, `uses=2`, `for=1h`.
fn remember(text: &str) -> Result<Remember> {
    let mut words = text.split_whitespace();
    let mut wish = match words.next() {
        Some("session") => Remember::session(),
        Some("global") => Remember::global(),
        other => bail!("`{other:?}` is no scope"),
    };
    for word in words {
        match word.split_once('=') {
            None if word == "tool" => wish.covers = RememberCovers::Tool,
            Some(("fields", names)) => {
                wish.covers = RememberCovers::Fields(names.split(',').map(str::to_owned).collect());
            }
            Some(("uses", uses)) => wish.uses = Some(uses.parse()?),
            Some(("for", life)) => wish.expires_after = Some(duration(life)?),
            _ => bail!("`{word}` is not how to remember"),
        }
    }
    Ok(wish)
}

fn finish(call: &str, tail: &str) -> Result<Step> {
    let (word, fence) = match tail.split_once(" by ") {
        Some((word, fence)) => (word, Some(fence.parse()?)),
        None => (tail, None),
    };
    let outcome = match word {
        "ok" => Outcome::Succeeded { output: Json::string("done") },
        "failed" => Outcome::Failed { error: "it said no".into(), refusal: None },
        "nothing" => Outcome::MayHaveApplied { why: "no answer".into() },
        other => bail!("`{other}` is no outcome"),
    };
    Ok(Step::Finish { call: call.into(), outcome, fence })
}

fn resolve(call: &str, tail: &str) -> Result<Step> {
    let (word, reason) = tail.split_once(" because ").context("`resolve CALL WORD because …`")?;
    let word = match word {
        "applied" => ResolvedAs::Applied,
        "not_applied" => ResolvedAs::NotApplied,
        "abandoned" => ResolvedAs::Abandoned,
        other => bail!("`{other}` settles nothing"),
    };
    Ok(Step::Resolve { call: call.into(), word, reason: reason.into() })
}

fn duration(text: &str) -> Result<Duration> {
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let number: u64 = number.parse().with_context(|| format!("`{text}` is no duration"))?;
    ensure!(number > 0, "time does not stand still");
    Ok(Duration::from_secs(match unit {
        "s" => number,
        "m" => number * 60,
        "h" => number * 3600,
        "d" => number * 86_400,
        other => bail!("`{other}` is no unit"),
    }))
}
