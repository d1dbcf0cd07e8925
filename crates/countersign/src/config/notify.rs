//! `notify:`: who is told what happens, by which way, and about what.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::Secret;
use super::parts::text;
use crate::call::Call;
use crate::event::{Event, EventName};
use crate::limits;
use crate::policy::Problems;
use crate::policy::pattern::{Glob, Pattern, Reach};
use crate::policy::read::RISKS;
use crate::policy::yaml::{Fields, Node};
use crate::verdict::Risk;

/// Somebody to tell.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NotifyConfig {
    /// By which way.
    pub to: NotifyTo,
    /// About what.
    pub about: NotifyFilter,
    /// Whether the arguments of a call may leave the server, secrets masked.
    pub arguments: bool,
    /// Whether this machine and its network may be connected to.
    pub allow_private: bool,
}

/// A way to tell somebody. Addresses are often all that is needed to use them, so they are kept like secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotifyTo {
    /// A signed HTTP request.
    Webhook {
        /// Where to.
        url: Secret,
        /// The key it is signed with: `whsec_…`. Left out, the server's own.
        secret: Option<Secret>,
    },
    /// A message in a chat, by an incoming webhook of Slack's kind.
    Slack {
        /// Where to.
        url: Secret,
    },
    /// A letter.
    Email(EmailConfig),
}

/// How letters are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmailConfig {
    /// To whom.
    pub to: Vec<String>,
    /// From whom.
    pub from: String,
    /// The server that takes them.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the way there is kept private.
    pub tls: SmtpTls,
    /// Who signs in there.
    pub username: Option<String>,
    /// With what.
    pub password: Option<Secret>,
}

/// How the way to a mail server is kept private.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SmtpTls {
    /// Asked for in the clear, and insisted on.
    #[default]
    StartTls,
    /// From the first byte.
    Tls,
    /// Not at all: on this machine or its network only.
    None,
}

/// What somebody is told about. All of it must hold.
#[derive(Clone, Debug)]
pub struct NotifyFilter {
    events: Vec<EventName>,
    risk: Risk,
    rules: Vec<Glob>,
    tools: Vec<Pattern>,
}

impl NotifyFilter {
    /// Whether events of this name are told at all.
    pub fn names(&self, name: EventName) -> bool {
        self.events.contains(&name)
    }

    /// Whether an event is told; `call` is the one it is about. What is not about a call has no rule, tool or risk.
    pub fn passes(&self, event: &Event, call: Option<&Call>) -> bool {
        let Some(call) = call else {
            return self.names(event.name) && self.risk == Risk::Low && self.rules.is_empty() && self.tools.is_empty();
        };
        let asked = |rule: &Glob| call.verdict.rules().iter().any(|found| rule.matches(found));
        let meant = |tool: &Pattern| tool.matches(&call.facts.tool, call.facts.toolset.as_deref(), Reach::Everywhere);
        self.names(event.name)
            && risk(event, call) >= self.risk
            && (self.rules.is_empty() || self.rules.iter().any(asked))
            && (self.tools.is_empty() || self.tools.iter().any(meant))
    }
}

/// What is at stake in the hold that an event is about, else in its call.
fn risk(event: &Event, call: &Call) -> Risk {
    let hold = call.holds.iter().find(|hold| Some(hold.id) == event.hold);
    hold.map_or(call.verdict.terms.risk, |hold| hold.terms.risk)
}

/// Keys of one of `notify`.
pub(super) const NOTIFY_KEYS: [&str; 10] =
    ["webhook", "slack", "email", "secret", "events", "risk", "rules", "tools", "include", "allow_private"];
/// Keys of `email`.
pub(super) const EMAIL_KEYS: [&str; 6] = ["to", "from", "smtp", "tls", "username", "password"];
pub(super) const SMTP_TLS: [(&str, SmtpTls); 3] =
    [("starttls", SmtpTls::StartTls), ("tls", SmtpTls::Tls), ("none", SmtpTls::None)];
