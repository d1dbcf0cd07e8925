//! The file: private, ours, whole, and never overwritten.

use std::fs;
use std::path::{Path, PathBuf};

use countersign::store::Store as _;
use countersign::testing::{proposal, submit};
use countersign_store::{ConnectError, SqliteStore, connect};
use rusqlite::Connection;
use serde_json::json;

use super::TestSqlite;

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("countersign.db");
    (folder, path)
}

async fn refused(path: &Path) -> ConnectError {
    match SqliteStore::open(path).await {
        Ok(_) => panic!("`{}` must be refused", path.display()),
        Err(error) => error,
    }
}

/// CONTRACT, config: `memory:`, `sqlite:PATH` or `postgres://…`, and nothing else.
#[tokio::test]
async fn an_address_names_its_store() {
    let (_folder, path) = folder();
    assert!(!connect("memory:").await.unwrap().is_shared());
    assert!(connect(&format!("sqlite:{}", path.display())).await.unwrap().is_shared());
    assert!(path.exists());
    for wrong in ["", "sqlite", "mysql://x", "countersign.db", "memory"] {
        assert!(matches!(connect(wrong).await, Err(ConnectError::Address(_))), "{wrong}");
    }
    assert!(matches!(connect("sqlite:").await, Err(ConnectError::File { .. })));
}

/// Safety 2, files: directory 0700, files 0600, whatever the umask.
#[cfg(unix)]
#[tokio::test]
async fn what_we_make_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, _) = folder();
    let path = folder.path().join("new/deep/countersign.db");
    let store = SqliteStore::open(&path).await.unwrap();
    submit(&store, proposal("rm", json!({}), "s")).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for file in ["countersign.db", "countersign.db-wal", "countersign.db-shm"] {
        assert_eq!(mode(&path.with_file_name(file)), 0o600, "{file}");
    }
    assert_eq!(mode(&folder.path().join("new/deep")), 0o700);
    assert_eq!(mode(&folder.path().join("new")), 0o700);
}

/// Safety 2, files: a link, a folder, or a file others may open is refused by name, and left as it is.
#[cfg(unix)]
#[tokio::test]
async fn what_others_may_touch_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, path) = folder();
    drop(SqliteStore::open(&path).await.unwrap());
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let error = refused(&link).await;
    assert!(matches!(error, ConnectError::Unsafe { .. }));
    assert!(error.to_string().contains("link.db"), "{error}");
    let dangling = folder.path().join("dangling.db");
    std::os::unix::fs::symlink(folder.path().join("nowhere"), &dangling).unwrap();
    assert!(matches!(refused(&dangling).await, ConnectError::Unsafe { .. }));
    assert!(!folder.path().join("nowhere").exists());
    fs::create_dir(folder.path().join("folder.db")).unwrap();
    assert!(matches!(refused(&folder.path().join("folder.db")).await, ConnectError::Unsafe { .. }));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let error = refused(&path).await;
    assert!(error.to_string().contains("chmod 600"), "{error}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    SqliteStore::open(&path).await.unwrap();
}

/// Gives a file or link to somebody else; only root can, and others need not: a link of one's own is refused as well.
#[cfg(unix)]
fn give_away(path: &Path) -> bool {
    std::os::unix::fs::lchown(path, Some(65_534), Some(65_534)).is_ok()
}

/// Safety 2, files: no link in the path, and no folder that others may write.
#[cfg(unix)]
#[tokio::test]
async fn a_folder_that_others_may_change_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, _) = folder();
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let real = folder.path().join("real");
    fs::create_dir(&real).unwrap();
    for open in [0o777, 0o775, 0o1777] {
        mode(&real, open);
        let error = refused(&real.join("a.db")).await;
        assert!(matches!(error, ConnectError::Unsafe { .. }), "{open:o}: {error}");
        assert!(error.to_string().contains("chmod go-w"), "{error}");
        assert!(!real.join("a.db").exists(), "nothing is made there");
    }
    mode(&real, 0o755);
    drop(SqliteStore::open(real.join("a.db")).await.unwrap());
    // Above it, a sticky folder such as `/tmp` is good enough; a plain open one is not.
    let below = real.join("below");
    for (above, sound) in [(0o1777, true), (0o777, false)] {
        mode(&real, above);
        assert_eq!(SqliteStore::open(below.join("a.db")).await.is_ok(), sound, "{above:o}");
    }
    mode(&real, 0o700);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    give_away(&link);
    for path in [link.join("a.db"), link.join("deeper/a.db")] {
        let error = refused(&path).await;
        assert!(matches!(error, ConnectError::Unsafe { .. }), "{error}");
        assert!(error.to_string().contains(&*real.to_string_lossy()), "it says what to name instead: {error}");
    }
    assert!(!real.join("deeper").exists(), "nothing is made behind a link");
}

