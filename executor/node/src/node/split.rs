//! What do a batch's outputs mean for each member: rows for its gateway, or children for the next tasks?

use crate::layout::{LayoutTask, MappedInput};
use crate::tensor::{Tensor, concatenate, int64s};
use crate::wire::{Credit, PartEnd};
use apportion_serving::Stride;

pub use apportion_domain::transform::{CHILD, PARENT};

/// Why a batch's outputs cannot be sent on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchOutputError {
    /// The output [`CHILD`] has another datatype.
    #[error("the output `child` is not INT64")]
    ChildType,
    /// The output [`PARENT`] has another datatype.
    #[error("the output `parent` is not INT64")]
    ParentType,
    /// An output has not one row for each row of [`PARENT`], or for each member.
    #[error("output {output} has {rows} rows on its first axis: expected {expected}, as the batch or the output `parent`")]
    Rows {
        /// Name of the output.
        output: String,
        /// Its rows.
        rows: usize,
        /// As many as it should have.
        expected: usize,
    },
    /// The output [`PARENT`] names a row that the batch does not have.
    #[error("the output `parent` names row {row} of a batch of {members}")]
    Parent {
        /// The row that it names.
        row: i64,
        /// Members of the batch.
        members: usize,
    },
    /// The output [`CHILD`] names a child that the task does not have.
    #[error("task {task}: the output `child` is not one of its {children} children")]
    Child {
        /// Name of the task.
        task: String,
        /// How many children it has.
        children: usize,
    },
    /// The credit of a query is too small to be split among its children.
    #[error("task {0}: the request has too many queries")]
    Credit(String),
    /// The batch lacks an output from which a child's input is made.
    #[error("task {child}: its input {input} needs the output {output}")]
    Missing {
        /// Name of the child's task.
        child: String,
        /// Name of its input.
        input: String,
        /// Name of the missing output.
        output: String,
    },
}

/// A child query before it has a place.
#[derive(Debug, PartialEq)]
pub struct ChildQuery {
    /// Position of its task.
    pub to: usize,
    /// Its part of the request.
    pub credit: Credit,
    /// From which row of the batch's outputs.
    pub row: usize,
    /// Its inputs.
    pub inputs: Vec<Tensor>,
}

/// To which children the rows of a batch go.
pub struct Branching<'a> {
    chosen: Option<Vec<i64>>,
    turns: Option<&'a mut Stride>,
}

impl<'a> Branching<'a> {
    /// By the int64 output `child` if there is one; else each row to the next child in turn, in proportion to the ratios
    /// (`turns`), or without it to all.
    ///
    /// # Errors
    /// [`BatchOutputError`] if `child` is of another datatype.
    pub fn of(outputs: &[Tensor], turns: Option<&'a mut Stride>) -> Result<Self, BatchOutputError> {
        let chosen = match outputs.iter().find(|t| t.name == CHILD) {
            Some(child) => Some(int64s(child).ok_or(BatchOutputError::ChildType)?),
            None => None,
        };
        Ok(Self { chosen, turns })
    }

    fn children(&mut self, task: &LayoutTask, row: usize) -> Result<std::ops::Range<usize>, BatchOutputError> {
        let count = task.children.len();
        let chosen = self.chosen.as_ref().and_then(|all| all.get(row));
        let at = match (chosen, &mut self.turns) {
            (Some(at), _) => usize::try_from(*at).ok().filter(|at| *at < count),
            (None, Some(turns)) => Some(turns.pick() as usize),
            (None, None) => return Ok(0..count),
        };
        let at = at.ok_or_else(|| BatchOutputError::Child { task: task.name.clone(), children: count })?;
        Ok(at..at + 1)
    }
}

/// What becomes of one member.
#[derive(Debug, PartialEq)]
pub enum MemberResult {
    /// Its part goes back to its gateway.
    End(PartEnd),
    /// Its part goes on.
    Children(Vec<ChildQuery>),
}

/// Rows of the outputs by member: by the int64 output `parent` if there is one, else one row for each member.
///
/// # Errors
/// [`BatchOutputError`] if the outputs do not fit a batch of `members`.
pub fn rows_of(outputs: &[Tensor], members: usize) -> Result<Vec<Vec<usize>>, BatchOutputError> {
    let parents = match outputs.iter().find(|t| t.name == PARENT) {
        Some(parent) => int64s(parent).ok_or(BatchOutputError::ParentType)?,
        None => (0..members as i64).collect(),
    };
    if let Some(wrong) = outputs.iter().find(|t| t.rows() != parents.len()) {
        let (output, rows) = (wrong.name.clone(), wrong.rows());
        return Err(BatchOutputError::Rows { output, rows, expected: parents.len() });
    }
    let mut rows = vec![Vec::new(); members];
    for (row, parent) in parents.iter().enumerate() {
        let member = usize::try_from(*parent).ok().and_then(|p| rows.get_mut(p));
        member.ok_or(BatchOutputError::Parent { row: *parent, members })?.push(row);
    }
    Ok(rows)
}

