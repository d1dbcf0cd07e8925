//! What is told: names, digests and places, and the arguments only where the operator said so.

use countersign::call::Call;
use countersign::event::{Event, EventName};
use countersign::show::escape;
use countersign::{CallId, HoldId, Json, limits as core_limits};
use countersign_api::wire::timestamp;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::limits;

/// What is told about one event: the body of a webhook, and what letters and messages are made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Notice {
    /// The event's name.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// When it happened.
    pub(super) timestamp: Timestamp,
    /// What it is about.
    pub(super) data: Data,
}

/// What a notice is about. What is not there does not apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Data {
    /// Its place in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cursor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) call: Option<CallId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hold: Option<HoldId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) principal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) agents: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) risk: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) rules: Vec<String>,
    /// The rule's words for why it asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<Timestamp>,
    /// Who decided, halted or resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
    /// What they decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) answer: Option<String>,
    /// The kind of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<String>,
    /// Where to look, and to decide.
    pub(super) url: String,
    /// The arguments, secrets masked: only where the operator included them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) arguments: Option<Json>,
}

impl Notice {
    /// What is told about an event. Built from what never changes, so that every try tells the same.
    pub(super) fn of(event: &Event, call: Option<&Call>, base: &str, arguments: bool) -> Notice {
        let body = event.value();
        let text = |key: &str| body.get(key).and_then(|value| value.as_str()).map(str::to_owned);
        let mut data = Data {
            cursor: Some(event.cursor.to_string()),
            call: event.call,
            hold: event.hold,
            by: text("by"),
            answer: text("answer"),
            kind: text("kind"),
            url: place(event, base),
            ..Data::default()
        };
        if let Some(call) = call {
            data.describe(call, arguments);
        }
        Notice { kind: event.name.as_str().to_owned(), timestamp: timestamp(event.at), data }
    }

    /// A message that tells only that it arrives.
    pub(super) fn test(now: Timestamp, base: &str) -> Notice {
        let data = Data { url: base.to_owned(), ..Data::default() };
        Notice { kind: "test".to_owned(), timestamp: now, data }
    }

    /// Whether it only makes sense while its hold is open.
    pub(super) fn asks(&self) -> bool {
        self.kind == EventName::HoldOpened.as_str()
    }

    /// One line for people. Whatever agents and tools named is shown as text and nothing else.
    pub(super) fn title(&self) -> String {
        let tool = self.tool();
        match self.kind.as_str() {
            "hold.opened" => format!("{tool} waits for a decision"),
            "hold.expired" => format!("nobody decided about {tool} in time"),
            "call.in_doubt" => format!("nobody knows whether {tool} happened"),
            "test" => "this is a test: notifications of Countersign arrive here".to_owned(),
            kind if tool.is_empty() => kind.to_owned(),
            kind => format!("{tool}: {kind}"),
        }
    }

    /// What people are told below the title.
    pub(super) fn lines(&self) -> Vec<String> {
        let data = &self.data;
        let line = |label: &str, text: &Option<String>| text.as_ref().map(|text| format!("{label}: {}", clean(text)));
        let list = |label: &str, texts: &[String]| {
            let texts: Vec<String> = texts.iter().map(|text| clean(text)).collect();
            (!texts.is_empty()).then(|| format!("{label}: {}", texts.join(", ")))
        };
        let expires = data.expires_at.filter(|_| self.asks());
        let lines = [
            line("risk", &data.risk.clone().filter(|risk| risk != "low")),
            line("reason", &data.reason),
            list("rules", &data.rules),
            line("asked by", &data.principal),
            list("agents", &data.agents),
            line("session", &data.session),
            line("decided", &data.answer),
            line("by", &data.by),
            line("refused", &data.kind),
            expires.map(|at| format!("expires: {at:.0}")),
            data.arguments.as_ref().map(|arguments| format!("arguments: {}", escape(arguments.as_str()))),
        ];
        lines.into_iter().flatten().collect()
    }

    fn tool(&self) -> String {
        let tool = self.data.tool.as_deref().map(clean).unwrap_or_default();
        match self.data.server.as_deref() {
            Some(server) => format!("{}/{tool}", clean(server)),
            None => tool,
        }
    }
}

impl Data {
    fn describe(&mut self, call: &Call, arguments: bool) {
        let hold = call.holds.iter().find(|hold| Some(hold.id) == self.hold);
        let (facts, because) = (&call.facts, hold.map_or(call.verdict.because(), |hold| &*hold.because));
        let terms = hold.map_or(&*call.verdict.terms, |hold| &*hold.terms);
        self.tool = Some(facts.tool.name.to_string());
        self.server = facts.tool.server.as_deref().map(str::to_owned);
        self.principal = Some(facts.path.principal.to_string());
        self.session = facts.path.session.as_deref().map(str::to_owned);
        self.agents = facts.path.agents.iter().map(ToString::to_string).collect();
        self.risk = serde_json::to_value(terms.risk).ok().and_then(|risk| risk.as_str().map(str::to_owned));
        self.rules = because.iter().map(|because| because.rule.to_string()).collect();
        self.reason = because.iter().find_map(|because| because.reason.as_deref()).map(str::to_owned);
        self.digest = Some(hold.map_or(call.digest, |hold| hold.digest).to_string());
        self.expires_at = hold.and_then(|hold| hold.expires_at).map(timestamp);
        // SECURITY: what agents want to do leaves the server only if the operator said so, and never unmasked.
        self.arguments = Some(call.shown_arguments().clone())
            .filter(|shown| arguments && shown.as_str().len() <= limits::TOLD_BYTES);
    }
}

/// Where a person looks. Looking decides nothing.
fn place(event: &Event, base: &str) -> String {
    match (event.name, event.hold, event.call) {
        (EventName::CallInDoubt, ..) => format!("{base}/#/doubts"),
        (_, Some(hold), _) => format!("{base}/#/inbox/{hold}"),
        (_, None, Some(call)) => format!("{base}/#/history/{call}"),
        (_, None, None) => base.to_owned(),
    }
}

/// Text of others on one line, with nothing in it that a reader would not see.
fn clean(text: &str) -> String {
    escape(text).chars().take(core_limits::NAME_BYTES).collect::<String>().replace('\n', " ")
}
