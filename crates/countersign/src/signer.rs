//! Signs checkpoints over all chain heads, with an Ed25519 key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::{Signature, Signer as _, SigningKey, Verifier as _, VerifyingKey};

use crate::call::Chain;
use crate::digest::EventHash;
use crate::event::{Draft, EventName, Head};
use crate::json::{IngestError, Json};
use crate::limits;
use crate::store::MovedHeads;

/// An Ed25519 key that signs checkpoints and receipts.
pub struct Signer {
    key: SigningKey,
    heads: usize,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signer({})", self.public_key())
    }
}

/// Why a key cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an Ed25519 key: expected 32 bytes as base64")]
pub struct KeyError;

impl Signer {
    /// Makes a new key from the system's randomness.
    pub fn generate() -> Result<Signer, getrandom::Error> {
        let mut seed = zeroize::Zeroizing::new([0u8; 32]);
        getrandom::fill(seed.as_mut())?;
        Ok(Signer::with(SigningKey::from_bytes(&seed)))
    }

    fn with(key: SigningKey) -> Signer {
        Signer { key, heads: limits::CHECKPOINT_HEADS }
    }

    /// Reads the secret half from base64.
    pub fn from_secret(text: &str) -> Result<Signer, KeyError> {
        let bytes = zeroize::Zeroizing::new(BASE64.decode(text.trim()).map_err(|_| KeyError)?);
        let seed: &[u8; 32] = bytes.as_slice().try_into().map_err(|_| KeyError)?;
        Ok(Signer::with(SigningKey::from_bytes(seed)))
    }

    /// The secret half as base64, for a file that only its owner reads.
    pub fn secret(&self) -> zeroize::Zeroizing<String> {
        zeroize::Zeroizing::new(BASE64.encode(self.key.to_bytes()))
    }

    /// The public half as base64.
    pub fn public_key(&self) -> String {
        BASE64.encode(self.key.verifying_key().to_bytes())
    }

    /// Signs a text; base64.
    pub fn sign(&self, text: &str) -> String {
        BASE64.encode(self.key.sign(text.as_bytes()).to_bytes())
    }

    /// Signs this many heads with one checkpoint, where the default of [`limits::CHECKPOINT_HEADS`] is too many.
    #[must_use]
    pub fn heads_per_checkpoint(mut self, heads: usize) -> Signer {
        self.heads = heads.clamp(1, limits::CHECKPOINT_HEADS);
        self
    }

    /// The moved heads in pages, one for each checkpoint.
    ///
    /// The chain `system` is on the first: the next checkpoint names the one before by its hash, and so signs whatever
    /// that chain holds up to it; only what stands before the first is named by nobody.
    pub(crate) fn pages(&self, mut heads: Vec<(Chain, Head)>) -> Vec<Vec<(Chain, Head)>> {
        heads.sort_by(|(a, _), (b, _)| (*a != Chain::system(), a).cmp(&(*b != Chain::system(), b)));
        let page = |heads: &[(Chain, Head)]| {
            let mut page = heads.to_vec();
            page.sort_by(|a, b| a.0.cmp(&b.0));
            page
        };
        heads.chunks(self.heads).map(page).collect()
    }

    /// Builds the event that ties moved chains together.
    ///
    /// # Errors
    ///
    /// For more heads than one event can hold: [`limits::CHECKPOINT_HEADS`] always fit.
    pub fn checkpoint(&self, moved: &MovedHeads) -> Result<Draft, IngestError> {
        let statement = statement(moved.previous.as_ref(), &moved.heads)?;
        let signature = self.sign(statement.as_str());
        Ok(Draft::new(EventName::CheckpointSigned)
            .json("statement", &statement)
            .text("key", &self.public_key())
            .text("signature", &signature))
    }
}

/// What a checkpoint signs: the checkpoint before it, and the sorted (chain, seq, hash) of the chains that moved.
///
/// # Errors
///
/// For more heads than one event can hold.
pub fn statement(previous: Option<&EventHash>, heads: &[(Chain, Head)]) -> Result<Json, IngestError> {
    let heads: Vec<_> = heads.iter().map(|(chain, head)| (&chain.0, head.seq, head.hash)).collect();
    // Names of chains are values here, never keys, so nothing can collide.
    Json::of(&serde_json::json!({ "heads": heads, "previous": previous }))
}

/// Whether a text is the public half of a key.
pub fn is_key(text: &str) -> bool {
    public(text).is_some()
}

fn public(text: &str) -> Option<VerifyingKey> {
    let bytes: [u8; 32] = BASE64.decode(text).ok()?.try_into().ok()?;
    VerifyingKey::from_bytes(&bytes).ok()
}

/// Whether a signature over a text was made with this key. Both in base64.
pub fn verify(key: &str, text: &str, signature: &str) -> bool {
    let read = || {
        let signature: [u8; 64] = BASE64.decode(signature).ok()?.try_into().ok()?;
        Some((public(key)?, Signature::from_bytes(&signature)))
    };
    read().is_some_and(|(key, signature)| key.verify(text.as_bytes(), &signature).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_key_and_text_verify() {
        let signer = Signer::generate().unwrap();
        let again = Signer::from_secret(&signer.secret()).unwrap();
        let signature = again.sign("hello");
        assert!(verify(&signer.public_key(), "hello", &signature));
        assert!(!verify(&signer.public_key(), "hullo", &signature));
        assert!(!verify(&Signer::generate().unwrap().public_key(), "hello", &signature));
        assert!(!verify("junk", "hello", &signature));
        assert!(Signer::from_secret("junk").is_err());
        assert!(is_key(&signer.public_key()));
        assert!(!is_key("junk") && !is_key(&signature));
        assert!(!format!("{signer:?}").contains(signer.secret().as_str()));
    }

    /// I13: the longest names there are, all of them to be escaped, still fit one event.
    #[test]
    fn as_many_heads_as_are_signed_at_once_always_fit() {
        let name = |n: usize| Chain(format!("{}/{}{n:05}", "\u{1}".repeat(256), "\u{1}".repeat(251)).into());
        let heads = (0..limits::CHECKPOINT_HEADS).map(|n| (name(n), Head { seq: u64::MAX >> 1, ..Head::default() }));
        let moved = MovedHeads { heads: heads.collect(), previous: Some(EventHash::from_bytes([7; 32])) };
        assert!(Signer::generate().unwrap().checkpoint(&moved).is_ok());
    }

    #[test]
    fn pages_are_sorted_and_begin_with_the_system_chain() {
        let heads = |names: &[&str]| -> Vec<(Chain, Head)> {
            names.iter().map(|name| (Chain((*name).into()), Head::default())).collect()
        };
        let signer = Signer::generate().unwrap().heads_per_checkpoint(2);
        let pages = signer.pages(heads(&["a/1", "b/1", "system", "z/1"]));
        assert_eq!(pages, [heads(&["a/1", "system"]), heads(&["b/1", "z/1"])]);
        assert!(signer.pages(Vec::new()).is_empty());
    }
}