/// A batch that has ended, from which its members' fates follow.
pub struct SplitInput<'a> {
    /// The task that ran it.
    pub task: &'a LayoutTask,
    /// All tasks of the pipeline.
    pub tasks: &'a [LayoutTask],
    /// What it made.
    pub outputs: &'a [Tensor],
    /// To which children its rows go.
    pub branching: Branching<'a>,
}

impl SplitInput<'_> {
    /// The fate of a member whose output rows are `rows`.
    #[must_use]
    pub fn fate(&mut self, credit: Credit, rows: &[usize]) -> MemberResult {
        if self.task.is_sink() {
            let mine = self.outputs.iter().filter(|t| t.name != PARENT).map(|t| pick(t, rows)).collect();
            return MemberResult::End(PartEnd::Leaf { task: self.task.name.clone(), outputs: mine });
        }
        if rows.is_empty() || self.task.children.is_empty() {
            return MemberResult::End(PartEnd::Leaf { task: String::new(), outputs: Vec::new() });
        }
        match self.children(credit, rows) {
            Ok(children) => MemberResult::Children(children),
            Err(error) => MemberResult::End(PartEnd::Failed(error.to_string())),
        }
    }

    fn children(&mut self, credit: Credit, rows: &[usize]) -> Result<Vec<ChildQuery>, BatchOutputError> {
        let Self { task, tasks, outputs, branching } = self;
        let mut places = Vec::with_capacity(rows.len() * task.children.len());
        for row in rows {
            places.extend(branching.children(task, *row)?.map(|edge| (*row, &task.children[edge])));
        }
        let child = |(i, (row, edge)): (usize, &(usize, &crate::layout::LayoutEdge))| {
            let credit = credit.part(i as u64, places.len() as u64);
            let credit = credit.ok_or_else(|| BatchOutputError::Credit(task.name.clone()))?;
            Ok(ChildQuery {
                to: edge.to,
                credit,
                row: *row,
                inputs: child_inputs(&tasks[edge.to], &edge.map, outputs, *row)?,
            })
        };
        places.iter().enumerate().map(child).collect()
    }
}

/// Inputs of a child from one row of its parent's outputs.
///
/// # Errors
/// [`BatchOutputError`] if the parent has no such output.
pub fn child_inputs(
    child: &LayoutTask,
    map: &[MappedInput],
    outputs: &[Tensor],
    row: usize,
) -> Result<Vec<Tensor>, BatchOutputError> {
    let input = |MappedInput { input, output }: &MappedInput| {
        let from = outputs.iter().find(|t| t.name == *output);
        let from = from.ok_or_else(|| BatchOutputError::Missing {
            child: child.name.clone(),
            input: input.clone(),
            output: output.clone(),
        })?;
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
    use crate::layout::{LayoutEdge, tests::chain};
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
        tasks[0].children =
            vec![LayoutEdge { to: 1, map: vec![MappedInput { input: "x".into(), output: "y".into() }], ratio: 1.0 }];
        let outputs = [int64("y", &[5, 6, 7]), int64(PARENT, &[0, 0, 0])];
        let branching = Branching::of(&outputs, None).expect("all");
        let mut ended = SplitInput { task: &tasks[0], tasks: &tasks, outputs: &outputs, branching };
        let MemberResult::Children(children) = ended.fate(Credit::WHOLE, &[0, 1, 2]) else {
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

    #[test]
    fn rows_go_to_the_named_child_or_take_turns() {
        let mut tasks = crate::layout::lay_out(&chain()).expect("valid").pipelines["p"].tasks.clone();
        let edge = |ratio| LayoutEdge { to: 1, map: vec![MappedInput { input: "x".into(), output: "y".into() }], ratio };
        tasks[0].children = vec![edge(0.75), edge(0.25)];
        let mut outputs = vec![int64("y", &[5, 6, 7, 8])];
        let rows_to = |outputs: &[Tensor], turns: Option<&mut Stride>| {
            let mut branching = Branching::of(outputs, turns).expect("valid");
            let places = (0..4).map(|row| branching.children(&tasks[0], row));
            places.map(|place| place.map(|range| range.start)).collect::<Result<Vec<_>, _>>()
        };
        let mut turns = Stride::new([(0.75, 0), (0.25, 1)]).expect("weights");
        let in_turn = rows_to(&outputs, Some(&mut turns)).expect("valid");
        assert_eq!(in_turn.iter().filter(|at| **at == 1).count(), 1);
        outputs.push(int64(CHILD, &[1, 0, 1, 1]));
        assert_eq!(rows_to(&outputs, Some(&mut turns)), Ok(vec![1, 0, 1, 1]));
        outputs[1] = int64(CHILD, &[1, 0, 2, 1]);
        assert!(rows_to(&outputs, None).expect_err("no such child").to_string().contains("one of its 2 children"));
        outputs[1].datatype = Datatype::Uint64;
        assert!(Branching::of(&outputs, None).is_err());
    }
}
