//! How do the elements of a tensor become JSON, and back?
//!
//! Flat and nested arrays are read alike, and without a tree of values. The protocol's order is row-major, so nesting
//! adds nothing to the shape.

use super::error::{ReadError, WriteError};
use apportion_node::tensor::{Datatype, Tensor, texts};
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use std::fmt;

/// One element type: how a JSON value becomes its little-endian bytes.
trait Element {
    /// What a value should be, in words.
    const EXPECTED: &'static str;

    fn boolean(_value: bool, _out: &mut Vec<u8>) -> Option<()> {
        None
    }
    fn whole(_value: i128, _out: &mut Vec<u8>) -> Option<()> {
        None
    }
    fn real(_value: f64, _out: &mut Vec<u8>) -> Option<()> {
        None
    }
    fn text(_value: &str, _out: &mut Vec<u8>) -> Option<()> {
        None
    }
}

impl Element for bool {
    const EXPECTED: &'static str = "true or false";
    fn boolean(value: bool, out: &mut Vec<u8>) -> Option<()> {
        out.push(u8::from(value));
        Some(())
    }
}

macro_rules! whole {
    ($($type:ty: $words:literal),*) => {$(
        impl Element for $type {
            const EXPECTED: &'static str = $words;
            fn whole(value: i128, out: &mut Vec<u8>) -> Option<()> {
                out.extend_from_slice(&<$type>::try_from(value).ok()?.to_le_bytes());
                Some(())
            }
        }
    )*};
}
whole!(u8: "an integer of 8 bits, unsigned", u16: "an integer of 16 bits, unsigned", u32: "an integer of 32 bits, unsigned");
whole!(u64: "an integer of 64 bits, unsigned", i8: "an integer of 8 bits", i16: "an integer of 16 bits");
whole!(i32: "an integer of 32 bits", i64: "an integer of 64 bits");

impl Element for f32 {
    const EXPECTED: &'static str = "a number of single precision";
    fn whole(value: i128, out: &mut Vec<u8>) -> Option<()> {
        out.extend_from_slice(&(value as f32).to_le_bytes());
        Some(())
    }
    fn real(value: f64, out: &mut Vec<u8>) -> Option<()> {
        let single = value as f32;
        out.extend_from_slice(&single.to_le_bytes());
        single.is_finite().then_some(())
    }
}

impl Element for f64 {
    const EXPECTED: &'static str = "a number of double precision";
    fn whole(value: i128, out: &mut Vec<u8>) -> Option<()> {
        out.extend_from_slice(&(value as f64).to_le_bytes());
        Some(())
    }
    fn real(value: f64, out: &mut Vec<u8>) -> Option<()> {
        out.extend_from_slice(&value.to_le_bytes());
        Some(())
    }
}

impl Element for str {
    const EXPECTED: &'static str = "a string";
    fn text(value: &str, out: &mut Vec<u8>) -> Option<()> {
        out.extend_from_slice(&u32::try_from(value.len()).ok()?.to_le_bytes());
        out.extend_from_slice(value.as_bytes());
        Some(())
    }
}

/// Reads arrays of arrays of elements, however deep, into `out`; at most `max` elements.
struct Flat<'o, E: ?Sized> {
    out: &'o mut Vec<u8>,
    count: &'o mut usize,
    max: usize,
    element: std::marker::PhantomData<E>,
}

impl<E: Element + ?Sized> Flat<'_, E> {
    fn take<X: Error>(self, shown: impl fmt::Display, put: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Result<(), X> {
        *self.count += 1;
        if *self.count > self.max {
            return Err(X::custom(format_args!("more than {} elements", self.max)));
        }
        put(self.out).ok_or_else(|| X::custom(format_args!("{shown}: expected {}", E::EXPECTED)))
    }
}

