//! What was said so far, as every provider takes it: in turns that alternate, each call with one result.

use std::collections::BTreeSet;

use super::dialect::{Slot, slots};
use super::{Given, Message, ModelError, Prompt, Said, Wanted};
use crate::limits;

/// Stands in where a provider needs words and there are none.
const NOTHING: &str = "(nothing)";
/// Stands in where a provider needs the user to speak first or last.
const GO_ON: &str = "(go on)";

/// One turn: everything one side said until the other spoke.
#[derive(Debug, PartialEq)]
pub(crate) enum Turn<'a> {
    /// The user's and the tools'. Results come first.
    User(Vec<Heard<'a>>),
    /// The model's.
    Model(Vec<Told<'a>>),
}

/// What a model hears.
#[derive(Debug, PartialEq)]
pub(crate) enum Heard<'a> {
    /// Words.
    Text(&'a str),
    /// The result of the call with this id.
    Result(String, &'a Given),
}

/// What a model told.
#[derive(Debug, PartialEq)]
pub(crate) enum Told<'a> {
    /// Words, with what belongs to them.
    Text(&'a str, Option<countersign::Json>),
    /// A call by its id, with what belongs to it.
    Call(String, &'a Wanted, Option<countersign::Json>),
    /// Something only the provider understands.
    Kept(countersign::Json),
}

/// The turns of a prompt. The first and the last are the user's; no two neighbours are of the same side.
///
/// Calls and results are matched by place. A history in which they do not match is refused: what a model would make of
/// it is anybody's guess.
pub(crate) fn turns<'a>(prompt: &'a Prompt, dialect: &str) -> Result<Vec<Turn<'a>>, ModelError> {
    let mut history = History { turns: Vec::new(), used: BTreeSet::new(), open: Vec::new(), calls: 0 };
    for message in prompt.messages.iter() {
        match message {
            Message::User { text } => history.user(text)?,
            Message::Model(said) => history.model(said, dialect)?,
            Message::Results { results } => history.results(results)?,
        }
    }
    history.finish()
}

struct History<'a> {
    turns: Vec<Turn<'a>>,
    /// Every id given to a call so far.
    used: BTreeSet<String>,
    /// The ids of calls whose results come next.
    open: Vec<String>,
    calls: usize,
}

impl<'a> History<'a> {
    fn user(&mut self, text: &'a str) -> Result<(), ModelError> {
        self.settled()?;
        self.hear(Heard::Text(if text.trim().is_empty() { NOTHING } else { text }));
        Ok(())
    }

    fn results(&mut self, results: &'a [Given]) -> Result<(), ModelError> {
        let open = std::mem::take(&mut self.open);
        if open.len() != results.len() {
            return Err(broken("results that are not those of the calls before them"));
        }
        for (id, given) in open.into_iter().zip(results) {
            self.hear(Heard::Result(id, given));
        }
        Ok(())
    }

