//! Where PostgreSQL's programs are. Uses std only: `xtask` includes this file too, and depends on no crate of ours.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the folder that holds `initdb` and `postgres`, when set.
pub const VARIABLE: &str = "COUNTERSIGN_PG_BINDIR";

/// What to do when PostgreSQL is nowhere to be found.
pub const HOW_TO_GET_IT: &str = "PostgreSQL's programs (`initdb`, `postgres`, `createdb`, `dropdb`, `pg_isready`) were not found. \
    Run `cargo xtask setup`; or install them (Debian, Ubuntu: `apt-get install postgresql`; Fedora: `dnf install \
    postgresql-server`; macOS: `brew install postgresql`); or set COUNTERSIGN_PG_BINDIR to the folder they are in.";

/// Finds the folder with PostgreSQL's programs: the variable, then `pg_config`, then Debian's folders, then the path.
pub fn find() -> Option<PathBuf> {
    // A folder named on purpose is never passed over for another one.
    if let Some(named) = env::var_os(VARIABLE) {
        return Some(PathBuf::from(named)).filter(|folder| is_complete(folder));
    }
    from_pg_config().into_iter().chain(debian()).chain(path()).find(|folder| is_complete(folder))
}

fn is_complete(folder: &Path) -> bool {
    ["initdb", "postgres", "createdb", "dropdb", "pg_isready"].iter().all(|program| folder.join(program).is_file())
}

fn from_pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(text.trim()))
}

/// Debian keeps a folder for each major version; the newest comes first.
fn debian() -> Vec<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<_> =
        versions.map(|version| (major(&version.file_name()), version.path().join("bin"))).collect();
    folders.sort_by(|a, b| b.cmp(a));
    folders.into_iter().map(|(_, folder)| folder).collect()
}

fn major(version: &OsStr) -> u32 {
    version.to_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn path() -> Vec<PathBuf> {
    env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default()
}
