//! The cluster, and what befalls it.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use countersign::testing::races::Dice;

use super::node::Node;
use super::{CONFIG, NODES};
use crate::{Durability, TestPostgres};

/// The longest time, in milliseconds, that the cluster works before something is killed.
const WORKS: usize = 1_000;
/// The longest time, in milliseconds, that what was killed stays away.
const AWAY: usize = 400;

/// Three nodes on one database.
pub(super) struct Cluster {
    // Before the database, so that they end first.
    nodes: Vec<Node>,
    database: TestPostgres,
}

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Node(usize),
    Database,
}

impl Cluster {
    /// Starts everything in a folder.
    pub(super) fn start(program: &Path, folder: &Path) -> Result<Cluster> {
        let database = TestPostgres::start(Durability::Durable)?;
        let store = database.url("postgres");
        let node = |index| Node::new(program, folder.join(format!("node-{index}")), &store, CONFIG);
        let mut cluster = Cluster { nodes: (0..NODES).map(node).collect::<Result<_>>()?, database };
        cluster.nodes.iter_mut().try_for_each(Node::start)?;
        Ok(cluster)
    }

    /// The address of the store.
    pub(super) fn store(&self) -> String {
        self.database.url("postgres")
    }

    /// Where the nodes listen.
    pub(super) fn urls(&self) -> impl Iterator<Item = String> {
        self.nodes.iter().map(Node::url)
    }

    /// Makes a token, as an operator does: with the command, on the store.
    pub(super) fn token(&self, role: &str, name: &str) -> Result<String> {
        let node = self.nodes.first().context("a node")?;
        let made = node.command(&["token", "create", "--json", "--role", role, "--name", name]).output()?;
        ensure!(made.status.success(), "no token was made: {}", String::from_utf8_lossy(&made.stderr));
        let made: serde_json::Value = serde_json::from_slice(&made.stdout)?;
        Ok(made.get("token").and_then(serde_json::Value::as_str).context("a token")?.to_owned())
    }

    fn kill(&mut self, victim: Victim) -> Result<()> {
        match victim {
            Victim::Node(index) => self.nodes.get_mut(index).context("a node")?.kill(),
            Victim::Database => self.database.kill(),
        }
    }

    fn revive(&mut self, victim: Victim) -> Result<()> {
        match victim {
            Victim::Node(index) => self.nodes.get_mut(index).context("a node")?.start(),
            Victim::Database => self.database.revive(),
        }
    }
}

/// Kills so often, at random, one or two at a time; whatever was killed comes back.
pub(super) fn kill_at_random(mut cluster: Cluster, kills: u64, mut dice: Dice) -> Result<Cluster> {
    let mut left = kills;
    while left > 0 {
        pause(WORKS, &mut dice);
        let victims = victims(&mut dice, left);
        left -= victims.len() as u64;
        for victim in &victims {
            cluster.kill(*victim)?;
        }
        pause(AWAY, &mut dice);
        // The database is killed last and comes back first: nodes wait for it.
        for victim in victims.into_iter().rev() {
            cluster.revive(victim)?;
        }
    }
    Ok(cluster)
}

/// One of the nodes or the database; one time in three the database along with a node.
fn victims(dice: &mut Dice, left: u64) -> Vec<Victim> {
    let node = Victim::Node(dice.roll(NODES));
    match dice.roll(6) {
        0 | 1 if left > 1 => vec![node, Victim::Database],
        2 => vec![Victim::Database],
        _ => vec![node],
    }
}

fn pause(most: usize, dice: &mut Dice) {
    sleep(Duration::from_millis(dice.roll(most) as u64));
}
