//! A store opened to be worked on from here: holds decided, grants revoked, doubts settled.

use std::path::Path;
use std::sync::Arc;

use countersign::gate::GateBuilder;
use countersign::redact::Redactor;
use countersign::signer::Signer;
use countersign::{Gate, Policy, Store};

use crate::fault::Fault;
use crate::home::Home;
use crate::key;
use crate::out;
use crate::settings::{Place, Settings};

/// How much must be in order before a command may work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Care {
    /// Everything: what loosens waits until configuration and key are in order.
    Full,
    /// The store alone: what lists or tightens works whatever else is broken, if the store is named.
    Rescue,
}

/// What becomes of a store that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absent {
    /// It is made.
    Made,
    /// It is made, unless --store names it: then it is the name that is wrong.
    MadeUnlessNamed,
    /// It is refused.
    Refused,
}

impl Absent {
    /// Refuses an address whose store would only seem to be one with nothing in it.
    fn check(self, address: &str, place: &Place) -> Result<(), Fault> {
        let may_be_made = match self {
            Absent::Made => true,
            Absent::MadeUnlessNamed => place.store.is_none(),
            Absent::Refused => false,
        };
        if address == "memory:" {
            return Err(Fault::usage("a store in memory is gone when the command ends")
                .next("use a store on disk, as in `--store sqlite:PATH`; a server is asked with `--url URL`"));
        }
        if may_be_made { Ok(()) } else { must_be_there(address) }
    }
}

/// A store, opened, and the gate over it.
pub(crate) struct Desk {
    pub(crate) gate: Gate,
    /// The key that signs the record; none where it is broken and not needed.
    pub(crate) signer: Option<Arc<Signer>>,
}

impl Desk {
    /// Opens the store that the options or the configuration name, and makes it where it is not there: for commands
    /// that prepare a store for those who will work on it.
    pub(crate) async fn open(place: &Place, care: Care) -> Result<Desk, Fault> {
        Desk::open_with(Absent::Made, place, care).await
    }

    /// Opens that store to tell what is in it. One that --store names must be there; the configuration's or the user's
    /// own may only not have been used yet, and is made.
    pub(crate) async fn open_to_look(place: &Place, care: Care) -> Result<Desk, Fault> {
        Desk::open_with(Absent::MadeUnlessNamed, place, care).await
    }

    /// Opens that store to act on what is in it. It must be there: a halt of a store that no agent uses halts nobody.
    pub(crate) async fn open_to_act(place: &Place, care: Care) -> Result<Desk, Fault> {
        Desk::open_with(Absent::Refused, place, care).await
    }

    async fn open_with(absent: Absent, place: &Place, care: Care) -> Result<Desk, Fault> {
        let home = Home::from_env();
        let settings = match (Settings::load(place, &home), care, &place.store) {
            (Ok(settings), ..) => settings,
            (Err(fault), Care::Rescue, Some(_)) => {
                out::warn(format_args!("the configuration is not used: {fault}"));
                Settings { config: Default::default(), file: None }
            }
            (Err(fault), ..) => return Err(fault),
        };
        let address = settings.store(place, &home)?;
        // Before anything else: where the store is refused, no key is left behind either.
        absent.check(&address, place)?;
        let signer = match (home.data_folder().and_then(|folder| key::load(&folder)), care) {
            (Ok(signer), _) => Some(signer),
            (Err(fault), Care::Rescue) => {
                out::warn(format_args!("the record will not be signed now: {fault}"));
                None
            }
            (Err(fault), Care::Full) => return Err(fault),
        };
        let store = countersign_store::connect(&address).await?;
        Desk::over(store, &settings, signer).await
    }

