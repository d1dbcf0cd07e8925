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
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

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
///
/// While the file `again` is there, a server that ended is started again. Whoever ends it for good writes `stopping`
/// before reading `pid`, and `pid` is written before `stopping` is looked for: no server slips through.
const SCRIPT: &str = r#"
server=$1 folder=$2; shift 2
exec 3<&0
(read -r _ <&3; : >"$folder/stopping"; [ -e "$folder/ended" ] || kill -QUIT "$(cat "$folder/pid")") &
while :; do
    "$server" -D "$folder/data" -k "$folder" "$@" >>"$folder/log" 2>&1 3<&- &
    pid=$!
    echo "$pid" >"$folder/pid"
    [ -e "$folder/stopping" ] && kill -QUIT "$pid"
    # The shell would tell of a server that was killed.
    wait "$pid" 2>/dev/null
    [ -e "$folder/again" ] && [ ! -e "$folder/stopping" ] || break
    while [ -e "$folder/down" ] && [ ! -e "$folder/stopping" ]; do sleep 0.01; done
done
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

    /// Kills the server and all its processes at once, as a power cut would. It stays down until [`Supervisor::revive`].
    pub(crate) fn kill(&self) -> Result<()> {
        for file in ["again", "down"] {
            fs::write(self.folder.join(file), "")?;
        }
        let postmaster: i32 =
            fs::read_to_string(self.folder.join("pid"))?.trim().parse().context("the server's pid")?;
        // A stopped parent starts no more children, and none of them ends in an orderly way because it is gone.
        signal(postmaster, Signal::STOP)?;
        let children = children(postmaster)?;
        for pid in children.into_iter().chain([postmaster]) {
            signal(pid, Signal::KILL)?;
        }
        Ok(())
    }

    /// Lets a killed server start again on the same folder and port, and waits until it takes connections.
    pub(crate) fn revive(&self, bindir: &Path, port: u16) -> Result<()> {
        fs::remove_file(self.folder.join("down"))?;
        self.wait_until_ready(bindir, port)
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

/// Sends a signal; a process that is gone needs none.
fn signal(pid: i32, signal: Signal) -> Result<()> {
    let process = Pid::from_raw(pid).context("no process has the number 0")?;
    match kill_process(process, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot signal process {pid}")),
    }
}

/// The processes that a process started. A server's are each in a session of their own, so no group names them.
fn children(parent: i32) -> Result<Vec<i32>> {
    let listed = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output().context("cannot run `ps`")?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let pairs = listed.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<i32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    Ok(pairs.filter(|(_, of)| *of == parent).map(|(pid, _)| pid).collect())
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
