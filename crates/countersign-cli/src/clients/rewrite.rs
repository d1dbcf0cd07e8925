//! Puts the gateway in front of the servers in a client's configuration, and takes it away again.
//!
//! Only a server's `command` and the beginning of its `args` change. Everything else in the file stays byte for byte:
//! comments, order, blanks, members that nobody here knows.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use super::jsonc::{self, Member, Node};

/// How the gateway is started.
#[derive(Clone, Debug)]
pub(crate) struct Starter {
    /// Our program.
    pub(crate) program: String,
    /// Options of the gateway that each server gets.
    pub(crate) options: Vec<String>,
}

/// One server that a client knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// Its name in the client.
    pub(crate) name: String,
    /// The folder of the project whose server it is; none where it is for all.
    pub(crate) project: Option<String>,
    /// How it is reached.
    pub(crate) way: Way,
}

/// How a client reaches a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It starts this command itself.
    Direct(Vec<String>),
    /// Through the gateway, which knows it under this name and starts this command.
    Gateway { known_as: String, words: Vec<String> },
    /// At an address.
    Remote(String),
    /// In a way that is not known here.
    Unknown(&'static str),
}

/// A change to one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The server's name in the client.
    pub(crate) name: String,
    /// The project it is for.
    pub(crate) project: Option<String>,
    /// Its name in rules.
    pub(crate) known_as: String,
    /// The command as it is.
    pub(crate) before: Vec<String>,
    /// The command as it will be.
    pub(crate) after: Vec<String>,
}

/// A text with changes to it.
#[derive(Clone, Debug)]
pub(crate) struct Rewritten {
    pub(crate) text: String,
    pub(crate) changes: Vec<Change>,
}

/// Where servers stand in a client's file: the names of the objects that lead to them; `*` is every name.
pub(crate) type Sections = &'static [&'static [&'static str]];

/// Lists the servers in a file.
pub(crate) fn servers(text: &str, sections: Sections) -> Result<Vec<Server>, String> {
    Ok(entries(&jsonc::read(text)?, sections)?.iter().map(Entry::server).collect())
}

/// Puts the gateway in front of each server that the client starts itself.
pub(crate) fn install(text: &str, sections: Sections, starter: &Starter) -> Result<Rewritten, String> {
    let root = jsonc::read(text)?;
    let entries = entries(&root, sections)?;
    let mut names = Names::of(&entries);
    let (mut edits, mut changes) = (Vec::new(), Vec::new());
    for entry in &entries {
        let server = entry.server();
        let Way::Direct(before) = server.way else { continue };
        let known_as = names.give(&server.name, &before);
        let mut prefix = vec!["gateway".to_owned()];
        prefix.extend(starter.options.iter().cloned());
        prefix.extend([format!("{SERVER}{known_as}"), "--".to_owned()]);
        edits.extend(entry.wrap(text, &starter.program, &prefix).ok_or("it cannot be taken apart")?);
        let after = [vec![starter.program.clone()], prefix, before.clone()].concat();
        changes.push(Change { name: server.name, project: server.project, known_as, before, after });
    }
    Ok(Rewritten { text: spliced(text, edits).ok_or("it cannot be put together")?, changes })
}

/// Takes the gateway away again.
pub(crate) fn undo(text: &str, sections: Sections) -> Result<Rewritten, String> {
    let root = jsonc::read(text)?;
    let (mut edits, mut changes) = (Vec::new(), Vec::new());
    for entry in entries(&root, sections)? {
        let server = entry.server();
        let Way::Gateway { known_as, words } = server.way else { continue };
        edits.extend(entry.unwrap(text).ok_or("it cannot be taken apart")?);
        let before = entry.words().unwrap_or_default();
        changes.push(Change { name: server.name, project: server.project, known_as, before, after: words });
    }
    Ok(Rewritten { text: spliced(text, edits).ok_or("it cannot be put together")?, changes })
}

const SERVER: &str = "--server=";

/// A server's entry in the file.
struct Entry<'n> {
    name: &'n str,
    project: Option<&'n str>,
    node: &'n Node,
}

