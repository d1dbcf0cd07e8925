//! I13, `tampering_is_seen`: any single edit of an exported, signed log is found.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::world::{Dice, World, key, proposal};
use crate::audit::frame::{self, Line};
use crate::audit::{Problem, Report, Verifier, VerifyOptions, What, verify};
use crate::call::{Chain, Outcome};
use crate::digest::{EventHash, push_hex};
use crate::event::{Draft, Event, EventName, Head, hash};
use crate::hold::Answer;
use crate::json::Json;
use crate::signer::Signer;
use crate::store::{MovedHeads, Op};
use crate::time::Time;
use crate::verdict::Effect;

/// A log of a few sessions with two checkpoints inside and one at its end.
fn world() -> World {
    let mut world = World::new();
    world.one_whole_call(Some("alpha"));
    let denied = world.submit(proposal(Some("beta"), Effect::Ask));
    world.decide(&denied.holds[0], "ben", Answer::deny("no: \"never\"")).unwrap();
    world.sign();
    let allowed = world.submit(proposal(None, Effect::Allow));
    world.claim(allowed.id).unwrap();
    world.run(Op::Halt { agent: None, by: "ops".into(), reason: None }).unwrap();
    world.sign();
    let outcome = Outcome::Failed { error: "disk full".into(), refusal: None };
    world.run(Op::Finish { call: allowed.id, fence: 1, outcome }).unwrap();
    world.submit(proposal(Some("beta"), Effect::Ask));
    world
}

fn check(file: &[u8]) -> Result<Report, Problem> {
    verify(file, &VerifyOptions::default())
}

fn split(file: &[u8]) -> Vec<Vec<u8>> {
    file.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// One random edit of the bytes. Never leaves them as they were.
fn edit(file: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut edited = file.to_vec();
    let at = dice.below(file.len());
    match dice.below(10) {
        0..=2 => edited[at] ^= 1 << dice.below(8),
        3 => edited[at] = edited[at].wrapping_add(1 + dice.below(255) as u8),
        4 => drop(edited.remove(at)),
        5 => edited.insert(at, b" \t\r\n,0\"x{}"[dice.below(10)]),
        6 => edited.truncate(at),
        kind => return edit_lines(split(file), kind, dice).concat(),
    }
    edited
}

fn edit_lines(mut lines: Vec<Vec<u8>>, kind: usize, dice: &mut Dice) -> Vec<Vec<u8>> {
    let (one, other) = (dice.below(lines.len()), dice.below(lines.len()));
    match kind {
        7 => drop(lines.remove(one)),
        8 => lines.insert(other, lines[one].clone()),
        _ if one == other => drop(lines.remove(one)),
        _ => lines.swap(one, other),
    }
    lines
}

/// B136: flip a bit or a byte, insert or remove one, cut, remove a line, double it, swap two: every one is found.
#[test]
fn any_single_edit_of_a_signed_export_is_found() {
    let file = world().export();
    check(&file).unwrap();
    let mut dice = Dice(13);
    for round in 0..16_000 {
        let edited = edit(&file, &mut dice);
        // Doubling and swapping may hit lines that are the same: no edit at all.
        if edited != file {
            let found = check(&edited);
            assert!(found.is_err(), "round {round}: {} of {} bytes, {found:?}", edited.len(), file.len());
        }
    }
}

/// B136: cut at any byte, from the first to the last.
#[test]
fn a_cut_at_any_byte_is_found() {
    let mut world = World::new();
    world.submit(proposal(None, Effect::Deny));
    let file = world.export();
    for length in 0..file.len() {
        let problem = check(&file[..length]).expect_err("a cut file");
        assert!(matches!(problem.what, What::Cut | What::NoHeader), "{length}: {problem}");
    }
}

/// A forger's work on the events: every hash and the end's digest made right again, but no signature.
fn rehash(lines: &[Vec<u8>], resign: Option<&Signer>) -> Vec<u8> {
    let mut heads = std::collections::HashMap::new();
    let mut out: Vec<u8> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let text = std::str::from_utf8(line).unwrap();
        match frame::read_line(text) {
            Some(Line::Event(_, body)) => {
                let value: serde_json::Value = serde_json::from_str(body).unwrap();
                let head: &mut Head = heads.entry(value["chain"].to_string()).or_default();
                head.hash = hash(&head.hash, body);
                out.extend(frame::event_line(&head.hash, body).as_bytes());
            }
            Some(Line::End(mut end)) => {
                end.events = index as u64 - 1;
                end.digest.clear();
                push_hex(&mut end.digest, &Sha256::digest(&out));
                end.signature = end.signature.map(|old| resign.map_or(old, |signer| signer.sign(&end.digest)));
                out.extend(end.line().as_bytes());
            }
            None => out.extend(line),
        }
    }
    out
}

