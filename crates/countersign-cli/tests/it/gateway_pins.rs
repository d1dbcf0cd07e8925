//! What a server says about its tools is pinned: nothing runs, is listed or stays approved that nobody accepted.

use std::process::Command;

use countersign::store::{Expect, Record};
use serde_json::{Value, json};

use crate::gateway_peer::{Peer, Stage};

const ASK_WRITES: &str = "{ preset: allow-all, rules: [{ id: writes, ask: plain/write }] }";
const LIST: &str = r#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#;

fn now<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// The record of the pin of `write`.
fn pin(stage: &Stage) -> Record {
    now(async { stage.bed.store().await.record("pins", "plain/write").await.unwrap().unwrap() })
}

fn put_pin(stage: &Stage, value: &[u8]) {
    now(async {
        let store = stage.bed.store().await;
        store.put_record("pins", "plain/write", value, Expect::Any, None).await.unwrap();
    });
}

/// Writes down that `write` was found to be another, as a gateway does that dies right after it. The pin as it was before
/// is in force again until then.
fn found_before(stage: &Stage) -> Vec<u8> {
    let mut peer = stage.client(&[]);
    peer.ask(LIST);
    let accepted = pin(stage).value;
    stage.bed.write("log.changed", "");
    peer.ask(LIST);
    let found = pin(stage).value;
    assert_ne!(accepted, found);
    assert_eq!(peer.leave(), 0);
    put_pin(stage, &accepted);
    std::fs::remove_file(stage.bed.work().join("log.changed")).unwrap();
    found
}

/// A1: the pin is read again just before the claim: what was approved before the change does not run after it.
#[test]
fn an_approved_call_of_a_changed_tool_never_runs() {
    let stage = Stage::new(ASK_WRITES);
    let found = found_before(&stage);
    let mut peer = stage.client(&[]);
    peer.call(1, "write", &json!({"text": "x"}));
    peer.held();
    put_pin(&stage, &found);
    stage.approve(&[]);
    let (error, text) = peer.answer(1);
    assert!(error && text.contains("changed"), "{text}");
    assert_eq!(stage.ran(), [""; 0]);
}

/// B49: a server that changes a tool without a word, while people think about a call of it, does not get the call.
#[test]
fn a_tool_that_changed_without_a_word_is_found_out_before_the_claim() {
    let stage = Stage::new(ASK_WRITES);
    let mut peer = stage.client(&[]);
    peer.call(1, "write", &json!({"text": "x"}));
    peer.held();
    stage.bed.write("log.changed", "");
    stage.approve(&[]);
    let (error, text) = peer.answer(1);
    assert!(error && text.contains("the tool's definition changed"), "{text}");
    assert_eq!(stage.ran(), [""; 0]);
    assert!(stage.say("audit log --json").expect(0).stdout.contains("tool.changed"));
}

/// A server that does not say what its tools are gets no call that people were asked about, and the approval stays.
#[test]
fn an_approved_call_waits_until_the_server_says_what_it_is() {
    let stage = Stage::new(ASK_WRITES);
    let mut peer = stage.client(&[]);
    peer.call(1, "write", &json!({"text": "x"}));
    peer.held();
    stage.bed.write("log.mute", "");
    stage.approve(&[]);
    let (error, text) = peer.answer(1);
    assert!(error && text.starts_with("Not run yet"), "{text}");
    assert_eq!(stage.ran(), [""; 0]);
    std::fs::remove_file(stage.bed.work().join("log.mute")).unwrap();
    // A listing that hangs ends by itself; until then the client is told the same.
    let mut id = 2;
    while {
        peer.call(id, "write", &json!({"text": "x"}));
        peer.answer(id).0
    } {
        id += 1;
    }
    assert_eq!(stage.ran().len(), 1);
}

/// What is allowed at once costs no listing.
#[test]
fn an_allowed_call_lists_nothing() {
    let stage = Stage::new(ASK_WRITES);
    let mut peer = stage.client(&[]);
    for id in 1..=5 {
        peer.call(id, "read", &json!({}));
        peer.answer(id);
    }
    let lists = || crate::bed::read(stage.bed.work().join("log")).matches("\"tools/list\"").count();
    assert_eq!(lists(), 1);
    peer.call(6, "write", &json!({"text": "x"}));
    peer.held();
    stage.approve(&[]);
    assert!(!peer.answer(6).0);
    assert_eq!(lists(), 2);
}

