//! The server by TLS: REST over HTTP/2, a browser's cookie, a WebSocket; and nothing for whoever does not check or speak it.

use std::sync::Arc;

use countersign::memory::MemoryStore;
use countersign_api::wire::Role;
use countersign_server::Tls;
use futures::{SinkExt as _, StreamExt as _};
use reqwest::header::SET_COOKIE;
use reqwest::{Certificate, Version};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::stage::{POLICY, Stage, text};

/// A server with a certificate made for this test, and that certificate.
async fn secured() -> (Stage, String) {
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let certificate = made.cert.pem();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = Tls::from_pem(certificate.as_bytes(), made.signing_key.serialize_pem().as_bytes()).unwrap();
    let mut stage = Stage::built(Arc::new(MemoryStore::new()), POLICY, |_, builder| builder.tls(tls)).await;
    let root = Certificate::from_pem(certificate.as_bytes()).unwrap();
    stage.client = reqwest::Client::builder().tls_certs_only([root]).build().unwrap();
    (stage, certificate)
}

#[tokio::test]
async fn calls_and_decisions_go_over_tls() {
    let (stage, _) = secured().await;
    assert!(stage.url.starts_with("https://127.0.0.1:"), "{}", stage.url);
    let (agent, ann) = (stage.agent().await, stage.ann().await);
    let call = agent.submit("write_file", json!({ "n": 1 })).await.expect(202);
    let hold = &call["holds"][0];
    let approve = json!({ "answer": "approve", "digest": hold["digest"] });
    ann.post(&format!("/v1/holds/{}/decisions", text(hold, "id")), &approve).await.expect(200);
    agent.post(&format!("/v1/calls/{}/claim", text(&call, "id")), &json!({})).await.expect(200);

    let head = stage.client.get(format!("{}/healthz", stage.url)).send().await.unwrap();
    assert_eq!((head.status().as_u16(), head.version()), (200, Version::HTTP_2));
    let link = stage.link("os:ann").await;
    let signed_in = stage.nobody().post("/v1/sign-in", &json!({ "link": link })).await;
    let cookie = signed_in.headers[SET_COOKIE].to_str().unwrap();
    assert!(cookie.starts_with("__Host-countersign=") && cookie.contains("; Secure"), "{cookie}");
}

/// Who does not know the certificate does not speak to us, and who does not speak TLS is not heard.
#[tokio::test]
async fn nobody_is_served_without_tls() {
    let (stage, _) = secured().await;
    let stranger = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
    assert!(stranger.get(format!("{}/healthz", stage.url)).send().await.is_err());

    let mut plain = TcpStream::connect(stage.url.strip_prefix("https://").unwrap()).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.unwrap();
    let mut heard = Vec::new();
    let _ = plain.read_to_end(&mut heard).await;
    assert!(!String::from_utf8_lossy(&heard).contains("HTTP/1.1 200"), "{heard:?}");
}

#[tokio::test]
async fn a_web_socket_decides_over_tls() {
    let (stage, certificate) = secured().await;
    let ann = stage.ann().await;
    let address = stage.url.strip_prefix("https://").unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let tcp = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();

    let mut request = format!("wss://{address}/v1/ws").into_client_request().unwrap();
    let bearer = ann.request(reqwest::Method::GET, "/").build().unwrap().headers()["authorization"].clone();
    request.headers_mut().insert("authorization", bearer);
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    let say = |value: Value| Message::Text(value.to_string().into());
    socket.send(say(json!({ "type": "subscribe" }))).await.unwrap();
    let call = stage.with(Role::Agent, "bot").await.submit("write_file", json!({})).await.expect(202);
    let hold = &call["holds"][0];
    let deny = json!({ "answer": "deny", "digest": hold["digest"] });
    socket.send(say(json!({ "type": "decide", "id": "1", "hold": hold["id"], "decision": deny }))).await.unwrap();
    loop {
        let Message::Text(heard) = socket.next().await.unwrap().unwrap() else { continue };
        let heard: Value = serde_json::from_str(&heard).unwrap();
        if heard["type"] == "decided" {
            assert_eq!(heard["decided"]["state"], "denied");
            break;
        }
    }
}
