//! What is on the screen, whole.

use serde_json::json;

use super::{LATER, Person, hold, two};

#[track_caller]
fn check(person: &Person, expected: &str) {
    let screen = person.look();
    assert!(screen == expected, "{screen}");
}

/// B126: list above the hold in a small window; the one in focus is marked by more than colour.
#[test]
fn a_small_window_stacks_list_and_hold() {
    check(&Person::before(&two()), STACKED);
}

/// Whoever reads gets the whole window.
#[test]
fn a_hold_that_is_read_takes_a_small_window_whole() {
    let mut person = Person::at(&two(), (60, 16), 30);
    person.wait(LATER).types("a");
    check(&person, WHOLE);
}

/// B126: side by side where there is room.
#[test]
fn a_wide_window_has_both_side_by_side() {
    let mut danger = hold(3, "drop_table", json!({"table": "users"}));
    danger.risk = serde_json::from_value(json!("critical")).unwrap();
    danger.expires_at = None;
    let holds = [two().to_vec(), vec![danger]].concat();
    check(&Person::at(&holds, (110, 18), 3), WIDE);
}

#[test]
fn an_empty_inbox_says_so() {
    check(&Person::at(&[], (60, 14), 0), EMPTY);
}

const STACKED: &str = r#" Countersign · 2 calls wait                                sqlite:a.db · ● live
┌ Waiting ─────────────────────────────────────────────────────────────────────┐
│›   10:00  write_file             planner  {"n":1,"path":"a/b"}               │
│    10:00  pay                    planner  {"to":"Bo"}                        │
└──────────────────────────────────────────────────────────────────────────────┘
┌ write_file ────────────────────────────────────────────────────── 10:00 left ┐
│ tool        write_file                session     s1                         │
│ The call's arguments, exactly as they would run:                             │
│   line0: 0                                                                   │
│   line1: 1                                                                   │
│   line2: 2                                                                   │
│                                                                              │
│                                                                              │
│                                                                              │
│                                                                              │
│                                                                              │
│                                                                              │
│                                                                              │
│                                                                              │
│  d Deny   a (Approve)   e Edit   p Add   r Respond   m Remember              │
│                                                                              │
└──────────────────────────────────────────────────────────────────────────────┘

 jk choose · Enter read · a approve · d deny · e edit · m remember · ? all keys
"#;

const WHOLE: &str = r#" Countersign · 2 calls wait            sqlite:a.db · ● live
┌ write_file ─────────────────────────────────── 9:59 left ┐
│ tool        write_file      session     s1               │
│ The call's arguments, exactly as they would run:         │
│   line0: 0                                               │
│   line1: 1                                               │
│   line2: 2                                               │
│   line3: 3                                               │
│   line4: 4                                               │
│   line5: 5                                               │
│ ─ rows 1-8 of 32: Space for more                         │
│ [d Deny] a (Approve) e Edit p Add r Respond m Remember   │
│ Look at it, then press a again: exactly this runs, once. │
└──────────────────────────────────────────────────────────┘

 ←→ choose · Enter take it · jk scroll · Space page · Esc b…
"#;

const WIDE: &str = r#" Countersign · 3 calls wait                                                              sqlite:a.db · ● live
┌ Waiting ─────────────────────────────────┐┌ write_file ──────────────────────────────────────── 10:00 left ┐
│›   10:00  write_file       planner  {"n"…││ tool        write_file         session     s1                  │
│    10:00  pay              planner  {"to…││ The call's arguments, exactly as they would run:               │
│        - !drop_table       planner  {"ta…││   line0: 0                                                     │
│                                          ││   line1: 1                                                     │
│                                          ││   line2: 2                                                     │
│                                          ││                                                                │
│                                          ││                                                                │
│                                          ││                                                                │
│                                          ││                                                                │
│                                          ││                                                                │
│                                          ││                                                                │
│                                          ││ d Deny a (Approve) e Edit p Add r Respond m Remember           │
│                                          ││                                                                │
└──────────────────────────────────────────┘└────────────────────────────────────────────────────────────────┘

 jk choose · Enter read · a approve · d deny · e edit · m remember · ? all keys
"#;

const EMPTY: &str = r#" Countersign · nothing waits           sqlite:a.db · ● live
┌ Waiting ─────────────────────────────────────────────────┐
│ Nothing waits for a decision.                            │
└──────────────────────────────────────────────────────────┘
┌──────────────────────────────────────────────────────────┐
│ New calls show up here by themselves.                    │
│                                                          │
│                                                          │
│                                                          │
│                                                          │
│                                                          │
└──────────────────────────────────────────────────────────┘

 jk choose · Enter read · a approve · d deny · e edit · m r…
"#;