/// The same where a halt lies between approval and claim: what changed under it is void when it is lifted.
#[test]
fn a_call_that_a_halt_kept_from_running_is_void_once_its_tool_has_changed() {
    let stage = Stage::new(ASK_WRITES);
    let mut peer = stage.client(&[]);
    peer.call(1, "write", &json!({"text": "x"}));
    peer.held();
    stage.say("halt").expect(0);
    stage.approve(&[]);
    stage.bed.write("log.changed", "");
    peer.send(LIST);
    let (error, text) = peer.answer_beside(1, "list");
    assert!(error && text.contains("changed"), "{text}");
    stage.say("resume").expect(0);
    assert_eq!(stage.ran(), [""; 0]);
    let log = stage.say("audit log --json").expect(0).stdout;
    assert_eq!((log.matches("call.cancelled").count(), log.matches("call.claimed").count()), (1, 0), "{log}");
}

/// A5: a gateway that ended between finding a change and voiding what was bound to it: the next one voids it.
#[test]
fn a_change_that_was_found_and_not_voided_is_voided_by_the_next_gateway() {
    let stage = Stage::new(ASK_WRITES);
    let found = found_before(&stage);
    let mut peer = stage.client(&[]);
    peer.call(1, "write", &json!({"text": "x"}));
    peer.held();
    put_pin(&stage, &found);
    stage.bed.write("log.changed", "");
    let mut next = stage.client(&[]);
    next.ask(LIST);
    let (error, text) = peer.answer(1);
    assert!(error && text.contains("definition changed"), "{text}");
    assert_eq!((stage.ran(), stage.holds()), (vec![], vec![]));
}

/// A2: what is meant for us, an agent's token before all, is not the server's to read.
#[test]
fn the_server_does_not_get_what_is_meant_for_us() {
    let stage = Stage::new("{ preset: allow-all }");
    let mut command: Command = stage.bed.command(["gateway", "--config", "policy.yml", "--server", "plain"]);
    command.args(["--store", &stage.bed.url(), "--", "sh", "-c", "env > seen; exec \"$0\" log"]);
    command.arg(crate::gateway_peer::plain());
    command.env("COUNTERSIGN_TOKEN", "s3cr3t").env("countersign_store", "s3cr3t").env("SERVER_KEY", "its own");
    let mut peer = Peer::start(command);
    peer.ask(LIST);
    let seen = crate::bed::read(stage.bed.work().join("seen"));
    assert!(seen.contains("SERVER_KEY=its own") && seen.contains("HOME="), "{seen}");
    assert!(!seen.contains("s3cr3t") && !seen.to_uppercase().contains("COUNTERSIGN_"), "{seen}");
}

/// A4: a server that names tools without end fills neither our memory nor our store, and what it names too many is refused.
#[test]
fn a_server_that_names_tools_without_end_is_cut_short() {
    let stage = Stage::new("{ preset: allow-all }");
    stage.bed.write("log.many", "a 10100");
    let mut peer = stage.client(&[]);
    let listed: Value = serde_json::from_str(&peer.ask(LIST)).unwrap();
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 10_000);
    stage.bed.write("log.many", "b 10");
    let listed: Value = serde_json::from_str(&peer.ask(LIST)).unwrap();
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 8, "new names are not taken any more");
    peer.call(1, "b1", &json!({}));
    let (error, text) = peer.answer(1);
    assert!(error && text.contains("not on record"), "{text}");
    peer.call(2, "read", &json!({}));
    assert_eq!(peer.answer(2), (false, "done: read".into()));
    let count = now(async {
        let store = stage.bed.store().await;
        let (mut count, mut after) = (0, None::<String>);
        loop {
            let page = store.records("pins", "", after.as_deref(), 1_000).await.unwrap();
            let Some(last) = page.last() else { break count };
            after = Some(last.key.clone());
            count += page.len();
        }
    });
    assert_eq!(count, 10_000);
}

