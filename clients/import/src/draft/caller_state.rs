//! Which inputs are state that a caller gets and sends again?
//!
//! Example: a decoder has the input `past_key_values.0.key` and the output `present.0.key`. The names of both say so.

use super::remark::GraphRemark;
use super::stages::GraphFile;
use crate::graph::{GraphHeader, GraphTensor};
use apportion_domain::tensor::PRESENT;
use std::cmp::Reverse;

/// States that one remark names; the others are counted.
const NAMED_MAX: usize = 3;

/// Words in the names of tensors that carry state from call to call.
const STATE_WORDS: [&str; 6] = ["state", "hidden", "cache", "past", "present", "memory"];
/// Whole names of such tensors: the hidden state and the cell of an LSTM.
const STATE_NAMES: [&str; 4] = ["h", "c", "hx", "cx"];

/// A state on both sides of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CarriedState<'a> {
    /// The input.
    pub before: &'a GraphTensor,
    /// The output that is its next value.
    pub after: &'a GraphTensor,
}

/// The state of a graph, in the order of its inputs.
pub(super) fn carried(header: &GraphHeader) -> Vec<CarriedState<'_>> {
    let mut states = Vec::new();
    for before in &header.inputs {
        if let Some(after) = next_value(before, &header.outputs) {
            states.push(CarriedState { before, after });
        }
    }
    states
}

/// The output that is the next value of a state. The names of both say so, and kind and number of axes are equal. Of
/// several such outputs it is the one whose name is most alike: that of `past_key_values.1.key` is `present.1.key`.
fn next_value<'a>(input: &GraphTensor, outputs: &'a [GraphTensor]) -> Option<&'a GraphTensor> {
    let has_word = |name: &str| STATE_WORDS.iter().any(|word| name.contains(word));
    let name = input.name.to_lowercase();
    // An encoder's answer is the same at each step of a decoder.
    if name.starts_with("encoder") {
        return None;
    }
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
    let rank = |t: &GraphTensor| t.shape.as_ref().map(Vec::len);
    let is_next = |output: &&GraphTensor| {
        let next = output.name.to_lowercase();
        let is_like = output.datatype == input.datatype && rank(output) == rank(input) && rank(input) > Some(1);
        let are_words = has_word(stem) && (has_word(&next) || next.starts_with(stem));
        is_like && (are_words || (STATE_NAMES.contains(&stem) && next.starts_with(stem)))
    };
    outputs.iter().filter(is_next).min_by_key(|output| Reverse(likeness(&name, &output.name.to_lowercase())))
}

/// How many letters two names have in common at their ends, then at their beginnings.
fn likeness(one: &str, other: &str) -> (usize, usize) {
    let at_end = one.chars().rev().zip(other.chars().rev()).take_while(|(a, b)| a == b).count();
    let at_start = one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    (at_end, at_start)
}

/// Why these states will not work, in one remark; none if there is no state.
pub(super) fn remark_of(file: &GraphFile, states: &[CarriedState<'_>]) -> Option<GraphRemark> {
    let first = states.first()?;
    let name = first.after.name.strip_prefix(PRESENT).unwrap_or(&first.before.name);
    let (place, are_state, rename) = match states {
        [one] => (
            format!("input {}", one.before),
            format!("this is a state that the caller gets as {:?} and sends again", one.after.name),
            "rename the two to",
        ),
        all => {
            let befores: Vec<String> = all.iter().map(|state| state.before.to_string()).collect();
            let afters: Vec<String> = all.iter().map(|state| format!("{:?}", state.after.name)).collect();
            (
                format!("inputs {}", named(&befores)),
                format!("these are states that the caller gets as {} and sends again", named(&afters)),
                "rename each with its output, the first two to",
            )
        }
    };
    let found = format!("{are_state}; an agent keeps state only under names that say so");
    let cure = format!(
        "If each query makes steps until it ends, {rename} past.{name} and present.{name}, put the rows on their \
         first axis (a Transpose in the graph), fix the other sizes, and add an output `done` (BOOL, one for each row): then the \
         task is continuous. Else let the client send it, its rows first, or export the graph so that one request holds the whole \
         sequence"
    );
    Some(GraphRemark { place: format!("{}, {place}", file.path), found, cure, works: false })
}

/// The first of a list, and how many more there are.
fn named(all: &[String]) -> String {
    let first = all.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
