//! The digests: stable, and different for whatever differs.

use std::collections::HashSet;
use std::sync::Arc;

use countersign::call::{Path, ToolId};
use countersign::digest::{ArgumentDigest, Bound, CallDigest, DefinitionDigest, Nonce, argument_digest};
use countersign::id::{CallId, HoldId};
use countersign::place::{Place, Places};
use countersign::time::Time;
use sha2::{Digest as _, Sha256};

use super::{json, random_text, read};
use crate::seed::Seed;

const FLIPS: u64 = 100_000;

fn call_id() -> CallId {
    "call_0197a1b2c3d47e5f8a9b0c1d2e3f4a5b".parse().unwrap()
}

fn hold_id() -> HoldId {
    "hold_0197a1b2c3d47e5f8a9b0c1d2e3f4a5c".parse().unwrap()
}

fn path() -> Path {
    Path {
        principal: "agent-7".into(),
        requester: Some("ann".into()),
        session: Some("s1".into()),
        run: Some("r1".into()),
        thread: Some("t1".into()),
        agents: Arc::from(["root".into(), "child".into()]),
    }
}

fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An auditor recomputes them with any SHA-256: these texts and values never change.
#[test]
fn digests_are_golden() {
    let definition = DefinitionDigest::of(b"{}");
    assert_eq!(definition.to_string(), "cs1d:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");

    let digest = argument_digest(&ToolId::on("billing", "refund"), Some(&definition), &json("{\"b\":1.0,\"a\":\"é\"}"));
    let text = format!(
        "{{\"arguments\":{{\"a\":\"é\",\"b\":1.0}},\"definition\":\"{definition}\",\"server\":\"billing\",\"tool\":\"refund\"}}"
    );
    assert_eq!(digest.to_string(), format!("cs1a:{}", hash(&text)));
    assert_eq!(digest.to_string(), "cs1a:756b3f2bc5d82bc78e585849f915fa953e4a71884ae01d49c5e29ca187e8245e");

    let payload = json("{\"p\":[1]}");
    let bound = Bound {
        arguments: &digest,
        call: call_id(),
        hold: Some(hold_id()),
        path: &path(),
        places: &Places::default(),
        policy: "policy-1",
        expires_at: Some(Time(1_700_000_000_000_000)),
        payload: Some(&payload),
        hint: Some("say \"yes\""),
        nonce: Nonce(0xabc),
    };
    let text = format!(
        "{{\"agents\":[\"root\",\"child\"],\"arguments\":\"{digest}\",\"call\":\"0197a1b2c3d47e5f8a9b0c1d2e3f4a5b\",\
         \"expires_at\":1700000000000000,\"hint\":\"say \\\"yes\\\"\",\"hold\":\"0197a1b2c3d47e5f8a9b0c1d2e3f4a5c\",\
         \"nonce\":\"00000000000000000000000000000abc\",\"payload\":{{\"p\":[1]}},\"policy\":\"policy-1\",\
         \"principal\":\"agent-7\",\"requester\":\"ann\",\"run\":\"r1\",\"session\":\"s1\",\"thread\":\"t1\"}}"
    );
    assert_eq!(json(&text).as_str(), text, "the bound text is canonical itself");
    assert_eq!(bound.digest().to_string(), format!("cs1c:{}", hash(&text)));
    assert_eq!(bound.digest().to_string(), "cs1c:e5ef792196fac6f35a4b052330e169d0c092c129b08b73bb302798f0f86de953");
}

/// A change of any one field changes the call digest, and no two changes give the same.
#[test]
fn any_changed_field_changes_the_call_digest() {
    let (one, other) = (ArgumentDigest::of(b"1"), ArgumentDigest::of(b"2"));
    let (payload, null) = (json("{\"p\":1}"), json("null"));
    let path = path();
    let nowhere = Places::default();
    let file = Places::one("path", Place::File("/a/b".into()));
    let folder = Places::one("path", Place::Folder("/a/b".into()));
    let base = Bound {
        arguments: &one,
        call: call_id(),
        hold: Some(hold_id()),
        path: &path,
        places: &nowhere,
        policy: "policy-1",
        expires_at: Some(Time(1_000)),
        payload: Some(&payload),
        hint: Some("hint"),
        nonce: Nonce(1),
    };
    let paths = [
        Path { principal: "x".into(), ..path.clone() },
        Path { requester: None, ..path.clone() },
        Path { requester: Some("ben".into()), ..path.clone() },
        Path { session: None, ..path.clone() },
        Path { session: Some("null".into()), ..path.clone() },
        Path { run: None, ..path.clone() },
        Path { run: Some("s1".into()), ..path.clone() },
        Path { thread: None, ..path.clone() },
        Path { thread: Some("".into()), ..path.clone() },
        Path { agents: Arc::from([]), ..path.clone() },
        Path { agents: Arc::from(["child".into(), "root".into()]), ..path.clone() },
        Path { agents: Arc::from(["root\",\"child".into()]), ..path.clone() },
        Path { agents: Arc::from(["root".into()]), ..path.clone() },
    ];
    let mut changed = vec![
        base,
        Bound { arguments: &other, ..base },
        Bound { call: CallId::new(), ..base },
        Bound { hold: None, ..base },
        Bound { hold: Some(HoldId::new()), ..base },
        Bound { policy: "policy-2", ..base },
        Bound { places: &file, ..base },
        Bound { places: &folder, ..base },
        Bound { expires_at: None, ..base },
        Bound { expires_at: Some(Time(1_001)), ..base },
        Bound { expires_at: Some(Time(-1_000)), ..base },
        Bound { payload: None, ..base },
        Bound { payload: Some(&null), ..base },
        Bound { hint: None, ..base },
        Bound { hint: Some("null"), ..base },
        Bound { hint: Some("hint "), ..base },
        Bound { nonce: Nonce(2), ..base },
        Bound { nonce: Nonce(1 << 127), ..base },
    ];
    changed.extend(paths.iter().map(|path| Bound { path, ..base }));
    let digests: HashSet<CallDigest> = changed.iter().map(Bound::digest).collect();
    assert_eq!(digests.len(), changed.len());
    assert_eq!(base.digest(), base.digest());
}

