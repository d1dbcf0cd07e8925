//! I15: no text crashes the loader or the judge, and none overflows the stack of a worker.

use countersign::config::Config;
use countersign::{Policy, ToolId};

use super::facts;
use super::random::Random;

const INPUTS: usize = 100_000;

const POLICIES: [&str; 8] = [
    "otherwise: ask\nrules:\n- { id: a, allow: ['read_*', gh/get], reason: x }\n",
    "preset: starter\nunattended: deny\nexpires_after: 10m\nrules: [{ ask: pay, when: arguments.n > 5, approvals: 2 }]",
    "rules: [{ deny: '*', except: [a, { tool: b, when: has(arguments.n) }], hide: true }]",
    "policy: { rules: [{ allow: 'agent:kid', inside: own }] }\nagents: { kid: { policy: { rules: [{ deny: x }] } } }",
    "toolConfirmation: { mode: auto-deny, timeout: 30000 }\ntools: [{ name: q, client: true, permission: always_ask }]",
    "a: &a [1, 2]\nb: *a\nrules: [{ ask: '{a,b}*', examples: { match: [{ n: 1 }], no_match: [] } }]",
    "store: ${X}\nlimits: { attempts: 3 }\nmcp_servers: { s: { command: x, confirm: [a], trust_hints: true } }",
    "rules:\n  - ask: |\n      x\n    when: >-\n      arguments.n\n      > 5\n    from: [ann, bo]\n    risk: high\n",
];

const CONDITIONS: [&str; 10] = [
    "arguments.amount > 10000 && tool == 'pay'",
    "arguments.l.all(x, x.n in [1, 2, 3]) || size(arguments.l) == 0",
    "arguments.path.matches('^/etc/[a-z]+$') ? server == 'gh' : agent != null",
    "arguments.?a.?b.orValue({'k': [1, 2u, 3.5e3]}).k[0] == -1",
    "now - duration('1h') < timestamp('2026-01-01T00:00:00Z')",
    "[1, 2, 3].map(x, x * 2).filter(y, y > 2).exists_one(z, z == 4)",
    "r'raw\\' + '''tri'ple''' + \"q\\\"uote\" == b'bytes' // comment",
    "!(((1 + 2) * 3 - 4 / 5 % 6) == 7) && -1 < 1 && 'a' in {'a': 1}",
    "has(arguments.a.b) && arguments['a']['b'].startsWith(string(1))",
    "arguments.x.optMap(v, v + 1).orValue(0) >= 1 && `a b` == 1",
];

const TOKENS: [&str; 32] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "'",
    "\"",
    "'''",
    "\\",
    "//",
    "\n",
    "&&",
    "||",
    "?",
    ":",
    ".",
    ",",
    "+",
    "-",
    "!",
    "in",
    "arguments",
    ".all(x, ",
    "9223372036854775807",
    "1e999",
    "\u{0}",
    "\u{202e}",
    "é",
    "*",
    "&a",
    "<<: *a",
];

/// Cuts, doubles, swaps and sprinkles a text.
fn mutate(random: &mut Random, seed: &str) -> String {
    let mut text: Vec<char> = seed.chars().collect();
    for _ in 0..=random.below(4) {
        let at = random.below(text.len() + 1);
        let length = random.below(12).min(text.len() - at);
        match random.below(6) {
            0 => drop(text.drain(at..at + length)),
            1 => {
                let copy: Vec<char> = text[at..at + length].to_vec();
                let times = if random.one_in(50) { 200 } else { 1 + random.below(4) };
                text.splice(at..at, copy.repeat(times));
            }
            2 => {
                let token = random.pick(&TOKENS);
                let times = if random.one_in(50) { 100 } else { 1 };
                text.splice(at..at, token.repeat(times).chars());
            }
            3 => {
                let other = random.below(text.len() + 1);
                if at < text.len() && other < text.len() {
                    text.swap(at, other);
                }
            }
            4 => {
                if let Some(char) = text.get_mut(at) {
                    *char = char::from_u32(u32::try_from(random.below(0x250)).unwrap()).unwrap_or('?');
                }
            }
            _ => text.truncate(at),
        }
    }
    text.into_iter().take(5_000).collect()
}

fn noise(random: &mut Random) -> String {
    let bytes: Vec<u8> = (0..random.below(60)).map(|_| u8::try_from(random.next() & 0xff).unwrap()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs on a thread with the stack of a runtime's worker. An overflow would abort the whole test.
fn on_a_workers_stack(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(work).unwrap().join().unwrap();
}

/// I15: policy and configuration files.
#[test]
fn no_policy_text_crashes_the_loader() {
    on_a_workers_stack(|| {
        let mut random = Random::seeded("hostile policies");
        let call = facts(ToolId::local("pay"), r#"{"n":6}"#, &["boss", "kid"]);
        let mut loaded = 0;
        for round in 0..INPUTS {
            let seed = random.pick(&POLICIES);
            let text = if random.one_in(10) { noise(&mut random) } else { mutate(&mut random, seed) };
            let policy = if round % 2 == 0 {
                Policy::from_yaml(&text)
            } else {
                Config::from_yaml("c.yml", &text, &|_| None).map(|config| config.policy)
            };
            match policy {
                Ok(policy) => {
                    loaded += 1;
                    policy.judge(&call);
                }
                Err(errors) => assert!(!errors.0.is_empty() && !errors.to_string().is_empty(), "{text}"),
            }
        }
        println!("{loaded} of {INPUTS} loaded");
        assert!(loaded > INPUTS / 50);
    });
}

/// I15: conditions, through the loader, then judged on odd arguments.
#[test]
fn no_condition_crashes_the_loader_or_the_judge() {
    on_a_workers_stack(|| {
        let mut random = Random::seeded("hostile conditions");
        let odd = r#"{"a":{"b":"x"},"amount":1e300,"l":[{"n":1},null,[[]]],"path":"/etc/x","x":-9223372036854775808}"#;
        let call = facts(ToolId::local("pay"), odd, &[]);
        let mut loaded = 0;
        for _ in 0..INPUTS {
            let seed = random.pick(&CONDITIONS);
            let text = if random.one_in(10) { noise(&mut random) } else { mutate(&mut random, seed) };
            let quoted = serde_json::to_string(&text).unwrap();
            if let Ok(policy) = Policy::from_yaml(&format!("rules: [{{ deny: pay, when: {quoted} }}]")) {
                loaded += 1;
                policy.judge(&call);
            }
        }
        println!("{loaded} of {INPUTS} loaded");
        assert!(loaded > INPUTS / 50);
    });
}