fn entries<'n>(root: &'n Node, sections: Sections) -> Result<Vec<Entry<'n>>, String> {
    if root.members().is_none() {
        return Err("it is not an object".into());
    }
    let mut found = Vec::new();
    for section in sections {
        for (project, node) in at(root, section) {
            let servers = node.members().ok_or_else(|| format!("`{}` is not an object", section.join(".")))?;
            found.extend(servers.iter().map(|Member { key, node, .. }| Entry { name: key, project, node }));
        }
    }
    Ok(found)
}

/// The values that a path leads to, each with the name that stood for `*`.
fn at<'n>(root: &'n Node, section: &[&str]) -> Vec<(Option<&'n str>, &'n Node)> {
    let mut nodes = vec![(None, root)];
    for step in section {
        nodes = nodes
            .into_iter()
            .flat_map(|(project, node)| {
                let members = node.members().unwrap_or_default().iter();
                members
                    .filter(|member| *step == "*" || member.key == *step)
                    .map(move |member| (if *step == "*" { Some(member.key.as_str()) } else { project }, &member.node))
            })
            .collect();
    }
    nodes
}

impl Entry<'_> {
    fn server(&self) -> Server {
        Server { name: self.name.to_owned(), project: self.project.map(str::to_owned), way: self.way() }
    }

    fn way(&self) -> Way {
        let kind = self.node.get("type").and_then(Node::text).unwrap_or("stdio");
        // VS Code and most others say `url`, Windsurf `serverUrl`, Gemini `httpUrl`.
        let address = ["url", "serverUrl", "httpUrl"].iter().find_map(|key| self.node.get(key)?.text());
        match (self.words(), kind, address) {
            (Some(words), "stdio" | "local", None) => gateway(&words).unwrap_or(Way::Direct(words)),
            (None, _, Some(address)) => Way::Remote(address.to_owned()),
            (Some(_), ..) => Way::Unknown("it has both a command and something else"),
            (None, _, None) if self.node.get("command").is_some() => Way::Unknown("its command is not a list of texts"),
            (None, _, None) => Way::Unknown("it has neither a command nor an address"),
        }
    }

    /// The command line, where there is one.
    fn words(&self) -> Option<Vec<String>> {
        let command = self.node.get("command")?.text()?;
        let args = match self.node.get("args") {
            Some(args) => args.items()?.iter().map(Node::text).collect::<Option<Vec<_>>>()?,
            None => Vec::new(),
        };
        Some(std::iter::once(command).chain(args).map(str::to_owned).collect())
    }

    fn wrap(&self, text: &str, program: &str, prefix: &[String]) -> Option<Vec<Edit>> {
        let command = self.node.get("command")?;
        let mut items: Vec<String> = prefix.iter().map(|word| Json::from(word.as_str()).to_string()).collect();
        // As it is spelled, so that it can be put back as it was.
        items.push(text.get(command.at.clone())?.to_owned());
        let args = match self.node.get("args") {
            Some(args) => match args.items()?.first() {
                Some(first) => {
                    let between = text.get(args.at.start + 1..first.at.start)?;
                    // A comment before the first item stays where it is; the others are laid out as the first one.
                    let blank = if between.trim().is_empty() { between } else { " " };
                    let comma = if blank.is_empty() { ", ".to_owned() } else { format!(",{blank}") };
                    (first.at.start..first.at.start, items.join(&comma) + &comma)
                }
                None => (args.at.start + 1..args.at.start + 1, items.join(", ")),
            },
            None => (command.at.end..command.at.end, self.new_args(text, &items)?),
        };
        Some(vec![(command.at.clone(), Json::from(program).to_string()), args])
    }

    /// A new `args`, in a line of its own where the command has one.
    fn new_args(&self, text: &str, items: &[String]) -> Option<String> {
        let command = self.node.members()?.iter().find(|member| member.key == "command")?;
        let before = text.get(..command.key_at.start)?;
        let indent = before.get(before.rfind('\n').map_or(0, |line| line + 1)..)?;
        let blank = if indent.trim().is_empty() && before.contains('\n') { format!("\n{indent}") } else { " ".into() };
        Some(format!(",{blank}\"args\": [{}]", items.join(", ")))
    }

    fn unwrap(&self, text: &str) -> Option<Vec<Edit>> {
        let (command, args) = (self.node.get("command")?, self.node.get("args")?.items()?);
        let end = args.iter().position(|item| item.text() == Some("--"))?;
        let (first, inner) = (args.first()?, args.get(end + 1)?);
        let until = args.get(end + 2).map_or(inner.at.end, |next| next.at.start);
        let command = (command.at.clone(), text.get(inner.at.clone())?.to_owned());
        Some(vec![command, (first.at.start..until, String::new())])
    }
}

