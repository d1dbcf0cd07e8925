//! `kill-supervisor --count N --store sqlite|postgres [--seed S] [--json]`: kills a worker and joins what it did.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program of its own: its report goes there")]

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use countersign_testkit::kill::{Backend, Life, Report, run_child, run_supervisor};

fn main() -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let ["child", life, url, folder, seed] = words[..] {
        let life = if life == "drain" { Life::Drain } else { Life::Work };
        let crash = std::env::var("CRASH_AT").ok();
        let seed = seed.parse()?;
        runtime.block_on(run_child(url, Path::new(folder), life, seed, crash.as_deref(), ready))?;
        return Ok(ExitCode::SUCCESS);
    }
    let wish = Wish::read(&words)?;
    let report = runtime.block_on(run_supervisor(wish.store, wish.count, wish.seed))?;
    tell(&report, wish.json)?;
    for complaint in &report.complaints {
        eprintln!("{complaint}");
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says that the store is open, and waits for a word before anything changes.
fn ready() {
    println!("ready");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// What the command line asks for.
struct Wish {
    store: Backend,
    count: u64,
    seed: u64,
    json: bool,
}

impl Wish {
    fn read(words: &[&str]) -> Result<Wish> {
        let mut wish = Wish { store: Backend::Sqlite, count: 100, seed: u64::from(std::process::id()), json: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("`{word}` needs a value"));
            match *word {
                "--count" => wish.count = value()?.parse()?,
                "--seed" => wish.seed = value()?.parse()?,
                "--store" => wish.store = Backend::read(value()?)?,
                "--json" => wish.json = true,
                other => bail!("`{other}` is not an option: --count N --store sqlite|postgres --seed S --json"),
            }
        }
        Ok(wish)
    }
}

fn tell(report: &Report, json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string(report)?);
        return Ok(());
    }
    println!("{} kills, {} of them inside the migration, seed {}", report.kills, report.migrations, report.seed);
    println!("{} joins, {} calls, {} effects, {} doubts", report.joins, report.calls, report.effects, report.in_doubt);
    println!(
        "{} decisions and {} acts of operators acknowledged, {} lost",
        report.acknowledged, report.operated, report.lost
    );
    println!("{} effects unapproved, {} calls run twice", report.unapproved, report.twice);
    Ok(())
}
