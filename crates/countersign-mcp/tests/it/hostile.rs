//! A gateway in front of an address that answers too much, without end, or half.

use std::time::Duration;

use countersign_mcp::limits::{RUN_WITHIN, SERVER_MESSAGE_BYTES};

use crate::hostile_peer::{Client, Hostile};

/// What the system may hold of an answer on its way, beyond what was read.
const ON_THE_WAY: usize = 16 * 1024 * 1024;

/// What is too long is cut off when it is, not when it ends: nothing of the server's size is ever kept.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_end_is_cut_off_and_in_doubt() {
    for tool in ["endless", "event"] {
        let mut server = Hostile::start().await;
        Client::of(&server, RUN_WITHIN).await.doubts(tool).await;
        let sent = server.cut().await;
        assert!(sent < SERVER_MESSAGE_BYTES + ON_THE_WAY, "{tool}: {sent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_long_is_in_doubt() {
    let server = Hostile::start().await;
    Client::of(&server, RUN_WITHIN).await.doubts("huge").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_ends_in_the_middle_is_in_doubt() {
    for tool in ["cut", "half"] {
        let server = Hostile::start().await;
        Client::of(&server, RUN_WITHIN).await.doubts(tool).await;
    }
}

/// Cut before its answer, after the head or within the answer, a call is in doubt and is not sent again; cut after it, it has
/// its outcome; cut where the rest can be asked for, it gets the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_cut_at_any_step_never_makes_a_call_twice() {
    for tool in ["closed", "headless", "cut", "half"] {
        let server = Hostile::start().await;
        Client::of(&server, RUN_WITHIN).await.doubts(tool).await;
        assert_eq!(server.called(), [tool, "good"]);
    }
    for tool in ["after", "resumed"] {
        let server = Hostile::start().await;
        assert_eq!(Client::of(&server, RUN_WITHIN).await.call(1, tool).await, (false, "done".to_owned()), "{tool}");
        assert_eq!(server.called(), [tool]);
    }
}

/// A stream that says everything but the answer is given up in time, and then nobody reads it any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_an_answer_is_given_up_and_closed() {
    let given_up = |tool: &'static str| async move {
        let mut server = Hostile::start().await;
        let mut client = Client::of(&server, Duration::from_secs(2)).await;
        client.doubts(tool).await;
        server.cut().await;
    };
    tokio::join!(given_up("silent"), given_up("flood"));
}

/// Not only calls have a limit of time: an endless answer to any other request is given up, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_no_call_is_given_up_and_its_stream_closed() {
    let mut server = Hostile::start().await;
    let mut client = Client::of(&server, Duration::from_secs(2)).await;
    let told = client.ask(1, "prompts/get", "silent").await;
    assert!(told["error"]["message"].as_str().unwrap().contains("did not come within"), "{told}");
    server.cut().await;
    assert_eq!(client.call(2, "good").await, (false, "done".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_one_after_another_share_a_connection() {
    let server = Hostile::start().await;
    let mut client = Client::of(&server, RUN_WITHIN).await;
    for id in 1..=100 {
        assert_eq!(client.call(id, "good").await, (false, "done".to_owned()));
    }
    // One may be asked for events, or list the tools, while another is called.
    assert!(server.connections() <= 3, "{}", server.connections());
}
