//! Files that no tool may touch, by any name.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use rustix::fs::Stat;

/// Protected paths. Compared by what they are now, not by what they were when they were named: a store makes its files
/// as it goes, and a file that is replaced is another file under the same name.
#[derive(Clone, Debug, Default)]
pub(super) struct Protected {
    paths: Vec<PathBuf>,
}

impl Protected {
    pub(super) fn add(&mut self, path: PathBuf) {
        self.paths.push(path);
    }

    /// Whether an open file or folder is a protected one: the same device and inode, whatever it is called.
    pub(super) fn covers(&self, stat: &Stat) -> bool {
        self.paths.iter().filter_map(|path| rustix::fs::stat(path).ok()).any(|found| same(&found, stat))
    }

    /// Whether a name in a folder is a protected one, there or not, in any letter case.
    pub(super) fn names(&self, folder: BorrowedFd<'_>, name: &OsStr) -> bool {
        let Ok(folder) = rustix::fs::fstat(folder) else { return true };
        let name = folded(name);
        let parent_is = |path: &Path| {
            let parent = path.parent().and_then(|parent| rustix::fs::stat(parent).ok());
            parent.is_some_and(|parent| same(&parent, &folder))
        };
        self.paths.iter().any(|path| path.file_name().is_some_and(|own| folded(own) == name) && parent_is(path))
    }

    /// The first protected path that a text names: a file by its name or path, a folder by its path.
    pub(super) fn mentioned(&self, text: &str, root: &Path) -> Option<String> {
        let text = text.to_lowercase();
        self.paths.iter().find_map(|path| {
            let whole = folded(path.as_os_str());
            let inside = path.strip_prefix(root).ok().map(|inside| folded(inside.as_os_str()));
            let name = path.file_name().filter(|_| !path.is_dir()).map(folded);
            let names = [Some(whole.clone()), inside, name];
            names.into_iter().flatten().any(|name| has_name(&text, &name)).then_some(whole)
        })
    }
}

fn same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

fn folded(name: &OsStr) -> String {
    name.to_string_lossy().to_lowercase()
}

/// Whether a name stands in a text and is not part of a longer one.
fn has_name(text: &str, name: &str) -> bool {
    let longer = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-' | '.');
    !name.is_empty()
        && text.match_indices(name).any(|(at, _)| {
            let before = text.get(..at).and_then(|text| text.chars().next_back());
            let after = text.get(at + name.len()..).and_then(|text| text.chars().next());
            !before.is_some_and(longer) && !after.is_some_and(longer)
        })
}
