//! The server as its users start it, and the commands that ask it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use countersign_testkit::TestPostgres;
use serde_json::{Value, json};

use crate::bed::{Bed, Ran};
use crate::terminal::{CONTROL_C, Terminal};

const POLICY: &str = "policy: { rules: [{ id: writes, ask: 'write_*' }, { id: reads, allow: 'read_*' }] }";

/// A server that runs until it is dropped.
pub(crate) struct Serving {
    child: Child,
    pub(crate) url: String,
    sign_in: String,
}

impl Serving {
    pub(crate) fn start(bed: &Bed) -> Serving {
        Serving::under(bed, POLICY, &bed.url())
    }

    /// The same server again, where it was before.
    pub(crate) fn at(bed: &Bed, url: &str) -> Serving {
        Serving::listening(bed, POLICY, &bed.url(), url.strip_prefix("http://").unwrap())
    }

    pub(crate) fn under(bed: &Bed, policy: &str, store: &str) -> Serving {
        Serving::listening(bed, policy, store, "127.0.0.1:0")
    }

    fn listening(bed: &Bed, policy: &str, store: &str, address: &str) -> Serving {
        let policy = bed.write("policy.yml", policy);
        let args = ["serve", "--json", "--listen", address, "--config", policy.to_str().unwrap(), "--store"];
        let mut command = bed.command(args);
        let mut child = command.arg(store).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let text = |member: &str| said[member].as_str().unwrap().to_owned();
        Serving { url: text("url"), sign_in: text("sign_in"), child }
    }