/// Changes one text, number or truth somewhere in the body of an event, and nothing about the JSON around it.
fn edit_field(body: &str, dice: &mut Dice) -> String {
    let changeable = |byte: &u8| byte.is_ascii_alphanumeric();
    let places: Vec<usize> = (0..body.len()).filter(|at| changeable(&body.as_bytes()[*at])).collect();
    let mut bytes = body.as_bytes().to_vec();
    let at = places[dice.below(places.len())];
    let old = bytes[at];
    while bytes[at] == old {
        bytes[at] = if old.is_ascii_digit() { b'1' + dice.below(9) as u8 } else { b'a' + dice.below(26) as u8 };
    }
    String::from_utf8(bytes).unwrap()
}

fn edit_one_event(lines: &mut [Vec<u8>], dice: &mut Dice) -> usize {
    let at = 1 + dice.below(lines.len() - 2);
    let text = String::from_utf8(lines[at].clone()).unwrap();
    let Some(Line::Event(hash, body)) = frame::read_line(&text) else { panic!("{text}") };
    loop {
        let edited = edit_field(body, dice);
        if serde_json::from_str::<serde_json::Value>(&edited).is_ok_and(|value| value["chain"].is_string()) {
            lines[at] = frame::event_line(&hash, &edited).into_bytes();
            return at;
        }
    }
}

/// B136: a field changed and every hash made right again is found by the signatures.
#[test]
fn an_edit_with_all_hashes_made_right_is_found() {
    let file = world().export();
    let lines = split(&file);
    assert_eq!(rehash(&lines, None), file, "the forger's tool changes nothing by itself");
    let mut dice = Dice(14);
    for round in 0..4_000 {
        let mut lines = lines.clone();
        let at = edit_one_event(&mut lines, &mut dice);
        let found = check(&rehash(&lines, None));
        assert!(found.is_err(), "round {round}, line {at}: {found:?}");
    }
}

/// B136: not even whoever holds the key can change what an earlier checkpoint signed, if the end is all they sign.
#[test]
fn an_edit_under_a_checkpoint_is_found_though_the_end_is_signed_anew() {
    let world = world();
    let file = world.export();
    let lines = split(&file);
    let last = lines.len() - 2;
    assert!(String::from_utf8_lossy(&lines[last]).contains("checkpoint.signed"));
    let mut dice = Dice(15);
    for round in 0..1_000 {
        let mut lines = lines.clone();
        let at = edit_one_event(&mut lines, &mut dice);
        // The last checkpoint's own moment is under the end's signature only.
        if at != last {
            let found = check(&rehash(&lines, Some(&world.signer)));
            assert!(found.is_err(), "round {round}, line {at}: {found:?}");
        }
    }
}

