//! Follows a configuration file: a good change is put in force, a broken one leaves the last good policy.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use countersign::{Gate, Policy};
use notify_debouncer_full::notify::RecursiveMode;
use notify_debouncer_full::{DebounceEventResult, DebouncedEvent, Debouncer, RecommendedCache, new_debouncer};
use tokio::sync::mpsc;

use crate::fault::Fault;
use crate::home::Home;
use crate::out;
use crate::settings::Settings;

/// How long a folder must be quiet before the file is read: editors write in several steps.
const QUIET: Duration = Duration::from_millis(150);

/// Follows a file for as long as it lives.
pub(crate) struct Watcher {
    _debouncer: Debouncer<notify_debouncer_full::notify::RecommendedWatcher, RecommendedCache>,
    task: tokio::task::JoinHandle<()>,
}

impl Watcher {
    /// Watches the files' folders, not the files: editors and orchestrators replace files by renaming others over them.
    ///
    /// `load` reads the policy anew, whatever happened there; `tell` says what came of it.
    pub(crate) fn start<'f>(
        files: impl IntoIterator<Item = &'f Path>,
        gate: Gate,
        load: impl Fn() -> Result<Policy, Fault> + Send + Sync + 'static,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Watcher, Fault> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let files: Vec<&Path> = files.into_iter().collect();
        let names: Vec<_> = files.iter().filter_map(|file| file.file_name()).map(OsStr::to_owned).collect();
        let told = move |result: DebounceEventResult| {
            // Errors of the watch, too, are a reason to look.
            if result.map_or(true, |events| events.iter().any(|event| matters(event, &names))) {
                let _ = sender.send(());
            }
        };
        let failed = |error: notify::Error| Fault::failed(format!("cannot watch the configuration: {error}"));
        let mut debouncer = new_debouncer(QUIET, None, told).map_err(failed)?;
        for file in files {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            debouncer.watch(folder, RecursiveMode::NonRecursive).map_err(failed)?;
        }
        Ok(Watcher { _debouncer: debouncer, task: tokio::spawn(follow(receiver, gate, load, tell)) })
    }

    /// Follows the file that the settings came from; none where there is none, or where the store has a policy of its own.
    pub(crate) async fn of(
        settings: &Settings,
        home: &Home,
        gate: &Gate,
        tell: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Option<Watcher>, Fault> {
        let Some(found) = settings.file.clone() else { return Ok(None) };
        if gate.store().policy().await?.is_some() {
            return Ok(None);
        }
        let (home, files) = (home.clone(), found.clone());
        let load = move || found.read(&home).map(|config| config.policy);
        Watcher::start(files.files(), gate.clone(), load, tell).map(Some)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Whether an event may have changed a file. Reading it, as we do, is an event as well.
fn matters(event: &DebouncedEvent, files: &[OsString]) -> bool {
    // Orchestrators mount files as links into a folder of theirs, `..data`, and swap that.
    let named = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| files.iter().any(|file| name == file) || name.as_encoded_bytes().starts_with(b".."))
    };
    !event.kind.is_access() && event.paths.iter().any(named)
}

async fn follow(
    mut changes: mpsc::UnboundedReceiver<()>,
    gate: Gate,
    load: impl Fn() -> Result<Policy, Fault> + Send + Sync,
    tell: impl Fn(&str) + Send + Sync,
) {
    let warn = |words: String| tell(&format!("warning: {words}"));
    let mut last_problem: Option<String> = None;
    while changes.recv().await.is_some() {
        while changes.try_recv().is_ok() {}
        let recorded = match load() {
            Ok(policy) if policy.version() == gate.policy().version() => {
                if last_problem.take().is_some() {
                    tell("policy: the file is good again, and says what is in force");
                }
                continue;
            }
            Ok(policy) => {
                last_problem = None;
                let words = format!("policy: {} is in force now, with {} rules", policy.version(), policy.rules());
                let recorded = gate.set_policy(policy).await;
                if recorded.is_ok() {
                    tell(&words);
                }
                recorded
            }
            Err(fault) => {
                let problem = fault.whole();
                if last_problem.as_ref() == Some(&problem) {
                    continue;
                }
                warn(format!("the last good policy stays in force:\n{problem}"));
                let recorded = gate.reject_policy(&problem).await;
                last_problem = Some(problem);
                recorded
            }
        };
        if let Err(error) = recorded {
            let why = out::safe_lines(&error.to_string());
            warn(format!("the change could not be recorded, and the last policy stays: {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use countersign::event::{Cursor, Event, EventName};
    use countersign::store::EventFilter;

    use super::*;
    use crate::settings::read_policy;

    const ASK: &str = "policy:\n  otherwise: ask\n";
    const DENY: &str = "policy:\n  otherwise: deny\n";

    /// Writes a file beside another and renames it over it, as editors do.
    fn replace(path: &Path, text: &str) {
        let beside = path.with_extension("new");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, path).unwrap();
    }

    async fn next(gate: &Gate, after: &mut Cursor) -> Event {
        let events = gate.next_events(*after, EventFilter { limit: Some(1), ..EventFilter::default() });
        let events = tokio::time::timeout(Duration::from_secs(60), events).await.expect("an event comes").unwrap();
        let event = events.into_iter().next().unwrap();
        *after = event.cursor;
        event
    }

    /// The policy an event says is in force.
    fn loaded(event: &Event) -> String {
        assert_eq!(event.name, EventName::PolicyLoaded, "{}", event.body);
        event.value()["policy"].as_str().unwrap().to_owned()
    }

    /// B50: a good change is put in force, a broken one is recorded and leaves the last good policy.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_renamed_file_is_followed_and_a_broken_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("countersign.yml");
        fs::write(&path, ASK).unwrap();
        let gate = Gate::builder().policy(read_policy(&path).unwrap()).decided_elsewhere().build().unwrap();
        let first = gate.policy().version().clone();
        let read = path.clone();
        let _watcher = Watcher::start([&*path], gate.clone(), move || read_policy(&read), |_| {}).unwrap();
        let mut cursor = Cursor::default();

        // A policy is on the record before it counts; what was in force then shows at the next event.
        replace(&path, DENY);
        let second = loaded(&next(&gate, &mut cursor).await);
        assert_ne!(*first, *second);

        replace(&path, "policy:\n  otherwise: perhaps\n");
        let rejected = next(&gate, &mut cursor).await;
        assert_eq!(rejected.name, EventName::PolicyRejected);
        assert!(rejected.body.contains("countersign.yml:2:14"), "{}", rejected.body);
        assert_eq!(**gate.policy().version(), *second, "the last good policy stays");

        fs::remove_file(&path).unwrap();
        assert_eq!(next(&gate, &mut cursor).await.name, EventName::PolicyRejected);
        assert_eq!(**gate.policy().version(), *second, "no file is no policy either");

        replace(&path, ASK);
        assert_eq!(loaded(&next(&gate, &mut cursor).await), *first);
    }
}