    pub(crate) fn end(mut self) -> i32 {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::TERM)
            .unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Serving {
    /// Ends it as a crash would.
    pub(crate) fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends it; what it said on standard error.
    fn said(mut self) -> String {
        let _ = self.child.kill();
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(crate) fn token(bed: &Bed, role: &str, name: &str) -> String {
    let made =
        bed.run(["token", "create", "--json", "--role", role, "--name", name, "--store", &bed.url()]).expect(0).json();
    made["token"].as_str().unwrap().to_owned()
}

pub(crate) fn ask(bed: &Bed, token: &str, url: &str, args: &[&str]) -> Ran {
    bed.command(args).args(["--url", url]).env("COUNTERSIGN_TOKEN", token).output().unwrap().into()
}

pub(crate) async fn propose(url: &str, token: &str, tool: &str, n: u32) -> Value {
    let client = countersign_api::client::Client::new(url, token).unwrap();
    let body = json!({ "session": "s", "tool": tool, "arguments": { "n": n } });
    let new = serde_json::from_str(&body.to_string()).unwrap();
    serde_json::from_str(&serde_json::to_string(&client.submit(&new).await.unwrap()).unwrap()).unwrap()
}

/// B90: every command that works on a store works on a server, with the same answers; an agent that decides is refused
/// and recorded.
#[tokio::test]
async fn the_commands_decide_and_operate_through_a_server() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let bed = Bed::new();
    let server = Serving::start(&bed);
    assert!(server.sign_in.starts_with(&format!("{}/sign-in#cs_link_", server.url)), "{}", server.sign_in);
    assert!(server.sign_in.len() < 80, "a terminal would break it: {}", server.sign_in);
    let (agent, ann) = (token(&bed, "agent", "bot"), token(&bed, "approver", "ann"));
    let (operator, auditor) = (token(&bed, "operator", "op"), token(&bed, "auditor", "eve"));
    for n in 1..=2 {
        propose(&server.url, &agent, "write_file", n).await;
    }
    let holds = ask(&bed, &ann, &server.url, &["holds", "--json"]).expect(0).json();
    assert_eq!(holds.as_array().unwrap().len(), 2);
    assert!(ask(&bed, &ann, &server.url, &["holds"]).expect(0).stdout.contains("write_file"));
    let (id, digest) = (holds[0]["id"].as_str().unwrap(), holds[0]["digest"].as_str().unwrap());

    // Without the digest nothing is approved, and an agent's token approves nothing.
    ask(&bed, &ann, &server.url, &["approve", id]).expect(2);
    ask(&bed, &agent, &server.url, &["approve", id, "--digest", digest]).expect(3);
    let remember = ["approve", id, "--digest", digest, "--remember", "session", "--json"];
    let decided = ask(&bed, &ann, &server.url, &remember).expect(0).json();
    assert_eq!((&decided["state"], &decided["call"]["decided_by"]), (&json!("approved"), &json!("ann")));
    let other = holds[1]["id"].as_str().unwrap();
    ask(&bed, &ann, &server.url, &["deny", other, "--reason", "no"]).expect(0);
    ask(&bed, &ann, &server.url, &["deny", other, "--reason", "really"]).expect(3);

    let grants = ask(&bed, &operator, &server.url, &["grants", "--json"]).expect(0).json();
    let grant = grants[0]["id"].as_str().unwrap();
    ask(&bed, &operator, &server.url, &["grants", "revoke", grant]).expect(0);
    ask(&bed, &operator, &server.url, &["halt", "--reason", "strange"]).expect(0);
    ask(&bed, &operator, &server.url, &["resume"]).expect(0);
    assert_eq!(ask(&bed, &operator, &server.url, &["doubts", "--json"]).expect(0).json(), json!([]));
    let log = ask(&bed, &auditor, &server.url, &["audit", "log"]).expect(0).stdout;
    for name in ["hold.decided", "grant.made", "grant.revoked", "halt.set", "halt.lifted", "access.refused"] {
        assert!(log.contains(name), "{name}: {log}");
    }
    assert_eq!(server.end(), 0);
}

#[test]
fn tokens_are_made_listed_and_revoked_without_a_server() {
    let bed = Bed::new();
    let url = bed.url();
    let secret = token(&bed, "agent", "bot");
    assert!(secret.starts_with("cs_agent_"));
    let listed = bed.run(["token", "list", "--json", "--store", &url]).expect(0);
    assert!(!listed.stdout.contains(&secret));
    let id = listed.json()[0]["id"].as_str().unwrap().to_owned();
    bed.run(["token", "revoke", &id, "--store", &url]).expect(0);
    assert_eq!(bed.run(["token", "list", "--json", "--store", &url]).expect(0).json(), json!([]));
    bed.run(["token", "revoke", "tok_none", "--store", &url]).expect(1);
    bed.run(["token", "create", "--role", "king", "--name", "x", "--store", &url]).expect(2);
    bed.run(["token", "create", "--role", "approver", "--name", "os:root", "--store", &url]).expect(2);
}

/// A desktop with a program that opens files: it tells what it was given through a pipe.
fn serve_on_a_desktop(bed: &Bed, more: &[&str]) -> Terminal {
    use std::os::unix::fs::PermissionsExt as _;
    let opener =
        bed.write("xdg-open", "#!/bin/sh\n{ echo \"$#\"; stat -c %a \"$1\"; echo \"$1\"; cat \"$1\"; } > told\n");
    std::fs::set_permissions(&opener, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(Command::new("mkfifo").arg(bed.work().join("told")).status().unwrap().success());
    let mut command = bed.command(["serve", "--listen", "127.0.0.1:0", "--store", &bed.url()]);
    command.args(more).env("DISPLAY", ":0").env("PATH", format!("{}:/usr/bin:/bin", bed.work().display()));
    Terminal::of(command, (160, 50))
}

fn pages(bed: &Bed) -> usize {
    let names = std::fs::read_dir(bed.data()).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".html")).count()
}

/// The browser gets a link of its own by a private page, never in an argument; the page does not outlive the server.
#[cfg(target_os = "linux")]
#[test]
fn the_browser_is_opened_without_telling_others_the_link() {
    let bed = Bed::new();
    let mut terminal = serve_on_a_desktop(&bed, &[]);
    terminal.sees("/sign-in#").sees("\r\n").sees("Your browser opens");
    let printed = terminal.shown().lines().find(|line| line.contains("/sign-in#")).unwrap().to_owned();
    let told = crate::bed::read(bed.work().join("told"));
    let [arguments, mode, path, page] = told.lines().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((arguments, mode), ("1", "600"), "{told}");
    assert!(path.starts_with(bed.data().to_str().unwrap()) && !path.contains("cs_link_"), "{told}");
    let (url, secret) = printed.split_once('#').unwrap();
    assert!(page.contains(&format!("0;url={url}#cs_link_")) && !page.contains(secret), "{told}");
    terminal.types(CONTROL_C);
    let (shown, code) = terminal.ends();
    assert_eq!((code, pages(&bed)), (0, 0), "{shown}");
}

#[test]
fn the_browser_stays_closed_where_told_so() {
    let bed = Bed::new();
    let mut terminal = serve_on_a_desktop(&bed, &["--no-open"]);
    terminal.sees("/sign-in#").types(CONTROL_C);
    let (shown, code) = terminal.ends();
    assert_eq!((code, pages(&bed)), (0, 0), "{shown}");
    assert!(!shown.contains("Your browser"), "{shown}");
}

/// An address that others reach is refused with what to do, and a server that is not there is told apart.
#[test]
fn a_server_that_would_be_open_to_others_does_not_start() {
    let bed = Bed::new();
    let refused = bed.run(["serve", "--listen", "0.0.0.0:0", "--store", &bed.url()]).expect(3);
    assert!(refused.stderr.contains("--tls-cert"), "{}", refused.stderr);
    ask(&bed, "cs_approver_x", "http://127.0.0.1:1", &["holds"]).expect(4);
    let clear = ask(&bed, "cs_approver_x", "http://example.com", &["holds"]).expect(2);
    assert!(clear.stderr.contains("https"), "{}", clear.stderr);
}

/// CONTRACT: the first server on an empty PostgreSQL says which policy counts; a later one follows it, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn servers_on_one_database_follow_the_first_ones_policy() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let database = TestPostgres::shared_durable().unwrap().create_database().unwrap();
    let bed = Bed::new();
    let first = Serving::under(&bed, "policy: { rules: [{ id: reads, allow: 'read_*' }] }", database.url());
    let second = Serving::under(&bed, "policy: { otherwise: deny }", database.url());
    let made = bed.run(["token", "create", "--json", "--role", "agent", "--name", "bot", "--store", database.url()]);
    let token = made.expect(0).json()["token"].as_str().unwrap().to_owned();
    for server in [&first, &second] {
        assert_eq!(propose(&server.url, &token, "read_file", 1).await["state"], "allowed");
        assert_eq!(propose(&server.url, &token, "write_file", 1).await["state"], "pending");
    }
    let (first, second) = (first.said(), second.said());
    assert!(!first.contains("does not count"), "its own policy is the one in force: {first}");
    assert!(second.contains("does not count") && second.contains("policy apply"), "{second}");
}
