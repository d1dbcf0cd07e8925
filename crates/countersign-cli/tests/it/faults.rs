//! What is broken is named, with its place and the next step; and nothing broken is worked around.

use countersign::{CallId, GrantId, HoldId};

use crate::bed::{Bed, gate, hold, submit};

#[test]
fn wrong_usage_is_two() {
    let bed = Bed::new();
    for line in [
        "nonsense",
        "approve",
        "approve not-an-id",
        "holds --store nonsense:",
        "grants revoke x",
        "policy",
        "completions tcsh",
    ] {
        let ran = bed.say(line).expect(2);
        assert!(!ran.stderr.is_empty(), "{line}");
    }
    bed.say("--help").expect(0);
    bed.say("--version").expect(0);
}

#[test]
fn every_command_explains_itself() {
    let bed = Bed::new();
    for command in [
        "demo",
        "holds",
        "approve",
        "deny",
        "grants",
        "doubts",
        "halt",
        "resume",
        "policy check",
        "policy explain",
        "policy test",
        "policy apply",
        "trust",
        "audit",
        "completions",
    ] {
        let ran = bed.say(&format!("{command} --help")).expect(0);
        assert!(ran.stdout.contains("Example"), "{command}: {}", ran.stdout);
    }
}

#[test]
fn completions_know_the_commands() {
    let bed = Bed::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = bed.say(&format!("completions {shell}")).expect(0);
        assert!(ran.stdout.contains("doubts"), "{shell}");
    }
}

#[test]
fn a_store_that_is_none_is_left_as_it_is() {
    let bed = Bed::new();
    let path = bed.write("junk.db", &"this is not a database ".repeat(100));
    private(&path);
    let ran = bed.say("holds --store sqlite:junk.db").expect(1);
    assert!(ran.stderr.contains("junk.db") && ran.stderr.contains("damaged or not a database"), "{}", ran.stderr);
    assert!(crate::bed::read(&path).starts_with("this is not a database"));
    bed.say("holds --store sqlite:/proc/nowhere/x.db").expect(4);
    bed.say("token create --role agent --name bot --store sqlite:/proc/nowhere/x.db").expect(4);
}

/// The host is named and the password is not.
#[test]
fn a_database_out_of_reach_is_named_without_its_password() {
    let bed = Bed::new();
    // Nothing listens on port 1.
    let ran = bed.say("holds --store postgres://ann:s3cret@127.0.0.1:1/x").expect(4);
    assert!(ran.stderr.contains("cannot connect to PostgreSQL at `127.0.0.1`, port 1"), "{}", ran.stderr);
    assert!(ran.stderr.contains("next: check the address") && !ran.stderr.contains("s3cret"), "{}", ran.stderr);
}

/// Every command that works on what is in a store, and not one that prepares it.
fn operating() -> [String; 16] {
    let (hold, call, grant) = (HoldId::new(), CallId::new(), GrantId::new());
    let digest = format!("cs1c:{}", "0".repeat(64));
    [
        "holds".to_owned(),
        format!("approve {hold} --digest {digest}"),
        format!("deny {hold}"),
        "grants list".to_owned(),
        format!("grants revoke {grant}"),
        "doubts list".to_owned(),
        format!("doubts resolve {call} --as applied --reason seen"),
        "halt --json".to_owned(),
        "resume".to_owned(),
        "audit log".to_owned(),
        "audit verify".to_owned(),
        "audit export".to_owned(),
        "token list".to_owned(),
        "user list".to_owned(),
        "notify log".to_owned(),
        "gateway accept files".to_owned(),
    ]
}

