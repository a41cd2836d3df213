//! How is a NumPy array file read? Formats 1.0 to 3.0 with plain numbers or texts, in C order, little-endian.
//!
//! The crate `npyz` is not used. It allocates the header's claimed length, up to 4 GiB, and multiplies the shape unchecked.

use apportion_executor::tensor::{Datatype, Tensor};
use bytes::Bytes;
use std::io::Read;
use std::path::Path;

/// Largest array file that is read.
pub const NPY_BYTES_MAX: u64 = 1 << 30;

/// Why an array cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NpyError {
    /// The file cannot be read.
    #[error("it cannot be read")]
    Io(#[from] std::io::Error),
    /// It is longer than [`NPY_BYTES_MAX`].
    #[error("it has more than {NPY_BYTES_MAX} bytes")]
    TooLong,
    /// It is not an array file, or a broken one.
    #[error("it is not a NumPy array file: {0}")]
    Malformed(String),
    /// It is an array of a kind that is not read.
    #[error("{0}")]
    Unsupported(String),
}

/// Reads an array as a tensor called `name`.
///
/// # Errors
/// As [`NpyError`] lists.
pub fn read_npy(name: &str, file: &Path) -> Result<Tensor, NpyError> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(NPY_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > NPY_BYTES_MAX {
        return Err(NpyError::TooLong);
    }
    parse_npy(name, Bytes::from(bytes))
}

/// Parses the bytes of an array file; the tensor shares them.
///
/// # Errors
/// [`NpyError::Malformed`] or [`NpyError::Unsupported`].
pub fn parse_npy(name: &str, bytes: Bytes) -> Result<Tensor, NpyError> {
    let malformed = |detail: &str| NpyError::Malformed(detail.to_owned());
    let rest = bytes.strip_prefix(b"\x93NUMPY").ok_or_else(|| malformed("it does not start with \\x93NUMPY"))?;
    let (length_bytes, length): (usize, usize) = match rest {
        [1, _, a, b, ..] => (2, usize::from(u16::from_le_bytes([*a, *b]))),
        [2 | 3, _, a, b, c, d, ..] => (4, u32::from_le_bytes([*a, *b, *c, *d]) as usize),
        [version, ..] if !(1..=3).contains(version) => {
            return Err(NpyError::Unsupported(format!("format version {version} is not read, only 1 to 3")));
        }
        _ => return Err(malformed("it ends in its header")),
    };
    let start = 6 + 2 + length_bytes;
    let header = bytes.get(start..start.saturating_add(length)).ok_or_else(|| malformed("it ends in its header"))?;
    let header = std::str::from_utf8(header).map_err(|_| malformed("its header is no text"))?;
    let elements = elements(field(header, "descr")?)?;
    match field(header, "fortran_order")? {
        "False" => {}
        "True" => return Err(NpyError::Unsupported("it is in Fortran order; save np.ascontiguousarray of it".to_owned())),
        other => return Err(NpyError::Malformed(format!("fortran_order is {other}"))),
    }
    let shape = shape(field(header, "shape")?)?;
    let data = bytes.slice(start + length..);
    let count = shape.iter().try_fold(1_usize, |product, &d| product.checked_mul(d));
    let datatype = elements.datatype();
    if count.and_then(|count| count.checked_mul(elements.size())) != Some(data.len()) {
        let detail = format!("{} bytes of data do not make the shape {shape:?} of {}", data.len(), datatype.name());
        return Err(NpyError::Malformed(detail));
    }
    Ok(Tensor { name: name.to_owned(), datatype, shape, data: elements.read(data)? })
}

/// How the elements of an array lie in its file.
#[derive(Clone, Copy)]
enum Elements {
    /// As in a tensor.
    Plain(Datatype),
    /// Texts of so many bytes, with zeros behind shorter ones.
    Bytes(usize),
    /// Texts of so many characters of four bytes, with zeros behind shorter ones.
    Characters(usize),
}

/// The elements that lie in a file as in a tensor, by the names that the file has for them.
const PLAIN: [(&str, Datatype); 12] = [
    ("|b1", Datatype::Bool),
    ("|u1", Datatype::Uint8),
    ("<u2", Datatype::Uint16),
    ("<u4", Datatype::Uint32),
    ("<u8", Datatype::Uint64),
    ("|i1", Datatype::Int8),
    ("<i2", Datatype::Int16),
    ("<i4", Datatype::Int32),
    ("<i8", Datatype::Int64),
    ("<f2", Datatype::Fp16),
    ("<f4", Datatype::Fp32),
    ("<f8", Datatype::Fp64),
];

