//! Conditions are bounded before they are compiled, and while they run.

use super::condition::Condition;
use super::rule::bare_facts;
use super::scope::{Claims, Scope, Values};
use crate::call::ToolId;
use crate::json::{Bounds, Json};
use crate::limits;

/// What a condition says about arguments; an error's text begins with `error:`.
fn evaluate(text: &str, arguments: &str) -> String {
    let condition = match Condition::compile(text) {
        Ok(condition) => condition,
        Err(error) => return format!("refused: {} {}", error.message, error.help.unwrap_or_default()),
    };
    let facts = bare_facts(ToolId::local("x"), Json::ingest(arguments, Bounds::STORED).unwrap());
    let values = Values::new(&facts);
    match condition.holds(&Scope::new(&values, Claims::Shown)) {
        Ok(value) => value.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

#[track_caller]
fn check(text: &str, arguments: &str, expected: &str) {
    let found = evaluate(text, arguments);
    assert!(found.starts_with(expected), "{found}\n{}", text.chars().take(200).collect::<String>());
}

/// Runs on a thread with the stack of a runtime's worker. An overflow would abort the whole test.
fn on_small_stack(bytes: usize, work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(bytes).spawn(work).unwrap().join().unwrap();
}

/// Every shape of nesting, so many levels deep.
fn nested(levels: usize) -> Vec<String> {
    let around = |open: &str, core: &str, close: &str| format!("{}{core}{}", open.repeat(levels), close.repeat(levels));
    vec![
        around("(", "true", ")"),
        around("[", "true", "]"),
        format!("{} == 1", around("{'a':", "1", "}")),
        around("!", "true", ""),
        format!("{} == 1", around("-", "1", "")),
        format!("{} == 1", around("", "1", "+1")),
        format!("{} == 1", around("1+", "1", "")),
        format!("{} > 1", around("", "arguments.a", "*arguments.a")),
        around("true ? ", "true", " : false"),
        around("true ? true : ", "true", ""),
        around("true && ", "true", ""),
        around("", "true", " || false"),
        around("", "arguments", ".a"),
        around("", "arguments", "[0]"),
        around("", "arguments", ".?a"),
        around("size([", "1", "])"),
        around("[1].all(x, ", "true", ")"),
        around("", "arguments.l", ".map(x, x)"),
        around("(1 + ", "1", ")"),
        around("", "1", " == 1"),
        around("has(arguments.a) && (", "true", ")"),
        around("", "'a'", ".startsWith('a')"),
        around("optional.of(", "1", ")"),
        around("", "arguments.?a", ".optMap(x, x)"),
    ]
}

/// I15: no condition, however nested, overflows the stack of a worker; whatever is accepted also runs there.
#[test]
fn no_condition_overflows_a_worker() {
    on_small_stack(2 * 1024 * 1024, || {
        for levels in (0..=70).chain([100, 500, 1_000, 2_000, 4_000, 100_000]) {
            for text in nested(levels) {
                evaluate(&text, r#"{"a":1,"l":[1]}"#);
            }
        }
    });
    // What is accepted leaves room to spare.
    on_small_stack(512 * 1024, || {
        for levels in 0..=limits::CONDITION_DEPTH {
            for text in nested(levels) {
                evaluate(&text, r#"{"a":1,"l":[1]}"#);
            }
        }
    });
}

/// B40, B46: what cannot be known or bounded is refused when loaded, with help.
#[test]
fn bad_conditions_are_refused_when_loaded() {
    let long = format!("'{}' == tool", "x".repeat(limits::CONDITION_BYTES));
    let list = format!("[{}]", vec!["1"; 300].join(","));
    let loops = format!("{list}.all(x, {list}.all(y, x == y))");
    let table = [
        ("", "blank"),
        (long.as_str(), "over the limit"),
        ("(true", "leaves a bracket open"),
        ("true)", "closes a bracket"),
        ("'abc", "leaves a string open"),
        ("tool ==", "not CEL"),
        ("argument.x == 1", "unknown variable `argument` did you mean `arguments`?"),
        ("x == 1", "unknown variable `x`"),
        ("tool.startWith('a')", "unknown function `startWith` did you mean `startsWith`?"),
        ("[1].all(x, x > y)", "unknown variable `y`"),
        ("[1].all(x, true) && x", "unknown variable `x`"),
        ("tool.matches(arguments.pattern)", "takes its pattern as text"),
        ("tool.matches('(')", "bad pattern"),
        ("tool.matches('(a{1000}){1000}')", "bad pattern"),
        ("[1].all(x, [1].all(y, [1].all(z, true)))", "more than 2 loops"),
        (loops.as_str(), "too many steps"),
        ("google.protobuf.Duration{}", "message"),
    ];
    for (text, expected) in table {
        let found = evaluate(text, "{}");
        assert!(found.starts_with("refused") && found.contains(expected), "{expected}: {found}");
    }
}

/// Brackets and quotes in strings and comments do not count, those after them do.
#[test]
fn the_guard_reads_strings_as_the_compiler_does() {
    let open = "(".repeat(60);
    for text in [
        format!("tool != '{open}'"),
        format!("tool != \"{open}\""),
        format!("tool != r'{open}\\'"),
        format!("tool != '''{open}'\"'''"),
        format!("tool != '\\'{open}'"),
        format!("tool != 'a' // {open}"),
        format!("tool != rb'{open}\\' || true || tool.matches(r'\\(')"),
    ] {
        check(&text, "{}", if text.contains("rb'") { "" } else { "true" });
    }
    let hidden = format!("')' == ')' && {}true{}", "(".repeat(40), ")".repeat(40));
    check(&hidden, "{}", "refused: condition nests deeper");
}

/// Loops run only where their steps are few; beyond that the condition errs, which never loosens.
#[test]
fn loops_are_bounded_by_what_they_meet() {
    let list = |length: usize| format!(r#"{{"l":[{}],"m":"x"}}"#, vec!["1"; length].join(","));
    check("arguments.l.all(x, x == 1)", &list(1_000), "true");
    check("arguments.l.all(x, x > 0)", &list(10_000), "true");
    check("arguments.l.all(x, x > 0)", &list(10_001), "error: condition would take more than");
    check("arguments.l.all(x, arguments.l.exists(y, y > 0))", &list(100), "true");
    check("arguments.l.all(x, arguments.l.exists(y, y > 0))", &list(101), "error: condition would take");
    check("arguments.l.all(x, x in arguments.l)", &list(101), "error: condition would take");
    check("arguments.l.all(x, x in [1, 2])", &list(1_000), "true");
    check("(arguments.l + arguments.l).all(x, x > 0)", &list(6_000), "error: condition would take");
    check("arguments.l.map(x, x + 1).all(x, x > 1)", &list(5_000), "true");
    let text = format!(r#"{{"l":[{}],"m":"{}"}}"#, vec!["1"; 100].join(","), "x".repeat(200_000));
    check("arguments.l.all(x, arguments.m.matches('y'))", &text, "error: condition would take");
    check("arguments.m.matches('y')", &text, "false");
}

/// Everything that may be called can be called.
#[test]
fn every_listed_function_works() {
    for text in [
        "size('abc') == 3 && 'abc'.size() == 3",
        "'abc'.contains('b') && 'abc'.startsWith('a') && 'abc'.endsWith('c') && 'abc'.matches('^a.c$')",
        "matches('abc', 'b')",
        "int('1') == 1 && uint(1) == 1u && double(1) == 1.0 && string(1) == '1' && bool('true') && bytes('a') == b'a'",
        "type(1) == int && type('a') == string && dyn(1) == 1",
        "duration('1h') > duration('1m') && timestamp('2026-01-02T03:04:05Z').getFullYear() == 2026",
        "timestamp('2026-01-02T03:04:05Z').getMonth() == 0 && timestamp('2026-01-02T03:04:05Z').getDate() == 2",
        "timestamp('2026-01-02T03:04:05Z').getDayOfMonth() == 1 && timestamp('2026-01-02T03:04:05Z').getDayOfYear() == 1",
        "timestamp('2026-01-02T03:04:05Z').getHours('Europe/Paris') == 4 && timestamp('2026-01-02T03:04:05Z').getDayOfWeek() == 5",
        "timestamp('2026-01-02T03:04:05Z').getMinutes() == 4 && timestamp('2026-01-02T03:04:05Z').getSeconds() == 5",
        "timestamp('2026-01-02T03:04:05Z').getMilliseconds() == 0",
        "optional.of(1).hasValue() && optional.of(1).value() == 1 && optional.none().orValue(2) == 2",
        "optional.none().or(optional.of(3)).value() == 3 && !optional.ofNonZeroValue(0).hasValue()",
        "arguments.?a.optMap(x, x + 1).orValue(0) == 2 && arguments.?b.optMap(x, x + 1).orValue(0) == 0",
        "arguments.?a.optFlatMap(x, optional.of(x)).value() == 1",
        "has(arguments.a) && !has(arguments.b) && [1, 2].exists_one(x, x == 1) && [1, 2].filter(x, x > 1) == [2]",
        "'a' in arguments && 1 in [1] && arguments['a'] == 1 && {'k': [1, 2]}.k[1] == 2",
        "now == timestamp('1970-01-01T00:00:00Z')",
    ] {
        check(text, r#"{"a":1}"#, "true");
    }
}
