//! What the server offers, as the gateway knows it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use countersign::json::Bounds;
use countersign::schema::Schema;
use countersign::{Definition, Json, ToolId, limits};
use serde_json::value::RawValue;

use super::pins::{Allowing, Identity, Snapshot, pinned};
use countersign::looks::look;

/// One tool as the server lists it.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) definition: Arc<Definition>,
    pub(crate) snapshot: Snapshot,
    pub(crate) allowing: Allowing,
}

/// What is known of a name.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// Its definition.
    Listed(Arc<Listed>),
    /// It is listed with a definition that cannot be read, or with two of them.
    Unreadable(Arc<str>),
}

/// All tools of the server.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    entries: RwLock<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_name: HashMap<Arc<str>, Entry>,
    /// Names that a person may take for one another.
    by_look: HashMap<String, BTreeSet<Arc<str>>>,
    /// How many looks two names share; mostly there is none to look for.
    shared_looks: usize,
}

impl Catalog {
    /// What is known of a name.
    pub(crate) fn get(&self, name: &str) -> Option<Entry> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).by_name.get(name).cloned()
    }

    /// Whether there is no room for further names.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).by_name.len() >= crate::limits::TOOLS
    }

    /// Another name on this server that looks the same.
    pub(crate) fn look_alike(&self, name: &str) -> Option<Arc<str>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        if entries.shared_looks == 0 && entries.by_name.contains_key(name) {
            return None;
        }
        entries.by_look.get(&look(name))?.iter().find(|other| ***other != *name).cloned()
    }

    /// Adds what a listing shows; a whole listing replaces what was known.
    pub(crate) fn put(&self, tools: Vec<(Arc<str>, Entry)>, is_whole: bool) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if is_whole {
            *entries = Entries::default();
        }
        for (name, entry) in tools {
            if entries.by_name.len() >= crate::limits::TOOLS && !entries.by_name.contains_key(&name) {
                continue;
            }
            let alike = entries.by_look.entry(look(&name)).or_default();
            let is_second = alike.insert(Arc::clone(&name)) && alike.len() == 2;
            entries.shared_looks += usize::from(is_second);
            entries.by_name.insert(name, entry);
        }
    }
}

/// Reads a page of a listing. A name that is there twice cannot be read.
pub(crate) fn read_page(server: &Arc<str>, identity: &Identity, tools: &[&RawValue]) -> Vec<(Arc<str>, Entry)> {
    once(tools.iter().filter_map(|raw| read_tool(server, identity, raw)))
}

/// At most as many tools as may be known. A name that is there twice cannot be read.
pub(crate) fn once(tools: impl IntoIterator<Item = (Arc<str>, Entry)>) -> Vec<(Arc<str>, Entry)> {
    let mut listed: Vec<(Arc<str>, Entry)> = Vec::new();
    let mut places: HashMap<Arc<str>, usize> = HashMap::new();
    for (name, entry) in tools {
        if let Some(place) = places.get(&name) {
            if let Some((_, first)) = listed.get_mut(*place) {
                *first = Entry::Unreadable("it is listed twice".into());
            }
        } else if listed.len() < crate::limits::TOOLS {
            places.insert(Arc::clone(&name), listed.len());
            listed.push((name, entry));
        }
    }
    listed
}

/// A tool without a name that can be called is none.
fn read_tool(server: &Arc<str>, identity: &Identity, raw: &RawValue) -> Option<(Arc<str>, Entry)> {
    #[derive(serde::Deserialize)]
    struct Named {
        name: String,
    }
    let name: Arc<str> = serde_json::from_str::<Named>(raw.get()).ok()?.name.into();
    if name.len() > limits::NAME_BYTES {
        return None;
    }
    let entry = match pinned(raw) {
        Ok(pinned) => {
            let definition = Arc::new(definition(ToolId::on(Arc::clone(server), Arc::clone(&name)), &pinned));
            let digest = definition.digest();
            let snapshot = Snapshot { definition: pinned, identity: identity.clone(), digest };
            Entry::Listed(Arc::new(Listed { definition, snapshot, allowing: Allowing::default() }))
        }
        Err(why) => Entry::Unreadable(why.into()),
    };
    Some((name, entry))
}

fn definition(tool: ToolId, pinned: &Json) -> Definition {
    let description = pinned.field("description").and_then(|text| text.read::<String>().ok()).unwrap_or_default();
    let mut definition = Definition::new(Arc::clone(&tool.name), description);
    definition.tool = tool;
    definition.annotations = pinned.field("annotations");
    let schema = pinned.field("inputSchema");
    let schema = schema.and_then(|schema| {
        Json::ingest(schema.as_str(), Bounds { bytes: limits::SCHEMA_BYTES, ..Bounds::STORED }).ok()
    });
    // A schema that we cannot use is the server's to check; its pin covers it all the same.
    if let Some(schema) = schema.filter(|schema| Schema::compile(schema).is_ok()) {
        definition.input_schema = schema;
    }
    definition
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(tools: &[&str]) -> Catalog {
        let raw: Vec<Box<RawValue>> = tools.iter().map(|tool| RawValue::from_string((*tool).into()).unwrap()).collect();
        let raw: Vec<&RawValue> = raw.iter().map(|raw| &**raw).collect();
        let catalog = Catalog::default();
        catalog.put(read_page(&"s".into(), &Identity::of_command(["x"]), &raw), true);
        catalog
    }

    #[test]
    fn a_name_that_is_listed_twice_has_no_definition() {
        let catalog =
            page(&[r#"{"name":"a","description":"1"}"#, r#"{"name":"a","description":"2"}"#, r#"{"name":"b"}"#]);
        assert!(matches!(catalog.get("a"), Some(Entry::Unreadable(_))));
        assert!(matches!(catalog.get("b"), Some(Entry::Listed(_))));
        assert!(catalog.get("c").is_none());
    }

    #[test]
    fn a_listing_is_cut_where_it_is_too_long() {
        let entry = |number: usize| (Arc::from(format!("t{number}")), Entry::Unreadable("x".into()));
        let twice = (0..2 * crate::limits::TOOLS).chain(0..2 * crate::limits::TOOLS).map(entry);
        assert_eq!(once(twice).len(), crate::limits::TOOLS);
    }

    #[test]
    fn names_that_look_the_same_are_told_apart() {
        let catalog = page(&[r#"{"name":"read_file"}"#, r#"{"name":"reаd_file"}"#, r#"{"name":"other"}"#]);
        assert_eq!(catalog.look_alike("read_file").as_deref(), Some("reаd_file"));
        assert_eq!(catalog.look_alike("other"), None);
    }

    #[test]
    fn everything_people_and_rules_go_by_is_pinned_and_nothing_else() {
        let snapshot = |tool: &str| match page(&[tool]).get("a") {
            Some(Entry::Listed(listed)) => listed.snapshot.clone(),
            other => panic!("{other:?}"),
        };
        let first = snapshot(r#"{"name":"a","description":"d","_meta":{"x":1}}"#);
        assert_eq!(first, snapshot(r#"{"_meta":{"x":2},"description":"d","name":"a"}"#));
        for changed in [
            r#"{"name":"a","description":"e"}"#,
            r#"{"name":"a","description":"d","annotations":{"readOnlyHint":true}}"#,
            r#"{"name":"a","description":"d","inputSchema":{"type":"object"}}"#,
            r#"{"name":"a","description":"d","title":"t"}"#,
        ] {
            assert_ne!(first, snapshot(changed), "{changed}");
        }
    }
}
