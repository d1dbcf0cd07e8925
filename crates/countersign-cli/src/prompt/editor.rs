//! The person's own editor, for arguments that are long to type into a box.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, Stdio};

use countersign::Limits;

/// Lets the person change a text in `$VISUAL`, else `$EDITOR`; else says why it did not work.
///
/// The terminal must not be in our hands meanwhile.
pub(crate) async fn edit(text: String) -> Result<String, String> {
    let named = |name| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR"));
    let editor = editor.ok_or("Set VISUAL or EDITOR to the name of your editor first.")?;
    let edited = tokio::task::spawn_blocking(move || edit_with(&editor, &text)).await;
    edited.unwrap_or_else(|error| Err(error.to_string()))
}

fn edit_with(editor: &str, text: &str) -> Result<String, String> {
    // For us alone, under a name nobody can guess, and gone when it is dropped: arguments are not for other users.
    let file = tempfile::Builder::new().prefix("countersign-").suffix(".json").tempfile();
    let mut file = file.map_err(|error| format!("there is no place to edit it in: {error}"))?;
    file.write_all(text.as_bytes()).map_err(|error| format!("it cannot be written to a file: {error}"))?;
    // By a shell, as everybody does: the variable may hold options.
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(file.path());
    // What it draws is for the person, not for whoever reads our output.
    if let Ok(screen) = io::stderr().as_fd().try_clone_to_owned() {
        command.stdout(Stdio::from(screen));
    }
    match command.status() {
        Err(error) => Err(format!("your editor cannot be started: {error}")),
        Ok(status) if !status.success() => Err(format!("your editor ended with {status}: nothing is changed")),
        Ok(_) => read(file.path()).map_err(|error| format!("what you wrote cannot be read: {error}")),
    }
}

/// Reads by name: many editors write another file and give it the name.
fn read(path: &Path) -> io::Result<String> {
    // Blanks and escapes may make a text longer than what it says, but not without end.
    let most = Limits::default().argument_bytes as u64 * 8;
    let mut text = String::new();
    File::open(path)?.take(most).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_editor_changes_the_text_and_leaves_no_file() {
        assert_eq!(edit_with("sed -i s/Bo/Ann/", "{\"to\":\"Bo\"}\n").unwrap(), "{\"to\":\"Ann\"}\n");
        let path = edit_with("sh -c 'echo \"$1\" > \"$1\"' sh", "x").unwrap();
        assert!(!Path::new(path.trim()).exists(), "{path}");
    }

    #[test]
    fn an_editor_that_fails_changes_nothing() {
        for editor in ["false", "no-such-editor-anywhere"] {
            let why = edit_with(editor, "x").unwrap_err();
            assert!(why.contains("nothing is changed"), "{why}");
        }
    }
}
