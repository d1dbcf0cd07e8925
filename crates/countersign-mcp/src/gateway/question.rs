//! Questions of the server to the person at the client (elicitation).
//!
//! SECURITY: nobody shall take one for the gateway's, or for another server's, so each says whose it is.

use std::ops::Range;

use serde_json::value::RawValue;

use super::message::{Envelope, is_spelling_of, members, pick, range_of, splice};
use super::words::ELICIT;

/// Where the words of a question stand, and what is to stand there.
pub(super) type Label = (Range<usize>, String);

/// The server's name before the words of each question in a message: one that asks itself, or in the newer era an answer
/// that has its client ask.
///
/// None where a question has no words, or where they cannot be read in one way only.
pub(super) fn labels(line: &str, message: &Envelope<'_>, server: &str) -> Option<Vec<Label>> {
    let questions = match (message.method.as_deref(), message.result) {
        (Some(ELICIT), _) => vec![message.params?],
        (None, Some(result)) if result.get().starts_with('{') => asked(result)?,
        _ => Vec::new(),
    };
    questions.into_iter().map(|params| label(line, params, server)).collect()
}

/// A message with these labels; the same where there are none.
pub(super) fn labelled(line: String, labels: &[Label]) -> Option<String> {
    if labels.is_empty() {
        return Some(line);
    }
    let edits: Vec<_> = labels.iter().map(|(range, words)| (range.clone(), words.as_str())).collect();
    splice(&line, &edits)
}

/// The parameters of the questions that a client is to ask before it asks us again.
fn asked(result: &RawValue) -> Option<Vec<&RawValue>> {
    let [requests] = pick(result.get(), ["inputRequests"]).ok()?;
    let Some(requests) = requests else { return Some(Vec::new()) };
    let mut found = Vec::new();
    for (_, request) in members(requests.get()).ok()? {
        let [method, params] = pick(request.get(), ["method", "params"]).ok()?;
        let method: String = serde_json::from_str(method?.get()).ok()?;
        if is_spelling_of(&method, ELICIT) {
            found.push(params?);
        }
    }
    Some(found)
}

fn label(line: &str, params: &RawValue, server: &str) -> Option<Label> {
    let [message] = pick(params.get(), ["message"]).ok()?;
    let raw = message?.get();
    let words: String = serde_json::from_str(raw).ok()?;
    Some((range_of(line, raw)?, serde_json::Value::from(format!("[{server}] {words}")).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(line: &str) -> Option<String> {
        let labels = labels(line, &Envelope::read(line).unwrap(), "files")?;
        labelled(line.to_owned(), &labels)
    }

    /// B131: a question is labelled with its server, and nothing else in it changes.
    #[test]
    fn a_question_says_whose_it_is() {
        for (line, expected) in [
            (
                r#"{"id":1,"method":"elicitation/create","params":{"z":[1 ],"message":"May \u0049?","mode":"form"}}"#,
                r#"{"id":1,"method":"elicitation/create","params":{"z":[1 ],"message":"[files] May I?","mode":"form"}}"#,
            ),
            (
                r#"{"id":1,"result":{"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"x"}},"r":{"method":"roots/list"},"countersign":{"params":{"message":"Countersign asks"},"method":"elicitation/create"}},"requestState":"s"}}"#,
                r#"{"id":1,"result":{"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"[files] x"}},"r":{"method":"roots/list"},"countersign":{"params":{"message":"[files] Countersign asks"},"method":"elicitation/create"}},"requestState":"s"}}"#,
            ),
        ] {
            assert_eq!(label(line).as_deref(), Some(expected));
        }
        for same in [
            r#"{"id":1,"result":{"content":[{"inputRequests":{"a":1}}]}}"#,
            r#"{"id":1,"result":7}"#,
            r#"{"id":1,"result":{"inputRequests":{}}}"#,
            r#"{"id":1,"error":{"code":1}}"#,
            r#"{"method":"notifications/message","params":{"message":"x"}}"#,
        ] {
            assert_eq!(label(same).as_deref(), Some(same));
        }
    }

    #[test]
    fn a_question_that_two_readers_could_read_in_two_ways_is_not_passed_on() {
        for line in [
            r#"{"id":1,"method":"elicitation/create","params":{"message":"a","message":"b"}}"#,
            r#"{"id":1,"method":"elicitation/create","params":{"message":7}}"#,
            r#"{"id":1,"method":"elicitation/create"}"#,
            r#"{"id":1,"result":{"inputRequests":{},"InputRequests":{}}}"#,
            r#"{"id":1,"result":{"inputRequests":7}}"#,
            r#"{"id":1,"result":{"inputRequests":{"a":7}}}"#,
            r#"{"id":1,"result":{"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"a","Message":"b"}}}}}"#,
            r#"{"id":1,"result":{"inputRequests":{"a":{"method":"Elicitation/Create","params":{}}}}}"#,
        ] {
            assert_eq!(label(line), None, "{line}");
        }
    }
}
