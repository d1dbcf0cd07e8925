//! The official conformance suite of the protocol, with the gateway in between and without.

use std::path::{Path, PathBuf};
use std::process::Command;

use countersign_testkit::mcp::ConformanceFixture;

use crate::gateway_peer::Stage;
use crate::gateway_real::installed;
use crate::gateway_web::Door;

/// The suite of the revisions that begin with a handshake, and the one of the newest.
#[derive(Clone, Copy, Debug)]
enum Suite {
    Handshake,
    Newest,
}

impl Suite {
    /// What it finds at a server: the name of each scenario, and how many of its checks passed and failed.
    fn finds(self, stage: &Stage, url: &str) -> Vec<Found> {
        let (package, options): (_, &[&str]) = match self {
            Suite::Handshake => ("@modelcontextprotocol/conformance", &[]),
            Suite::Newest => ("conformance-of-2026-07-28", &["--requirements", "2026-07-28"]),
        };
        let program = installed("mcp").join("node_modules").join(package).join("dist/index.js");
        let mut suite = Command::new(node());
        suite.arg(program).args(["server", "--url", url]).args(options).current_dir(stage.bed.work());
        let said = String::from_utf8(suite.output().unwrap().stdout).unwrap();
        let (_, summary) = said.split_once("=== SUMMARY ===").unwrap_or_else(|| panic!("{said}"));
        summary.lines().filter_map(scenario).collect()
    }
}

/// What a scenario came to.
#[derive(Debug)]
struct Found {
    name: String,
    passed: u32,
    failed: u32,
}

/// Reads a line such as `✗ tools-list: 3 passed, 1 failed`.
fn scenario(line: &str) -> Option<Found> {
    let (name, counts) = line.split_once(": ")?;
    let (passed, failed) = counts.strip_suffix(" failed")?.split_once(" passed, ")?;
    let name = name.trim_start_matches(['✓', '✗', ' ']).to_owned();
    Some(Found { name, passed: passed.trim().parse().ok()?, failed: failed.parse().ok()? })
}

/// A Node that is new enough: the one that was installed for this, else the system's.
fn node() -> PathBuf {
    let cpu = if cfg!(target_arch = "x86_64") { "x64" } else { "arm64" };
    let system = if cfg!(target_os = "macos") { "darwin" } else { "linux" };
    let own = installed("mcp").join(format!("node_modules/node-{system}-{cpu}/bin/node"));
    if own.exists() { own } else { "node".into() }
}

/// In front of a server at an address and of one on pipes, the suites find nothing that they do not find without the
/// gateway, and in the revisions that the server knows in full nothing at all.
#[tokio::test(flavor = "multi_thread")]
async fn the_official_suites_find_no_fault_of_the_gateway() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let direct = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(ConformanceFixture.serve_http(listener));
    let stage = Stage::new("{ preset: allow-all }");
    let piped = Path::new(env!("CARGO_BIN_EXE_countersign")).with_file_name("mcp-conformance");
    let far = Door::before(&stage, &["--no-token"], &direct);
    let near = Door::named("suite", &stage, &["--no-token"], &["--", piped.to_str().unwrap()]);
    for (suite, scenarios) in [(Suite::Handshake, 30), (Suite::Newest, 40)] {
        let without = suite.finds(&stage, &direct);
        assert!(without.len() > scenarios, "{suite:?}: {without:?}");
        let passed: u32 = without.iter().map(|found| found.passed).sum();
        assert!(passed as usize > scenarios, "{suite:?}: {without:?}");
        for door in [&far, &near] {
            let through = suite.finds(&stage, &door.url);
            assert_eq!(through.len(), without.len(), "{suite:?}: {through:?}");
            for (found, alone) in through.into_iter().zip(&without) {
                let most = if matches!(suite, Suite::Handshake) { 0 } else { alone.failed };
                // In the newest protocol a listing may be answered as JSON, which spares the suite a look at the stream.
                let may_skip = matches!(suite, Suite::Newest) && found.name == "server-sse-multiple-streams";
                let passed_as_many = found.passed >= alone.passed || may_skip && found.passed > 0;
                let is_no_worse = found.failed <= most && passed_as_many;
                let place = format!("{suite:?}: {found:?} through {}, not {alone:?}", door.url);
                assert!(found.name == alone.name && is_no_worse, "{place}");
            }
        }
    }
}
