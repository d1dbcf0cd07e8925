//! One receiver: how it is reached, and what it is told about.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use countersign::Time;
use countersign::config::{NotifyConfig, NotifyFilter, NotifyTo};
use countersign::reach::Reach;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::NotifyError;
use super::email::Letters;
use super::http::{self, Post};
use super::notice::Notice;
use super::sign::Key;

/// Somebody to tell.
pub(crate) struct Target {
    /// A name that stays the same for as long as the address does, on every node.
    pub(super) id: String,
    /// What it is told about.
    pub(super) about: NotifyFilter,
    /// Whether arguments are told.
    pub(super) arguments: bool,
    /// How many deliveries wait, where this node tends it.
    pub(super) pending: AtomicUsize,
    /// Tries of this node that failed.
    pub(super) failures: AtomicU64,
    way: Way,
}

enum Way {
    Webhook(Post, Key),
    Slack(Post),
    Email(Letters),
}

/// Why something did not arrive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Undelivered {
    /// For the operator, without addresses and keys.
    pub(super) problem: String,
    /// What the receiver answered, if it did.
    pub(super) status: Option<u16>,
    /// The least to wait before it is tried again; never, if none.
    pub(super) again: Option<Duration>,
}

impl Undelivered {
    /// Worth another try.
    pub(super) fn later(problem: String) -> Undelivered {
        Undelivered { problem, status: None, again: Some(Duration::ZERO) }
    }
}

impl Target {
    /// A receiver as it is configured. `own` is the server's key, for webhooks without one.
    pub(super) fn new(config: &NotifyConfig, nth: usize, own: &str) -> Result<Target, NotifyError> {
        let reach = if config.allow_private { Reach::Anywhere } else { Reach::Public };
        let way = match &config.to {
            NotifyTo::Webhook { url, secret } => {
                let secret = secret.as_ref().map_or(own, |secret| secret.reveal());
                Way::Webhook(Post::new(url.reveal(), reach)?, Key::parse(secret).ok_or(NotifyError::BadSecret)?)
            }
            NotifyTo::Slack { url } => Way::Slack(Post::new(url.reveal(), reach)?),
            NotifyTo::Email(email) => Way::Email(Letters::new(email.clone(), reach)?),
            _ => return Err(NotifyError::Unknown),
        };
        let id = id(&address(&config.to), nth);
        Ok(Target {
            id,
            about: config.about.clone(),
            arguments: config.arguments,
            pending: AtomicUsize::new(0),
            failures: AtomicU64::new(0),
            way,
        })
    }

    /// Who it is, for people.
    pub(super) fn label(&self) -> String {
        match &self.way {
            Way::Webhook(post, _) => format!("webhook {}", post.host()),
            Way::Slack(post) => format!("slack {}", post.host()),
            Way::Email(letters) => format!("email {}", letters.to()),
        }
    }

    /// Whether people read it: they are not told about what is over.
    pub(super) fn is_read_by_people(&self) -> bool {
        !matches!(self.way, Way::Webhook(..))
    }

    /// Tells it, once.
    pub(super) async fn tell(&self, id: &str, now: Time, notice: &Notice) -> Result<u16, Undelivered> {
        match &self.way {
            Way::Webhook(post, key) => {
                let body = text(notice)?;
                let seconds = now.0.div_euclid(1_000_000);
                let request = post
                    .request()
                    .header(CONTENT_TYPE, "application/json")
                    .header("webhook-id", id)
                    .header("webhook-timestamp", seconds.to_string())
                    .header("webhook-signature", key.sign(id, seconds, &body));
                http::send(request.body(body)).await
            }
            Way::Slack(post) => {
                let request = post.request().header(CONTENT_TYPE, "application/json");
                http::send(request.body(message(notice).to_string())).await
            }
            Way::Email(letters) => letters.send(id, notice).await,
        }
    }
}

fn text(notice: &Notice) -> Result<String, Undelivered> {
    let never = |error| Undelivered { problem: format!("it cannot be written: {error}"), status: None, again: None };
    serde_json::to_string(notice).map_err(never)
}

/// A message for a chat. Only the link is markup; whatever others named stands in plain text.
fn message(notice: &Notice) -> Value {
    let title = notice.title();
    let lines = notice.lines().join("\n");
    let said: String = format!("{title}\n{lines}").chars().take(2_900).collect();
    let link = format!("<{}|Look and decide in Countersign>", notice.data.url);
    json!({
        "text": marked(&title),
        "blocks": [
            { "type": "section", "text": { "type": "plain_text", "text": said.trim_end(), "emoji": false } },
            { "type": "section", "text": { "type": "mrkdwn", "text": link } },
        ],
    })
}

/// Text in which nothing is a link or a mention.
fn marked(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn address(to: &NotifyTo) -> String {
    match to {
        NotifyTo::Webhook { url, .. } => format!("webhook {}", url.reveal()),
        NotifyTo::Slack { url } => format!("slack {}", url.reveal()),
        NotifyTo::Email(email) => format!("email {} {} {}", email.host, email.port, email.to.join(" ")),
        _ => String::new(),
    }
}

/// Several entries may have one address; `nth` tells them apart.
fn id(address: &str, nth: usize) -> String {
    let digest = Sha256::digest(format!("{nth} {address}").as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// All receivers, in the order of the configuration.
pub(super) fn targets(configs: &[NotifyConfig], own: &str) -> Result<Vec<Target>, NotifyError> {
    let addresses: Vec<String> = configs.iter().map(|config| address(&config.to)).collect();
    let nth = |index: usize| addresses.iter().take(index).filter(|found| addresses.get(index) == Some(found)).count();
    configs.iter().enumerate().map(|(index, config)| Target::new(config, nth(index), own)).collect()
}
