//! Holds: calls that wait for people.

use std::sync::Arc;

use countersign::call::{Declared, Repeat, ToolId};
use countersign::digest::{ArgumentDigest, CallDigest};
use countersign::hold::HoldState;
use countersign::place::Place;
use countersign::show::{self, LineKind, View};
use countersign::verdict::{Because, Memory, OnExpired, Risk};
use countersign::{CallId, HoldId, Json, Refusal, Time};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::wire::decision::present;
use crate::wire::{Decision, Verdict, timestamp};

/// A hold with its call: what a list shows. Secrets are masked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Hold {
    /// Its id.
    #[schema(value_type = String)]
    pub id: HoldId,
    /// The call that waits.
    #[schema(value_type = String)]
    pub call: CallId,
    /// How it stands.
    #[schema(value_type = String, example = "pending")]
    pub state: HoldState,
    /// The tool's name.
    pub tool: String,
    /// The tool's server; none for a local tool.
    pub server: Option<String>,
    /// The arguments, secrets masked.
    #[schema(value_type = Object)]
    pub arguments: Json,
    /// Whether something in them is masked.
    pub masked: bool,
    /// What a decision must name.
    #[schema(value_type = String)]
    pub digest: CallDigest,
    /// Compares calls: holds with the same one ask about the same. None where something is masked: it has no nonce, so
    /// a short secret could be guessed from it.
    #[schema(value_type = Option<String>)]
    pub argument_digest: Option<ArgumentDigest>,
    /// The tool and where it runs, in one line that is safe to show.
    pub title: String,
    /// Whose call it is.
    pub principal: String,
    /// The person the work is done for.
    pub requester: Option<String>,
    /// The root session.
    pub session: Option<String>,
    /// The run within it.
    pub run: Option<String>,
    /// The thread within it.
    pub thread: Option<String>,
    /// The agents from the root to the one that calls.
    pub agent: Vec<String>,
    /// The rules that ask.
    #[schema(value_type = Vec<crate::wire::Reason>)]
    pub because: Vec<Because>,
    /// `low`, `medium`, `high` or `critical`.
    #[schema(value_type = String)]
    pub risk: Risk,
    /// How many approvals are needed, from whom, and how many there are.
    pub approvals: Vec<Quorum>,
    /// Whether only people may approve.
    pub human_required: bool,
    /// Whether whoever asked for the work may not approve it.
    pub requester_excluded: bool,
    /// The widest memory a decision may ask for: `none`, `session` or `global`.
    #[schema(value_type = String)]
    pub remember: Memory,
    /// What expiry does: `refuse` or `stop_run`.
    #[schema(value_type = String)]
    pub on_expired: OnExpired,
    /// Whether the tool is already running and asks to go on.
    pub in_run: bool,
    /// The words of tool or agent. Untrusted.
    pub hint: Option<String>,
    /// What tool or agent gave along to look at. Untrusted.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub payload: Option<Json>,
    /// What was said so far.
    pub decisions: Vec<Decision>,
    /// Why it closed without a yes.
    #[schema(value_type = Option<Object>)]
    pub refusal: Option<Refusal>,
    /// When it opened.
    pub opened_at: Timestamp,
    /// When it expires; never, if none.
    pub expires_at: Option<Timestamp>,
    /// Whether nobody waits for the call: approved, it runs only when the same call comes again.
    #[serde(default)]
    pub no_caller: bool,
}

fn nullable<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Option::<Json>::deserialize(deserializer)
}

/// One of the approvals a hold needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quorum {
    /// How many people must approve.
    pub approvals: u32,
    /// Out of which groups or people; empty means anyone who may decide.
    pub from: Vec<String>,
    /// How many have.
    pub have: usize,
}

