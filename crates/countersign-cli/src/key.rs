//! The key that signs checkpoints: one file, made on first use, that only its owner may read.

use std::path::Path;
use std::sync::Arc;

use countersign::signer::Signer;

use crate::fault::Fault;
use crate::home::{create_private, read_private};

/// The file's name in a data folder.
pub(crate) const NAME: &str = "signing.key";

/// Reads the key of a data folder, or makes one.
pub(crate) fn load(folder: &Path) -> Result<Arc<Signer>, Fault> {
    let path = folder.join(NAME);
    if let Some(signer) = read(&path)? {
        return Ok(signer);
    }
    let signer = Signer::generate().map_err(|error| Fault::failed(format!("no randomness for a key: {error}")))?;
    if create_private(&path, &format!("{}\n", signer.secret().as_str()))? {
        return Ok(Arc::new(signer));
    }
    // Another process made one in the meantime: theirs it is.
    read(&path)?.ok_or_else(|| Fault::failed(format!("the key `{}` vanished while it was read", path.display())))
}

fn read(path: &Path) -> Result<Option<Arc<Signer>>, Fault> {
    let Some(text) = read_private(path)? else { return Ok(None) };
    let signer = Signer::from_secret(&text).map_err(|error| {
        Fault::failed(format!("the key `{}` is damaged: {error}", path.display()))
            .next("restore it from a backup, or move it away to begin with a new key")
    })?;
    Ok(Some(Arc::new(signer)))
}
