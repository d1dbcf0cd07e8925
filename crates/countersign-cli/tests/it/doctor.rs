//! `doctor`: what is wrong is found, named, and said what to do about.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use countersign_testkit::TestPostgres;
use serde_json::Value;

use crate::bed::{Bed, Ran, gate, submit};
use crate::serve::{Serving, ask, token};

/// What one check found.
#[track_caller]
fn finding(ran: &Ran, check: &str) -> (String, String, String) {
    let all = ran.json();
    let found = all.as_array().unwrap().iter().find(|finding| finding["check"] == check);
    let found = found.unwrap_or_else(|| panic!("no `{check}` in {all:#}"));
    let text = |member: &str| found[member].as_str().unwrap_or_default().to_owned();
    (text("health"), text("says"), text("next"))
}

#[track_caller]
fn check(ran: &Ran, check: &str, health: &str, says: &str, next: &str) {
    let found = finding(ran, check);
    assert!(found.0 == health && found.1.contains(says) && found.2.contains(next), "{check}: {found:?}");
}

/// An address that nobody else has, as the configuration of a test.
fn free() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn doctor(bed: &Bed, more: &[&str]) -> Ran {
    bed.run([&["doctor", "--json"], more].concat())
}

/// A user who never used it is well, and nothing is made by looking.
#[test]
fn a_new_user_is_well() {
    let bed = Bed::new();
    let config = bed.write("c.yml", &format!("listen: '{}'\npolicy: {{ otherwise: ask }}\n", free()));
    let ran = doctor(&bed, &["--config", config.to_str().unwrap()]).expect(0);
    check(&ran, "config", "ok", "c.yml", "");
    check(&ran, "policy", "ok", "0 rules", "");
    check(&ran, "signing key", "ok", "none yet", "");
    check(&ran, "store", "ok", "not there yet", "");
    check(&ran, "listen address", "ok", "is free", "");
    check(&ran, "isolation", "ok", "L1", "another user");
    assert!(!bed.data().join("countersign.db").exists() && !bed.data().join("signing.key").exists());
    let text = bed.run(["doctor", "--config", config.to_str().unwrap()]).expect(0);
    assert!(text.stdout.lines().any(|line| line.starts_with("ok    store")), "{}", text.stdout);
}

/// B135: what waits, what is in doubt and what is halted is told; the store is tried, and left as it was.
#[tokio::test]
async fn the_state_of_a_store_is_told() {
    let bed = Bed::new();
    let store = bed.store().await;
    let agent = gate(&store, "otherwise: ask\n");
    submit(&agent, "pay", "{}").await;
    let config = bed.write("c.yml", &format!("listen: '{}'\n", free()));
    let args = ["--config", config.to_str().unwrap(), "--store", &bed.url()];
    let ran = doctor(&bed, &args).expect(0);
    let newest = countersign_store::schema(&bed.url()).unwrap();
    check(&ran, "store", "ok", &format!("sqlite opens, schema {newest}"), "");
    check(&ran, "store writes", "ok", "", "");
    check(&ran, "waiting", "ok", "1 waiting", "countersign inbox");
    check(&ran, "doubts", "ok", "none", "");
    assert!(store.record("doctor", "x").await.unwrap().is_none());
    agent.halt(None, "ann", None).await.unwrap();
    check(&doctor(&bed, &args).expect(0), "waiting", "warn", "halted", "countersign resume");
}

/// Every broken thing is a failure of its own, with what to do; the exit code is 1.
#[test]
fn what_is_broken_is_named_with_what_to_do() {
    let bed = Bed::new();
    let broken = bed.write("broken.yml", "policy: { otherwise: perhaps }\n");
    let ran = doctor(&bed, &["--config", broken.to_str().unwrap()]).expect(1);
    check(&ran, "config", "fail", "broken.yml:1:", "");

    // A port that another program has, a key that others may read, and a store that is none.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = bed.write("c.yml", &format!("listen: '{}'\n", taken.local_addr().unwrap()));
    std::thread::spawn(move || taken.incoming().for_each(drop));
    bed.run(["token", "create", "--role", "agent", "--name", "bot", "--store", &bed.url()]).expect(0);
    let key = bed.data().join("signing.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let store = bed.write("no.db", "this is no database, whatever its name may say about that");
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o600)).unwrap();
    let store = format!("sqlite:{}", store.display());
    let ran = doctor(&bed, &["--config", config.to_str().unwrap(), "--store", &store]).expect(1);
    check(&ran, "signing key", "fail", "other users may touch it", "chmod 600");
    check(&ran, "data folder", "warn", "signing.key", "chmod -R go=");
    check(&ran, "store", "fail", "not a database", "");
    check(&ran, "listen address", "fail", "another program has", "--listen");
    assert!(ran.stderr.contains("3 checks failed"), "{}", ran.stderr);
}

