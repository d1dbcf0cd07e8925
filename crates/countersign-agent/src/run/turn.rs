//! One turn of the model.

use std::sync::Arc;

use futures::StreamExt as _;

use super::Thread;
use crate::error::RunError;
use crate::event::RunEvent;
use crate::limits;
use crate::model::{ModelError, Piece, Prompt, Said, Stop, Usage};
use crate::transcript::{Entry, Spent};

impl Thread {
    /// Asks the model and writes its answer down. An answer that was cut counts for nothing.
    pub(super) async fn ask_model(&mut self) -> Result<(), RunError> {
        self.stay_within_limits().await?;
        if let Some(feed) = &self.run.feed {
            feed.catch_up().await;
        }
        let agent = &self.agent.inner;
        let prompt = Prompt {
            instructions: agent.instructions.clone(),
            messages: Arc::clone(&self.transcript.history.messages),
            tools: agent.tools.offers(&self.gate).await?,
            max_tokens: agent.max_tokens,
        };
        let stillness = Arc::clone(&self.stillness);
        let _busy = stillness.begin().await;
        let (said, usage, stop) = self.listen(prompt).await?;
        self.run.meter.add(Spent { turns: 1, usage });
        self.run.tell(|| RunEvent::Turn { place: Arc::clone(&self.place), usage, stop });
        self.resumed = false;
        self.transcript.append(Entry::Model { said, usage, stop }).await
    }

    async fn listen(&self, prompt: Prompt) -> Result<(Said, Usage, Stop), RunError> {
        let model = &self.agent.inner.model;
        let unreadable = |why: String| RunError::Model(ModelError::Unreadable { model: model.name(), why });
        let mut pieces = model.answer(prompt).await?;
        let (mut said, mut usage, mut bytes) = (Said::default(), Usage::default(), 0_usize);
        while let Some(piece) = pieces.next().await {
            match piece? {
                Piece::Text(text) => {
                    bytes += text.len();
                    said.text.push_str(&text);
                    let (place, entry) = (&self.place, self.transcript.history.entries);
                    self.run.tell(|| RunEvent::Text { place: Arc::clone(place), entry, text: text.into() });
                }
                Piece::Call(wanted) => {
                    bytes += wanted.arguments.len() + wanted.name.len() + wanted.label.len();
                    said.calls.push(wanted);
                }
                Piece::Opaque(json) => {
                    bytes += json.as_str().len();
                    said.opaque = Some(json);
                }
                Piece::Usage(so_far) => usage = so_far,
                Piece::End(stop) => {
                    if stop == Stop::Refused {
                        // What it would not stand by is not to be run.
                        said.calls.clear();
                    }
                    return Ok((said, usage, stop));
                }
            }
            if bytes > limits::TURN_BYTES || said.calls.len() > limits::CALLS_PER_TURN {
                let (bytes, calls) = (limits::TURN_BYTES, limits::CALLS_PER_TURN);
                return Err(unreadable(format!("more than {bytes} bytes or {calls} calls in one turn")));
            }
        }
        Err(ModelError::Unreachable { model: model.name(), why: "the answer was cut".into() }.into())
    }
}
