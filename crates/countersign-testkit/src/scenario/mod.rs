//! Scenarios: stories about calls, written as data and replayed on every store, through every door.
//!
//! ```toml
//! policy = 'rules: [{ id: two, ask: deploy, approvals: 2 }]'
//! steps  = ["submit c1 deploy", "ann approves c1", "ann approves c1", "clock +11m"]
//! events = ["call.submitted c1", "hold.opened c1", "hold.decided c1 ann approve", "replayed c1", "hold.expired c1", "call.refused c1 expired"]
//! ```
//!
//! `events` is the whole log, in order, with a remark where a step wrote nothing: `replayed CALL` where it had happened
//! before, `rejected CALL WHY` where it was refused, `not claimed CALL STATE` where there was nothing to run.

mod door;
mod stage;
mod step;
mod tell;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use countersign::Limits;
use countersign::testing::TestStore;
use serde::Deserialize;

pub use door::{Direct, Door, Rejected};
use stage::Stage;

/// One story.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The policy, in YAML; asks about everything if left out.
    #[serde(default = "ask_all")]
    pub policy: String,
    /// Who belongs to which group.
    #[serde(default)]
    pub groups: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// Bounds.
    #[serde(default)]
    pub limits: Limits,
    /// What a crash of a tool means; `at_most_once` if not named here.
    #[serde(default)]
    pub repeat: BTreeMap<String, countersign::call::Repeat>,
    /// Whether anybody can be asked.
    #[serde(default)]
    pub reach: Reach,
    /// What happens.
    pub steps: Vec<String>,
    /// What must come of it: the whole log.
    pub events: Vec<String>,
    /// Where calls must stand in the end.
    #[serde(default)]
    pub states: BTreeMap<String, String>,
}

/// Whether anybody can be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// The steps decide.
    #[default]
    Elsewhere,
    /// Nobody: `unattended` decides.
    Nobody,
}

fn ask_all() -> String {
    "otherwise: ask".to_owned()
}

impl Scenario {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// When it is no scenario.
    pub fn read(path: &Path) -> Result<Scenario> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Replays the story on a fresh store and compares the whole log.
    ///
    /// # Errors
    ///
    /// When a step cannot be read or done, or when what came of it is not what the file says.
    pub async fn replay(&self, store: &dyn TestStore) -> Result<()> {
        self.replay_through(store, &mut Direct::default()).await
    }

    /// The same, with everything that people and agents do going through a door.
    ///
    /// # Errors
    ///
    /// As with [`Scenario::replay`].
    pub async fn replay_through(&self, store: &dyn TestStore, door: &mut dyn Door) -> Result<()> {
        let mut stage = Stage::new(self, store, door).await?;
        for step in &self.steps {
            stage.perform(step).await.with_context(|| format!("step `{step}`"))?;
        }
        let told = stage.told();
        ensure!(
            told == self.events,
            "the log differs\n  expected:\n    {}\n  found:\n    {}",
            self.events.join("\n    "),
            told.join("\n    ")
        );
        for (alias, expected) in &self.states {
            let found = stage.state(alias).await?;
            ensure!(found.as_str() == expected, "{alias} is {found}, and not {expected}");
        }
        Ok(())
    }
}

/// The scenario files of a folder, sorted.
///
/// # Errors
///
/// When the folder cannot be read.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    Ok(files)
}
