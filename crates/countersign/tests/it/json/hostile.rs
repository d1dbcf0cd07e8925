//! No input crashes or stalls the reader.

use super::{WIDE, mutate, random_text, read};
use crate::seed::Seed;
use countersign::Json;
use countersign::json::{Bounds, IngestError};

const INPUTS: u64 = 100_000;

/// Runs on the stack a worker thread has.
fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(work).unwrap().join().unwrap();
}

/// A megabyte of opening brackets is refused, not an abort, whatever depth the caller asks for.
#[test]
fn nesting_never_aborts() {
    on_a_small_stack(|| {
        let bounds = Bounds { bytes: usize::MAX, depth: usize::MAX, keys: usize::MAX };
        for open in ["[", "{\"a\":", "[{\"a\":", "[[],", "{\"a\":{},\"b\":", " [\n", "[\"", "\\"] {
            let text = open.repeat(1_000_000 / open.len());
            assert!(Json::ingest(&text, bounds).is_err(), "{open}");
            assert!(Json::ingest(&text, WIDE).is_err(), "{open}");
        }
        let nested = |depth: usize| format!("{}1{}", "{\"a\":[".repeat(depth), "]}".repeat(depth));
        let json = Json::ingest(&nested(48), bounds).unwrap();
        assert_eq!(serde_json::from_str::<Json>(&serde_json::to_string(&json).unwrap()).unwrap(), json);
        assert!(matches!(Json::ingest(&nested(49), bounds), Err(IngestError::TooDeep { .. })));
    });
}

/// A megabyte of one thing: long strings, numbers and lists are read in linear time or refused.
#[test]
fn a_megabyte_of_anything_is_answered() {
    on_a_small_stack(|| {
        let repeat = |text: &str| text.repeat(1_000_000 / text.len());
        assert!(read(&format!("\"{}\"", repeat("\\u0000"))).is_ok());
        assert!(read(&format!("\"{}\"", repeat("\\ud83d\\ude00"))).is_ok());
        assert!(read(&format!("[{}1]", repeat("1,"))).is_ok());
        assert!(read(&format!("[{}[]]", repeat("[],"))).is_ok());
        assert!(read(&format!("0.{}", repeat("1"))).is_ok());
        assert!(read(&format!("1e-{}", repeat("9"))).is_ok());
        for text in [
            repeat("1"),
            format!("1e{}", repeat("9")),
            repeat("\""),
            repeat("\\"),
            repeat(" "),
            repeat("-"),
            repeat("{\"a\":1},"),
        ] {
            assert!(read(&text).is_err(), "{}…", &text[..20]);
        }
    });
}

/// Whatever comes in, an answer comes out, and what is accepted is already canonical when it is read again.
#[test]
fn fuzzed_texts_are_read_or_refused() {
    let mut accepted = 0;
    for number in 0..INPUTS {
        let mut seed = Seed::new(number ^ 0xfeed_0000);
        let text = match number % 4 {
            0 => soup(&mut seed),
            1 => String::from_utf8_lossy(&(0..seed.below(40)).map(|_| seed.next() as u8).collect::<Vec<u8>>())
                .into_owned(),
            _ => {
                let text = random_text(&mut seed, 5);
                mutate(&mut seed, &text)
            }
        };
        if let Ok(json) = read(&text) {
            assert_eq!(read(json.as_str()).as_ref(), Ok(&json), "seed {number}: {text:?}");
            accepted += 1;
        }
    }
    println!("{accepted} of {INPUTS} accepted");
    assert!(accepted > INPUTS / 20);
}

/// Tokens in no order.
fn soup(seed: &mut Seed) -> String {
    let tokens = [
        "{", "}", "[", "]", ",", ":", "\"a\"", "\"\\u00", "1", "-", "1e5", "true", "nul", "\"", "\\", " ", "\u{feff}",
        "é", "\"b\":", "{}",
    ];
    (0..seed.below(20)).map(|_| seed.pick(&tokens)).collect()
}
