//! Keeps the reference pages of the server true.

use countersign_api::wire::Code;

/// Every code has its line, and every line its code.
#[test]
fn the_page_of_errors_lists_every_code() {
    let page = include_str!("../../../../docs/reference/errors.md");
    let line = |code: &Code| format!("| {} | `{code}` | {} |", code.status(), code.title());
    let expected: Vec<String> = Code::ALL.iter().map(line).collect();
    let found: Vec<&str> = page.lines().filter(|line| line.contains(" | `")).collect();
    assert_eq!(found, expected);
}

/// The description in the docs is the one the server gives.
#[test]
fn the_openapi_description_is_current() {
    let current = countersign_server::openapi().to_pretty_json().unwrap() + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    if kept != current {
        let new = concat!(env!("CARGO_TARGET_TMPDIR"), "/openapi.json");
        std::fs::write(new, current).unwrap();
        panic!("docs/reference/openapi.json is not current: look at {new} and copy it there");
    }
}

/// A description without its parts describes nothing: every reference leads somewhere.
#[test]
fn every_reference_of_the_description_leads_somewhere() {
    let openapi = countersign_server::openapi();
    let text = openapi.to_json().unwrap();
    let schemas = openapi.components.unwrap().schemas;
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name}");
    }
    assert_eq!(openapi.paths.paths.len(), {
        let mut paths: Vec<&str> = countersign_server::table().iter().map(|row| row.path).collect();
        paths.sort_unstable();
        paths.dedup();
        paths.len()
    });
}
