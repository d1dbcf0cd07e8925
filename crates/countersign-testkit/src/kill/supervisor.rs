//! Starts the worker, kills it, and starts it again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use countersign::audit::{VerifyOptions, verify_store};
use countersign::signer::Signer;
use countersign::testing::OP_NAMES;
use countersign::testing::races::Dice;
use countersign_store::testing::schema_parts;

use super::child::MIGRATION;
use super::join::Join;
use super::{Backend, Report, SIGNER, child};
use crate::{Durability, TestDatabase, TestPostgres};

/// Every step a worker can die at, and how often it has to come by. Each is a transaction of the store.
const STEPS: [(&str, u64); 21] = [
    // First of all, because only the first life can make an offer that is taken.
    ("offer policy", 1),
    ("submit", 1),
    ("submit", 3),
    ("decide", 1),
    ("claim", 1),
    ("claim", 3),
    ("ask", 1),
    ("renew", 1),
    ("finish", 1),
    ("cancel", 1),
    ("release", 1),
    ("close", 1),
    ("tick", 1),
    ("resolve", 1),
    ("halt", 1),
    // The first lift of a life finds nothing to lift, unless the last one died halted.
    ("lift", 2),
    ("grant", 1),
    ("revoke", 1),
    ("note", 1),
    ("checkpoint", 1),
    ("set policy", 1),
];
/// A worker that does not die at its step by then never comes by it.
const PATIENCE: Duration = Duration::from_secs(30);
/// No schema takes more statements than this.
const STATEMENTS: u64 = 500;
/// The number of the signal that nothing survives.
const KILLED: i32 = 9;

/// Kills at every statement of the migration, at every named step on both sides, and `count` times at random; joins the
/// records after every start; then drains, and joins everything anew.
///
/// # Errors
///
/// When the worker, the store or the files fail in any way but the ones asked for.
pub async fn run(backend: Backend, count: u64, seed: u64) -> Result<Report> {
    for name in OP_NAMES {
        ensure!(STEPS.iter().any(|(step, _)| *step == name), "no worker dies at `{name}`");
    }
    let folder = tempfile::tempdir()?;
    let server = match backend {
        Backend::Sqlite => None,
        Backend::Postgres => Some(TestPostgres::start(Durability::Durable)?),
    };
    let database = server.as_ref().map(TestPostgres::create_database).transpose()?;
    let url = match &database {
        Some(database) => database.url().to_owned(),
        None => sqlite(&folder.path().join("countersign.db")),
    };
    // The longest life before a random kill, in milliseconds: a few calls' worth.
    let longest = match backend {
        Backend::Sqlite => 80,
        Backend::Postgres => 200,
    };
    let mut supervisor =
        Supervisor { url, folder: folder.path().to_owned(), dice: Dice::new(seed), join: Join::default() };
    let kills = supervisor.migrate(server.as_ref()).await?;
    supervisor.join.report = Report { seed, kills, migrations: kills, ..Report::default() };
    for (step, number) in STEPS {
        for side in ["before", "after"] {
            supervisor.die_at(&format!("{step}:{side}:{number}")).await?;
        }
    }
    for _ in 0..count {
        supervisor.kill_within(longest).await?;
    }
    supervisor.finish().await
}

