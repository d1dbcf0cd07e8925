//! People: links, sessions, tokens, and when they end.

use std::sync::Arc;
use std::time::Duration;

use countersign::memory::MemoryStore;
use countersign::testing::{TestMemory, TestStore as _};
use countersign_api::wire::{NewToken, Role, Span};
use countersign_server::{people, tokens};
use countersign_testkit::stores::Kind;
use reqwest::Method;
use reqwest::header::{COOKIE, SET_COOKIE};
use serde_json::{Value, json};

use crate::stage::{Answered, POLICY, Stage, read};

/// A browser that is signed in.
pub(crate) struct Browser {
    url: String,
    client: reqwest::Client,
    cookie: String,
    csrf: String,
}

impl Browser {
    /// Signs in with a link of its own.
    pub(crate) async fn sign_in(stage: &Stage, name: &str) -> Browser {
        let link = stage.link(name).await;
        Browser::with(stage, &link).await
    }

    /// Signs in as somebody whose account stays as it is.
    pub(crate) async fn known(stage: &Stage, name: &str) -> Browser {
        Browser::with(stage, &people::create_link_for(&**stage.gate.store(), name, "test").await.unwrap()).await
    }

    async fn with(stage: &Stage, link: &str) -> Browser {
        let answered = stage.nobody().post("/v1/sign-in", &json!({ "link": link })).await;
        let set = answered.headers[SET_COOKIE].to_str().unwrap().to_owned();
        assert!(set.contains("HttpOnly; SameSite=Strict"), "{set}");
        let csrf = answered.expect(200)["csrf"].as_str().unwrap().to_owned();
        let cookie = set.split(';').next().unwrap().to_owned();
        Browser { url: stage.url.clone(), client: stage.client.clone(), cookie, csrf }
    }

    /// A request with the cookie alone, as any page could make the browser send it.
    pub(crate) fn bare(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).header(COOKIE, &self.cookie)
    }

    /// A request as our own page sends it.
    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.bare(method, path).header("x-countersign-csrf", &self.csrf)
    }

    /// Reads something.
    pub(crate) async fn get(&self, path: &str) -> Answered {
        read(self.request(Method::GET, path).send().await.unwrap()).await
    }

    /// The cookie, for other ways in.
    pub(crate) fn cookie(&self) -> &str {
        &self.cookie
    }
}

/// A link works once, whoever tries at the same time.
#[tokio::test]
async fn a_link_signs_in_once() {
    let stage = Stage::new().await;
    let link = stage.link("os:ann").await;
    let mut tries = Vec::new();
    for _ in 0..4 {
        let (nobody, body) = (stage.nobody(), json!({ "link": link }));
        tries.push(tokio::spawn(async move { nobody.post("/v1/sign-in", &body).await.status.as_u16() }));
    }
    let mut statuses = Vec::new();
    for one in tries {
        statuses.push(one.await.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 410, 410, 410]);
}

/// Whoever signs in decides under their own name, and is gone when they sign out.
#[tokio::test]
async fn a_browser_decides_as_its_person_until_it_signs_out() {
    let stage = Stage::new().await;
    let browser = Browser::sign_in(&stage, "os:ann").await;
    let me = browser.get("/v1/me").await.expect(200);
    assert_eq!(me["roles"], json!(["approver", "operator", "auditor"]));
    assert_eq!(me["by"], "session");
    read(browser.request(Method::POST, "/v1/calls").json(&json!({})).send().await.unwrap())
        .await
        .problem(403, "forbidden");

    let call = stage.agent().await.submit("write_file", json!({})).await.expect(202);
    let hold = &call["holds"][0];
    let path = format!("/v1/holds/{}/decisions", hold["id"].as_str().unwrap());
    let approve = json!({ "answer": "approve", "digest": hold["digest"] });
    let decided = read(browser.request(Method::POST, &path).json(&approve).send().await.unwrap()).await.expect(200);
    let decision = &decided["call"]["holds"][0]["decisions"][0];
    assert_eq!(
        (&decision["by"], &decision["channel"], &decision["kind"]),
        (&json!("os:ann"), &json!("web"), &json!("person"))
    );

    let out = browser.request(Method::POST, "/v1/sign-out").json(&json!({})).send().await.unwrap();
    assert_eq!(out.status(), 204);
    browser.get("/v1/me").await.problem(401, "unauthenticated");
}

