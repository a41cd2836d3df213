//! How does JSON or YAML text become one tree? Duplicate keys, NaN, infinities and too large trees are refused.
//!
//! Size and depth are bounded before the text is parsed. Repetitions by YAML's aliases are bounded as the tree grows.

use crate::bad_input::{BadInput, clipped};
use crate::yaml_bounds::{TextPosition, too_deep};
use apportion_domain::pipeline::escape;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_path_to_error::{Path, Segment};
use serde_saphyr::with_deserializer_from_str_with_options;
use std::cell::Cell;
use std::fmt;

/// Longest text that is parsed, in bytes.
pub const TEXT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most lists and objects that are nested in each other; the file formats have eight.
pub const DEPTH_MAX: usize = 64;
/// Most values of one tree, with repetitions by aliases: some tens of bytes each.
pub const VALUES_MAX: usize = 4_000_000;
/// Most bytes of all texts and keys of one tree, with repetitions by aliases.
pub const TREE_BYTES_MAX: usize = 2 * TEXT_BYTES_MAX;

/// Separates the value from the expected value inside a serde error message. It is printable: the YAML parser escapes
/// control characters in messages.
const SPLIT: char = '\u{241f}';

/// Parses text by the file's extension. Without a known extension, text that starts like JSON is JSON, and other text is
/// YAML.
///
/// # Errors
/// A text above [`TEXT_BYTES_MAX`]; syntax and too much depth, with line and column; duplicate keys, numbers that are not
/// finite and too many values, with their pointer.
pub fn parse_tree(file: &str, text: &str) -> Result<Value, BadInput> {
    if text.len() > TEXT_BYTES_MAX {
        let found = format!("{} bytes", text.len());
        return Err(BadInput::one(file, "", found, format!("at most {TEXT_BYTES_MAX} bytes")));
    }
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
    let bounds = Bounds::default();
    let value = Tree { bounds: &bounds, depth: 0 }.deserialize(tracked).map_err(|e| {
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
    if let Some(TextPosition { line, column }) = too_deep(text, DEPTH_MAX) {
        let at = format!("line {line} column {column}");
        return Err(BadInput::one(file, at, TOO_DEEP, shallow()));
    }
    let mut track = serde_path_to_error::Track::new();
    let bounds = Bounds::default();
    let parsed = with_deserializer_from_str_with_options(text, yaml_options(), |deserializer| {
        let tracked = serde_path_to_error::Deserializer::new(deserializer, &mut track);
        Tree { bounds: &bounds, depth: 0 }.deserialize(tracked)
    });
    parsed.map_err(|e| {
        let text = e.to_string();
        if text.contains(SPLIT) {
            return refused(file, &pointer(&track.path()), &text);
        }
        let at = e.location().map_or_else(String::new, |l| place(l.line() as usize, l.column() as usize));
        match e {
            serde_saphyr::Error::MultipleDocuments { .. } => {
                BadInput::one(file, at, "a second document", "one YAML document")
            }
            _ => BadInput::one(file, at, clipped(text.split(" at line ").next().unwrap_or(&text)), "YAML"),
        }
    })
}

/// Scalars mean the same as in YAML 1.2's core schema: `yes`, `017`, `1_000` and `<<` are text. [`Tree`] judges keys that
/// repeat and numbers that are not finite, and bounds the tree; the parser's own bounds lie above.
fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 3 * VALUES_MAX,
            max_nodes: 2 * VALUES_MAX,
            max_depth: 2 * DEPTH_MAX,
            max_total_scalar_bytes: 2 * TREE_BYTES_MAX,
            max_aliases: VALUES_MAX,
            max_anchors: VALUES_MAX,
            max_merge_keys: VALUES_MAX,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 3 * VALUES_MAX },
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
        merge_keys: serde_saphyr::MergeKeyPolicy::AsOrdinary,
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        ignore_binary_tag_for_string: true,
        non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    }
}

fn place(line: usize, column: usize) -> String {
    format!("line {line} column {column}")
}

/// The refusal of a visitor of this module, from serde's message. A wrapper may add a location behind it and a path before
/// it; both are cut off.
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

/// The value in the refusal of a text that nests too deep.
const TOO_DEEP: &str = "another list or object inside";

fn shallow() -> String {
    format!("at most {DEPTH_MAX} lists and objects in each other")
}

/// The size of a tree so far.
#[derive(Default)]
struct Bounds {
    values: Cell<usize>,
    bytes: Cell<usize>,
}

impl Bounds {
    fn add<E: Error>(&self, values: usize, bytes: usize) -> Result<(), E> {
        self.values.set(self.values.get() + values);
        self.bytes.set(self.bytes.get() + bytes);
        if self.values.get() > VALUES_MAX {
            return Err(refusal(format!("value {}", self.values.get()), &format!("at most {VALUES_MAX} values")));
        }
        if self.bytes.get() > TREE_BYTES_MAX {
            let found = format!("{} bytes of text", self.bytes.get());
            return Err(refusal(found, &format!("at most {TREE_BYTES_MAX} bytes, repetitions by aliases included")));
        }
        Ok(())
    }
}

/// A part of a tree.
#[derive(Clone, Copy)]
struct Tree<'a> {
    bounds: &'a Bounds,
    /// Lists and objects around it.
    depth: usize,
}