/// B136: a whole chain taken out, a chain's tail taken out, a checkpoint taken out: found without the end's help.
#[test]
fn removed_chains_tails_and_checkpoints_are_found() {
    let world = world();
    let lines = split(&world.export());
    let without = |gone: &dyn Fn(&str) -> bool| {
        let kept: Vec<_> = lines.iter().filter(|line| !gone(std::str::from_utf8(line).unwrap())).cloned().collect();
        assert!(kept.len() < lines.len());
        check(&rehash(&kept, Some(&world.signer))).unwrap_err().what
    };
    let found = without(&|line| line.contains("\"chain\":\"local/beta\""));
    assert!(matches!(&found, What::Head { found: "does not have that chain", .. }), "{found}");
    let found = without(&|line| line.contains("\"chain\":\"local/beta\",\"seq\":6"));
    assert!(matches!(&found, What::Head { found: "ends before it", .. }), "{found}");
    let found = without(&|line| line.contains("checkpoint.signed"));
    assert!(matches!(found, What::Gap { .. }), "{found}");
}

/// Two checkpoints over one event each, the second naming this one as the checkpoint before it.
fn two_checkpoints(previous: impl Fn(EventHash) -> Option<EventHash>) -> [Event; 4] {
    let (signer, chain, mut head) = (key(), Chain::system(), Head::default());
    let halt = || Draft::new(EventName::HaltSet).text("by", "ops");
    let checkpoint = |head: Head, previous| {
        signer.checkpoint(&MovedHeads { heads: vec![(Chain::system(), head)], previous }).unwrap()
    };
    let one = head.seal(&chain, Time(1), halt());
    let two = head.seal(&chain, Time(1), checkpoint(head, None));
    let three = head.seal(&chain, Time(1), halt());
    let four = head.seal(&chain, Time(1), checkpoint(head, previous(two.hash)));
    [one, two, three, four]
}

fn check_events(events: &[Event]) -> Result<Report, Problem> {
    let mut verifier = Verifier::new(&VerifyOptions::default());
    for event in events {
        verifier.event(&event.hash, &event.body)?;
    }
    verifier.finish()
}

/// B136: a checkpoint that does not name the one before it is found though its signature is right.
#[test]
fn checkpoints_hang_together() {
    assert!(check_events(&two_checkpoints(Some)).unwrap().complete);
    let forgetful = check_events(&two_checkpoints(|_| None)).unwrap_err();
    assert_eq!((forgetful.seq, forgetful.what), (Some(4), What::Previous));
    let other = check_events(&two_checkpoints(|_| Some(EventHash::of(b"another")))).unwrap_err();
    assert_eq!(other.what, What::Previous);
}

/// B136: what a checkpoint says counts only under the signature of the key it names.
#[test]
fn a_checkpoint_under_a_wrong_signature_is_found() {
    let world = world();
    let file = String::from_utf8(world.export()).unwrap();
    let public = world.signer.public_key();
    let stranger = key();
    let theirs =
        file.replace(&format!("\"key\":\"{public}\",\"sig"), &format!("\"key\":\"{}\",\"sig", stranger.public_key()));
    let found = check(&rehash(&split(theirs.as_bytes()), Some(&world.signer))).unwrap_err();
    assert_eq!(found.what, What::Signature { key: stranger.public_key() });
    // The statement changed under the right key's old signature: one event less is said to be signed.
    let said = file.replacen("\"local/alpha\",5,", "\"local/alpha\",4,", 1);
    assert!(said != file);
    let found = check(&rehash(&split(said.as_bytes()), Some(&world.signer))).unwrap_err();
    assert_eq!(found.what, What::Signature { key: public });
}

/// B136: a key that the header does not name signs nothing, and the header has one spelling.
#[test]
fn the_header_names_every_key_that_signs() {
    let world = world();
    let file = String::from_utf8(world.export()).unwrap();
    let named = format!("\"keys\":[\"{}\"]", world.signer.public_key());
    let unnamed = file.replacen(&named, "\"keys\":[]", 1);
    let found = check(&rehash(&split(unnamed.as_bytes()), Some(&world.signer))).unwrap_err();
    assert!(matches!(found.what, What::Key { among: "keys the header names", .. }), "{found}");
    let spaced = file.replacen("\"v\":1", "\"v\": 1", 1);
    let found = check(&rehash(&split(spaced.as_bytes()), Some(&world.signer))).unwrap_err();
    assert_eq!((found.line, found.what), (Some(1), What::NoHeader));
}

