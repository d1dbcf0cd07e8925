//! Licences and banned crates, as `deny.toml` has them. cargo-deny reads the same file where it is installed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::spdx;
use crate::metadata::{Metadata, Package};

/// The parts of `deny.toml` that need no network to check.
#[derive(Debug, Deserialize)]
pub(crate) struct Deny {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    deny: Vec<Banned>,
}

#[derive(Debug, Deserialize)]
struct Banned {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

impl Deny {
    pub(crate) fn read(path: &Path) -> Result<Deny> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("cannot understand {}", path.display()))
    }
}

/// Packages that are banned, have no allowed licence, or come from elsewhere than a registry.
pub(crate) fn complaints(metadata: &Metadata, deny: &Deny) -> Vec<String> {
    metadata.packages.iter().flat_map(|package| of_package(package, deny)).collect()
}

fn of_package(package: &Package, deny: &Deny) -> Vec<String> {
    let name = format!("{} {}", package.name, package.version);
    let banned = deny.bans.deny.iter().find(|banned| banned.name == package.name);
    let allowed = |licence: &str| deny.licenses.allow.iter().any(|allowed| allowed == licence);
    let licence = package.license.as_deref().unwrap_or_default();
    let elsewhere = package.source.as_deref().filter(|source| !source.starts_with("registry+"));
    [
        banned.map(|banned| format!("{name}: banned, {}", banned.reason)),
        (!spdx::is_satisfied(licence, &allowed)).then(|| format!("{name}: licence `{licence}` is not allowed")),
        elsewhere.map(|source| format!("{name}: comes from `{source}`, not from a registry")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, license: Option<&str>, source: &str, expected: &[&str]) {
        let deny = Deny {
            licenses: Licenses { allow: vec!["MIT".to_owned()] },
            bans: Bans { deny: vec![Banned { name: "openssl".to_owned(), reason: "ring everywhere".to_owned() }] },
        };
        let package = Package {
            id: String::new(),
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: license.map(str::to_owned),
            source: Some(source.to_owned()),
            dependencies: Vec::new(),
        };
        assert_eq!(of_package(&package, &deny), expected);
    }

    #[test]
    fn a_crate_needs_an_allowed_licence_a_registry_and_no_ban() {
        let registry = "registry+https://example.org/index";
        check("serde", Some("MIT OR GPL-3.0"), registry, &[]);
        check("serde", Some("GPL-3.0"), registry, &["serde 1.0.0: licence `GPL-3.0` is not allowed"]);
        check("serde", None, registry, &["serde 1.0.0: licence `` is not allowed"]);
        check("openssl", Some("MIT"), registry, &["openssl 1.0.0: banned, ring everywhere"]);
        let elsewhere = ["serde 1.0.0: comes from `git+https://example.org/serde`, not from a registry"];
        check("serde", Some("MIT"), "git+https://example.org/serde", &elsewhere);
    }
}
