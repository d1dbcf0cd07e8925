//! The keys that sign a record, as its store lists them.
//!
//! Processes that share a store each sign with a key of their own. Whoever reads the record through one of them must
//! know the keys of the others, or would take their checkpoints for a stranger's.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::limits;
use crate::signer::Signer;
use crate::store::{Applied, Expect, Failure, Op, Store, StoreError};

/// Where public keys are kept among the store's records: each is a key, and its value says nothing more.
const NAMESPACE: &str = "signing-keys";

/// Signs the heads of all chains that moved.
///
/// The key is listed before its first signature is written, so that no checkpoint is ever by a key that is not.
pub async fn checkpoint(store: &dyn Store, signer: &Arc<Signer>) -> Result<Applied, Failure> {
    let key = signer.public_key();
    if store.record(NAMESPACE, &key).await?.is_none() {
        store.put_record(NAMESPACE, &key, b"{}", Expect::Any, None).await?;
    }
    store.run(Op::Checkpoint { signer: Arc::clone(signer) }).await
}

/// The public keys that signed the record of a store, whoever held them, in base64.
pub async fn keys(store: &dyn Store) -> Result<BTreeSet<String>, StoreError> {
    let mut keys = BTreeSet::new();
    loop {
        let after: Option<&String> = keys.last();
        let page = store.records(NAMESPACE, "", after.map(String::as_str), limits::PAGE_ROWS).await?;
        if page.is_empty() {
            return Ok(keys);
        }
        keys.extend(page.into_iter().map(|record| record.key));
    }
}
