//! Which properties of a graph will not work, and how are they cured?

use super::edges::DraftEdge;
use super::remark::GraphRemark;
use super::stages::{DraftStage, GraphFile};
use super::state_names::{is_state_input, makes_steps};
use super::{caller_state, open_axes, stepping};
use crate::graph::{Dimension, GraphHeader, GraphTensor, WeightPlace};
use apportion_domain::transform::PARENT;

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
    let states = if is_stepped { Vec::new() } else { caller_state::carried(header) };
    if is_stepped {
        remarks.extend(stepping::remarks_of(file));
    }
    remarks.extend(caller_state::remark_of(file, &states));
    let is_state =
        |input: &&GraphTensor| is_state_input(input) || states.iter().any(|state| state.before.name == input.name);
    let mut plain = Vec::new();
    for input in header.inputs.iter().filter(|input| !is_state(input)) {
        match rows_axis(input, &header.inputs) {
            Some(axis) => remarks.push(moved_rows(file, "input", input, axis)),
            None => {
                remarks.extend(fixed_rows(file, input));
                plain.push(input);
            }
        }
    }
    remarks.extend(open_axes::notes_of(file, &plain));
    if !is_stepped {
        let is_next = |output: &&GraphTensor| states.iter().any(|state| state.after.name == output.name);
        let answers = header.outputs.iter().filter(|output| !is_next(output));
        remarks.extend(answers.filter_map(|output| of_answer(file, output)));
    }
}

/// An output has a row for each row of a batch, unless an output `parent` says from which row each one comes.
fn of_answer(file: &GraphFile, output: &GraphTensor) -> Option<GraphRemark> {
    let GraphHeader { inputs, outputs, .. } = &file.header;
    if outputs.iter().any(|output| output.name == PARENT) || inputs.iter().any(|input| input.fixed_rows().is_some()) {
        return None;
    }
    if let Some(axis) = rows_axis(output, inputs) {
        return Some(moved_rows(file, "output", output, axis));
    }
    let rows = output.fixed_rows()?;
    let found = format!("its first axis is always {rows}, and each row of a batch needs a row of it");
    let cure = "If the file says that wrongly, it works; else put the rows first, or leave it out of the graph".to_owned();
    Some(GraphRemark { works: true, ..GraphRemark::tensor(file, "output", output, found, cure) })
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

/// The first axis must be any size, for the batch.
fn fixed_rows(file: &GraphFile, input: &GraphTensor) -> Option<GraphRemark> {
    let rows = input.fixed_rows()?;
    let found = format!("the first axis is always {rows}, so rows of several requests cannot be one batch");
    let cure = format!(
        "Export it again with a dynamic first axis, for example `dynamic_axes={{\"{}\": {{0: \"batch\"}}}}` of \
         torch.onnx.export. Without its source, try `update_inputs_outputs_dims` of `onnx.tools.update_model_dims` on the file",
        input.name
    );
    Some(GraphRemark::tensor(file, "input", input, found, cure))
}

/// The axis on which the rows are, if it is not the first: another input has its rows under the same name on its first.
fn rows_axis(tensor: &GraphTensor, inputs: &[GraphTensor]) -> Option<usize> {
    let firsts: Vec<&Dimension> = inputs.iter().filter_map(|i| i.shape.as_ref()?.first()).collect();
    let shape = tensor.shape.as_ref()?;
    let is_rows =
        |d: &Dimension| matches!(d, Dimension::Named(name) if name.to_lowercase().contains("batch") || firsts.contains(&d));
    let at = shape.iter().position(is_rows)?;
    (at > 0 && !is_rows(&shape[0])).then_some(at)
}

fn moved_rows(file: &GraphFile, side: &str, tensor: &GraphTensor, axis: usize) -> GraphRemark {
    let found = format!("its rows are on axis {axis}, and batches are put together on the first axis");
    let cure = match side {
        "input" => "Put a Transpose at the input, so that the rows come first",
        _ => "Put a Transpose at the output, so that the rows come first, or leave it out of the graph",
    };
    GraphRemark::tensor(file, side, tensor, found, cure.to_owned())
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
    let takes_the_same = parent.inputs.len() == child.inputs.len()
        && parent.inputs.iter().zip(&child.inputs).all(|(mine, theirs)| same_inside(mine, theirs));
    let variants = match takes_the_same {
        true => ". If both do the same work, they are variants of one task: name it, `TASK=FILE` for each",
        false => "",
    };
    for (name, _) in edge.map.iter().filter(|(_, output)| output.is_none()) {
        let Some(input) = child.inputs.iter().find(|i| i.name == *name) else { continue };
        let place = format!("edge {} -> {}, input {input}", parent.name, child.name);
        let found = format!("no single output of {} fits; there are {}", parent.name, listed(&parent.outputs));
        let cure = format!(
            "Complete the map of the edge, or add a `transform` to it that makes this input from the parent's \
             tensors{variants}"
        );
        remarks.push(GraphRemark { place, found, cure, works: false });
    }
}
