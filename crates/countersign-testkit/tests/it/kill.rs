//! I2, I3, B112: killed anywhere, nothing acknowledged is lost, nothing runs unapproved, and nothing runs twice.

use std::process::Command;

/// Runs the supervisor and reads its report.
fn kill(store: &str, count: u64) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kill-supervisor"));
    let seed = std::env::var("SEED").unwrap_or_else(|_| "20260101".to_owned());
    command.args(["--store", store, "--count", &count.to_string(), "--seed", &seed, "--json"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let report: serde_json::Value =
        serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}{}", String::from_utf8_lossy(&output.stderr)));
    println!("{store}: {report}");
    assert!(report["kills"].as_u64().unwrap() >= count);
    for bad in ["lost", "unapproved", "twice"] {
        assert_eq!(report[bad], 0, "{bad}: {report}");
    }
    assert!(report["migrations"].as_u64().unwrap() > 10, "killed after each statement of the migration: {report}");
    assert!(report["joins"].as_u64().unwrap() > count / 2, "joined after each restart: {report}");
    for some in ["acknowledged", "operated", "effects", "in_doubt"] {
        assert_ne!(report[some], 0, "the worker must get far enough to be interrupted: {report}");
    }
}

#[test]
fn five_hundred_kills_on_sqlite_lose_nothing_and_repeat_nothing() {
    kill("sqlite", 500);
}

#[test]
fn a_hundred_kills_on_postgres_lose_nothing_and_repeat_nothing() {
    kill("postgres", 100);
}
