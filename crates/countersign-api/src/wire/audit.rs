//! The keys that sign the record.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Key {
    /// `ed25519`.
    pub kind: String,
    /// The key, in base64.
    pub key: String,
    /// Whether this server signs with it now.
    pub current: bool,
}

/// The keys that sign checkpoints and receipts: this server's, and those of all others that ever signed on its store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Keys {
    /// The keys.
    pub keys: Vec<Key>,
}