/// A mistyped store is not made and not taken for an empty one: nothing is halted, verified or listed there.
#[test]
fn a_store_that_is_not_there_is_not_made() {
    let bed = Bed::new();
    for line in
        operating().iter().map(String::as_str).chain(["policy explain --tool x", "run --list", "run --resume s-1"])
    {
        let ran = bed.say(&format!("{line} --store sqlite:mistyped/x.db")).expect(4);
        assert!(ran.stderr.contains("there is no store `mistyped/x.db`"), "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains("next: check --store"), "{line}: {}", ran.stderr);
        assert_eq!(ran.stdout, "", "{line}");
        assert!(!bed.work().join("mistyped").exists(), "{line}");
        assert!(!bed.data().exists(), "{line}");
    }
}

/// What is in a store in memory is gone with the command, so nothing can be done there.
#[test]
fn a_store_in_memory_is_nothing_to_work_on() {
    let bed = Bed::new();
    let preparing = ["token create --role agent --name bot", "user add ann"].map(str::to_owned);
    for line in operating().into_iter().chain(preparing) {
        let ran = bed.say(&format!("{line} --store memory:")).expect(2);
        assert!(ran.stderr.contains("gone when the command ends"), "{line}: {}", ran.stderr);
    }
}

/// The user's own store that nothing has used yet is empty to whoever looks, and nothing to act on.
#[test]
fn a_store_that_was_never_used_can_be_looked_at_and_not_acted_on() {
    let bed = Bed::new();
    for line in ["halt", "resume", &format!("deny {}", HoldId::new())] {
        let ran = bed.say(line).expect(4);
        assert!(ran.stderr.contains("there is no store `"), "{line}: {}", ran.stderr);
        assert!(!bed.data().join("countersign.db").exists(), "{line}");
    }
    bed.say("holds").expect(0);
    bed.say("halt").expect(0);
}

#[test]
fn a_call_nobody_knows_cannot_be_settled() {
    let bed = Bed::new();
    bed.run(["token", "create", "--role", "agent", "--name", "bot", "--store", &bed.url()]).expect(0);
    let id = CallId::new().to_string();
    let ran = bed.run(["doubts", "resolve", &id, "--as", "applied", "--reason", "seen", "--store", &bed.url()]);
    let ran = ran.expect(1);
    assert!(ran.stderr.contains("no such call") && ran.stderr.contains("countersign doubts list"), "{}", ran.stderr);
}

#[cfg(unix)]
#[test]
fn a_store_others_may_open_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let bed = Bed::new();
    bed.say("token create --role agent --name bot --store sqlite:wide.db").expect(0);
    let wide = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(bed.work().join("wide.db"), wide).unwrap();
    let ran = bed.say("holds --store sqlite:wide.db").expect(3);
    assert!(ran.stderr.contains("chmod 600"), "{}", ran.stderr);
}

/// A key that is damaged, a link, or open to others signs nothing. What tightens works all the same.
#[cfg(unix)]
#[tokio::test]
async fn a_bad_key_stops_what_loosens_and_nothing_else() {
    use std::os::unix::fs::PermissionsExt as _;
    let bed = Bed::new();
    let store = bed.store().await;
    let agent = gate(&store, "otherwise: ask\n");
    bed.run(["holds", "--store", &bed.url()]).expect(0);
    let key = bed.data().join("signing.key");
    let good = crate::bed::read(&key);
    type Break = fn(&std::path::Path);
    let breaks: [(Break, &str, i32); 4] = [
        (|key| std::fs::write(key, "rubbish\n").unwrap(), "is damaged", 1),
        (|key| std::fs::write(key, [0xff, 0xfe, 0x00]).unwrap(), "is damaged", 1),
        (|key| std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o644)).unwrap(), "chmod 600", 3),
        (
            |key| {
                std::fs::rename(key, key.with_extension("real")).unwrap();
                std::os::unix::fs::symlink(key.with_extension("real"), key).unwrap();
            },
            "symbolic link",
            3,
        ),
    ];
    for (index, (break_it, words, code)) in breaks.into_iter().enumerate() {
        let _ = std::fs::remove_file(&key);
        std::fs::write(&key, &good).unwrap();
        private(&key);
        break_it(&key);
        let call = submit(&agent, "pay", &format!(r#"{{"n": {index}}}"#)).await;
        let open = hold(&call);
        let (id, digest, url) = (open.id.to_string(), open.digest.to_string(), bed.url());
        let ran = bed.run(["approve", &id, "--digest", &digest, "--store", &url]).expect(code);
        assert!(ran.stderr.contains(words) && ran.stderr.contains("signing.key"), "{}", ran.stderr);
        bed.run(["audit", "export", "--store", &url]).expect(code);
        let ran = bed.run(["deny", &id, "--store", &url]).expect(0);
        assert!(ran.stderr.contains("will not be signed"), "{}", ran.stderr);
        bed.run(["holds", "--store", &url]).expect(0);
    }
}

/// A broken configuration keeps nobody from halting, where the store is named.
#[tokio::test]
async fn a_broken_configuration_stops_no_rescue() {
    let bed = Bed::new();
    drop(bed.store().await);
    std::fs::create_dir_all(bed.config().parent().unwrap()).unwrap();
    std::fs::write(bed.config(), "policy: { otherwise: maybe }\n").unwrap();
    bed.say("holds").expect(1);
    let ran = bed.run(["halt", "--store", &bed.url()]).expect(0);
    assert!(ran.stderr.contains("the configuration is not used"), "{}", ran.stderr);
    bed.run(["resume", "--store", &bed.url()]).expect(1);
}

#[test]
fn no_home_is_said_plainly() {
    let bed = Bed::new();
    let mut command = bed.command(["holds"]);
    let ran: crate::bed::Ran =
        command.env_remove("HOME").env_remove("XDG_DATA_HOME").env_remove("XDG_CONFIG_HOME").output().unwrap().into();
    let ran = ran.expect(2);
    assert!(ran.stderr.contains("XDG_DATA_HOME"), "{}", ran.stderr);
}

fn private(path: &std::path::Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    #[cfg(not(unix))]
    let _ = path;
}
