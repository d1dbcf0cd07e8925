//! Which files in working folders the user has accepted, by digest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::fault::Fault;
use crate::home::{Home, read_private, write_private};

/// The records' name in the data folder.
pub(crate) const NAME: &str = "trusted.json";

/// What the records say about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Exactly this text was accepted.
    Yes,
    /// Another text was accepted for this path.
    Changed,
    /// Nobody ever accepted it.
    Never,
}

/// The accepted files: path to digest.
pub(crate) struct Trusted {
    path: PathBuf,
    records: BTreeMap<String, String>,
}

impl Trusted {
    /// Reads the records of the user's data folder.
    pub(crate) fn load(home: &Home) -> Result<Trusted, Fault> {
        let path = home.data_folder()?.join(NAME);
        let records = match read_private(&path)? {
            None => BTreeMap::new(),
            Some(text) => serde_json::from_str(&text).map_err(|error| {
                Fault::failed(format!("the trust records `{}` are damaged: {error}", path.display()))
                    .next("move the file away, then run `countersign trust` for each folder again")
            })?,
        };
        Ok(Trusted { path, records })
    }

    /// Whether a file with this text is trusted. `path` must be absolute.
    pub(crate) fn check(&self, path: &Path, text: &[u8]) -> Trust {
        match self.records.get(&key(path)) {
            Some(digest) if *digest == digest_of(text) => Trust::Yes,
            Some(_) => Trust::Changed,
            None => Trust::Never,
        }
    }

    /// Accepts exactly this text at this path.
    pub(crate) fn accept(&mut self, path: &Path, text: &[u8]) -> Result<String, Fault> {
        let digest = digest_of(text);
        self.records.insert(key(path), digest.clone());
        self.save()?;
        Ok(digest)
    }

    /// Forgets a file; false where it was not known.
    pub(crate) fn forget(&mut self, path: &Path) -> Result<bool, Fault> {
        let known = self.records.remove(&key(path)).is_some();
        if known {
            self.save()?;
        }
        Ok(known)
    }

    fn save(&self) -> Result<(), Fault> {
        let text = serde_json::to_string_pretty(&self.records).map_err(anyhow::Error::new)?;
        write_private(&self.path, &format!("{text}\n"))
    }
}

fn key(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The digest of a file's bytes.
pub(crate) fn digest_of(text: &[u8]) -> String {
    let hex: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
