//! The folder an agent works in, and the files it must not touch.
//!
//! SECURITY: a path is walked one component at a time, each opened relative to the folder before it and never through
//! a link (`O_NOFOLLOW`); links are read and walked the same way, and `..` goes back on our own stack of open folders.
//! So there is no moment between checking and using in which a rename or a swapped link could lead elsewhere: what was
//! checked is held open, and the last step acts on a name in an open folder. This works on every Unix; `openat2` would
//! do the same on Linux alone and not tell us where the walk ended, which the approver is shown.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use countersign::ToolError;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::user::User;
use crate::limits;

mod protect;
mod walk;

use protect::Protected;
use walk::Walk;

/// Why a path cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// It leads outside the workspace.
    #[error("`{0}` is outside the workspace")]
    Outside(String),
    /// It is a file that no tool may touch.
    #[error("`{0}` is protected: configuration, store and keys are out of reach for tools")]
    Protected(String),
    /// It is not there.
    #[error("`{0}` does not exist")]
    NotFound(String),
    /// It is a folder where a file is wanted.
    #[error("`{0}` is a folder")]
    IsFolder(String),
    /// It is a file where a folder is wanted.
    #[error("`{0}` is not a folder")]
    NotFolder(String),
    /// It is a pipe, a socket or a device.
    #[error("`{0}` is neither a file nor a folder")]
    Special(String),
    /// It leads elsewhere than it did when the call was judged.
    #[error("`{0}` leads elsewhere by now than when the call was judged")]
    Moved(String),
    /// It is empty, too long, too deep, or goes round in circles.
    #[error("`{path}` cannot be used: {why}")]
    Bad {
        /// The path.
        path: String,
        /// What is wrong with it.
        why: String,
    },
}

/// The folder an agent works in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Workspace {
    roots: Arc<[Root]>,
    protected: Arc<Protected>,
    user: Option<User>,
}

/// A folder that tools may work in, held open so that nobody can swap it.
#[derive(Debug)]
struct Root {
    folder: OwnedFd,
    path: PathBuf,
}

impl Root {
    fn open(path: &Path) -> Result<Root, PathError> {
        let shown = path.display().to_string();
        let failed = |error: std::io::Error| PathError::Bad { path: shown.clone(), why: error.to_string() };
        let path = path.canonicalize().map_err(failed)?;
        let folder = rustix::fs::open(&path, FOLDER, Mode::empty()).map_err(|error| failed(error.into()))?;
        Ok(Root { folder, path })
    }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Workspace {
    /// Opens a workspace. Tools see only what is below this folder.
    pub fn new(root: impl AsRef<Path>) -> Result<Workspace, PathError> {
        let root = Root::open(root.as_ref())?;
        Ok(Workspace { roots: Arc::from([root]), protected: Arc::default(), user: None })
    }

    /// Lets tools work in a further folder too, by its absolute path.
    pub fn with_folder(self, folder: impl AsRef<Path>) -> Result<Workspace, PathError> {
        let mut roots = vec![Root::open(folder.as_ref())?];
        for root in self.roots.iter() {
            roots.push(Root::open(&root.path)?);
        }
        // The first root is the one that relative paths start from.
        roots.rotate_left(1);
        Ok(Workspace { roots: roots.into(), ..self })
    }

    /// Keeps tools from a file or a folder with all that is in it, whether it is there yet or not.
    ///
    /// It stays out of reach by any other name too: through links, hard links and other letter case.
    #[must_use]
    pub fn protect(mut self, path: impl Into<PathBuf>) -> Workspace {
        let path = self.root().join(path.into());
        Arc::make_mut(&mut self.protected).add(path);
        self
    }

    /// Keeps tools from a database file and the files that SQLite keeps beside it.
    #[must_use]
    pub fn protect_database(self, path: impl AsRef<Path>) -> Workspace {
        let beside = |suffix: &str| {
            let mut name = path.as_ref().as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        ["", "-wal", "-shm", "-journal"].into_iter().fold(self, |workspace, suffix| workspace.protect(beside(suffix)))
    }

    /// Lets tools work here as another user. Its folders must be open to that user.
    pub fn for_user(self, user: User) -> Result<Workspace, PathError> {
        // SECURITY: opened anew, as that user: a folder held open by us would list itself to somebody who may not look.
        let paths: Vec<PathBuf> = self.roots.iter().map(|root| root.path.clone()).collect();
        let opened = user.doing(move || paths.iter().map(|path| Root::open(path)).collect::<Result<Vec<_>, _>>());
        let shut = |error: std::io::Error| PathError::Bad { path: self.shown_root(), why: error.to_string() };
        let roots = opened.map_err(shut)??;
        Ok(Workspace { roots: roots.into(), user: Some(user), ..self })
    }

    /// The user that tools work as, where it is not this process's own.
    pub(crate) fn user(&self) -> Option<User> {
        self.user
    }

    fn shown_root(&self) -> String {
        self.root().display().to_string()
    }

    /// Does work that waits for the disk, away from the tasks that must not, as the user that tools work as.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let broke_off = |why: String| ToolError::NoAnswer(format!("the work broke off: {why}"));
        let done = match self.user {
            None => tokio::task::spawn_blocking(work).await,
            Some(user) => {
                let done = tokio::task::spawn_blocking(move || user.doing(work)).await;
                done.map(|done| done.unwrap_or_else(|error| Err(broke_off(error.to_string()))))
            }
        };
        done.unwrap_or_else(|error| Err(broke_off(error.to_string())))
    }

    /// The folder that relative paths start from.
    pub fn root(&self) -> &Path {
        self.roots.first().map_or(Path::new("/"), |root| &root.path)
    }

    /// Whether a text names a protected file. Finds plain mention only; whoever wants to hide a name from it can.
    pub(crate) fn mentions_protected(&self, text: &str) -> Option<String> {
        self.protected.mentioned(text, self.root())
    }

    /// Finds the place that is meant, whether or not there is a file yet.
    pub(crate) fn place(&self, spot: impl Into<Spot>) -> Result<Place, PathError> {
        Walk::begin(self, spot.into(), Missing::Refuse)?.place()
    }

    /// Like [`Workspace::place`], and makes the folders that are missing on the way.
    pub(crate) fn place_with_folders(&self, spot: impl Into<Spot>) -> Result<Place, PathError> {
        Walk::begin(self, spot.into(), Missing::Create)?.place()
    }

    /// Opens a folder.
    pub(crate) fn folder(&self, spot: impl Into<Spot>) -> Result<OwnedFd, PathError> {
        Walk::begin(self, spot.into(), Missing::Refuse)?.folder()
    }

    /// Says where a path leads, every link followed; what is not there yet, by the nearest folder that is.
    pub(crate) fn resolve(&self, path: &str) -> Result<Resolved, PathError> {
        Walk::begin(self, path.into(), Missing::Suppose)?.resolved()
    }

    /// Opens a file that was found in an open folder, without following a link. None where it is no plain file.
    pub(crate) fn open_in(&self, folder: BorrowedFd<'_>, name: &OsStr) -> Option<(File, Stat)> {
        let before = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
            return None;
        }
        let (file, stat) = open(folder, name).ok()?;
        let plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let free = plain && !self.protected.covers(&stat) && !self.protected.names(folder, name);
        free.then_some((file, stat))
    }

