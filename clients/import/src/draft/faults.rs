//! Which properties of a graph will not work, and how are they cured?

use super::edges::DraftEdge;
use super::remark::GraphRemark;
use super::stages::{DraftStage, GraphFile};
use super::state_names::{is_state_input, makes_steps};
use super::stepping;
use crate::graph::{Dimension, GraphTensor, WeightPlace};
use apportion_domain::tensor::PRESENT;

/// The remarks about all graphs and edges.
pub(super) fn remarks_of(stages: &[DraftStage<'_>], edges: &[DraftEdge]) -> Vec<GraphRemark> {
    let mut remarks = Vec::new();
    for stage in stages {
        for file in &stage.files {
            of_file(file, &mut remarks);
        }
        of_variants(stage, &mut remarks);
    }
    for edge in edges {
        of_edge(edge, stages, &mut remarks);
    }
    remarks
}

fn of_file(file: &GraphFile, remarks: &mut Vec<GraphRemark>) {
    let header = &file.header;
    if header.weights == WeightPlace::Outside {
        let found = "its weights are in other files, and an agent gets one file for each variant";
        let cure = "Save it as one file: `onnx.save(onnx.load(\"model.onnx\"), \"one.onnx\")`";
        remarks.push(GraphRemark::file(file, found, cure));
    }
    for (side, tensors) in [("input", &header.inputs), ("output", &header.outputs)] {
        for tensor in tensors {
            of_kind(file, side, tensor, remarks);
        }
    }
    let is_stepped = makes_steps(header);
    if is_stepped {
        remarks.extend(stepping::remarks_of(file));
    }
    for input in header.inputs.iter().filter(|input| !is_state_input(input)) {
        match (state_output(input, &header.outputs), rows_axis(input, &header.inputs)) {
            (Some(output), _) if !is_stepped => remarks.push(state(file, input, output)),
            (_, Some(axis)) => remarks.push(moved_rows(file, input, axis)),
            (_, None) => of_axes(file, input, remarks),
        }
    }
}

fn of_kind(file: &GraphFile, side: &str, tensor: &GraphTensor, remarks: &mut Vec<GraphRemark>) {
    if tensor.datatype.is_none() {
        let found = format!("this {side} is no tensor, or has elements that requests cannot carry");
        let cure = "Export it as a plain tensor: for scikit-learn with `zipmap=False`, for BF16 with a cast to FP32";
        remarks.push(GraphRemark::tensor(file, side, tensor, found, cure.to_owned()));
    } else if tensor.shape.as_ref().is_some_and(Vec::is_empty) {
        let found = format!("this {side} is a single number without an axis for the rows of a batch");
        let cure = match side {
            "input" => "If it is always the same, make it a constant of the graph; else give it the shape [batch, 1]",
            _ => "Give it the shape [batch, 1]",
        };
        remarks.push(GraphRemark::tensor(file, side, tensor, found, cure.to_owned()));
    }
}

/// The first axis must be any size, for the batch; other axes should not be.
fn of_axes(file: &GraphFile, input: &GraphTensor, remarks: &mut Vec<GraphRemark>) {
    let Some((rows, inner)) = input.shape.as_ref().and_then(|shape| shape.split_first()) else { return };
    if let Dimension::Fixed(rows) = rows {
        let found = format!("the first axis is always {rows}, so rows of several requests cannot be one batch");
        let cure = format!(
            "Export it again with a dynamic first axis, for example `dynamic_axes={{\"{}\": {{0: \"batch\"}}}}` of \
             torch.onnx.export",
            input.name
        );
        remarks.push(GraphRemark::tensor(file, "input", input, found, cure));
    }
    let any: Vec<String> = (1..).zip(inner).filter(|(_, d)| !matches!(d, Dimension::Fixed(_))).map(axis).collect();
    if !any.is_empty() {
        let found = format!("{} may have any size; only rows of one shape are one batch", any.join(" and "));
        let cure = "Resize or pad to one size by `before` of the task or `transform` of an edge, or fix the sizes with \
                    `python -m onnxruntime.tools.make_dynamic_shape_fixed --dim_param NAME --dim_value SIZE`; else profile with \
                    examples of the sizes that you expect";
        remarks.push(GraphRemark { works: true, ..GraphRemark::tensor(file, "input", input, found, cure.to_owned()) });
    }
}

fn axis((at, dimension): (usize, &Dimension)) -> String {
    match dimension {
        Dimension::Named(name) => format!("axis {at} ({name})"),
        _ => format!("axis {at}"),
    }
}

/// Words in the names of tensors that carry state from call to call.
const STATE_WORDS: [&str; 6] = ["state", "hidden", "cache", "past", "present", "memory"];
/// Whole names of such tensors: the hidden state and the cell of an LSTM.
const STATE_NAMES: [&str; 4] = ["h", "c", "hx", "cx"];

/// The output that is the next value of a state. The names of both say so, and kind and number of axes are equal.
fn state_output<'a>(input: &GraphTensor, outputs: &'a [GraphTensor]) -> Option<&'a GraphTensor> {
    let has_word = |name: &str| STATE_WORDS.iter().any(|word| name.contains(word));
    let name = input.name.to_lowercase();
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
    let rank = |t: &GraphTensor| t.shape.as_ref().map(Vec::len);
    outputs.iter().find(|output| {
        let next = output.name.to_lowercase();
        let is_like = output.datatype == input.datatype && rank(output) == rank(input) && rank(input) > Some(1);
        let are_words = has_word(stem) && (has_word(&next) || next.starts_with(stem));
        is_like && (are_words || (STATE_NAMES.contains(&stem) && next.starts_with(stem)))
    })
}

