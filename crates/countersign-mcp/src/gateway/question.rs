//! Questions of the server to the person at the client (elicitation).

use super::message::{Envelope, pick, range_of, splice};

/// The method of such a question.
pub(super) const METHOD: &str = "elicitation/create";

/// The question with the server's name before its words: nobody shall take it for the gateway's, or for another server's.
///
/// None where it has no words, or where they cannot be read in one way only.
pub(super) fn labelled(line: &str, question: &Envelope<'_>, server: &str) -> Option<String> {
    let [message] = pick(question.params?.get(), ["message"]).ok()?;
    let raw = message?.get();
    let words: String = serde_json::from_str(raw).ok()?;
    let labelled = serde_json::Value::from(format!("[{server}] {words}")).to_string();
    splice(line, &[(range_of(line, raw)?, &labelled)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B131: a question is labelled with its server, and nothing else in it changes.
    #[test]
    fn a_question_says_whose_it_is() {
        let label = |line: &str| labelled(line, &Envelope::read(line).unwrap(), "files");
        assert_eq!(
            label(r#"{"id":1,"method":"elicitation/create","params":{"z":[1 ],"message":"May \u0049?","mode":"form"}}"#),
            Some(
                r#"{"id":1,"method":"elicitation/create","params":{"z":[1 ],"message":"[files] May I?","mode":"form"}}"#
                    .into()
            )
        );
        assert_eq!(label(r#"{"id":1,"params":{"message":"a","message":"b"}}"#), None);
        assert_eq!(label(r#"{"id":1,"params":{"message":7}}"#), None);
    }
}
