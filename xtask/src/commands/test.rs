//! `cargo xtask test`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::check::Check;
use super::{api, mcp, setup, web};
use crate::cargo::{cargo, line, run};
use crate::counts::{self, Counts};
use crate::metadata::Metadata;
use crate::report::Report;

/// Sets up what the tests need, checks, then runs all of them. What CI runs.
#[derive(Debug, Args)]
pub(crate) struct Test {}

const STEPS: &[&str] = &[
    "setup",
    "check",
    "build tests",
    "start PostgreSQL",
    "tests",
    "doc tests",
    "web tests",
    "browser tests",
    "API tests",
];

impl Test {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let mut report = Report::of(STEPS);
        let mut counts = None;
        let result = take_steps(&mut report, &mut counts);
        let left_out = counts.map_or(0, |counts| counts.left_out);
        if left_out > 0 {
            report.note(format!("{left_out} tests were left out by their runner"));
        }
        report.print(&result);
        // The last line, so that it is easy to find; absent where nothing was counted.
        if let Some(counts) = counts {
            println!("{counts}");
        }
        Ok(if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn take_steps(report: &mut Report, total: &mut Option<Counts>) -> Result<()> {
    let runner = Runner::find();
    if let Runner::CargoTest = runner {
        report
            .note("cargo-nextest is not installed: `cargo test` ran the tests (cargo install --locked cargo-nextest)");
    }
    let (bindir, chromium) = report.step(|| {
        web::packages()?;
        api::packages()?;
        mcp::packages()?;
        Ok((setup::postgres()?, web::chromium()?))
    })?;
    report.step(|| Check {}.run())?;
    report.step(|| run(runner.command().arg("--no-run")))?;
    let (fast, durable) = report.step(|| servers(&bindir))?;
    let world = [
        (setup::BINDIR, bindir.to_string_lossy().into_owned()),
        ("TEST_DATABASE_URL", fast.url.clone()),
        ("TEST_DATABASE_URL_DURABLE", durable.url.clone()),
    ];
    report.step(|| runner.run(runner.command().arg("--no-fail-fast").envs(world.clone()), total))?;
    let mut doc_tests = cargo(["test", "--doc", "--workspace", "--all-features", "--no-fail-fast"]);
    report.step(|| Runner::CargoTest.run(doc_tests.envs(world), total))?;
    report.step(|| {
        run(&mut web::npm(["run", "check"]))?;
        Runner::Vitest.run(&mut Runner::Vitest.command(), total)
    })?;
    let program = Metadata::read()?.target_directory.join("debug").join("countersign");
    report.step(|| {
        // The command as the tests had it built: by itself it would be built with other features, and all of it anew.
        let mut browser = Runner::Playwright.command();
        Runner::Playwright.run(browser.env("COUNTERSIGN_BIN", &program).env(web::CHROMIUM, chromium), total)
    })?;
    report.step(|| api::run(&program))
}

/// What runs the tests and how its output reads.
#[derive(Clone, Copy, Debug)]
enum Runner {
    Nextest,
    CargoTest,
    Vitest,
    Playwright,
}

impl Runner {
    fn find() -> Runner {
        let found = cargo(["nextest", "--version"]).output().is_ok_and(|output| output.status.success());
        if found { Runner::Nextest } else { Runner::CargoTest }
    }

    /// All tests but those in doc comments, which nextest cannot run.
    fn command(self) -> Command {
        match self {
            Runner::Nextest => cargo(["nextest", "run", "--workspace", "--all-features"]),
            Runner::CargoTest => {
                let mut test = cargo(["test", "--workspace", "--all-features"]);
                test.args(["--lib", "--bins", "--tests", "--examples"]);
                test
            }
            Runner::Vitest => web::npm(["test"]),
            Runner::Playwright => web::npm(["run", "e2e"]),
        }
    }

    /// Runs to the end, shows everything, and adds what was counted to the total.
    fn run(self, command: &mut Command, total: &mut Option<Counts>) -> Result<()> {
        let typed = line(command);
        let context = || format!("cannot run `{typed}`");
        let (status, counts) = match self {
            Runner::Nextest => {
                let mut child = command.stderr(Stdio::piped()).spawn().with_context(context)?;
                let output = tee(child.stderr.take(), io::stderr())?;
                (child.wait()?, counts::of_nextest(&output))
            }
            Runner::CargoTest | Runner::Vitest | Runner::Playwright => {
                let mut child = command.stdout(Stdio::piped()).spawn().with_context(context)?;
                let output = tee(child.stdout.take(), io::stdout())?;
                let counted = match self {
                    Runner::Vitest => counts::of_vitest(&output),
                    Runner::Playwright => counts::of_playwright(&output),
                    Runner::CargoTest | Runner::Nextest => counts::of_cargo_test(&output),
                };
                (child.wait()?, counted)
            }
        };
        if let Some(counts) = counts {
            *total.get_or_insert_default() += counts;
        }
        ensure!(status.success(), "`{typed}` failed ({status})");
        Ok(())
    }
}

/// Shows what comes, line by line, and keeps it.
fn tee(from: Option<impl Read>, mut to: impl Write) -> Result<String> {
    let mut reader = BufReader::new(from.context("the runner has no output")?);
    let mut kept = Vec::new();
    loop {
        let begin = kept.len();
        if reader.read_until(b'\n', &mut kept)? == 0 {
            return Ok(String::from_utf8_lossy(&kept).into_owned());
        }
        to.write_all(kept.get(begin..).unwrap_or_default())?;
    }
}

/// A throw-away PostgreSQL that all test processes share; each test makes its own database there.
#[derive(Debug)]
struct Server {
    process: Child,
    url: String,
}

fn servers(bindir: &Path) -> Result<(Server, Server)> {
    let target = Metadata::read()?.target_directory;
    let program = target.join("debug").join("temp-postgres");
    Ok((Server::start(&program, bindir, "fast")?, Server::start(&program, bindir, "durable")?))
}

impl Server {
    fn start(program: &Path, bindir: &Path, durability: &str) -> Result<Server> {
        let mut process = Command::new(program)
            .arg(durability)
            .env(setup::BINDIR, bindir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let mut url = String::new();
        let stdout = process.stdout.take().context("temp-postgres has no output")?;
        BufReader::new(stdout).read_line(&mut url)?;
        let url = url.trim().to_owned();
        let server = Server { process, url };
        ensure!(!server.url.is_empty(), "temp-postgres did not start; what it said is above");
        eprintln!("{durability}: {}", server.url);
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server lives as long as its standard input.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
