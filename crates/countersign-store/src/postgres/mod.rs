//! The store for many nodes: PostgreSQL 13 or later.
//!
//! Every node runs the same transitions in the same database. The database's clock decides deadlines; its commit
//! decides who was first. `load.rs` says how nodes keep out of each other's way.
//!
//! Names (sessions, keys, chains …) may hold any character but U+0000, which PostgreSQL cannot store: an operation
//! with one fails.

mod batch;
mod listen;
mod load;
mod migrate;
mod probe;
mod read;
mod records;
mod rows;
mod world;
mod write;

use std::str::FromStr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use countersign::bell::Bell;
use countersign::call::{Call, Path};
use countersign::event::{Cursor, Event};
use countersign::grant::Grant;
use countersign::id::{CallId, GrantId, HoldId};
use countersign::store::{Applied, CallFilter, EventFilter, Expect, Failure, Op, Record, Store, StoreError};
use countersign::time::{Steady, Time};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::{Connection, PgConnection, PgPool, Row};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::known::Known;
pub(crate) use migrate::SCHEMA;
pub use probe::probe_notify;

/// Operations that may wait for their batch.
const QUEUE: usize = 4_096;

/// How to open a PostgreSQL store.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Connections for reading. Two more write, and one listens.
    pub readers: u32,
    /// How long to wait for the first connection before saying that the store cannot be opened.
    pub connect_within: Duration,
    /// How long to wait for a connection later, before saying that the store failed.
    ///
    /// While a server is away, connecting is tried again ever more seldom, up to a fifth of this. So it also says how soon
    /// a node works again after its server is back: within half a second, with two seconds here.
    pub reconnect_within: Duration,
    /// How long reading events over all chains waits for transactions in flight, before it answers with those events
    /// that no open transaction can still come before. A transaction that stays open for longer, anywhere on the
    /// server, holds later events back for as long; it never makes one be skipped.
    pub settle_within: Duration,
    /// Accepts a server that may lose what it acknowledged. For tests only.
    pub allow_unsafe_durability: bool,
    /// Microseconds added to the database's clock wherever it is read. For tests only.
    pub clock_offset: Arc<AtomicI64>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        PostgresOptions {
            readers: 8,
            connect_within: Duration::from_secs(10),
            reconnect_within: Duration::from_secs(2),
            settle_within: Duration::from_secs(2),
            allow_unsafe_durability: false,
            clock_offset: Arc::default(),
        }
    }
}

/// Why a PostgreSQL store did not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is wrong, or the connection broke while the store was opened.
    #[error("cannot connect to PostgreSQL: {0}")]
    Database(#[from] sqlx::Error),
    /// The server cannot be reached, does not answer, or does not let us in.
    #[error("cannot connect to PostgreSQL at `{host}`, port {port}: {why}")]
    Unreachable {
        /// The host, or the path of the socket.
        host: String,
        /// The port.
        port: u16,
        /// What went wrong.
        why: String,
    },
    /// The server may lose what it acknowledged.
    #[error("PostgreSQL runs with `{setting} = off` and may lose decisions it acknowledged; set it on: {fix}")]
    Unsafe {
        /// The setting that is off.
        setting: &'static str,
        /// The SQL that sets it on.
        fix: &'static str,
    },
    /// The server is not one we can work with.
    #[error("PostgreSQL is not usable: {0}")]
    Unusable(String),
    /// The schema is a later version's.
    #[error("the database has schema {found} and this version knows only {known}; run the newer version")]
    NewerSchema {
        /// The schema found.
        found: usize,
        /// The newest schema we know.
        known: usize,
    },
    /// A step of the schema failed; nothing of it was kept.
    #[error("cannot bring the database to schema {step}: {error}")]
    Migration {
        /// The step.
        step: usize,
        /// What the server said.
        error: sqlx::Error,
    },
}

/// Keeps everything in PostgreSQL. Any number of nodes may open the same database.
pub struct PostgresStore {
    node: Arc<Node>,
    queue: mpsc::Sender<batch::Job>,
    tasks: Vec<JoinHandle<()>>,
}

/// What a node's tasks share.
struct Node {
    /// Sent along with notifications, so that a node passes over its own.
    name: String,
    writers: PgPool,
    readers: PgPool,
    bell: Bell<CallId>,
    settle_within: Duration,
    clock_offset: Arc<AtomicI64>,
    /// The database's clock, which somebody may set back.
    clock: Steady,
    waiting: Arc<batch::Counted>,
    /// Calls as this node last wrote them; the database says whether they are still so.
    known: Mutex<Known<()>>,
    reading: listen::Reading,
}

impl Node {
    /// What time it is, by the database's clock.
    fn time(&self, reading: Time) -> Time {
        Time(self.clock.read(reading, std::time::Instant::now()).0.saturating_add(self.offset()))
    }

    fn known(&self) -> MutexGuard<'_, Known<()>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offset(&self) -> i64 {
        self.clock_offset.load(Ordering::SeqCst)
    }
}

