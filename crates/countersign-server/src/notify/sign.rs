//! Signatures of webhooks, as Standard Webhooks has them: HMAC-SHA256 over id, time and body.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use countersign::store::{Expect, Failure, Store, StoreError};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::auth::secret::NoRandomness;

const PREFIX: &str = "whsec_";
const NAMESPACE: &str = "notify-keys";
const RECORD: &str = "webhooks";
const KEY_BYTES: usize = 32;

/// A key that signs webhooks.
pub(super) struct Key(Vec<u8>);

impl Key {
    /// Reads `whsec_…`.
    pub(super) fn parse(text: &str) -> Option<Key> {
        BASE64.decode(text.strip_prefix(PREFIX)?).ok().map(Key)
    }

    /// The value of `webhook-signature`.
    pub(super) fn sign(&self, id: &str, seconds: i64, body: &str) -> String {
        // HMAC takes keys of any length, so this never fails.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return String::new() };
        mac.update(format!("{id}.{seconds}.{body}").as_bytes());
        format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
    }
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// There are no secrets without randomness.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The key of the server, `whsec_…`, which signs for every webhook that has none of its own. Made when first asked for.
pub async fn signing_secret(store: &dyn Store) -> Result<String, KeyError> {
    let mut bytes = [0u8; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(|_| NoRandomness)?;
    let fresh = format!("{PREFIX}{}", BASE64.encode(bytes));
    if let Some(kept) = store.record(NAMESPACE, RECORD).await? {
        return read(kept.value);
    }
    match store.put_record(NAMESPACE, RECORD, fresh.as_bytes(), Expect::Absent, None).await {
        Ok(_) => Ok(fresh),
        Err(Failure::Store(error)) => Err(error.into()),
        // Another node was first.
        Err(Failure::Rejected(_)) => match store.record(NAMESPACE, RECORD).await? {
            Some(kept) => read(kept.value),
            None => Err(StoreError::Damaged { what: "signing key", why: "it is there and is not".into() }.into()),
        },
    }
}

fn read(value: Vec<u8>) -> Result<String, KeyError> {
    let text = String::from_utf8(value).ok().filter(|text| Key::parse(text).is_some());
    text.ok_or_else(|| StoreError::Damaged { what: "signing key", why: "it cannot be read".into() }.into())
}

#[cfg(test)]
mod tests {
    use countersign::memory::MemoryStore;

    use super::*;

    /// The example that the specification of Standard Webhooks is published with.
    #[test]
    fn the_published_example_is_signed_as_published() {
        let key = Key::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(Key::parse("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").is_none());
    }

    #[tokio::test]
    async fn the_servers_own_key_is_made_once() {
        let store = MemoryStore::new();
        let key = signing_secret(&store).await.unwrap();
        assert_eq!(signing_secret(&store).await.unwrap(), key);
        assert!(Key::parse(&key).is_some_and(|key| key.0.len() == KEY_BYTES));
    }
}
