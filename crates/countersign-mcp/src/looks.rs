//! Names that a person may take for one another.

use unicode_security::confusable_detection::skeleton;

/// What a name looks like: names of one look differ only in case or in letters that are drawn the same.
pub(crate) fn look(name: &str) -> String {
    skeleton(&name.to_lowercase()).collect::<String>().to_lowercase()
}
