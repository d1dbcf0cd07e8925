//! Lists that are longer than a page.

use std::collections::BTreeSet;

use countersign::Proposal;
use countersign::call::Path;
use serde_json::Value;

use crate::stage::{Client, Stage, text};

/// More than a page can hold, whatever size is asked for.
const CALLS: usize = 1_500;
/// As many as may wait in one session.
const PER_SESSION: usize = 100;
/// As many as may wait of one agent.
const PER_AGENT: usize = 1_000;

/// Submits calls that people are asked about; many at once, and so past the rate of a token.
async fn fill(stage: &Stage) {
    for n in 0..CALLS {
        let proposal = Proposal::new("write_file", format!(r#"{{"n":{n}}}"#));
        let principal = format!("agent-{}", n / PER_AGENT).into();
        let proposal = proposal.path(Path { principal, ..Path::session(format!("s{}", n / PER_SESSION)) });
        assert!(stage.gate.submit_undefined(proposal).await.unwrap().open_hold().is_some());
    }
}

/// Every id of a list, page by page.
async fn walk(client: &Client, path: &str) -> Vec<String> {
    let (mut ids, mut after) = (Vec::new(), String::new());
    loop {
        let page: Value = client.get(&format!("{path}{after}")).await.expect(200);
        ids.extend(page["items"].as_array().unwrap().iter().map(|item| text(item, "id").to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return ids,
        }
    }
}

/// The largest page says, too, that there is another one.
#[tokio::test]
async fn pages_of_any_size_miss_nothing() {
    let stage = Stage::new().await;
    fill(&stage).await;
    let ann = stage.ann().await;
    for list in ["calls?order=oldest&", "calls?order=newest&", "calls?q=write&", "holds?", "holds?state=any&"] {
        for limit in [499, 999, 1_000, 1_000_000] {
            let path = format!("/v1/{list}limit={limit}");
            let ids = walk(&ann, &path).await;
            assert_eq!(ids.len(), CALLS, "{path}");
            assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), CALLS, "{path}");
        }
    }
}
