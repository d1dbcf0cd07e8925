//! One server process, which is killed and started again.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// A node that does not serve by then, however often it is started, is broken.
const SERVES_WITHIN: Duration = Duration::from_secs(60);
/// How long to wait before a node is started once more.
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// A node, at the same address in all its lives.
pub(super) struct Node {
    program: PathBuf,
    folder: PathBuf,
    store: String,
    port: u16,
    child: Option<Child>,
}

impl Node {
    /// A node that does not run yet, with a home of its own.
    pub(super) fn new(program: &Path, folder: PathBuf, store: &str, config: &str) -> Result<Node> {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("countersign.yml"), config)?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        Ok(Node { program: program.to_owned(), folder, store: store.to_owned(), port, child: None })
    }

    /// Where it listens.
    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The command on the node's own home and store.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--config").arg(self.folder.join("countersign.yml")).args(["--store", &self.store]);
        command.current_dir(&self.folder).env("HOME", &self.folder).stdin(Stdio::null());
        for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
            command.env(name, self.folder.join(name));
        }
        command
    }

    /// Starts it, again and again while the database is away, and waits until it serves.
    pub(super) fn start(&mut self) -> Result<()> {
        let deadline = Instant::now() + SERVES_WITHIN;
        while !self.try_start()? {
            ensure!(Instant::now() < deadline, "a node does not start:\n{}", self.log());
            std::thread::sleep(AGAIN_AFTER);
        }
        Ok(())
    }

    fn try_start(&mut self) -> Result<bool> {
        let log = OpenOptions::new().create(true).append(true).open(self.folder.join("log"))?;
        let mut command = self.command(&["serve", "--json", "--no-open"]);
        command.args(["--listen", &format!("127.0.0.1:{}", self.port)]).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().with_context(|| format!("cannot run {}", self.program.display()))?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("a node's output")?).read_line(&mut line)?;
        if line.is_empty() {
            child.wait()?;
            return Ok(false);
        }
        self.child = Some(child);
        Ok(true)
    }

    /// Kills it. One that is already dead died by itself, which it may not.
    pub(super) fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("a node that runs")?;
        if let Some(status) = child.try_wait()? {
            bail!("a node ended by itself ({status}):\n{}", self.log());
        }
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
