//! Strict JSON and the digests over it.

mod canonical;
mod digest;
mod hostile;
mod ingest;

use countersign::json::{Bounds, IngestError};
use countersign::{Json, Limits};

use crate::seed::Seed;

pub(crate) const WIDE: Bounds = Bounds { bytes: 2 * 1024 * 1024, depth: 96, keys: 1_000_000 };

pub(crate) fn read(text: &str) -> Result<Json, IngestError> {
    Json::ingest(text, WIDE)
}

pub(crate) fn json(text: &str) -> Json {
    read(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(crate) fn arguments(text: &str) -> Result<Json, IngestError> {
    Json::arguments(text, &Limits::default())
}

/// A random JSON text, with white space, odd spellings and no duplicate keys.
pub(crate) fn random_text(seed: &mut Seed, depth: usize) -> String {
    let mut out = String::new();
    random_value(seed, depth, &mut out);
    out
}

fn random_value(seed: &mut Seed, depth: usize, out: &mut String) {
    let space = ["", "", "", " ", "\n", "\t \r"];
    out.push_str(seed.pick(&space));
    match seed.below(if depth == 0 { 5 } else { 8 }) {
        0 => out.push_str(seed.pick(&["true", "false", "null"])),
        1 | 2 => random_number(seed, out),
        3 | 4 => random_string(seed, "", out),
        5 => {
            out.push('[');
            for index in 0..seed.below(4) {
                if index > 0 {
                    out.push(',');
                }
                random_value(seed, depth - 1, out);
            }
            out.push(']');
        }
        _ => {
            out.push('{');
            for index in 0..seed.below(5) {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(seed.pick(&space));
                random_string(seed, &format!("{}{index}", seed_letter(index)), out);
                out.push_str(seed.pick(&space));
                out.push(':');
                random_value(seed, depth - 1, out);
            }
            out.push('}');
        }
    }
    out.push_str(seed.pick(&space));
}

/// Keys come in no order.
fn seed_letter(index: usize) -> &'static str {
    ["m", "Z", "é", "a", "\\u0062"][index % 5]
}

fn random_number(seed: &mut Seed, out: &mut String) {
    out.push_str(seed.pick(&["", "-"]));
    match seed.below(5) {
        0 => out.push('0'),
        1 => out.push_str(&seed.next().to_string()),
        2 => out.push_str(&format!("{}{}", seed.next().max(1), seed.next())),
        _ => out.push_str(&(1 + seed.below(1000)).to_string()),
    }
    if seed.below(3) == 0 {
        out.push_str(&format!(".{}", seed.below(10_000)));
    }
    if seed.below(4) == 0 {
        out.push_str(seed.pick(&["e", "E", "e+", "e-", "E-"]));
        out.push_str(&seed.below(60).to_string());
    }
}

fn random_string(seed: &mut Seed, tail: &str, out: &mut String) {
    let pieces = [
        "a",
        "B",
        "/",
        "\\/",
        "\\n",
        "\\\"",
        "\\\\",
        "\\u0041",
        "\\u00e9",
        "é",
        "\\ud83d\\ude00",
        "😀",
        "\u{7f}",
        "\u{202e}",
        "\\b\\f\\r\\t",
        "\\u001f",
        "\u{2028}",
        " ",
        "\\u0000",
        "ß",
        "K",
    ];
    out.push('"');
    if tail.is_empty() {
        for _ in 0..seed.below(6) {
            out.push_str(seed.pick(&pieces));
        }
    }
    out.push_str(tail);
    out.push('"');
}

/// Changes a few bytes of a text, keeping it UTF-8.
pub(crate) fn mutate(seed: &mut Seed, text: &str) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let hostile: Vec<char> = "{}[]\",:\\u0019eE+-.tfn \n\u{0}\u{1f}\u{feff}\u{fffd}dD8cC\u{10ffff}/".chars().collect();
    for _ in 0..1 + seed.below(3) {
        let char = hostile[seed.below(hostile.len())];
        match seed.below(4) {
            0 if !chars.is_empty() => {
                let at = seed.below(chars.len());
                chars[at] = char;
            }
            1 if !chars.is_empty() => {
                chars.remove(seed.below(chars.len()));
            }
            2 if chars.len() > 1 => {
                let (a, b) = (seed.below(chars.len()), seed.below(chars.len()));
                chars.swap(a, b);
            }
            _ => chars.insert(seed.below(chars.len() + 1), char),
        }
    }
    chars.into_iter().collect()
}
