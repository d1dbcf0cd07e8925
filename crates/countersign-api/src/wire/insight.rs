//! How people and rules get along: counted from a bounded window of events.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Counts over a window of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Insights {
    /// Where the window begins.
    pub from: Timestamp,
    /// Where it ends: the store's clock.
    pub to: Timestamp,
    /// Whether the whole window was read; if not, `from` is where reading began.
    pub complete: bool,
    /// All holds that opened in the window.
    pub holds: Tally,
    /// The same over time, oldest first, in equal steps.
    pub over_time: Vec<Moment>,
    /// The same for each rule that asked, busiest first.
    pub by_rule: Vec<(String, Tally)>,
    /// The same for each tool, busiest first.
    pub by_tool: Vec<(String, Tally)>,
    /// How long people took, from the quick to the slow.
    pub waits: Vec<Wait>,
    /// Where people always said yes, so that a rule would have saved them from being asked. Most saved first.
    pub savings: Vec<Saving>,
}

/// How many decisions took so long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Wait {
    /// Less than so many milliseconds, and no less than the one before; the last has no end.
    pub under: Option<u64>,
    /// How many decisions.
    pub decided: u64,
}

/// Prompts that a rule would have saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Saving {
    /// The rule that asked: one of the policy, or `otherwise`.
    pub rule: String,
    /// The tool it asked about, with its server.
    pub tool: String,
    /// How often people were asked and said yes; they never said no.
    pub prompts: u64,
}

/// How holds ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tally {
    /// How many opened.
    pub opened: u64,
    /// How many people approved.
    pub approved: u64,
    /// How many people denied.
    pub denied: u64,
    /// How many were answered instead.
    pub answered: u64,
    /// How many a new grant released.
    pub released: u64,
    /// How many expired.
    pub expired: u64,
    /// How many were withdrawn or superseded.
    pub withdrawn: u64,
    /// How long people took.
    pub timing: Timing,
}

/// How long people took from the opening of a hold to the decision that closed it, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Timing {
    /// Half took less.
    pub median: Option<u64>,
    /// Nine of ten took less.
    pub p90: Option<u64>,
    /// The longest.
    pub longest: Option<u64>,
}

/// One step of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Moment {
    /// When it begins.
    pub at: Timestamp,
    /// How many holds opened.
    pub opened: u64,
    /// How many closed by approval.
    pub approved: u64,
    /// How many closed by denial.
    pub denied: u64,
    /// How many expired.
    pub expired: u64,
}
