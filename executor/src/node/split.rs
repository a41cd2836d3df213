//! What a batch's outputs mean for each of its members: rows for the gateway, or children for the next tasks.

use crate::layout::Task;
use crate::slot::{concatenate, int64s};
use crate::tensor::Tensor;
use crate::wire::{Credit, End};

/// Name of the output that says from which row of the batch each output row comes.
pub const PARENT: &str = "parent";

/// A child query before it has a place.
#[derive(Debug, PartialEq)]
pub struct Child {
    /// Position of its task.
    pub to: usize,
    /// Its part of the request.
    pub credit: Credit,
    /// Its inputs.
    pub inputs: Vec<Tensor>,
}

/// What becomes of one member.
#[derive(Debug, PartialEq)]
pub enum Fate {
    /// Its part goes back to its gateway.
    End(End),
    /// Its part goes on.
    Children(Vec<Child>),
}

/// Rows of the outputs by member: by the int64 output `parent` if there is one, else one row for each member.
///
/// # Errors
/// In words, if the outputs do not fit a batch of `members`.
pub fn rows_of(outputs: &[Tensor], members: usize) -> Result<Vec<Vec<usize>>, String> {
    let parents = match outputs.iter().find(|t| t.name == PARENT) {
        Some(parent) => int64s(parent).ok_or("the output `parent` is not INT64")?,
        None => (0..members as i64).collect(),
    };
    if let Some(wrong) = outputs.iter().find(|t| t.rows() != parents.len()) {
        return Err(format!("output {} has {} rows: expected {}", wrong.name, wrong.rows(), parents.len()));
    }
    let mut rows = vec![Vec::new(); members];
    for (row, parent) in parents.iter().enumerate() {
        let member = usize::try_from(*parent).ok().and_then(|p| rows.get_mut(p));
        member.ok_or_else(|| format!("the output `parent` names row {parent} of a batch of {members}"))?.push(row);
    }
    Ok(rows)
}

/// The fate of a member whose output rows are `rows`.
#[must_use]
pub fn fate(task: &Task, tasks: &[Task], credit: Credit, outputs: &[Tensor], rows: &[usize]) -> Fate {
    if task.children.is_empty() {
        let mine = outputs.iter().filter(|t| t.name != PARENT).map(|t| pick(t, rows)).collect();
        return Fate::End(End::Leaf { task: task.name.clone(), outputs: mine });
    }
    if rows.is_empty() {
        return Fate::End(End::Leaf { task: String::new(), outputs: Vec::new() });
    }
    let parts = rows.len() * task.children.len();
    let mut children = Vec::with_capacity(parts);
    for row in rows {
        for edge in &task.children {
            let Some(credit) = credit.part(children.len() as u64, parts as u64) else {
                return Fate::End(End::Failed(format!("task {}: the request has too many queries", task.name)));
            };
            match child_inputs(&tasks[edge.to], &edge.map, outputs, *row) {
                Ok(inputs) => children.push(Child { to: edge.to, credit, inputs }),
                Err(reason) => return Fate::End(End::Failed(reason)),
            }
        }
    }
    Fate::Children(children)
}

fn child_inputs(child: &Task, map: &[(String, String)], outputs: &[Tensor], row: usize) -> Result<Vec<Tensor>, String> {
    let input = |(input, output): &(String, String)| {
        let from = outputs.iter().find(|t| t.name == *output);
        let from = from.ok_or_else(|| format!("task {}: its input {input} needs the output {output}", child.name))?;
        Ok(Tensor { name: input.clone(), ..from.row(row) })
    };
    map.iter().map(input).collect()
}

fn pick(tensor: &Tensor, rows: &[usize]) -> Tensor {
    match rows {
        [] => tensor.slice(0, 0),
        [first, .., last] if last - first + 1 == rows.len() => tensor.slice(*first, rows.len()),
        _ => {
            let parts: Vec<Tensor> = rows.iter().map(|r| tensor.row(*r)).collect();
            let parts: Vec<&Tensor> = parts.iter().collect();
            concatenate(&parts).expect("rows of one tensor fit together")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Edge, tests::chain};
    use crate::tensor::Datatype;

    fn int64(name: &str, values: &[i64]) -> Tensor {
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Tensor { name: name.into(), datatype: Datatype::Int64, shape: vec![values.len()], data: data.into() }
    }

    #[test]
    fn rows_go_to_the_members_that_parent_names() {
        assert_eq!(rows_of(&[int64(PARENT, &[2, 0, 2])], 3), Ok(vec![vec![1], vec![], vec![0, 2]]));
        assert_eq!(rows_of(&[int64("y", &[7, 8])], 2), Ok(vec![vec![0], vec![1]]));
        assert!(rows_of(&[int64(PARENT, &[3])], 3).is_err());
        assert!(rows_of(&[int64("y", &[7])], 2).is_err());
    }

    #[test]
    fn children_share_their_parents_credit_without_a_gap() {
        let mut tasks = crate::layout::lay_out(&chain()).expect("valid").pipelines["p"].tasks.clone();
        tasks[0].children = vec![Edge { to: 1, map: vec![("x".into(), "y".into())] }];
        let outputs = [int64("y", &[5, 6, 7]), int64(PARENT, &[0, 0, 0])];
        let Fate::Children(children) = fate(&tasks[0], &tasks, Credit::WHOLE, &outputs, &[0, 1, 2]) else {
            panic!("no children");
        };
        let mut next = 0;
        for (child, value) in children.iter().zip([5, 6, 7]) {
            assert_eq!(child.credit.start, next);
            assert_eq!(child.inputs, [Tensor { shape: vec![1], ..int64("x", &[value]) }]);
            next += child.credit.len;
        }
        assert_eq!(next, Credit::WHOLE.len);
    }
}
