//! Which outputs feed which inputs?

use super::stages::DraftStage;
use crate::graph::{Dimension, GraphTensor};

/// An edge of the draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DraftEdge {
    /// Position of the parent.
    pub from: usize,
    /// Position of the child.
    pub to: usize,
    /// The output for each input of the child, in its order; `None` where no output fits.
    pub map: Vec<(String, Option<String>)>,
}

/// An edge to each task but the first.
pub(super) fn edges_of(stages: &[DraftStage<'_>]) -> Vec<DraftEdge> {
    let edge = |to: usize| {
        let candidates = (0..to).map(|from| DraftEdge { from, to, map: map_of(&stages[from], &stages[to]) });
        // Of equally good parents, the nearest.
        candidates.max_by_key(|edge| edge.map.iter().filter(|(_, output)| output.is_some()).count())
    };
    (1..stages.len()).filter_map(edge).collect()
}

/// An output for each input: of the same name if it fits, else the only one that fits, if it is that of no other input.
fn map_of(parent: &DraftStage<'_>, child: &DraftStage<'_>) -> Vec<(String, Option<String>)> {
    let output_for = |input: &GraphTensor| {
        let fitting: Vec<&GraphTensor> = parent.outputs.iter().filter(|output| fits(output, input)).collect();
        let same = fitting.iter().find(|output| output.name == input.name);
        let output = same.or(if fitting.len() == 1 { fitting.first() } else { None });
        (input.name.clone(), output.map(|output| output.name.clone()))
    };
    let map: Vec<(String, Option<String>)> = child.inputs.iter().map(output_for).collect();
    // Example: `ids` is the only output, and the inputs are `ids` and `mask`. It is not the mask.
    let is_shared = |output: &String| map.iter().filter(|(_, other)| other.as_ref() == Some(output)).count() > 1;
    let is_sure = |input: &String, output: &String| input == output || !is_shared(output);
    map.iter().map(|(input, output)| (input.clone(), output.clone().filter(|output| is_sure(input, output)))).collect()
}

/// Whether an output can be the input: equal kinds and axes, and equal sizes after the rows where both are fixed.
fn fits(output: &GraphTensor, input: &GraphTensor) -> bool {
    let (Some(from), Some(to)) = (&output.shape, &input.shape) else { return false };
    let same = |(a, b): (&Dimension, &Dimension)| match (a, b) {
        (Dimension::Fixed(a), Dimension::Fixed(b)) => a == b,
        _ => true,
    };
    output.datatype.is_some()
        && output.datatype == input.datatype
        && from.len() == to.len()
        && from.iter().zip(to).skip(1).all(same)
}