pub(super) const INCLUDES: [(&str, ()); 1] = [("arguments", ())];

/// The words for events.
pub(super) fn event_words() -> Vec<(&'static str, EventName)> {
    EventName::ALL.iter().map(|name| (name.as_str(), *name)).collect()
}

pub(super) fn notify(node: &Node, problems: &mut Problems<'_>) -> Vec<NotifyConfig> {
    let nodes: Vec<&Node> = node.list("`notify`", problems).iter().collect();
    if nodes.len() > limits::NOTIFIED {
        problems.add(node.at, format!("`notify` has more than {} entries", limits::NOTIFIED));
        return Vec::new();
    }
    nodes.into_iter().filter_map(|node| one(node, problems)).collect()
}

fn one(node: &Node, problems: &mut Problems<'_>) -> Option<NotifyConfig> {
    let fields = node.fields("`notify`", &NOTIFY_KEYS, problems);
    let allow_private = fields.get("allow_private").and_then(|node| node.boolean("`allow_private`", problems));
    let allow_private = allow_private.unwrap_or_default();
    let ways: Vec<&str> = ["webhook", "slack", "email"].into_iter().filter(|way| fields.get(way).is_some()).collect();
    let to = match ways[..] {
        ["webhook"] => url(&fields, "webhook", allow_private, problems)
            .map(|url| NotifyTo::Webhook { url, secret: secret(&fields, problems) }),
        ["slack"] => url(&fields, "slack", allow_private, problems).map(|url| NotifyTo::Slack { url }),
        ["email"] => fields.get("email").and_then(|node| email(node, allow_private, problems)).map(NotifyTo::Email),
        _ => {
            problems.add(node.at, "`notify` needs one of `webhook`, `slack` and `email`");
            None
        }
    };
    if let Some((key, _)) = fields.entry("secret").filter(|_| ways != ["webhook"]) {
        problems.add(key.at, "`secret` goes with `webhook`: nothing else is signed");
    }
    let about = about(&fields, problems);
    let arguments =
        many(&fields, "include").iter().filter_map(|node| node.word("`include`", &INCLUDES, problems)).count();
    Some(NotifyConfig { to: to?, about, arguments: arguments > 0, allow_private })
}

fn about(fields: &Fields<'_>, problems: &mut Problems<'_>) -> NotifyFilter {
    let words = event_words();
    let mut events: Vec<EventName> =
        many(fields, "events").iter().filter_map(|node| node.word("`events`", &words, problems)).collect();
    match fields.get("events") {
        None => events.push(EventName::HoldOpened),
        Some(node) if many(fields, "events").is_empty() => problems.add(node.at, "`events` names none"),
        Some(_) => {}
    }
    NotifyFilter {
        events,
        risk: fields.get("risk").and_then(|risk| risk.word("`risk`", &RISKS, problems)).unwrap_or_default(),
        rules: patterns(fields, "rules", Glob::parse, problems),
        tools: patterns(fields, "tools", Pattern::parse, problems),
    }
}

fn many<'n>(fields: &Fields<'n>, key: &str) -> &'n [Node] {
    fields.get(key).map_or(&[], Node::one_or_many)
}

fn patterns<T>(
    fields: &Fields<'_>,
    key: &str,
    parse: impl Fn(&str) -> Result<T, String>,
    problems: &mut Problems<'_>,
) -> Vec<T> {
    let mut read = Vec::new();
    for node in many(fields, key) {
        let Some(text) = node.text(&format!("`{key}`"), problems) else { continue };
        match parse(text) {
            Ok(pattern) => read.push(pattern),
            Err(why) => problems.add(node.at, format!("`{key}`: {why}")),
        }
    }
    read
}

