//! The record: read, exported, checked.

use crate::bed::{Bed, gate, submit};

async fn recorded() -> Bed {
    let bed = Bed::new();
    let store = bed.store().await;
    let agent = gate(&store, "otherwise: ask\n");
    let call = submit(&agent, "pay", r#"{"to": "a\u001b[2Jb"}"#).await;
    submit(&agent, "refund", "{}").await;
    agent.cancel(call.id).await.unwrap();
    bed
}

#[tokio::test]
async fn an_export_verifies_offline_and_a_changed_one_does_not() {
    let bed = recorded().await;
    let export = bed.run(["audit", "export", "--store", &bed.url()]).expect(0);
    bed.write("log.jsonl", &export.stdout);
    let ran = bed.say("audit verify log.jsonl").expect(0);
    assert!(ran.stdout.starts_with("verified: ") && ran.stdout.contains("signed by "), "{}", ran.stdout);
    let report = bed.say("audit verify log.jsonl --json").expect(0).json();
    assert_eq!(report["complete"], true);
    let key = report["keys"][0].as_str().unwrap().to_owned();
    bed.run(["audit", "verify", "log.jsonl", "--key", &key]).expect(0);
    bed.run(["audit", "verify", "log.jsonl", "--key", "c29tZWJvZHkgZWxzZQ=="]).expect(1);

    bed.write("bad.jsonl", &export.stdout.replace("refund", "refuse"));
    let ran = bed.say("audit verify bad.jsonl").expect(1);
    assert!(ran.stderr.contains("bad.jsonl:") && ran.stderr.contains("not verified"), "{}", ran.stderr);
    assert!(ran.stderr.contains("next:"), "{}", ran.stderr);
    assert_eq!(bed.say("audit verify bad.jsonl --json").expect(1).json()["verified"], false);
    let cut: String = export.stdout.lines().take(3).map(|line| format!("{line}\n")).collect();
    bed.write("cut.jsonl", &cut);
    bed.say("audit verify cut.jsonl").expect(1);
    bed.say("audit verify nowhere.jsonl").expect(2);
}

#[tokio::test]
async fn the_store_itself_is_checked() {
    let bed = recorded().await;
    let ran = bed.run(["audit", "verify", "--store", &bed.url()]).expect(0);
    assert!(ran.stderr.contains("under no signature yet"), "nobody signed so far: {}", ran.stderr);
}

/// A record without a single event proves nothing, and is not called verified.
#[test]
fn an_empty_record_is_not_called_verified() {
    let bed = Bed::new();
    let ran = bed.say("audit verify").expect(0);
    assert_eq!(ran.stdout, "nothing is on record yet, so nothing was checked\n");
    let report = bed.say("audit verify --json").expect(0).json();
    assert_eq!((&report["verified"], &report["events"]), (&false.into(), &0.into()));
}

#[tokio::test]
async fn the_log_is_printed_for_people_and_for_programs() {
    let bed = recorded().await;
    let text = bed.run(["audit", "--store", &bed.url()]).expect(0);
    assert!(text.stdout.contains("call.cancelled"), "{}", text.stdout);
    assert!(!text.stdout.contains('\u{1b}'), "{:?}", text.stdout);
    let lines = bed.run(["audit", "log", "--json", "--session", "s1", "--store", &bed.url()]).expect(0);
    for line in lines.stdout.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["chain"], "local/s1");
    }
    assert_eq!(bed.run(["audit", "log", "--session", "none", "--json", "--store", &bed.url()]).expect(0).stdout, "");
}

/// A log of several pages is printed whole, in order, under one head.
#[tokio::test]
async fn a_long_log_is_printed_page_by_page() {
    let bed = Bed::new();
    let store = bed.store().await;
    let agent = gate(&store, "otherwise: deny\n");
    let calls = countersign::limits::PAGE_ROWS / 2 + 20;
    futures::future::join_all((0..calls).map(|n| {
        let agent = agent.clone();
        async move { submit(&agent, "pay", &format!(r#"{{"n": {n}}}"#)).await }
    }))
    .await;
    let lines = bed.run(["audit", "log", "--json", "--store", &bed.url()]).expect(0);
    let seqs: Vec<u64> = lines
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|event| event["chain"] == "local/s1")
        .map(|event| event["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(seqs, (1..=2 * calls as u64).collect::<Vec<_>>());
    let text = bed.run(["audit", "--store", &bed.url()]).expect(0);
    assert_eq!(text.stdout.lines().filter(|line| line.starts_with("chain ")).count(), 1);
    assert_eq!(text.stdout.lines().count(), lines.stdout.lines().count() + 1);
    assert!(text.stderr.is_empty(), "no progress but on a terminal: {}", text.stderr);
}

/// A reader that goes away is no failure; a full disk is.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_export_that_cannot_be_written_fails() {
    let bed = recorded().await;
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran: crate::bed::Ran =
        bed.command(["audit", "export", "--store", &bed.url()]).stdout(full).output().unwrap().into();
    let ran = ran.expect(1);
    assert!(ran.stderr.contains("cannot write the export"), "{}", ran.stderr);
}