/// B136: only the chain `system` has checkpoints.
#[test]
fn a_checkpoint_on_another_chain_is_found() {
    let mut head = Head::default();
    let draft = key().checkpoint(&MovedHeads::default()).unwrap();
    let event = head.seal(&Chain("local/alpha".into()), Time(1), draft);
    assert_eq!(check_events(&[event]).unwrap_err().what, What::Checkpoint);
}

/// B136: the signature cannot be taken off, and a stranger's is seen where keys are pinned.
#[test]
fn a_signature_cannot_be_taken_off_or_replaced() {
    let world = world();
    let lines = split(&world.export());
    let end = lines.last().unwrap();
    let Some(Line::End(end)) = frame::read_line(std::str::from_utf8(end).unwrap()) else { panic!("no end") };
    let with_end = |end: frame::End| {
        let mut lines = lines.clone();
        *lines.last_mut().unwrap() = end.line().into_bytes();
        lines.concat()
    };
    let bare = frame::End { key: None, signature: None, ..end.clone() };
    assert_eq!(check(&with_end(bare)).unwrap_err().what, What::EndSignature);
    let half = frame::End { signature: None, ..end.clone() };
    assert_eq!(check(&with_end(half)).unwrap_err().what, What::EndSignature);
    let stranger = key();
    let signature = Some(stranger.sign(&end.digest));
    let theirs = frame::End { key: Some(stranger.public_key()), signature, ..end };
    assert_eq!(check(&with_end(theirs)).unwrap_err().what, What::EndSignature);
}

/// B136: a log made up from beginning to end holds together, and no pinned key signed it.
#[test]
fn a_log_signed_by_a_stranger_is_found_by_pinning() {
    let mut forged = world();
    forged.signer = key();
    let file = forged.export();
    let pinned = VerifyOptions { pinned: vec![Arc::new(Signer::generate().unwrap()).public_key()] };
    assert!(matches!(verify(file.as_slice(), &pinned).unwrap_err().what, What::Key { .. }));
}

/// B136: the first bad event is named by line, chain and place.
#[test]
fn the_first_bad_event_is_named() {
    let mut world = World::new();
    world.one_whole_call(Some("alpha"));
    let text = String::from_utf8(world.export()).unwrap();
    let problem = check(text.replacen("\"by\":\"ann\"", "\"by\":\"bob\"", 1).as_bytes()).unwrap_err();
    assert_eq!((problem.line, problem.seq, problem.what.clone()), (Some(4), Some(3), What::Hash));
    assert_eq!(problem.chain.unwrap().0.as_ref(), "local/alpha");
    let removed = text.lines().filter(|line| !line.contains("hold.decided")).map(|line| format!("{line}\n"));
    let problem = check(removed.collect::<String>().as_bytes()).unwrap_err();
    assert_eq!((problem.line, problem.seq, problem.what), (Some(4), Some(4), What::Gap { expected: 3 }));
    let twice = text.replacen("\"by\":\"ann\"", "\"by\":\"ann\",\"by\":\"bob\"", 1);
    assert!(matches!(check(twice.as_bytes()).unwrap_err().what, What::Hash | What::Body(_)));
}

/// B136: keys that two readers could take differently are refused before anything is believed.
#[test]
fn doubled_keys_in_a_body_are_refused_though_the_hash_is_right() {
    let body = r#"{"v":1,"chain":"system","seq":1,"at":1,"event":"halt.set","by":"ann","by":"bob"}"#;
    let mut verifier = Verifier::new(&VerifyOptions::default());
    let problem = verifier.event(&hash(&Head::default().hash, body), body).unwrap_err();
    assert!(matches!(problem.what, What::Body(_)), "{problem}");
    let json = Json::string("a body that is no object");
    let problem = verifier.event(&hash(&Head::default().hash, json.as_str()), json.as_str()).unwrap_err();
    assert!(matches!(problem.what, What::Body(_)), "{problem}");
}
