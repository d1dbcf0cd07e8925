//! Replaces a file in one step.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Stat, Uid};

use crate::tools::workspace::Place;

/// Puts new content in a file's place: whoever reads it sees the old or the new, never half of it, even over a crash.
///
/// Keeps permissions and owner of `old`. A file with several hard links becomes a file of its own.
pub(super) fn replace(place: &Place, content: &[u8], old: Option<&Stat>) -> io::Result<()> {
    let mut temporary = Temporary::create(place, old)?;
    temporary.file.write_all(content)?;
    temporary.file.sync_all()?;
    temporary.put()?;
    rustix::fs::fsync(&place.folder)?;
    Ok(())
}

/// A file under a name nobody guesses, gone again unless it is put in its place.
struct Temporary<'p> {
    place: &'p Place,
    name: String,
    file: File,
    is_put: bool,
}

impl Temporary<'_> {
    fn create<'p>(place: &'p Place, old: Option<&Stat>) -> io::Result<Temporary<'p>> {
        let name = format!(".countersign-{}.tmp", uuid::Uuid::new_v4().simple());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Nobody else may read it before it has the permissions of the file it replaces.
        let first = if old.is_some() { 0o600 } else { 0o666 };
        let fd = rustix::fs::openat(&place.folder, name.as_str(), flags, Mode::from_raw_mode(first))?;
        let temporary = Temporary { place, name, file: File::from(fd), is_put: false };
        if let Some(old) = old {
            let new = rustix::fs::fstat(&temporary.file)?;
            if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid) {
                let (owner, group) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
                rustix::fs::fchown(&temporary.file, Some(owner), Some(group))?;
            }
            // As with any write, set-user-id and its like do not survive.
            rustix::fs::fchmod(&temporary.file, Mode::from_raw_mode(old.st_mode & 0o777))?;
        }
        Ok(temporary)
    }

    fn put(&mut self) -> io::Result<()> {
        let folder = self.place.folder.as_fd();
        rustix::fs::renameat(folder, OsStr::new(&self.name), folder, &self.place.name)?;
        self.is_put = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_put {
            let _ = rustix::fs::unlinkat(&self.place.folder, self.name.as_str(), AtFlags::empty());
        }
    }
}
