//! Listing the server's tools: for the gateway itself, and on the way to the client.

use std::sync::{Arc, Mutex, PoisonError};

use countersign::{GateError, Refusal, RefusalKind, ToolId};
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::catalog::{Entry, Listed, read_page};
use super::message::{Envelope, Id, pick, range_of, splice};
use super::request::{Era, Request};
use super::{Core, pins};
use crate::limits;

/// How often definitions were wanted, and how many of these wishes are fulfilled.
#[derive(Debug, Default)]
struct Wishes {
    wanted: u64,
    done: u64,
}

/// When the gateway lists for itself.
#[derive(Debug)]
pub(super) struct Listing {
    wishes: watch::Sender<Wishes>,
    /// The `_meta` that requests of the newer era carry, taken from the client's own.
    meta: Mutex<Option<String>>,
}

impl Default for Listing {
    fn default() -> Self {
        Listing { wishes: watch::Sender::new(Wishes::default()), meta: Mutex::default() }
    }
}

impl Listing {
    /// Asks for a listing from now on.
    pub(super) fn want(&self) {
        self.wishes.send_modify(|wishes| wishes.wanted += 1);
    }

    fn dress(&self, request: &Request) {
        if request.era == Era::Modern {
            *self.meta.lock().unwrap_or_else(PoisonError::into_inner) = request.meta.as_deref().map(of_the_protocol);
        }
    }

    fn params(&self, cursor: Option<&str>) -> String {
        let meta = self.meta.lock().unwrap_or_else(PoisonError::into_inner);
        let meta = meta.as_ref().map(|meta| format!("\"_meta\":{meta}"));
        let cursor = cursor.map(|cursor| format!("\"cursor\":{cursor}"));
        let members: Vec<String> = cursor.into_iter().chain(meta).collect();
        format!("{{{}}}", members.join(","))
    }
}

/// The members of a `_meta` that say how to speak; the others are about one request.
fn of_the_protocol(meta: &str) -> String {
    let members: std::collections::BTreeMap<String, &RawValue> = serde_json::from_str(meta).unwrap_or_default();
    let kept = members.iter().filter(|(key, _)| key.starts_with("io.modelcontextprotocol/"));
    let kept = kept.map(|(key, value)| format!("{}:{}", serde_json::Value::from(key.as_str()), value.get()));
    format!("{{{}}}", kept.collect::<Vec<_>>().join(","))
}

/// How a tool stands when it is called.
pub(super) enum Standing {
    /// As it was pinned.
    Known(Arc<Listed>),
    /// The server never said what it is.
    Unknown,
    /// It must not be called, whatever the rules say.
    Stopped(Refusal, Option<Arc<Listed>>),
}

impl Core {
    /// Lists whenever it is wanted.
    pub(super) async fn keep_listing(self: Arc<Self>) {
        let mut wishes = self.listing.wishes.subscribe();
        while wishes.wait_for(|wishes| wishes.wanted > wishes.done).await.is_ok() {
            let wanted = wishes.borrow().wanted;
            let listed = tokio::time::timeout(limits::OWN_LISTING_WITHIN, self.list_all()).await;
            if let Err(why) = listed.unwrap_or_else(|_| Err("it takes too long".to_owned())) {
                self.note(&format!("the tools of the server could not be listed: {why}"));
            }
            self.listing.wishes.send_modify(|wishes| wishes.done = wanted);
        }
    }

    /// Waits until definitions are as new as this call.
    async fn listed(&self, request: &Request) {
        if self.listing.wishes.borrow().wanted == 0 {
            self.listing.dress(request);
            self.listing.want();
        }
        let mut wishes = self.listing.wishes.subscribe();
        let wanted = wishes.borrow().wanted;
        let _ = tokio::time::timeout(limits::OWN_LISTING_WITHIN, wishes.wait_for(|wishes| wishes.done >= wanted)).await;
    }

