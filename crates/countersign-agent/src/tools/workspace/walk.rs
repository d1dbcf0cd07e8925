//! The walk from a root to where a path leads.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use super::{FOLDER, Missing, PathError, Place, Resolved, Root, Spot, Workspace, check_text, components, os_str};
use crate::limits;

/// A walk: the folders it went through, all held open, and what is still to come.
pub(super) struct Walk<'w> {
    workspace: &'w Workspace,
    root: &'w Root,
    folders: Vec<(OsString, OwnedFd)>,
    ahead: VecDeque<OsString>,
    links: usize,
    asked: String,
    is_resolved: bool,
    missing: Missing,
}

impl<'w> Walk<'w> {
    pub(super) fn begin(workspace: &'w Workspace, spot: Spot, missing: Missing) -> Result<Walk<'w>, PathError> {
        let Spot { path, is_resolved } = spot;
        check_text(&path)?;
        let root = workspace.roots.first().ok_or_else(|| PathError::Outside(path.clone()))?;
        let (folders, ahead, asked) = (Vec::new(), VecDeque::new(), path.clone());
        let mut walk = Walk { workspace, root, folders, ahead, links: 0, asked, is_resolved, missing };
        walk.turn(Path::new(&path))?;
        Ok(walk)
    }

    /// Walks as far as there is something, and adds the rest as it would be.
    pub(super) fn resolved(mut self) -> Result<Resolved, PathError> {
        let Some(rest) = self.go()? else { return Ok(Resolved::Folder(self.path())) };
        let first = Path::new(&rest).iter().next().unwrap_or(&rest);
        if self.workspace.protected.names(self.here(), first) {
            return Err(PathError::Protected(self.asked));
        }
        Ok(Resolved::File(self.path().join(rest)))
    }

    /// Walks to the end, which must be a name that a file has or may have.
    pub(super) fn place(mut self) -> Result<Place, PathError> {
        let name = self.go()?.ok_or_else(|| PathError::IsFolder(self.asked.clone()))?;
        if self.workspace.protected.names(self.here(), &name) {
            return Err(PathError::Protected(self.asked));
        }
        let path = self.path().join(&name);
        let protected = Arc::clone(&self.workspace.protected);
        Ok(Place { folder: self.into_folder()?, name, path, protected })
    }

    /// Walks to the end, which must be a folder.
    pub(super) fn folder(mut self) -> Result<OwnedFd, PathError> {
        if let Some(name) = self.go()? {
            let there = rustix::fs::statat(self.here(), &name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
            let error = if there { PathError::NotFolder } else { PathError::NotFound };
            return Err(error(self.asked));
        }
        self.into_folder()
    }

    /// Goes on until there is nothing ahead, or only a name that is no folder.
    fn go(&mut self) -> Result<Option<OsString>, PathError> {
        while let Some(name) = self.ahead.pop_front() {
            if name == ".." {
                self.folders.pop().ok_or_else(|| PathError::Outside(self.asked.clone()))?;
                continue;
            }
            match self.kind(&name)? {
                Some(FileType::Symlink) => self.follow(&name)?,
                Some(FileType::Directory) => self.enter(name)?,
                None if self.ahead.is_empty() => return Ok(Some(name)),
                None if self.missing == Missing::Suppose => return self.supposed(&name).map(Some),
                None => self.create(name)?,
                Some(_) if self.ahead.is_empty() => return Ok(Some(name)),
                Some(_) => return Err(PathError::NotFolder(self.asked.clone())),
            }
        }
        Ok(None)
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.folders.last().map_or(self.root.folder.as_fd(), |(_, folder)| folder.as_fd())
    }

    fn path(&self) -> PathBuf {
        let mut path = self.root.path.clone();
        path.extend(self.folders.iter().map(|(name, _)| name));
        path
    }

    fn into_folder(mut self) -> Result<OwnedFd, PathError> {
        match self.folders.pop() {
            Some((_, folder)) => Ok(folder),
            None => self.root.folder.try_clone().map_err(|error| self.bad(error.to_string())),
        }
    }

    fn bad(&self, why: impl Into<String>) -> PathError {
        PathError::Bad { path: self.asked.clone(), why: why.into() }
    }

    fn kind(&self, name: &OsStr) -> Result<Option<FileType>, PathError> {
        match rustix::fs::statat(self.here(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.bad(error.to_string())),
        }
    }

    fn enter(&mut self, name: OsString) -> Result<(), PathError> {
        if self.folders.len() >= limits::PATH_DEPTH {
            return Err(self.bad(format!("it is over {} folders deep", limits::PATH_DEPTH)));
        }
        let folder = rustix::fs::openat(self.here(), &name, FOLDER, Mode::empty());
        let folder = folder.map_err(|error| self.bad(error.to_string()))?;
        if self.workspace.keeps_out_of(folder.as_fd()) {
            return Err(PathError::Protected(self.asked.clone()));
        }
        self.folders.push((name, folder));
        Ok(())
    }

    fn create(&mut self, name: OsString) -> Result<(), PathError> {
        if self.missing == Missing::Refuse || self.ahead.iter().any(|ahead| ahead == "..") {
            return Err(PathError::NotFound(self.path().join(name).display().to_string()));
        }
        if self.workspace.protected.names(self.here(), &name) {
            return Err(PathError::Protected(self.asked.clone()));
        }
        match rustix::fs::mkdirat(self.here(), &name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.enter(name),
            Err(error) => Err(self.bad(error.to_string())),
        }
    }

    /// The rest of the way, of which nothing is there.
    fn supposed(&mut self, name: &OsStr) -> Result<OsString, PathError> {
        if self.ahead.iter().any(|ahead| ahead == "..") {
            return Err(PathError::NotFound(self.asked.clone()));
        }
        let mut rest = PathBuf::from(name);
        rest.extend(self.ahead.drain(..));
        Ok(rest.into_os_string())
    }

    fn follow(&mut self, name: &OsStr) -> Result<(), PathError> {
        if self.is_resolved {
            return Err(PathError::Moved(self.asked.clone()));
        }
        self.links += 1;
        if self.links > limits::PATH_LINKS {
            return Err(self.bad(format!("it leads through over {} links", limits::PATH_LINKS)));
        }
        let target = rustix::fs::readlinkat(self.here(), name, Vec::new());
        let target = target.map_err(|error| self.bad(error.to_string()))?;
        self.turn(Path::new(os_str(target.as_bytes())))
    }

    /// Puts a path before what is ahead. An absolute one starts again at the root that it is below.
    fn turn(&mut self, path: &Path) -> Result<(), PathError> {
        let inside = if path.is_absolute() {
            let found = self.workspace.roots.iter().find_map(|root| Some((root, path.strip_prefix(&root.path).ok()?)));
            let (root, inside) = found.ok_or_else(|| PathError::Outside(self.asked.clone()))?;
            self.root = root;
            self.folders.clear();
            inside
        } else {
            path
        };
        for name in components(inside).rev() {
            self.ahead.push_front(name);
        }
        if self.ahead.iter().map(|name| name.as_bytes().len()).sum::<usize>() > 2 * limits::PATH_BYTES {
            return Err(self.bad("its links grow without end"));
        }
        Ok(())
    }
}
