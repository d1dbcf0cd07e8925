//! What the system knows about a process.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// A clock tick of Linux, which is a hundredth of a second on every system that we measure on.
const TICK_MICROSECONDS: f64 = 10_000.0;

/// Microseconds of processor time that a process took, its children left out.
pub(crate) fn cpu(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in brackets may hold blanks; user and system time are the 12th and 13th field after it.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace()).context("no stat")?;
    let ticks: Result<f64> =
        fields.skip(11).take(2).map(|field| field.parse::<f64>().context("no number of ticks")).sum();
    Ok(ticks? * TICK_MICROSECONDS)
}

/// Bytes of a process that are in memory.
pub(crate) fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes * 1024)
}

/// The same once the process has stopped to work.
pub(crate) async fn settled(pid: u32) -> Result<u64> {
    let mut before = cpu(pid)?;
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = cpu(pid)?;
        if now - before <= TICK_MICROSECONDS {
            return resident(pid);
        }
        before = now;
    }
}
