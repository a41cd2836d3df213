//! Small ONNX files, written byte by byte: the encoders, retrievers and decoders of the scenario tests.
//!
//! ONNX's format is protobuf. A message is its fields one after the other, so two messages in a row are one.

/// Element types of ONNX's TensorProto.
pub(crate) const FLOAT: u8 = 1;
pub(crate) const INT64: u8 = 7;
const BOOL: u8 = 9;

/// Numbers of a question.
pub const QUESTION_LEN: u8 = 4;

/// A whole number of protobuf.
fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A field of a protobuf message: its number, and its value with the length before it.
#[must_use]
pub fn field(number: u8, value: &[u8]) -> Vec<u8> {
    [vec![number << 3 | 2], varint(value.len()), value.to_vec()].concat()
}

/// A field that is a whole number.
#[must_use]
pub fn whole(number: u8, value: usize) -> Vec<u8> {
    [vec![number << 3], varint(value)].concat()
}

/// GraphProto.node: an operator with one output.
pub(crate) fn node(inputs: &[&str], output: &str, operator: &str) -> Vec<u8> {
    node_with(inputs, &[output], operator, &[])
}

/// The same with several outputs, and with attributes that are whole numbers.
pub(crate) fn node_with(inputs: &[&str], outputs: &[&str], operator: &str, attributes: &[(&str, usize)]) -> Vec<u8> {
    /// AttributeProto.type of a whole number.
    const INT: usize = 2;
    let named = |number: u8, names: &[&str]| names.iter().flat_map(|n| field(number, n.as_bytes())).collect::<Vec<u8>>();
    let attribute = |(name, value): &(&str, usize)| {
        let kind = [varint(20 << 3), varint(INT)].concat();
        field(5, &[field(1, name.as_bytes()), whole(3, *value), kind].concat())
    };
    let attributes: Vec<u8> = attributes.iter().flat_map(attribute).collect();
    field(1, &[named(1, inputs), named(2, outputs), field(4, operator.as_bytes()), attributes].concat())
}

/// GraphProto.initializer: a constant with these elements, little-endian.
fn constant(name: &str, elements: u8, shape: &[usize], data: &[u8]) -> Vec<u8> {
    let dimensions: Vec<u8> = shape.iter().flat_map(|size| whole(1, *size)).collect();
    field(5, &[dimensions, whole(2, usize::from(elements)), field(8, name.as_bytes()), field(9, data)].concat())
}

/// A constant of numbers.
pub(crate) fn floats(name: &str, shape: &[usize], values: &[f32]) -> Vec<u8> {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    constant(name, FLOAT, shape, &data)
}

/// A constant of whole numbers with one axis.
pub(crate) fn wholes(name: &str, values: &[i64]) -> Vec<u8> {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    constant(name, INT64, &[values.len()], &data)
}

pub(crate) const INPUT: u8 = 11;
pub(crate) const OUTPUT: u8 = 12;

/// GraphProto.input or output: any number of rows of `size` elements.
pub(crate) fn tensor(number: u8, name: &str, elements: u8, size: u8) -> Vec<u8> {
    let dimensions = [field(1, &field(2, b"rows")), field(1, &whole(1, usize::from(size)))].concat();
    let of = field(1, &[whole(1, usize::from(elements)), field(2, &dimensions)].concat());
    field(number, &[field(1, name.as_bytes()), field(2, &of)].concat())
}

/// ModelProto with this graph: IR version 8, operators of version 13.
pub(crate) fn model(graph: &[Vec<u8>]) -> Vec<u8> {
    let operators = field(8, &[field(1, b""), whole(2, 13)].concat());
    [whole(1, 8), field(7, &[graph.concat(), field(2, b"graph")].concat()), operators].concat()
}

/// An encoder: `length` of a `question` is the sum of its numbers.
#[must_use]
pub fn encoder() -> Vec<u8> {
    model(&[
        node(&["question", "weights"], "length", "MatMul"),
        floats("weights", &[usize::from(QUESTION_LEN), 1], &[1.0; QUESTION_LEN as usize]),
        tensor(INPUT, "question", FLOAT, QUESTION_LEN),
        tensor(OUTPUT, "length", FLOAT, 1),
    ])
}

/// The parts of each decoder: it counts its steps, and is done when they are `length`.
fn counter() -> Vec<Vec<u8>> {
    vec![
        node(&["past.steps", "one"], "present.steps", "Add"),
        node(&["present.steps", "length"], "done", "Equal"),
        floats("one", &[1], &[1.0]),
        tensor(INPUT, "length", FLOAT, 1),
        tensor(INPUT, "past.steps", FLOAT, 1),
        tensor(OUTPUT, "answer", FLOAT, 1),
        tensor(OUTPUT, "present.steps", FLOAT, 1),
        tensor(OUTPUT, "done", BOOL, 1),
    ]
}

/// A decoder: its `answer` is the number of its steps, and it is done when that is `length`.
#[must_use]
pub fn decoder() -> Vec<u8> {
    model(&[counter(), vec![node(&["present.steps"], "answer", "Identity")]].concat())
}

/// Rows and columns of the matrix of [`slow_decoder`]: a power of two, so that no answer is rounded.
const SLOW_ROWS: usize = 2_048;

/// The same decoder with much to do in each step: it multiplies with a large matrix, which takes milliseconds. All numbers
/// of the matrix are equal, so the file is small.
#[must_use]
pub fn slow_decoder() -> Vec<u8> {
    let part = 1.0 / SLOW_ROWS as f32;
    let square = [SLOW_ROWS as i64; 2];
    let own = vec![
        node(&["part", "square"], "matrix", "Expand"),
        node(&["present.steps", "row"], "wide", "MatMul"),
        node(&["wide", "matrix"], "mixed", "MatMul"),
        node(&["mixed", "column"], "answer", "MatMul"),
        floats("part", &[1], &[part]),
        wholes("square", &square),
        floats("row", &[1, SLOW_ROWS], &[1.0; SLOW_ROWS]),
        floats("column", &[SLOW_ROWS, 1], &[part; SLOW_ROWS]),
    ];
    model(&[counter(), own].concat())
}
