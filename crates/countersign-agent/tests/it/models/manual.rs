//! A person in the place of a model.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use countersign_agent::model::{Lines, Manual, ModelError, Prompt, Stop};

use super::{prompt, read, user};

/// Somebody who types these lines and remembers what they were told.
#[derive(Default)]
struct Typist {
    lines: Mutex<VecDeque<&'static str>>,
    notes: Mutex<Vec<String>>,
}

#[async_trait]
impl Lines for Typist {
    async fn next(&self, _: &Prompt) -> Option<String> {
        self.lines.lock().unwrap().pop_front().map(str::to_owned)
    }

    async fn note(&self, note: &str) {
        self.notes.lock().unwrap().push(note.to_owned());
    }
}

fn typist(lines: &[&'static str]) -> (Arc<Typist>, Manual) {
    let typist = Arc::new(Typist { lines: Mutex::new(lines.iter().copied().collect()), ..Typist::default() });
    (Arc::clone(&typist), Manual::new(typist))
}

#[tokio::test]
async fn a_person_is_helped_until_the_line_can_be_read() {
    let (typist, model) = typist(&["pai amount=1", "pay quickly", "pay amount=1 ; pay {\"amount\": 2}"]);
    let (whole, error) = read(&model, prompt(vec![user("go")])).await;
    assert_eq!(
        (whole.arguments(), whole.stop, error),
        (vec![r#"{"amount":1}"#, r#"{"amount": 2}"#], Some(Stop::Calls), None)
    );
    let labels = whole.labels();
    assert_ne!(labels[0], labels[1]);
    let notes = typist.notes.lock().unwrap();
    assert!(notes[0].contains("no tool `pai`") && notes[1].contains("`quickly` is not an argument"), "{notes:?}");
}

#[tokio::test]
async fn text_ends_the_turn_and_silence_is_an_error() {
    let (_, model) = typist(&["All is paid."]);
    let (whole, error) = read(&model, prompt(vec![user("go")])).await;
    assert_eq!((&whole.said.text[..], whole.stop, error), ("All is paid.", Some(Stop::Done), None));
    let (whole, error) = read(&model, prompt(vec![user("go")])).await;
    assert!(matches!(error, Some(ModelError::Unreachable { .. })));
    assert_eq!(whole.stop, None);
}