/// Reads a command line of ours.
fn gateway(words: &[String]) -> Option<Way> {
    let (program, args) = words.split_first()?;
    let stem = std::path::Path::new(program).file_stem()?.to_str()?;
    if stem != "countersign" || args.first()? != "gateway" {
        return None;
    }
    let end = args.iter().position(|word| word == "--")?;
    let (options, inner) = (args.get(1..end)?, args.get(end + 1..)?);
    let after = |word: &String| options.iter().skip_while(|option| *option != word).nth(1).cloned();
    let known_as = options.iter().find_map(|option| match option.strip_prefix(SERVER) {
        Some(name) => Some(name.to_owned()),
        None if option == "--server" => after(option),
        None => None,
    });
    let base = || Some(std::path::Path::new(inner.first()?).file_stem()?.to_string_lossy().into_owned());
    Some(Way::Gateway { known_as: known_as.or_else(base)?, words: inner.to_vec() })
}

type Edit = (Range<usize>, String);

fn spliced(text: &str, mut edits: Vec<Edit>) -> Option<String> {
    edits.sort_by_key(|(range, _)| range.start);
    let mut out = String::with_capacity(text.len() + 256 * edits.len());
    let mut at = 0;
    for (range, with) in edits {
        out.push_str(text.get(at..range.start)?);
        out.push_str(&with);
        at = range.end;
    }
    out.push_str(text.get(at..)?);
    Some(out)
}

/// Which command has which name in rules. Two commands under one name would be taken for a server that was swapped.
struct Names {
    given: BTreeMap<String, Vec<String>>,
}

