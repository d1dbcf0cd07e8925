//! Secrets: random bits, kept as their hash, compared in constant time.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::problem::Refused;
use countersign_api::wire::Code;

/// A new secret of 256 bits behind a prefix.
pub(crate) fn new_secret(prefix: &str) -> Result<String, NoRandomness> {
    random::<32>(prefix)
}

/// A new secret of 128 bits behind a prefix, for what works once and within minutes: short enough for a link that an
/// 80-column terminal does not break, and still beyond guessing.
pub(crate) fn new_short_secret(prefix: &str) -> Result<String, NoRandomness> {
    random::<16>(prefix)
}

fn random<const BYTES: usize>(prefix: &str) -> Result<String, NoRandomness> {
    let mut bytes = [0u8; BYTES];
    getrandom::fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(format!("{prefix}{}", BASE64.encode(bytes)))
}

/// The system has no randomness to give; then there are no secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gave no randomness for a secret")]
pub struct NoRandomness;

impl From<NoRandomness> for Refused {
    fn from(_: NoRandomness) -> Refused {
        Refused::new(Code::Internal)
    }
}

/// The hash of a secret.
pub(crate) type Hash = [u8; 32];

/// The hash of a secret, to find by it what is known of the secret.
pub(crate) fn digest(secret: &str) -> Hash {
    Sha256::digest(secret.as_bytes()).into()
}

/// The hash of a secret, in base64.
pub(crate) fn hash(secret: &str) -> String {
    BASE64.encode(digest(secret))
}

/// Where a secret's record is kept: a part of its hash, so that no lookup compares the secret itself.
pub(crate) fn id(prefix: &str, secret: &str) -> String {
    let digest = digest(secret);
    let mut id = String::with_capacity(prefix.len() + 2 * ID_BYTES);
    id.push_str(prefix);
    for byte in digest.iter().take(ID_BYTES) {
        let _ = write!(id, "{byte:02x}");
    }
    id
}

/// Bytes of the hash in an id.
const ID_BYTES: usize = 12;

/// Whether a secret has this hash, in time that does not tell how much of it is right.
pub(crate) fn matches(secret: &str, expected: &str) -> bool {
    hash(secret).as_bytes().ct_eq(expected.as_bytes()).into()
}

/// Whether two texts are equal, in time that does not tell how much of them is.
pub(crate) fn equal(left: &str, right: &str) -> bool {
    left.as_bytes().ct_eq(right.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_random_and_only_itself_matches() {
        let (first, second) = (new_secret("cs_agent_").unwrap(), new_secret("cs_agent_").unwrap());
        assert_eq!(first.len(), "cs_agent_".len() + 43);
        assert!(matches(&first, &hash(&first)) && !matches(&second, &hash(&first)));
        assert_ne!(id("tok_", &first), id("tok_", &second));
        assert!(!id("tok_", &first).contains(&first) && !hash(&first).contains(&first));
        let (first, second) = (new_short_secret("").unwrap(), new_short_secret("").unwrap());
        assert!(first.len() == 22 && first != second && matches(&first, &hash(&first)));
    }
}
