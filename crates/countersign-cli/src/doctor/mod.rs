//! Looks whether everything is in order, and says what to do where it is not. Changes nothing that lasts.

mod defaults;
mod here;
mod server;
mod store;

use std::fmt;

use serde::Serialize;

use crate::fault::Fault;
use crate::home::Home;
use crate::settings::{Reach, Settings};

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Health {
    /// In order.
    Ok,
    /// Works, but somebody should know.
    Warn,
    /// Does not work, or is not safe.
    Fail,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Health::Ok => "ok",
            Health::Warn => "warn",
            Health::Fail => "fail",
        })
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    /// What was looked at.
    pub(crate) check: &'static str,
    /// How it is.
    pub(crate) health: Health,
    /// What was found. Safe to print.
    pub(crate) says: String,
    /// What to do. Safe to print.
    pub(crate) next: Option<String>,
}

impl Finding {
    fn new(check: &'static str, health: Health, says: impl fmt::Display) -> Finding {
        Finding { check, health, says: crate::out::safe_lines(&says.to_string()), next: None }
    }

    fn ok(check: &'static str, says: impl fmt::Display) -> Finding {
        Finding::new(check, Health::Ok, says)
    }

    fn warn(check: &'static str, says: impl fmt::Display, next: impl fmt::Display) -> Finding {
        Finding::new(check, Health::Warn, says).next(next)
    }

    fn fail(check: &'static str, says: impl fmt::Display, next: impl fmt::Display) -> Finding {
        Finding::new(check, Health::Fail, says).next(next)
    }

    /// What a command would fail with.
    fn fault(check: &'static str, fault: &Fault) -> Finding {
        let whole = fault.whole();
        match whole.rsplit_once("\n next: ") {
            Some((says, next)) => Finding::fail(check, says, next),
            None => Finding::new(check, Health::Fail, whole),
        }
    }

    fn next(mut self, next: impl fmt::Display) -> Finding {
        self.next = Some(crate::out::safe_lines(&next.to_string()));
        self
    }
}

/// How far agents are kept from deciding for themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Level {
    /// Agents run as the user who has the key and the store.
    #[value(name = "L1")]
    L1,
    /// Agents run as another user, or in a container.
    #[value(name = "L2")]
    L2,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::L1 => "L1",
            Level::L2 => "L2",
        })
    }
}

/// Looks at everything. Less isolation than the least that is wanted is a failure.
pub(crate) async fn look(reach: &Reach, minimum: Option<Level>) -> Result<Vec<Finding>, Fault> {
    let home = Home::from_env();
    if let Some(url) = &reach.url {
        return server::named(url, reach).await;
    }
    let settings = Settings::load(&reach.place, &home);
    let mut findings = vec![here::config(&settings)];
    if let Ok(settings) = &settings {
        findings.push(here::policy(&settings.config.policy));
        findings.push(defaults::expiry(&settings.config));
        findings.push(defaults::loosened(&settings.config));
        findings.extend(here::writable(settings));
    }
    findings.extend(here::folder(&home));
    findings.push(here::key(&home));
    // Without a configuration that can be read nobody knows which store it names.
    if let Ok(settings) = &settings {
        findings.extend(store::look(&settings.store(&reach.place, &home)?, settings).await);
        findings.push(server::address(settings).await);
    }
    findings.push(here::browser());
    findings.push(here::isolation(&home, minimum));
    Ok(findings)
}