/// Bytes of a character in an array file.
const CHARACTER_BYTES: usize = 4;

impl Elements {
    fn datatype(self) -> Datatype {
        match self {
            Self::Plain(datatype) => datatype,
            Self::Bytes(_) | Self::Characters(_) => Datatype::Bytes,
        }
    }

    /// Bytes of one element in the file.
    fn size(self) -> usize {
        match self {
            Self::Plain(datatype) => datatype.size(),
            Self::Bytes(count) => count,
            Self::Characters(count) => count.saturating_mul(CHARACTER_BYTES),
        }
    }

    /// The elements as a tensor has them.
    fn read(self, data: Bytes) -> Result<Bytes, NpyError> {
        match self {
            Self::Plain(_) => Ok(data),
            Self::Bytes(_) => tensor_texts(&data, self.size(), |element| Ok(without_zeros(element, &0).to_vec())),
            Self::Characters(_) => tensor_texts(&data, self.size(), |element| {
                let codes: Vec<u32> =
                    element.as_chunks::<CHARACTER_BYTES>().0.iter().map(|c| u32::from_le_bytes(*c)).collect();
                let text: Option<String> = without_zeros(&codes, &0).iter().map(|code| char::from_u32(*code)).collect();
                let malformed = || NpyError::Malformed("a text has a number that is no character".to_owned());
                text.map(String::into_bytes).ok_or_else(malformed)
            }),
        }
    }
}

/// A list without the zeros at its end.
fn without_zeros<'a, T: PartialEq>(list: &'a [T], zero: &T) -> &'a [T] {
    let end = list.iter().rposition(|member| member != zero).map_or(0, |last| last + 1);
    &list[..end]
}

/// Texts as a tensor has them: the length of each, and its bytes. `size` is that of an element of `data`.
fn tensor_texts(data: &[u8], size: usize, text: impl Fn(&[u8]) -> Result<Vec<u8>, NpyError>) -> Result<Bytes, NpyError> {
    let mut made = Vec::with_capacity(data.len());
    for element in data.chunks_exact(size) {
        let text = text(element)?;
        made.extend_from_slice(&(text.len() as u32).to_le_bytes());
        made.extend_from_slice(&text);
    }
    Ok(made.into())
}

/// The value of a key in the header, which is a Python dictionary of a string, a boolean and a tuple of integers.
fn field<'a>(header: &'a str, key: &str) -> Result<&'a str, NpyError> {
    let missing = || NpyError::Malformed(format!("its header has no {key}"));
    let after = header.split_once(&format!("'{key}':")).ok_or_else(missing)?.1.trim_start();
    let end = match after.as_bytes().first() {
        Some(b'(') => after.find(')').map(|i| i + 1),
        Some(b'\'') => after[1..].find('\'').map(|i| i + 2),
        Some(b'[') => {
            return Err(NpyError::Unsupported("its elements are records, only plain numbers are read".to_owned()));
        }
        _ => after.find([',', '}']),
    };
    Ok(after[..end.ok_or_else(missing)?].trim())
}

fn elements(descr: &str) -> Result<Elements, NpyError> {
    let descr = descr.trim_matches('\'');
    let texts = |prefix: &str| descr.strip_prefix(prefix)?.parse::<usize>().ok().filter(|count| *count > 0);
    if let Some(count) = texts("|S") {
        return Ok(Elements::Bytes(count));
    }
    if let Some(count) = texts("<U") {
        return Ok(Elements::Characters(count));
    }
    let plain = PLAIN.iter().find(|(name, _)| *name == descr).map(|(_, datatype)| Elements::Plain(*datatype));
    plain.ok_or_else(|| {
        let detail = format!("its elements are {descr}; little-endian booleans, integers, floats and texts are read");
        NpyError::Unsupported(detail)
    })
}

/// NumPy's name of a datatype; `None` if it has none.
pub(crate) fn numpy_type(datatype: Datatype) -> Option<&'static str> {
    if datatype == Datatype::Bytes {
        return Some("U");
    }
    // The first character is the order of the bytes.
    PLAIN.iter().find(|(_, known)| *known == datatype).map(|&(name, _)| &name[1..])
}

