//! What is wrong with a file's keys and values?
//!
//! A tree is compared with its record before it is deserialised. So everything that is wrong is found at once, each with
//! its pointer, its value and the nearest known key.

use crate::bad_input::{BadInput, near, near_named, shown};
use crate::record::{FileKind, Record, RecordKey, ValueShape};
use crate::tree::pointer;
use apportion_domain::Invalid;
use apportion_domain::pipeline::escape;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Checks a tree against a record, then reads it.
pub(crate) fn read<T: DeserializeOwned>(
    file: &str,
    tree: Value,
    kind: FileKind,
    record: &'static Record,
) -> Result<T, BadInput> {
    let mut check = Check { kind, problems: Vec::new() };
    check.check_value(&tree, ValueShape::Record(record), "");
    if !check.problems.is_empty() {
        return Err(BadInput { file: file.to_owned(), problems: check.problems });
    }
    serde_path_to_error::deserialize(tree).map_err(|e| {
        let at = pointer(e.path());
        BadInput::one(file, at, e.into_inner(), "a value of the right type")
    })
}

/// A check of one file, with the problems so far.
struct Check {
    kind: FileKind,
    problems: Vec<Invalid>,
}

impl Check {
    fn check_value(&mut self, value: &Value, shape: ValueShape, at: &str) {
        match (shape, value) {
            (ValueShape::Any, _)
            | (ValueShape::Text, Value::String(_))
            | (ValueShape::Flag, Value::Bool(_))
            | (ValueShape::Number, Value::Number(_)) => {}
            (ValueShape::Count, v) if v.as_u64().is_some_and(|n| u32::try_from(n).is_ok()) => {}
            (ValueShape::Large, v) if v.is_u64() => {}
            (ValueShape::Integer, v) if v.is_i64() => {}
            (ValueShape::Word { words, aliases }, Value::String(word)) => {
                let known = words.iter().chain(aliases).copied();
                if !known.clone().any(|k| k == word) {
                    self.problems.push(Invalid::new(at, shown(value), near(word, known)));
                }
            }
            (ValueShape::List(item), Value::Array(items)) => {
                for (i, value) in items.iter().enumerate() {
                    self.check_value(value, *item, &format!("{at}/{i}"));
                }
            }
            (ValueShape::Table(item), Value::Object(entries)) => {
                for (key, value) in entries {
                    self.check_value(value, *item, &format!("{at}/{}", escape(key)));
                }
            }
            (ValueShape::Distribution, Value::Object(entries)) => self.check_distribution(entries, at),
            (ValueShape::Record(record), Value::Object(entries)) => self.check_record(entries, record, at),
            (shape, v) => self.problems.push(Invalid::new(at, shown(v), self.describe(shape))),
        }
    }

    fn check_record(&mut self, entries: &Map<String, Value>, record: &Record, at: &str) {
        let kind = self.kind;
        let known = || record.keys.iter().filter(move |key| key.is_known(kind));
        for (name, value) in entries {
            let place = format!("{at}/{}", escape(name));
            match known().find(|key| key.name == name) {
                Some(key) => self.check_key(value, key, &place),
                None => {
                    let expected = near_named("key", name, known().map(|key| key.name));
                    self.problems.push(Invalid::new(place, format!("unknown key {name:?}"), expected));
                }
            }
        }
        for key in record.keys.iter().filter(|k| k.is_required(kind) && !entries.contains_key(k.name)) {
            self.problems.push(Invalid::new(format!("{at}/{}", key.name), "missing", self.describe_key(key)));
        }
    }

    /// Checks the value of a key.
    fn check_key(&mut self, value: &Value, key: &RecordKey, at: &str) {
        if !(value.is_null() && key.is_nullable(self.kind)) {
            self.check_value(value, key.shape, at);
        }
    }

    fn check_distribution(&mut self, entries: &Map<String, Value>, at: &str) {
        for (key, item) in entries {
            let place = format!("{at}/{}", escape(key));
            if key.parse::<u32>().ok().is_none_or(|n| n.to_string() != *key) {
                self.problems.push(Invalid::new(&place, format!("{key:?}"), "a whole number of at least 0 as key"));
            }
            self.check_value(item, ValueShape::Number, &place);
        }
    }

    fn describe_key(&self, key: &RecordKey) -> String {
        let value = self.describe(key.shape);
        if key.is_nullable(self.kind) { format!("{value}, or null") } else { value }
    }

    /// Describes the expected value.
    fn describe(&self, shape: ValueShape) -> String {
        match shape {
            ValueShape::Any => "a value".to_owned(),
            ValueShape::Text => "text".to_owned(),
            ValueShape::Flag => "true or false".to_owned(),
            ValueShape::Number => "a number".to_owned(),
            ValueShape::Count => "a whole number from 0 to 4294967295".to_owned(),
            ValueShape::Large => "a whole number of at least 0".to_owned(),
            ValueShape::Integer => "a whole number".to_owned(),
            ValueShape::Word { words, .. } => near("", words.iter().copied()),
            ValueShape::List(_) => "a list".to_owned(),
            ValueShape::Table(_) => "an object".to_owned(),
            ValueShape::Distribution => "an object of probabilities by count".to_owned(),
            ValueShape::Record(record) => {
                let names: Vec<_> =
                    record.keys.iter().filter(|key| key.is_required(self.kind)).map(|key| key.name).collect();
                if names.is_empty() { "an object".to_owned() } else { format!("an object with {}", names.join(", ")) }
            }
        }
    }
}
