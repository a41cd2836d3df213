//! What keeps a graph with state from making its answers step by step, as a continuous task runs it?
//!
//! Example: a graph has the input `past.cache`, and no output `present.cache` has the state after the step. The remark says
//! which output is to be added.

use super::remark::GraphRemark;
use super::stages::GraphFile;
use super::state_names::{inputs_of_queries, outputs_of_queries};
use crate::graph::{Dimension, GraphTensor};
use apportion_domain::tensor::{DONE, PAST, PRESENT};
use apportion_domain::transform::{CHILD, PARENT};

/// What keeps the steps of such a graph from running.
pub(super) fn remarks_of(file: &GraphFile) -> Vec<GraphRemark> {
    let header = &file.header;
    let mut remarks: Vec<GraphRemark> = header.inputs.iter().filter_map(|input| of_past(file, input)).collect();
    remarks.extend(header.outputs.iter().filter_map(|output| of_present(file, output)));
    remarks.extend(of_done(file));
    for output in header.outputs.iter().filter(|output| output.name == PARENT || output.name == CHILD) {
        let cure = "Give it another name, or leave it out";
        let found = "each query in a slot makes one row, and this output is for several";
        remarks.push(GraphRemark::tensor(file, "output", output, found.to_owned(), cure.to_owned()));
    }
    if inputs_of_queries(header).is_empty() {
        let cure = "Give it an input beyond the state: each step gets it again";
        remarks.push(GraphRemark::file(file, "a query brings nothing: all inputs are state", cure));
    }
    if outputs_of_queries(header).is_empty() {
        let found = "a query has no answer: all outputs are state or `done`";
        remarks.push(GraphRemark::file(
            file,
            found,
            "Give it an output beyond the state: that of the last step is the answer",
        ));
    }
    remarks
}

/// What is wrong with the state before a step.
fn of_past(file: &GraphFile, input: &GraphTensor) -> Option<GraphRemark> {
    let name = input.name.strip_prefix(PAST)?;
    let refused = |found: String, cure: String| Some(GraphRemark::tensor(file, "input", input, found, cure));
    let present = format!("{PRESENT}{name}");
    let Some(output) = file.header.outputs.iter().find(|output| output.name == present) else {
        return refused(
            format!("no output {present} is this state after the step"),
            format!("Add the output {present} with the datatype and shape of the input"),
        );
    };
    if output.datatype != input.datatype || output.sizes() != input.sizes() {
        return refused(
            format!("the state after the step is {output}, and a query's state keeps its form from step to step"),
            format!("Give {present} the datatype and shape of the input"),
        );
    }
    let Some((rows, inner)) = input.shape.as_ref().and_then(|shape| shape.split_first()) else {
        return refused(
            "the file does not say its shape".to_owned(),
            "Export it with its shape, the rows first".to_owned(),
        );
    };
    if let Dimension::Fixed(rows) = rows {
        return refused(
            format!("its first axis is always {rows}, and the rows of the queries in a step must be there"),
            "Put the batch first, with any size, by a Transpose behind the input and one before the output".to_owned(),
        );
    }
    let any = (1..).zip(inner).find(|(_, dimension)| dimension.fixed().is_none()).map(|(axis, _): (usize, _)| axis)?;
    refused(
        format!("its axis {any} may have any size, and a query's state begins as zeros of one size"),
        "Fix the size: give the state room for the longest answer, and count the steps in a state of their own".to_owned(),
    )
}

/// What is wrong with the state after a step, if nothing is before it.
fn of_present(file: &GraphFile, output: &GraphTensor) -> Option<GraphRemark> {
    let past = format!("{PAST}{}", output.name.strip_prefix(PRESENT)?);
    if file.header.inputs.iter().any(|input| input.name == past) {
        return None;
    }
    let found = format!("no input {past} takes this state to the next step");
    let cure = format!("Add the input {past} with the datatype and shape of the output, or give the output another name");
    Some(GraphRemark::tensor(file, "output", output, found, cure))
}

/// What is wrong with the output that ends a query.
fn of_done(file: &GraphFile) -> Option<GraphRemark> {
    let cure = "Add an output `done`: BOOL [batch] or [batch, 1], true for each row whose query has ended";
    let Some(done) = file.header.outputs.iter().find(|output| output.name == DONE) else {
        return Some(GraphRemark::file(file, "it keeps state, and no output says when a query has ended", cure));
    };
    let inner = done.shape.as_ref().map(|shape| shape.iter().skip(1).all(|dimension| dimension.fixed() == Some(1)));
    if done.datatype == Some("BOOL") && inner == Some(true) {
        return None;
    }
    let found = "it does not say for each row whether its query has ended";
    Some(GraphRemark::tensor(file, "output", done, found.to_owned(), cure.to_owned()))
}
