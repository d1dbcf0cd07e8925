//! The one crate that may know each foreign thing: SQL, HTTP, MCP, models, the terminal.

use crate::metadata::Metadata;

/// What never ships.
const DEV: &[&str] = &["countersign-testkit", "countersign-benches", "countersign-examples", "xtask"];

/// Foreign crates, those of ours that may name them, and what they bring.
const OWNERS: &[(&[&str], &[&str], &str)] = &[
    // The benches measure the store against bare commits.
    (&["rusqlite", "libsqlite3-sys", "sqlx"], &["countersign-store", "countersign-benches"], "SQL"),
    // The benches measure the server against bare handlers, and the gateway against a bare hop.
    (&["axum", "tower-http"], &["countersign-server", "countersign-testkit", "countersign-benches"], "HTTP serving"),
    (&["rmcp"], &["countersign-mcp", "countersign-testkit", "countersign-benches"], "MCP"),
    (&["genai"], &["countersign-agent"], "model providers"),
    (&["rust-embed"], &["countersign-ui"], "the web app"),
    (
        &["reqwest", "hyper", "tokio-tungstenite"],
        &[
            "countersign-api",
            "countersign-agent",
            "countersign-mcp",
            "countersign-server",
            "countersign-cli",
            "countersign-benches",
        ],
        "HTTP",
    ),
    (&["crossterm", "ratatui", "inquire", "indicatif", "anstream", "expectrl"], &["countersign-cli"], "the terminal"),
    (
        &["tracing-subscriber", "tracing-opentelemetry", "opentelemetry", "opentelemetry_sdk", "opentelemetry-otlp"],
        &["countersign-cli"],
        "where the log and traces go",
    ),
    (&["clap", "clap_complete"], &["countersign-cli"], "the command line"),
    (&["anyhow"], &["countersign-cli"], "errors without a type"),
];

/// Dependencies, dev and build ones included, on things that another crate keeps to itself.
pub(crate) fn complaints(metadata: &Metadata) -> Vec<String> {
    let edges = metadata.ours().flat_map(|package| {
        package.dependencies.iter().map(|dependency| (package.name.as_str(), dependency.name.as_str()))
    });
    edges.filter_map(|(from, to)| complaint(from, to)).collect()
}

fn complaint(from: &str, to: &str) -> Option<String> {
    let (_, owners, what) = OWNERS.iter().find(|(names, _, _)| names.contains(&to))?;
    let dev_may = matches!(to, "clap" | "anyhow") && DEV.contains(&from);
    let allowed = dev_may || owners.contains(&from);
    (!allowed).then(|| format!("{from} -> {to}: {what} belongs to {}", owners.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: &str, to: &str, allowed: bool) {
        assert_eq!(complaint(from, to).is_none(), allowed, "{from} -> {to}");
    }

    #[test]
    fn each_foreign_thing_has_its_crate() {
        check("countersign-store", "rusqlite", true);
        check("countersign-cli", "rusqlite", false);
        check("countersign-testkit", "sqlx", false);
        check("countersign", "reqwest", false);
        check("countersign", "anyhow", false);
        check("xtask", "anyhow", true);
        check("countersign", "serde", true);
    }
}
