//! Finds the rules that may be about a tool without looking at the others.

use std::collections::{BTreeMap, HashMap};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::pattern::{Glob, Pattern, Reach, Subject, is_plain_local};
use crate::call::ToolId;

/// Globs of one set; more make further sets, so that none grows beyond what a set can hold.
const SET_SIZE: usize = 256;

/// Numbered patterns, found by tool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    local: Names,
    everywhere: Names,
    servers: HashMap<String, Names>,
    /// Patterns whose server is a glob: found by name, then checked.
    any_server: Names,
    server_globs: Vec<Glob>,
    agents: Names,
    toolsets: Names,
}

impl Index {
    /// Adds one pattern under a number.
    pub(crate) fn add(&mut self, pattern: &Pattern, reach: Reach, number: u32) {
        match (&pattern.subject, reach) {
            (Subject::Bare(name), Reach::Local) => self.local.add(name, number, 0),
            (Subject::Bare(name), Reach::Everywhere) => self.everywhere.add(name, number, 0),
            (Subject::On { server: Glob::Literal(server), name }, _) => {
                self.servers.entry(server.clone()).or_default().add(name, number, 0);
            }
            (Subject::On { server, name }, _) => {
                let check = u32::try_from(self.server_globs.len()).unwrap_or(u32::MAX);
                self.server_globs.push(server.clone());
                self.any_server.add(name, number, check);
            }
            (Subject::Agent(name), _) => self.agents.add(name, number, 0),
            (Subject::Toolset(name), _) => self.toolsets.add(name, number, 0),
        }
    }

    /// Makes the index ready. Fails where the globs are too big to compile.
    pub(crate) fn build(&mut self) -> Result<(), String> {
        let names = [&mut self.local, &mut self.everywhere, &mut self.any_server, &mut self.agents, &mut self.toolsets];
        names.into_iter().chain(self.servers.values_mut()).try_for_each(Names::build)
    }

    /// Puts the numbers of all patterns that match into `found`: sorted, each once.
    pub(crate) fn find(&self, tool: &ToolId, toolset: Option<&str>, found: &mut Vec<u32>) {
        self.everywhere.find(&tool.name, |number, _| found.push(number));
        if is_plain_local(tool) {
            self.local.find(&tool.name, |number, _| found.push(number));
        }
        if let Some(agent) = tool.delegate() {
            self.agents.find(agent, |number, _| found.push(number));
        }
        if let Some(server) = tool.server.as_deref() {
            if let Some(names) = self.servers.get(server) {
                names.find(&tool.name, |number, _| found.push(number));
            }
            self.any_server.find(&tool.name, |number, check| {
                let glob = usize::try_from(check).ok().and_then(|check| self.server_globs.get(check));
                if glob.is_some_and(|glob| glob.matches(server)) {
                    found.push(number);
                }
            });
        }
        if let Some(toolset) = toolset {
            self.toolsets.find(toolset, |number, _| found.push(number));
        }
        if found.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
    }
}

/// A pattern's number, and what is still to be checked about it.
type Entry = (u32, u32);

/// Globs over names: literals, prefixes and suffixes by hash, the rest in sets that are matched at once.
#[derive(Clone, Debug, Default)]
struct Names {
    all: Vec<Entry>,
    literals: HashMap<String, Vec<Entry>>,
    /// By length, because a name has one prefix of each.
    prefixes: BTreeMap<usize, HashMap<String, Vec<Entry>>>,
    suffixes: BTreeMap<usize, HashMap<String, Vec<Entry>>>,
    others: Vec<(String, Entry)>,
    sets: Vec<GlobSet>,
}

impl Names {
    fn add(&mut self, glob: &Glob, number: u32, check: u32) {
        let entry = (number, check);
        match glob {
            Glob::All => self.all.push(entry),
            Glob::Literal(text) => self.literals.entry(text.clone()).or_default().push(entry),
            Glob::Prefix(text) => push(&mut self.prefixes, text, entry),
            Glob::Suffix(text) => push(&mut self.suffixes, text, entry),
            Glob::Other(matcher) => self.others.push((matcher.glob().glob().to_owned(), entry)),
        }
    }

    fn build(&mut self) -> Result<(), String> {
        self.sets.clear();
        for chunk in self.others.chunks(SET_SIZE) {
            let mut set = GlobSetBuilder::new();
            for (glob, _) in chunk {
                let glob =
                    GlobBuilder::new(glob).literal_separator(false).build().map_err(|error| error.to_string())?;
                set.add(glob);
            }
            self.sets.push(set.build().map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    fn find(&self, name: &str, mut found: impl FnMut(u32, u32)) {
        let mut each = |entries: &[Entry]| entries.iter().for_each(|(number, check)| found(*number, *check));
        each(&self.all);
        if !self.literals.is_empty()
            && let Some(entries) = self.literals.get(name)
        {
            each(entries);
        }
        for (length, texts) in self.prefixes.range(..=name.len()) {
            if let Some(entries) = name.get(..*length).and_then(|prefix| texts.get(prefix)) {
                each(entries);
            }
        }
        for (length, texts) in self.suffixes.range(..=name.len()) {
            if let Some(entries) = name.get(name.len() - length..).and_then(|suffix| texts.get(suffix)) {
                each(entries);
            }
        }
        for (set, chunk) in self.sets.iter().zip(self.others.chunks(SET_SIZE)) {
            for index in set.matches(name) {
                if let Some((_, (number, check))) = chunk.get(index) {
                    found(*number, *check);
                }
            }
        }
    }
}

fn push(texts: &mut BTreeMap<usize, HashMap<String, Vec<Entry>>>, text: &str, entry: Entry) {
    texts.entry(text.len()).or_default().entry(text.to_owned()).or_default().push(entry);
}