impl<'de, E: Element + ?Sized> DeserializeSeed<'de> for Flat<'_, E> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, E: Element + ?Sized> Visitor<'de> for Flat<'_, E> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array whose elements are each {}", E::EXPECTED)
    }
    fn visit_bool<X: Error>(self, v: bool) -> Result<(), X> {
        self.take(v, |out| E::boolean(v, out))
    }
    fn visit_u64<X: Error>(self, v: u64) -> Result<(), X> {
        self.take(v, |out| E::whole(v.into(), out))
    }
    fn visit_i64<X: Error>(self, v: i64) -> Result<(), X> {
        self.take(v, |out| E::whole(v.into(), out))
    }
    fn visit_f64<X: Error>(self, v: f64) -> Result<(), X> {
        self.take(v, |out| E::real(v, out))
    }
    fn visit_str<X: Error>(self, v: &str) -> Result<(), X> {
        self.take(format_args!("{v:?}"), |out| E::text(v, out))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Flat { out, count, max, element } = self;
        while seq.next_element_seed(Flat::<E> { out: &mut *out, count: &mut *count, max, element })?.is_some() {}
        Ok(())
    }
}

fn flat<E: Element + ?Sized>(json: &str, max: usize) -> Result<Vec<u8>, ReadError> {
    if !json.starts_with('[') {
        return Err(ReadError::NotAnArray { found: json.chars().take(40).collect(), expected: E::EXPECTED });
    }
    let (mut out, mut count) = (Vec::new(), 0);
    let seed = Flat::<E> { out: &mut out, count: &mut count, max, element: std::marker::PhantomData };
    seed.deserialize(&mut serde_json::Deserializer::from_str(json))?;
    Ok(out)
}

/// Whether the datatype has a form in JSON. FP16 and BF16 have none: their elements travel as bytes only.
#[must_use]
pub fn in_json(datatype: Datatype) -> bool {
    !matches!(datatype, Datatype::Fp16 | Datatype::Bf16)
}

/// The little-endian bytes of a flat or nested JSON array of at most `max` elements.
///
/// # Errors
/// [`ReadError`] by cause.
pub fn read(json: &str, datatype: Datatype, max: usize) -> Result<Vec<u8>, ReadError> {
    match datatype {
        Datatype::Bool => flat::<bool>(json, max),
        Datatype::Uint8 => flat::<u8>(json, max),
        Datatype::Uint16 => flat::<u16>(json, max),
        Datatype::Uint32 => flat::<u32>(json, max),
        Datatype::Uint64 => flat::<u64>(json, max),
        Datatype::Int8 => flat::<i8>(json, max),
        Datatype::Int16 => flat::<i16>(json, max),
        Datatype::Int32 => flat::<i32>(json, max),
        Datatype::Int64 => flat::<i64>(json, max),
        Datatype::Fp32 => flat::<f32>(json, max),
        Datatype::Fp64 => flat::<f64>(json, max),
        Datatype::Bytes => flat::<str>(json, max),
        Datatype::Fp16 | Datatype::Bf16 => Err(ReadError::NoForm(datatype.name())),
    }
}

