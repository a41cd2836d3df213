//! How is a member read that must be an object?
//!
//! Example: limits `{"file_bytes": 5, "trace_rows": null}`. The derived reader of a structure also takes an array of its
//! members, `[5, null]`, which the description of the interface does not allow.

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

/// A value that is read from an object only.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct FromObject<T>(T);

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for FromObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

/// Reads a structure from an object. For `#[serde(deserialize_with)]`.
///
/// # Errors
/// If the value is no object, or if the structure cannot be read from it.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    FromObject::deserialize(deserializer).map(|FromObject(value)| value)
}

/// As [`object`], or null.
///
/// # Errors
/// As [`object`].
pub fn object_or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::<FromObject<T>>::deserialize(deserializer).map(|of| of.map(|FromObject(value)| value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    struct Limits {
        bytes: Option<u64>,
        rows: Option<u64>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Document {
        #[serde(default, deserialize_with = "object")]
        limits: Limits,
        #[serde(default, deserialize_with = "object_or_null")]
        used: Option<Limits>,
    }

    #[test]
    fn a_structure_is_an_object() {
        let read = |text: &str| serde_json::from_str::<Document>(text).map_err(|e| e.to_string());
        let limits = |bytes| Limits { bytes, rows: None };
        assert_eq!(read("{}"), Ok(Document { limits: limits(None), used: None }));
        let both = r#"{"limits": {"bytes": 5}, "used": {"bytes": 4, "rows": null}}"#;
        assert_eq!(read(both), Ok(Document { limits: limits(Some(5)), used: Some(limits(Some(4))) }));
        assert_eq!(read(r#"{"used": null}"#), Ok(Document { limits: limits(None), used: None }));
        for wrong in [r#"{"limits": [5, null]}"#, r#"{"limits": null}"#, r#"{"used": [5, 4]}"#, r#"{"used": 5}"#] {
            let refused = read(wrong).expect_err("no object");
            assert!(refused.contains("expected an object"), "{wrong}: {refused}");
        }
        assert!(read(r#"{"limits": {"bytes": -1}}"#).is_err());
    }
}