/// Safety 2, files: what SQLite would read beside the file must be ours too.
#[cfg(unix)]
#[tokio::test]
async fn what_others_put_beside_the_file_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    for suffix in ["-wal", "-shm", "-journal"] {
        let (folder, path) = folder();
        drop(SqliteStore::open(&path).await.unwrap());
        let beside = PathBuf::from(format!("{}{suffix}", path.display()));
        let _ = fs::remove_file(&beside);
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &beside).unwrap();
        let error = refused(&path).await;
        assert!(
            matches!(&error, ConnectError::Unsafe { path, .. } if path.to_string_lossy().ends_with(suffix)),
            "{error}"
        );
        fs::remove_file(&beside).unwrap();
        fs::write(&beside, b"").unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(refused(&path).await, ConnectError::Unsafe { .. }), "others may write it");
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o600)).unwrap();
        if give_away(&beside) {
            let error = refused(&path).await;
            assert!(error.to_string().contains("belongs to user 65534"), "{error}");
        }
        fs::remove_file(&beside).unwrap();
        SqliteStore::open(&path).await.unwrap();
    }
}

#[cfg(unix)]
fn write_private(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// I15: what is not a database is named, explained and not touched.
#[cfg(unix)]
#[tokio::test]
async fn what_is_no_database_is_left_as_it_is() {
    let (_folder, path) = folder();
    let text = b"dear diary, this is not a database; it is much longer than a hundred bytes, so that a header would fit into it";
    write_private(&path, text);
    let error = refused(&path).await;
    assert!(matches!(error, ConnectError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("countersign.db") && error.to_string().contains("backup"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), text);
}

/// I15: a damaged file gives an error, at the door or at the first read, and never an answer.
#[cfg(unix)]
#[tokio::test]
async fn a_damaged_file_gives_no_answer() {
    let test = TestSqlite::new().await;
    let store = test.sqlite();
    let call = submit(&*store, proposal("rm", json!({}), "s")).await;
    drop(store);
    test.close();
    let mut bytes = fs::read(test.path()).unwrap();
    bytes[4096..].fill(0xa5);
    write_private(&test.path(), &bytes);
    match SqliteStore::open(test.path()).await {
        Err(ConnectError::Damaged { .. }) => {}
        Err(error) => panic!("{error}"),
        Ok(store) => {
            assert!(store.call(call.id).await.is_err());
            assert!(store.run(proposal("rm", json!({}), "s").op()).await.is_err());
        }
    }
    assert_eq!(fs::read(test.path()).unwrap().len(), bytes.len());
}

/// Another program's database is not ours to write to.
#[cfg(unix)]
#[tokio::test]
async fn another_programs_database_is_left_alone() {
    let (_folder, path) = folder();
    write_private(&path, b"");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    let before = fs::read(&path).unwrap();
    assert!(matches!(refused(&path).await, ConnectError::Foreign { .. }));
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// I19: a newer schema is refused cleanly.
#[tokio::test]
async fn a_newer_schema_is_refused() {
    let (_folder, path) = folder();
    drop(SqliteStore::open(&path).await.unwrap());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = refused(&path).await;
    assert!(matches!(error, ConnectError::Newer { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("newer version"), "{error}");
}

/// I19: many processes may start on a new file at once; one makes the schema, all go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_may_make_the_schema_at_once() {
    for _ in 0..5 {
        let (_folder, path) = folder();
        let mut opening = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let path = path.clone();
            opening.spawn(async move { SqliteStore::open(path).await });
        }
        let stores: Vec<_> = opening.join_all().await.into_iter().collect::<Result<_, _>>().unwrap();
        for (n, store) in stores.iter().enumerate() {
            submit(store, proposal("rm", json!({ "n": n }), "s")).await;
        }
        let seen = stores[0].calls(Default::default()).await.unwrap();
        assert_eq!(seen.len(), stores.len());
    }
}

/// I19: a kill in the middle of a schema step leaves the file as it was before the step.
#[tokio::test]
async fn a_half_made_schema_is_made_whole() {
    let (_folder, path) = folder();
    drop(SqliteStore::open(&path).await.unwrap());
    let whole = schema(&path);
    fs::remove_file(&path).unwrap();
    // What a killed process leaves: a private, empty file in WAL mode and an uncommitted transaction.
    fs::write(&path, b"").unwrap();
    make_private(&path);
    let killed = Connection::open(&path).unwrap();
    killed.execute_batch("PRAGMA journal_mode = WAL; BEGIN IMMEDIATE; CREATE TABLE chains (x)").unwrap();
    drop(killed);
    drop(SqliteStore::open(&path).await.unwrap());
    assert_eq!(schema(&path), whole);
}

fn make_private(path: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    #[cfg(not(unix))]
    let _ = path;
}

fn schema(path: &Path) -> Vec<Option<String>> {
    let connection = Connection::open(path).unwrap();
    let mut statement = connection.prepare("SELECT sql FROM sqlite_schema ORDER BY name").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}
