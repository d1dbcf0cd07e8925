//! I15: no input crashes or stalls the verifier.

use std::io::{BufReader, Read};

use super::world::{Dice, World, key};
use crate::audit::frame::{self, Header};
use crate::audit::{Verifier, VerifyOptions, What, verify};
use crate::call::Chain;
use crate::digest::EventHash;
use crate::event::{Head, hash};
use crate::signer::statement;

fn seeds() -> Vec<Vec<u8>> {
    let mut world = World::new();
    world.one_whole_call(Some("alpha"));
    let lived = World::lived(7, 12);
    vec![world.export(), world.export_with(None, None), lived.export(), World::new().export()]
}

/// Text that gets past the first checks more often than noise does.
const WORDS: [&str; 24] = [
    "{\"hash\":\"cs1e:",
    "\",\"body\":{",
    "}}\n",
    "\n",
    "{\"end\":{\"events\":",
    "\"v\":1,",
    "\"chain\":\"system\",",
    "\"seq\":18446744073709551615,",
    "\"seq\":-1,",
    "\"at\":-9223372036854775808,",
    "\"event\":\"call.claimed\",",
    "\"event\":\"checkpoint.signed\",",
    "\"call\":\"call_00000000000000000000000000000000\"",
    "[[[[[[[[[[[[[[[[",
    "{\"a\":{\"a\":{\"a\":",
    "\\ud800",
    "\u{202e}",
    "\u{0}",
    "null",
    "1e400",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "\"statement\":{\"heads\":[[\"system\",0,\"cs1e:",
    "\"key\":\"AAAA\",",
    "\"signature\":\"",
];

fn hostile(seeds: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    match dice.below(10) {
        0..=2 => (0..dice.below(300)).map(|_| dice.roll() as u8).collect(),
        3..=5 => (0..dice.below(40)).flat_map(|_| WORDS[dice.below(WORDS.len())].bytes()).collect(),
        6 => {
            let mut file = seeds[dice.below(seeds.len())].clone();
            let at = dice.below(file.len());
            file.truncate(at);
            file.extend((0..dice.below(9)).flat_map(|_| WORDS[dice.below(WORDS.len())].bytes()));
            file
        }
        7 => nested(dice),
        _ => {
            let mut file = seeds[dice.below(seeds.len())].clone();
            for _ in 0..=dice.below(6) {
                let at = dice.below(file.len());
                let word = WORDS[dice.below(WORDS.len())].bytes();
                drop(file.splice(at..(at + dice.below(9)).min(file.len()), word));
            }
            file
        }
    }
}

/// A body nested far deeper than any stack, behind a good header and with the right hash.
fn nested(dice: &mut Dice) -> Vec<u8> {
    let (open, close) = [("[", "]"), ("{\"a\":", "}")][dice.below(2)];
    let depth = [64, 90, 95, 96, 97, 200, 3_000][dice.below(7)];
    let deep = format!("{}0{}", open.repeat(depth), close.repeat(dice.below(2) * depth));
    let body = format!("{{\"v\":1,\"chain\":\"system\",\"seq\":1,\"at\":1,\"event\":\"x\",\"deep\":{deep}}}");
    let mut file = header().line();
    file.push_str(&frame::event_line(&hash(&Head::default().hash, &body), &body));
    file.into_bytes()
}

fn header() -> Header {
    Header { countersign: "export".into(), v: 1, session: None, keys: Vec::new(), signer: None }
}

/// I15: a hundred thousand hostile files on a small stack: no panic, no overflow, no long wait, and no yes.
#[test]
fn hostile_files_neither_crash_nor_stall_the_verifier() {
    let work = || {
        let seeds = seeds();
        let mut dice = Dice(15);
        for round in 0..100_000 {
            let file = hostile(&seeds, &mut dice);
            let found = verify(file.as_slice(), &VerifyOptions::default());
            assert!(found.is_err() || seeds.contains(&file), "round {round}: {}", String::from_utf8_lossy(&file));
        }
    };
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(work).unwrap();
    thread.join().expect("no panic");
}

/// I15: a line without end is given up at a bound, not read into memory.
#[test]
fn a_line_without_end_is_given_up() {
    let endless = BufReader::new(std::io::repeat(b' '));
    assert!(matches!(verify(endless, &VerifyOptions::default()).unwrap_err().what, What::LongLine(_)));
    let line = header().line();
    let endless = BufReader::new(line.as_bytes().chain(std::io::repeat(b'[')));
    let problem = verify(endless, &VerifyOptions::default()).unwrap_err();
    assert!(matches!(problem.what, What::LongLine(_)), "{problem}");
    assert_eq!(problem.line, Some(2));
}

/// I15: a reader that fails is reported, not believed.
#[test]
fn a_reader_that_fails_is_unreadable() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::ConnectionReset.into())
        }
    }
    let line = header().line();
    let reader = BufReader::new(line.as_bytes().chain(Broken));
    assert!(matches!(verify(reader, &VerifyOptions::default()).unwrap_err().what, What::Unreadable(_)));
}

/// I15: a checkpoint that signs a hundred thousand heads costs what its length costs.
#[test]
fn a_checkpoint_of_many_heads_is_checked_in_time() {
    let signer = key();
    let hash_of_none = EventHash::from_bytes([7; 32]);
    let heads: Vec<_> =
        (0..100_000).map(|n| (Chain(format!("p/{n:06}").into()), Head { seq: 1, hash: hash_of_none })).collect();
    let text = statement(None, &heads).unwrap();
    let (key, signature) = (signer.public_key(), signer.sign(text.as_str()));
    let body = format!(
        "{{\"v\":1,\"chain\":\"system\",\"seq\":1,\"at\":1,\"event\":\"checkpoint.signed\",\
         \"statement\":{text},\"key\":\"{key}\",\"signature\":\"{signature}\"}}"
    );
    let mut verifier = Verifier::new(&VerifyOptions::default());
    let problem = verifier.event(&hash(&Head::default().hash, &body), &body).unwrap_err();
    assert!(matches!(problem.what, What::Head { found: "does not have that chain", .. }), "{problem}");
}
