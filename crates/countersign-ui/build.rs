//! Builds the web page into `$OUT_DIR/dist`. Nothing is ever written to the source tree.
//!
//! `COUNTERSIGN_UI_DIST=DIR` takes a ready bundle. `COUNTERSIGN_UI_SKIP=1`, `DOCS_RS`, a missing `web/` or a missing
//! npm give a page that says how to get the real one: the server works without it.
#![allow(clippy::print_stdout, reason = "this is how a build script speaks to cargo")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// What of `web/` the bundle is made from.
const SOURCES: [&str; 9] = [
    "src",
    "public",
    "index.html",
    "package.json",
    "package-lock.json",
    ".npmrc",
    "vite.config.ts",
    "svelte.config.js",
    "tsconfig.json",
];
/// The lock file that `node_modules` was last filled from, kept beside it.
const STAMP: &str = "installed-lock.json";

fn main() -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?);
    let dist = out.join("dist");
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    watch(&web);
    forget(&dist)?;
    if let Some(ready) = env::var_os("COUNTERSIGN_UI_DIST") {
        println!("cargo::rerun-if-changed={}", Path::new(&ready).display());
        return copy(Path::new(&ready), &dist);
    }
    match bundle(&web, &out, &dist) {
        Ok(()) => Ok(()),
        Err(why) => {
            println!("cargo::warning=the web page is left out: {why}");
            forget(&dist)?;
            fs::create_dir_all(&dist)?;
            fs::write(dist.join("index.html"), include_str!("src/placeholder.html"))
        }
    }
}

fn watch(web: &Path) {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/placeholder.html");
    for variable in ["COUNTERSIGN_UI_DIST", "COUNTERSIGN_UI_SKIP", "DOCS_RS"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    // A path that does not exist would make cargo run this on every build.
    for source in SOURCES.iter().map(|source| web.join(source)).filter(|source| source.exists()) {
        println!("cargo::rerun-if-changed={}", source.display());
    }
}

fn bundle(web: &Path, out: &Path, dist: &Path) -> Result<(), String> {
    if ["COUNTERSIGN_UI_SKIP", "DOCS_RS"].iter().any(|name| env::var_os(name).is_some_and(|value| value != "0")) {
        return Err("COUNTERSIGN_UI_SKIP or DOCS_RS is set".to_owned());
    }
    let lock = fs::read(web.join("package-lock.json")).map_err(|_| "there is no web/package-lock.json".to_owned())?;
    let work = out.join("web");
    let copied = SOURCES.iter().try_for_each(|source| refresh(&web.join(source), &work.join(source)));
    copied.map_err(|error| format!("copying web/: {error}"))?;
    install(&work, &lock)?;
    let vite = Path::new("node_modules/vite/bin/vite.js").as_os_str();
    run("node", &[vite, "build".as_ref(), "--emptyOutDir".as_ref(), "--outDir".as_ref(), dist.as_os_str()], &work)
}

/// Fills `node_modules` where the lock file is another one than the last time.
fn install(work: &Path, lock: &[u8]) -> Result<(), String> {
    let stamp = work.join(STAMP);
    if fs::read(&stamp).is_ok_and(|last| last == lock) {
        return Ok(());
    }
    let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
    run(npm, &["ci", "--no-audit", "--no-fund", "--ignore-scripts"].map(OsStr::new), work)?;
    fs::write(&stamp, lock).map_err(|error| format!("writing {}: {error}", stamp.display()))
}

fn run(program: &str, arguments: &[&OsStr], folder: &Path) -> Result<(), String> {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.map_err(|error| format!("`{program}` cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing").to_owned();
    Err(format!("`{program}` failed: {last}"))
}

/// Replaces a file or folder by a copy of another.
fn refresh(from: &Path, to: &Path) -> io::Result<()> {
    forget(to)?;
    if from.exists() { copy(from, to) } else { Ok(()) }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

fn forget(path: &Path) -> io::Result<()> {
    let gone = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match gone {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
