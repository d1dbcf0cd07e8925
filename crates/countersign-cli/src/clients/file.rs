//! A client's file: read whole, backed up beside itself, and replaced whole or not at all.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::fault::Fault;

/// The most a client's file may hold. Some keep their history in it.
const MOST_BYTES: u64 = 64 * 1024 * 1024;
/// Backups of one file that are looked at, the newest first.
const MOST_BACKUPS: usize = 1_000;

/// A client's file as it was read.
#[derive(Debug)]
pub(crate) struct ClientFile {
    /// Where it really lies: links are followed, so that they stay links.
    path: PathBuf,
    text: String,
}

impl ClientFile {
    /// Reads a file; none where there is none.
    pub(crate) fn read(path: &Path) -> Result<Option<ClientFile>, Fault> {
        let path = match path.canonicalize() {
            Ok(path) => path,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(named(path)(error)),
        };
        let text = read(&path)?;
        Ok(Some(ClientFile { path, text }))
    }

    /// What it says.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the file as it is beside itself, unless it is kept already; where.
    pub(crate) fn back_up(&self) -> Result<PathBuf, Fault> {
        for number in 1..=MOST_BACKUPS {
            let path = self.backup(number);
            if path.exists() {
                if read(&path).is_ok_and(|kept| kept == self.text) {
                    return Ok(path);
                }
                continue;
            }
            let file = self.beside(&self.text)?;
            return match file.persist_noclobber(&path) {
                Ok(_) => Ok(path),
                Err(error) => Err(named(&path)(error.error)),
            };
        }
        Err(Fault::failed(format!("there are {MOST_BACKUPS} backups of `{}`", self.path.display()))
            .next("move them away"))
    }

    /// The texts that were kept, the newest first.
    pub(crate) fn backups(&self) -> impl Iterator<Item = String> {
        let last = (1..=MOST_BACKUPS).take_while(|number| self.backup(*number).exists()).count();
        (1..=last).rev().filter_map(|number| read(&self.backup(number)).ok())
    }

    /// Replaces the file, with the permissions that it has; refuses if somebody else wrote meanwhile.
    pub(crate) fn replace(&self, text: &str) -> Result<(), Fault> {
        let file = self.beside(text)?;
        if read(&self.path)? != self.text {
            return Err(Fault::failed(format!("`{}` has changed meanwhile, and was left alone", self.path.display()))
                .next("close the client, then run it again"));
        }
        file.persist(&self.path).map_err(|error| named(&self.path)(error.error))?;
        Ok(())
    }

    fn backup(&self, number: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".countersign-{number}.bak"));
        name.into()
    }

    /// A new file in the same folder, on the disk and with the same permissions.
    fn beside(&self, text: &str) -> Result<tempfile::NamedTempFile, Fault> {
        let named = named(&self.path);
        let found = fs::metadata(&self.path).map_err(&named)?;
        refuse_foreign(&self.path, &found)?;
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(&named)?;
        file.write_all(text.as_bytes()).map_err(&named)?;
        file.as_file().set_permissions(found.permissions()).map_err(&named)?;
        file.as_file().sync_all().map_err(&named)?;
        Ok(file)
    }
}

fn read(path: &Path) -> Result<String, Fault> {
    let file = fs::File::open(path).map_err(named(path))?;
    let mut text = String::new();
    file.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(named(path))?;
    if text.len() as u64 > MOST_BYTES {
        return Err(Fault::failed(format!("`{}` has more than {MOST_BYTES} bytes", path.display())));
    }
    Ok(text)
}

fn named(path: &Path) -> impl Fn(io::Error) -> Fault {
    let context = format!("`{}`", path.display());
    move |error| Fault::from(error).context(context.clone())
}

/// A file that is written anew would change its owner.
#[cfg(unix)]
fn refuse_foreign(path: &Path, found: &fs::Metadata) -> Result<(), Fault> {
    use std::os::unix::fs::MetadataExt as _;
    let us = rustix::process::geteuid().as_raw();
    if found.uid() == us {
        return Ok(());
    }
    Err(Fault::refused(format!("`{}` belongs to user {}, and this is user {us}", path.display(), found.uid()))
        .next("run as its owner"))
}

#[cfg(not(unix))]
fn refuse_foreign(_path: &Path, _found: &fs::Metadata) -> Result<(), Fault> {
    Ok(())
}
