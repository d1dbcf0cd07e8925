//! What a person typed in earlier conversations: one file for each store and prompt, that only its owner may read.

use std::path::{Path, PathBuf};

use crate::fault::Fault;
use crate::home::{Home, make_private_folder, read_private, write_private};
use crate::out;

/// The folder's name in the data folder.
const FOLDER: &str = "history";
/// Lines that are kept; what is older is forgotten.
const MOST_LINES: usize = 1_000;
/// Bytes that are kept, of all lines together. Well below what a private file may hold.
const MOST_BYTES: usize = 256 * 1024;

/// Lines that were typed, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Past {
    lines: Vec<String>,
    file: Option<PathBuf>,
}

impl Past {
    /// What was typed at a prompt of this name, about this store. Without its file it is kept until the end only.
    pub(crate) fn of(home: &Home, store: &str, name: &str) -> Past {
        match file(home, store, name).and_then(|file| Ok((read(&file)?, file))) {
            Ok((lines, file)) => Past { lines, file: Some(file) },
            Err(fault) => {
                out::warn(format_args!("what you type is not kept: {fault}"));
                Past::default()
            }
        }
    }

    /// The line that was typed so many lines ago; the last one is 1.
    pub(crate) fn ago(&self, count: usize) -> Option<&str> {
        let at = self.lines.len().checked_sub(count)?;
        self.lines.get(at).map(String::as_str)
    }

    /// Keeps a line, unless it begins with a blank, says nothing, or says the same again.
    pub(crate) fn keep(&mut self, line: &str) {
        if line.starts_with(char::is_whitespace) || line.is_empty() || self.ago(1) == Some(line) {
            return;
        }
        let line = line.to_owned();
        let Some(file) = &self.file else { return self.lines.push(line) };
        // Another terminal may have added lines meanwhile.
        let kept = read(file).and_then(|mut lines| {
            lines.push(line.clone());
            shorten(&mut lines);
            write_private(file, &written(&lines)).map(|()| lines)
        });
        match kept {
            Ok(lines) => self.lines = lines,
            Err(fault) => {
                out::warn(format_args!("what you type is no longer kept: {fault}"));
                self.file = None;
                self.lines.push(line);
            }
        }
    }
}

/// A store's address may hold a password, so it is not in the name of the file.
fn file(home: &Home, store: &str, name: &str) -> Result<PathBuf, Fault> {
    use sha2::Digest as _;
    let folder = home.data_folder()?.join(FOLDER);
    make_private_folder(&folder)?;
    let digest = sha2::Sha256::digest(store.as_bytes());
    let short: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(folder.join(format!("{short}-{name}")))
}

fn read(file: &Path) -> Result<Vec<String>, Fault> {
    let text = read_private(file)?.unwrap_or_default();
    // A line that cannot be read is one we did not write.
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// One JSON string a line, since what was pasted may have lines of its own.
fn written(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{}\n", serde_json::Value::from(line.as_str()))).collect()
}

fn shorten(lines: &mut Vec<String>) {
    let mut room = MOST_BYTES;
    let fits = lines.iter().rev().take(MOST_LINES).take_while(|line| {
        let bytes = line.len();
        let fits = bytes <= room;
        room = room.saturating_sub(bytes);
        fits
    });
    let fits = fits.count();
    lines.drain(..lines.len() - fits);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_that_fit_are_kept() {
        let mut lines: Vec<String> = (0..MOST_LINES + 5).map(|line| line.to_string()).collect();
        shorten(&mut lines);
        assert_eq!((lines.len(), lines[0].as_str()), (MOST_LINES, "5"));
        let mut lines = vec!["x".repeat(MOST_BYTES), "y".repeat(10), "z".to_owned()];
        shorten(&mut lines);
        assert_eq!(lines, ["y".repeat(10), "z".to_owned()]);
    }

    #[test]
    fn blanks_and_repeats_are_not_kept() {
        let mut past = Past::default();
        for line in ["one", "one", " secret", "", "two"] {
            past.keep(line);
        }
        assert_eq!((past.ago(1), past.ago(2), past.ago(3), past.ago(0)), (Some("two"), Some("one"), None, None));
    }
}
