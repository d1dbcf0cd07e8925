//! Where a path may lead, and what stays out of reach by any name.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use countersign_agent::tools::{ListFiles, ReadFile, SearchFiles, WriteFile};
use serde_json::json;

use super::World;

#[tokio::test]
async fn no_path_leads_out_of_the_workspace() {
    let world = World::new();
    std::fs::write(world.outside("secret"), "s").unwrap();
    symlink(world.outside("secret"), world.work("absolute")).unwrap();
    symlink("../outside/secret", world.work("relative")).unwrap();
    symlink(world.outside(""), world.work("folder")).unwrap();
    symlink("round", world.work("round")).unwrap();
    let (read, write) = (ReadFile::new(&world.workspace()), WriteFile::new(&world.workspace()));
    let outside = world.outside("secret").display().to_string();
    let beside = format!("{}-evil/x", world.work("").display().to_string().trim_end_matches('/'));
    let hostile = ["../outside/secret", "a/../../outside/secret", &outside, &beside, "absolute", "relative"];
    for path in hostile.into_iter().chain(["folder/secret", "round", "/etc/passwd", "/", "a\0b", "~/x"]) {
        let error = world.failure(&read, json!({ "path": path })).await;
        let named = ["../outside/secret", "absolute", "relative", "folder/secret", "/etc/passwd"].contains(&path);
        assert!(!named || error.contains("is outside the workspace"), "{path}: {error}");
        let call = world.call(&write, json!({ "path": path, "content": "x" })).await;
        assert_eq!(call.state, countersign::CallState::Failed, "{path}");
    }
    assert_eq!(std::fs::read_to_string(world.outside("secret")).unwrap(), "s");
    assert_eq!(std::fs::read_dir(world.outside("")).unwrap().count(), 1);
}

#[tokio::test]
async fn links_that_stay_inside_are_followed() {
    let world = World::new();
    world.write("real/a.txt", "hi\n");
    symlink("real", world.work("link")).unwrap();
    symlink(world.work("link/a.txt").canonicalize().unwrap(), world.work("file")).unwrap();
    symlink("real/new.txt", world.work("dangling")).unwrap();
    let read = ReadFile::new(&world.workspace());
    for path in ["link/a.txt", "file", "real/../link/a.txt"] {
        assert_eq!(world.answer(&read, json!({ "path": path })).await["content"], "hi\n", "{path}");
    }
    let write = WriteFile::new(&world.workspace());
    world.answer(&write, json!({ "path": "dangling", "content": "new" })).await;
    assert_eq!(world.read("real/new.txt"), "new");
    assert!(world.work("dangling").is_symlink());
}

#[tokio::test]
async fn a_further_folder_is_reached_only_when_allowed() {
    let world = World::new();
    std::fs::write(world.outside("a"), "hi").unwrap();
    let workspace = world.workspace().with_folder(world.outside("")).unwrap();
    let path = world.outside("").canonicalize().unwrap().join("a");
    let read = ReadFile::new(&workspace);
    assert_eq!(world.answer(&read, json!({ "path": path })).await["content"], "hi\n");
    assert_eq!(workspace.root(), world.work("").canonicalize().unwrap());
}

