//! JSON or YAML text into one tree, refusing what neither format should carry: duplicate keys, NaN, infinities.

use crate::bad_input::{BadInput, clipped};
use apportion_domain::pipeline::escape;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_path_to_error::{Path, Segment};
use std::fmt;

/// Separates the value from what would be right inside a serde error message.
const SPLIT: char = '\u{1}';

/// Parses text: by the file's extension if it says, else as JSON if it starts like JSON, else as YAML.
///
/// # Errors
/// Syntax, with line and column; duplicate keys and numbers that are not finite, with their pointer.
pub fn parse_tree(file: &str, text: &str) -> Result<Value, BadInput> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(BadInput::one(file, "", "an empty file", "JSON or YAML"));
    }
    if is_json(file, text) { parse_json(file, text) } else { parse_yaml(file, text) }
}

fn is_json(file: &str, text: &str) -> bool {
    let extension = file.rsplit_once('.').map(|(_, e)| e.to_ascii_lowercase());
    match extension.as_deref() {
        Some("json") => true,
        Some("yaml" | "yml") => false,
        _ => text.trim_start().starts_with(['{', '[']),
    }
}

fn parse_json(file: &str, text: &str) -> Result<Value, BadInput> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut deserializer, &mut track);
    let value = Tree.deserialize(tracked).map_err(|e| {
        if e.is_data() {
            refused(file, &pointer(&track.path()), &e.to_string())
        } else {
            BadInput::one(file, place(e.line(), e.column()), clipped(&e.to_string()), "JSON")
        }
    })?;
    deserializer
        .end()
        .map_err(|e| BadInput::one(file, place(e.line(), e.column()), "more text after the end", "one JSON document"))?;
    Ok(value)
}

fn parse_yaml(file: &str, text: &str) -> Result<Value, BadInput> {
    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_yaml_ng::Deserializer::from_str(text);
    let tracked = serde_path_to_error::Deserializer::new(deserializer, &mut track);
    Tree.deserialize(tracked).map_err(|e| {
        let text = e.to_string();
        if text.contains(SPLIT) {
            return refused(file, &pointer(&track.path()), &text);
        }
        let at = e.location().map_or_else(String::new, |l| place(l.line(), l.column()));
        BadInput::one(file, at, clipped(&text), "YAML")
    })
}

fn place(line: usize, column: usize) -> String {
    format!("line {line} column {column}")
}

/// The refusal that a visitor of this module raised, out of serde's message. A wrapper may have put a location behind it
/// and a path before it; both are cut off.
fn refused(file: &str, at: &str, message: &str) -> BadInput {
    match message.split(SPLIT).collect::<Vec<_>>().as_slice() {
        [_, value, expected, ..] => BadInput::one(file, at, value, *expected),
        _ => BadInput::one(file, at, clipped(message), "a value of the right type"),
    }
}

fn refusal<E: Error>(value: impl fmt::Display, expected: &str) -> E {
    E::custom(format!("{SPLIT}{value}{SPLIT}{expected}{SPLIT}"))
}

/// A serde path as a JSON pointer.
pub(crate) fn pointer(path: &Path) -> String {
    let token = |s: &Segment| match s {
        Segment::Seq { index } => format!("/{index}"),
        Segment::Map { key } => format!("/{}", escape(key)),
        Segment::Enum { variant } => format!("/{}", escape(variant)),
        Segment::Unknown => String::new(),
    };
    path.iter().map(token).collect()
}

struct Tree;

impl<'de> DeserializeSeed<'de> for Tree {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E: Error>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }
    fn visit_i64<E: Error>(self, v: i64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }
    fn visit_u64<E: Error>(self, v: u64) -> Result<Value, E> {
        Ok(Value::Number(v.into()))
    }
    fn visit_f64<E: Error>(self, v: f64) -> Result<Value, E> {
        Number::from_f64(v).map(Value::Number).ok_or_else(|| refusal(v, "a finite number"))
    }
    fn visit_str<E: Error>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }
    fn visit_string<E: Error>(self, v: String) -> Result<Value, E> {
        Ok(Value::String(v))
    }
    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        d.deserialize_any(Tree)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Tree)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut keys = Map::new();
        while let Some(key) = map.next_key_seed(KeyText)? {
            if keys.contains_key(&key) {
                return Err(refusal(format!("the key {key:?} twice"), "each key once"));
            }
            let value = map.next_value_seed(Tree)?;
            keys.insert(key, value);
        }
        Ok(Value::Object(keys))
    }
}

/// A key: text, or in YAML a number or a boolean, which becomes its text.
struct KeyText;

impl<'de> DeserializeSeed<'de> for KeyText {
    type Value = String;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for KeyText {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E: Error>(self, v: &str) -> Result<String, E> {
        Ok(v.to_owned())
    }
    fn visit_u64<E: Error>(self, v: u64) -> Result<String, E> {
        Ok(v.to_string())
    }
    fn visit_i64<E: Error>(self, v: i64) -> Result<String, E> {
        Ok(v.to_string())
    }
    fn visit_f64<E: Error>(self, v: f64) -> Result<String, E> {
        Ok(v.to_string())
    }
    fn visit_bool<E: Error>(self, v: bool) -> Result<String, E> {
        Ok(v.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_of(file: &str, text: &str) -> String {
        parse_tree(file, text).expect_err("refused").to_string()
    }

    #[test]
    fn json_and_yaml_make_the_same_tree() {
        let json = parse_tree("x", r#"{"a": [1, 2.5, null, true], "b": {"0": "t"}}"#).expect("json");
        let yaml = parse_tree("x.yaml", "a: [1, 2.5, null, true]\nb: {0: t}\n").expect("yaml");
        assert_eq!(json, yaml);
    }

    #[test]
    fn what_no_format_should_carry_is_refused_at_its_place() {
        assert_eq!(refusal_of("f.yaml", "a:\n - {b: .nan}\n"), "f.yaml: /a/0/b: NaN: expected a finite number");
        assert_eq!(refusal_of("f.yml", "a: -.inf"), "f.yml: /a: -inf: expected a finite number");
        assert!(refusal_of("f.json", r#"{"a": {"b": 1, "b": 2}}"#).contains("the key \"b\" twice: expected each key once"));
        assert!(refusal_of("f.json", "{\"a\": \n NaN}").starts_with("f.json: line 2 column"));
        assert!(refusal_of("f.json", "{} x").contains("one JSON document"));
        assert!(refusal_of("f.yaml", "a: [1").contains("expected YAML"));
        assert_eq!(refusal_of("f.json", " \n"), "f.json: an empty file: expected JSON or YAML");
    }
}
