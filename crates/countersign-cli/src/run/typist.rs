//! A person who plays the model: the model asks here, and whoever has the terminal answers.

use async_trait::async_trait;
use countersign_agent::model::{Lines, Message, Prompt};
use tokio::sync::{mpsc, oneshot};

use crate::out;

/// A line that is wanted. Dropping it says that nobody types any more.
pub(crate) struct Wanted {
    /// What the person should know first, safe to print.
    pub(crate) news: Vec<String>,
    /// Where the line goes.
    pub(crate) reply: oneshot::Sender<String>,
}

/// Asks for lines over a channel, so that the terminal has one reader.
pub(crate) struct Typist(mpsc::UnboundedSender<Wanted>);

impl Typist {
    /// A typist, and where its wishes arrive.
    pub(crate) fn new() -> (Typist, mpsc::UnboundedReceiver<Wanted>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Typist(sender), receiver)
    }
}

#[async_trait]
impl Lines for Typist {
    async fn next(&self, prompt: &Prompt) -> Option<String> {
        let (reply, line) = oneshot::channel();
        self.0.send(Wanted { news: news(prompt), reply }).ok()?;
        line.await.ok()
    }

    async fn note(&self, note: &str) {
        out::say(format_args!("  {}", out::paint(out::WAIT, out::safe_lines(note))));
    }
}

/// What a model would read now: the results of its calls, or, at first, what it may call.
fn news(prompt: &Prompt) -> Vec<String> {
    match prompt.messages.last() {
        Some(Message::Results { results }) => {
            let read = |text: &str| out::fit(&countersign::show::escape(text), out::columns().saturating_sub(4));
            results.iter().map(|given| read(&format!("{} gave: {}", given.name, given.text))).collect()
        }
        Some(Message::User { .. } | Message::Model(_)) | None => {
            let names: Vec<&str> = prompt.tools.iter().map(|tool| &*tool.name).collect();
            let names = countersign::show::escape(&names.join(", "));
            vec![format!("You are the model. Type a call, as in `tool key=value`, or your answer. Tools: {names}")]
        }
    }
}
