//! What can go wrong with an answer, in words that hold no key and end somewhere.

use std::error::Error;
use std::fmt::Write;
use std::sync::Arc;

use countersign::config::Secret;
use countersign::show::escape;
use reqwest::StatusCode;
use serde::Deserialize;

use super::ModelError;
use super::retry::Again;
use crate::limits;

/// What a reader of answers found wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The provider failed, or cut the answer: it may be asked again.
    Failed(String),
    /// The provider will not answer this.
    Rejected(String),
    /// This is not the provider's protocol.
    Unreadable(String),
}

impl Fault {
    /// The answer stopped in the middle.
    pub(crate) fn cut() -> Fault {
        Fault::Failed("the answer was cut".to_owned())
    }

    /// A frame that cannot be read. Says where, never what: it may hold anything.
    pub(crate) fn frame(error: &serde_json::Error) -> Fault {
        Fault::Unreadable(format!("a frame is not the JSON it should be, at its column {}", error.column()))
    }
}

/// What went wrong with one attempt, and whether another can help.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: ModelError,
    pub(crate) again: Again,
}

/// Who speaks: the model's name for errors, and the key that must not be in them.
#[derive(Clone, Debug)]
pub(crate) struct Speaker {
    pub(crate) model: Arc<str>,
    pub(crate) key: Secret,
}

impl Speaker {
    pub(crate) fn unreachable(&self, why: &str, again: Again) -> Failure {
        Failure { error: ModelError::Unreachable { model: self.model.clone(), why: self.safe(why) }, again }
    }

    pub(crate) fn unreadable(&self, why: &str) -> Failure {
        let error = ModelError::Unreadable { model: self.model.clone(), why: self.safe(why) };
        Failure { error, again: Again::Never }
    }

    pub(crate) fn rejected(&self, status: u16, why: &str) -> Failure {
        let error = ModelError::Rejected { model: self.model.clone(), status, why: self.safe(why) };
        Failure { error, again: Again::Never }
    }

    pub(crate) fn fault(&self, fault: Fault) -> Failure {
        match fault {
            Fault::Failed(why) => self.unreachable(&why, Again::After(None)),
            Fault::Rejected(why) => self.rejected(StatusCode::OK.as_u16(), &why),
            Fault::Unreadable(why) => self.unreadable(&why),
        }
    }

    pub(crate) fn transport(&self, error: reqwest::Error) -> Failure {
        let error = error.without_url();
        if error.is_builder() {
            let why = format!("the model `{}` cannot be asked: {}", self.model, self.safe(&chain(&error)));
            return Failure { error: ModelError::Settings(why), again: Again::Never };
        }
        let why = if error.is_timeout() { "it took too long".to_owned() } else { chain(&error) };
        self.unreachable(&why, Again::After(None))
    }

    /// The text of an answer that is an error, judged by its status.
    pub(crate) fn status(&self, status: StatusCode, named: Option<std::time::Duration>, body: &str) -> Failure {
        let said = Said::of(body);
        let passing = status.is_server_error()
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
                // An account without money answers 429 too, and goes on doing so.
                && said.code.as_deref() != Some("insufficient_quota");
        match passing {
            true => self.unreachable(&format!("{}: {}", status.as_u16(), said.message), Again::After(named)),
            false => self.rejected(status.as_u16(), &said.message),
        }
    }

    /// `text` without the key, visible in every character, and cut.
    pub(crate) fn safe(&self, text: &str) -> String {
        let masked = mask(text, self.key.reveal());
        let shown: String = escape(&masked).chars().take(limits::MODEL_ERROR_SHOWN).collect();
        let whole = escape(&masked).chars().count() <= limits::MODEL_ERROR_SHOWN;
        if whole { shown } else { format!("{shown}… (cut)") }
    }
}

/// Hides the key, and every word that holds its beginning: providers repeat keys with their middle starred out.
fn mask(text: &str, key: &str) -> String {
    const BEGINNING: usize = 6;
    const MASK: &str = "[secret]";
    if key.is_empty() {
        return text.to_owned();
    }
    let text = text.replace(key, MASK);
    let beginning: String = key.chars().take(BEGINNING).collect();
    let words = text.split_inclusive(char::is_whitespace).map(|word| match word.contains(&beginning) {
        true => format!("{MASK}{}", word.trim_start_matches(|char: char| !char.is_whitespace())),
        false => word.to_owned(),
    });
    words.collect()
}

/// An error and what caused it, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(text, ": {error}").ok();
        cause = error.source();
    }
    text
}

/// What a provider says about an error.
struct Said {
    message: String,
    code: Option<String>,
}

impl Said {
    /// All four dialects have the same shape here; Gemini sometimes puts it into a list.
    fn of(body: &str) -> Said {
        #[derive(Deserialize)]
        struct Body {
            error: Inner,
        }
        #[derive(Deserialize)]
        struct Inner {
            message: String,
            code: Option<serde_json::Value>,
        }
        let read =
            serde_json::from_str::<Body>(body).or_else(|_| serde_json::from_str::<[Body; 1]>(body).map(|[body]| body));
        match read {
            Ok(Body { error }) => {
                let code = error.code.and_then(|code| code.as_str().map(str::to_owned));
                Said { message: error.message, code }
            }
            Err(_) if body.trim().is_empty() => Said { message: "no reason given".to_owned(), code: None },
            Err(_) => Said { message: body.trim().to_owned(), code: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speaker(key: &str) -> Speaker {
        Speaker { model: "m".into(), key: Secret::new(key) }
    }

    #[test]
    fn no_error_holds_the_key_nor_a_starred_one() {
        let speaker = speaker("sk-ant-0123456789abcdef");
        let text = "bad key sk-ant-0123456789abcdef, given as 'sk-ant-01*****cdef' here";
        assert_eq!(speaker.safe(text), "bad key [secret], given as [secret] here");
        assert_eq!(speaker.safe("x=sk-ant-0123456789abcdef"), "x=[secret]");
        assert!(!format!("{speaker:?}").contains("0123"));
    }

    #[test]
    fn a_text_is_cut_and_shows_its_control_characters() {
        let shown = speaker("").safe(&"é".repeat(10_000));
        assert_eq!(shown, format!("{}… (cut)", "é".repeat(limits::MODEL_ERROR_SHOWN)));
        assert!(!speaker("").safe("a\u{1b}[2Jb").contains('\u{1b}'));
    }

    #[track_caller]
    fn check(status: u16, body: &str, again: Again, why: &str) {
        let failure = speaker("k").status(StatusCode::from_u16(status).unwrap(), None, body);
        assert_eq!(failure.again, again, "{status}");
        assert!(failure.error.to_string().ends_with(why), "{}", failure.error);
    }

    #[test]
    fn what_passes_is_asked_again_and_what_does_not_is_not() {
        for status in [408, 429, 500, 502, 503, 529] {
            check(status, r#"{"error":{"message":"busy"}}"#, Again::After(None), &format!("{status}: busy"));
        }
        for status in [301, 400, 401, 403, 404, 413, 422] {
            check(status, r#"[{"error":{"message":"no"}}]"#, Again::Never, &format!("({status}): no"));
        }
        check(429, r#"{"error":{"message":"pay","code":"insufficient_quota"}}"#, Again::Never, "(429): pay");
        check(400, "plain words", Again::Never, "plain words");
        check(400, "", Again::Never, "no reason given");
    }
}