/// The argument digest tells tools, servers, definitions and arguments apart, also where joined they would look alike.
#[test]
fn any_changed_field_changes_the_argument_digest() {
    let (one, other) = (DefinitionDigest::of(b"1"), DefinitionDigest::of(b"2"));
    let empty = json("{}");
    let digests = [
        argument_digest(&ToolId::local("t"), None, &empty),
        argument_digest(&ToolId::local("t "), None, &empty),
        argument_digest(&ToolId::local("T"), None, &empty),
        argument_digest(&ToolId::local("s/t"), None, &empty),
        argument_digest(&ToolId::on("s", "t"), None, &empty),
        argument_digest(&ToolId::on("t", "s"), None, &empty),
        argument_digest(&ToolId::on("", "t"), None, &empty),
        argument_digest(&ToolId::on("null", "t"), None, &empty),
        argument_digest(&ToolId::local("t\",\"x\":\""), None, &empty),
        argument_digest(&ToolId::local("t"), Some(&one), &empty),
        argument_digest(&ToolId::local("t"), Some(&other), &empty),
        argument_digest(&ToolId::local("t"), None, &json("{\"a\":1}")),
        argument_digest(&ToolId::local("t"), None, &json("{\"a\":1.0}")),
        argument_digest(&ToolId::local("t"), None, &json("{\"a\":\"1\"}")),
        argument_digest(&ToolId::local("t"), None, &json("{\"A\":1}")),
        argument_digest(&ToolId::local("t"), None, &json("{\"a\":9007199254740992}")),
        argument_digest(&ToolId::local("t"), None, &json("{\"a\":9007199254740993}")),
    ];
    assert_eq!(HashSet::from(digests).len(), digests.len());
}

/// I1: arguments with one bit flipped are refused or have another digest, unless they mean the same.
#[test]
fn any_flipped_bit_changes_the_digest() {
    let tool = ToolId::local("t");
    let mut changed = 0;
    for number in 0..FLIPS {
        let mut seed = Seed::new(number);
        let first = json(&format!("{{\"amount\":100,\"note\":{}}}", random_text(&mut seed, 3)));
        let digest = argument_digest(&tool, None, &first);
        for _ in 0..20 {
            let mut bytes = first.as_str().as_bytes().to_vec();
            let at = seed.below(bytes.len());
            bytes[at] ^= 1 << seed.below(8);
            let Some(flipped) = String::from_utf8(bytes).ok().and_then(|text| read(&text).ok()) else { continue };
            let same = argument_digest(&tool, None, &flipped) == digest;
            // Only an escape's letter case may change and mean the same.
            assert!(!same || flipped.value() == first.value(), "seed {number}: {first} and {flipped}");
            assert!(same || flipped.as_str() != first.as_str(), "seed {number}: {first} and {flipped}");
            changed += u64::from(!same);
            break;
        }
    }
    println!("{changed} of {FLIPS} flips gave other arguments");
    assert!(changed > FLIPS * 9 / 10);
}

/// One digest has one spelling.
#[test]
fn a_digest_has_one_spelling() {
    let digest = CallDigest::of(b"x");
    let text = digest.to_string();
    assert_eq!(text.parse::<CallDigest>(), Ok(digest));
    assert_eq!(CallDigest::from_bytes(*digest.as_bytes()), digest);
    assert!(text.parse::<ArgumentDigest>().is_err(), "kinds do not mix");
    let hex = &text[5..];
    for wrong in [
        hex.to_owned(),
        format!("cs1c:{}", hex.to_uppercase()),
        format!("cs1c:{} ", hex),
        format!("cs1c:+{}", &hex[1..]),
        format!("cs1c:{}", &hex[1..]),
        format!("cs1c:{hex}0"),
        format!("cs1c:{}é", &hex[2..]),
        format!("CS1C:{hex}"),
        String::new(),
    ] {
        assert!(wrong.parse::<CallDigest>().is_err(), "{wrong}");
    }
}