/// A server on another host must prove who it is, unless the address itself says otherwise (`sslmode=…`).
fn verified(address: PgConnectOptions) -> PgConnectOptions {
    let host = address.get_host();
    let here = ["localhost", "127.0.0.1", "::1"].contains(&host) || host.starts_with('/');
    let unsaid = matches!(address.get_ssl_mode(), PgSslMode::Prefer);
    let local = here || address.get_socket().is_some();
    if local || !unsaid { address } else { address.ssl_mode(PgSslMode::VerifyFull) }
}

/// SECURITY: of the address only host and port are said: the rest of it may hold a password.
fn unreachable(address: &PgConnectOptions, why: String) -> ConnectError {
    let host = match address.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => address.get_host().to_owned(),
    };
    ConnectError::Unreachable { host, port: address.get_port(), why }
}

impl PostgresStore {
    /// Opens the database, brings its schema up to date, and begins to listen to the other nodes.
    ///
    /// The URL's `sslmode` says how the connection is protected. Must be called inside a tokio runtime, which then runs
    /// the store's tasks.
    ///
    /// # Errors
    ///
    /// Refuses a server with `fsync` or `synchronous_commit` off, one that is older than PostgreSQL 13, a standby, and
    /// a schema newer than this version's.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<PostgresStore, ConnectError> {
        let address = verified(PgConnectOptions::from_str(url)?).application_name("countersign");
        let pool = |size, plans: &'static str| {
            PgPoolOptions::new()
                .max_connections(size)
                .acquire_timeout(options.reconnect_within)
                .after_connect(move |connection, _| Box::pin(prepare(connection, plans)))
                .connect_lazy_with(address.clone())
        };
        // A pool hides why it cannot connect; one connection says it.
        let connected = tokio::time::timeout(options.connect_within, PgConnection::connect_with(&address)).await;
        let mut connection = match connected {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(unreachable(&address, error.to_string())),
            Err(_) => return Err(unreachable(&address, "it does not answer".into())),
        };
        check(&mut connection, &options).await?;
        migrate::migrate(connection).await?;
        let (writers, readers, listening) =
            (pool(2, PLANNED_ONCE), pool(options.readers, PLANNED_EACH), pool(1, PLANNED_EACH));
        let listener = listen::subscribe(&listening).await?;
        let node = Arc::new(Node {
            name: CallId::new().to_string().replace("call_", "node_"),
            writers,
            readers,
            bell: Bell::default(),
            settle_within: options.settle_within,
            clock_offset: options.clock_offset,
            clock: Steady::new(),
            waiting: Arc::default(),
            known: Mutex::default(),
            reading: listen::Reading::default(),
        });
        node.catch_up().await.map_err(|error| ConnectError::Unusable(error.to_string()))?;
        let (queue, jobs) = mpsc::channel(QUEUE);
        let tasks = vec![
            tokio::spawn(batch::serve(Arc::clone(&node), jobs)),
            tokio::spawn(listen::hear(Arc::clone(&node), listening, listener)),
            tokio::spawn(listen::reread(Arc::clone(&node))),
        ];
        Ok(PostgresStore { node, queue, tasks })
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        // What is on its way to the database finishes by itself; only the waiting for more ends here.
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Every connection gives up rather than hang, and lets go of its locks when its node stalls in a transaction.
/// `synchronous_commit` is pinned as it was found, so that a later change of the server's settings weakens nothing.
const PREPARE: &str = "
    SELECT set_config('statement_timeout', '30s', false), set_config('lock_timeout', '10s', false),
           set_config('idle_in_transaction_session_timeout', '10s', false),
           set_config('synchronous_commit', current_setting('synchronous_commit'), false),
           set_config('jit', 'off', false)";

/// For readers: plans are made for the very values, and go along an index in its order. A page then costs what it
/// shows, however many rows there are.
const PLANNED_EACH: &str = "
    SELECT set_config('plan_cache_mode', 'force_custom_plan', false), set_config('enable_bitmapscan', 'off', false)";

/// For writers: their few statements find every row by an index, whatever the values, so a plan is made once. Planning
/// a batch anew costs more than running it. Nor may a table that was empty at that moment be scanned for ever after.
const PLANNED_ONCE: &str = "
    SELECT set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_bitmapscan', 'off', false),
           set_config('enable_seqscan', 'off', false), set_config('enable_hashjoin', 'off', false),
           set_config('enable_mergejoin', 'off', false)";

async fn prepare(connection: &mut PgConnection, plans: &'static str) -> Result<(), sqlx::Error> {
    sqlx::query(PREPARE).execute(&mut *connection).await?;
    sqlx::query(plans).execute(connection).await.map(drop)
}

const CHECK: &str = "
    SELECT current_setting('fsync') = 'off' AS no_fsync, current_setting('synchronous_commit') = 'off' AS no_sync,
           current_setting('server_version_num')::int AS version, current_setting('server_encoding') AS encoding,
           pg_is_in_recovery() AS standby";

