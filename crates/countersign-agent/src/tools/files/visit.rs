//! Goes through the files below a folder.

use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use countersign::ToolError;
use globset::{GlobBuilder, GlobMatcher};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use crate::limits;
use crate::tools::workspace::Workspace;

/// The folder that no walk enters: it is large, and not what anybody looks for.
const PASSED_OVER: &str = ".git";

/// One file or folder that was found.
pub(super) struct Found<'v> {
    /// The open folder it is in.
    pub(super) folder: BorrowedFd<'v>,
    pub(super) name: &'v OsStr,
    /// Its path from where the walk began, with `/` after a folder.
    pub(super) path: &'v str,
    pub(super) kind: FileType,
}

/// A walk, and what it came to.
pub(super) struct Visit<'w> {
    pub(super) workspace: &'w Workspace,
    pub(super) depth: usize,
    pub(super) entries: usize,
    /// Whether a bound ended it early.
    pub(super) is_cut: bool,
}

impl<'w> Visit<'w> {
    pub(super) fn new(workspace: &'w Workspace, depth: usize) -> Visit<'w> {
        Visit { workspace, depth: depth.min(limits::WALK_DEPTH), entries: 0, is_cut: false }
    }

    /// Shows everything below a folder, names in order. Links are shown and never followed.
    pub(super) fn all(&mut self, folder: &OwnedFd, see: &mut dyn FnMut(&Found<'_>) -> ControlFlow<()>) {
        let stopped = self.below(folder, "", 1, see);
        self.is_cut |= stopped.is_break();
    }

    fn below(
        &mut self,
        folder: &OwnedFd,
        prefix: &str,
        depth: usize,
        see: &mut dyn FnMut(&Found<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        for name in self.names(folder) {
            let Ok(stat) = rustix::fs::statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let kind = FileType::from_raw_mode(stat.st_mode);
            let slash = if kind == FileType::Directory { "/" } else { "" };
            let path = format!("{prefix}{}{slash}", name.to_string_lossy());
            see(&Found { folder: folder.as_fd(), name: &name, path: &path, kind })?;
            if kind != FileType::Directory || name == PASSED_OVER {
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(inner) = rustix::fs::openat(folder, &name, flags, Mode::empty()) else { continue };
            if self.workspace.keeps_out_of(inner.as_fd()) {
                continue;
            }
            match depth < self.depth {
                true => self.below(&inner, &path, depth + 1, see)?,
                false => self.is_cut = true,
            }
        }
        if self.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn is_full(&self) -> bool {
        self.entries >= limits::WALK_ENTRIES
    }

    fn names(&mut self, folder: &OwnedFd) -> Vec<OsString> {
        let Ok(mut listing) = Dir::read_from(folder) else { return Vec::new() };
        let mut names = Vec::new();
        while let Some(Ok(entry)) = listing.read() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if self.is_full() {
                self.is_cut = true;
                break;
            }
            self.entries += 1;
            names.push(name.to_owned());
        }
        names.sort();
        names
    }
}

/// A glob over paths. One without `/` is about the last name alone.
pub(super) struct Glob {
    matcher: GlobMatcher,
    whole: bool,
}

impl Glob {
    pub(super) fn new(pattern: &str) -> Result<Glob, ToolError> {
        let bad = |why: String| ToolError::Failed(format!("the glob cannot be used: {why}"));
        if pattern.len() > limits::PATTERN_BYTES {
            return Err(bad(format!("it has over {} bytes", limits::PATTERN_BYTES)));
        }
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        let matcher = glob.map_err(|error| bad(error.kind().to_string()))?.compile_matcher();
        Ok(Glob { matcher, whole: pattern.contains('/') })
    }

    pub(super) fn is_match(&self, found: &Found<'_>) -> bool {
        match self.whole {
            true => self.matcher.is_match(found.path.trim_end_matches('/')),
            false => self.matcher.is_match(found.name),
        }
    }
}
