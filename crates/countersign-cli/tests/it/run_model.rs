//! `countersign run` with a model at a server: what a run took, and an answer that was cut.

use countersign_testkit::model::{ModelServer, Reply, Turn};

use crate::bed::Bed;
use crate::terminal::Terminal;

/// A user whose agent has a model that gives these answers, at this price.
fn scene(server: &ModelServer, price: &str) -> Bed {
    let bed = Bed::new();
    let model = format!("{{ provider: openai-compatible, name: m, base_url: '{}', {price} }}", server.url());
    bed.write("run.yml", &format!("store: sqlite:agent.db\nmodel: {model}\nagents: {{ helper: {{}} }}\n"));
    bed
}

fn attended(bed: &Bed) -> String {
    let terminal = Terminal::run(bed, &["run", "--config", "run.yml", "helper", "go"], (120, 40));
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
    anstream::adapter::strip_str(&shown).to_string()
}

/// What a run took is said to whoever watches it, with its price where there is one, and to nobody in a pipe.
#[test]
fn what_a_run_took_is_said() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(ModelServer::start([])).unwrap();
    let bed = scene(&server, "price: { input: 2, cached: 1, output: 10 }");
    let shown = attended(&bed);
    assert!(shown.contains("over\r\n1 turn, 14 tokens read, 7 written, $0.000094\r\n"), "{shown}");
    let shown = attended(&scene(&server, "max_tokens: 100"));
    assert!(shown.contains("\n1 turn, 14 tokens read, 7 written\r\n"), "{shown}");
    let ran = bed.say("run --config run.yml helper go").expect(0);
    assert_eq!(ran.stdout, "over\n");
    assert!(!ran.stderr.contains("tokens"), "{ran:?}");
}

/// An answer that reached the bound on tokens is not taken for a whole one: by a person, in a pipe, or later.
#[test]
fn a_cut_answer_is_said_to_be_cut() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cut = || Reply::Turn(Turn::new("It is saf").cut_by_length());
    let server = runtime.block_on(ModelServer::start([cut(), cut()])).unwrap();
    let bed = scene(&server, "max_tokens: 100");
    let said = "helper: the answer was cut: it reached the bound on tokens";
    let shown = attended(&bed);
    assert!(shown.contains(&format!("It is saf\r\n{said}\r\n")), "{shown}");
    let ran = bed.say("run --config run.yml --session s1 helper go").expect(0);
    assert_eq!(ran.stdout, "It is saf\n", "what is data is only what the model said");
    assert!(ran.stderr.contains(said), "{ran:?}");
    let mut terminal = Terminal::run(&bed, &["run", "--config", "run.yml", "--resume", "s1"], (120, 40));
    terminal.sees("It is saf").sees("the answer was cut").sees("you> ").types("/quit\r");
    let (shown, code) = terminal.ends();
    assert_eq!(code, 0, "{shown}");
}