impl Tree<'_> {
    /// The next level.
    fn inner<E: Error>(self) -> Result<Self, E> {
        match self.depth < DEPTH_MAX {
            true => Ok(Self { depth: self.depth + 1, ..self }),
            false => Err(refusal(TOO_DEEP, &shallow())),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.bounds.add::<D::Error>(1, 0)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
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
        self.bounds.add::<E>(0, v.len())?;
        Ok(Value::String(v.to_owned()))
    }
    fn visit_string<E: Error>(self, v: String) -> Result<Value, E> {
        self.bounds.add::<E>(0, v.len())?;
        Ok(Value::String(v))
    }
    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        d.deserialize_any(self)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        let inner = self.inner::<A::Error>()?;
        while let Some(item) = seq.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut keys = Map::new();
        let inner = self.inner::<A::Error>()?;
        while let Some(key) = map.next_key_seed(KeyText)? {
            if keys.contains_key(&key) {
                return Err(refusal(format!("the key {key:?} twice"), "each key once"));
            }
            self.bounds.add::<A::Error>(0, key.len())?;
            let value = map.next_value_seed(inner)?;
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
    fn deep_nesting_is_refused_in_both_formats() {
        let nested = |open: &str, close: &str, n: usize| format!("{}{}", open.repeat(n), close.repeat(n));
        for depth in [DEPTH_MAX, 20_000] {
            let is_refused = depth > DEPTH_MAX;
            for (file, text) in [
                ("f.json", nested("[", "]", depth)),
                ("f.yaml", nested("[", "]", depth)),
                ("f.yaml", nested("{a: ", "}", depth)),
                ("f.yaml", format!("{}x", "- ".repeat(depth))),
                ("f.yaml", format!("{}x", "? ".repeat(depth))),
            ] {
                match parse_tree(file, &text) {
                    Err(e) if is_refused => assert!(e.to_string().contains(&shallow()) || text.contains('?'), "{e}"),
                    Err(e) => assert!(text.contains('?'), "{file}: {e}"),
                    Ok(_) => assert!(!is_refused, "{file}, {depth} deep: {}", &text[..9]),
                }
            }
        }
        assert!(refusal_of("f.yaml", &nested("[", "]", 65)).starts_with("f.yaml: line 1 column 65: another list"));
    }

    #[test]
    fn aliases_repeat_no_more_than_a_large_text_has() {
        let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(1_000_000), vec!["*a"; 200].join(", "));
        assert!(refusal_of("f.yaml", &text).contains("repetitions by aliases included"));
        let rows = format!("a: &a [{}]\nb: [{}]\n", vec!["1"; 20_000].join(","), vec!["*a"; 1_000].join(","));
        let refused = refusal_of("f.yaml", &rows);
        assert!(refused.contains("at most 4000000 values") || refused.contains("repetition limit"), "{refused}");
        let few = parse_tree("f.yaml", "a: &a {x: 1}\nb: [*a, *a]\n").expect("few");
        assert_eq!(few["b"][1]["x"], 1);
    }

    #[test]
    fn too_long_texts_are_refused_before_parsing() {
        let text = "[".repeat(TEXT_BYTES_MAX + 1);
        assert_eq!(refusal_of("f.json", &text), "f.json: 67108865 bytes: expected at most 67108864 bytes");
    }

    #[test]
    fn yaml_scalars_follow_the_core_schema() {
        let texts = ["yes", "off", "017", "08", "1_000", "12:30", "2020-01-01", "+.5x"];
        for text in texts {
            let tree = parse_tree("f.yaml", &format!("k: {text}\n")).expect(text);
            assert_eq!(tree["k"], text);
        }
        let numbers = [("0x1F", 31.0), ("0o17", 15.0), ("+5", 5.0), ("1e3", 1000.0), (".5", 0.5), ("-0.25", -0.25)];
        for (text, number) in numbers {
            let tree = parse_tree("f.yaml", &format!("k: {text}\n")).expect(text);
            assert_eq!(tree["k"].as_f64(), Some(number), "{text}");
        }
        let keys = parse_tree("f.yaml", "{5: a, true: b, 1.5: c, <<: {d: 1}, t: ~}").expect("keys");
        assert_eq!(keys, serde_json::json!({"5": "a", "true": "b", "1.5": "c", "<<": {"d": 1}, "t": null}));
    }

    #[test]
    fn yaml_errors_name_their_line_and_column() {
        let cases = [
            ("a: 1\nb: *x\n", "f.yaml: line 2 column 4: alias references unknown anchor: expected YAML"),
            ("a: 1\n\nb: c: d\n", "f.yaml: line 3 column 5: mapping values are not allowed in this context: expected YAML"),
            ("a: 1\n---\nb: 2\n", "f.yaml: line 3 column 1: a second document: expected one YAML document"),
            ("a: 1\na: 2\n", "f.yaml: the key \"a\" twice: expected each key once"),
        ];
        for (text, expected) in cases {
            assert_eq!(refusal_of("f.yaml", text), expected);
        }
    }

    #[test]
    fn large_yaml_lists_are_read() {
        let text = format!("a: [{}]\n", vec!["1"; 600_000].join(","));
        let tree = parse_tree("f.yaml", &text).expect("far below the bounds");
        assert_eq!(tree["a"].as_array().map(Vec::len), Some(600_000));
    }

    #[test]
    fn duplicate_keys_and_nan_are_refused_at_their_place() {
        assert_eq!(refusal_of("f.yaml", "a:\n - {b: .nan}\n"), "f.yaml: /a/0/b: NaN: expected a finite number");
        assert_eq!(refusal_of("f.yml", "a: -.inf"), "f.yml: /a: -inf: expected a finite number");
        assert!(refusal_of("f.json", r#"{"a": {"b": 1, "b": 2}}"#).contains("the key \"b\" twice: expected each key once"));
        assert!(refusal_of("f.json", "{\"a\": \n NaN}").starts_with("f.json: line 2 column"));
        assert!(refusal_of("f.json", "{} x").contains("one JSON document"));
        assert!(refusal_of("f.yaml", "a: [1").contains("expected YAML"));
        assert_eq!(refusal_of("f.json", " \n"), "f.json: an empty file: expected JSON or YAML");
    }
}
