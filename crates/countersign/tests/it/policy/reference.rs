//! The policy against a reference judge: the rules of the book, written a second time, slowly and plainly.

use countersign::call::Declared;
use countersign::{Effect, Facts, Policy, ToolId};

use super::facts;
use super::random::Random;

/// A pattern, as the book has it.
#[derive(Clone, Debug)]
enum Subject {
    Bare(&'static str),
    On(&'static str, &'static str),
    Agent(&'static str),
    Toolset(&'static str),
}

/// A condition on `arguments.n`, which may be missing or no number.
#[derive(Clone, Copy, Debug)]
enum When {
    More(i64),
    Has,
}

#[derive(Clone, Debug)]
struct Rule {
    effect: Effect,
    subjects: Vec<Subject>,
    when: Option<When>,
    except: Vec<(Option<Subject>, Option<When>)>,
}

#[derive(Clone, Debug)]
struct Book {
    otherwise: Option<&'static str>,
    rules: Vec<Rule>,
    /// Rules of the agent `kid`, and its `otherwise`.
    kid: Option<(Option<&'static str>, Vec<Rule>)>,
}

const NAMES: [&str; 12] =
    ["*", "read", "write", "read_*", "r*", "*_file", "?ead", "{read,write}", "[rw]*", "read_file", "*e*", "x"];
const SERVERS: [&str; 6] = ["*", "gh", "gl", "g*", "?h", "a_b"];
const TOOLS: [&str; 8] = ["read", "write", "read_file", "write_file", "x", "reed", "b_c", "c"];

/// Whether a glob of `*`, `?`, `[..]` and `{a,b}` matches, by trying everything.
fn glob(pattern: &str, name: &str) -> bool {
    if let Some(rest) = pattern.strip_prefix('{') {
        let (choices, rest) = rest.split_once('}').unwrap();
        return choices.split(',').any(|choice| glob(&format!("{choice}{rest}"), name));
    }
    let mut chars = pattern.chars();
    match chars.next() {
        None => name.is_empty(),
        Some('*') => (0..=name.len()).any(|at| glob(chars.as_str(), &name[at..])),
        Some('[') => {
            let (class, rest) = chars.as_str().split_once(']').unwrap();
            name.chars().next().is_some_and(|first| class.contains(first)) && glob(rest, &name[1..])
        }
        Some(wanted) => {
            name.chars().next().is_some_and(|first| wanted == '?' || wanted == first)
                && glob(chars.as_str(), &name[1..])
        }
    }
}

fn about(subject: &Subject, facts: &Facts, loosens: bool) -> bool {
    let (server, name) = (facts.tool.server.as_deref(), &*facts.tool.name);
    let delegate = if server.is_none() { name.strip_prefix("agent:") } else { None };
    match subject {
        Subject::Bare(pattern) => (!loosens || (server.is_none() && delegate.is_none())) && glob(pattern, name),
        Subject::On(on, pattern) => server.is_some_and(|server| glob(on, server)) && glob(pattern, name),
        Subject::Agent(pattern) => delegate.is_some_and(|agent| glob(pattern, agent)),
        Subject::Toolset(pattern) => facts.toolset.as_deref().is_some_and(|toolset| glob(pattern, toolset)),
    }
}

/// What a condition says, or nothing where it errs.
fn holds(when: When, facts: &Facts) -> Option<bool> {
    let arguments = facts.arguments.value();
    match when {
        When::Has => Some(arguments.get("n").is_some()),
        When::More(bound) => arguments.get("n")?.as_i64().map(|number| number > bound),
    }
}

fn matches(rule: &Rule, facts: &Facts) -> bool {
    let loosens = rule.effect == Effect::Allow;
    let meant = rule.subjects.iter().any(|subject| about(subject, facts, loosens))
        && rule.when.is_none_or(|when| holds(when, facts).unwrap_or(!loosens));
    let excepted = rule.except.iter().any(|(subject, when)| {
        subject.as_ref().is_none_or(|subject| about(subject, facts, true))
            && when.is_none_or(|when| holds(when, facts) == Some(true))
    });
    meant && !excepted
}

fn layer(rules: &[Rule], otherwise: Option<&str>, facts: &Facts) -> Option<Effect> {
    let strictest = rules.iter().filter(|rule| matches(rule, facts)).map(|rule| rule.effect).max();
    strictest.or_else(|| match otherwise? {
        "allow" => Some(Effect::Allow),
        "ask" => Some(Effect::Ask),
        "deny" => Some(Effect::Deny),
        _ if facts.declared == Declared::Nothing => Some(Effect::Allow),
        _ => Some(Effect::Ask),
    })
}

fn judge(book: &Book, facts: &Facts) -> Effect {
    let top = layer(&book.rules, Some(book.otherwise.unwrap_or("ask")), facts);
    let in_kid = facts.path.agents.iter().any(|agent| &**agent == "kid");
    let own = book.kid.as_ref().filter(|_| in_kid).and_then(|(otherwise, rules)| layer(rules, *otherwise, facts));
    let must = (facts.declared == Declared::MustAsk).then_some(Effect::Ask);
    top.into_iter().chain(own).chain(must).max().unwrap()
}

// From here on: random books and calls.

fn subject(random: &mut Random) -> Subject {
    match random.below(8) {
        0..=3 => Subject::Bare(random.pick(&NAMES)),
        4 | 5 => Subject::On(random.pick(&SERVERS), random.pick(&NAMES)),
        6 => Subject::Agent(random.pick(&["*", "kid", "k*"])),
        _ => Subject::Toolset(random.pick(&["*", "set", "s?t"])),
    }
}

fn when(random: &mut Random) -> Option<When> {
    match random.below(6) {
        0 => Some(When::More(random.pick(&[0, 5, 10]))),
        1 => Some(When::Has),
        _ => None,
    }
}

fn rule(random: &mut Random) -> Rule {
    let subjects = (0..=random.below(2)).map(|_| subject(random)).collect();
    let except = (0..random.below(4).saturating_sub(1)).map(|_| {
        let subject = (!random.one_in(3)).then(|| subject(random));
        let when = if subject.is_none() { Some(When::More(5)) } else { when(random) };
        (subject, when)
    });
    let except = except.collect();
    Rule { effect: random.pick(&[Effect::Allow, Effect::Ask, Effect::Deny]), subjects, when: when(random), except }
}

fn rules(random: &mut Random) -> Vec<Rule> {
    (0..random.below(7)).map(|_| rule(random)).collect()
}

fn book(random: &mut Random) -> Book {
    let otherwise = [None, Some("allow"), Some("ask"), Some("deny"), Some("declared")];
    Book {
        otherwise: random.pick(&otherwise),
        rules: rules(random),
        kid: random.one_in(3).then(|| (random.pick(&otherwise), rules(random))),
    }
}

fn call(random: &mut Random) -> Facts {
    let tool = match random.below(5) {
        0..=1 => ToolId::local(random.pick(&TOOLS)),
        2..=3 => ToolId::on(random.pick(&["gh", "gl", "a_b", "a", "zz"]), random.pick(&TOOLS)),
        _ => ToolId::local(random.pick(&["agent:kid", "agent:other"])),
    };
    let arguments = random.pick(&["{}", r#"{"n":0}"#, r#"{"n":6}"#, r#"{"n":11}"#, r#"{"n":"6"}"#, r#"{"n":null}"#]);
    let agents: &[&str] = random.pick(&[&[][..], &["boss"], &["boss", "kid"], &["kid", "leaf"]]);
    let mut facts = facts(tool, arguments, agents);
    facts.toolset = random.one_in(4).then(|| (random.pick(&["set", "other"])).into());
    facts.declared = random.pick(&[Declared::Nothing, Declared::Nothing, Declared::Ask, Declared::MustAsk]);
    facts
}

// And the book as a file.

fn write_subject(subject: &Subject) -> String {
    match subject {
        Subject::Bare(name) => format!("'{name}'"),
        Subject::On(server, name) => format!("'{server}/{name}'"),
        Subject::Agent(name) => format!("'agent:{name}'"),
        Subject::Toolset(name) => format!("'toolset:{name}'"),
    }
}

fn write_when(when: When) -> String {
    match when {
        When::More(bound) => format!("when: 'arguments.n > {bound}'"),
        When::Has => "when: 'has(arguments.n)'".to_owned(),
    }
}

fn write_rules(rules: &[Rule]) -> String {
    let rules: Vec<String> = rules
        .iter()
        .map(|rule| {
            let subjects: Vec<String> = rule.subjects.iter().map(write_subject).collect();
            let mut parts = vec![format!("{}: [{}]", rule.effect.as_str(), subjects.join(", "))];
            parts.extend(rule.when.map(write_when));
            let except = rule.except.iter().map(|(subject, when)| {
                let subject = subject.as_ref().map(|subject| format!("tool: {}", write_subject(subject)));
                let parts: Vec<String> = subject.into_iter().chain(when.map(write_when)).collect();
                format!("{{ {} }}", parts.join(", "))
            });
            let except: Vec<String> = except.collect();
            if !except.is_empty() {
                parts.push(format!("except: [{}]", except.join(", ")));
            }
            format!("{{ {} }}", parts.join(", "))
        })
        .collect();
    format!("rules: [{}]", rules.join(", "))
}

fn write_book(book: &Book) -> String {
    let section = |otherwise: Option<&str>, rules: &[Rule]| {
        let otherwise = otherwise.map(|otherwise| format!("otherwise: {otherwise}, ")).unwrap_or_default();
        format!("{{ {otherwise}{} }}", write_rules(rules))
    };
    let mut text = format!("policy: {}\n", section(book.otherwise, &book.rules));
    if let Some((otherwise, rules)) = &book.kid {
        text.push_str(&format!("agents: {{ kid: {{ policy: {} }} }}\n", section(*otherwise, rules)));
    }
    text
}

/// B36 to B44, B48, B115: on a million pairs of policy and call the judge says what the book says.
#[test]
fn the_judge_agrees_with_the_reference_on_a_million_pairs() {
    let mut random = Random::seeded("reference judge");
    let calls: Vec<Facts> = (0..1_000).map(|_| call(&mut random)).collect();
    let mut seen = [0usize; 3];
    for _ in 0..1_000 {
        let book = book(&mut random);
        let text = write_book(&book);
        let policy = Policy::from_yaml(&text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        for facts in &calls {
            let (found, expected) = (policy.judge(facts).effect, judge(&book, facts));
            assert_eq!(found, expected, "{text}\n{facts:?}");
            seen[expected as usize] += 1;
        }
    }
    println!("allow, ask, deny: {seen:?}");
    assert!(seen.iter().all(|count| *count > 50_000), "{seen:?}");
}
