//! The gateway as a client starts it: the real program in front of a real server, decided in another terminal.

use countersign::Time;
use countersign::callers::{self, Caller};
use countersign::store::Expect;
use serde_json::{Value, json};

use crate::gateway_peer::{Peer, Stage, plain};
use crate::serve::{Serving, ask, token};

const ASK_WRITES: &str = "{ preset: allow-all, rules: [{ id: writes, ask: plain/write }] }";

fn one_call(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "write", "arguments": {"text": "x"}}})
}

/// What a client reads is byte for byte what it would read without the gateway.
#[test]
fn nothing_changes_for_the_client_where_everything_is_allowed() {
    let stage = Stage::new("{ preset: allow-all }");
    let script = [
        r#"{"id":"\u0061-1","odd":[1, 2],"jsonrpc":"2.0","method":"tools/list","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"prompts/list","params":{"z":1,"a":2}}"#,
        r#"{"method":"tools/call","params":{"name":"write","task":{},"arguments":{"text":"x","count":1.50}},"id":3,"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"fail"}}"#,
        r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"unlisted","arguments":{}}}"#,
    ];
    let play = |mut peer: Peer| -> Vec<String> { script.iter().map(|line| peer.ask(line)).collect() };
    let (direct, through) = (play(stage.direct()), play(stage.client(&[])));
    assert_eq!(direct, through);
    assert!(through[0].contains(r#""odd":true,"tools":[{"name":"write""#), "{}", through[0]);
    assert_eq!(stage.ran()[3..], [r#"write {"count":1.5,"text":"x"}"#, "fail null", "unlisted {}"]);
}

/// B44, B45, B48: server and tool are a pair; a bare name allows no MCP tool and denies it on every server; the
/// strictest rule wins; a hidden tool is not listed and still refused with its rule's reason.
#[test]
fn rules_are_about_the_pair_of_server_and_tool() {
    let stage = Stage::new(
        "{ otherwise: ask, rules: [{ id: bare, allow: write }, { id: pair, allow: 'plain/read' }, { id: never, deny: \
         fail, reason: not here }, { id: gone, deny: plain/secret, hide: true, reason: hidden }, { id: both, allow: \
         'plain/hang' }, { id: all, ask: 'plain/h*' }] }",
    );
    let mut peer = stage.client(&["--wait", "1s"]);
    peer.call(1, "read", &json!({}));
    assert_eq!(peer.answer(1), (false, "done: read".into()));
    peer.call(2, "fail", &json!({}));
    let (error, text) = peer.answer(2);
    assert!(error && text.contains("not here") && text.contains("Do not retry"), "{text}");
    peer.call(3, "write", &json!({}));
    peer.held();
    assert!(peer.answer(3).1.starts_with("Not run yet"));
    peer.call(4, "hang", &json!({}));
    peer.held();
    assert!(peer.answer(4).1.starts_with("Not run yet"));
    let listed = peer.ask(r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#);
    assert!(listed.contains("\"write\"") && !listed.contains("secret"), "{listed}");
    peer.call(6, "secret", &json!({}));
    let (error, text) = peer.answer(6);
    assert!(error && text.contains("hidden"), "{text}");
    assert_eq!(stage.ran(), ["read {}"]);
}

#[test]
fn an_asked_call_runs_once_it_is_approved_and_never_when_it_is_denied() {
    let stage = Stage::new(ASK_WRITES);
    let mut peer = stage.client(&[]);
    peer.call(1, "write", &json!({"text": "yes"}));
    peer.held();
    assert_eq!(stage.ran(), [""; 0]);
    stage.approve(&[]);
    assert_eq!(peer.answer(1), (false, "done: write".into()));
    peer.call(2, "write", &json!({"text": "no"}));
    peer.held();
    stage.deny("not today");
    let (error, text) = peer.answer(2);
    assert!(error && text.contains("not today") && text.contains("Do not retry"), "{text}");
    assert_eq!(stage.ran(), [r#"write {"text":"yes"}"#]);
    assert_eq!(peer.leave(), 0);
}

/// What the approver made of the arguments is what the server gets, and the model is told.
#[test]
fn edited_arguments_are_what_runs() {
    let stage = Stage::new(ASK_WRITES);
    let mut peer = stage.client(&[]);
    peer.call(1, "write", &json!({"text": "all"}));
    peer.held();
    stage.approve(&["--arguments", r#"{"text":"less"}"#]);
    let (error, text) = peer.answer(1);
    assert!(!error && text.starts_with("A person changed the arguments") && text.ends_with("|done: write"), "{text}");
    assert_eq!(stage.ran(), [r#"write {"text":"less"}"#]);
}

/// What a server says of its own tool raises caution where tools are asked about that want it; what it does not say, lowers
/// nothing.
#[test]
fn a_servers_own_warning_raises_caution() {
    let stage = Stage::new("{ preset: declared }");
    let mut peer = stage.client(&[]);
    peer.call(1, "read", &json!({}));
    assert_eq!(peer.answer(1), (false, "done: read".into()));
    peer.call(2, "write", &json!({"text": "x"}));
    peer.held();
    stage.deny("it says that it destroys");
    assert!(peer.answer(2).1.contains("it says that it destroys"));
    assert_eq!(stage.ran(), ["read {}"]);
    let stage = Stage::new("{ preset: ask-all }");
    let mut peer = stage.client(&["--wait", "1s"]);
    peer.call(1, "read", &json!({}));
    peer.held();
    assert!(peer.answer(1).0);
    assert_eq!(stage.ran(), [""; 0]);
}

/// With a server, the gateway is its executor: the server's policy judges, its people decide, and its record has it.
#[test]
fn a_server_may_judge_and_hold_what_the_gateway_runs() {
    let stage = Stage::new(ASK_WRITES);
    stage.bed.write("own.yml", "policy: { preset: deny-all }\n");
    let policy = "{ preset: allow-all, rules: [{ id: writes, ask: plain/write }, { id: gone, deny: plain/secret, hide: true }] }";
    let server = Serving::under(&stage.bed, &format!("policy: {policy}"), &stage.bed.url());
    let (bot, ann) = (token(&stage.bed, "agent", "bot"), token(&stage.bed, "approver", "ann"));
    let own = format!("sqlite:{}", stage.bed.work().join("own.db").display());
    let variables = [("COUNTERSIGN_URL", server.url.as_str()), ("COUNTERSIGN_TOKEN", bot.as_str())];
    let mut peer = stage.client_of("own.yml", &own, &[], &variables);
    let listed = peer.ask(r#"{"jsonrpc":"2.0","id":0,"method":"tools/list"}"#);
    assert!(listed.contains("\"write\"") && !listed.contains("secret"), "its rules hide tools, too: {listed}");
    peer.call(1, "read", &json!({}));
    assert_eq!(peer.answer(1), (false, "done: read".into()));
    peer.call(2, "write", &json!({"text": "all"}));
    peer.held();
    assert_eq!(stage.ran(), ["read {}"]);
    let holds = ask(&stage.bed, &ann, &server.url, &["holds", "--json"]).expect(0).json();
    let (id, digest) = (holds[0]["id"].as_str().unwrap(), holds[0]["digest"].as_str().unwrap());
    let edit = ["approve", id, "--digest", digest, "--arguments", r#"{"text":"less"}"#];
    ask(&stage.bed, &ann, &server.url, &edit).expect(0);
    let (error, text) = peer.answer(2);
    assert!(!error && text.starts_with("A person changed the arguments") && text.ends_with("|done: write"), "{text}");
    assert_eq!(stage.ran(), ["read {}", r#"write {"text":"less"}"#]);
    assert_eq!(peer.leave(), 0);
}

/// B132: the identical call joins the open hold; an approval without a caller runs nothing until it comes again; after
/// its outcome is delivered, an identical call is a new one. A gateway that was killed meanwhile loses nothing.
#[test]
fn the_identical_call_joins_the_open_hold() {
    let stage = Stage::new(ASK_WRITES);
    let mut peer = stage.client(&["--wait", "1s"]);
    peer.call(1, "write", &json!({"text": "x"}));
    let hold = peer.held();
    let (error, text) = peer.answer(1);
    assert!(error && text.contains(&hold) && text.contains("countersign approve"), "{text}");
    peer.child.kill().unwrap();
    stage.approve(&[]);
    assert_eq!(stage.ran(), [""; 0], "nothing runs for a caller that is gone");

    let mut peer = stage.client(&["--wait", "1s"]);
    peer.call(2, "write", &json!({"text": "x"}));
    assert_eq!(peer.answer(2), (false, "done: write".into()));
    peer.call(3, "write", &json!({"text": "x"}));
    assert_ne!(peer.held(), hold);
    assert!(peer.answer(3).0);
    assert_eq!(stage.ran(), [r#"write {"text":"x"}"#]);
}

/// Many identical calls at once are one question to people, one run, and a result for each.
#[test]
fn a_storm_of_identical_calls_is_one_hold() {
    const CALLS: u64 = 1_000;
    let stage = Stage::new(ASK_WRITES);
    let mut peer = stage.client(&["--wait", "10m"]);
    for id in 1..=CALLS {
        peer.call(id, "write", &json!({"text": "x"}));
    }
    let mut waiting = std::collections::BTreeSet::new();
    while waiting.len() < usize::try_from(CALLS).unwrap() {
        let told = peer.next();
        assert_eq!(told["method"], "notifications/progress", "{told}");
        waiting.insert(told["params"]["progressToken"].as_u64().unwrap());
    }
    stage.approve(&[]);
    let mut answered = std::collections::BTreeSet::new();
    while answered.len() < waiting.len() {
        let told = peer.next();
        if let Some(id) = told["id"].as_u64() {
            assert_eq!(told["result"]["content"][0]["text"], "done: write", "{told}");
            assert!(answered.insert(id), "{told}");
        }
    }
    assert_eq!(answered, waiting);
    assert_eq!(stage.ran(), [r#"write {"text":"x"}"#]);
    let log = stage.say("audit log --json").expect(0).stdout;
    assert_eq!((log.matches("\"hold.opened\"").count(), log.matches("\"call.claimed\"").count()), (1, 1));
}

/// B132: a cancelled call detaches, and its hold stays.
#[test]
fn a_client_that_cancels_leaves_the_hold_open() {
    let stage = Stage::new(ASK_WRITES);
    let mut peer = stage.client(&[]);
    peer.call(1, "write", &json!({"text": "x"}));
    let hold = peer.held();
    peer.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    peer.call(2, "write", &json!({"text": "x"}));
    assert_eq!(peer.held(), hold);
    stage.approve(&[]);
    assert_eq!(peer.answer(2), (false, "done: write".into()), "and the cancelled request gets no answer");
    assert_eq!(stage.ran().len(), 1);
}

/// B132: that a call has no client is written down, over the end of its gateway: one that comes later withdraws it in its
/// time, and the identical call takes the mark away.
#[test]
fn a_call_without_a_client_is_withdrawn_by_a_later_gateway() {
    let stage = Stage::new(ASK_WRITES);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = || stage.bed.store();
    let callers = || runtime.block_on(async { callers::list(&*store().await, "plain", None).await.unwrap() });
    let gone = || callers().iter().filter(|(_, caller, _)| caller.gone.is_some()).count();
    let mut peer = stage.client(&[]);
    peer.call(1, "write", &json!({"text": "x"}));
    peer.held();
    assert_eq!((peer.leave(), gone()), (0, 1));

    let mut peer = stage.client(&[]);
    peer.call(2, "write", &json!({"text": "x"}));
    peer.held();
    assert_eq!((gone(), stage.holds().len()), (0, 1), "somebody waits for it again");
    assert_eq!((peer.leave(), gone()), (0, 1));

    runtime.block_on(async {
        let (call, caller, _) = callers::list(&*store().await, "plain", None).await.unwrap().remove(0);
        let long_ago = Caller { gone: caller.gone.map(|since| Time(since.0 - 601_000_000)), ..caller };
        callers::set(&*store().await, "plain", call, &long_ago, Expect::Any).await.unwrap();
    });
    stage.client(&[]).ask(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#);
    assert_eq!((stage.holds().len(), callers().len(), stage.ran().len()), (0, 0, 0));
}

/// An outcome that its client did not wait for goes to the next identical call, once.
#[test]
fn an_undelivered_outcome_is_delivered_once() {
    let stage = Stage::new("{ preset: allow-all }");
    let mut peer = stage.client(&[]);
    let cancel =
        |id| format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#);
    peer.call(1, "slow", &json!({}));
    stage.until_ran(1);
    peer.send(cancel(1));
    // The server answers what was cancelled; once the outcome is on record, it waits for the identical call.
    while stage.say("audit log --json").expect(0).stdout.matches("call.succeeded").count() == 0 {}
    peer.call(2, "slow", &json!({}));
    assert_eq!(peer.answer(2), (false, "done: slow".into()));
    assert_eq!(stage.ran().len(), 1);
    peer.call(3, "slow", &json!({}));
    stage.until_ran(2);
}

/// A server that dies while it runs a call leaves a doubt, and says so.
#[test]
fn a_server_that_dies_leaves_a_doubt() {
    let stage = Stage::new("{ preset: allow-all }");
    let mut peer = stage.client(&[]);
    peer.call(1, "die", &json!({}));
    let (error, text) = peer.answer(1);
    assert!(error && text.starts_with("Outcome unknown"), "{text}");
    assert_eq!(peer.child.wait().unwrap().code(), Some(1));
    let doubts = stage.say("doubts --json").expect(0).json();
    assert_eq!(doubts.as_array().unwrap().len(), 1, "{doubts}");
    assert_eq!(stage.ran().len(), 1);
}

/// A gateway that is killed between claim and outcome: the identical call is not run again.
#[test]
fn a_killed_gateway_runs_nothing_twice() {
    let stage = Stage::new("{ preset: allow-all }");
    let mut peer = stage.client(&[]);
    peer.call(1, "hang", &json!({}));
    stage.until_ran(1);
    peer.child.kill().unwrap();
    peer.child.wait().unwrap();
    let mut peer = stage.client(&["--wait", "1s"]);
    peer.call(2, "hang", &json!({}));
    let (error, text) = peer.answer(2);
    assert!(error && text.starts_with("Still running"), "{text}");
    assert_eq!(stage.ran().len(), 1);
}

/// B49: a tool that appears later is judged as unmatched; a changed definition is refused whatever the rules say, after
/// a restart and when it is put back, until it is accepted.
#[test]
fn a_changed_definition_is_refused_until_it_is_accepted() {
    let stage = Stage::new("{ otherwise: ask, rules: [{ id: known, allow: ['plain/write', 'plain/read'] }] }");
    let mut peer = stage.client(&["--wait", "1s"]);
    peer.call(1, "write", &json!({}));
    assert!(!peer.answer(1).0);
    stage.bed.write("log.changed", "");
    stage.bed.write("log.extra", "");
    let listed = peer.ask(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#);
    assert!(!listed.contains("evil.example") && !listed.contains("\"write\""), "no model reads it: {listed}");
    assert!(listed.contains("\"read\"") && listed.contains("\"late\""), "{listed}");
    let refused = |peer: &mut Peer, id| {
        peer.call(id, "write", &json!({}));
        let (error, text) = peer.answer(id);
        assert!(error && text.contains("countersign gateway accept plain write"), "{text}");
    };
    refused(&mut peer, 3);
    peer.call(4, "late", &json!({}));
    peer.held();
    assert!(peer.answer(4).0);
    let mut peer = stage.client(&[]);
    refused(&mut peer, 5);
    std::fs::remove_file(stage.bed.work().join("log.changed")).unwrap();
    let mut peer = stage.client(&[]);
    refused(&mut peer, 6);
    peer.call(7, "read", &json!({}));
    assert_eq!(peer.answer(7), (false, "done: read".into()));
    stage.bed.write("log.changed", "");
    peer.ask(r#"{"jsonrpc":"2.0","id":8,"method":"tools/list"}"#);

    let asked = stage.say("gateway accept plain").expect(3);
    assert!(asked.stderr.contains("evil.example"), "{}", asked.stderr);
    let digest = asked.stderr.split_whitespace().find(|word| word.starts_with("cs1p:")).unwrap();
    let other = format!("cs1p:{}", "0".repeat(64));
    stage.say(&format!("gateway accept plain write --digest {other}")).expect(3);
    refused(&mut peer, 80);
    stage.say(&format!("gateway accept plain write --digest {digest}")).expect(0);
    peer.call(9, "write", &json!({}));
    assert_eq!(peer.answer(9), (false, "done: write".into()), "also in a gateway that runs already");
    let listed = peer.ask(r#"{"jsonrpc":"2.0","id":10,"method":"tools/list"}"#);
    assert!(listed.contains("evil.example"), "what was accepted is listed: {listed}");
    stage.say("gateway accept plain").expect(2);

    let log = stage.say("audit log --json").expect(0).stdout;
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_write = |name: &str| -> Vec<&Value> {
        events.iter().filter(|event| event["event"] == name && event["tool"] == "write").collect()
    };
    let (pinned, changed, accepted) = (of_write("tool.pinned"), of_write("tool.changed"), of_write("tool.accepted"));
    assert_eq!((pinned.len(), changed.len(), accepted.len()), (1, 1, 1), "{log}");
    assert_eq!(pinned[0]["definition"], changed[0]["before"]);
    assert_eq!(accepted[0]["before"], pinned[0]["definition"]);
    assert_eq!((&accepted[0]["definition"], &accepted[0]["server"]), (&json!(digest), &json!("plain")));
    assert!(accepted[0]["by"].as_str().unwrap().starts_with("os:"), "{log}");
}

/// B131: a server's question passes to the client, labelled with the server, its answer unchanged, and decides nothing.
#[test]
fn a_servers_question_goes_to_the_client() {
    let stage = Stage::new("{ preset: allow-all }");
    let mut peer = stage.client(&[]);
    peer.call(1, "ask", &json!({}));
    let question = peer.next();
    assert_eq!((&question["id"], &question["method"]), (&json!("q1"), &json!("elicitation/create")));
    assert_eq!(question["params"]["message"], "[plain] May I?");
    assert_eq!(peer.answer(1), (false, "done: asked".into()));
    let answer = r#"{"jsonrpc":"2.0","id":"q1","result":{"action":"accept","content":{ "odd":1}}}"#;
    peer.send(answer);
    peer.leave();
    assert!(crate::bed::read(stage.bed.work().join("log")).contains(answer));
}

/// What a server says on its standard error is more than any pipe holds, and this client never reads it.
#[test]
fn a_client_that_does_not_read_notes_is_served_all_the_same() {
    let stage = Stage::new("{ preset: allow-all }");
    let noisy = "yes 'a word about nothing' | head -n 50000 >&2; exec \"$0\" log";
    let mut command = stage.bed.command(["gateway", "--config", "policy.yml", "--server", "plain"]);
    command.args(["--store", &stage.bed.url(), "--", "sh", "-c", noisy]).arg(plain());
    let mut peer = Peer::start(command);
    peer.call(1, "read", &json!({}));
    assert_eq!(peer.answer(1), (false, "done: read".into()));
}

/// What cannot be read in one way only never reaches the server, and the next message is taken as ever.
#[test]
fn hostile_messages_are_refused_and_forgotten() {
    let stage = Stage::new("{ preset: allow-all }");
    let mut peer = stage.client(&[]);
    let call = one_call(1).to_string();
    let huge =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"x":"{}"}}}}"#, "x".repeat(5 << 20));
    let smuggled = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":\r{call}\r}}");
    for (line, code) in [
        (huge.into_bytes(), -32600),
        (b"\xff\xfe{}".to_vec(), -32700),
        (b"{\"jsonrpc\":".to_vec(), -32700),
        (smuggled.into_bytes(), -32600),
        (call.replace("\"method\"", "\"method\":\"ping\",\"method\"").into_bytes(), -32600),
        (call.replace("tools/call", "Tools/Call").into_bytes(), -32601),
        (call.replace("\"id\":1,", "").into_bytes(), -32602),
    ] {
        peer.send(&line);
        let told = peer.next();
        assert_eq!(told["error"]["code"], code, "{told}");
    }
    peer.send(format!("[{call},{}]", one_call(2)));
    let told = peer.next();
    assert_eq!(told.as_array().unwrap().len(), 2, "{told}");
    peer.send(call.replace(r#"{"text":"x"}"#, r#"{"text":"x","text":"y"}"#));
    let (error, text) = peer.answer(1);
    assert!(error && text.contains("appears twice"), "{text}");
    assert_eq!(stage.ran(), [""; 0]);
    peer.send(call);
    assert_eq!(peer.answer(1), (false, "done: write".into()));
}

/// A method that no revision has may be another way to a tool: it does not reach the server, unless that is wanted.
#[test]
fn unknown_method_refused() {
    let stage = Stage::new("{ preset: allow-all }");
    let odd = r#"{"jsonrpc":"2.0","id":1,"method":"tools/run","params":{"name":"write"}}"#;
    let loud = r#"{"jsonrpc":"2.0","method":"tools/run","params":{"name":"write"}}"#;
    let mut peer = stage.client(&[]);
    let told: Value = serde_json::from_str(&peer.ask(odd)).unwrap();
    assert_eq!(told["error"]["code"], -32601, "{told}");
    peer.send(loud);
    for method in ["ping", "resources/templates/list", "tasks/result", "completion/complete"] {
        let told = peer.ask(&odd.replace("tools/run", method));
        assert!(told.contains(&format!("\"echo\":\"{method}\"")), "{told}");
    }
    peer.send(r#"{"jsonrpc":"2.0","method":"notifications/of/our/own"}"#);
    assert_eq!(peer.leave(), 0);
    let got = crate::bed::read(stage.bed.work().join("log"));
    assert!(!got.contains("tools/run") && got.contains("notifications/of/our/own"), "{got}");
    let told = stage.client(&["--pass-unknown"]).ask(odd);
    assert!(told.contains("\"echo\":\"tools/run\""), "{told}");
}

/// A command that cannot be started, a store nobody else can open and a name no rule can mean are said at once.
#[test]
fn what_cannot_work_is_said_before_anything_begins() {
    let stage = Stage::new("{ preset: allow-all }");
    let gone = stage.bed.say("gateway -- no-such-program-anywhere").expect(1);
    assert!(gone.stderr.contains("cannot start the server") && gone.stdout.is_empty(), "{gone:?}");
    let memory = stage.bed.say("gateway --store memory: -- cat").expect(2);
    assert!(memory.stderr.contains("store on disk"), "{memory:?}");
    stage.bed.say("gateway --server a/b -- cat").expect(2);
    stage.bed.say("gateway").expect(2);
}

/// A server that writes and never ends its line is stopped, and so is its gateway.
#[test]
fn a_line_without_an_end_is_cut() {
    let stage = Stage::new("{ preset: allow-all }");
    let mut command = stage.bed.command(["gateway", "--config", "policy.yml", "--server", "plain"]);
    command.args(["--store", &stage.bed.url(), "--", "sh", "-c", "exec tr '\\0' x < /dev/zero"]);
    let mut peer = Peer::bare(command);
    assert_eq!(peer.child.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    std::io::Read::read_to_string(peer.child.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert!(said.contains("the server was stopped") && said.contains("bytes"), "{said}");

    let mut peer = stage.client(&[]);
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..40 {
        peer.send_part(&piece);
    }
    peer.send("");
    assert_eq!(peer.next()["error"]["code"], -32600);
    peer.call(1, "read", &json!({}));
    assert_eq!(peer.answer(1), (false, "done: read".into()));
}

/// A flood of words that tools have changed is a few listings, and calls go on.
#[test]
fn a_flood_of_notifications_is_a_few_listings() {
    let stage = Stage::new("{ preset: allow-all }");
    let mut peer = stage.client(&[]);
    peer.send(one_call(1).to_string().replace("\"write\"", "\"flood\""));
    let mut told = 0;
    let answer = loop {
        let next = peer.next();
        if next.get("id").is_some() {
            break next;
        }
        assert_eq!(next["method"], "notifications/tools/list_changed");
        told += 1;
    };
    assert_eq!((told, &answer["result"]["content"][0]["text"]), (20_000, &json!("done: flood")));
    peer.call(2, "read", &json!({}));
    assert_eq!(peer.answer(2), (false, "done: read".into()));
    let listings = crate::bed::read(stage.bed.work().join("log")).matches("tools/list\"").count();
    assert!(listings < 2_000, "{listings} listings");
}