/// Expiry, idleness and revocation all end a credential, by the store's clock.
#[tokio::test]
async fn every_credential_ends() {
    let test = TestMemory::new();
    let stage = Stage::over(test.store(), POLICY).await;
    let browser = Browser::sign_in(&stage, "os:ann").await;
    let agent = stage.agent().await;
    let spent = stage.link("os:ann").await;
    let operator = stage.with(Role::Operator, "op").await;
    let made = operator.post("/v1/tokens", &json!({ "role": "approver", "name": "bo" })).await.expect(201);
    let bo = stage.nobody().token(made["token"].as_str().unwrap());
    bo.get("/v1/holds").await.expect(200);
    let listed = operator.get("/v1/tokens").await.expect(200);
    assert!(!listed.to_string().contains(made["token"].as_str().unwrap()));
    let revoke = format!("/v1/tokens/{}", made["id"].as_str().unwrap());
    assert_eq!(operator.delete(&revoke).await.expect(200)["live"], false);
    bo.get("/v1/holds").await.problem(401, "unauthenticated");
    let made = operator.post("/v1/tokens", &json!({ "role": "agent", "name": "worker" })).await.expect(201);
    let worker = stage.nobody().token(made["token"].as_str().unwrap());
    worker.get("/v1/me").await.expect(200);
    operator.delete(&format!("/v1/tokens/{}", made["id"].as_str().unwrap())).await.expect(200);
    worker.get("/v1/me").await.problem(401, "unauthenticated");

    test.advance(Duration::from_secs(11 * 60)).await;
    stage.nobody().post("/v1/sign-in", &json!({ "link": spent })).await.problem(410, "link_spent");
    browser.get("/v1/me").await.expect(200);
    test.advance(Duration::from_secs(31 * 60)).await;
    browser.get("/v1/me").await.problem(401, "unauthenticated");
    agent.get("/v1/me").await.expect(200);
    test.advance(Duration::from_secs(24 * 3600)).await;
    agent.get("/v1/me").await.problem(401, "unauthenticated");
}

