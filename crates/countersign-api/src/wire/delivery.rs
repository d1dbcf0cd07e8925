//! Deliveries: who was told what, and whether it arrived.

use countersign::{CallId, HoldId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far a delivery has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// It is tried, now or later.
    Pending,
    /// It arrived.
    Delivered,
    /// It did not, and is not tried any more.
    Failed,
    /// There was nothing left to tell: the hold had closed.
    Dropped,
}

impl DeliveryState {
    /// The word used on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            DeliveryState::Pending => "pending",
            DeliveryState::Delivered => "delivered",
            DeliveryState::Failed => "failed",
            DeliveryState::Dropped => "dropped",
        }
    }
}

/// The last try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// When.
    pub at: Timestamp,
    /// What the receiver answered, if it did.
    pub status: Option<u16>,
    /// Why it did not arrive.
    pub problem: Option<String>,
}

/// One event on its way to one receiver. Addresses and keys are not shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    /// Its name; a webhook gets it as `webhook-id`, however often it is tried.
    pub id: String,
    /// Who is told: `webhook hooks.example.com`.
    pub to: String,
    /// The event's name.
    pub event: String,
    /// The call it is about.
    #[schema(value_type = Option<String>)]
    pub call: Option<CallId>,
    /// The hold it is about.
    #[schema(value_type = Option<String>)]
    pub hold: Option<HoldId>,
    /// How far it has come.
    pub state: DeliveryState,
    /// How often it was tried.
    pub attempts: u32,
    /// When it happened.
    pub at: Timestamp,
    /// When it is tried next.
    pub next_at: Option<Timestamp>,
    /// The last try.
    pub last: Option<Attempt>,
}

/// How a test message fared with one receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tested {
    /// Who was told.
    pub to: String,
    /// Whether it arrived.
    pub delivered: bool,
    /// What the receiver answered, if it did.
    pub status: Option<u16>,
    /// Why it did not arrive.
    pub problem: Option<String>,
}

/// How a test message fared with every receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TestedAll {
    /// One for each entry of `notify:`.
    pub items: Vec<Tested>,
}