fn shape(tuple: &str) -> Result<Vec<usize>, NpyError> {
    let malformed = || NpyError::Malformed(format!("its shape is {tuple}"));
    let inner = tuple.strip_prefix('(').and_then(|t| t.strip_suffix(')')).ok_or_else(malformed)?;
    let numbers = inner.split(',').map(str::trim).filter(|n| !n.is_empty());
    let shape = numbers.map(|n| n.parse().map_err(|_| malformed())).collect::<Result<Vec<usize>, _>>()?;
    if shape.is_empty() {
        return Err(NpyError::Unsupported("it is a scalar; the first dimension counts the examples".to_owned()));
    }
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, header: &str, data: &[u8]) -> Bytes {
        let mut bytes = b"\x93NUMPY".to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((header.len() as u16).to_le_bytes()),
            _ => bytes.extend((header.len() as u32).to_le_bytes()),
        }
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        Bytes::from(bytes)
    }

    #[test]
    fn arrays_of_all_versions_are_read() {
        let header = "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 3), }          \n";
        let data = [1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 1];
        for version in 1..=3 {
            let tensor = parse_npy("x", file(version, header, &data)).expect("an array");
            assert_eq!((tensor.name.as_str(), tensor.datatype), ("x", Datatype::Uint16));
            assert_eq!((tensor.shape.as_slice(), tensor.data.as_ref()), ([2, 3].as_slice(), data.as_slice()));
        }
        let flat = parse_npy("x", file(1, "{'shape': (3,), 'fortran_order': False, 'descr': '|b1'}", &[0, 1, 1]));
        assert_eq!(flat.expect("any order of keys").shape, [3]);
    }

    #[test]
    fn texts_are_read_in_both_forms() {
        let header = |descr: &str, shape: &str| format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}");
        let wide: Vec<u8> = "é\0\0ab\0\0\0\0".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
        let cases = [("<U3", wide.as_slice(), ["é", "ab", ""]), ("|S3", b"x\0yab\0\0\0\0".as_slice(), ["x\0y", "ab", ""])];
        for (descr, data, expected) in cases {
            let tensor = parse_npy("t", file(1, &header(descr, "(3,)"), data)).expect("an array");
            assert_eq!((tensor.datatype, tensor.shape.as_slice()), (Datatype::Bytes, [3].as_slice()));
            let read: Vec<&[u8]> = apportion_executor::tensor::texts(&tensor.data).flatten().collect();
            assert_eq!(read, expected.map(str::as_bytes), "{descr}");
        }
        let refused = |descr: &str, shape: &str, data: &[u8]| {
            parse_npy("t", file(1, &header(descr, shape), data)).expect_err("refused").to_string()
        };
        assert!(refused("<U1", "(1,)", &0x0011_0000_u32.to_le_bytes()).contains("no character"));
        assert!(refused("<U0", "(9,)", &[]).contains("its elements are <U0"), "no text has room");
        assert!(refused(">U1", "(1,)", &[0; 4]).contains("its elements are >U1"));
        assert!(refused("|O", "(1,)", &[0; 8]).contains("its elements are |O"));
        assert!(refused("<U99999999999999999999", "(1,)", &[0; 4]).contains("its elements are"));
        assert!(refused("<U4611686018427387904", "(1,)", &[0; 4]).contains("do not make the shape"));
    }

    #[test]
    fn other_arrays_are_refused_with_the_reason() {
        let with = |descr: &str, order: &str, shape: &str| {
            file(1, &format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}"), &[0; 8])
        };
        let cases = [
            (Bytes::from_static(b"PK\x03\x04"), "does not start"),
            (Bytes::from_static(b"\x93NUMPY\x01\x00\x50"), "ends in its header"),
            (Bytes::from_static(b"\x93NUMPY\x01\x00\x50\x00{'descr'"), "ends in its header"),
            (Bytes::from_static(b"\x93NUMPY\x09\x00\x50\x00{"), "version 9"),
            (file(1, "{'descr': '|u1', 'fortran_order': False}", &[]), "no shape"),
            (with("'>f4'", "False", "(2,)"), ">f4"),
            (with("[('a', '<f4')]", "False", "(2,)"), "records"),
            (with("'<f4'", "True", "(2,)"), "Fortran"),
            (with("'<f4'", "False", "(-2,)"), "(-2,)"),
            (with("'<f4'", "False", "()"), "scalar"),
            (with("'<f4'", "False", "(3,)"), "8 bytes of data do not make the shape [3] of FP32"),
            (with("'<f4'", "False", "(4611686018427387904, 4)"), "do not make the shape"),
        ];
        for (bytes, said) in cases {
            let error = parse_npy("x", bytes).expect_err(said).to_string();
            assert!(error.contains(said), "{error} should say {said:?}");
        }
    }
}