/// Configuration, store and keys stay out of reach: by their names, by links, by hard links, by another letter case,
/// and before they exist.
#[tokio::test]
async fn protected_files_are_out_of_reach_by_any_name() {
    let world = World::new();
    world.write("countersign.yml", "policy: 1");
    world.write("keys/signing.pem", "key");
    world.write("store/db", "rows");
    symlink("countersign.yml", world.work("link")).unwrap();
    symlink("keys", world.work("folder")).unwrap();
    std::fs::hard_link(world.work("countersign.yml"), world.work("hard")).unwrap();
    let workspace = world.workspace().protect("countersign.yml").protect("keys").protect_database("store/db");
    let (read, write) = (ReadFile::new(&workspace), WriteFile::new(&workspace));
    let names = ["countersign.yml", "Countersign.YML", "./store/../countersign.yml", "link", "hard"];
    let others = ["keys/signing.pem", "keys/new", "folder/signing.pem", "store/db", "store/db-wal", "store/DB-shm"];
    for path in names.into_iter().chain(others) {
        let error = world.failure(&write, json!({ "path": path, "content": "x" })).await;
        assert!(error.contains("is protected"), "{path}: {error}");
        let error = world.failure(&read, json!({ "path": path })).await;
        assert!(error.contains("is protected"), "{path}: {error}");
    }
    assert_eq!((world.read("hard").as_str(), world.read("keys/signing.pem").as_str()), ("policy: 1", "key"));
    let search = world.answer(&SearchFiles::new(&workspace), json!({ "pattern": "policy|key|rows" })).await;
    assert_eq!(search["lines"], json!([]));
    let listed = world.answer(&ListFiles::new(&workspace), json!({ "path": "." })).await;
    assert!(!listed["files"].to_string().contains("signing.pem"), "{listed}");
}

#[tokio::test]
async fn a_pipe_is_refused_and_never_waited_for() {
    let world = World::new();
    let made = std::process::Command::new("mkfifo").arg(world.work("pipe")).status().unwrap();
    assert!(made.success());
    symlink("/dev/zero", world.work("device")).unwrap();
    let read = ReadFile::new(&world.workspace());
    assert!(world.failure(&read, json!({ "path": "pipe" })).await.contains("neither a file nor a folder"));
    assert!(world.failure(&read, json!({ "path": "device" })).await.contains("outside the workspace"));
    world.answer(&SearchFiles::new(&world.workspace()), json!({ "pattern": "x" })).await;
    let write = WriteFile::new(&world.workspace());
    assert!(world.failure(&write, json!({ "path": "pipe", "content": "x" })).await.contains("neither a file"));
}

#[tokio::test]
async fn hostile_names_are_only_names() {
    let world = World::new();
    let write = WriteFile::new(&world.workspace());
    for name in ["-rf", "a b", "$(x)", "new\nline", "\u{202e}txt", "*", "…", "a\\b"] {
        world.answer(&write, json!({ "path": name, "content": name })).await;
        assert_eq!(world.read(name), name);
    }
    let long = "x".repeat(300);
    world.failure(&write, json!({ "path": long, "content": "" })).await;
    let deep = "a/".repeat(2_000) + "b";
    world.failure(&write, json!({ "path": deep, "content": "", "create_dirs": true })).await;
}

/// A folder that is swapped for a link again and again never leads a write outside.
#[tokio::test]
async fn a_swapped_folder_never_leads_outside() {
    let world = World::new();
    world.write("dir/keep", "");
    let stop = Arc::new(AtomicBool::new(false));
    let (dir, parked, outside, stopped) =
        (world.work("dir"), world.work("parked"), world.outside(""), Arc::clone(&stop));
    let swapper = std::thread::spawn(move || {
        let mut swaps = 0_u64;
        while !stopped.load(Ordering::Relaxed) {
            std::fs::rename(&dir, &parked).unwrap();
            symlink(&outside, &dir).unwrap();
            std::fs::remove_file(&dir).unwrap();
            std::fs::rename(&parked, &dir).unwrap();
            swaps += 1;
        }
        swaps
    });
    let write = WriteFile::new(&world.workspace());
    let mut written = 0;
    for number in 0..300 {
        let call = world.call(&write, json!({ "path": format!("dir/{number}"), "content": "x" })).await;
        written += u32::from(call.state == countersign::CallState::Succeeded);
    }
    stop.store(true, Ordering::Relaxed);
    let swaps = swapper.join().unwrap();
    assert_eq!(std::fs::read_dir(world.outside("")).unwrap().count(), 0, "{written} writes, {swaps} swaps");
    assert!(swaps > 0);
}
