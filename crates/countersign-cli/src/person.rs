//! Who sits at the terminal: the operating system's word, not the environment's.

use std::process::Command;

use countersign::Who;

/// The person running this command, as `os:USER`.
pub(crate) fn person() -> Who {
    Who::person(format!("os:{}", name()))
}

#[cfg(unix)]
fn name() -> String {
    let uid = rustix::process::getuid().as_raw();
    let listed = std::fs::read_to_string("/etc/passwd").ok().and_then(|text| find(&text, uid));
    listed.or_else(ask_system).unwrap_or_else(|| uid.to_string())
}

#[cfg(not(unix))]
fn name() -> String {
    ask_system().unwrap_or_else(|| "unknown".to_owned())
}

/// The name of a user id in a file of the form of `/etc/passwd`.
#[cfg(unix)]
fn find(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// Directory services know users that no file lists.
fn ask_system() -> Option<String> {
    let program = if cfg!(windows) { "C:\\Windows\\System32\\whoami.exe" } else { "/usr/bin/id" };
    let mut command = Command::new(program);
    if cfg!(unix) {
        command.arg("-un");
    }
    let output = command.output().ok().filter(|output| output.status.success())?;
    let name = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!name.is_empty() && name.len() < 200).then_some(name)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_id_and_not_by_name() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(find(passwd, 1000).as_deref(), Some("ann"));
        assert_eq!(find(passwd, 7), None);
    }
}
