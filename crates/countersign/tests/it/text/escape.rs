//! Escaping, wrapping and warnings.

use countersign::show::{WarningKind, escape, warnings, wrap};

use super::{is_safe, random_text, unescape};
use crate::seed::Seed;

const STRINGS: u64 = 1_000_000;

/// Display attacks, one by one.
#[test]
fn hostile_characters_are_shown_not_stripped() {
    let shown = [
        ("plain text, (1+1) = \"2\"!", "plain text, (1+1) = \"2\"!"),
        ("a\\b", "a\\\\b"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\u{1b}[2K\u{7}", "\\u{1b}[2K\\u{7}"),
        ("\u{9b}31m\u{7f}\u{0}", "\\u{9b}31m\\u{7f}\\u{0}"),
        ("user\u{202e}txt.exe", "user\\u{202e}txt.exe"),
        ("a\u{200b}b\u{200d}c\u{2060}d\u{ad}", "a\\u{200b}b\\u{200d}c\\u{2060}d\\u{ad}"),
        ("x\u{e0041}\u{e007f}", "x\\u{e0041}\\u{e007f}"),
        ("\u{feff}\u{fffe}\u{2028}\u{2029}\u{85}", "\\u{feff}\\u{fffe}\\u{2028}\\u{2029}\\u{85}"),
        ("\u{a0}\u{2003}\u{3000}\u{202f}", "\\u{a0}\\u{2003}\\u{3000}\\u{202f}"),
        ("\u{115f}\u{3164}\u{ffa0}\u{2800}\u{17b4}\u{34f}", "\\u{115f}\\u{3164}\\u{ffa0}\\u{2800}\\u{17b4}\\u{34f}"),
        ("\u{e000}\u{f0000}\u{378}\u{10ffff}", "\\u{e000}\\u{f0000}\\u{378}\\u{10ffff}"),
        ("☎\u{fe0e}\u{e0100}", "☎\\u{fe0e}\\u{e0100}"),
        ("trailing ", "trailing\\u{20}"),
        ("  leading", "  leading"),
        ("漢字 ωμέγα हिन्दी עברית 😀", "漢字 ωμέγα हिन्दी עברית 😀"),
        ("e\u{301}", "e\u{301}"),
        ("\u{338}=", "\\u{338}="),
        ("=\u{338}", "=\\u{338}"),
        ("a\u{20dd}", "a\\u{20dd}"),
    ];
    for (text, expected) in shown {
        assert_eq!(escape(text), expected);
        assert_eq!(unescape(expected), text);
    }
    let zalgo = format!("a{}", "\u{301}".repeat(50));
    assert!(escape(&zalgo).contains("\\u{301}"), "a tower of marks does not climb over the lines above");
}

/// I10: every code point, alone and inside a word, comes back from what is shown.
#[test]
fn every_code_point_is_shown_injectively() {
    for char in '\0'..=char::MAX {
        for text in [char.to_string(), format!("a{char}b"), format!("{char}{char}"), format!("\\{char}")] {
            let shown = escape(&text);
            assert_eq!(unescape(&shown), text, "U+{:04X}", u32::from(char));
        }
        assert!(is_safe(&escape(&char.to_string())), "U+{:04X} reaches the screen", u32::from(char));
    }
}

/// I10: what is shown can be read back, so two texts that differ are shown differently.
#[test]
fn rendering_is_injective() {
    for number in 0..STRINGS {
        let text = random_text(&mut Seed::new(number), 12);
        let shown = escape(&text);
        assert_eq!(unescape(&shown), text, "seed {number}");
        assert!(number % 50 != 0 || is_safe(&shown), "seed {number}: {shown:?}");
        assert!(!shown.bytes().any(|b| b < 0x20 || b == 0x7f), "seed {number}: {shown:?}");
    }
    println!("{STRINGS} strings");
}

/// Wrapped lines joined are the text, fit the width, and split no escape.
#[test]
fn wrapping_drops_and_splits_nothing() {
    assert_eq!(wrap("abcdef", 4), ["abcd", "ef"]);
    assert_eq!(wrap("漢字漢字", 5), ["漢字", "漢字"]);
    assert_eq!(wrap("ab\\u{202e}cd", 4), ["ab", "\\u{202e}", "cd"]);
    assert_eq!(wrap("ab\\[57 blanks]cd", 6), ["ab", "\\[57 blanks]", "cd"]);
    assert_eq!(wrap("a\\\\b", 2), ["a", "\\\\", "b"]);
    assert_eq!(wrap("xe\u{301}y", 2), ["xe\u{301}", "y"]);
    assert_eq!(wrap("", 10), [""]);
    for number in 0..100_000 {
        let mut seed = Seed::new(number);
        let shown = escape(&random_text(&mut seed, 20));
        let width = 10 + seed.below(30);
        let lines = wrap(&shown, width);
        assert_eq!(lines.concat(), shown, "seed {number}");
        for line in &lines {
            assert_eq!(
                escape(&unescape(line)).replace("\\u{20}", " "),
                line.replace("\\u{20}", " "),
                "seed {number}: {line}"
            );
            let columns = unicode_width::UnicodeWidthStr::width(line.as_str());
            let single = line.starts_with('\\') && !line[1..].contains('\\');
            assert!(columns <= width || single, "seed {number}: {columns} columns of {width} in {line}");
        }
    }
}

#[track_caller]
fn warned(text: &str, expected: &[WarningKind]) {
    let found: Vec<WarningKind> = warnings(text).into_iter().map(|warning| warning.kind).collect();
    assert_eq!(found, expected, "{text:?}");
}

/// Look-alikes and hidden characters are named; ordinary text in any script is not.
#[test]
fn deceptive_text_is_named() {
    warned("plain ASCII, \n\ttext", &[]);
    warned("Grüße, déjà vu, 漢字かな, Привет мир, שלום", &[]);
    warned("pаypal.com", &[WarningKind::MixedScript, WarningKind::Confusable]);
    warned("раураӏ", &[WarningKind::Confusable]);
    warned("a\u{200b}b", &[WarningKind::Invisible]);
    warned("a\u{a0}b", &[WarningKind::Invisible]);
    warned("a\u{1b}[0m", &[WarningKind::Invisible]);
    warned("a\u{202e}b\u{2066}c", &[WarningKind::Bidi]);
    warned("\u{e0061}\u{202d}", &[WarningKind::Invisible, WarningKind::Bidi]);
    let warning = &warnings("x\u{200b}\u{200b}\u{feff}")[0];
    assert_eq!((warning.sample.as_str(), warning.count), ("\\u{200b}", 3));
    let warning = &warnings("to: pаypal")[1];
    assert_eq!(warning.sample, "pаypal looks like paypal");
}