/// A name is who a decision is recorded as, so not every name can be had.
#[tokio::test]
async fn tokens_have_honest_names_and_bounded_lives() {
    let stage = Stage::new().await;
    let store = &**stage.gate.store();
    let create = async |role, name: &str, life: Option<&str>| {
        let expires_after = life.map(|life| life.parse::<Span>().unwrap());
        tokens::create(store, NewToken { role, name: name.to_owned(), expires_after, r#for: None }, "test")
            .await
            .is_ok()
    };
    assert!(create(Role::Approver, "ann", Some("90d")).await);
    assert!(!create(Role::Approver, "ann", Some("91d")).await);
    for name in ["", " ann", "os:ann", "a/b", "a\nb", &"x".repeat(300)] {
        assert!(!create(Role::Approver, name, None).await, "{name:?}");
    }
    assert!(!create(Role::Agent, "local", None).await);
}

const FINANCE: &str = "
policy:
  rules: [{ id: money, ask: transfer, from: [finance] }, { id: staff, ask: hire, from: [people] }]
approvers:
  groups: { finance: [ann], people: ['os:cy'] }
";

async fn decided_by(decider: impl AsyncFn(&str, &serde_json::Value) -> Answered, stage: &Stage, tool: &str) -> u16 {
    let call = stage.agent().await.submit(tool, json!({ "n": tool })).await.expect(202);
    let hold = &call["holds"][0];
    let path = format!("/v1/holds/{}/decisions", hold["id"].as_str().unwrap());
    let answered = decider(&path, &json!({ "answer": "approve", "digest": hold["digest"] })).await;
    if answered.status != 200 {
        let (id, status) = (call["id"].as_str().unwrap(), answered.status.as_u16());
        answered.problem(403, "not_eligible");
        stage.agent().await.post(&format!("/v1/calls/{id}/cancel"), &json!({})).await.expect(200);
        return status;
    }
    answered.status.as_u16()
}

/// `from: [finance]` takes people of that group and nobody else: by the policy's groups or by their account's, with a
/// token or in a browser, on every store; and leaving a group counts at once.
#[tokio::test]
async fn only_members_of_the_group_decide() {
    for kind in [Kind::Memory, Kind::Sqlite, Kind::Postgres] {
        let test = kind.fresh().await.unwrap();
        let stage = Stage::over(test.store(), FINANCE).await;
        let store = &**stage.gate.store();
        let member = async |name: &str, groups: &[&str]| {
            let groups: Vec<Arc<str>> = groups.iter().map(|group| Arc::from(*group)).collect();
            people::put_member(store, name, &[Role::Approver], &groups).await.unwrap()
        };
        member("bo", &["finance"]).await;
        member("os:cy", &[]).await;
        member("os:di", &["finance", "people"]).await;
        for (name, transfer, hire) in [("ann", 200, 403), ("bo", 200, 403), ("eve", 403, 403), ("program:bo", 403, 403)]
        {
            let client = stage.with(Role::Approver, name).await;
            let by_token = async |path: &str, body: &serde_json::Value| client.post(path, body).await;
            assert_eq!(decided_by(by_token, &stage, "transfer").await, transfer, "{kind:?} {name}");
            assert_eq!(decided_by(by_token, &stage, "hire").await, hire, "{kind:?} {name}");
        }
        for (name, transfer, hire) in [("os:cy", 403, 200), ("os:di", 200, 200)] {
            let browser = Browser::known(&stage, name).await;
            let by_browser = async |path: &str, body: &serde_json::Value| {
                read(browser.request(Method::POST, path).json(body).send().await.unwrap()).await
            };
            assert_eq!(decided_by(by_browser, &stage, "transfer").await, transfer, "{kind:?} {name}");
            assert_eq!(decided_by(by_browser, &stage, "hire").await, hire, "{kind:?} {name}");
            if name == "os:di" {
                member("os:di", &["people"]).await;
                assert_eq!(decided_by(by_browser, &stage, "transfer").await, 403, "{kind:?}");
                people::remove_user(store, "os:di").await.unwrap();
                browser.get("/v1/me").await.problem(401, "unauthenticated");
            }
        }
        stage.end().await;
    }
}

/// Signing in again, or starting the server again, takes no group away; names are names.
#[tokio::test]
async fn people_keep_their_groups() {
    let stage = Stage::new().await;
    let store = &**stage.gate.store();
    people::put_member(store, "os:ann", &[Role::Approver], &["finance".into()]).await.unwrap();
    people::put_user(store, "os:ann", &[Role::Approver, Role::Operator]).await.unwrap();
    let users = people::users(store, None, 10).await.unwrap();
    assert_eq!((users[0].roles.len(), &*users[0].groups[0]), (2, "finance"));
    for name in ["", " a", "a/b", "a\nb", &"x".repeat(300)] {
        assert!(people::put_user(store, name, &[Role::Approver]).await.is_err(), "{name:?}");
        assert!(people::put_member(store, "a", &[Role::Approver], &[name.into()]).await.is_err(), "{name:?}");
    }
    assert!(people::put_member(store, "a", &[Role::Agent], &[]).await.is_err());
    assert!(people::create_link_for(store, "nobody", "test").await.is_err());
}

/// Every credential that is made or used for the first time is on the record, with whoever made it; no secret is.
#[tokio::test]
async fn tokens_links_and_sign_ins_are_recorded() {
    let stage = Stage::new().await;
    let op = stage.with(Role::Operator, "op").await;
    let made = op.post("/v1/tokens", &json!({ "role": "agent", "name": "bot", "for": "ann" })).await.expect(201);
    let browser = Browser::sign_in(&stage, "os:ann").await;
    let log = browser.get("/v1/audit?limit=1000").await.expect(200);
    let changed: Vec<&Value> =
        log["items"].as_array().unwrap().iter().filter(|event| event["event"] == "access.changed").collect();
    let find = |what: &str, how: &str, by: &str| {
        let like =
            |event: &&&Value| event["body"]["what"] == what && event["body"]["how"] == how && event["body"]["by"] == by;
        changed.iter().find(like).unwrap_or_else(|| panic!("no {what} {how} by {by}: {changed:#?}"))["body"].clone()
    };
    let token = find("token", "made", "op");
    assert_eq!((&token["id"], &token["role"], &token["name"]), (&made["id"], &json!("agent"), &json!("bot")));
    assert_eq!(token["for"], "ann");
    assert_eq!(find("link", "made", "test")["id"], "os:ann");
    find("session", "begun", "os:ann");
    assert!(!log.to_string().contains(made["token"].as_str().unwrap()));
}

/// A9: whoever a token's calls are made for is the requester, whatever a call says; so that person approves none of them.
#[tokio::test]
async fn a_token_for_a_person_makes_calls_for_nobody_else() {
    let policy = "rules: [{ id: writes, ask: 'write_*', requester: excluded }]";
    let stage = Stage::over(Arc::new(MemoryStore::new()), policy).await;
    let (op, ann, bo) =
        (stage.with(Role::Operator, "op").await, stage.ann().await, stage.with(Role::Approver, "bo").await);
    op.post("/v1/tokens", &json!({ "role": "approver", "name": "eve", "for": "ann" }))
        .await
        .problem(400, "bad_request");
    op.post("/v1/tokens", &json!({ "role": "agent", "name": "bot", "for": " " })).await.problem(400, "bad_request");
    let made = op.post("/v1/tokens", &json!({ "role": "agent", "name": "bot", "for": "ann" })).await.expect(201);
    let bot = stage.nobody().token(made["token"].as_str().unwrap());
    let call = |requester: Option<&str>| json!({ "tool": "write_file", "arguments": {}, "requester": requester });
    bot.post("/v1/calls", &call(Some("bo"))).await.problem(400, "bad_request");
    for said in [None, Some("ann")] {
        let call = bot.post("/v1/calls", &call(said)).await.expect(202);
        assert_eq!(call["requester"], "ann");
        let decide = format!("/v1/holds/{}/decisions", call["holds"][0]["id"].as_str().unwrap());
        let yes = json!({ "answer": "approve", "digest": call["holds"][0]["digest"] });
        ann.post(&decide, &yes).await.problem(403, "requester");
        bo.post(&decide, &yes).await.expect(200);
    }
    let tokens = op.get("/v1/tokens").await.expect(200);
    assert!(tokens["items"].as_array().unwrap().iter().any(|token| token["for"] == "ann"), "{tokens:#}");
}

/// What `/v1/me` says of groups is what counts: those of the policy and those of the account.
#[tokio::test]
async fn groups_of_the_account_are_shown() {
    let stage = Stage::new().await;
    let finance: Arc<str> = "finance".into();
    people::put_member(&**stage.gate.store(), "ann", &[Role::Approver], &[finance]).await.unwrap();
    assert_eq!(stage.ann().await.get("/v1/me").await.expect(200)["groups"], json!(["finance"]));
}

/// An upgrade is no way around the CSRF value: only a socket does without, and that needs the exact Origin.
#[tokio::test]
async fn an_upgrade_header_changes_nothing_without_csrf() {
    let stage = Stage::new().await;
    let browser = Browser::sign_in(&stage, "os:ann").await;
    let request = browser.bare(Method::POST, "/v1/halt").header("upgrade", "websocket").header("connection", "upgrade");
    let request = request.header("origin", &stage.url).json(&json!({}));
    crate::stage::read(request.send().await.unwrap()).await.problem(403, "wrong_csrf");
    assert_eq!(browser.get("/v1/me").await.expect(200)["halted"], false);
}
