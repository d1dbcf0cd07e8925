//! Places: where in the file system a call's arguments point, as its tool resolved them.
//!
//! The gate never touches the file system, so it cannot tell where a link leads. The tool can: it resolves links and
//! paths that do not exist yet before the call is frozen, and the answer is frozen with it. Folder grants look at
//! places alone, never at the argument's own spelling; a tool that reports none gets no folder grant.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::json::write_string;
use crate::limits;

/// Where one argument points, after every link was followed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A file, there or not yet; or a folder that is not meant with all that is in it.
    File(String),
    /// A folder, with all that is in it.
    Folder(String),
}

impl Place {
    /// The path, as the tool resolved it.
    pub fn path(&self) -> &str {
        match self {
            Place::File(path) | Place::Folder(path) => path,
        }
    }

    /// The folder a grant for this place is about: its own, where it is one, else the one it lies in.
    ///
    /// None where the path is not fully resolved, and where that folder is the root: it holds everything.
    pub fn folder(&self) -> Option<&Path> {
        let path = resolved(self.path())?;
        let folder = match self {
            Place::File(_) => path.parent()?,
            Place::Folder(_) => path,
        };
        folder.parent().map(|_| folder)
    }

    /// Whether a grant made for this place covers another: the same place, or one below this one's folder.
    ///
    /// By whole components, so `/a/bc` is not below `/a/b`. The folder itself is not below itself: who may delete
    /// what is in a folder may not delete the folder.
    pub fn covers(&self, other: &Place) -> bool {
        let (Some(folder), Some(path)) = (self.folder(), resolved(other.path())) else { return false };
        self == other || (path != folder && path.starts_with(folder))
    }
}

/// A path, if it is absolute and spelled in the one way that a resolved path is.
fn resolved(path: &str) -> Option<&Path> {
    if path.len() > limits::PLACE_BYTES || path.contains('\0') {
        return None;
    }
    let read = Path::new(path);
    let plain = read.components().all(|component| !matches!(component, Component::ParentDir | Component::CurDir));
    // Reading drops doubled and trailing separators and inner `.`: a path that changes by it was not resolved.
    let same = read.components().collect::<PathBuf>().as_os_str() == read.as_os_str();
    (read.is_absolute() && plain && same).then_some(read)
}

/// The places of one call, by the argument that points there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Places(BTreeMap<String, Place>);

impl Places {
    /// The place of one argument alone.
    pub fn one(field: impl Into<String>, place: Place) -> Places {
        Places(BTreeMap::from([(field.into(), place)]))
    }

    /// Adds the place of a further argument.
    #[must_use]
    pub fn and(mut self, field: impl Into<String>, place: Place) -> Places {
        self.0.insert(field.into(), place);
        self
    }

    /// Where an argument points.
    pub fn get(&self, field: &str) -> Option<&Place> {
        self.0.get(field)
    }

    /// Whether the tool reported none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, sorted by argument.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Place)> {
        self.0.iter().map(|(field, place)| (field.as_str(), place))
    }

    /// Keeps what is fully resolved and fit to be written down; too many are none.
    pub(crate) fn kept(mut self, fit: impl Fn(&str, &Place) -> bool) -> Places {
        if self.0.len() > limits::PLACES {
            return Places::default();
        }
        self.0.retain(|field, place| {
            field.len() <= limits::NAME_BYTES && resolved(place.path()).is_some() && fit(field, place)
        });
        self
    }

    /// Appends them as canonical JSON.
    pub(crate) fn write(&self, out: &mut String) {
        out.push('{');
        for (index, (field, place)) in self.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            write_string(out, field);
            out.push_str(match place {
                Place::File(_) => ":{\"file\":",
                Place::Folder(_) => ":{\"folder\":",
            });
            write_string(out, place.path());
            out.push('}');
        }
        out.push('}');
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn file(path: &str) -> Place {
        Place::File(path.into())
    }

    fn folder(path: &str) -> Place {
        Place::Folder(path.into())
    }

    #[track_caller]
    fn check(made_for: &Place, other: &Place, expected: bool) {
        assert_eq!(made_for.covers(other), expected, "{made_for:?} {other:?}");
    }

    /// B67: a child is covered, at any depth; a sibling folder, a look-alike prefix and the folder itself are not.
    #[test]
    fn a_folder_reaches_its_children_by_whole_components() {
        let made_for = file("/a/b/one.txt");
        for inside in ["/a/b/one.txt", "/a/b/two.txt", "/a/b/deep/er.txt", "/a/b/..hidden", "/a/b/…"] {
            check(&made_for, &file(inside), true);
        }
        for outside in ["/a/c/one.txt", "/a/bc/one.txt", "/a/b", "/a", "/", "/b/a/b/one.txt", "/A/b/one.txt"] {
            check(&made_for, &file(outside), false);
            check(&made_for, &folder(outside), false);
        }
        check(&folder("/a/b"), &folder("/a/b"), true);
        check(&folder("/a/b"), &folder("/a/b/c"), true);
        check(&folder("/a/b"), &file("/a/b"), false);
        check(&folder("/a/b"), &folder("/a"), false);
    }

    /// B67: what is not fully resolved covers nothing and is covered by nothing.
    #[test]
    fn an_unresolved_path_matches_nothing() {
        let long = format!("/a/b/{}", "x".repeat(limits::PLACE_BYTES));
        let loose = [
            "",
            ".",
            "..",
            "b/one.txt",
            "./one.txt",
            "~/one.txt",
            "/a/b/../c",
            "/a/b/..",
            "/a/b/./c",
            "/a//b/c",
            "/a/b/",
            "//a/b/c",
            "/a/b/c\0d",
            &long,
        ];
        for path in loose {
            check(&file("/a/b/one.txt"), &file(path), false);
            check(&file(path), &file(path), false);
            check(&folder(path), &file("/a/b/one.txt"), false);
        }
    }

    /// B67: the root holds everything, so no grant is made for it.
    #[test]
    fn the_root_is_no_folder_to_grant() {
        assert_eq!(file("/one.txt").folder(), None);
        assert_eq!(folder("/").folder(), None);
        assert_eq!(folder("/a").folder(), Some(Path::new("/a")));
    }

    #[test]
    fn places_are_bounded_and_written_in_one_way() {
        let places = Places::one("to", folder("/x/\"y")).and("from", file("/b/c"));
        let mut text = String::new();
        places.write(&mut text);
        assert_eq!(text, r#"{"from":{"file":"/b/c"},"to":{"folder":"/x/\"y"}}"#);
        assert_eq!(text, crate::json::Json::of(&places).unwrap().as_str());
        assert_eq!(serde_json::from_str::<Places>(&text).unwrap(), places);
        let kept = places.clone().and("loose", file("b")).kept(|field, _| field != "to");
        assert_eq!(kept, Places::one("from", file("/b/c")));
        let many = (0..=limits::PLACES).fold(places, |places, n| places.and(n.to_string(), file("/a/b")));
        assert!(many.kept(|_, _| true).is_empty());
    }
}