/// Appends the elements as a flat JSON array; infinite values and NaN become null.
///
/// # Errors
/// [`WriteError`] if the elements have no form in JSON: FP16, BF16, and BYTES that are not UTF-8.
pub fn write(tensor: &Tensor, out: &mut Vec<u8>) -> Result<(), WriteError> {
    macro_rules! put {
        ($type:ty) => {{
            let number = |b: &[u8]| <$type>::from_le_bytes(b.try_into().expect("chunks of its size"));
            let all: Vec<$type> = tensor.data.chunks_exact(size_of::<$type>()).map(number).collect();
            serde_json::to_writer(out, &all)
        }};
    }
    let written = match tensor.datatype {
        Datatype::Bool => serde_json::to_writer(out, &tensor.data.iter().map(|b| *b != 0).collect::<Vec<_>>()),
        Datatype::Uint8 => put!(u8),
        Datatype::Uint16 => put!(u16),
        Datatype::Uint32 => put!(u32),
        Datatype::Uint64 => put!(u64),
        Datatype::Int8 => put!(i8),
        Datatype::Int16 => put!(i16),
        Datatype::Int32 => put!(i32),
        Datatype::Int64 => put!(i64),
        Datatype::Fp32 => put!(f32),
        Datatype::Fp64 => put!(f64),
        Datatype::Bytes => {
            let all: Option<Vec<&str>> = texts(&tensor.data).map(|text| std::str::from_utf8(text?).ok()).collect();
            let all = all.ok_or_else(|| WriteError::NotUtf8(tensor.name.clone()))?;
            serde_json::to_writer(out, &all)
        }
        Datatype::Fp16 | Datatype::Bf16 => {
            return Err(WriteError::NoForm { name: tensor.name.clone(), datatype: tensor.datatype.name() });
        }
    };
    written.map_err(|source| WriteError::Json { name: tensor.name.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(json: &str, datatype: Datatype) -> String {
        read(json, datatype, 8).expect_err(json).to_string()
    }

    #[test]
    fn nesting_changes_nothing() {
        let flat = read("[1, 2.5, -3, 4]", Datatype::Fp32, 4).expect("valid");
        assert_eq!(flat, read("[[1, 2.5], [-3, [4]]]", Datatype::Fp32, 4).expect("valid"));
        assert_eq!(flat, [1.0_f32, 2.5, -3.0, 4.0].map(f32::to_le_bytes).concat());
        assert_eq!(read("[\"é\", \"\"]", Datatype::Bytes, 2).expect("valid"), [2, 0, 0, 0, 0xc3, 0xa9, 0, 0, 0, 0]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        assert!(refused("[256]", Datatype::Uint8).contains("256: expected an integer of 8 bits"));
        assert!(refused("[-1]", Datatype::Uint64).contains("unsigned"));
        assert!(refused("[1.5]", Datatype::Int32).contains("1.5"));
        assert!(refused("[1]", Datatype::Bool).contains("true or false"));
        assert!(refused("[\"a\"]", Datatype::Fp32).contains("\"a\""));
        assert!(refused("[1e300]", Datatype::Fp32).contains("single"));
        assert!(refused("[null]", Datatype::Fp64).contains("double"));
        assert!(refused("{\"a\": 1}", Datatype::Fp64).contains("an array"));
        assert!(refused("[1,2,3,4,5,6,7,8,9]", Datatype::Int8).contains("more than 8"));
        assert!(refused("[1]", Datatype::Bf16).contains("binary"));
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(refused(&deep, Datatype::Int8).contains("recursion"));
    }

    #[test]
    fn no_number_is_null_and_no_text_is_refused() {
        let tensor = |datatype, data: &[u8]| Tensor {
            name: "y".into(),
            datatype,
            shape: vec![1],
            data: bytes::Bytes::copy_from_slice(data),
        };
        let mut out = Vec::new();
        write(&tensor(Datatype::Fp32, &f32::NAN.to_le_bytes()), &mut out).expect("written");
        assert_eq!(out, b"[null]");
        let error = write(&tensor(Datatype::Bytes, &[1, 0, 0, 0, 0xff]), &mut out).expect_err("no UTF-8");
        assert!(error.to_string().contains("binary"), "{error}");
    }

    proptest! {
        #[test]
        fn elements_come_back_as_they_were(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            for datatype in Datatype::ALL.into_iter().filter(|d| in_json(*d) && *d != Datatype::Bytes) {
                let count = bytes.len() / datatype.size();
                let mut data = bytes[..count * datatype.size()].to_vec();
                if datatype == Datatype::Bool {
                    data.iter_mut().for_each(|b| *b &= 1);
                }
                let tensor = Tensor { name: "x".into(), datatype, shape: vec![count], data: data.clone().into() };
                let mut json = Vec::new();
                write(&tensor, &mut json).expect("numbers");
                let json = String::from_utf8(json).expect("UTF-8");
                if !json.contains("null") {
                    prop_assert_eq!(read(&json, datatype, count).expect("numbers"), data, "{}", json);
                }
            }
        }

        #[test]
        fn texts_come_back_as_they_were(all in proptest::collection::vec(any::<String>(), 0..8)) {
            let data = read(&serde_json::to_string(&all).expect("JSON"), Datatype::Bytes, 8).expect("texts");
            let tensor = Tensor { name: "x".into(), datatype: Datatype::Bytes, shape: vec![all.len()], data: data.into() };
            let mut json = Vec::new();
            write(&tensor, &mut json).expect("texts");
            prop_assert_eq!(serde_json::from_slice::<Vec<String>>(&json).expect("JSON"), all);
        }

        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in "[\\[\\]0-9.,eE\"a-c\\-]{0,40}") {
            for datatype in Datatype::ALL {
                let _either = read(&text, datatype, 4);
            }
        }
    }
}
