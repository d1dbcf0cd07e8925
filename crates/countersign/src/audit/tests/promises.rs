//! What an export promises: whole, provable, checked offline, and silent about what must stay home.

use std::sync::Arc;

use super::world::{World, key, now, proposal};
use crate::audit::{ExportOptions, VerifyOptions, What, export, verify};
use crate::call::{Chain, Outcome};
use crate::digest::{Nonce, argument_digest};
use crate::event::{Draft, EventName, Head, hash};
use crate::grant::{Remember, RememberCovers};
use crate::hold::Answer;
use crate::json::Json;
use crate::store::Op;
use crate::time::Time;
use crate::verdict::Effect;

fn pinned(keys: &[&str]) -> VerifyOptions {
    VerifyOptions { pinned: keys.iter().map(|key| (*key).to_owned()).collect() }
}

fn lines(file: &[u8]) -> Vec<String> {
    String::from_utf8(file.to_vec()).unwrap().lines().map(str::to_owned).collect()
}

/// B92, B136: person, channel, digest and rules are in the file, and it verifies from the file alone.
#[test]
fn an_export_verifies_offline_and_names_who_decided() {
    let mut world = World::new();
    let call = world.one_whole_call(Some("alpha"));
    world.submit(proposal(Some("alpha"), Effect::Allow));
    world.submit(proposal(None, Effect::Deny));
    let file = world.export();
    let public = world.signer.public_key();
    drop(world);

    let report = verify(file.as_slice(), &pinned(&[&public])).unwrap();
    assert!(report.complete);
    assert_eq!((report.events, report.checkpoints, report.unproven, report.open_calls), (10, 1, 0, 1));
    let chains: Vec<_> = report.chains.iter().map(|c| (&*c.chain.0, c.events, c.signed_up_to)).collect();
    assert_eq!(chains, [("local/alpha", 7, 7), ("system", 3, 3)]);
    assert_eq!(report.keys, [public]);

    let lines = lines(&file);
    let decided: serde_json::Value =
        serde_json::from_str(lines.iter().find(|line| line.contains("hold.decided")).unwrap()).unwrap();
    let body = &decided["body"];
    assert_eq!((&body["by"], &body["by_kind"], &body["channel"]), (&"ann".into(), &"person".into(), &"test".into()));
    assert_eq!(body["call"], call.to_string());
    assert!(body["digest"].as_str().unwrap().starts_with("cs1c:"));
    let rules = |name: &str| lines.iter().any(|line| line.contains(name) && line.contains("r1"));
    assert!(rules("call.allowed") && rules("call.refused") && rules("hold.opened"));
}

/// An auditor needs stock tools only: SHA-256 over the hash before, a newline, and the body.
#[test]
fn hashes_are_recomputed_from_the_lines_alone() {
    let mut world = World::new();
    world.one_whole_call(None);
    let mut head = Head::default().hash;
    for line in lines(&world.export()).iter().filter(|line| line.starts_with("{\"hash\"")) {
        let (lead, body) = line.split_once(",\"body\":").unwrap();
        let body = body.strip_suffix('}').unwrap();
        head = hash(&head, body);
        assert_eq!(lead, format!("{{\"hash\":\"{head}\""));
    }
}

/// B136: without a key the log still holds together, and says that nothing in it is proven.
#[test]
fn an_unsigned_export_says_it_proves_nothing() {
    let mut world = World::new();
    world.one_whole_call(Some("alpha"));
    let file = world.export_with(None, None);
    let report = verify(file.as_slice(), &VerifyOptions::default()).unwrap();
    assert_eq!((report.complete, report.unproven, report.events), (false, 5, 5));
    assert!(report.to_string().contains("not provable beyond 0 events"), "{report}");
    let problem = verify(file.as_slice(), &pinned(&["AAAA"])).unwrap_err();
    assert_eq!(problem.what, What::NotSigned);
}

/// Safety: a tail without checkpoint is "not provable", counted chain by chain.
#[test]
fn events_after_the_last_checkpoint_are_counted() {
    let mut world = World::new();
    world.one_whole_call(Some("alpha"));
    world.sign();
    world.submit(proposal(Some("alpha"), Effect::Allow));
    world.submit(proposal(Some("beta"), Effect::Deny));
    let report = verify(world.export_with(None, None).as_slice(), &VerifyOptions::default()).unwrap();
    assert_eq!((report.complete, report.unproven, report.checkpoints), (false, 4, 1));
    let signed: Vec<_> = report.chains.iter().map(|chain| (chain.events, chain.signed_up_to)).collect();
    assert_eq!(signed, [(7, 5), (2, 0), (1, 1)]);
    assert!(report.to_string().contains("not provable beyond 6 events: 4 "), "{report}");
}

/// B136: keys change over the years; both are named, and pinning asks for both.
#[test]
fn a_log_signed_by_two_keys_verifies() {
    let mut world = World::new();
    world.one_whole_call(Some("alpha"));
    world.sign();
    let old = std::mem::replace(&mut world.signer, key());
    world.one_whole_call(Some("alpha"));
    let file = world.export();
    let (old, new) = (old.public_key(), world.signer.public_key());
    let report = verify(file.as_slice(), &pinned(&[&old, &new])).unwrap();
    assert!(report.complete);
    assert_eq!(report.keys.len(), 2);
    for one in [&old, &new] {
        let problem = verify(file.as_slice(), &pinned(&[one])).unwrap_err();
        assert!(matches!(problem.what, What::Key { among: "pinned keys", .. }), "{problem}");
    }
}

