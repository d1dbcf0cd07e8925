//! The database file before SQLite sees it: where it is, whose it is, and who else may touch it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::ConnectError;

/// Makes sure of the file: present, ours, private, a plain file on a local disk. Returns its true path.
///
/// A missing file is created empty and private, so that it is never open to others, not even for a moment.
pub(super) fn prepare(path: &Path) -> Result<PathBuf, ConnectError> {
    let (Some(name), Some(folder)) = (path.file_name(), folder(path)) else {
        return Err(file(path, "it names no file"));
    };
    make_folder(&folder).map_err(|error| file(&folder, error))?;
    let path = folder.canonicalize().map_err(|error| file(&folder, error))?.join(name);
    refuse_network(&path)?;
    create(&path).map_err(|error| file(&path, error))?;
    let found = fs::symlink_metadata(&path).map_err(|error| file(&path, error))?;
    if found.is_symlink() {
        return Err(refused(&path, "it is a symbolic link; name the file itself"));
    }
    if !found.is_file() {
        return Err(refused(&path, "it is not a plain file"));
    }
    refuse_strangers(&path, &found)?;
    Ok(path)
}

fn folder(path: &Path) -> Option<PathBuf> {
    let parent = path.parent()?;
    Some(if parent.as_os_str().is_empty() { PathBuf::from(".") } else { parent.to_owned() })
}

pub(super) fn file(path: &Path, why: impl ToString) -> ConnectError {
    ConnectError::File { path: path.to_owned(), why: why.to_string() }
}

fn refused(path: &Path, why: impl ToString) -> ConnectError {
    ConnectError::Unsafe { path: path.to_owned(), why: why.to_string() }
}

#[cfg(unix)]
fn make_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
fn make_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

fn create(path: &Path) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(unix)]
fn refuse_strangers(path: &Path, found: &fs::Metadata) -> Result<(), ConnectError> {
    use std::os::unix::fs::MetadataExt as _;
    let us = rustix::process::geteuid().as_raw();
    if found.uid() != us {
        return Err(refused(path, format!("it belongs to user {}, and this is user {us}", found.uid())));
    }
    // SECURITY: whoever can write the file can approve anything, and whoever can read it sees unmasked arguments.
    if found.mode() & 0o077 != 0 {
        return Err(refused(path, "other users may open it; run `chmod 600` on it"));
    }
    Ok(())
}

#[cfg(not(unix))]
fn refuse_strangers(_path: &Path, _found: &fs::Metadata) -> Result<(), ConnectError> {
    Ok(())
}

/// Network file systems lose locks and syncs, and with them every promise a store makes.
#[cfg(target_os = "linux")]
fn refuse_network(path: &Path) -> Result<(), ConnectError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let found = rustix::fs::statfs(folder).map_err(|error| file(folder, error))?;
    match network_kind(found.f_type as u64 & 0xffff_ffff) {
        Some(kind) => Err(refused(path, format!("it is on a network file system ({kind}); use a local disk"))),
        None => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn refuse_network(_path: &Path) -> Result<(), ConnectError> {
    Ok(())
}

#[cfg(target_os = "linux")]
fn network_kind(magic: u64) -> Option<&'static str> {
    match magic {
        0x6969 => Some("NFS"),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => Some("SMB"),
        0x0102_1997 => Some("9P"),
        0x5346_414f => Some("AFS"),
        0x00c3_6400 => Some("Ceph"),
        0x0116_1970 => Some("GFS2"),
        0x7461_636f => Some("OCFS2"),
        _ => None,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_magic() {
        assert_eq!(network_kind(0x6969), Some("NFS"));
        assert_eq!(network_kind(0x0102_1997), Some("9P"));
        assert_eq!(network_kind(0xef53), None, "ext4 is local");
    }
}
