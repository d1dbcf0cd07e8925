//! Writes the log of a store as JSON lines that need nothing else to be checked.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::audit::body::Signed;
use crate::audit::frame::{End, Header, VERSION, event_line};
use crate::audit::log::{Log, OfStore, Readable};
use crate::digest::push_hex;
use crate::event::{Event, EventName};
use crate::signer::Signer;
use crate::store::{Failure, Store, StoreError};

/// What to export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// Only the chains of this session, whoever's, and the chain `system`; everything, if none.
    pub session: Option<Arc<str>>,
}

/// What was exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// How many events.
    pub events: u64,
    /// The digest over all lines but the last, as the last line has it.
    pub digest: String,
    /// The public keys the header names.
    pub keys: Vec<String>,
}

/// Why a log could not be exported. What was written so far has no end mark and does not verify.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The checkpoint could not be signed.
    #[error("the log could not be signed before the export: {0}")]
    Checkpoint(Failure),
    /// The export could not be written.
    #[error("the export cannot be written: {0}")]
    Write(#[from] std::io::Error),
    /// A checkpoint by a new key came in between.
    #[error("key `{0}` signed its first checkpoint during the export; export again")]
    NewKey(String),
}

/// Writes the log, oldest event first, page by page, and ends it with a mark over all of it.
///
/// With a signer, a checkpoint is signed first and the end mark is signed too, so that every line is provable. Events
/// that happen while the export runs may be in it or not. Argument digests and nonces are in no event, and so in no
/// export.
pub async fn export(
    store: &dyn Store,
    signer: Option<&Arc<Signer>>,
    options: &ExportOptions,
    out: &mut (dyn Write + Send),
) -> Result<Exported, ExportError> {
    if let Some(signer) = signer {
        super::checkpoint(store, signer).await.map_err(ExportError::Checkpoint)?;
    }
    write(&OfStore(store), signer, options, out).await
}

/// Writes a log that somebody else keeps: [`export`] without a signature of our own over its end.
pub async fn export_log(
    log: &dyn Readable,
    options: &ExportOptions,
    out: &mut (dyn Write + Send),
) -> Result<Exported, ExportError> {
    write(log, None, options, out).await
}

async fn write(
    store: &dyn Readable,
    signer: Option<&Arc<Signer>>,
    options: &ExportOptions,
    out: &mut (dyn Write + Send),
) -> Result<Exported, ExportError> {
    let mut keys = keys_seen(store).await?;
    keys.extend(signer.map(|signer| signer.public_key()));
    let header = Header {
        countersign: "export".into(),
        v: VERSION,
        session: options.session.as_deref().map(str::to_owned),
        keys: keys.iter().cloned().collect(),
        signer: signer.map(|signer| signer.public_key()),
    };
    let mut lines = Lines { out, digest: Sha256::new() };
    lines.write(&header.line())?;
    let mut events = 0;
    let mut log = Log::begin(store, options.session.as_ref()).await?;
    while let Some(event) = log.next().await? {
        if let Some(key) = key_of(&event).filter(|key| !keys.contains(key)) {
            return Err(ExportError::NewKey(key));
        }
        lines.write(&event_line(&event.hash, &event.body))?;
        events += 1;
    }
    let digest = lines.end(events, signer)?;
    Ok(Exported { events, digest, keys: header.keys })
}

/// The keys that signed checkpoints so far.
async fn keys_seen(store: &dyn Readable) -> Result<BTreeSet<String>, StoreError> {
    let mut keys = BTreeSet::new();
    let mut log = Log::system(store).await?;
    while let Some(event) = log.next().await? {
        keys.extend(key_of(&event));
    }
    Ok(keys)
}

fn key_of(event: &Event) -> Option<String> {
    if event.name != EventName::CheckpointSigned {
        return None;
    }
    serde_json::from_str::<Signed<'_>>(&event.body).ok().map(|signed| signed.key.into_owned())
}

/// Lines on their way out, and the digest of those that went.
struct Lines<'a> {
    out: &'a mut (dyn Write + Send),
    digest: Sha256,
}

impl Lines<'_> {
    fn write(&mut self, line: &str) -> std::io::Result<()> {
        self.digest.update(line.as_bytes());
        self.out.write_all(line.as_bytes())
    }

    fn end(self, events: u64, signer: Option<&Arc<Signer>>) -> std::io::Result<String> {
        let mut digest = String::with_capacity(64);
        push_hex(&mut digest, &self.digest.finalize());
        let signature = signer.map(|signer| signer.sign(&digest));
        let key = signer.map(|signer| signer.public_key());
        let end = End { events, digest: digest.clone(), key, signature };
        self.out.write_all(end.line().as_bytes())?;
        self.out.flush()?;
        Ok(digest)
    }
}
