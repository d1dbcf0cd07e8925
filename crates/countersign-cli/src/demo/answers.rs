//! Answers from a file, in place of a person.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use countersign::grant::Remember;
use countersign::json::Bounds;
use countersign::{Answer, Json, Limits};

use crate::fault::Fault;

/// Answers still to be given, in the order of the file.
#[derive(Debug)]
pub(crate) struct Answers {
    path: PathBuf,
    left: VecDeque<(usize, Answer)>,
    lines: usize,
}

impl Answers {
    /// Reads a whole file, or says which line is wrong.
    pub(crate) fn read(path: &Path) -> Result<Answers, Fault> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Fault::usage(format!("cannot read the answers in `{}`: {error}", path.display())))?;
        let mut left = VecDeque::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let answer = parse(line).map_err(|why| wrong(path, index + 1, &why).next(FORMS))?;
            left.push_back((index + 1, answer));
        }
        Ok(Answers { path: path.to_owned(), left, lines: text.lines().count() })
    }

    /// The next answer and its line, for a hold described in a few words.
    pub(crate) fn next(&mut self, hold: &str) -> Result<(usize, Answer), Fault> {
        let missing = || wrong(&self.path, self.lines + 1, &format!("there is no answer left for {hold}"));
        self.left.pop_front().ok_or_else(|| missing().next("add a line for it"))
    }

    /// Says that an answer could not be given.
    pub(crate) fn refuse(&self, line: usize, why: &str) -> Fault {
        wrong(&self.path, line, why)
    }

    /// Fails where answers are left over.
    pub(crate) fn end(&self) -> Result<(), Fault> {
        match self.left.front() {
            None => Ok(()),
            Some((line, _)) => {
                let why = format!("nothing was left to answer; {} answers too many", self.left.len());
                Err(wrong(&self.path, *line, &why).next("remove this line and those after it"))
            }
        }
    }
}

const FORMS: &str = "one answer a line: approve | deny REASON | edit JSON | respond JSON | remember session|global";

fn wrong(path: &Path, line: usize, why: &str) -> Fault {
    Fault::usage(format!("{}:{line}: {why}", path.display()))
}

fn parse(line: &str) -> Result<Answer, String> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match word {
        "approve" if rest.is_empty() => Ok(Answer::approve()),
        "approve" => Err(format!("`approve` takes nothing after it, found `{rest}`")),
        "deny" => Ok(Answer::Deny { reason: (!rest.is_empty()).then(|| rest.to_owned()) }),
        "edit" => match Json::arguments(rest, &Limits::default()) {
            Ok(arguments) => Ok(Answer::Approve { arguments: Some(arguments), payload: None, remember: None }),
            Err(error) => Err(format!("`edit` needs the arguments as JSON: {error}")),
        },
        "respond" => match Json::ingest(rest, Bounds::PAYLOAD) {
            Ok(response) => Ok(Answer::Respond { response }),
            Err(error) => Err(format!("`respond` needs JSON: {error}")),
        },
        "remember" => {
            let remember = match rest {
                "session" => Remember::session(),
                "global" => Remember::global(),
                other => return Err(format!("`remember` needs `session` or `global`, found `{other}`")),
            };
            Ok(Answer::Approve { arguments: None, payload: None, remember: Some(remember) })
        }
        other => Err(format!("`{other}` is not an answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_answer_is_read() {
        assert_eq!(parse("approve"), Ok(Answer::approve()));
        assert_eq!(parse("deny not on a Friday"), Ok(Answer::deny("not on a Friday")));
        assert_eq!(parse("deny"), Ok(Answer::Deny { reason: None }));
        assert!(matches!(parse(r#"edit {"a": 1}"#), Ok(Answer::Approve { arguments: Some(_), .. })));
        assert!(matches!(parse(r#"respond "done already""#), Ok(Answer::Respond { .. })));
        assert!(matches!(parse("remember global"), Ok(Answer::Approve { remember: Some(_), .. })));
    }

    #[test]
    fn a_malformed_line_says_what_is_wrong_with_it() {
        for line in ["approved", "approve now", "edit", "edit [1]", "respond {", "remember", "remember always"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