/// A8: a policy that changes while the gateway runs counts for the next call, and a broken one does not.
#[test]
fn a_change_of_the_policy_counts_at_once() {
    let stage = Stage::new("{ preset: allow-all }");
    let mut peer = stage.client(&[]);
    peer.call(1, "read", &json!({}));
    assert_eq!(peer.answer(1), (false, "done: read".into()));
    let loaded = || stage.say("audit log --json").expect(0).stdout.matches("\"policy.loaded\"").count();
    let before = loaded();
    stage.bed.write("policy.yml", "policy: { otherwise: deny }\n");
    while loaded() == before {}
    peer.call(2, "read", &json!({}));
    assert!(peer.answer(2).0);
    assert_eq!(stage.ran(), ["read {}"]);
}

/// Numbers from a seed: the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

/// What is known of `write`, as a person would keep the books: each a yes for "the changed one".
#[derive(Default)]
struct Books {
    is_changed: bool,
    listed: bool,
    accepted: bool,
    found: Option<bool>,
}

impl Books {
    fn list(&mut self) {
        self.listed = self.is_changed;
        if self.found.is_some() || self.listed != self.accepted {
            self.found = Some(self.listed);
        }
    }

    fn accept(&mut self) {
        self.accepted = self.found.take().unwrap_or(self.accepted);
    }

    fn is_usable(&self) -> bool {
        self.found.is_none() && self.listed == self.accepted
    }
}

/// A server that changes its tools, puts them back and adds others at any moment, over restarts: once it has said so,
/// nothing runs or is listed that nobody accepted, and nothing waits for what it was.
#[test]
fn rug_pull_never_runs() {
    for seed in [0x7275_6721, 0x7075_6c6c, 0x6f6f_7073] {
        let stage = Stage::new(ASK_WRITES);
        let mut random = Random(seed);
        let (mut books, mut ran) = (Books::default(), 0);
        let mut peer = stage.client(&[]);
        peer.ask(LIST);
        for step in 0..40_u64 {
            let place = format!("step {step} of {seed:x}");
            match random.below(7) {
                0 | 1 => {
                    books.is_changed = !books.is_changed;
                    let path = stage.bed.work().join("log.changed");
                    if books.is_changed {
                        std::fs::write(path, "").unwrap()
                    } else {
                        std::fs::remove_file(path).unwrap()
                    }
                }
                2 => {
                    let listed = peer.ask(LIST);
                    books.list();
                    assert_eq!(listed.contains("\"write\""), books.is_usable(), "{place}: {listed}");
                    assert!(!listed.contains("evil.example") || books.accepted, "{place}: {listed}");
                }
                3 => {
                    stage.bed.write("log.extra", "");
                    assert_eq!(peer.leave(), 0);
                    peer = stage.client(&[]);
                    peer.ask(LIST);
                    books.list();
                }
                4 => {
                    let asked = stage.say("gateway accept plain write");
                    assert_eq!(asked.stderr.contains("cs1p:"), books.found.is_some(), "{place}: {asked:?}");
                    if let Some(digest) = asked.stderr.split_whitespace().find(|word| word.starts_with("cs1p:")) {
                        stage.say(&format!("gateway accept plain write --digest {digest}")).expect(0);
                    }
                    books.accept();
                }
                _ => {
                    peer.call(step, "write", &json!({"text": step.to_string()}));
                    let told = peer.next();
                    if !books.is_usable() {
                        assert_eq!(told["result"]["isError"], true, "{place}: {told}");
                        continue;
                    }
                    assert_eq!(told["method"], "notifications/progress", "{place}: {told}");
                    if random.below(2) == 0 && books.is_changed != books.listed {
                        peer.send(LIST);
                        books.list();
                        let (error, text) = peer.answer_beside(step, "list");
                        assert!(error && text.contains("changed"), "{place}: {text}");
                        peer.ask(LIST);
                        continue;
                    }
                    stage.approve(&[]);
                    // The server is asked once more before it gets the call.
                    books.list();
                    let (error, text) = peer.answer(step);
                    if books.is_usable() {
                        assert_eq!((error, text.as_str()), (false, "done: write"), "{place}");
                        ran += 1;
                    } else {
                        assert!(error && text.contains("changed"), "{place}: {text}");
                    }
                }
            }
        }
        assert_eq!((stage.ran().len(), stage.holds()), (ran, Vec::<Value>::new()), "{seed:x}");
    }
}
