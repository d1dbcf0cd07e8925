//! Who is told, and who may sign in.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;

use crate::bed::Bed;

/// Takes one request after the other and says yes; hands over the text of each.
fn receiver() -> (u16, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, came) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            stream.get_mut().write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").unwrap();
            let _ = sender.send(head + &String::from_utf8(body).unwrap());
        }
    });
    (port, came)
}

#[test]
fn a_test_message_says_who_can_be_told() {
    let bed = Bed::new();
    let (port, came) = receiver();
    let hook = format!("{{ webhook: 'http://127.0.0.1:{port}/p4th', allow_private: true }}");
    bed.write("one.yml", &format!("notify: [{hook}]"));
    let test = |file: &str| bed.run(["notify", "test", "--config", file, "--store", &bed.url(), "--json"]);
    let told = test("one.yml").expect(0).json();
    assert_eq!((&told["items"][0]["delivered"], &told["items"][0]["status"]), (&true.into(), &204.into()));
    let request = came.recv().unwrap();
    assert!(request.contains("webhook-signature: v1,") && request.contains(r#""type":"test""#), "{request}");

    // Nobody listens on a port that was just given back.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    bed.write("two.yml", &format!("notify: [{hook}, {}]", hook.replace(&port.to_string(), &closed.to_string())));
    let ran = bed.run(["notify", "test", "--config", "two.yml", "--store", &bed.url()]).expect(1);
    assert!(ran.stdout.contains("arrived webhook 127.0.0.1\n") && ran.stdout.contains("failed webhook"), "{ran:#?}");
    assert!(!ran.stdout.contains("p4th") && ran.stderr.contains("1 of them"), "{ran:#?}");

    bed.write("none.yml", "policy: { preset: ask-all }");
    assert!(test("none.yml").expect(2).stderr.contains("no `notify:`"));
    let private = format!("notify: [{{ webhook: 'https://127.0.0.1:{port}' }}]");
    bed.write("private.yml", &private);
    assert!(test("private.yml").expect(2).stderr.contains("allow_private"));
    let secret = bed.run(["notify", "secret", "--store", &bed.url()]).expect(0).stdout;
    assert!(secret.starts_with("whsec_"), "{secret}");
    assert_eq!(bed.run(["notify", "log", "--store", &bed.url(), "--json"]).expect(0).stdout.trim(), "[]");
}

#[test]
fn people_are_added_listed_signed_in_and_removed() {
    let bed = Bed::new();
    let user = |line: &str| bed.run(line.split_whitespace().chain(["--store", &bed.url()]));
    user("user add ann --group finance --group people").expect(0);
    user("user add bo --role auditor --role approver").expect(0);
    let listed = user("user list --json").expect(0).json();
    assert_eq!(listed[0], serde_json::json!({ "name": "ann", "roles": ["approver"], "groups": ["finance", "people"] }));
    assert_eq!(listed[1]["roles"], serde_json::json!(["auditor", "approver"]));
    let link = user("user link ann --url https://approvals.example.com:7117/").expect(0).stdout;
    assert!(link.starts_with("https://approvals.example.com:7117/sign-in#cs_link_"), "{link}");
    user("user link eve").expect(1);
    user("user add eve --role agent").expect(2);
    user("user add a/b").expect(2);
    user("user remove ann").expect(0);
    user("user remove ann").expect(1);
    assert_eq!(user("user list --json").expect(0).json().as_array().unwrap().len(), 1);
}
