//! The user's folders, and files that only their owner may touch.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::fault::Fault;

/// The name of a configuration file, wherever it lies.
pub(crate) const CONFIG_NAME: &str = "countersign.yml";
/// The most a file of ours may hold.
const MOST_BYTES: u64 = 1024 * 1024;

/// Where a user's configuration and data live.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    config: Option<PathBuf>,
    data: Option<PathBuf>,
}

impl Home {
    /// Reads the environment, as the XDG base directory specification says.
    pub(crate) fn from_env() -> Home {
        Home::from(|name| std::env::var_os(name))
    }

    fn from(env: impl Fn(&str) -> Option<OsString>) -> Home {
        // The specification: a path that is not absolute is to be ignored.
        let absolute = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute("HOME").or_else(|| absolute("USERPROFILE"));
        let folder = |name: &str, below: &str| {
            let base = absolute(name).or_else(|| home.as_ref().map(|home| home.join(below)))?;
            Some(base.join("countersign"))
        };
        Home { config: folder("XDG_CONFIG_HOME", ".config"), data: folder("XDG_DATA_HOME", ".local/share") }
    }

    /// The user's own configuration file, whether or not it is there.
    pub(crate) fn config_file(&self) -> Option<PathBuf> {
        self.config.as_ref().map(|folder| folder.join(CONFIG_NAME))
    }

    /// The data folder, made private on first use.
    pub(crate) fn data_folder(&self) -> Result<PathBuf, Fault> {
        let folder = self.data.as_ref().ok_or_else(|| {
            Fault::usage("there is no home folder to keep data in")
                .next("set HOME or XDG_DATA_HOME to an absolute path, or name a store with --store")
        })?;
        make_private_folder(folder)?;
        Ok(folder.clone())
    }
}

/// Makes a folder that only its owner may enter, and refuses one that others may write.
pub(crate) fn make_private_folder(folder: &Path) -> Result<(), Fault> {
    let named = |error: io::Error| Fault::from(error).context(format!("the folder `{}`", folder.display()));
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(named)?;
    let found = fs::symlink_metadata(folder).map_err(named)?;
    if !found.is_dir() {
        return Err(Fault::refused(format!("`{}` is not a folder of its own", folder.display())));
    }
    refuse_strangers(folder, &found, 0o022, "chmod 700")
}

/// Reads a small file that only its owner may touch; none where there is no such file.
pub(crate) fn read_private(path: &Path) -> Result<Option<String>, Fault> {
    let named = |error: io::Error| Fault::from(error).context(format!("`{}`", path.display()));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(named(error)),
        Ok(found) if found.is_symlink() => {
            return Err(refusing(path, "it is a symbolic link").next("replace the link by the file itself"));
        }
        Ok(found) if !found.is_file() => return Err(refusing(path, "it is not a plain file")),
        Ok(_) => {}
    }
    // SECURITY: what is checked is what was opened, not what the path named a moment ago.
    let mut options = fs::OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    let file = options.open(path).map_err(named)?;
    refuse_strangers(path, &file.metadata().map_err(named)?, 0o077, "chmod 600")?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(named)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Writes a file that only its owner may touch: whole or not at all.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), Fault> {
    let named = |error: io::Error| Fault::from(error).context(format!("`{}`", path.display()));
    let folder = path.parent().ok_or_else(|| Fault::failed(format!("`{}` is in no folder", path.display())))?;
    // A temporary file is made 0600, and its name cannot be guessed.
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(named)?;
    file.write_all(text.as_bytes()).map_err(named)?;
    file.as_file().sync_all().map_err(named)?;
    file.persist(path).map_err(|error| named(error.error))?;
    sync_folder(folder).map_err(named)
}

/// Makes a new private file; false where there is one already.
pub(crate) fn create_private(path: &Path, text: &str) -> Result<bool, Fault> {
    let named = |error: io::Error| Fault::from(error).context(format!("`{}`", path.display()));
    let folder = path.parent().ok_or_else(|| Fault::failed(format!("`{}` is in no folder", path.display())))?;
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(named)?;
    file.write_all(text.as_bytes()).map_err(named)?;
    file.as_file().sync_all().map_err(named)?;
    match file.persist_noclobber(path) {
        Ok(_) => sync_folder(folder).map_err(named).map(|()| true),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(named(error.error)),
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    match cfg!(unix) {
        true => fs::File::open(folder)?.sync_all(),
        false => Ok(()),
    }
}

fn refusing(path: &Path, why: &str) -> Fault {
    Fault::refused(format!("refusing to use `{}`: {why}", path.display()))
}

#[cfg(unix)]
fn refuse_strangers(path: &Path, found: &fs::Metadata, forbidden: u32, fix: &str) -> Result<(), Fault> {
    use std::os::unix::fs::MetadataExt as _;
    let us = rustix::process::geteuid().as_raw();
    if found.uid() != us {
        let why = format!("it belongs to user {}, and this is user {us}", found.uid());
        return Err(refusing(path, &why).next("run as its owner, or move it away"));
    }
    if found.mode() & forbidden != 0 {
        let why = format!("other users may touch it (mode {:o})", found.mode() & 0o777);
        return Err(refusing(path, &why).next(format!("{fix} '{}'", path.display())));
    }
    Ok(())
}

#[cfg(not(unix))]
fn refuse_strangers(_path: &Path, _found: &fs::Metadata, _forbidden: u32, _fix: &str) -> Result<(), Fault> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_paths_from_the_environment_count() {
        let env = |name: &str| match name {
            "HOME" => Some(OsString::from("/home/ann")),
            "XDG_DATA_HOME" => Some(OsString::from("relative")),
            _ => None,
        };
        let home = Home::from(env);
        assert_eq!(home.data, Some(PathBuf::from("/home/ann/.local/share/countersign")));
        assert_eq!(home.config_file(), Some(PathBuf::from("/home/ann/.config/countersign/countersign.yml")));
        assert!(Home::from(|_| None).data_folder().is_err());
    }
}
