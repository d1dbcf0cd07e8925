//! Which processes there are: by number and start time, and by the mark that they carry.

use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// The variable that a program and its descendants carry, unless they take it off.
pub(super) const MARK: &str = "COUNTERSIGN_RUN";
/// How often what left its group is looked for again, since it may start others meanwhile.
const SWEEPS: usize = 5;

/// One process that cannot be mistaken for another: numbers are used again, start times within one boot are not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Alive {
    pub(super) pid: u32,
    /// In ticks since the machine was started.
    start_time: u64,
    boot_id: String,
}

impl Alive {
    /// The process of this number, if there is one and the system tells.
    pub(super) fn of(pid: u32) -> Option<Alive> {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything, so fields are counted behind its end.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let is_dead = matches!(fields.next(), Some("Z" | "X") | None);
        let start_time = fields.nth(18)?.parse().ok()?;
        (!is_dead).then_some(Alive { pid, start_time, boot_id })
    }

    pub(super) fn is_alive(&self) -> bool {
        Alive::of(self.pid).as_ref() == Some(self)
    }
}

/// The processes that carry this mark, by number.
pub(super) fn marked(mark: &str) -> Vec<u32> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| carries(*pid, mark)).collect()
}

fn carries(pid: u32, mark: &str) -> bool {
    let wanted = format!("{MARK}={mark}");
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
}

/// Kills what carries this mark and left its group. One that also took its mark off is not found.
pub(super) fn kill_strays(mark: &str) {
    for _ in 0..SWEEPS {
        let strays = marked(mark);
        if strays.is_empty() {
            return;
        }
        strays.into_iter().for_each(|pid| kill(pid, mark));
    }
}

/// SECURITY: the process is held first and looked at again before it is killed, so that no stranger is hit that got
/// its number meanwhile.
fn kill(pid: u32, mark: &str) {
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    let Ok(held) = pidfd_open(number, PidfdFlags::empty()) else { return };
    if carries(pid, mark) {
        // The only error left is that it is gone.
        let _ = pidfd_send_signal(&held, Signal::KILL);
    }
}
