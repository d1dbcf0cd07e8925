//! Notifications: signed, told at least once and in the good case once, and never more than may be told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use countersign::Store;
use countersign::config::{Config, NotifyConfig};
use countersign::store::Expect;
use countersign::testing::{TestMemory, TestStore};
use countersign_api::wire::Role;
use countersign_server::{Server, notify};
use countersign_testkit::stores::Kind;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::receivers::{Came, Does, Mailbox, Receiver};
use crate::stage::{Client, Stage, text};

const POLICY: &str = "
rules:
  - { id: writes, ask: 'write_*', reason: It changes files }
  - { id: money, ask: transfer, risk: high }
";
/// The key of the specification's example, and its bytes.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const KEY: [u8; 24] = [
    0x31, 0xf2, 0x90, 0xf6, 0xbf, 0x06, 0x29, 0x8a, 0xab, 0x4f, 0x08, 0xd4, 0x3c, 0x3f, 0x08, 0x2c, 0xf6, 0x48, 0xa3,
    0x62, 0xda, 0x2d, 0xa4, 0xb0,
];

fn notified(entry: &str) -> Vec<NotifyConfig> {
    Config::from_yaml("test.yml", &format!("notify:\n  - {entry}\n"), &|_| None).unwrap().notify
}

/// A server that tells.
async fn telling(store: Arc<dyn Store>, entry: &str) -> Stage {
    let notify = notified(entry);
    Stage::built(store, POLICY, |_, builder| builder.notify(notify)).await
}

fn webhook(receiver: &Receiver) -> String {
    format!("{{ webhook: '{}/hook/p4th', secret: {SECRET}, allow_private: true }}", receiver.url)
}

/// The newest delivery, once it was tried and is in this state. The server says the same of it as the store.
async fn settled(stage: &Stage, state: &str) -> Value {
    let store = &**stage.gate.store();
    let found = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let newest = notify::list(store, None, 1).await.unwrap().pop();
            if let Some(found) = newest.filter(|found| found.state.as_str() == state && found.last.is_some()) {
                return serde_json::to_value(found).unwrap();
            }
            tokio::task::yield_now().await;
        }
    });
    let found = found.await.unwrap_or_else(|_| panic!("no delivery is {state}"));
    let operator = stage.with(Role::Operator, "op").await;
    assert_eq!(operator.get("/v1/deliveries?limit=1").await.expect(200)["items"][0], found);
    found
}

async fn hold(agent: &Client) -> Value {
    agent.submit("write_file", json!({ "text": "arg-canary", "password": "pw-canary" })).await.expect(202)["holds"][0]
        .clone()
}

/// The published scheme verifies what we send; nothing of the arguments, the address or the key is told or listed.
#[tokio::test]
async fn a_webhook_is_signed_and_tells_no_arguments() {
    let (log, _logging) = logged();
    let mut receiver = Receiver::new().await;
    receiver.will([Does::Answer(500)]);
    let test = TestMemory::new();
    let stage = telling(test.store(), &webhook(&receiver)).await;
    let hold = hold(&stage.agent().await).await;
    let failed = receiver.next().await;
    let pending = settled(&stage, "pending").await;
    assert_eq!((&pending["last"]["status"], &pending["attempts"]), (&json!(500), &json!(1)));
    test.advance(Duration::from_secs(10)).await;
    let mut came = receiver.next().await;
    assert!(came.is_signed_with(&KEY) && failed.is_signed_with(&KEY));
    assert_eq!((came.header("webhook-id"), &came.body), (failed.header("webhook-id"), &failed.body));
    let body = came.json();
    assert_eq!((&body["type"], &body["data"]["hold"]), (&json!("hold.opened"), &hold["id"]));
    assert_eq!(body["data"]["url"], format!("{}/#/inbox/{}", stage.url, text(&hold, "id")));
    assert_eq!((&body["data"]["tool"], &body["data"]["rules"]), (&json!("write_file"), &json!(["writes"])));
    assert_eq!((&body["data"]["reason"], &body["data"]["digest"]), (&json!("It changes files"), &hold["digest"]));
    let delivered = settled(&stage, "delivered").await;
    assert_eq!(delivered["id"], came.header("webhook-id"));
    assert!(text(&delivered, "to").starts_with("webhook 127.0.0.1"), "{delivered}");
    let listed = delivered.to_string() + &log.lock().unwrap();
    for canary in ["arg-canary", "pw-canary", "p4th", "MfKQ9r8"] {
        assert!(!came.body.contains(canary) && !listed.contains(canary), "{canary} in {listed}");
    }
    assert!(log.lock().unwrap().contains("a notification did not arrive"));

    came.body.push(' ');
    assert!(!came.is_signed_with(&KEY) && !failed.is_signed_with(&KEY[1..]));
}

