//! The web page of Countersign: built by `build.rs` from `web/`, embedded into the program.
//!
//! ```
//! let page = countersign_ui::asset("index.html").expect("there is always a page");
//! assert_eq!(page.mime, "text/html; charset=utf-8");
//! ```

use std::borrow::Cow;

/// A file of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    /// What is in it.
    pub bytes: Cow<'static, [u8]>,
    /// Its media type, with the character set where it is text.
    pub mime: Cow<'static, str>,
}

/// Finds a file of the page by its path without the leading `/`: `index.html`, `assets/…`.
///
/// Names in `assets/` change with their content and may be kept for ever. There is always an `index.html`: where the
/// page was left out of the build it says how to get it.
pub fn asset(path: &str) -> Option<Asset> {
    let file = <Files as rust_embed::RustEmbed>::get(path)?;
    let mime = file.metadata.mimetype();
    let charset = if mime.starts_with("text/") { "; charset=utf-8" } else { "" };
    Some(Asset { bytes: file.data, mime: Cow::Owned(format!("{mime}{charset}")) })
}

#[derive(rust_embed::RustEmbed)]
#[folder = "$OUT_DIR/dist"]
struct Files;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_a_page() {
        let page = asset("index.html").unwrap();
        assert_eq!(page.mime, "text/html; charset=utf-8");
        assert!(page.bytes.starts_with(b"<!doctype html>"));
    }

    #[test]
    fn nothing_but_the_page_is_found() {
        for path in ["", "/", "/index.html", "../Cargo.toml", "..%2fCargo.toml", "assets/../index.html", "nothing.js"] {
            assert_eq!(asset(path), None, "{path}");
        }
    }

    /// Files that the page names must be there, or it is a white screen.
    #[test]
    fn every_file_the_page_names_is_embedded() {
        let page = asset("index.html").unwrap();
        let text = String::from_utf8(page.bytes.into_owned()).unwrap();
        let named = text.split('"').filter_map(|part| part.strip_prefix("/")).filter(|part| part.contains('.'));
        for path in named {
            assert!(asset(path).is_some(), "{path}");
        }
    }
}
