//! The throw-away PostgreSQL, against real servers.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use countersign_testkit::{Durability, TestPostgres, bindir};

/// Runs one statement and gives back what `psql` prints, or its complaint.
fn query(url: &str, statement: &str) -> Result<String, String> {
    let psql = bindir::find().expect("PostgreSQL is installed").join("psql");
    let output = Command::new(psql).args([url, "-XAtc", statement]).output().expect("psql runs");
    let text = |bytes| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[track_caller]
fn check(postgres: &TestPostgres, setting: &str, expected: &str) {
    assert_eq!(query(&postgres.url("postgres"), &format!("show {setting}")), Ok(expected.to_owned()), "{setting}");
}

#[test]
fn a_fast_server_does_not_sync_and_takes_many_connections() {
    let postgres = TestPostgres::start(Durability::Fast).unwrap();
    check(&postgres, "fsync", "off");
    check(&postgres, "max_connections", "200");
    check(&postgres, "listen_addresses", "127.0.0.1");
}

#[test]
fn a_durable_server_syncs_every_commit() {
    let postgres = TestPostgres::shared_durable().unwrap();
    check(postgres, "fsync", "on");
    check(postgres, "synchronous_commit", "on");
}

#[test]
fn every_test_gets_an_empty_database_of_its_own() {
    let postgres = TestPostgres::shared().unwrap();
    let [ours, theirs] = [(); 2].map(|()| postgres.create_database().unwrap());
    assert_ne!(ours.url(), theirs.url());
    query(ours.url(), "create table only_here (id int)").unwrap();
    assert_eq!(query(ours.url(), "select count(*) from only_here"), Ok("0".to_owned()));
    assert!(query(theirs.url(), "select count(*) from only_here").unwrap_err().contains("does not exist"));
}

#[test]
fn a_dropped_database_is_gone_even_while_somebody_is_connected() {
    let postgres = TestPostgres::shared().unwrap();
    let database = postgres.create_database().unwrap();
    let url = database.url().to_owned();
    let psql = bindir::find().unwrap().join("psql");
    let mut connected = Command::new(psql)
        .args([&url, "-XAt"])
        .args(["-c", "select 'connected'", "-c", "select pg_sleep(600)"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(connected.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "connected\n");
    drop(database);
    assert!(query(&url, "select 1").unwrap_err().contains("does not exist"));
    assert!(!connected.wait().unwrap().success());
}

#[test]
fn a_dropped_server_is_gone() {
    let postgres = TestPostgres::start(Durability::Fast).unwrap();
    let folder = query(&postgres.url("postgres"), "show unix_socket_directories").unwrap();
    let url = postgres.url("postgres");
    drop(postgres);
    assert!(query(&url, "select 1").unwrap_err().contains("Connection refused"));
    assert!(!Path::new(&folder).exists());
}

#[test]
fn a_server_ends_with_its_owner_even_when_that_is_killed() {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_temp-postgres"))
        .arg("fast")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(owner.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let folder = query(url.trim(), "show unix_socket_directories").unwrap();
    owner.kill().unwrap();
    owner.wait().unwrap();
    // What watches over the server has inherited this pipe, so the pipe ends when all of them have.
    let (ended, end) = mpsc::channel();
    let mut stderr = owner.stderr.take().unwrap();
    thread::spawn(move || ended.send(io::copy(&mut stderr, &mut io::sink()).is_ok()));
    assert_eq!(end.recv_timeout(Duration::from_secs(30)), Ok(true), "the server outlived its owner");
    assert!(!Path::new(&folder).exists());
    assert!(query(url.trim(), "select 1").unwrap_err().contains("Connection refused"));
}

#[test]
fn without_postgresql_a_test_fails_and_says_how_to_get_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_temp-postgres"))
        .arg("fast")
        .env(bindir::VARIABLE, "/nowhere")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(complaint.contains("cargo xtask setup"), "{complaint}");
}

#[test]
fn a_named_server_keeps_its_parameters_and_only_the_database_changes() {
    let postgres = TestPostgres::at("postgres://ann@db.example:6000/app?sslmode=require").unwrap();
    assert_eq!(postgres.url("other"), "postgres://ann@db.example:6000/other?sslmode=require");
    assert!(TestPostgres::at("mysql://db.example/app").is_err());
}