fn sqlite(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

struct Supervisor {
    url: String,
    folder: PathBuf,
    dice: Dice,
    join: Join,
}

impl Supervisor {
    /// Kills the first lives inside the migration, after each of its statements; then lets one through.
    ///
    /// Returns how many were killed. What stands in the end is what an undisturbed start makes.
    async fn migrate(&mut self, server: Option<&TestPostgres>) -> Result<u64> {
        let undisturbed: (String, Option<TestDatabase>) = match server {
            Some(server) => {
                let database = server.create_database()?;
                (database.url().to_owned(), Some(database))
            }
            None => (sqlite(&self.folder.join("undisturbed.db")), None),
        };
        drop(child::connect(&undisturbed.0).await?);
        let (mut number, mut made) = (0, Vec::new());
        for kills in 0..STATEMENTS {
            number += 1;
            let (mut worker, ready) = self.start("work", Some(&format!("{MIGRATION}{number}")))?;
            if ready {
                worker.kill()?;
                worker.wait()?;
                ensure!(kills > 0, "there was nothing to migrate");
                let (made, whole) = (parts(&self.url).await?, parts(&undisturbed.0).await?);
                ensure!(made == whole, "after {kills} kills the schema is not whole:\n{made:#?}\n{whole:#?}");
                return Ok(kills);
            }
            was_killed(worker.wait()?).with_context(|| format!("statement {number} of the migration"))?;
            // Whoever came into the next step left the one before it whole: the next life begins to count there. Before
            // the first there is nothing to read.
            let now = parts(&self.url).await.unwrap_or_default();
            if now != made {
                (number, made) = (0, now);
            }
        }
        anyhow::bail!("the migration has no end")
    }

    /// Starts a worker and waits until it has opened the store, or died. Says whether it is ready to work.
    fn start(&mut self, life: &str, crash: Option<&str>) -> Result<(Child, bool)> {
        let mut child = self.command(life, crash)?.spawn().context("the worker")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("the worker's output")?).read_line(&mut line)?;
        // A worker that dies while it opens the store says nothing; whoever waits for it sees how it ended.
        ensure!(line.is_empty() || line.trim() == "ready", "the worker said `{line}`");
        Ok((child, !line.is_empty()))
    }

    fn command(&mut self, life: &str, crash: Option<&str>) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["child", life, &self.url]).arg(&self.folder).arg(self.dice.roll(1 << 30).to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(crash) = crash {
            command.env("CRASH_AT", crash);
        }
        Ok(command)
    }

    /// Starts a worker on what the last one left, joins the records while it stands still, and lets it work.
    async fn restart(&mut self, life: &str, crash: Option<&str>) -> Result<Child> {
        let (mut worker, ready) = self.start(life, crash)?;
        ensure!(ready, "the worker could not open the store: {}", worker.wait()?);
        let looked = match child::connect(&self.url).await {
            Ok(store) => self.join.look(&store, &self.folder).await,
            Err(error) => Err(error),
        };
        if let Err(error) = looked {
            worker.kill()?;
            worker.wait()?;
            return Err(error);
        }
        worker.stdin.take().context("the worker's input")?.write_all(b"go\n")?;
        Ok(worker)
    }

    /// Lets a worker die at a named step.
    async fn die_at(&mut self, crash: &str) -> Result<()> {
        let mut worker = self.restart("work", Some(crash)).await?;
        self.join.report.kills += 1;
        let started = Instant::now();
        loop {
            if let Some(status) = worker.try_wait()? {
                return was_killed(status).with_context(|| format!("{crash} was not what it died of"));
            }
            if started.elapsed() > PATIENCE {
                worker.kill()?;
                worker.wait()?;
                anyhow::bail!("the worker never came by {crash}");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills a worker at some moment of its work, or while it is still opening the store.
    async fn kill_within(&mut self, longest: usize) -> Result<()> {
        let mut worker = match self.dice.roll(8) {
            0 => self.command("work", None)?.spawn().context("the worker")?,
            _ => self.restart("work", None).await?,
        };
        self.join.report.kills += 1;
        std::thread::sleep(Duration::from_millis(self.dice.roll(longest) as u64));
        worker.kill()?;
        was_killed(worker.wait()?)
    }

    /// Brings everything to an end, and joins it all from the beginning.
    async fn finish(mut self) -> Result<Report> {
        let status = self.restart("drain", None).await?.wait()?;
        ensure!(status.success(), "the last life could not bring everything to an end: {status}");
        let store = child::connect(&self.url).await?;
        let mut whole = Join::default();
        whole.look(&store, &self.folder).await?;
        let pinned = vec![Signer::from_secret(SIGNER)?.public_key()];
        verify_store(&*store, &VerifyOptions { pinned }).await?;
        let grown = self.join.report;
        let mut report = Report { kills: grown.kills, migrations: grown.migrations, seed: grown.seed, ..whole.report };
        report.joins += grown.joins;
        // What one reading finds and the other does not counts all the same.
        report.lost = report.lost.max(grown.lost);
        report.unapproved = report.unapproved.max(grown.unapproved);
        report.twice = report.twice.max(grown.twice);
        report.complaints.extend(grown.complaints);
        Ok(report)
    }
}

async fn parts(url: &str) -> Result<Vec<String>> {
    schema_parts(url).await.map_err(anyhow::Error::from_boxed)
}

/// Whether a process died of the signal and not of anything else.
fn was_killed(status: ExitStatus) -> Result<()> {
    ensure!(status.signal() == Some(KILLED), "the worker ended by itself: {status}");
    Ok(())
}
