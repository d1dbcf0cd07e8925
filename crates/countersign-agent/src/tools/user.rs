//! Another user of this machine, whom tools run as.

use std::fs;
use std::io;
use std::process::Command;

use rustix::process::{Gid, Uid, geteuid};

/// Where names of users are looked up.
const PASSWD: &str = "/etc/passwd";

/// A user of this machine whom tools run as, in place of the one that this process runs as.
///
/// They get the user's own group and no other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    uid: u32,
    gid: u32,
}

/// Why tools cannot run as a user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserError {
    /// There is nobody of this name.
    #[error("there is no user `{0}` in {PASSWD}; a user that is not listed there is written as `UID:GID`")]
    Nobody(String),
    /// The user may do everything, so that running as it protects nothing.
    #[error("tools cannot run as the system's administrator")]
    Administrator,
    /// It is the user that this process runs as, so that running as it protects nothing.
    #[error("that is the user that this process runs as")]
    Same,
    /// The system does not let this process become the user.
    #[error("the system does not let this process run anything as another user: {0}")]
    Forbidden(io::Error),
    /// The list of users cannot be read.
    #[error("{PASSWD} cannot be read: {0}")]
    Unread(io::Error),
}

impl User {
    /// Finds a user by name, or by `UID:GID`.
    pub fn find(name: &str) -> Result<User, UserError> {
        match User::from_word(name) {
            Some(user) => Ok(user),
            None => {
                let list = fs::read_to_string(PASSWD).map_err(UserError::Unread)?;
                listed(&list, name).ok_or_else(|| UserError::Nobody(name.to_owned()))
            }
        }
    }

    /// Makes sure that tools can run as this user, and that it keeps anything from them.
    pub fn check(self) -> Result<(), UserError> {
        if self.uid == 0 {
            return Err(UserError::Administrator);
        }
        if self.uid == geteuid().as_raw() {
            return Err(UserError::Same);
        }
        self.doing(|| ()).map_err(UserError::Forbidden)
    }

    /// Lets a command run as this user.
    pub fn apply(self, command: &mut Command) {
        use std::os::unix::process::CommandExt as _;
        // The standard library gives the groups of an administrator away when it becomes somebody else.
        command.gid(self.gid).uid(self.uid);
    }

    /// The user as one word, which [`User::find`] reads.
    pub fn to_word(self) -> String {
        format!("{}:{}", self.uid, self.gid)
    }

    fn from_word(word: &str) -> Option<User> {
        let (uid, gid) = word.split_once(':')?;
        // The largest number means "leave it as it is" to the system.
        let read = |text: &str| text.parse().ok().filter(|number| *number != u32::MAX);
        Some(User { uid: read(uid)?, gid: read(gid)? })
    }

    /// Does work with this user's rights to files, on a thread of its own: on Linux every thread has rights of its own.
    ///
    /// SECURITY: only the effective user changes. The real one stays, so that no program of the user may send signals to
    /// the thread, and with it to this whole process.
    #[cfg(target_os = "linux")]
    pub(crate) fn doing<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let become_and_work = move || -> io::Result<T> {
            set_thread_groups(&[])?;
            set_thread_res_gid(gid, gid, gid)?;
            set_thread_res_uid(None, uid, None)?;
            Ok(work())
        };
        let thread = std::thread::Builder::new().name("tool-as-user".to_owned()).spawn(become_and_work)?;
        thread.join().map_err(|_| io::Error::other("the work broke off"))?
    }

    /// Elsewhere rights belong to the process.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn doing<T: Send + 'static>(self, _: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux lets a part of a process be another user"))
    }
}

/// A user in a list of the form `name:password:uid:gid:…`.
fn listed(list: &str, name: &str) -> Option<User> {
    let fields = list.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = fields.into_iter().find(|fields| fields.first() == Some(&name))?;
    User::from_word(&format!("{}:{}", found.get(2)?, found.get(3)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(word: &str, expected: Option<(u32, u32)>) {
        let list = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533::/:/bin/false\nbroken:x:many:1::/:\n";
        let found = User::from_word(word).or_else(|| listed(list, word));
        assert_eq!(found.map(|user| (user.uid, user.gid)), expected, "{word}");
    }

    #[test]
    fn users_are_found_by_name_and_by_number() {
        check("nobody", Some((65534, 65533)));
        check("1000:100", Some((1000, 100)));
        check("somebody", None);
        check("", None);
        check("x", None);
        check("broken", None);
        check("4294967295:1", None);
    }

    /// Running as the administrator, or as oneself, protects nothing.
    #[test]
    fn a_user_that_protects_nothing_is_refused() {
        assert!(matches!(User { uid: 0, gid: 0 }.check(), Err(UserError::Administrator)));
        let own = User { uid: geteuid().as_raw(), gid: 1 };
        assert!(matches!(own.check(), Err(UserError::Administrator | UserError::Same)));
    }

    /// Where the system lets us, work is done with the other user's rights and ours are back afterwards; else it says so.
    #[cfg(target_os = "linux")]
    #[test]
    fn work_is_done_with_the_rights_of_the_other_user() {
        use std::os::unix::fs::PermissionsExt as _;
        let other = User { uid: 65534, gid: 65534 };
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("key");
        fs::write(&kept, "secret").unwrap();
        fs::set_permissions(&kept, fs::Permissions::from_mode(0o600)).unwrap();
        let read = kept.clone();
        if geteuid().is_root() {
            other.check().unwrap();
            assert!(other.doing(move || fs::read(read)).unwrap().is_err());
        } else {
            assert!(matches!(other.check(), Err(UserError::Forbidden(_))));
            assert!(other.doing(move || fs::read(read)).is_err());
        }
        assert_eq!(fs::read(&kept).unwrap(), b"secret");
    }
}