impl From<&countersign::Hold> for Hold {
    fn from(hold: &countersign::Hold) -> Hold {
        let call = &hold.call;
        let path = &call.facts.path;
        let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
        Hold {
            id: hold.id,
            call: call.id,
            state: hold.state,
            tool: call.facts.tool.name.to_string(),
            server: text(&call.facts.tool.server),
            arguments: call.shown_arguments().clone(),
            masked: call.redacted.is_some(),
            digest: hold.digest,
            argument_digest: call.redacted.is_none().then_some(call.argument_digest),
            title: show::escape(&call.facts.tool.to_string()),
            principal: path.principal.to_string(),
            requester: text(&path.requester),
            session: text(&path.session),
            run: text(&path.run),
            thread: text(&path.thread),
            agent: path.agents.iter().map(ToString::to_string).collect(),
            because: hold.because.to_vec(),
            risk: hold.terms.risk,
            approvals: quorums(hold),
            human_required: hold.terms.human_required,
            requester_excluded: hold.terms.requester_excluded,
            remember: hold.terms.remember,
            on_expired: hold.terms.on_expired,
            in_run: hold.in_run(),
            hint: text(&hold.hint),
            payload: hold.payload.clone(),
            decisions: hold.decisions.iter().map(Decision::from).collect(),
            refusal: hold.refusal.clone(),
            opened_at: timestamp(hold.opened_at),
            expires_at: hold.expires_at.map(timestamp),
            no_caller: false,
        }
    }
}

fn folders(hold: &countersign::Hold) -> Vec<Folder> {
    let folder = |(field, place): (&str, &Place)| {
        Some(Folder { field: field.to_owned(), folder: place.folder()?.display().to_string() })
    };
    hold.call.facts.places.iter().filter_map(folder).collect()
}

fn quorums(hold: &countersign::Hold) -> Vec<Quorum> {
    let counted = |index: usize| {
        let yes = |decision: &&countersign::Decision| {
            decision.answer.as_str() == "approve" && decision.counts_for.contains(&index)
        };
        hold.decisions.iter().filter(yes).count()
    };
    let quorum = |(index, quorum): (usize, &countersign::verdict::Quorum)| Quorum {
        approvals: quorum.approvals,
        from: quorum.from.iter().map(ToString::to_string).collect(),
        have: counted(index),
    };
    hold.terms.quorums.iter().enumerate().map(quorum).collect()
}

/// A hold with everything an approver needs to decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HoldDetail {
    /// The hold as in a list.
    pub hold: Hold,
    /// The shown arguments as the exact canonical text: numbers as they are, where a reader of JSON would round them.
    pub arguments_text: String,
    /// What the policy said.
    pub verdict: Verdict,
    /// Everything to show, in this order, made by the one renderer. Every text is safe to show as it is.
    pub view: Vec<Line>,
    /// What might deceive or deserves a second look.
    pub warnings: Vec<Warning>,
    /// What the tool is, where somebody said so.
    pub definition: Option<Definition>,
    /// The folders that arguments lead into, as their tool says: what a grant may cover by `{"folder": FIELD}`.
    #[serde(default)]
    pub folders: Vec<Folder>,
    /// The hold that took its place.
    #[schema(value_type = Option<String>)]
    pub superseded_by: Option<HoldId>,
    /// Other holds that wait with the same arguments.
    pub siblings: Vec<Sibling>,
    /// Whether claims are halted for this call.
    pub halted: bool,
    /// The store's clock, for countdowns.
    pub now: Timestamp,
}

/// A folder that an argument leads into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Folder {
    /// The argument.
    pub field: String,
    /// The folder. Holds names that others chose: escape it before it is printed.
    pub folder: String,
}

/// Another hold that asks about the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sibling {
    /// Its id.
    #[schema(value_type = String)]
    pub id: HoldId,
    /// Its digest, which its own decision must name.
    #[schema(value_type = String)]
    pub digest: CallDigest,
    /// Its session.
    pub session: Option<String>,
    /// When it opened.
    pub opened_at: Timestamp,
}

/// One line of the view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Line {
    /// `fact`, `warning`, `argument`, `text`, `masked`, `diff_add`, `diff_remove`, `diff_same` or `note`.
    #[schema(value_type = String)]
    pub kind: LineKind,
    /// How far it is set in, in levels.
    pub indent: usize,
    /// What stands before the text.
    pub label: String,
    /// The text.
    pub text: String,
}

