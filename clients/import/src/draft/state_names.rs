//! Which tensors of a graph are state that is kept between two steps of a query?
//!
//! Example: a decoder has the inputs `token` and `past.cache`, and the outputs `logits`, `present.cache` and `done`. Its
//! queries step until `done`, so its task is `continuous`: it takes `token` and makes `logits`.

use crate::graph::{GraphHeader, GraphTensor};
use apportion_domain::tensor::{DONE, PAST, PRESENT};

/// Whether the names of a graph's inputs say that it makes steps.
pub(super) fn makes_steps(header: &GraphHeader) -> bool {
    header.inputs.iter().any(is_state_input)
}

/// Whether an input is the state before a step.
pub(super) fn is_state_input(input: &GraphTensor) -> bool {
    input.name.starts_with(PAST)
}

/// What a query brings to the steps.
pub(super) fn inputs_of_queries(header: &GraphHeader) -> Vec<GraphTensor> {
    header.inputs.iter().filter(|input| !is_state_input(input)).cloned().collect()
}

/// What a query has when its last step is done.
pub(super) fn outputs_of_queries(header: &GraphHeader) -> Vec<GraphTensor> {
    let is_answer = |output: &&GraphTensor| !output.name.starts_with(PRESENT) && output.name != DONE;
    header.outputs.iter().filter(is_answer).cloned().collect()
}