fn state(file: &GraphFile, input: &GraphTensor, output: &GraphTensor) -> GraphRemark {
    let found = format!(
        "this is a state that the caller gets as {:?} and sends again; an agent keeps state only under names that say so",
        output.name
    );
    let name = output.name.strip_prefix(PRESENT).unwrap_or(&input.name);
    let cure = format!(
        "If each query makes steps until it ends, rename the two to past.{name} and present.{name}, put the rows on their \
         first axis (a Transpose in the graph), fix the other sizes, and add an output `done` (BOOL, one for each row): then the \
         task is continuous. Else let the client send it, or export the graph so that one request holds the whole sequence"
    );
    GraphRemark::tensor(file, "input", input, found, cure)
}

/// The axis on which the rows are, if it is not the first: another input has its rows under the same name on its first.
fn rows_axis(input: &GraphTensor, inputs: &[GraphTensor]) -> Option<usize> {
    let firsts: Vec<&Dimension> = inputs.iter().filter_map(|i| i.shape.as_ref()?.first()).collect();
    let shape = input.shape.as_ref()?;
    let is_rows =
        |d: &Dimension| matches!(d, Dimension::Named(name) if name.to_lowercase().contains("batch") || firsts.contains(&d));
    let at = shape.iter().position(is_rows)?;
    (at > 0 && !is_rows(&shape[0])).then_some(at)
}

fn moved_rows(file: &GraphFile, input: &GraphTensor, axis: usize) -> GraphRemark {
    let found = format!("its rows are on axis {axis}, and batches are put together on the first axis");
    let cure = "Put a Transpose at the input, so that the rows come first".to_owned();
    GraphRemark::tensor(file, "input", input, found, cure)
}

/// Variants stand in for each other, so their tensors must be the same.
fn of_variants(stage: &DraftStage<'_>, remarks: &mut Vec<GraphRemark>) {
    let first = stage.files[0];
    for other in stage.files.iter().skip(1) {
        for (side, mine, theirs) in [
            ("input", &first.header.inputs, &other.header.inputs),
            ("output", &first.header.outputs, &other.header.outputs),
        ] {
            if mine.iter().map(|t| &t.name).ne(theirs.iter().map(|t| &t.name)) {
                let place = format!("task {}, {} and {}", stage.name, first.path, other.path);
                let found =
                    format!("their {side}s have other names or another order, and variants stand in for each other");
                let cure = "Rename them, or name their tasks: `TASK=FILE`".to_owned();
                remarks.push(GraphRemark { place, found, cure, works: false });
                continue;
            }
            for (a, b) in mine.iter().zip(theirs).filter(|(a, b)| !same_inside(a, b)) {
                let place = format!("task {}, {} and {}", stage.name, first.path, other.path);
                let found = format!("{side} {a} of one is {b} of the other, and variants stand in for each other");
                let cure = "Export both with one shape. If they are different tasks, name them: `TASK=FILE`".to_owned();
                remarks.push(GraphRemark { place, found, cure, works: false });
            }
        }
    }
}

/// Whether kinds and sizes after the rows are equal.
fn same_inside(a: &GraphTensor, b: &GraphTensor) -> bool {
    let inner = |t: &GraphTensor| t.shape.as_ref().map(|s| s.iter().skip(1).map(Dimension::fixed).collect::<Vec<_>>());
    a.datatype == b.datatype && inner(a) == inner(b)
}

fn of_edge(edge: &DraftEdge, stages: &[DraftStage<'_>], remarks: &mut Vec<GraphRemark>) {
    let (parent, child) = (&stages[edge.from], &stages[edge.to]);
    let listed = |tensors: &[GraphTensor]| tensors.iter().map(GraphTensor::to_string).collect::<Vec<_>>().join(", ");
    for (name, _) in edge.map.iter().filter(|(_, output)| output.is_none()) {
        let Some(input) = child.inputs.iter().find(|i| i.name == *name) else { continue };
        let place = format!("edge {} -> {}, input {input}", parent.name, child.name);
        let found = format!("no single output of {} fits; there are {}", parent.name, listed(&parent.outputs));
        let cure =
            "Complete the map of the edge, or add a `transform` to it that makes this input from the parent's tensors"
                .to_owned();
        remarks.push(GraphRemark { place, found, cure, works: false });
    }
}
