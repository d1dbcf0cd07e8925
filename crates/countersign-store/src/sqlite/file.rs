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
    refuse_links(&folder)?;
    make_folder(&folder).map_err(|error| file(&folder, error))?;
    let folder = folder.canonicalize().map_err(|error| file(&folder, error))?;
    refuse_open_folder(&folder)?;
    let path = folder.join(name);
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
    refuse_planted(&path)?;
    Ok(path)
}

/// What SQLite keeps beside a file and believes as it believes the file.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// SECURITY: whoever wrote such a file before us would have written the database.
fn refuse_planted(path: &Path) -> Result<(), ConnectError> {
    for suffix in BESIDE {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let beside = PathBuf::from(name);
        let found = match fs::symlink_metadata(&beside) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(file(&beside, error)),
        };
        if !found.is_file() {
            return Err(refused(&beside, "it is not a plain file, and SQLite would write through it; move it away"));
        }
        refuse_strangers(&beside, &found)?;
    }
    Ok(())
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

/// The system's own links, which only root can make or change, lead where they lead; any other may lead elsewhere
/// tomorrow.
#[cfg(unix)]
fn refuse_links(folder: &Path) -> Result<(), ConnectError> {
    use std::os::unix::fs::MetadataExt as _;
    let mut above = PathBuf::from(".");
    let mut walked = PathBuf::new();
    for component in folder.components() {
        walked.push(component);
        let found = match fs::symlink_metadata(&walked) {
            Ok(found) => found,
            // What is not there yet, we make.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(file(&walked, error)),
        };
        if found.is_symlink() {
            let holder = fs::metadata(&above).map_err(|error| file(&above, error))?;
            let by_root = found.uid() == 0 && holder.uid() == 0 && holder.mode() & 0o022 == 0;
            if !by_root {
                // Where it leads, as far as that is there; what comes after it may not be.
                let real = walked.canonicalize().unwrap_or_else(|_| walked.clone());
                let why = format!("it is a symbolic link; name what it leads to, `{}`", real.display());
                return Err(refused(&walked, why));
            }
        }
        above.clone_from(&walked);
    }
    Ok(())
}

#[cfg(not(unix))]
fn refuse_links(_folder: &Path) -> Result<(), ConnectError> {
    Ok(())
}

/// SECURITY: whoever can write the folder can put another file in the place of ours, or one beside it.
#[cfg(unix)]
fn refuse_open_folder(folder: &Path) -> Result<(), ConnectError> {
    use std::os::unix::fs::MetadataExt as _;
    const STICKY: u32 = 0o1000;
    let look = |folder: &Path| fs::metadata(folder).map_err(|error| file(folder, error));
    let found = look(folder)?;
    let us = rustix::process::geteuid().as_raw();
    if found.uid() != us && found.uid() != 0 {
        let why = format!("the folder belongs to user {}, and this is user {us}; name another folder", found.uid());
        return Err(refused(folder, why));
    }
    if found.mode() & 0o022 != 0 {
        let why = "other users may write this folder; run `chmod go-w` on it, or name one of your own";
        return Err(refused(folder, why));
    }
    for above in folder.ancestors().skip(1) {
        let mode = look(above)?.mode();
        if mode & 0o002 != 0 && mode & STICKY == 0 {
            return Err(refused(above, "anybody may put another folder in its place; run `chmod o-w` on it"));
        }
    }
    Ok(())
}

#[cfg(not(unix))]
fn refuse_open_folder(_folder: &Path) -> Result<(), ConnectError> {
    Ok(())
}

#[cfg(unix)]
fn refuse_strangers(path: &Path, found: &fs::Metadata) -> Result<(), ConnectError> {
    use std::os::unix::fs::MetadataExt as _;
    let us = rustix::process::geteuid().as_raw();
    if found.uid() != us {
        return Err(refused(
            path,
            format!("it belongs to user {}, and this is user {us}; run as its owner, or move it away", found.uid()),
        ));
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
    let magic = found.f_type as u64 & 0xffff_ffff;
    let kind = match magic == FUSE {
        true => fuse_kind(path, &fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()),
        false => network_kind(magic).map_or(Kind::Local, |kind| Kind::Network(kind.to_owned())),
    };
    match kind {
        Kind::Local => Ok(()),
        Kind::Network(kind) => Err(refused(path, format!("it is on a network file system ({kind}); use a local disk"))),
        Kind::Unknown(kind) => {
            tracing::warn!(
                path = %path.display(), kind,
                "the store is on a file system that another program serves; what is acknowledged is as safe as that program makes it"
            );
            Ok(())
        }
    }
}

/// What a file system is to a store.
#[cfg(target_os = "linux")]
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Local,
    Network(String),
    /// A program serves it, and nobody knows from where.
    Unknown(String),
}

/// The magic of whatever a program of the user's serves.
#[cfg(target_os = "linux")]
const FUSE: u64 = 0x6573_5546;

/// Programs that serve files of other machines.
#[cfg(target_os = "linux")]
const OVER_THE_NETWORK: [&str; 13] = [
    "sshfs",
    "s3fs",
    "gcsfuse",
    "rclone",
    "davfs",
    "glusterfs",
    "curlftpfs",
    "ceph",
    "ceph-fuse",
    "juicefs",
    "mfs",
    "moosefs",
    "goofys",
];

/// Who serves the file system a path is on, as the kernel's table of mounts says: `… MOUNTPOINT … - fuse.sshfs …`.
#[cfg(target_os = "linux")]
fn fuse_kind(path: &Path, mounts: &str) -> Kind {
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?.replace("\\040", " ");
        Some((point, after.split(' ').next()?.to_owned()))
    };
    let on = mounts.lines().filter_map(mount).filter(|(point, _)| path.starts_with(point));
    // Of several at one place, the last one lies on top.
    let kind = on.max_by_key(|(point, _)| point.len()).map_or_else(|| "fuse".to_owned(), |(_, kind)| kind);
    let program = kind.strip_prefix("fuse.").unwrap_or(&kind);
    match OVER_THE_NETWORK.contains(&program) {
        true => Kind::Network(kind),
        false => Kind::Unknown(kind),
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
        0x0bd0_0bd0 => Some("Lustre"),
        0x4750_4653 => Some("GPFS"),
        0x1983_0326 => Some("BeeGFS"),
        0x7375_7245 => Some("Coda"),
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

    #[test]
    fn what_a_program_serves_is_known_by_its_mount() {
        let mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            40 22 0:40 / /mnt/far\\040away rw shared:1 - fuse.sshfs host: rw\n\
            41 22 0:41 / /mnt/near rw - fuse.gocryptfs x rw\n";
        let kind = |path: &str| fuse_kind(Path::new(path), mounts);
        assert_eq!(kind("/mnt/far away/a.db"), Kind::Network("fuse.sshfs".into()));
        assert_eq!(kind("/mnt/near/a.db"), Kind::Unknown("fuse.gocryptfs".into()));
        assert_eq!(fuse_kind(Path::new("/x"), ""), Kind::Unknown("fuse".into()), "no table, no verdict");
    }
}