/// Something that might deceive or deserves a second look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Warning {
    /// `invisible`, `bidi`, `mixed_script`, `confusable`, `outside_path`, `destructive`, `no_definition`, `large`,
    /// `first_seen`, `look_alike`, `no_caller`, `policy_changed` or `halted`.
    pub code: String,
    /// Where: `tool`, `/path` in the arguments … Empty for the call as a whole.
    pub place: String,
    /// What to tell people. Safe to show as it is.
    pub text: String,
}

impl Warning {
    /// A warning about the call as a whole.
    pub fn new(code: &str, text: impl Into<String>) -> Warning {
        Warning { code: code.to_owned(), place: String::new(), text: text.into() }
    }
}

impl From<&show::Warning> for Warning {
    fn from(warning: &show::Warning) -> Warning {
        let code = match warning.kind {
            show::WarningKind::Invisible => "invisible",
            show::WarningKind::Bidi => "bidi",
            show::WarningKind::MixedScript => "mixed_script",
            show::WarningKind::Confusable => "confusable",
            show::WarningKind::OutsidePath => "outside_path",
            show::WarningKind::Destructive => "destructive",
            show::WarningKind::NoDefinition => "no_definition",
            show::WarningKind::Large => "large",
            show::WarningKind::FirstSeen => "first_seen",
            show::WarningKind::LookAlike => "look_alike",
            show::WarningKind::NoCaller => "no_caller",
        };
        Warning { code: code.to_owned(), place: warning.place.clone(), text: warning.text() }
    }
}

impl HoldDetail {
    /// A hold as it is shown at this moment by this view. What other rows say is left for the caller to add.
    pub fn of(hold: &countersign::Hold, view: View, now: Time) -> HoldDetail {
        let line = |line: show::Line| Line { kind: line.kind, indent: line.indent, label: line.label, text: line.text };
        let no_caller = view.warnings.iter().any(|warning| warning.kind == show::WarningKind::NoCaller);
        let at = hold.call.holds.iter().position(|row| row.id == hold.id);
        let next = at.and_then(|at| hold.call.holds.get(at + 1)).filter(|_| hold.state == HoldState::Superseded);
        HoldDetail {
            hold: Hold { title: view.title, no_caller, ..Hold::from(hold) },
            arguments_text: hold.call.shown_arguments().as_str().to_owned(),
            verdict: Verdict::from(&*hold.call.verdict),
            warnings: view.warnings.iter().map(Warning::from).collect(),
            view: view.lines.into_iter().map(line).collect(),
            definition: None,
            folders: folders(hold),
            superseded_by: next.map(|next| next.id),
            siblings: Vec::new(),
            halted: false,
            now: timestamp(now),
        }
    }
}

/// What a tool is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// What it does, in its author's words.
    pub description: String,
    /// What its arguments must be, as JSON Schema; any object, if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub input_schema: Option<Json>,
    /// What a crash while it runs means.
    #[serde(default)]
    #[schema(value_type = String, example = "at_most_once")]
    pub repeat: Repeat,
    /// What its server claims about it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub annotations: Option<Json>,
    /// The toolset or skill it came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toolset: Option<String>,
    /// What the tool itself says about these arguments: `nothing`, `ask`, `ask_for_these` or `must_ask`.
    #[serde(default)]
    #[schema(value_type = String, example = "nothing")]
    pub declared: Declared,
}

impl Definition {
    /// The definition of this tool.
    pub fn of(self, tool: ToolId) -> countersign::Definition {
        let mut definition = countersign::Definition::new(Arc::clone(&tool.name), self.description);
        definition.tool = tool;
        definition.input_schema = self.input_schema.unwrap_or_else(Json::empty);
        definition.repeat = self.repeat;
        definition.annotations = self.annotations;
        definition.toolset = self.toolset.map(Arc::from);
        definition
    }
}

impl From<&countersign::Definition> for Definition {
    fn from(definition: &countersign::Definition) -> Definition {
        Definition {
            description: definition.description.to_string(),
            input_schema: Some(definition.input_schema.clone()),
            repeat: definition.repeat,
            annotations: definition.annotations.clone(),
            toolset: definition.toolset.as_deref().map(str::to_owned),
            declared: Declared::Nothing,
        }
    }
}