async fn check(connection: &mut PgConnection, options: &PostgresOptions) -> Result<(), ConnectError> {
    let row = sqlx::query(CHECK).fetch_one(connection).await?;
    let unsafe_settings = [
        ("no_fsync", "fsync", "ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf();"),
        ("no_sync", "synchronous_commit", "ALTER ROLE CURRENT_USER SET synchronous_commit = on;"),
    ];
    for (column, setting, fix) in unsafe_settings {
        if row.try_get(column)? && !options.allow_unsafe_durability {
            return Err(ConnectError::Unsafe { setting, fix });
        }
    }
    let version: i32 = row.try_get("version")?;
    let encoding: &str = row.try_get("encoding")?;
    if version < 130_000 {
        return Err(ConnectError::Unusable(format!("it is version {}; 13 or later is needed", version / 10_000)));
    }
    if encoding != "UTF8" {
        return Err(ConnectError::Unusable(format!("the database is encoded in {encoding}; UTF8 is needed")));
    }
    if row.try_get("standby")? {
        return Err(ConnectError::Unusable("it is a standby; connect to the primary".into()));
    }
    Ok(())
}

#[async_trait]
impl Store for PostgresStore {
    async fn run(&self, op: Op) -> Result<Applied, Failure> {
        let (answer, answered) = oneshot::channel();
        let job = batch::Job { op: Arc::new(op), answer };
        self.queue.send(job).await.map_err(|_| StoreError::Closed)?;
        answered.await.unwrap_or_else(|_| Err(StoreError::Failed("the operation was cut off".into()).into()))
    }

    async fn now(&self) -> Result<Time, StoreError> {
        read::now(&self.node.readers, self.node.offset()).await
    }

    async fn call(&self, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
        read::call(&self.node.readers, id).await
    }

    async fn call_of_hold(&self, hold: HoldId) -> Result<Option<Arc<Call>>, StoreError> {
        read::call_of_hold(&self.node.readers, hold).await
    }

    async fn calls(&self, filter: CallFilter) -> Result<Vec<Arc<Call>>, StoreError> {
        read::calls(&self.node.readers, &filter).await
    }

    async fn holding(&self) -> Result<usize, StoreError> {
        read::holding(&self.node.readers).await
    }

    async fn due(&self, limit: usize) -> Result<Vec<CallId>, StoreError> {
        read::due(&self.node.readers, self.node.offset(), limit).await
    }

    async fn grant(&self, id: GrantId) -> Result<Option<Grant>, StoreError> {
        read::grant(&self.node.readers, id).await
    }

    async fn grants_after(&self, after: Option<GrantId>, limit: usize) -> Result<Vec<Grant>, StoreError> {
        read::grants(&self.node.readers, after, limit).await
    }

    async fn events(&self, after: Cursor, filter: EventFilter) -> Result<Vec<Event>, StoreError> {
        read::events(&self.node.readers, after, &filter, self.node.settle_within).await
    }

    async fn openings(&self, holds: &[(CallId, HoldId)]) -> Result<Vec<Event>, StoreError> {
        read::openings(&self.node.readers, holds).await
    }

    async fn halted(&self, path: &Path) -> Result<bool, StoreError> {
        read::halted(&self.node.readers, path).await
    }

    async fn policy(&self) -> Result<Option<(Arc<str>, Arc<str>)>, StoreError> {
        read::policy(&self.node.readers).await
    }

    async fn record(&self, namespace: &str, key: &str) -> Result<Option<Record>, StoreError> {
        records::get(&self.node.readers, self.node.offset(), namespace, key).await
    }

    async fn records(
        &self,
        namespace: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        records::list(&self.node.readers, self.node.offset(), namespace, prefix, after, limit).await
    }

    async fn put_record(
        &self,
        namespace: &str,
        key: &str,
        value: &[u8],
        expect: Expect,
        life: Option<Duration>,
    ) -> Result<u64, Failure> {
        records::put(&self.node.readers, self.node.offset(), (namespace, key), value, expect, life).await
    }

    async fn delete_record(&self, namespace: &str, key: &str, expect: Expect) -> Result<(), Failure> {
        records::delete(&self.node.readers, self.node.offset(), namespace, key, expect).await
    }

    fn bell(&self) -> &Bell<CallId> {
        &self.node.bell
    }

    fn is_shared(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_another_host_must_prove_who_it_is() {
        let mode = |url: &str| {
            let address = verified(PgConnectOptions::from_str(url).expect("an address"));
            format!("{:?}", address.get_ssl_mode())
        };
        assert_eq!(mode("postgres://db.example/x"), "VerifyFull");
        assert_eq!(mode("postgres://db.example/x?sslmode=require"), "Require");
        assert_eq!(mode("postgres://127.0.0.1/x"), "Prefer");
        assert_eq!(mode("postgres://localhost/x"), "Prefer");
    }
}