    async fn over(store: Arc<dyn Store>, settings: &Settings, signer: Option<Arc<Signer>>) -> Result<Desk, Fault> {
        let mut builder = begin_gate(store, settings).await?.decided_elsewhere().without_sweeper();
        if let Some(signer) = &signer {
            builder = builder.signer(Arc::clone(signer));
        }
        let desk = Desk { gate: builder.build()?, signer };
        // What crashed or expired while nobody looked is shown as what it is.
        if let Err(error) = desk.gate.sweep().await {
            out::warn(format_args!("what is overdue could not be settled: {}", out::safe_lines(&error.to_string())));
        }
        Ok(desk)
    }

    /// The store.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.gate.store()
    }

    /// Signs what was just recorded. The act itself stands either way.
    pub(crate) async fn sign(&self) {
        if let Err(error) = self.gate.checkpoint().await {
            out::warn(format_args!("the record could not be signed: {}", out::safe_lines(&error.to_string())));
        }
    }
}

/// Refuses a SQLite store that is not there: opening it would make it.
pub(crate) fn must_be_there(address: &str) -> Result<(), Fault> {
    match address.strip_prefix("sqlite:") {
        // What cannot even be looked for is named by whoever opens it.
        Some(path) if matches!(Path::new(path).try_exists(), Ok(false)) => {
            Err(Fault::unreachable(format!("there is no store `{path}`"))
                .next("check --store; `countersign serve` or `countersign run` makes one"))
        }
        Some(_) | None => Ok(()),
    }
}

/// The policy that a store holds and all its nodes follow, if it holds one, with what the file tightens beside it.
pub(crate) async fn store_policy(store: &Arc<dyn Store>, settings: &Settings) -> Result<Option<Policy>, Fault> {
    let Some((_, source)) = store.policy().await? else { return Ok(None) };
    let policy = Policy::from_yaml(&source)
        .map_err(|errors| Fault::failed(format!("the store's policy cannot be read: {errors}")))?;
    Ok(Some(policy.keeping(&settings.config.policy)))
}

/// Begins a gate over a store: the store's own policy if it has one, else the file's, and the file's bounds and masks.
/// What the working folder's file tightens, it tightens beside either.
pub(crate) async fn begin_gate(store: Arc<dyn Store>, settings: &Settings) -> Result<GateBuilder, Fault> {
    let policy = store_policy(&store, settings).await?.unwrap_or_else(|| settings.config.policy.clone());
    let redact = &settings.config.redact;
    let redactor = Redactor::new(&redact.keys, &redact.values).map_err(Fault::failed)?.and_standard();
    Ok(Gate::builder().policy(policy).store(store).limits(settings.config.limits.clone()).redactor(redactor))
}

#[cfg(test)]
mod tests {
    use countersign::config::Config;
    use countersign::memory::MemoryStore;
    use countersign::store::Op;
    use countersign::tool::tool;
    use countersign::{CallState, Definition, Json, Proposal};

    use super::*;

    /// A folder's file tightens whatever policy is in force, also the one that all nodes of a store follow.
    #[tokio::test]
    async fn a_folders_file_tightens_the_stores_policy_too() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let lax = || Policy::from_yaml("otherwise: allow").unwrap();
        let version = Arc::clone(lax().version());
        store.run(Op::SetPolicy { version, source: "otherwise: allow".into(), by: "olga".into() }).await.unwrap();
        let folder = Policy::from_yaml("otherwise: allow\nrules: [{ id: no-drops, deny: drop }]").unwrap();
        let mut config = Config::default();
        config.policy = lax().tightened_by("folder", folder);
        let builder = begin_gate(store, &Settings { config, file: None }).await.ok().unwrap();
        let gate = builder.decided_elsewhere().without_sweeper().build().unwrap();
        for (name, state) in [("drop", CallState::Denied), ("read", CallState::Allowed)] {
            let tool = tool(Definition::new(name, ""), |_| async { Ok(Json::empty()) });
            assert_eq!(gate.submit(&tool, Proposal::new(name, "{}")).await.unwrap().state, state, "{name}");
        }
    }
}
