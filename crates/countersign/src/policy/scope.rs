//! The facts of one call, as conditions see them.

use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

use cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::check::Reads;
use crate::call::Facts;
use crate::json::Json;

/// How large the values are that a condition may meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Items of the longest list or mapping.
    pub(crate) list: usize,
    /// Bytes of the longest text.
    pub(crate) text: usize,
}

impl Sizes {
    fn max(self, other: Sizes) -> Sizes {
        Sizes { list: self.list.max(other.list), text: self.text.max(other.text) }
    }
}

/// Whether the claims of the tool's server are shown to a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claims {
    Shown,
    Withheld,
}

type Boxed<'f> = Box<dyn Val + 'f>;

/// The values of one judging. Arguments are read once, and only if a condition looks at them.
pub(crate) struct Values<'f> {
    facts: &'f Facts,
    reads: Option<&'f Reads>,
    arguments: OnceLock<(Boxed<'f>, Sizes)>,
    annotations: OnceLock<(Boxed<'f>, Sizes)>,
}

impl<'f> Values<'f> {
    pub(crate) fn new(facts: &'f Facts) -> Values<'f> {
        Values { facts, reads: None, arguments: OnceLock::new(), annotations: OnceLock::new() }
    }

    /// Leaves out the arguments that no condition looks at.
    ///
    /// INVARIANT: `reads` covers every condition that will see these values.
    pub(crate) fn read_by(facts: &'f Facts, reads: &'f Reads) -> Values<'f> {
        Values { reads: Some(reads).filter(|reads| !reads.everything), ..Values::new(facts) }
    }

    /// The facts the values are made from.
    pub(crate) fn facts(&self) -> &'f Facts {
        self.facts
    }

    fn arguments(&self) -> &(Boxed<'f>, Sizes) {
        self.arguments.get_or_init(|| read(&self.facts.arguments, self.reads))
    }

    fn annotations(&self) -> &(Boxed<'f>, Sizes) {
        self.annotations.get_or_init(|| match &self.facts.annotations {
            Some(annotations) => read(annotations, None),
            None => (Box::new(CelMap::from(HashMap::new())), Sizes::default()),
        })
    }
}

/// The variables of one condition.
pub(crate) struct Scope<'a, 'f> {
    values: &'a Values<'f>,
    claims: Claims,
}

impl<'a, 'f> Scope<'a, 'f> {
    pub(crate) fn new(values: &'a Values<'f>, claims: Claims) -> Scope<'a, 'f> {
        Scope { values, claims }
    }

    /// The sizes of everything the condition may loop over.
    pub(crate) fn sizes(&self) -> Sizes {
        self.values.arguments().1.max(self.values.annotations().1)
    }
}

impl VariableResolver for Scope<'_, '_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let facts = self.values.facts;
        match variable {
            "arguments" => Some(CowVal::Borrowed(&*self.values.arguments().0)),
            "annotations" => Some(match self.claims {
                Claims::Shown => CowVal::Borrowed(&*self.values.annotations().0),
                Claims::Withheld => CowVal::owned(CelMap::from(HashMap::new())),
            }),
            "tool" => Some(CowVal::owned(CelString::from(&*facts.tool.name))),
            "server" => Some(name(facts.tool.server.as_deref())),
            "session" => Some(name(facts.path.session.as_deref())),
            "thread" => Some(name(facts.path.thread.as_deref())),
            "agent" => Some(name(facts.path.agent().map(|agent| &**agent))),
            "now" => now(facts),
            _ => None,
        }
    }
}

/// A name, or null where the call has none.
fn name(name: Option<&str>) -> CowVal<'_, '_> {
    match name {
        Some(name) => CowVal::owned(CelString::from(name)),
        None => CowVal::owned(CelNull),
    }
}

/// When the call was proposed, made by CEL's own reading of the time as text.
fn now<'b>(facts: &Facts) -> Option<CowVal<'b, 'b>> {
    let text: CowVal<'b, 'b> = CowVal::owned(CelString::from(facts.at.to_string()));
    let read = super::condition::environment().find_overload("timestamp", std::slice::from_ref(&text))?;
    read(vec![text]).ok()
}

/// Reads JSON into the values of conditions, borrowing its texts. Unreadable JSON is null, on which conditions err.
fn read<'f>(json: &'f Json, reads: Option<&Reads>) -> (Boxed<'f>, Sizes) {
    let mut sizes = Sizes::default();
    let mut deserializer = serde_json::Deserializer::from_str(json.as_str());
    let value = Seed { sizes: &mut sizes, reads }.deserialize(&mut deserializer).unwrap_or_else(|_| Box::new(CelNull));
    (value, sizes)
}

struct Seed<'s> {
    sizes: &'s mut Sizes,
    /// The members of the outermost mapping that are wanted; all, if none.
    reads: Option<&'s Reads>,
}

impl Seed<'_> {
    fn saw_text(&mut self, length: usize) {
        self.sizes.text = self.sizes.text.max(length);
    }

    fn saw_list(&mut self, length: usize) {
        self.sizes.list = self.sizes.list.max(length);
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Boxed<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Boxed<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Boxed<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Boxed<'de>, E> {
        Ok(Box::new(CelNull))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Boxed<'de>, E> {
        Ok(Box::new(CelBool::from(value)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Boxed<'de>, E> {
        Ok(Box::new(CelInt::from(value)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Boxed<'de>, E> {
        match i64::try_from(value) {
            Ok(value) => Ok(Box::new(CelInt::from(value))),
            Err(_) => Ok(Box::new(CelUInt::from(value))),
        }
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Boxed<'de>, E> {
        Ok(Box::new(CelDouble::from(value)))
    }

    fn visit_borrowed_str<E: de::Error>(mut self, value: &'de str) -> Result<Boxed<'de>, E> {
        self.saw_text(value.len());
        Ok(Box::new(CelString::from(value)))
    }

    fn visit_str<E: de::Error>(mut self, value: &str) -> Result<Boxed<'de>, E> {
        self.saw_text(value.len());
        Ok(Box::new(CelString::from(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Boxed<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Seed { sizes: self.sizes, reads: None })? {
            items.push(item);
        }
        self.saw_list(items.len());
        Ok(Box::new(CelList::from(items)))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Boxed<'de>, A::Error> {
        let mut entries: HashMap<CelMapKey<'de>, Boxed<'de>> = HashMap::new();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            if self.reads.is_some_and(|reads| !reads.wants(&key.0)) {
                map.next_value::<de::IgnoredAny>()?;
                continue;
            }
            self.saw_text(key.0.len());
            let value = map.next_value_seed(Seed { sizes: self.sizes, reads: None })?;
            entries.insert(CelMapKey::String(CelString::from(key.0)), value);
        }
        self.saw_list(entries.len());
        Ok(Box::new(CelMap::from(entries)))
    }
}

/// A text that borrows where it can.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);