/// Arguments leave only where the operator says so, and even then their secrets do not.
#[tokio::test]
async fn arguments_are_told_only_where_included() {
    let mut receiver = Receiver::new().await;
    let entry = webhook(&receiver).replace(" }", ", include: arguments }");
    let stage = telling(TestMemory::new().store(), &entry).await;
    hold(&stage.agent().await).await;
    let came = receiver.next().await;
    assert_eq!(came.json()["data"]["arguments"]["text"], "arg-canary");
    assert!(!came.body.contains("pw-canary"), "{}", came.body);
}

/// Errors and redirects are tried again, later each time, under the same id; a redirect leads nowhere; 410 ends it.
#[tokio::test]
async fn what_does_not_arrive_is_tried_again() {
    let (mut receiver, mut elsewhere) = (Receiver::new().await, Receiver::new().await);
    receiver.will([Does::Redirect(elsewhere.url.clone()), Does::Later(429, 600), Does::Answer(204), Does::Answer(410)]);
    let test = TestMemory::new();
    let stage = telling(test.store(), &webhook(&receiver)).await;
    hold(&stage.agent().await).await;
    let first = receiver.next().await;
    let pending = settled(&stage, "pending").await;
    assert!(text(&pending["last"], "problem").contains("redirects are not followed"), "{pending}");
    test.advance(Duration::from_secs(10)).await;
    receiver.next().await;
    // Ten minutes were asked for: a minute is too early.
    test.advance(Duration::from_secs(60)).await;
    let operator = stage.with(Role::Operator, "op").await;
    operator.post("/v1/deliveries/test", &json!({})).await.expect(200);
    assert_eq!(receiver.next().await.json()["type"], "test");
    test.advance(Duration::from_secs(600)).await;
    let last = receiver.next().await;
    assert_eq!(last.header("webhook-id"), first.header("webhook-id"));
    let failed = settled(&stage, "failed").await;
    assert_eq!((&failed["attempts"], &failed["last"]["status"]), (&json!(3), &json!(410)));
    assert!(elsewhere.rest().is_empty());

    // The operator may want it all the same.
    let retry = format!("/v1/deliveries/{}/retry", text(&failed, "id"));
    assert_eq!(operator.post(&retry, &json!({})).await.expect(200)["state"], "pending");
    assert_eq!(receiver.next().await.header("webhook-id"), first.header("webhook-id"));
    settled(&stage, "delivered").await;
    operator.post("/v1/deliveries/dlv_nothing/retry", &json!({})).await.problem(404, "not_found");
}

/// Who takes too long is given up on; an answer that comes too late changes nothing, and the id is the same again.
#[tokio::test]
async fn an_answer_that_comes_late_is_no_answer() {
    let mut receiver = Receiver::new().await;
    let go_on = Arc::new(Notify::new());
    receiver.will([Does::Hang(Arc::clone(&go_on))]);
    let test = TestMemory::new();
    let stage = telling(test.store(), &webhook(&receiver)).await;
    let agent = stage.agent().await;
    hold(&agent).await;
    let first = receiver.next().await;
    // A second event is told meanwhile or after; nobody waits for the first for ever.
    agent.submit("write_other", json!({})).await.expect(202);
    let second = receiver.next().await;
    assert_ne!(second.header("webhook-id"), first.header("webhook-id"));
    go_on.notify_one();
    test.advance(Duration::from_secs(10)).await;
    assert_eq!(receiver.next().await.header("webhook-id"), first.header("webhook-id"));
}

