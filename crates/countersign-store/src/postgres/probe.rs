//! Tries what nodes rely on to hear of one another.

use std::str::FromStr as _;
use std::time::{Duration, Instant};

use countersign::CallId;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{Connection as _, PgConnection};

use super::{ConnectError, verified};

/// Sends a notification from one connection to another, on a channel of its own; how long it took, or none where it
/// did not arrive in time: a pooler between us and the server swallows them.
pub async fn probe_notify(url: &str, within: Duration) -> Result<Option<Duration>, ConnectError> {
    let address = verified(PgConnectOptions::from_str(url)?).application_name("countersign");
    let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(within).connect_lazy_with(address.clone());
    let channel = CallId::new().to_string().replace("call_", "probe_");
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen(&channel).await?;
    let mut sender = PgConnection::connect_with(&address).await?;
    let begin = Instant::now();
    sqlx::query("SELECT pg_notify($1, 'heard')").bind(&channel).execute(&mut sender).await?;
    let heard = tokio::time::timeout(within, listener.recv()).await;
    let took = begin.elapsed();
    sender.close().await?;
    match heard {
        Ok(notification) => notification.map(|_| Some(took)).map_err(ConnectError::from),
        Err(_) => Ok(None),
    }
}
