//! Opens the person's browser with a link that nobody else may see.
//!
//! Arguments of a process are open to every user of the machine. So the browser is given a page that only its owner may
//! read, and the page leads on to the link.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::NamedTempFile;
use tokio::process::Command;

/// How long a browser may take to read the page before it is deleted.
const READ_WITHIN: Duration = Duration::from_secs(30);

#[cfg(target_os = "macos")]
const OPENER: &str = "/usr/bin/open";
#[cfg(not(target_os = "macos"))]
const OPENER: &str = "xdg-open";

/// Whether there is a screen to open a browser on.
pub(crate) fn has_screen() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value: OsString| !value.is_empty());
    cfg!(target_os = "macos") || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}

/// The program that opens links, where there is one.
pub(crate) fn opener() -> Option<PathBuf> {
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    // An absolute path is itself, whatever folder it is joined to.
    folders.iter().map(|folder| folder.join(OPENER)).find(|path| path.is_file())
}

/// Opens a link by way of a page in a private folder. The page is deleted soon after, and when we end.
pub(crate) fn open(link: &str, folder: &Path) -> io::Result<()> {
    let page = write_page(link, folder)?;
    let mut command = command(OPENER, page.path());
    let mut opener = command.spawn()?;
    tokio::spawn(async move {
        // When the runtime ends earlier, the page is dropped with this task.
        tokio::time::sleep(READ_WITHIN).await;
        drop(page);
        // The opener may be the browser itself, and stay.
        let _ = opener.wait().await;
    });
    Ok(())
}

fn command(opener: &str, page: &Path) -> Command {
    let mut command = Command::new(opener);
    command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // In a group of its own: Ctrl-C ends the server, not the browser.
    #[cfg(unix)]
    command.process_group(0);
    command
}

fn write_page(link: &str, folder: &Path) -> io::Result<NamedTempFile> {
    // A temporary file is made 0600, and its name cannot be guessed.
    let mut page = tempfile::Builder::new().prefix("sign-in-").suffix(".html").tempfile_in(folder)?;
    page.write_all(html(link).as_bytes())?;
    Ok(page)
}

fn html(link: &str) -> String {
    let link = link.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    format!("<!doctype html><title>Countersign</title><meta http-equiv=\"refresh\" content=\"0;url={link}\">\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_cannot_break_out_of_the_page() {
        let page = html("http://a/\"><script>&");
        assert!(page.contains("url=http://a/&quot;>&lt;script>&amp;\">"), "{page}");
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_reads_the_page_or_sees_the_link_in_arguments() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let page = write_page("http://127.0.0.1:1/sign-in#secret", folder.path()).unwrap();
        assert_eq!(std::fs::metadata(page.path()).unwrap().permissions().mode() & 0o777, 0o600);
        let command = command(OPENER, page.path());
        assert!(command.as_std().get_args().all(|arg| !arg.to_string_lossy().contains("secret")));
        let path = page.path().to_owned();
        drop(page);
        assert!(!path.exists());
    }
}
