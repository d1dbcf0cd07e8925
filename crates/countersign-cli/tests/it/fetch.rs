//! `fetch.allow` of a configuration: what `fetch_url` may reach outside the open internet.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use countersign::call::Outcome;
use countersign::store::CallFilter;

use crate::bed::read;
use crate::run::scene;

const ALLOWED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A web server that answers everything alike, and counts.
struct Web {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Web {
    fn at(address: Ipv4Addr, answer: impl Into<String>) -> Web {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let (counted, answer) = (Arc::clone(&asked), answer.into());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, Ordering::SeqCst);
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    match stream.read(&mut byte) {
                        Ok(1) => asked.extend(byte),
                        _ => break,
                    }
                }
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Web { address, asked }
    }

    fn page(address: Ipv4Addr) -> Web {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 10\r\nconnection: close\r\n\r\n";
        Web::at(address, format!("{head}from there"))
    }

    fn leading_to(address: Ipv4Addr, target: &str) -> Web {
        let head = "HTTP/1.1 302 Found\r\ncontent-length: 0\r\nconnection: close\r\n";
        Web::at(address, format!("{head}location: {target}\r\n\r\n"))
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// What the agent's call comes to: the page, or why not. `section` is the file's own.
fn fetched(section: &str, url: &str) -> Result<String, String> {
    let call = format!("{{ tool: fetch_url, arguments: {{ url: \"{url}\" }} }}");
    let bed = scene("  otherwise: allow\n", &format!("turns: [{{ calls: [{call}] }}]\n"));
    bed.write("run.yml", &format!("{section}{}", read(bed.work().join("run.yml"))));
    bed.say("run --config run.yml helper go").expect(0);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let calls = runtime.block_on(async { bed.store().await.calls(CallFilter::default()).await.unwrap() });
    match calls[0].outcome.clone() {
        Some(Outcome::Succeeded { output }) => Ok(output.value()["content"].as_str().unwrap().to_owned()),
        Some(Outcome::Failed { error, .. }) => Err(error),
        other => panic!("{other:?}"),
    }
}

/// `no_forbidden_address`, from the file: only what it names is reached, by address, by name, and by redirect.
#[test]
fn only_what_the_file_allows_is_reached() {
    let page = Web::page(ALLOWED);
    let named = format!("http://localhost:{}/", page.address.port());
    for url in [page.url(), named] {
        for section in ["", "fetch: { allow: 127.0.0.2 }\n", "fetch: { allow: [] }\n"] {
            let refused = fetched(section, &url).unwrap_err();
            assert!(refused.contains("is not public"), "{section} {url}: {refused}");
        }
    }
    assert_eq!(page.asked(), 0, "nothing was sent to it");
    assert_eq!(fetched("fetch: { allow: 127.0.0.1 }\n", &page.url()), Ok("from there".to_owned()));
    assert_eq!(page.asked(), 1);
}

#[test]
fn a_redirect_leads_only_to_what_the_file_allows() {
    let inside = Web::page(OTHER);
    let first = Web::leading_to(ALLOWED, &inside.url());
    let refused = fetched("fetch: { allow: [127.0.0.1] }\n", &first.url()).unwrap_err();
    assert!(refused.contains("is not public"), "{refused}");
    assert_eq!((first.asked(), inside.asked()), (1, 0));
    let both = "fetch: { allow: [127.0.0.1, 127.0.0.2] }\n";
    assert_eq!(fetched(both, &first.url()), Ok("from there".to_owned()));
    assert_eq!((first.asked(), inside.asked()), (2, 1));
}
