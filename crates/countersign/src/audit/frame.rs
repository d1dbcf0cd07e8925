//! The lines of an export, byte for byte. There is one spelling of each line, so a reader compares instead of parsing.

use std::fmt::Write as _;

use serde::Deserialize;

use crate::digest::EventHash;
use crate::json::write_string;

/// The version of the form written here.
pub(super) const VERSION: u64 = 1;

const EVENT_LEAD: &str = "{\"hash\":\"";
const EVENT_BODY: &str = "\",\"body\":";
/// `cs1e:` and 64 digits.
const HASH_BYTES: usize = 69;

/// The first line: whose log this is, and which keys may sign in it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) countersign: String,
    pub(super) v: u64,
    pub(super) session: Option<String>,
    pub(super) keys: Vec<String>,
    /// The key that signs the end mark. Named here too, so that taking the signature off is seen.
    pub(super) signer: Option<String>,
}

impl Header {
    /// The line, with its newline.
    pub(super) fn line(&self) -> String {
        let mut line = String::from("{\"countersign\":");
        write_string(&mut line, &self.countersign);
        let _ = write!(line, ",\"v\":{},\"session\":", self.v);
        optional(&mut line, self.session.as_deref());
        line.push_str(",\"keys\":[");
        for (index, key) in self.keys.iter().enumerate() {
            if index > 0 {
                line.push(',');
            }
            write_string(&mut line, key);
        }
        line.push_str("],\"signer\":");
        optional(&mut line, self.signer.as_deref());
        line.push_str("}\n");
        line
    }
}

/// The last line: how many events there were, and a digest of every line before it, signed if there was a key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct End {
    pub(super) events: u64,
    pub(super) digest: String,
    pub(super) key: Option<String>,
    pub(super) signature: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EndLine {
    end: End,
}

impl End {
    /// The line, with its newline.
    pub(super) fn line(&self) -> String {
        let mut line = format!("{{\"end\":{{\"events\":{},\"digest\":", self.events);
        write_string(&mut line, &self.digest);
        line.push_str(",\"key\":");
        optional(&mut line, self.key.as_deref());
        line.push_str(",\"signature\":");
        optional(&mut line, self.signature.as_deref());
        line.push_str("}}\n");
        line
    }
}

fn optional(out: &mut String, text: Option<&str>) {
    match text {
        Some(text) => write_string(out, text),
        None => out.push_str("null"),
    }
}

/// The line of one event, with its newline.
pub(super) fn event_line(hash: &EventHash, body: &str) -> String {
    format!("{EVENT_LEAD}{hash}{EVENT_BODY}{body}}}\n")
}

/// Reads the header, which must be spelled exactly as we spell it.
pub(super) fn read_header(line: &str) -> Option<Header> {
    let header: Header = serde_json::from_str(line).ok()?;
    (header.line() == line).then_some(header)
}

/// One line after the header.
pub(super) enum Line<'a> {
    /// An event: its hash and the bytes of its body.
    Event(EventHash, &'a str),
    /// The end mark.
    End(End),
}

/// Reads a line after the header, which must be spelled exactly as we spell it.
pub(super) fn read_line(line: &str) -> Option<Line<'_>> {
    if let Some(rest) = line.strip_prefix(EVENT_LEAD) {
        let hash = rest.get(..HASH_BYTES)?.parse().ok()?;
        let body = rest.get(HASH_BYTES..)?.strip_prefix(EVENT_BODY)?.strip_suffix("}\n")?;
        return Some(Line::Event(hash, body));
    }
    let end = serde_json::from_str::<EndLine>(line).ok()?.end;
    (end.line() == line).then_some(Line::End(end))
}
