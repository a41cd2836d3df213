//! When does a JSON body have too many inputs or parameters?
//!
//! A list is refused before memory is taken for its elements. Else a body with two bytes for each element would need
//! thirty.

use super::inference::Parameter;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Most parameters of a request, an input or an output.
pub const PARAMETERS_MAX: usize = 256;

/// A list of at most `MAX`.
pub struct BoundedList<T, const MAX: usize>(pub Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for BoundedList<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Read<T, MAX> {
            type Value = BoundedList<T, MAX>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MAX}")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(element) = seq.next_element()? {
                    if all.len() == MAX {
                        return Err(A::Error::custom(format_args!("more than {MAX} elements")));
                    }
                    all.push(element);
                }
                Ok(BoundedList(all))
            }
        }
        from.deserialize_seq(Read(PhantomData))
    }
}

/// Parameters by name.
pub struct Parameters(pub Vec<(String, Parameter)>);

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Parameters;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {PARAMETERS_MAX} parameters")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parameters, A::Error> {
                let mut all = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if all.len() == PARAMETERS_MAX {
                        return Err(A::Error::custom(format_args!("more than {PARAMETERS_MAX} parameters")));
                    }
                    let value = map.next_value().map_err(|e| A::Error::custom(format_args!("parameter {name}: {e}")))?;
                    all.push((name, value));
                }
                Ok(Parameters(all))
            }
        }
        from.deserialize_map(Read)
    }
}

impl<'de> Deserialize<'de> for Parameter {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Parameter;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a boolean, a number or a string")
            }
            fn visit_bool<E: Error>(self, v: bool) -> Result<Parameter, E> {
                Ok(Parameter::Bool(v))
            }
            fn visit_i64<E: Error>(self, v: i64) -> Result<Parameter, E> {
                Ok(Parameter::Whole(v.into()))
            }
            fn visit_u64<E: Error>(self, v: u64) -> Result<Parameter, E> {
                Ok(Parameter::Whole(v.into()))
            }
            fn visit_f64<E: Error>(self, v: f64) -> Result<Parameter, E> {
                Ok(Parameter::Real(v))
            }
            fn visit_str<E: Error>(self, v: &str) -> Result<Parameter, E> {
                Ok(Parameter::Text(v.to_owned()))
            }
        }
        from.deserialize_any(Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_end_at_their_bound() {
        let read = |json: &str| serde_json::from_str::<BoundedList<i64, 3>>(json).map(|few| few.0);
        assert_eq!(read("[1, 2, 3]").expect("few"), [1, 2, 3]);
        assert!(read("[1, 2, 3, 4]").expect_err("one more").to_string().contains("more than 3 elements"));
    }

    #[test]
    fn parameters_are_few_and_plain() {
        let read = |json: &str| serde_json::from_str::<Parameters>(json).map(|all| all.0);
        let plain = read(r#"{"a": true, "b": -1, "c": 1.5, "d": "x"}"#).expect("plain");
        assert_eq!(plain[1], ("b".into(), Parameter::Whole(-1)));
        let nested = read(r#"{"a": [0, 0]}"#).expect_err("a list").to_string();
        assert!(nested.contains("parameter a") && nested.contains("a boolean, a number or a string"), "{nested}");
        let many: Vec<String> = (0..=PARAMETERS_MAX).map(|n| format!("\"{n}\": 0")).collect();
        assert!(read(&format!("{{{}}}", many.join(","))).expect_err("one more").to_string().contains("more than 256"));
    }
}