    fn model(&mut self, said: &'a Said, dialect: &str) -> Result<(), ModelError> {
        self.settled()?;
        self.open = said.calls.iter().map(|call| self.id(call)).collect();
        let mut told: Vec<Told<'a>> = Vec::new();
        for slot in slots(said, dialect) {
            match slot {
                Slot::Text(text, None) if text.trim().is_empty() => {}
                Slot::Text(text, with) => told.push(Told::Text(text, with)),
                Slot::Call(index, with) => {
                    let call = said.calls.get(index).zip(self.open.get(index));
                    told.extend(call.map(|(call, id)| Told::Call(id.clone(), call, with)));
                }
                Slot::Kept(thing) => told.push(Told::Kept(thing)),
            }
        }
        if told.is_empty() {
            return Ok(());
        }
        match self.turns.last_mut() {
            Some(Turn::Model(before)) => before.extend(told),
            Some(Turn::User(_)) => self.turns.push(Turn::Model(told)),
            None => self.turns.extend([Turn::User(vec![Heard::Text(GO_ON)]), Turn::Model(told)]),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Turn<'a>>, ModelError> {
        self.settled()?;
        if !matches!(self.turns.last(), Some(Turn::User(_))) {
            self.turns.push(Turn::User(vec![Heard::Text(GO_ON)]));
        }
        Ok(self.turns)
    }

    fn hear(&mut self, heard: Heard<'a>) {
        match self.turns.last_mut() {
            Some(Turn::User(before)) => before.push(heard),
            Some(Turn::Model(_)) | None => self.turns.push(Turn::User(vec![heard])),
        }
    }

    fn settled(&self) -> Result<(), ModelError> {
        if self.open.is_empty() { Ok(()) } else { Err(broken("a call without its result")) }
    }

    /// The model's label if it can serve as an id, and else one of ours: labels may be empty, reused or foreign.
    fn id(&mut self, call: &Wanted) -> String {
        self.calls += 1;
        let plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
        let fits =
            !call.label.is_empty() && call.label.len() <= limits::MODEL_LABEL_BYTES && call.label.chars().all(plain);
        let ours = (0..).map(|again| match again {
            0 => format!("call_{}", self.calls),
            again => format!("call_{}_{again}", self.calls),
        });
        let label = fits.then(|| call.label.to_string());
        let id = label.into_iter().chain(ours).find(|id| !self.used.contains(id)).unwrap_or_default();
        self.used.insert(id.clone());
        id
    }
}

fn broken(what: &str) -> ModelError {
    ModelError::Settings(format!("the history cannot be sent to a model: it holds {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(label: &str) -> Wanted {
        Wanted { label: label.into(), name: "t".into(), arguments: "{}".into() }
    }

    fn given(text: &str) -> Given {
        Given { label: "".into(), name: "t".into(), text: text.into(), is_error: false }
    }

    fn user(text: &str) -> Message {
        Message::User { text: text.into() }
    }

    fn model(text: &str, calls: Vec<Wanted>) -> Message {
        Message::Model(Said { text: text.to_owned(), calls, opaque: None })
    }

    fn prompt(messages: Vec<Message>) -> Prompt {
        Prompt { messages: messages.into(), ..Prompt::default() }
    }

    /// B78: labels that are empty, reused, foreign or ours never mix up two calls.
    #[test]
    fn every_call_has_an_id_of_its_own_and_its_result_the_same() {
        let long = "x".repeat(limits::MODEL_LABEL_BYTES + 1);
        let labels = ["a", "a", "", "call_5", "b c", &long, "call_4"];
        let results: Vec<Given> = (0..labels.len()).map(|index| given(&index.to_string())).collect();
        let prompt = prompt(vec![
            user("go"),
            model("", labels.iter().map(|label| call(label)).collect()),
            Message::Results { results },
        ]);
        let turns = turns(&prompt, "any").unwrap();
        let [_, Turn::Model(told), Turn::User(heard)] = &turns[..] else { panic!("{turns:?}") };
        let ids: Vec<&str> = told.iter().map(|told| if let Told::Call(id, ..) = told { &id[..] } else { "" }).collect();
        assert_eq!(ids, ["a", "call_2", "call_3", "call_5", "call_5_1", "call_6", "call_4"]);
        let heard: Vec<(&str, &str)> = heard
            .iter()
            .map(|heard| if let Heard::Result(id, given) = heard { (&id[..], &*given.text) } else { ("", "") })
            .collect();
        assert_eq!(heard, ids.iter().copied().zip(["0", "1", "2", "3", "4", "5", "6"]).collect::<Vec<_>>());
    }

    #[test]
    fn sides_alternate_and_the_user_is_first_and_last() {
        let prompt = prompt(vec![
            model("hello", vec![]),
            model("there", vec![]),
            user(" "),
            user("hi"),
            model("", vec![]),
            model("ok", vec![]),
        ]);
        let expected = vec![
            Turn::User(vec![Heard::Text(GO_ON)]),
            Turn::Model(vec![Told::Text("hello", None), Told::Text("there", None)]),
            Turn::User(vec![Heard::Text(NOTHING), Heard::Text("hi")]),
            Turn::Model(vec![Told::Text("ok", None)]),
            Turn::User(vec![Heard::Text(GO_ON)]),
        ];
        assert_eq!(turns(&prompt, "any").unwrap(), expected);
    }

    /// B111: a call without a result, or a result without a call, is never sent.
    #[test]
    fn a_history_that_does_not_match_is_refused() {
        let results = |count| Message::Results { results: vec![given("x"); count] };
        for messages in [
            vec![user("go"), model("", vec![call("a")])],
            vec![user("go"), model("", vec![call("a")]), user("and?")],
            vec![user("go"), model("", vec![call("a")]), results(2)],
            vec![user("go"), model("", vec![call("a"), call("b")]), results(1)],
            vec![user("go"), results(1)],
        ] {
            assert!(turns(&prompt(messages.clone()), "any").is_err(), "{messages:?}");
        }
    }
}
