//! Patterns: which tools a rule is about.

use globset::{GlobBuilder, GlobMatcher};

use crate::call::ToolId;
use crate::limits;

/// A pattern over tools, as a rule writes it.
///
/// `name` and `server/name` are globs (`*`, `?`, `[..]`, `{a,b}`), split at the first `/`. `agent:NAME` is delegation
/// to an agent, `toolset:NAME` or `skill:NAME` every tool that came with it.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    pub(crate) subject: Subject,
}

/// What a pattern looks at.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// A name alone; how far it reaches is the rule's to say.
    Bare(Glob),
    /// A tool of an MCP server.
    On { server: Glob, name: Glob },
    /// Delegation to an agent.
    Agent(Glob),
    /// Everything that came with a toolset or skill.
    Toolset(Glob),
}

/// How far a bare name reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Local tools only: for whatever loosens.
    Local,
    /// The tools of every server, and delegation: for whatever tightens.
    Everywhere,
}

/// A glob, in the cheapest form that matches the same names.
#[derive(Clone, Debug)]
pub(crate) enum Glob {
    All,
    Literal(String),
    Prefix(String),
    Suffix(String),
    Other(Box<GlobMatcher>),
}

impl Glob {
    /// Reads a glob, or says why it is none.
    pub(crate) fn parse(text: &str) -> Result<Glob, String> {
        if text.is_empty() {
            return Err("has a blank name".to_owned());
        }
        if let Some(bad) = text.chars().find(|char| char.is_whitespace() || char.is_control() || *char == '\\') {
            return Err(format!("holds {bad:?}, which no name may"));
        }
        if text.contains("**") {
            return Err("holds `**`; write `*`".to_owned());
        }
        let plain = |part: &str| !part.contains(['*', '?', '[', ']', '{', '}']);
        if text == "*" {
            return Ok(Glob::All);
        }
        if plain(text) {
            return Ok(Glob::Literal(text.to_owned()));
        }
        if let Some(prefix) = text.strip_suffix('*').filter(|prefix| plain(prefix)) {
            return Ok(Glob::Prefix(prefix.to_owned()));
        }
        if let Some(suffix) = text.strip_prefix('*').filter(|suffix| plain(suffix)) {
            return Ok(Glob::Suffix(suffix.to_owned()));
        }
        let glob = GlobBuilder::new(text).literal_separator(false).build();
        glob.map(|glob| Glob::Other(Box::new(glob.compile_matcher()))).map_err(|error| error.kind().to_string())
    }

    /// Whether the name is one of those meant.
    pub(crate) fn matches(&self, name: &str) -> bool {
        match self {
            Glob::All => true,
            Glob::Literal(literal) => literal == name,
            Glob::Prefix(prefix) => name.starts_with(prefix.as_str()),
            Glob::Suffix(suffix) => name.ends_with(suffix.as_str()),
            Glob::Other(glob) => glob.is_match(name),
        }
    }
}

impl Pattern {
    /// Reads a pattern, or says why it is none.
    pub(crate) fn parse(text: &str) -> Result<Pattern, String> {
        let fail = |why: String| format!("pattern `{text}` {why}");
        if text.trim().is_empty() {
            return Err("pattern is blank".to_owned());
        }
        if text.len() > 2 * limits::NAME_BYTES {
            return Err(format!("pattern of {} bytes is over the limit of {}", text.len(), 2 * limits::NAME_BYTES));
        }
        let subject = if let Some(agent) = text.strip_prefix("agent:") {
            Subject::Agent(Glob::parse(agent).map_err(fail)?)
        } else if let Some(toolset) = text.strip_prefix("toolset:").or_else(|| text.strip_prefix("skill:")) {
            Subject::Toolset(Glob::parse(toolset).map_err(fail)?)
        } else if let Some((server, name)) = text.split_once('/') {
            Subject::On { server: Glob::parse(server).map_err(fail)?, name: Glob::parse(name).map_err(fail)? }
        } else if text.contains(':') {
            return Err(fail("holds `:`; only `agent:`, `toolset:` and `skill:` may stand before it".to_owned()));
        } else {
            Subject::Bare(Glob::parse(text).map_err(fail)?)
        };
        Ok(Pattern { subject })
    }

    /// Whether the tool is one of those meant.
    pub(crate) fn matches(&self, tool: &ToolId, toolset: Option<&str>, reach: Reach) -> bool {
        match &self.subject {
            Subject::Bare(name) => (reach == Reach::Everywhere || is_plain_local(tool)) && name.matches(&tool.name),
            Subject::On { server, name } => {
                tool.server.as_deref().is_some_and(|found| server.matches(found)) && name.matches(&tool.name)
            }
            Subject::Agent(name) => tool.delegate().is_some_and(|agent| name.matches(agent)),
            Subject::Toolset(name) => toolset.is_some_and(|toolset| name.matches(toolset)),
        }
    }
}

/// Whether it is a tool of our own process, and no delegation.
pub(crate) fn is_plain_local(tool: &ToolId) -> bool {
    tool.server.is_none() && tool.delegate().is_none()
}