/// B136: a session's own log verifies, with the checkpoints that other sessions' heads are in.
#[test]
fn the_export_of_one_session_verifies() {
    let mut world = World::new();
    for session in [Some("alpha"), Some("beta"), None, Some("alpha")] {
        world.one_whole_call(session);
        world.sign();
    }
    let file = world.export_with(Some(&world.signer), Some("alpha"));
    let report = verify(file.as_slice(), &pinned(&[&world.signer.public_key()])).unwrap();
    assert!(report.complete);
    assert_eq!(report.session.as_deref(), Some("alpha"));
    let chains: Vec<_> = report.chains.iter().map(|c| (&*c.chain.0, c.events, c.signed_up_to)).collect();
    assert_eq!(chains, [("local/alpha", 10, 10), ("system", 9, 9)]);
    assert!(!String::from_utf8(file).unwrap().contains("\"chain\":\"local/beta\""));
}

/// I14: argument digests, nonces and masked arguments stay home, whatever happens to the call.
#[test]
fn argument_digests_nonces_and_masked_secrets_stay_home() {
    let mut world = World::new();
    let secret = "hunter2-canary";
    let mut new = proposal(Some("alpha"), Effect::Ask);
    Arc::make_mut(&mut new.facts).arguments =
        Json::of(&serde_json::json!({ "password": secret, "to": "production" })).unwrap();
    new.redacted = Some(Json::of(&serde_json::json!({ "password": "[masked]", "to": "production" })).unwrap());
    new.raw = Some(format!("{{ \"password\" : \"{secret}\", \"to\":\"production\" }}").into());
    new.argument_digest = argument_digest(&new.facts.tool, None, &new.facts.arguments);
    let call = world.submit(new);
    let exact = world.submit(proposal(Some("beta"), Effect::Ask));
    let covers = RememberCovers::Fields(vec!["to".into()]);
    let remember = Some(Remember { covers, ..Remember::global() });
    world.decide(&call.holds[0], "ann", Answer::Approve { arguments: None, payload: None, remember }).unwrap();
    let remember = Some(Remember::global());
    world.decide(&exact.holds[0], "ann", Answer::Approve { arguments: None, payload: None, remember }).unwrap();
    world.claim(call.id).unwrap();
    let output = Json::string("the output is no event either");
    world.run(Op::Finish { call: call.id, fence: 1, outcome: Outcome::Succeeded { output } }).unwrap();

    let text = String::from_utf8(world.export()).unwrap();
    assert!(text.contains("[masked]") && text.contains("grant.made"), "the call is in it");
    let Nonce(nonce) = call.nonce;
    let hex = call.argument_digest.to_string().replace("cs1a:", "");
    let forms = [secret, "cs1a:", &hex, &nonce.to_string(), &format!("{nonce:032x}"), "the output", "nonce"];
    for form in forms {
        assert!(!text.contains(form), "`{form}` left home");
    }
}

/// Safety: a stepped clock is a warning, not a broken log.
#[test]
fn a_clock_that_went_back_is_reported() {
    let mut world = World::new();
    world.one_whole_call(Some("alpha"));
    world.clock.turn(-1);
    world.one_whole_call(Some("alpha"));
    world.clock.turn(-3600);
    world.one_whole_call(Some("alpha"));
    let report = verify(world.export().as_slice(), &VerifyOptions::default()).unwrap();
    let steps: Vec<_> = report.clock_steps.iter().map(|step| (step.seq, step.back.as_secs())).collect();
    assert_eq!((steps, report.clock_steps_total), (vec![(11, 3600)], 1));
    assert!(report.first_at.unwrap() < report.last_at.unwrap());
}

/// A newer version's events are counted; their hashes are checked all the same.
#[test]
fn unknown_events_are_counted_and_still_chained() {
    let mut head = Head::default();
    let event = head.seal(&Chain::system(), Time(1), Draft::new(EventName::HaltSet).text("by", "ops"));
    let body = event.body.replace("halt.set", "moon.risen");
    let mut verifier = crate::audit::Verifier::new(&VerifyOptions::default());
    let problem = verifier.event(&event.hash, &body).unwrap_err();
    assert_eq!(problem.what, What::Hash);
    let mut verifier = crate::audit::Verifier::new(&VerifyOptions::default());
    verifier.event(&hash(&Head::default().hash, &body), &body).unwrap();
    assert_eq!(verifier.finish().unwrap().unknown, 1);
}

/// An empty log is an export too, and nothing can be slipped into it.
#[test]
fn an_empty_log_exports_and_verifies() {
    let world = World::new();
    let report = verify(world.export().as_slice(), &pinned(&[&world.signer.public_key()])).unwrap();
    assert_eq!((report.complete, report.events), (true, 0));
}

/// The writer's failure is the export's failure, and what was written does not verify.
#[test]
fn a_full_disk_is_an_error() {
    struct Disk(Vec<u8>);
    impl std::io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.0.len() > 500 {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            self.0.extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut world = World::new();
    world.one_whole_call(None);
    let mut disk = Disk(Vec::new());
    now(export(&world.store, Some(&world.signer), &ExportOptions::default(), &mut disk)).unwrap_err();
    assert_eq!(verify(disk.0.as_slice(), &VerifyOptions::default()).unwrap_err().what, What::Cut);
}

/// A problem says where, what, and what to do; and a name out of the log cannot move the reader's cursor.
#[test]
fn a_problem_reads_as_a_sentence() {
    let problem = crate::audit::Problem {
        line: Some(12),
        chain: Some(Chain(Arc::from("local/\u{1b}[2J\u{202e}s"))),
        seq: Some(4),
        what: What::Hash,
    };
    let text = problem.to_string();
    assert!(
        text.starts_with("line 12: event 4 of chain `local/\\u{1b}[2J\\u{202e}s`: the hash does not fit"),
        "{text}"
    );
    assert!(text.ends_with("compare with a copy kept elsewhere"), "{text}");
}