/// Whatever happened while nobody ran, and whatever was half written when somebody died, is told.
#[tokio::test]
async fn nothing_is_lost_when_the_server_dies() {
    for kind in [Kind::Memory, Kind::Sqlite, Kind::Postgres] {
        let test = kind.fresh().await.unwrap();
        let mut receiver = Receiver::new().await;
        let stage = telling(test.store(), &webhook(&receiver)).await;
        hold(&stage.agent().await).await;
        receiver.next().await;
        settled(&stage, "delivered").await;
        stage.end().await;
        let store = test.store();
        let seats = async || store.records("notify", "", None, 10).await.unwrap();
        let seat = seats().await.remove(0);

        // Nobody tells while this opens.
        test.advance(Duration::from_secs(1)).await;
        let silent = Stage::over(test.store(), POLICY).await;
        hold(&silent.agent().await).await;
        silent.end().await;
        receiver.will([Does::Answer(500)]);
        let stage = telling(test.store(), &webhook(&receiver)).await;
        let told = receiver.next().await;
        settled(&stage, "pending").await;
        stage.end().await;

        // Died before the delivery was in the index, and before the event was passed.
        for due in store.records("deliveries-due", "", None, 10).await.unwrap() {
            store.delete_record("deliveries-due", &due.key, Expect::Any).await.unwrap();
        }
        store.put_record("notify", &seat.key, &seat.value, Expect::Any, None).await.unwrap();
        test.advance(Duration::from_secs(60)).await;
        let stage = telling(test.store(), &webhook(&receiver)).await;
        let again = receiver.next().await;
        assert_eq!(again.header("webhook-id"), told.header("webhook-id"), "{kind:?}");
        settled(&stage, "delivered").await;

        // Died after it arrived and before the event was passed: it is known to have arrived.
        stage.end().await;
        store.put_record("notify", &seat.key, &seat.value, Expect::Any, None).await.unwrap();
        let stage = telling(test.store(), &webhook(&receiver)).await;
        hold(&stage.agent().await).await;
        let next = receiver.next().await;
        assert_ne!(next.header("webhook-id"), told.header("webhook-id"), "{kind:?}");
        assert!(receiver.rest().is_empty(), "{kind:?}");
        stage.end().await;
    }
}

/// Several nodes with the same receiver tell it once, and when one ends another goes on.
#[tokio::test]
async fn many_nodes_tell_once() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        let test = kind.fresh().await.unwrap();
        let mut receiver = Receiver::new().await;
        let one = telling(test.store(), &webhook(&receiver)).await;
        let two = telling(test.reopen().await, &webhook(&receiver)).await;
        let agents = [one.agent().await, two.agent().await];
        let mut ids = Vec::new();
        for n in 0..20 {
            agents[n % 2].submit("write_file", json!({ "n": n })).await.expect(202);
        }
        for _ in 0..20 {
            ids.push(receiver.next().await.header("webhook-id").to_owned());
        }
        one.end().await;
        agents[1].submit("write_file", json!({ "n": 20 })).await.expect(202);
        ids.push(receiver.next().await.header("webhook-id").to_owned());
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 21, "{kind:?}");
        assert!(receiver.rest().is_empty(), "{kind:?}");
        two.end().await;
    }
}

