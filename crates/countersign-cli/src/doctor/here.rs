//! What lies on this machine: configuration, policy, data folder, key, browser.

use std::fs;
use std::path::Path;

use countersign::Policy;

use super::{Finding, Health, Level};
use crate::browser;
use crate::fault::Fault;
use crate::home::{Home, read_private};
use crate::key;
use crate::settings::Settings;

/// Where the configuration is, and whether it can be used.
pub(super) fn config(settings: &Result<Settings, Fault>) -> Finding {
    match settings {
        Err(fault) => Finding::fault("config", fault),
        Ok(Settings { file: None, .. }) => {
            Finding::ok("config", "none; the defaults hold, and every call is asked about")
        }
        Ok(Settings { file: Some(found), .. }) => {
            let files: Vec<String> = found.files().map(|file| file.display().to_string()).collect();
            Finding::ok("config", files.join(", tightened by "))
        }
    }
}

/// Whether somebody else may write the configuration, and so decide what is asked. Says nothing where nobody may.
#[cfg(unix)]
pub(super) fn writable(settings: &Settings) -> Option<Finding> {
    use std::os::unix::fs::MetadataExt as _;
    let us = rustix::process::geteuid().as_raw();
    let foreign = |path: &&Path| {
        let found = fs::metadata(path).ok();
        // In a folder with the sticky bit only its owner replaces a file.
        found.is_some_and(|found| match found.is_dir() && found.mode() & 0o1000 != 0 {
            true => false,
            false => found.mode() & 0o022 != 0 || ![0, us].contains(&found.uid()),
        })
    };
    let files = settings.file.as_ref()?.files();
    let places = files.flat_map(|file| [Some(file), file.parent().filter(|folder| !folder.as_os_str().is_empty())]);
    let open: Vec<String> = places.flatten().filter(foreign).map(|path| format!("`{}`", path.display())).collect();
    (!open.is_empty()).then(|| {
        Finding::warn(
            "policy place",
            format_args!("others may write {}, and with it what is asked about", open.join(", ")),
            "let only yourself write there: chmod go-w",
        )
    })
}

#[cfg(not(unix))]
pub(super) fn writable(_settings: &Settings) -> Option<Finding> {
    None
}

/// Whether rules say what they seem to say.
pub(super) fn policy(policy: &Policy) -> Finding {
    let lints = policy.lint();
    let says = format!("{} rules, {}", policy.rules(), policy.version());
    match lints.first() {
        None => Finding::ok("policy", says),
        Some(first) => Finding::warn(
            "policy",
            format_args!("{says}; {} warnings, such as: rule `{}`: {}", lints.len(), first.rule, first.message),
            "`countersign policy check FILE` shows all of them",
        ),
    }
}

/// Whether only their owner may touch the data folder and what is in it.
pub(super) fn folder(home: &Home) -> Vec<Finding> {
    let folder = match home.data_folder() {
        Ok(folder) => folder,
        Err(fault) => return vec![Finding::fault("data folder", &fault)],
    };
    let open = open_to_others(&folder);
    match open.is_empty() {
        true => vec![Finding::ok("data folder", format_args!("{}, only yours", folder.display()))],
        false => vec![Finding::warn(
            "data folder",
            format_args!("others may read {}", open.join(", ")),
            format_args!("chmod -R go= '{}'", folder.display()),
        )],
    }
}

/// The folder and the files in it that other users may read or write.
#[cfg(unix)]
fn open_to_others(folder: &Path) -> Vec<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let open = |path: &std::path::PathBuf| {
        fs::symlink_metadata(path).is_ok_and(|found| !found.is_symlink() && found.permissions().mode() & 0o077 != 0)
    };
    let all = std::iter::once(folder.to_owned()).chain(entries);
    all.filter(open).map(|path| format!("`{}`", path.display())).collect()
}

#[cfg(not(unix))]
fn open_to_others(_folder: &Path) -> Vec<String> {
    Vec::new()
}

/// Whether the key that signs the record can be used.
pub(super) fn key(home: &Home) -> Finding {
    let path = match home.data_folder() {
        Ok(folder) => folder.join(key::NAME),
        Err(fault) => return Finding::fault("signing key", &fault),
    };
    match read_private(&path) {
        Ok(None) => Finding::ok("signing key", "none yet; the first command that records something makes one"),
        Err(fault) => Finding::fault("signing key", &fault),
        Ok(Some(_)) => match key::load(path.parent().unwrap_or(Path::new("."))) {
            Ok(signer) => Finding::ok("signing key", format_args!("only yours, public key {}", signer.public_key())),
            Err(fault) => Finding::fault("signing key", &fault),
        },
    }
}

/// Whether `serve` and `demo` can open a browser.
pub(super) fn browser() -> Finding {
    let next = "open the link that `countersign serve` prints yourself, or decide with `countersign inbox`";
    match (browser::has_screen(), browser::opener()) {
        (true, Some(path)) => Finding::ok("browser", path.display()),
        (true, None) => Finding::warn("browser", "there is no program that opens links", next),
        (false, _) => Finding::new("browser", Health::Ok, "no screen here, so none is opened").next(next),
    }
}

/// How far agents are kept from deciding for themselves.
pub(super) fn isolation(home: &Home, minimum: Option<Level>) -> Finding {
    let readable = home.data_folder().is_ok_and(|folder| fs::read_dir(folder).is_ok());
    let (level, says) = match readable {
        true => (
            Level::L1,
            "agents that run as this user can read the key and the store; this stops mistakes, not hostile code",
        ),
        false => (Level::L2, "this user cannot read the key and the store"),
    };
    let health = match minimum {
        Some(minimum) if level < minimum => Health::Fail,
        Some(_) | None => Health::Ok,
    };
    let finding = Finding::new("isolation", health, format_args!("level {level}: {says}"));
    match level {
        Level::L1 => finding
            .next("run agents as another user or in a container, and let them reach `countersign serve` only (L2)"),
        Level::L2 => finding,
    }
}
