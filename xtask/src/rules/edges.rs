//! Which of our crates may depend on which. A crate that is not in the table is a complaint, so the table stays whole.

use crate::metadata::{Kind, Metadata, Package};

const CORE: &str = "countersign";
const TESTKIT: &str = "countersign-testkit";
const STORE: &str = "countersign-store";

/// Every crate of the workspace, planned ones included, and those it may use.
const ALLOWED: &[(&str, &[&str])] = &[
    (CORE, &[]),
    ("countersign-store", &[CORE]),
    ("countersign-api", &[CORE]),
    ("countersign-agent", &[CORE]),
    ("countersign-mcp", &[CORE]),
    ("countersign-ui", &[]),
    ("countersign-server", &[CORE, "countersign-api", "countersign-agent", "countersign-mcp", "countersign-ui"]),
    ("countersign-cli", SHIPPED),
    (TESTKIT, SHIPPED),
    ("countersign-benches", WITH_TESTKIT),
    ("countersign-examples", SHIPPED),
    ("xtask", &[]),
];

const SHIPPED: &[&str] = &[
    CORE,
    "countersign-store",
    "countersign-api",
    "countersign-agent",
    "countersign-mcp",
    "countersign-server",
    "countersign-ui",
];

/// What never ships may use the testkit outright; everything else only in its tests.
const WITH_TESTKIT: &[&str] = &[
    CORE,
    "countersign-store",
    "countersign-api",
    "countersign-agent",
    "countersign-mcp",
    "countersign-server",
    "countersign-ui",
    TESTKIT,
];

/// Edges between our crates that the table does not allow.
pub(crate) fn complaints(metadata: &Metadata) -> Vec<String> {
    let names: Vec<&str> = metadata.ours().map(|package| package.name.as_str()).collect();
    metadata.ours().flat_map(|package| of_package(package, &names)).collect()
}

fn of_package(package: &Package, names: &[&str]) -> Vec<String> {
    let from = package.name.as_str();
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == from) else {
        return vec![format!("{from}: not in the table of crates (xtask/src/rules/edges.rs)")];
    };
    let ours = package.dependencies.iter().filter(|dependency| names.contains(&dependency.name.as_str()));
    ours.filter(|dependency| !is_allowed(from, &dependency.name, dependency.kind, allowed))
        .map(|dependency| match dependency.kind {
            Kind::Normal | Kind::Build => format!("{from} -> {}: not an allowed edge", dependency.name),
            Kind::Dev => format!("{from} -> {} (dev): not an allowed edge", dependency.name),
        })
        .collect()
}

fn is_allowed(from: &str, to: &str, kind: Kind, allowed: &[&str]) -> bool {
    match kind {
        Kind::Normal | Kind::Build => allowed.contains(&to),
        // The testkit uses the core: in the core's own tests that would make two cores, whose types do not meet.
        // A crate's tests may use the crate itself, with features that only tests need.
        // Whoever receives a store is tested on real ones.
        Kind::Dev => {
            let may = !matches!(from, CORE | TESTKIT | "xtask");
            allowed.contains(&to) || from == to || (matches!(to, TESTKIT | STORE) && may)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;

    #[track_caller]
    fn check(from: &str, to: &str, kind: Kind, expected: bool) {
        let package = |name: &str, dependencies| Package {
            id: name.to_owned(),
            name: name.to_owned(),
            version: String::new(),
            license: None,
            source: None,
            dependencies,
        };
        let dependency = Dependency { name: to.to_owned(), kind };
        let metadata = Metadata {
            packages: vec![package(from, vec![dependency]), package(to, Vec::new())],
            workspace_members: vec![from.to_owned(), to.to_owned()],
            target_directory: "target".into(),
        };
        assert_eq!(complaints(&metadata).is_empty(), expected, "{from} -> {to} {kind:?}");
    }

    #[test]
    fn only_the_edges_of_the_table_are_allowed() {
        check("countersign-store", CORE, Kind::Normal, true);
        check(CORE, "countersign-store", Kind::Normal, false);
        check(CORE, "countersign-store", Kind::Build, false);
        check("countersign-server", "countersign-store", Kind::Normal, false);
        check("countersign-cli", "countersign-store", Kind::Normal, true);
        check("xtask", CORE, Kind::Normal, false);
        check("countersign-ui", CORE, Kind::Normal, false);
    }

    #[test]
    fn the_testkit_is_for_tests_and_benches() {
        check("countersign-store", TESTKIT, Kind::Dev, true);
        check("countersign-store", TESTKIT, Kind::Normal, false);
        check("countersign-agent", STORE, Kind::Dev, true);
        check("countersign-agent", STORE, Kind::Normal, false);
        check("countersign-cli", TESTKIT, Kind::Normal, false);
        check("countersign-benches", TESTKIT, Kind::Normal, true);
        check(CORE, TESTKIT, Kind::Dev, false);
    }

    #[test]
    fn nothing_depends_on_benches_or_examples_and_no_crate_is_unknown() {
        check("countersign-cli", "countersign-benches", Kind::Normal, false);
        check("countersign-cli", "countersign-benches", Kind::Dev, false);
        check("countersign-cli", "countersign-examples", Kind::Normal, false);
        check("countersign-surprise", CORE, Kind::Normal, false);
    }
}
