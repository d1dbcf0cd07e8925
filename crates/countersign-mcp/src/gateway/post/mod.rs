//! A server at an address: every message to it is a POST, and what it says comes back in answers and streams.

mod address;
mod budget;
mod headers;
mod nearby;
#[cfg(test)]
mod tests;
mod wire;

pub use address::{Address, BadAddress};
pub(super) use budget::Budget;
pub(super) use headers::{Mirrored, decoded, mirrored, name_of};
pub(super) use wire::{Exchanging, Heard, Wire};

/// Makes a message one line. Line breaks in JSON stand between its parts only, so nothing is changed but blanks.
pub(super) fn one_line(text: String) -> String {
    match text.contains(['\n', '\r']) {
        true => text.replace(['\n', '\r'], " "),
        false => text,
    }
}
