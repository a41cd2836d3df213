//! Small ONNX files, written byte by byte: an encoder and a decoder with state.
//!
//! ONNX's format is protobuf. A message is its fields one after the other, so two messages in a row are one.

/// Element types of ONNX's TensorProto.
const FLOAT: u8 = 1;
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
fn node(inputs: &[&str], output: &str, operator: &str) -> Vec<u8> {
    let inputs: Vec<u8> = inputs.iter().flat_map(|input| field(1, input.as_bytes())).collect();
    field(1, &[inputs, field(2, output.as_bytes()), field(4, operator.as_bytes())].concat())
}

/// GraphProto.initializer: a constant of ones.
fn ones(name: &str, shape: &[u8]) -> Vec<u8> {
    let dimensions: Vec<u8> = shape.iter().flat_map(|size| whole(1, usize::from(*size))).collect();
    let data = 1.0_f32.to_le_bytes().repeat(shape.iter().map(|size| usize::from(*size)).product());
    field(5, &[dimensions, whole(2, usize::from(FLOAT)), field(8, name.as_bytes()), field(9, &data)].concat())
}

const INPUT: u8 = 11;
const OUTPUT: u8 = 12;

/// GraphProto.input or output: any number of rows of `size` elements.
fn tensor(number: u8, name: &str, elements: u8, size: u8) -> Vec<u8> {
    let dimensions = [field(1, &field(2, b"rows")), field(1, &whole(1, usize::from(size)))].concat();
    let of = field(1, &[whole(1, usize::from(elements)), field(2, &dimensions)].concat());
    field(number, &[field(1, name.as_bytes()), field(2, &of)].concat())
}

/// ModelProto with this graph: IR version 8, operators of version 13.
fn model(graph: &[Vec<u8>]) -> Vec<u8> {
    let operators = field(8, &[field(1, b""), whole(2, 13)].concat());
    [whole(1, 8), field(7, &[graph.concat(), field(2, b"graph")].concat()), operators].concat()
}

/// An encoder: `length` of a `question` is the sum of its numbers.
#[must_use]
pub fn encoder() -> Vec<u8> {
    model(&[
        node(&["question", "weights"], "length", "MatMul"),
        ones("weights", &[QUESTION_LEN, 1]),
        tensor(INPUT, "question", FLOAT, QUESTION_LEN),
        tensor(OUTPUT, "length", FLOAT, 1),
    ])
}

/// A decoder: its `answer` is the number of its steps, and it is done when that is `length`.
#[must_use]
pub fn decoder() -> Vec<u8> {
    model(&[
        node(&["past.steps", "one"], "present.steps", "Add"),
        node(&["present.steps"], "answer", "Identity"),
        node(&["present.steps", "length"], "done", "Equal"),
        ones("one", &[1]),
        tensor(INPUT, "length", FLOAT, 1),
        tensor(INPUT, "past.steps", FLOAT, 1),
        tensor(OUTPUT, "answer", FLOAT, 1),
        tensor(OUTPUT, "present.steps", FLOAT, 1),
        tensor(OUTPUT, "done", BOOL, 1),
    ])
}