/// An address as far as it can be judged without looking anything up. The server reads it again.
fn url(fields: &Fields<'_>, key: &str, allow_private: bool, problems: &mut Problems<'_>) -> Option<Secret> {
    let node = fields.get(key)?;
    let url = node.text(&format!("`{key}`"), problems)?;
    // The address itself may be a secret, so no message repeats it.
    let (rest, plain) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (rest, false),
        (None, Some(rest)) => (rest, true),
        (None, None) => {
            problems.add(node.at, format!("`{key}` must be a URL that begins with https://"));
            return None;
        }
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if plain && !allow_private {
        let help = "use https://, or `allow_private: true` for a receiver on this machine or its network";
        problems.add_with_help(node.at, format!("`{key}` would be sent in the clear"), help);
    }
    if host.contains('@') {
        problems.add(node.at, format!("`{key}` holds a user name or a password; they do not belong into a URL"));
    }
    if host.is_empty() || url.len() > limits::URL_BYTES || url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        problems.add(node.at, format!("`{key}` is not a URL"));
    }
    Some(Secret::new(url))
}

fn secret(fields: &Fields<'_>, problems: &mut Problems<'_>) -> Option<Secret> {
    let node = fields.get("secret")?;
    let text = node.text("`secret`", problems)?;
    let key = text.strip_prefix("whsec_").and_then(|key| BASE64.decode(key).ok());
    if !key.is_some_and(|key| (24..=64).contains(&key.len())) {
        let help = "`echo whsec_$(openssl rand -base64 32)` makes one";
        problems.add_with_help(node.at, "`secret` must be `whsec_` and 24 to 64 bytes in base64", help);
    }
    Some(Secret::new(text))
}

fn email(node: &Node, allow_private: bool, problems: &mut Problems<'_>) -> Option<EmailConfig> {
    let fields = node.fields("`email`", &EMAIL_KEYS, problems);
    let tls = fields.get("tls").and_then(|tls| tls.word("`tls`", &SMTP_TLS, problems)).unwrap_or_default();
    if tls == SmtpTls::None && !allow_private {
        let help = "use `starttls` or `tls`, or `allow_private: true` for a server on this machine or its network";
        problems.add_with_help(node.at, "`email` would be sent in the clear", help);
    }
    let to = patterns(&fields, "to", address, problems);
    let from = text(&fields, "from", problems);
    if let (Some(Err(why)), Some(node)) = (from.as_deref().map(address), fields.get("from")) {
        problems.add(node.at, format!("`from`: {why}"));
    }
    let smtp = text(&fields, "smtp", problems);
    let none_to = many(&fields, "to").is_empty();
    for (key, missing) in [("to", none_to), ("from", from.is_none()), ("smtp", smtp.is_none())] {
        if missing && (key == "to" || fields.get(key).is_none()) {
            problems.add(node.at, format!("`email` needs `{key}`"));
        }
    }
    let username = text(&fields, "username", problems);
    let password = text(&fields, "password", problems).map(Secret::new);
    if username.is_some() != password.is_some() {
        problems.add(node.at, "`username` and `password` go together");
    }
    let (host, port) = server(&smtp?, tls, &fields, problems)?;
    Some(EmailConfig { to, from: from?, host, port, tls, username, password })
}

/// A mailbox as far as it can be judged here. The server reads it again.
fn address(text: &str) -> Result<String, String> {
    let bad = text.chars().any(char::is_control) || text.len() > limits::NAME_BYTES;
    match text.rsplit_once('@') {
        Some((who, host)) if !bad && !who.is_empty() && !host.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("`{}` is not an address", text.chars().take(80).collect::<String>())),
    }
}

fn server(text: &str, tls: SmtpTls, fields: &Fields<'_>, problems: &mut Problems<'_>) -> Option<(String, u16)> {
    let usual = match tls {
        SmtpTls::StartTls => 587,
        SmtpTls::Tls => 465,
        SmtpTls::None => 25,
    };
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()),
        None => (text, Some(usual)),
    };
    let plain = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    match port.filter(|port| plain && *port > 0) {
        Some(port) => Some((host.to_owned(), port)),
        None => {
            let at = fields.get("smtp").map_or(fields.at, |node| node.at);
            problems.add(at, "`smtp` must be a host, or a host and a port: smtp.example.com:587");
            None
        }
    }
}
