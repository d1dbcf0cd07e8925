//! A model whose answers a person types.

mod line;

use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt as _, stream};

use super::{Answer, Message, Model, ModelError, Piece, Prompt, Stop, Usage, Wanted};
use line::Typed;

/// Where a person's lines come from, such as a terminal.
#[async_trait]
pub trait Lines: Send + Sync {
    /// The next line, in answer to this prompt. Nothing if nobody types any more.
    async fn next(&self, prompt: &Prompt) -> Option<String>;

    /// Tells the person why their line was no answer.
    async fn note(&self, note: &str);
}

/// A model that is played by a person.
///
/// A line is either text, the final answer, or calls: `transfer_money amount=100 to="Bo Li"`, or with the arguments as
/// one JSON object, `transfer_money {"amount": 100}`. Values are JSON where they can be and text where not. Several
/// calls of one turn are separated by ` ; `. `say …` is always text, also where it begins like a call.
#[derive(Clone)]
pub struct Manual {
    lines: Arc<dyn Lines>,
}

impl std::fmt::Debug for Manual {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Manual")
    }
}

impl Manual {
    /// Asks for lines there.
    pub fn new(lines: Arc<dyn Lines>) -> Manual {
        Manual { lines }
    }
}

#[async_trait]
impl Model for Manual {
    fn name(&self) -> Arc<str> {
        "manual".into()
    }

    async fn answer(&self, prompt: Prompt) -> Result<Answer, ModelError> {
        let typed = loop {
            let Some(line) = self.lines.next(&prompt).await else {
                return Err(ModelError::Unreachable { model: self.name(), why: "nobody types any more".to_owned() });
            };
            match line::read(&line, &prompt.tools) {
                Ok(typed) => break typed,
                Err(note) => self.lines.note(&note).await,
            }
        };
        let turn = prompt.messages.iter().filter(|message| matches!(message, Message::Model(_))).count();
        let pieces = pieces(typed, turn);
        Ok(stream::iter(pieces.into_iter().map(Ok)).boxed())
    }
}

fn pieces(typed: Typed, turn: usize) -> Vec<Piece> {
    let (mut pieces, stop) = match typed {
        Typed::Text(text) => (vec![Piece::Text(text)], Stop::Done),
        Typed::Calls(calls) => {
            let call = |(index, (name, arguments)): (usize, (Arc<str>, String))| {
                Piece::Call(Wanted {
                    label: format!("manual-{turn}-{index}").into(),
                    name,
                    arguments: arguments.into(),
                })
            };
            (calls.into_iter().enumerate().map(call).collect(), Stop::Calls)
        }
    };
    pieces.extend([Piece::Usage(Usage::default()), Piece::End(stop)]);
    pieces
}
