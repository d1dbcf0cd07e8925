//! Brings the schema up to date: one transaction per step, so that a node killed half-way leaves a whole step or none.

use futures::TryStreamExt as _;
use sqlx::{Connection, PgConnection, Row};

use super::ConnectError;

/// The steps, in order. A released one is never edited; a change is a new one.
const STEPS: [&str; 2] = [include_str!("schema/0001_first.sql"), include_str!("schema/0002_moved.sql")];

/// The newest schema.
pub(crate) const SCHEMA: usize = STEPS.len();

/// Held while the schema changes, so that nodes that start together take turns. It goes with its connection.
const LOCK: i64 = 0x636f_756e_7465_7201;

/// Applies the steps that are missing. A schema that is up to date needs no right to change it.
pub(super) async fn migrate(mut connection: PgConnection) -> Result<(), ConnectError> {
    let mut version = version(&mut connection).await?;
    if version < STEPS.len() {
        sqlx::raw_sql("SET statement_timeout = 0; SET lock_timeout = 0").execute(&mut connection).await?;
        sqlx::query("SELECT pg_advisory_lock($1)").bind(LOCK).execute(&mut connection).await?;
    }
    while version < STEPS.len() {
        version = step(&mut connection).await?;
    }
    connection.close().await?;
    if version > STEPS.len() {
        return Err(ConnectError::NewerSchema { found: version, known: STEPS.len() });
    }
    Ok(())
}

/// Applies the next step, unless another node was faster; returns the version then.
async fn step(connection: &mut PgConnection) -> Result<usize, ConnectError> {
    let mut transaction = connection.begin().await?;
    let before = version(&mut transaction).await?;
    let Some(script) = STEPS.get(before) else { return Ok(before) };
    let failed = |error| ConnectError::Migration { step: before + 1, error };
    sqlx::raw_sql(VERSIONS).execute(&mut *transaction).await.map_err(failed)?;
    run(&mut transaction, script).await.map_err(failed)?;
    let done = i32::try_from(before + 1).unwrap_or(i32::MAX);
    sqlx::query("INSERT INTO countersign_schema (version) VALUES ($1)").bind(done).execute(&mut *transaction).await?;
    transaction.commit().await.map_err(failed)?;
    Ok(before + 1)
}

/// Runs a step, and hears of each of its statements, so that tests can stand between any two of them.
async fn run(connection: &mut PgConnection, script: &'static str) -> sqlx::Result<()> {
    let mut statements = sqlx::raw_sql(script).execute_many(connection);
    while statements.try_next().await?.is_some() {
        #[cfg(feature = "testing")]
        crate::testing::statement_done();
    }
    Ok(())
}

const VERSIONS: &str = "
    CREATE TABLE IF NOT EXISTS countersign_schema (
        version    integer PRIMARY KEY,
        applied_at timestamptz NOT NULL DEFAULT now()
    )";

async fn version(connection: &mut PgConnection) -> Result<usize, ConnectError> {
    let found = sqlx::query("SELECT to_regclass('countersign_schema') IS NOT NULL").fetch_one(&mut *connection).await?;
    if !found.try_get::<bool, _>(0)? {
        return Ok(0);
    }
    let row = sqlx::query("SELECT coalesce(max(version), 0) FROM countersign_schema").fetch_one(connection).await?;
    Ok(usize::try_from(row.try_get::<i32, _>(0)?).unwrap_or(usize::MAX))
}
