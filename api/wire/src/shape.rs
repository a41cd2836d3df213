//! What keys and types a file may have, as tables. A tree is walked along its table before it is deserialised, so that
//! everything that is wrong is found at once, each with its pointer, its value and the nearest known key.

use crate::bad_input::{BadInput, near, near_named, shown};
use crate::tree::pointer;
use apportion_domain::Invalid;
use apportion_domain::pipeline::escape;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The form of one value.
pub(crate) enum Shape {
    /// Anything at all.
    Any,
    /// Text.
    Text,
    /// `true` or `false`.
    Flag,
    /// A number.
    Number,
    /// A whole number from 0 to `u32::MAX`.
    Count,
    /// A whole number from 0 to `u64::MAX`.
    Large,
    /// A whole number, negative ones included.
    Integer,
    /// One of these words, or of the further ones.
    Word(&'static [&'static str], &'static [&'static str]),
    /// That, or null.
    OrNull(&'static Shape),
    /// A list of that.
    List(&'static Shape),
    /// An object whose keys are names chosen by the user.
    Table(&'static Shape),
    /// An object whose keys are whole numbers and whose values are numbers.
    Distribution,
    /// An object with these keys and no others.
    Record(&'static [Key]),
}

/// One key of a record.
pub(crate) struct Key {
    name: &'static str,
    shape: &'static Shape,
    required: bool,
}

/// A key that must be there.
pub(crate) const fn required(name: &'static str, shape: &'static Shape) -> Key {
    Key { name, shape, required: true }
}

/// A key that may be absent.
pub(crate) const fn optional(name: &'static str, shape: &'static Shape) -> Key {
    Key { name, shape, required: false }
}

/// Checks a tree against its shape, then reads it.
pub(crate) fn read<T: DeserializeOwned>(file: &str, tree: Value, shape: &Shape) -> Result<T, BadInput> {
    let mut problems = Vec::new();
    walk(&tree, shape, "", &mut problems);
    if !problems.is_empty() {
        return Err(BadInput { file: file.to_owned(), problems });
    }
    serde_path_to_error::deserialize(tree).map_err(|e| {
        let at = pointer(e.path());
        BadInput::one(file, at, e.into_inner(), "a value of the right type")
    })
}

fn walk(value: &Value, shape: &Shape, at: &str, problems: &mut Vec<Invalid>) {
    match (shape, value) {
        (Shape::Any, _)
        | (Shape::Text, Value::String(_))
        | (Shape::Flag, Value::Bool(_))
        | (Shape::Number, Value::Number(_))
        | (Shape::OrNull(_), Value::Null) => {}
        (Shape::Count, v) if v.as_u64().is_some_and(|n| u32::try_from(n).is_ok()) => {}
        (Shape::Large, v) if v.is_u64() => {}
        (Shape::Integer, v) if v.is_i64() => {}
        (Shape::Word(words, further), Value::String(word)) => {
            let known = words.iter().chain(*further).copied();
            if !known.clone().any(|k| k == word) {
                problems.push(Invalid::new(at, shown(value), near(word, known)));
            }
        }
        (Shape::OrNull(inner), v) => walk(v, inner, at, problems),
        (Shape::List(inner), Value::Array(items)) => {
            for (i, item) in items.iter().enumerate() {
                walk(item, inner, &format!("{at}/{i}"), problems);
            }
        }
        (Shape::Table(inner), Value::Object(entries)) => {
            for (key, item) in entries {
                walk(item, inner, &format!("{at}/{}", escape(key)), problems);
            }
        }
        (Shape::Distribution, Value::Object(entries)) => walk_distribution(entries, at, problems),
        (Shape::Record(keys), Value::Object(entries)) => walk_record(entries, keys, at, problems),
        (shape, v) => problems.push(Invalid::new(at, shown(v), described(shape))),
    }
}

fn walk_record(entries: &Map<String, Value>, keys: &[Key], at: &str, problems: &mut Vec<Invalid>) {
    for (name, value) in entries {
        let place = format!("{at}/{}", escape(name));
        match keys.iter().find(|k| k.name == name) {
            Some(key) => walk(value, key.shape, &place, problems),
            None => {
                let expected = near_named("key", name, keys.iter().map(|k| k.name));
                problems.push(Invalid::new(place, format!("unknown key {name:?}"), expected));
            }
        }
    }
    for key in keys.iter().filter(|k| k.required && !entries.contains_key(k.name)) {
        problems.push(Invalid::new(format!("{at}/{}", key.name), "missing", described(key.shape)));
    }
}

fn walk_distribution(entries: &Map<String, Value>, at: &str, problems: &mut Vec<Invalid>) {
    for (key, item) in entries {
        let place = format!("{at}/{}", escape(key));
        if key.parse::<u32>().ok().is_none_or(|n| n.to_string() != *key) {
            problems.push(Invalid::new(&place, format!("{key:?}"), "a whole number of at least 0 as key"));
        }
        walk(item, &Shape::Number, &place, problems);
    }
}

fn described(shape: &Shape) -> String {
    match shape {
        Shape::Any => "a value".to_owned(),
        Shape::Text => "text".to_owned(),
        Shape::Flag => "true or false".to_owned(),
        Shape::Number => "a number".to_owned(),
        Shape::Count => "a whole number from 0 to 4294967295".to_owned(),
        Shape::Large => "a whole number of at least 0".to_owned(),
        Shape::Integer => "a whole number".to_owned(),
        Shape::Word(words, _) => near("", words.iter().copied()),
        Shape::OrNull(inner) => format!("{}, or null", described(inner)),
        Shape::List(_) => "a list".to_owned(),
        Shape::Table(_) => "an object".to_owned(),
        Shape::Distribution => "an object of probabilities by count".to_owned(),
        Shape::Record(keys) => {
            let names: Vec<_> = keys.iter().filter(|k| k.required).map(|k| k.name).collect();
            if names.is_empty() { "an object".to_owned() } else { format!("an object with {}", names.join(", ")) }
        }
    }
}
