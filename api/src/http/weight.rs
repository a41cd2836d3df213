//! How much memory does a JSON text take as a parsed tree?
//!
//! The answer is found without building the tree. A text of one megabyte can make a tree of eighty, so trees are bounded,
//! too.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Bytes of one value in a list or at the root. The capacity of a list grows by doubling.
const VALUE_BYTES: usize = 64;
/// Bytes of one node of an object's tree. A node holds eleven members, and is about half full at least.
const NODE_BYTES: usize = 640;
/// Fewest members of one node.
const NODE_MEMBERS: usize = 5;
/// Bytes that the allocator adds to a text.
const TEXT_BYTES: usize = 16;

/// Why a text could not be weighed.
#[derive(Debug)]
pub enum WeightError {
    /// It is no JSON, or nested deeper than `serde_json` allows.
    Syntax(serde_json::Error),
    /// Its tree would take too much memory.
    Heavy,
    /// A text in it holds U+0000, which no database column can hold.
    Nul,
}

/// About the bytes of the tree of `text`; at most `bytes_max`.
///
/// # Errors
/// If it is no JSON, too heavy, or holds U+0000.
pub fn weigh(text: &[u8], bytes_max: usize) -> Result<usize, WeightError> {
    let mut scale = Scale { bytes: 0, bytes_max, has_nul: false };
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let result = Weighed(&mut scale).deserialize(&mut deserializer).and_then(|()| deserializer.end());
    match result {
        _ if scale.bytes > scale.bytes_max => Err(WeightError::Heavy),
        _ if scale.has_nul => Err(WeightError::Nul),
        Err(error) => Err(WeightError::Syntax(error)),
        Ok(()) => Ok(scale.bytes),
    }
}

struct Scale {
    bytes: usize,
    bytes_max: usize,
    has_nul: bool,
}

impl Scale {
    fn add<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        self.bytes += bytes;
        if self.bytes > self.bytes_max { Err(E::custom("too heavy")) } else { Ok(()) }
    }

    fn text<E: Error>(&mut self, text: &str) -> Result<(), E> {
        if text.contains('\0') {
            self.has_nul = true;
            return Err(E::custom("a text with U+0000"));
        }
        self.add(text.len() + TEXT_BYTES)
    }
}

struct Weighed<'s>(&'s mut Scale);

impl<'de> DeserializeSeed<'de> for Weighed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Weighed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.0.add(VALUE_BYTES)
    }
    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.0.add(VALUE_BYTES)
    }
    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.0.add(VALUE_BYTES)
    }
    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.0.add(VALUE_BYTES)
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.add(VALUE_BYTES)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.0.add(VALUE_BYTES)?;
        self.0.text(text)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.0.add(VALUE_BYTES)?;
        while items.next_element_seed(Weighed(self.0))?.is_some() {}
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        self.0.add(VALUE_BYTES)?;
        let mut count = 0_usize;
        while members.next_key_seed(Key(self.0))?.is_some() {
            if count.is_multiple_of(NODE_MEMBERS) {
                self.0.add(NODE_BYTES)?;
            }
            count += 1;
            members.next_value_seed(Weighed(self.0))?;
        }
        Ok(())
    }
}

/// A member's name.
struct Key<'s>(&'s mut Scale);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.0.text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn small_objects_weigh_as_much_as_their_nodes() {
        let objects = |n: usize| format!("[{}]", vec![r#"{"":0}"#; n].join(","));
        let weight = weigh(objects(1_000).as_bytes(), 100 * MIB).expect("JSON");
        assert!((640_000..1_000_000).contains(&weight), "{weight}");
        assert!(matches!(weigh(objects(200_000).as_bytes(), 100 * MIB), Err(WeightError::Heavy)));
    }

    #[test]
    fn a_text_is_weighed_no_further_than_allowed() {
        // The text after the first megabyte is no JSON, and is not read.
        let text = format!("[{}!", "0,".repeat(MIB));
        assert!(matches!(weigh(text.as_bytes(), MIB), Err(WeightError::Heavy)));
    }

    #[test]
    fn depth_is_bounded() {
        assert!(weigh("[".repeat(100).as_bytes(), MIB).is_err_and(|e| matches!(e, WeightError::Syntax(e) if e.is_eof())));
        let deep = weigh("[".repeat(1_000_000).as_bytes(), 100 * MIB).expect_err("too deep");
        assert!(matches!(&deep, WeightError::Syntax(e) if e.to_string().contains("recursion limit")), "{deep:?}");
    }

    #[test]
    fn texts_with_nul_are_found_in_names_and_values() {
        for text in [r#"["a\u0000b"]"#, r#"{"a\u0000": 1}"#] {
            assert!(matches!(weigh(text.as_bytes(), MIB), Err(WeightError::Nul)), "{text}");
        }
        assert!(weigh(br#"{"a": ["b", null, true, -1, 2.5]}"#, MIB).is_ok());
    }
}
