//! Checks an export, offline, from the file alone.

use std::io::{BufRead, Read as _};

use sha2::{Digest as _, Sha256};

use crate::audit::frame::{self, End, Header, Line, VERSION};
use crate::audit::problem::{Problem, What};
use crate::audit::report::Report;
use crate::audit::verify::{Verifier, VerifyOptions};
use crate::digest::push_hex;
use crate::json::Bounds;
use crate::signer;

/// Bytes of one line: the largest body, and the frame around it.
const LINE_BYTES: usize = Bounds::STORED.bytes + 256;

/// Checks an export to its end and reports what it proves, or the first thing that is wrong with it.
///
/// Reads line by line; memory grows with chains and open calls, not with events.
pub fn verify(reader: impl BufRead, options: &VerifyOptions) -> Result<Report, Problem> {
    let mut lines = Lines { reader, text: Vec::new(), number: 0, digest: Sha256::new() };
    check(&mut lines, options).map_err(|problem| problem.at_line(lines.number.max(1)))
}

fn check(lines: &mut Lines<impl BufRead>, options: &VerifyOptions) -> Result<Report, Problem> {
    let header = header(lines).map_err(Problem::whole)?;
    let session = header.session.as_deref().map(Into::into);
    let mut verifier = Verifier::of_export(options, session, &header.keys);
    loop {
        let before = lines.digest.clone();
        let line = lines.next().map_err(Problem::whole)?.ok_or(Problem::whole(What::Cut))?;
        match frame::read_line(line).ok_or_else(|| Problem::whole(What::Line))? {
            Line::Event(hash, body) => verifier.event(&hash, body)?,
            Line::End(end) => {
                end_fits(&end, &header, before, verifier.events()).map_err(Problem::whole)?;
                if lines.next().map_err(Problem::whole)?.is_some() {
                    return Err(Problem::whole(What::AfterEnd));
                }
                return verifier.finish_export(end.key.as_deref());
            }
        }
    }
}

fn header(lines: &mut Lines<impl BufRead>) -> Result<Header, What> {
    let header = lines.next()?.and_then(frame::read_header).ok_or(What::NoHeader)?;
    if header.countersign != "export" {
        return Err(What::NoHeader);
    }
    if header.v != VERSION {
        return Err(What::Version(header.v));
    }
    Ok(header)
}

/// Whether the end mark is that of the lines before it, and signed as the header says.
fn end_fits(end: &End, header: &Header, digest: Sha256, events: u64) -> Result<(), What> {
    if end.events != events {
        return Err(What::Count { marked: end.events, found: events });
    }
    let mut found = String::with_capacity(64);
    push_hex(&mut found, &digest.finalize());
    if end.digest != found {
        return Err(What::Digest);
    }
    let signed = match (&end.key, &end.signature) {
        (Some(key), Some(signature)) => signer::verify(key, &end.digest, signature),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    if !signed || end.key != header.signer {
        return Err(What::EndSignature);
    }
    Ok(())
}

/// A file, read line by line.
struct Lines<R> {
    reader: R,
    text: Vec<u8>,
    number: u64,
    /// The digest of every line so far.
    digest: Sha256,
}

impl<R: BufRead> Lines<R> {
    /// The next line with its newline, or none at the end.
    fn next(&mut self) -> Result<Option<&str>, What> {
        self.text.clear();
        let mut bounded = (&mut self.reader).take(LINE_BYTES as u64);
        bounded.read_until(b'\n', &mut self.text).map_err(|error| What::Unreadable(error.to_string()))?;
        if self.text.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        self.digest.update(&self.text);
        if self.text.last() != Some(&b'\n') {
            return Err(if self.text.len() < LINE_BYTES { What::Cut } else { What::LongLine(LINE_BYTES) });
        }
        std::str::from_utf8(&self.text).map(Some).map_err(|_| What::Line)
    }
}