/// B135: holds that expire before anybody can read them are told, whoever cuts them short.
#[test]
fn short_expiries_are_told() {
    let bed = Bed::new();
    let of = |text: &str| {
        let config = bed.write("c.yml", &format!("listen: '{}'\n{text}", free()));
        doctor(&bed, &["--config", config.to_str().unwrap()])
    };
    check(&of("policy: { rules: [{ id: pay, ask: pay }] }\n").expect(0), "expiry", "ok", "time to decide", "");
    let short = "policy: { rules: [{ id: pay, ask: pay, expires_after: 5s }] }\n";
    check(&of(short).expect(0), "expiry", "warn", "rule `pay`: its holds expire after 5 s", "`expires_after`");
    let ran = of("policy: { expires_after: 20s }\n").expect(0);
    check(&ran, "expiry", "warn", "rule `otherwise`: its holds expire after 20 s", "");
    let agents = "agents: { a: { timeout: 1h, approval_timeout: 30s }, b: { timeout: 10s }, c: { timeout: 1h } }\n";
    let ran = of(agents).expect(0);
    check(&ran, "expiry", "warn", "agent `a`: its holds expire after 30 s; agent `b`: its holds expire after 10 s", "");
    assert!(!finding(&ran, "expiry").1.contains("`c`"), "{ran:?}");
    // A run that ends with its hold, or before it, is refused as a whole.
    let ran = of("agents: { a: { timeout: 5m, approval_timeout: 5m } }\n").expect(1);
    check(&ran, "config", "fail", "`approval_timeout` must be less than `timeout`", "");
}

/// Whatever is less careful than the defaults is told in one line, and what others may write or reach.
#[test]
fn loosened_defaults_are_told() {
    let bed = Bed::new();
    let of = |text: &str| {
        let config = bed.write("c.yml", text);
        std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o600)).unwrap();
        (doctor(&bed, &["--config", config.to_str().unwrap()]), config)
    };
    let (ran, config) = of("policy: { otherwise: ask }\n");
    check(&ran, "safe defaults", "ok", "none", "");
    for (text, says) in [
        ("policy: { otherwise: allow }\n", "`otherwise: allow`"),
        ("policy: { preset: allow-all }\n", "`otherwise: allow`"),
        ("policy: { unattended: allow }\n", "`unattended: allow`"),
        ("policy: { in_client: allow }\n", "`in_client: allow`"),
        ("server: { dangerously_run_tools_as_server: true }\n", "`dangerously_run_tools_as_server`"),
        ("mcp_servers: { files: { command: x, trust_hints: true } }\n", "the server `files`"),
        ("fetch: { allow: 10.0.0.5 }\n", "`fetch.allow` opens 10.0.0.5"),
    ] {
        check(&of(text).0, "safe defaults", "warn", says, "not needed");
    }
    let (ran, _) = of("listen: '0.0.0.0:7117'\n");
    check(&ran, "listen address", "warn", "from other machines", "--tls-cert");
    assert!(!ran.json().to_string().contains("policy place"), "{ran:?}");
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o666)).unwrap();
    let ran = doctor(&bed, &["--config", config.to_str().unwrap()]);
    check(&ran, "policy place", "warn", "others may write", "chmod go-w");
}

