//! Kills the nodes of a cluster and its database again and again under load, and joins what was said with what is kept.
//!
//! Three real servers share one PostgreSQL. Agents and approvers speak HTTP to whichever node answers, and write down
//! whatever was acknowledged and whatever they did. In the end nothing acknowledged may be missing, nothing may have run
//! unapproved or twice, and nothing may still be open.

mod agent;
mod approver;
mod caller;
mod faults;
mod join;
mod node;
mod records;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use countersign::testing::races::Dice;
use countersign_api::client::Client;
use tokio::task::JoinSet;

use caller::Caller;
use faults::Cluster;
use records::Records;

pub use join::Report;

/// How many nodes.
const NODES: usize = 3;
/// Agents, each with a token of its own.
const AGENTS: usize = 3;
/// Tasks of one agent: they see each other's calls, and race for them.
const WORKERS: usize = 4;
/// Approvers, who race for the same holds.
const APPROVERS: [&str; 2] = ["ann", "bo"];
/// How long a claim holds without being renewed; the configuration says the same.
const LEASE: Duration = Duration::from_secs(1);
/// When nothing is killed any more, everything ends within this time.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// What every node is told.
const CONFIG: &str = "
policy:
  otherwise: ask
  rules:
    - { id: free, allow: [free, again] }
    - { id: unanswered, ask: fleeting, expires_after: 1s }
limits: { lease_seconds: 1, submits_per_second: 100000, pending_per_session: 10000, pending_per_agent: 10000, attempts: 100 }
";

/// What all tasks share.
struct World {
    records: Records,
    /// Whether nothing new is begun any more.
    draining: AtomicBool,
}

impl World {
    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }
}

/// Starts a cluster of `program` (the `countersign` command), kills `kills` times, drains, and joins the records.
///
/// # Errors
///
/// When a node or the database ends in any way but by being killed, does not come back, or answers what it may not.
pub async fn run(program: &Path, kills: u64, seed: u64) -> Result<Report> {
    // The clients want one; a second try finds it done.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir()?;
    let mut dice = Dice::new(seed);
    // Each node runs in a folder of its own.
    let program = program.canonicalize().with_context(|| program.display().to_string())?;
    let place = folder.path().to_owned();
    let cluster = blocking(move || Cluster::start(&program, &place)).await?;
    let world = Arc::new(World { records: Records::create(folder.path())?, draining: AtomicBool::new(false) });
    let mut agents = agents(&cluster, &world, &mut dice)?;
    let mut approvers = approvers(&cluster, &world, &mut dice)?;

    let faults = blocking(move || faults::kill_at_random(cluster, kills, dice));
    let cluster = tokio::select! {
        cluster = faults => cluster?,
        // Nobody goes home before the killing is over, but for an answer they did not expect.
        Some(ended) = agents.join_next() => return Err(ended?.err().context("an agent went home")?),
        Some(ended) = approvers.join_next() => return Err(ended?.err().context("an approver went home")?),
    };
    world.draining.store(true, Ordering::SeqCst);
    // What does not end is counted as open.
    if let Ok(ended) = tokio::time::timeout(ENDS_WITHIN, ended(agents)).await {
        ended?;
    }
    approvers.abort_all();
    join::join(cluster.store(), folder.path(), seed, kills).await
}

/// Waits for all agents; the first that failed says why.
async fn ended(mut agents: JoinSet<Result<()>>) -> Result<()> {
    while let Some(agent) = agents.join_next().await {
        agent??;
    }
    Ok(())
}

fn agents(cluster: &Cluster, world: &Arc<World>, dice: &mut Dice) -> Result<JoinSet<Result<()>>> {
    let mut agents = JoinSet::new();
    for index in 0..AGENTS {
        let name = format!("agent-{index}");
        let nodes = nodes(cluster, &cluster.token("agent", &name)?)?;
        for worker in 0..WORKERS {
            let caller = caller(&nodes, dice);
            agents.spawn(agent::work(Arc::clone(world), caller, format!("{name}-{worker}")));
        }
    }
    Ok(agents)
}

fn approvers(cluster: &Cluster, world: &Arc<World>, dice: &mut Dice) -> Result<JoinSet<Result<()>>> {
    let mut approvers = JoinSet::new();
    for name in APPROVERS {
        let nodes = nodes(cluster, &cluster.token("approver", name)?)?;
        approvers.spawn(approver::decide_all(Arc::clone(world), caller(&nodes, dice)));
    }
    Ok(approvers)
}

/// One credential on all nodes. Made once for all who share it: each client reads the system's certificates anew, and
/// with one for each worker nobody would decide for the first quarter of a minute.
fn nodes(cluster: &Cluster, token: &str) -> Result<Vec<Client>> {
    Ok(cluster.urls().map(|url| Client::new(&url, token)).collect::<Result<_, _>>()?)
}

fn caller(nodes: &[Client], dice: &mut Dice) -> Caller {
    Caller::new(nodes.to_vec(), Dice::new(dice.roll(1 << 30) as u64))
}

/// Starting, killing and waiting for processes keeps no task waiting.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}