    async fn list_all(&self) -> Result<(), String> {
        let mut tools = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..limits::PAGES {
            let mut asked = self.link.ask().ok_or("it is gone")?;
            let params = self.listing.params(cursor.as_deref());
            let line = format!(r#"{{"jsonrpc":"2.0","id":{},"method":"tools/list","params":{params}}}"#, asked.id.0);
            self.link.send(line).await.map_err(|error| error.to_string())?;
            let answer = asked.answer().await.map_err(|missing| missing.to_string())?;
            let page = Page::read(&answer)?;
            tools.extend(read_page(&self.server, &self.identity, &page.tools));
            cursor = page.next.map(|next| next.get().to_owned());
            if cursor.is_none() {
                break;
            }
        }
        self.see(tools, true).await.map_err(|error| error.to_string())
    }

    /// Compares definitions with their pins, then lets calls find them.
    async fn see(&self, tools: Vec<(Arc<str>, Entry)>, is_whole: bool) -> Result<(), GateError> {
        let store = &**self.gate.store();
        let known = pins::all(store, &self.server).await?;
        for (name, entry) in &tools {
            let Entry::Listed(listed) = entry else { continue };
            let seen = pins::see(store, &self.server, name, &listed.snapshot, known.get(&**name)).await;
            match seen.map_err(GateError::from)? {
                pins::Seen::Before | pins::Seen::First => {}
                pins::Seen::Changed(old) => {
                    self.gate.supersede(&old).await?;
                    let name = countersign::show::escape(name);
                    self.note(&format!(
                        "tool `{name}` has changed and is refused until you accept it: {}",
                        self.how(&name)
                    ));
                }
            }
        }
        self.catalog.put(tools, is_whole);
        Ok(())
    }

    fn how(&self, tool: &str) -> String {
        format!("countersign gateway accept {} {tool}", self.server)
    }

    /// How a tool stands. The pin is read anew at each call: another process may have accepted or found a change.
    pub(super) async fn standing(&self, request: &Request) -> Result<Standing, GateError> {
        self.listed(request).await;
        let name = &*request.name;
        let pin = pins::one(&**self.gate.store(), &self.server, name).await?;
        let stopped = |why: String, listed| {
            Ok(Standing::Stopped(Refusal::new(RefusalKind::Superseded).because(why).by("gateway"), listed))
        };
        match (self.catalog.get(name), pin) {
            (Some(Entry::Listed(listed)), Some(pin)) => {
                if listed.allowing.allows(&listed.snapshot, pin)? {
                    return Ok(Standing::Known(listed));
                }
                let how = self.how(name);
                stopped(
                    format!("the server changed what this tool is, and nobody accepted that yet (`{how}`)"),
                    Some(listed),
                )
            }
            (Some(Entry::Listed(listed)), None) => {
                stopped("the definition of this tool is not on record".into(), Some(listed))
            }
            (Some(Entry::Unreadable(why)), _) => {
                stopped(format!("the server's definition of this tool cannot be read: {why}"), None)
            }
            (None, Some(_)) => stopped("the server does not list this tool any more".into(), None),
            (None, None) => Ok(Standing::Unknown),
        }
    }

    /// A page of the listing, as the client is to read it.
    pub(super) async fn list_for_client(&self, id: &Id, answer: &str) -> Result<String, String> {
        let envelope = Envelope::read(answer).map_err(|error| error.to_string())?;
        let broken = || "it cannot be taken apart".to_owned();
        let raw = envelope.id.and_then(|raw| range_of(answer, raw.get())).ok_or_else(broken)?;
        let mut edits = vec![(raw, id.0.clone())];
        if envelope.error.is_none() {
            let page = Page::read(answer)?;
            let seen = self.see(read_page(&self.server, &self.identity, &page.tools), false).await;
            seen.map_err(|error| error.to_string())?;
            edits.extend(self.without_hidden(answer, &page));
        }
        edits.sort_by_key(|(range, _)| range.start);
        let edits: Vec<_> = edits.iter().map(|(range, with)| (range.clone(), with.as_str())).collect();
        splice(answer, &edits).ok_or_else(broken)
    }

    /// The list without hidden tools; none where it stays as it is.
    fn without_hidden(&self, answer: &str, page: &Page<'_>) -> Option<(std::ops::Range<usize>, String)> {
        let policy = self.gate.policy();
        let hidden = |tool: &&&RawValue| {
            let [name] = pick(tool.get(), ["name"]).unwrap_or_default();
            let name = name.and_then(|name| serde_json::from_str::<String>(name.get()).ok());
            name.is_none_or(|name| policy.hides(&ToolId::on(Arc::clone(&self.server), name)))
        };
        if !page.tools.iter().any(|tool| hidden(&tool)) {
            return None;
        }
        let left: Vec<&str> = page.tools.iter().filter(|tool| !hidden(tool)).map(|tool| tool.get()).collect();
        Some((range_of(answer, page.raw.get())?, format!("[{}]", left.join(","))))
    }
}

/// One page of a listing.
struct Page<'a> {
    raw: &'a RawValue,
    tools: Vec<&'a RawValue>,
    next: Option<&'a RawValue>,
}

impl<'a> Page<'a> {
    fn read(answer: &'a str) -> Result<Page<'a>, String> {
        let bad = |error: serde_json::Error| error.to_string();
        let envelope = Envelope::read(answer).map_err(bad)?;
        let result = envelope.result.ok_or("the server answers with an error")?;
        let [raw, next] = pick(result.get(), ["tools", "nextCursor"]).map_err(bad)?;
        let raw = raw.ok_or("there is no list of tools in it")?;
        let tools = serde_json::from_str(raw.get()).map_err(bad)?;
        Ok(Page { raw, tools, next: next.filter(|next| next.get() != "null") })
    }
}
