//! One page of a list.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One page of a list, in the order of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Where the next page begins: hand it back as `after`. None on the last page.
    pub next: Option<String>,
}