/// `no_forbidden_address`: neither an address nor a name leads to this machine unless the operator says so.
#[tokio::test]
async fn a_private_address_is_not_connected_to() {
    let mut receiver = Receiver::new().await;
    let port = receiver.url.rsplit_once(':').unwrap().1.to_owned();
    let stage = Stage::new().await;
    let builder = Server::builder(stage.gate.clone()).listen("127.0.0.1:0".parse().unwrap());
    let error = builder.notify(notified(&format!("{{ webhook: 'https://127.0.0.1:{port}' }}"))).bind().await.err();
    let error = error.unwrap().to_string();
    assert!(error.contains("not public") && error.contains("allow_private"), "{error}");

    let localhost = notified(&format!("{{ webhook: 'https://localhost:{port}' }}"));
    let tested = notify::test(&localhost, &**stage.gate.store(), "http://x").await.unwrap();
    let problem = tested[0].problem.clone().unwrap();
    assert!(!tested[0].delivered && problem.contains("not public"), "{problem}");
    let mail = "{ email: { to: a@example.org, from: b@example.org, smtp: 'localhost:25' } }";
    let tested = notify::test(&notified(mail), &**stage.gate.store(), "http://x").await.unwrap();
    assert!(tested[0].problem.clone().unwrap().contains("not public"), "{tested:?}");
    assert!(receiver.rest().is_empty());
}

/// Only what was asked for is told.
#[tokio::test]
async fn filters_by_event_rule_tool_and_risk() {
    let cases = [
        ("risk: high", vec!["transfer"]),
        ("rules: [writ*]", vec!["write_a"]),
        ("tools: [transfer, 'db/*']", vec!["transfer"]),
        ("events: [hold.cancelled]", vec!["write_a"]),
        ("events: [halt.set]", vec![]),
        ("events: [halt.set, hold.opened], risk: high", vec!["transfer"]),
    ];
    for (filter, expected) in cases {
        let mut receiver = Receiver::new().await;
        let entry = webhook(&receiver).replace(" }", &format!(", {filter} }}"));
        let stage = telling(TestMemory::new().store(), &entry).await;
        let (agent, operator) = (stage.agent().await, stage.with(Role::Operator, "op").await);
        let call = agent.submit("write_a", json!({})).await.expect(202);
        agent.submit("transfer", json!({})).await.expect(202);
        agent.post(&format!("/v1/calls/{}/cancel", text(&call, "id")), &json!({})).await.expect(200);
        operator.post("/v1/halt", &json!({})).await.expect(200);
        let halts = filter == "events: [halt.set]";
        let mut told = Vec::new();
        for _ in 0..expected.len() + usize::from(halts) {
            let came = receiver.next().await.json();
            told.extend(came["data"]["tool"].as_str().map(str::to_owned));
        }
        // Ends only after everything that is to be told was.
        stage.end().await;
        told.extend(receiver.rest().iter().map(|came| came.body.clone()));
        assert_eq!(told, expected, "{filter}");
    }
}

/// A message in a chat leads to the page and decides nothing; names in it are text; what is over is not asked.
#[tokio::test]
async fn a_chat_message_leads_to_the_page() {
    let mut receiver = Receiver::new().await;
    let entry = format!("{{ slack: '{}/T0/B0/p4th', allow_private: true }}", receiver.url);
    let test = TestMemory::new();
    let stage = telling(test.store(), &entry).await;
    let agent = stage.agent().await;
    agent.submit("write_<!channel>*x*\u{202e}", json!({ "text": "arg-canary" })).await.expect(202);
    let came: Came = receiver.next().await;
    let body = came.json();
    assert_eq!(came.path, "/T0/B0/p4th");
    assert_eq!(body["blocks"][0]["text"]["type"], "plain_text");
    let said = text(&body["blocks"][0]["text"], "text");
    assert!(said.contains("write_<!channel>*x*\\u{202e} waits for a decision"), "{said}");
    assert!(said.contains("reason: It changes files") && !came.body.contains("arg-canary"), "{said}");
    assert!(text(&body, "text").contains("&lt;!channel&gt;"), "{body}");
    let link = text(&body["blocks"][1]["text"], "text");
    assert!(link.starts_with(&format!("<{}/#/inbox/hold_", stage.url)), "{link}");
    settled(&stage, "delivered").await;

    receiver.will([Does::Answer(503)]);
    test.advance(Duration::from_secs(1)).await;
    let call = agent.submit("write_b", json!({})).await.expect(202);
    receiver.next().await;
    settled(&stage, "pending").await;
    agent.post(&format!("/v1/calls/{}/cancel", text(&call, "id")), &json!({})).await.expect(200);
    test.advance(Duration::from_secs(10)).await;
    settled(&stage, "dropped").await;
    assert!(receiver.rest().is_empty());
}

