//! `cluster-supervisor --program PATH --kills N [--seed S] [--json]`: kills nodes and database, and joins what they did.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program of its own: its report goes to the terminal")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use countersign_testkit::cluster::{Report, run};

fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wish = Wish::read(&words)?;
    // Also where the run itself fails: the seed repeats it.
    eprintln!("seed {}", wish.seed);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let report = runtime.block_on(run(&wish.program, wish.kills, wish.seed))?;
    tell(&report, wish.json)?;
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the command line asks for.
struct Wish {
    program: PathBuf,
    kills: u64,
    seed: u64,
    json: bool,
}

impl Wish {
    fn read(words: &[String]) -> Result<Wish> {
        let (mut program, mut kills, mut seed, mut json) = (None, 20, u64::from(std::process::id()), false);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("`{word}` needs a value"));
            match word.as_str() {
                "--program" => program = Some(PathBuf::from(value()?)),
                "--kills" => kills = value()?.parse()?,
                "--seed" => seed = value()?.parse()?,
                "--json" => json = true,
                other => bail!("`{other}` is not an option: --program PATH --kills N --seed S --json"),
            }
        }
        let program = program.context("--program PATH names the `countersign` command")?;
        Ok(Wish { program, kills, seed, json })
    }
}

fn tell(report: &Report, json: bool) -> Result<()> {
    for complaint in &report.complaints {
        eprintln!("{complaint}");
    }
    if json {
        println!("{}", serde_json::to_string(report)?);
        return Ok(());
    }
    println!("{} kills, seed {}", report.kills, report.seed);
    println!("{} calls, {} effects, {} in doubt, {} open", report.calls, report.effects, report.in_doubt, report.open);
    println!("{} answers acknowledged, {} lost", report.acknowledged, report.lost);
    println!("{} effects unapproved, {} things done twice", report.unapproved, report.twice);
    Ok(())
}