/// Rules that can never matter are a warning, and a file that nobody accepted says so.
#[test]
fn odd_rules_and_untrusted_files_are_told() {
    let bed = Bed::new();
    let rules = "policy: { rules: [{ id: all, deny: '*' }, { id: late, ask: 'pay' }] }\n";
    let config = bed.write("c.yml", rules);
    let ran = doctor(&bed, &["--config", config.to_str().unwrap()]);
    let (health, says, next) = finding(&ran, "policy");
    assert!(health == "warn" && says.contains("warnings") && next.contains("policy check"), "{says}");
    bed.write("countersign.yml", rules);
    let ran = doctor(&bed, &[]);
    assert!(ran.stderr.contains("is not trusted"), "{}", ran.stderr);
}

/// A server that is there is told apart from a program that is not one of ours; a token says what it may do.
#[test]
fn a_server_and_a_token_are_looked_at() {
    let bed = Bed::new();
    let server = Serving::start(&bed);
    let ann = token(&bed, "approver", "ann");
    let ran = ask(&bed, &ann, &server.url, &["doctor", "--json"]).expect(0);
    check(&ran, "server", "ok", "answers", "");
    check(&ran, "server's store", "ok", "answers", "");
    check(&ran, "token", "ok", "approver of `ann`", "");
    let ran = ask(&bed, "cs_approver_wrong", &server.url, &["doctor", "--json"]).expect(1);
    check(&ran, "token", "fail", "", "token create");
    check(&doctor(&bed, &["--url", &server.url]).expect(0), "token", "warn", "COUNTERSIGN_TOKEN", "token create");
    let address = server.url.strip_prefix("http://").unwrap();
    let config = bed.write("c.yml", &format!("listen: '{address}'\n"));
    let ran = doctor(&bed, &["--config", config.to_str().unwrap()]).expect(0);
    check(&ran, "listen address", "ok", "a countersign server answers", "");
    let ran: Value = doctor(&bed, &["--url", "http://127.0.0.1:1"]).expect(1).json();
    assert_eq!(ran[0]["health"], "fail", "{ran}");
}

/// On PostgreSQL the clock and the notifications between nodes are looked at, too.
#[test]
fn a_database_is_asked_for_its_clock_and_its_notifications() {
    let database = TestPostgres::shared_durable().unwrap().create_database().unwrap();
    let bed = Bed::new();
    let config = bed.write("c.yml", &format!("listen: '{}'\n", free()));
    let ran = doctor(&bed, &["--config", config.to_str().unwrap(), "--store", database.url()]).expect(0);
    check(&ran, "store", "ok", "opens, schema 2", "");
    check(&ran, "database clock", "ok", "agrees", "");
    check(&ran, "notifications", "ok", "heard after", "");
    let ran = doctor(&bed, &["--config", config.to_str().unwrap(), "--store", "postgres://nobody@127.0.0.1:1/x"]);
    check(&ran.expect(1), "store", "fail", "cannot connect", "");
}

/// Those whom a rule asks and who can decide nowhere are named; an account or a token makes them known.
#[test]
fn approvers_without_account_or_token_are_named() {
    let bed = Bed::new();
    let config = "store: sqlite:doctor.db\napprovers: { groups: { finance: [ann, bo] } }\n\
                  policy: { rules: [{ id: pay, ask: pay, from: [finance] }] }\n";
    let config = bed.write("countersign.yml", config);
    let config = config.to_str().unwrap();
    bed.run(["token", "create", "--role", "approver", "--name", "ann", "--config", config]).expect(0);
    let ran = doctor(&bed, &["--config", config]).expect(0);
    check(&ran, "approvers", "warn", "`bo` of `finance`", "user add");
    bed.run(["user", "add", "bo", "--config", config]).expect(0);
    check(&doctor(&bed, &["--config", config]).expect(0), "approvers", "ok", "2 with", "");
}

/// Less isolation than is wanted is a failure that a script sees.
#[test]
fn too_little_isolation_fails_where_more_is_wanted() {
    let bed = Bed::new();
    check(&doctor(&bed, &["--minimum", "L1"]).expect(0), "isolation", "ok", "level L1", "another user");
    check(&doctor(&bed, &["--minimum", "L2"]).expect(1), "isolation", "fail", "level L1", "another user");
}