    /// Whether a folder is protected with all that is in it.
    pub(crate) fn keeps_out_of(&self, folder: BorrowedFd<'_>) -> bool {
        rustix::fs::fstat(folder).is_ok_and(|stat| self.protected.covers(&stat))
    }
}

/// What to do about folders that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Refuse,
    Create,
    /// Take them as they would be.
    Suppose,
}

/// A path to walk.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    path: String,
    /// Whether it was resolved before, so that a link on the way was put there since.
    is_resolved: bool,
}

impl Spot {
    /// Where a call's argument led when the call was judged; where it leads now, if that was nowhere.
    pub(crate) fn judged(place: Option<&countersign::place::Place>, argument: &str) -> Spot {
        match place {
            Some(place) => Spot { path: place.path().to_owned(), is_resolved: true },
            None => argument.into(),
        }
    }
}

impl From<&str> for Spot {
    fn from(path: &str) -> Spot {
        Spot { path: path.to_owned(), is_resolved: false }
    }
}

/// Where a path leads.
#[derive(Debug)]
pub(crate) enum Resolved {
    /// To a file, there or not yet.
    File(PathBuf),
    /// To a folder that is there.
    Folder(PathBuf),
}

/// A name in an open folder: where a file is, or would be.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) folder: OwnedFd,
    pub(crate) name: OsString,
    /// Where the walk ended: absolute, without links.
    pub(crate) path: PathBuf,
    protected: Arc<Protected>,
}

impl Place {
    /// Opens the file, if it is there and plain.
    pub(crate) fn open(&self) -> Result<Option<(File, Stat)>, PathError> {
        let shown = || self.path.display().to_string();
        let kind = match rustix::fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(PathError::Bad { path: shown(), why: error.to_string() }),
        };
        // Looked at before it is opened, since opening a device may already do something.
        check_plain(kind, &self.path)?;
        let (file, stat) = open(self.folder.as_fd(), &self.name)
            .map_err(|why| PathError::Bad { path: shown(), why: why.to_string() })?;
        check_plain(FileType::from_raw_mode(stat.st_mode), &self.path)?;
        if self.protected.covers(&stat) {
            return Err(PathError::Protected(shown()));
        }
        Ok(Some((file, stat)))
    }

    /// Opens the file, which must be there.
    pub(crate) fn open_existing(&self) -> Result<(File, Stat), PathError> {
        self.open()?.ok_or_else(|| PathError::NotFound(self.path.display().to_string()))
    }
}

fn check_plain(kind: FileType, path: &Path) -> Result<(), PathError> {
    match kind {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(PathError::IsFolder(path.display().to_string())),
        _ => Err(PathError::Special(path.display().to_string())),
    }
}

/// Opens a name in a folder for reading. Never waits for the other end of a pipe that was put there meanwhile.
fn open(folder: BorrowedFd<'_>, name: &OsStr) -> Result<(File, Stat), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    Ok((File::from(fd), stat))
}

/// Refuses what cannot be a path, before any file is looked at.
fn check_text(path: &str) -> Result<(), PathError> {
    let why = match path {
        "" => "it is empty".to_owned(),
        path if path.len() > limits::PATH_BYTES => format!("it has over {} bytes", limits::PATH_BYTES),
        path if path.contains('\0') => "it holds a zero byte".to_owned(),
        _ => return Ok(()),
    };
    let shown = path.get(..path.floor_char_boundary(100)).unwrap_or_default().replace('\0', "\\0");
    Err(PathError::Bad { path: shown, why })
}

fn components(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    })
}

fn os_str(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}