impl Names {
    fn of(entries: &[Entry<'_>]) -> Names {
        let given = entries.iter().filter_map(|entry| match entry.way() {
            Way::Gateway { known_as, words } => Some((known_as, words)),
            Way::Direct(_) | Way::Remote(_) | Way::Unknown(_) => None,
        });
        Names { given: given.collect() }
    }

    fn give(&mut self, name: &str, words: &[String]) -> String {
        let mut plain: String = name.chars().map(|char| if is_plain(char) { char } else { '-' }).collect();
        let most = countersign::limits::NAME_BYTES - 1 - MARK_DIGITS;
        while plain.len() > most {
            plain.pop();
        }
        let plain = if plain.is_empty() { "server".to_owned() } else { plain };
        let is_free = |names: &Names, name: &str| names.given.get(name).is_none_or(|known| known == words);
        let name = if is_free(self, &plain) { plain } else { format!("{plain}-{}", mark(words)) };
        self.given.insert(name.clone(), words.to_vec());
        name
    }
}

const MARK_DIGITS: usize = 8;

/// Tells commands of one name apart.
fn mark(words: &[String]) -> String {
    let digest = Sha256::digest(words.join("\0"));
    digest.iter().take(MARK_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// Whether rules can mean a name with it.
fn is_plain(char: char) -> bool {
    !char.is_whitespace() && !char.is_control() && !"/:*?[]{}\\".contains(char)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTIONS: Sections = &[&["mcpServers"], &["projects", "*", "mcpServers"]];

    fn starter() -> Starter {
        Starter { program: "/bin/countersign".into(), options: Vec::new() }
    }

    #[track_caller]
    fn check(before: &str, after: &str) {
        let installed = install(before, SECTIONS, &starter()).unwrap();
        assert_eq!(installed.text, after);
        assert!(install(after, SECTIONS, &starter()).unwrap().changes.is_empty(), "once is enough");
        let undone = undo(after, SECTIONS).unwrap();
        assert_eq!(undone.changes.len(), installed.changes.len());
        let words = |text: &str| servers(text, SECTIONS).unwrap();
        assert_eq!(words(&undone.text), words(before));
        if before.contains("args") {
            assert_eq!(undone.text, before);
        }
    }

    #[test]
    fn only_command_and_the_beginning_of_args_change() {
        check(
            r#"{"z": 1, "mcpServers": {"f": {"env": {"T": "x"}, "command": "npx", "args": ["-y", "s"], "odd": [ 1]}}}"#,
            r#"{"z": 1, "mcpServers": {"f": {"env": {"T": "x"}, "command": "/bin/countersign", "args": ["gateway", "--server=f", "--", "npx", "-y", "s"], "odd": [ 1]}}}"#,
        );
        check(
            "{\n  // mine\n  \"mcpServers\": {\n    \"f\": {\n      \"command\": \"n\\u0070x\",\n      \"args\": [\n        \"-y\", // yes\n        \"s\",\n      ],\n    },\n  },\n}\n",
            "{\n  // mine\n  \"mcpServers\": {\n    \"f\": {\n      \"command\": \"/bin/countersign\",\n      \"args\": [\n        \"gateway\",\n        \"--server=f\",\n        \"--\",\n        \"n\\u0070x\",\n        \"-y\", // yes\n        \"s\",\n      ],\n    },\n  },\n}\n",
        );
        check(
            "{\"mcpServers\": {\n  \"f\": {\n    \"command\": \"srv\"\n  }\n}}",
            "{\"mcpServers\": {\n  \"f\": {\n    \"command\": \"/bin/countersign\",\n    \"args\": [\"gateway\", \"--server=f\", \"--\", \"srv\"]\n  }\n}}",
        );
        check(
            r#"{"mcpServers":{"f":{"command":"srv","args":[]}}}"#,
            r#"{"mcpServers":{"f":{"command":"/bin/countersign","args":["gateway", "--server=f", "--", "srv"]}}}"#,
        );
        check(
            r#"{"mcpServers":{"f":{"args":[/* first */ "a"],"command":"srv"}}}"#,
            r#"{"mcpServers":{"f":{"args":[/* first */ "gateway", "--server=f", "--", "srv", "a"],"command":"/bin/countersign"}}}"#,
        );
    }

    #[test]
    fn what_the_client_does_not_start_is_left_alone() {
        let text = r#"{"mcpServers": {"a": {"type": "http", "url": "https://x"}, "b": {"command": {"path": "x"}},
            "c": {"command": "x", "url": "y"}, "d": 7, "e": {"command": "x", "args": [1]}}}"#;
        assert_eq!(install(text, SECTIONS, &starter()).unwrap().text, text);
        let ways: Vec<Way> = servers(text, SECTIONS).unwrap().into_iter().map(|server| server.way).collect();
        assert_eq!(ways[0], Way::Remote("https://x".into()));
        assert!(ways[1..].iter().all(|way| matches!(way, Way::Unknown(_))), "{ways:?}");
        for broken in [r#"{"mcpServers": []}"#, "[]", r#"{"mcpServers": {}, "mcpServers": {}}"#] {
            assert!(install(broken, SECTIONS, &starter()).is_err(), "{broken}");
        }
        assert_eq!(install("{}", SECTIONS, &starter()).unwrap().text, "{}");
    }

    #[test]
    fn two_commands_never_share_a_name_in_rules() {
        let text = r#"{"mcpServers": {"my files": {"command": "a"}, "": {"command": "a"}},
            "projects": {"/x": {"mcpServers": {"my files": {"command": "b"}}}, "/y": {"mcpServers": {"my files": {"command": "a"}}}}}"#;
        let installed = install(text, SECTIONS, &starter()).unwrap();
        let names: Vec<&str> = installed.changes.iter().map(|change| change.known_as.as_str()).collect();
        assert_eq!(names[..2], ["my-files", "server"]);
        assert!(names[2].starts_with("my-files-") && names[2].len() == "my-files-".len() + MARK_DIGITS, "{names:?}");
        assert_eq!(names[3], "my-files");
        assert_eq!(installed.changes[2].project.as_deref(), Some("/x"));
        assert_eq!(undo(&installed.text, SECTIONS).unwrap().changes.len(), 4);
    }
}
