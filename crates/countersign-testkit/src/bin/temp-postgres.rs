//! Runs a throw-away PostgreSQL until standard input ends: `temp-postgres fast|durable`. Prints its URL on one line.

use std::env;
use std::io::{self, Write};

use anyhow::{Result, bail};
use countersign_testkit::{Durability, TestPostgres};

fn main() -> Result<()> {
    let durability = match env::args().nth(1).as_deref() {
        Some("fast") => Durability::Fast,
        Some("durable") => Durability::Durable,
        Some(_) | None => bail!("usage: temp-postgres fast|durable"),
    };
    let postgres = TestPostgres::start(durability)?;
    writeln!(io::stdout(), "{}", postgres.url("postgres"))?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}
