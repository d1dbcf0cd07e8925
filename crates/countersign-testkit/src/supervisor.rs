//! Keeps one PostgreSQL server alive exactly as long as its owner.
//!
//! The server runs under a small shell that waits for its standard input to end. That happens when the owner drops the
//! [`Supervisor`], and also when the owner is killed: no test, however it ends, leaves a server or its files behind.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Whom the server runs as; `postgres` refuses to run as root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// A running server and its folder.
#[derive(Debug)]
pub(crate) struct Supervisor {
    shell: Child,
    folder: PathBuf,
}

/// `$1` is the server, `$2` its folder, the rest its options. Immediate shutdown is right: nobody reads the data again.
const SCRIPT: &str = r#"
server=$1 folder=$2; shift 2
exec 3<&0
"$server" -D "$folder/data" -k "$folder" "$@" >"$folder/log" 2>&1 3<&- &
pid=$!
(read -r _ <&3; [ -e "$folder/ended" ] || kill -QUIT "$pid") &
wait "$pid"
: >"$folder/ended"
wait
rm -rf "$folder"
"#;

const STARTS_WITHIN: Duration = Duration::from_secs(60);
const STOPS_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

impl Supervisor {
    /// Starts the server over an initialised `folder`, which it owns from here on. Returns when it takes connections.
    pub(crate) fn start(
        bindir: &Path,
        folder: PathBuf,
        user: Option<User>,
        port: u16,
        options: &[&str],
    ) -> Result<Self> {
        let mut shell = command("sh", &folder, user);
        shell.args(["-c", SCRIPT, "sh"]).arg(bindir.join("postgres")).arg(&folder).arg("-p").arg(port.to_string());
        for option in options {
            shell.args(["-c", option]);
        }
        let shell =
            shell.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0).spawn().context("cannot start `sh`")?;
        let supervisor = Supervisor { shell, folder };
        supervisor.wait_until_ready(bindir, port)?;
        Ok(supervisor)
    }

    // SECURITY: asks on the private socket. On the TCP port another server might answer.
    fn wait_until_ready(&self, bindir: &Path, port: u16) -> Result<()> {
        let deadline = Instant::now() + STARTS_WITHIN;
        let mut ready = command(bindir.join("pg_isready"), &self.folder, None);
        ready.arg("-q").arg("-h").arg(&self.folder).arg("-p").arg(port.to_string()).args(["-U", "postgres"]);
        while !ready.status().context("cannot run `pg_isready`")?.success() {
            if self.folder.join("ended").exists() {
                bail!("PostgreSQL did not start:\n{}", self.log());
            }
            if Instant::now() > deadline {
                bail!("PostgreSQL was not ready within {STARTS_WITHIN:?}:\n{}", self.log());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn ended_within(&mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            match self.shell.try_wait() {
                Ok(None) => thread::sleep(POLL),
                Ok(Some(_)) | Err(_) => return true,
            }
        }
        false
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        if self.ended_within(STOPS_WITHIN) {
            return;
        }
        // The shell and the server share a process group; the server's own children notice that it is gone.
        let _ = Command::new("sh").args(["-c", "kill -s KILL -- \"-$0\""]).arg(self.shell.id().to_string()).status();
        let _ = self.shell.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A command that runs in `folder`, as `user`, and sees none of the caller's own PostgreSQL settings.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>, folder: &Path, user: Option<User>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
        command.env_remove(name);
    }
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid);
    }
    command
}
