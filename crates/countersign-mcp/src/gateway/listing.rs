//! Listing the server's tools: for the gateway itself, and on the way to the client.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use countersign::{GateError, Refusal, RefusalKind};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::catalog::{Entry, Listed, once, read_page};
use super::message::{Envelope, Id, pick, range_of, splice};
use super::pins::Seen;
use super::request::{Era, Request};
use super::{Core, pins};
use crate::limits;

/// How often definitions were wanted, and how many of these wishes are fulfilled.
#[derive(Debug, Default)]
struct Wishes {
    wanted: u64,
    done: u64,
    /// The last wish that the server fulfilled.
    good: u64,
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
    /// Asks for a listing from now on. Returns how often there was one asked for.
    pub(super) fn want(&self) -> u64 {
        let mut wanted = 0;
        self.wishes.send_modify(|wishes| {
            wishes.wanted += 1;
            wanted = wishes.wanted;
        });
        wanted
    }

    fn is_new(&self) -> bool {
        self.wishes.borrow().wanted == 0
    }

    fn dress(&self, request: &Request) {
        if request.era == Era::Modern {
            *self.meta.lock().unwrap_or_else(PoisonError::into_inner) = request.meta().map(of_the_protocol);
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
pub(super) fn of_the_protocol(meta: &str) -> String {
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
            let listed = listed.unwrap_or_else(|_| Err("it takes too long".to_owned()));
            if let Err(why) = &listed {
                self.note(&format!("the tools of the server could not be listed: {why}"));
            }
            self.listing.wishes.send_modify(|wishes| {
                wishes.done = wanted;
                wishes.good = if listed.is_ok() { wanted } else { wishes.good };
            });
        }
    }

    /// Waits until definitions are as new as this call.
    async fn listed(&self, request: &Request) {
        if self.listing.is_new() {
            self.listing.dress(request);
            self.listing.want();
        }
        let mut wishes = self.listing.wishes.subscribe();
        let wanted = wishes.borrow().wanted;
        let _ = tokio::time::timeout(limits::OWN_LISTING_WITHIN, wishes.wait_for(|wishes| wishes.done >= wanted)).await;
    }

    /// Has the server say now what its tools are: it may have changed one without a word. False where it does not say so
    /// in time.
    pub(super) async fn listed_anew(&self, request: &Request) -> bool {
        if self.listing.is_new() {
            self.listing.dress(request);
        }
        let wanted = self.listing.want();
        let mut wishes = self.listing.wishes.subscribe();
        let done = tokio::time::timeout(limits::LIST_AGAIN_WITHIN, wishes.wait_for(|wishes| wishes.done >= wanted));
        matches!(done.await, Ok(Ok(wishes)) if wishes.good >= wanted)
    }

    async fn list_all(&self) -> Result<(), String> {
        let mut tools = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..limits::PAGES {
            let mut asked = self.link.ask().ok_or("it is gone")?;
            let params = self.listing.params(cursor.as_deref());
            let line = format!(r#"{{"jsonrpc":"2.0","id":{},"method":"tools/list","params":{params}}}"#, asked.id.0);
            asked.send(line).await.map_err(|error| error.to_string())?;
            let answer = asked.answer().await.map_err(|missing| missing.to_string())?;
            let page = Page::read(&answer)?;
            tools.extend(read_page(&self.server, &self.identity, &page.tools));
            cursor = page.next.map(|next| next.get().to_owned());
            if cursor.is_none() || tools.len() > limits::TOOLS {
                break;
            }
        }
        self.see(once(tools), true).await.map(drop).map_err(|error| error.to_string())
    }

    /// Lets calls find definitions, and compares them with their pins. Returns which tools may be used.
    async fn see(&self, tools: Vec<(Arc<str>, Entry)>, is_whole: bool) -> Result<HashSet<Arc<str>>, GateError> {
        // One at a time, so that what is new is new once.
        let _alone = self.seeing.lock().await;
        let known = pins::all(&**self.gate.store(), &self.server).await?;
        // SECURITY: first. A call compares what is listed with its pin by itself, whatever comes of the rest.
        self.catalog.put(tools.clone(), is_whole);
        let listed = tools.iter().filter_map(|(name, entry)| match entry {
            Entry::Listed(listed) => Some((name, &**listed)),
            Entry::Unreadable(_) => None,
        });
        let (old, new): (Vec<_>, Vec<_>) = listed.partition(|(name, _)| known.contains_key(&***name));
        let room = limits::TOOLS.saturating_sub(known.len());
        if new.len() > room {
            self.note("the server has named so many tools that further ones are refused");
        }
        // What changed comes first: nothing that is new may keep it waiting.
        let mut seen = self.compare(&old, &known).await?;
        let changed = seen.values().filter_map(|seen| match seen {
            Seen::Changed(digest) => Some(*digest),
            Seen::Pinned | Seen::Quarantined => None,
        });
        // Each time: a process before this one may have ended between finding a change and voiding anything.
        let void: HashSet<_> = known.values().filter_map(|(pin, _)| pin.void()).chain(changed).collect();
        if !void.is_empty() {
            self.gate.supersede_all(&void).await?;
        }
        seen.extend(self.compare(new.get(..room).unwrap_or(&new), &known).await?);
        let is_usable = |name: &Arc<str>, seen| seen == Seen::Pinned && self.catalog.look_alike(name).is_none();
        Ok(seen.into_iter().filter_map(|(name, seen)| is_usable(&name, seen).then_some(name)).collect())
    }

    /// Compares definitions with their pins, many at a time.
    async fn compare(
        &self,
        tools: &[(&Arc<str>, &Listed)],
        known: &HashMap<String, (pins::Pin, u64)>,
    ) -> Result<HashMap<Arc<str>, Seen>, GateError> {
        let compared = tools.iter().map(|(name, listed)| self.compare_one(name, listed, known.get(&***name)).boxed());
        let compared: Vec<BoxFuture<'_, _>> = compared.collect();
        stream::iter(compared).buffer_unordered(limits::PINS_AT_ONCE).try_collect().await
    }

    async fn compare_one(
        &self,
        name: &Arc<str>,
        listed: &Listed,
        known: Option<&(pins::Pin, u64)>,
    ) -> Result<(Arc<str>, Seen), GateError> {
        let seen = pins::see(&self.gate, &self.server, name, &listed.snapshot, known).await?;
        if let Seen::Changed(_) = seen {
            let shown = countersign::show::escape(name);
            let how = self.how(&shown);
            self.note(&format!("tool `{shown}` has changed and is refused until you accept it: {how}"));
        }
        Ok((Arc::clone(name), seen))
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
        if let Some(other) = self.catalog.look_alike(name) {
            // SECURITY: of two tools that look the same, nobody can say which would run.
            let other = countersign::show::escape(&other);
            return stopped(format!("the server has another tool that looks the same, `{other}`"), None);
        }
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
            // SECURITY: whether it was listed is not known, so neither is what it was.
            (None, None) if self.catalog.is_full() => {
                stopped("the server has named so many tools that this one is not on record".into(), None)
            }
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
            let usable = self.see(read_page(&self.server, &self.identity, &page.tools), false).await;
            let usable = usable.map_err(|error| error.to_string())?;
            let shown = self.without_hidden(usable).await.map_err(|error| error.to_string())?;
            edits.extend(without_others(answer, &page, &shown));
        }
        edits.sort_by_key(|(range, _)| range.start);
        let edits: Vec<_> = edits.iter().map(|(range, with)| (range.clone(), with.as_str())).collect();
        splice(answer, &edits).ok_or_else(broken)
    }

    /// Those tools that no rule hides.
    async fn without_hidden(&self, mut usable: HashSet<Arc<str>>) -> Result<HashSet<Arc<str>>, GateError> {
        let names: Vec<Arc<str>> = usable.iter().cloned().collect();
        for name in self.gate.hidden(Some(&self.server), &names).await? {
            usable.remove(&name);
        }
        Ok(usable)
    }
}

/// The list without hidden tools, and without those that would be refused whatever the rules say: no model is to read what
/// nobody has accepted. None where it stays as it is.
fn without_others(
    answer: &str,
    page: &Page<'_>,
    shown: &HashSet<Arc<str>>,
) -> Option<(std::ops::Range<usize>, String)> {
    let is_shown = |tool: &&&RawValue| {
        let [name] = pick(tool.get(), ["name"]).unwrap_or_default();
        let name = name.and_then(|name| serde_json::from_str::<String>(name.get()).ok());
        name.is_some_and(|name| shown.contains(&*name))
    };
    if page.tools.iter().all(|tool| is_shown(&tool)) {
        return None;
    }
    let left: Vec<&str> = page.tools.iter().filter(is_shown).map(|tool| tool.get()).collect();
    Some((range_of(answer, page.raw.get())?, format!("[{}]", left.join(","))))
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
