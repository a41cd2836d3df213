//! Four small ONNX models of a pipeline that retrieves before it answers: encoder, retriever, re-ranker and decoder.
//!
//! Example: the vector of a question is nearest in direction to documents 2, 5 and 1. The re-ranker takes the one at the
//! smallest distance, document 5, and the decoder makes as many steps as that document says.
//!
//! All numbers are whole and small, so sums are exact in any order, and an answer can be compared with `==`.

pub use crate::onnx::decoder as generator;
use crate::onnx::{FLOAT, INPUT, INT64, OUTPUT, QUESTION_LEN, floats, model, node, node_with, tensor, wholes};

/// Numbers of a question, and of a vector.
pub const SIZE: usize = QUESTION_LEN as usize;
/// Documents that the retriever returns.
pub const RETRIEVED: usize = 3;
/// What the encoder multiplies a question with: no two rows of numbers are alike.
pub static ENCODING: [[f32; SIZE]; SIZE] =
    [[1.0, 3.0, 0.0, -2.0], [0.0, 1.0, 5.0, 1.0], [-1.0, 0.0, 1.0, 4.0], [2.0, -1.0, 0.0, 1.0]];
/// The vectors of the documents.
pub static DOCUMENTS: [[f32; SIZE]; 8] = [
    [9.0, 1.0, 0.0, 3.0],
    [2.0, 8.0, 1.0, -4.0],
    [0.0, 3.0, 7.0, 1.0],
    [-5.0, 2.0, 2.0, 6.0],
    [4.0, -6.0, 3.0, 1.0],
    [1.0, 1.0, 9.0, -2.0],
    [-3.0, 5.0, -1.0, 8.0],
    [6.0, 0.0, -7.0, 2.0],
];
/// How many steps the answer from each document takes.
pub static LENGTHS: [f32; 8] = [5.0, 120.0, 9.0, 300.0, 2.0, 60.0, 17.0, 210.0];

/// The encoder: the `vector` of a `question` is its product with [`ENCODING`].
#[must_use]
pub fn encoder() -> Vec<u8> {
    model(&[
        node(&["question", "encoding"], "vector", "MatMul"),
        floats("encoding", &[SIZE, SIZE], ENCODING.as_flattened()),
        tensor(INPUT, "question", FLOAT, QUESTION_LEN),
        tensor(OUTPUT, "vector", FLOAT, QUESTION_LEN),
    ])
}

/// The retriever: the numbers of the `documents` whose product with a `vector` is largest, the largest first.
#[must_use]
pub fn retriever() -> Vec<u8> {
    let columns: Vec<f32> = (0..SIZE).flat_map(|at| DOCUMENTS.iter().map(move |document| document[at])).collect();
    model(&[
        node(&["vector", "columns"], "scores", "MatMul"),
        node_with(&["scores", "count"], &["best", "documents"], "TopK", &[("axis", 1)]),
        floats("columns", &[SIZE, DOCUMENTS.len()], &columns),
        wholes("count", &[RETRIEVED as i64]),
        tensor(INPUT, "vector", FLOAT, QUESTION_LEN),
        tensor(OUTPUT, "documents", INT64, RETRIEVED as u8),
    ])
}

/// The re-ranker: the `length` of the one of the `documents` that is nearest to the `vector`.
#[must_use]
pub fn reranker() -> Vec<u8> {
    model(&[
        node(&["vectors", "documents"], "candidates", "Gather"),
        node(&["vector", "axis"], "asked", "Unsqueeze"),
        node(&["candidates", "asked"], "apart", "Sub"),
        node(&["apart", "apart"], "squares", "Mul"),
        node_with(&["squares", "last"], &["distances"], "ReduceSum", &[("keepdims", 0)]),
        node_with(&["distances"], &["place"], "ArgMin", &[("axis", 1), ("keepdims", 1)]),
        node_with(&["documents", "place"], &["nearest"], "GatherElements", &[("axis", 1)]),
        node(&["lengths", "nearest"], "length", "Gather"),
        floats("vectors", &[DOCUMENTS.len(), SIZE], DOCUMENTS.as_flattened()),
        floats("lengths", &[LENGTHS.len()], &LENGTHS),
        wholes("axis", &[1]),
        wholes("last", &[2]),
        tensor(INPUT, "documents", INT64, RETRIEVED as u8),
        tensor(INPUT, "vector", FLOAT, QUESTION_LEN),
        tensor(OUTPUT, "length", FLOAT, 1),
    ])
}