/// A letter is a real one; what the mail server refuses for good is not sent again, what it cannot take now is.
#[tokio::test]
async fn a_letter_is_sent_by_smtp() {
    let mut mailbox = Mailbox::new(&["451 not now", "250 taken", "550 nobody here"]).await;
    let entry = format!(
        "{{ email: {{ to: [ann@example.org, bo@example.org], from: gate@example.org, smtp: '127.0.0.1:{}', tls: none }}, \
         allow_private: true }}",
        mailbox.port
    );
    let test = TestMemory::new();
    let stage = telling(test.store(), &entry).await;
    let agent = stage.agent().await;
    let hold = hold(&agent).await;
    mailbox.next().await;
    let pending = settled(&stage, "pending").await;
    assert_eq!(pending["last"]["problem"], "the mail server answered 451");
    test.advance(Duration::from_secs(10)).await;
    let letter = mailbox.next().await;
    assert!(letter.contains("MAIL FROM:<gate@example.org>") && letter.contains("RCPT TO:<bo@example.org>"), "{letter}");
    assert!(letter.contains("Subject: Countersign: write_file waits for a decision"), "{letter}");
    let unfolded = letter.replace("=\r\n", "").replace("=3D", "=");
    assert!(unfolded.contains(&format!("{}/#/inbox/{}", stage.url, text(&hold, "id"))), "{letter}");
    assert!(letter.contains(&format!("Message-ID: <{}@", text(&pending, "id"))), "{letter}");
    assert!(!letter.contains("arg-canary"), "{letter}");
    settled(&stage, "delivered").await;

    test.advance(Duration::from_secs(1)).await;
    agent.submit("write_b", json!({})).await.expect(202);
    mailbox.next().await;
    assert_eq!(settled(&stage, "failed").await["last"]["status"], 550);
}

/// A test says for each receiver whether it arrives, and why not; without a key of its own the server's signs.
#[tokio::test]
async fn a_test_says_who_can_be_told() {
    let mut receiver = Receiver::new().await;
    receiver.will([Does::Answer(403)]);
    let entry = format!("{{ webhook: '{}', allow_private: true }}", receiver.url);
    let test = TestMemory::new();
    let stage = telling(test.store(), &entry).await;
    let operator = stage.with(Role::Operator, "op").await;
    let tested = operator.post("/v1/deliveries/test", &json!({})).await.expect(200);
    assert_eq!((&tested["items"][0]["delivered"], &tested["items"][0]["status"]), (&json!(false), &json!(403)));
    let tested = operator.post("/v1/deliveries/test", &json!({})).await.expect(200);
    assert_eq!(tested["items"][0]["delivered"], true);
    let came = [receiver.next().await, receiver.next().await];
    let secret = notify::signing_secret(&*test.store()).await.unwrap();
    assert!(!came[1].is_signed_with(&KEY) && secret.starts_with("whsec_"));
    assert_eq!(came[1].json()["type"], "test");
}

/// Everything logged on this thread.
fn logged() -> (Arc<Mutex<String>>, tracing::subscriber::DefaultGuard) {
    let log = Arc::<Mutex<String>>::default();
    (Arc::clone(&log), tracing::subscriber::set_default(Logged(log)))
}

struct Logged(Arc<Mutex<String>>);

impl tracing::Subscriber for Logged {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        span.record(&mut Written(&mut self.0.lock().unwrap()));
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut Written(&mut self.0.lock().unwrap()));
    }

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut Written(&mut self.0.lock().unwrap()));
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

struct Written<'l>(&'l mut String);

impl tracing::field::Visit for Written<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        use std::fmt::Write as _;
        let _ = writeln!(self.0, "{field}={value:?}");
    }
}
