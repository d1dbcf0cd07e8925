//! Where the calls of a session are: in the store here, or at a server.
//!
//! SECURITY: a step that is taken again is the same step only where its call is. A session that went on elsewhere would
//! propose what it may have run already as something new, so it goes on where it began or not at all.

use std::sync::Arc;

use countersign::Store;
use countersign::show::escape;
use countersign::store::Expect;
use countersign_api::wire::Role;
use serde::{Deserialize, Serialize};

use super::all_sessions;
use crate::fault::Fault;
use crate::settings::{remote_client, remote_url};

/// Among the store's records: sessions whose calls are at a server, by name.
const NAMESPACE: &str = "sessions-elsewhere";

/// A server, and as whom it knows us: it tells the calls of one principal from those of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct There {
    pub(crate) url: String,
    pub(crate) principal: String,
}

impl There {
    /// The server that the environment names, if it names one. It is asked who we are, so it must be there.
    pub(crate) async fn from_env() -> Result<Option<There>, Fault> {
        let (Some(url), Some(client)) = (remote_url()?, remote_client()?) else { return Ok(None) };
        let me = client.me().await?;
        if me.roles != [Role::Agent] {
            return Err(Fault::refused("COUNTERSIGN_TOKEN is not an agent's, so no call could be made with it")
                .next("`countersign token create --role agent --name NAME` makes one"));
        }
        Ok(Some(There { url: url.trim_end_matches('/').to_owned(), principal: me.name }))
    }
}

/// Refuses to go on with a session whose calls are elsewhere, and notes where those of a new one are.
pub(crate) async fn settle(store: &Arc<dyn Store>, session: &str, there: Option<&There>) -> Result<(), Fault> {
    match (noted(store, session).await?, there) {
        (None, None) => Ok(()),
        (Some(noted), Some(there)) if noted == *there => Ok(()),
        (Some(There { url, principal }), _) => {
            let (url, principal) = (escape(&url), escape(&principal));
            Err(Fault::refused(format!("the calls of this session are at {url}, as those of `{principal}`"))
                .next(format!("set COUNTERSIGN_URL={url} and COUNTERSIGN_TOKEN to a token of `{principal}`")))
        }
        (None, Some(_)) if all_sessions(store).await?.iter().any(|listed| &*listed.session == session) => {
            Err(Fault::refused("the calls of this session are in the store here, not at the server")
                .next("unset COUNTERSIGN_URL to go on with it, or begin another session"))
        }
        (None, Some(there)) => {
            let value = serde_json::to_vec(there).map_err(anyhow::Error::from)?;
            store.put_record(NAMESPACE, session, &value, Expect::Absent, None).await?;
            Ok(())
        }
    }
}

async fn noted(store: &Arc<dyn Store>, session: &str) -> Result<Option<There>, Fault> {
    let Some(record) = store.record(NAMESPACE, session).await? else { return Ok(None) };
    let noted = serde_json::from_slice(&record.value).map_err(anyhow::Error::from)?;
    Ok(Some(noted))
}
