//! What can be read and kept behind a remote gate: its calls at the server, its records here.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use countersign::bell::Bell;
use countersign::call::{Call, CallState, Path};
use countersign::event::{Cursor, Event};
use countersign::grant::Grant;
use countersign::store::{Applied, CallFilter, EventFilter, Expect, Failure, Op, Order, Record, Store, StoreError};
use countersign::{CallId, GateError, GrantId, HoldId, Time};
use tokio_util::task::AbortOnDropHandle;

use super::backend::Server;
use super::call::shown;
use super::log::Log;
use crate::client::{Client, Told};
use crate::wire;

/// How soon a call is looked at again because of its time: that time is the server's, whose clock may differ.
const TICK_EVERY: Duration = Duration::from_millis(250);

/// How long the stream of events rests after it broke.
const DEAF_FOR: Duration = Duration::from_secs(1);

/// A store whose calls are at a server. What an agent's credential may not do there fails.
pub(super) struct View {
    server: Server,
    /// Keeps the records.
    records: Arc<dyn Store>,
    bell: Arc<Bell<CallId>>,
    log: Log,
    /// Rings the bell, from the first time that somebody listens.
    ringing: OnceLock<Option<AbortOnDropHandle<()>>>,
}

fn elsewhere(what: &str) -> StoreError {
    StoreError::Failed(format!("{what} are at the server of this remote gate, where its people look after them"))
}

fn failure(error: GateError) -> Failure {
    match error {
        GateError::Rejected(rejection) => Failure::Rejected(rejection),
        error => Failure::Store(failed(&error)),
    }
}

fn failed(error: &GateError) -> StoreError {
    StoreError::Failed(error.to_string())
}

impl View {
    pub(super) fn new(server: Server, records: Arc<dyn Store>) -> View {
        View { server, records, bell: Arc::default(), log: Log::default(), ringing: OnceLock::new() }
    }

    /// All calls of a query, or its first page where nothing is sorted out here.
    async fn found(&self, filter: &CallFilter, state: Option<CallState>) -> Result<Vec<wire::Call>, StoreError> {
        let (after, limit) = (filter.after.map(|id| id.to_string()), filter.limit.map(|limit| limit.to_string()));
        let query = [
            ("state", state.map(CallState::as_str)),
            ("session", filter.session.as_deref()),
            ("after", after.as_deref()),
            ("order", (filter.order == Order::Newest).then_some("newest")),
        ];
        let mut query: Vec<(&str, &str)> = query.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let client = &self.server.client;
        let found = if filter.holding || filter.argument_digest.is_some() {
            client.all_calls(&query).await
        } else {
            query.extend(limit.as_deref().map(|limit| ("limit", limit)));
            client.calls(&query).await.map(|page| page.items)
        };
        found.map_err(|error| StoreError::Failed(error.to_string()))
    }
}

/// Rings for every call that the server tells of, and for all of them where something may have been missed.
async fn ring(client: Client, bell: Arc<Bell<CallId>>) {
    loop {
        if let Ok(mut events) = client.events(None).await {
            while let Ok(Some(told)) = events.next().await {
                match told {
                    Told::Event(event) => event.call.into_iter().for_each(|call| bell.ring(call)),
                    Told::Ready(_) => bell.ring_all(),
                    Told::Resync => break,
                }
            }
        }
        // Nobody waits for a bell alone for ever: what is due is looked at in its time.
        bell.ring_all();
        tokio::time::sleep(DEAF_FOR).await;
    }
}

#[async_trait]
impl Store for View {
    async fn run(&self, op: Op) -> Result<Applied, Failure> {
        let call = match op {
            Op::Renew { call, fence, .. } => {
                self.server.renew(call, fence).await.map_err(failure)?;
                None
            }
            Op::Tick { .. } => {
                tokio::time::sleep(TICK_EVERY).await;
                Some(self.server.run(op).await.map_err(failure)?)
            }
            Op::Finish { .. } | Op::Cancel { .. } => Some(self.server.run(op).await.map_err(failure)?),
            _ => return Err(elsewhere("rules, people's decisions and the log").into()),
        };
        Ok(Applied { call, ..Applied::default() })
    }

    async fn now(&self) -> Result<Time, StoreError> {
        self.records.now().await
    }

    async fn call(&self, id: CallId) -> Result<Option<Arc<Call>>, StoreError> {
        match self.server.call(id).await {
            Ok(call) => Ok(Some(call)),
            Err(GateError::Rejected(_)) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    async fn call_of_hold(&self, _hold: HoldId) -> Result<Option<Arc<Call>>, StoreError> {
        Err(elsewhere("holds"))
    }

    /// The principal of a filter is passed over: an agent's credential sees its own calls alone.
    async fn calls(&self, filter: CallFilter) -> Result<Vec<Arc<Call>>, StoreError> {
        let states: &[_] = match filter.holding {
            true => &[Some(CallState::Pending), Some(CallState::Executing)],
            false => &[filter.state],
        };
        let mut calls = Vec::new();
        for state in states {
            calls.extend(self.found(&filter, *state).await?.into_iter().map(shown));
        }
        calls.retain(|call| {
            let held = !filter.holding || call.open_hold().is_some();
            let same = filter.argument_digest.is_none_or(|digest| call.argument_digest == digest);
            held && same && filter.state.is_none_or(|state| call.state == state)
        });
        calls.sort_by_key(|call| call.id);
        if filter.order == Order::Newest {
            calls.reverse();
        }
        calls.truncate(filter.limit.unwrap_or(usize::MAX));
        Ok(calls.into_iter().map(Arc::new).collect())
    }

    async fn due(&self, _limit: usize) -> Result<Vec<CallId>, StoreError> {
        Ok(Vec::new())
    }

    async fn grant(&self, _id: GrantId) -> Result<Option<Grant>, StoreError> {
        Err(elsewhere("grants"))
    }

    async fn grants_after(&self, _after: Option<GrantId>, _limit: usize) -> Result<Vec<Grant>, StoreError> {
        Err(elsewhere("grants"))
    }

    /// What the server tells of our calls, from the first time that somebody asked.
    async fn events(&self, after: Cursor, filter: EventFilter) -> Result<Vec<Event>, StoreError> {
        self.log.after(&self.server, after, &filter).await
    }

    async fn halted(&self, _path: &Path) -> Result<bool, StoreError> {
        Err(elsewhere("halts"))
    }

    async fn policy(&self) -> Result<Option<(Arc<str>, Arc<str>)>, StoreError> {
        Err(elsewhere("policies"))
    }

    async fn record(&self, namespace: &str, key: &str) -> Result<Option<Record>, StoreError> {
        self.records.record(namespace, key).await
    }

    async fn records(
        &self,
        namespace: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.records.records(namespace, prefix, after, limit).await
    }

    async fn put_record(
        &self,
        namespace: &str,
        key: &str,
        value: &[u8],
        expect: Expect,
        life: Option<Duration>,
    ) -> Result<u64, Failure> {
        self.records.put_record(namespace, key, value, expect, life).await
    }

    async fn delete_record(&self, namespace: &str, key: &str, expect: Expect) -> Result<(), Failure> {
        self.records.delete_record(namespace, key, expect).await
    }

    fn bell(&self) -> &Bell<CallId> {
        self.ringing.get_or_init(|| {
            let runtime = tokio::runtime::Handle::try_current().ok()?;
            let ringing = ring(self.server.client.clone(), Arc::clone(&self.bell));
            Some(AbortOnDropHandle::new(runtime.spawn(ringing)))
        });
        &self.bell
    }

    fn is_shared(&self) -> bool {
        true
    }
}
