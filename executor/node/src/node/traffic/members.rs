//! What does a batch give to each of its members?

use crate::layout::{LayoutPipeline, LayoutTask};
use crate::node::split::{BatchOutputError, Branching, MemberResult, rows_of};
use crate::node::work::{LocalQuery, SendContext};
use crate::replica_event::BatchFault;
use crate::tensor::{Tensor, TensorSignature, concatenate};
use crate::wire::RoutedQuery;

/// The outputs of a batch, and which of their rows belong to each member.
pub struct BatchOutputs {
    /// The outputs.
    pub outputs: Vec<Tensor>,
    /// Positions of rows, by member.
    pub rows: Vec<Vec<usize>>,
}

/// A task of a pipeline.
#[derive(Clone, Copy)]
pub struct TaskRef<'p> {
    /// The pipeline.
    pub of: &'p LayoutPipeline,
    /// The task's position.
    pub at: usize,
}

/// The rows of a batch's outputs that belong to one member.
#[derive(Clone, Copy, Default)]
pub struct MemberOutputs<'o> {
    /// The outputs of the batch.
    pub tensors: &'o [Tensor],
    /// The member's rows of them.
    pub rows: &'o [usize],
}

/// A member of a batch that has ended.
pub struct Member<'m> {
    /// Its query.
    pub query: &'m RoutedQuery,
    /// What becomes of it.
    pub fate: MemberResult,
    /// What it has made.
    pub outputs: MemberOutputs<'m>,
    /// How its children are sent.
    pub to: SendContext,
}

impl BatchOutputs {
    /// Assigns the rows of outputs to the members of a batch.
    ///
    /// # Errors
    /// If the outputs do not fit a batch of this size.
    pub fn of(outputs: Vec<Tensor>, members: usize) -> Result<Self, BatchFault> {
        let unfit = |error: BatchOutputError| BatchFault::of_batch(error.to_string());
        let rows = rows_of(&outputs, members).map_err(unfit)?;
        Branching::of(&outputs, None).map_err(unfit)?;
        Ok(Self { outputs, rows })
    }
}

/// The inputs of a batch of these members; none if they do not fit together, or one lacks an input of the task.
pub fn inputs_of(task: &LayoutTask, members: &[&LocalQuery]) -> Option<Vec<Tensor>> {
    let input = |spec: &TensorSignature| {
        let of = |w: &&LocalQuery| w.query.inputs.iter().find(|t| t.name == spec.name).cloned();
        let parts = members.iter().map(of).collect::<Option<Vec<Tensor>>>()?;
        concatenate(&parts.iter().collect::<Vec<_>>())
    };
    task.inputs.iter().map(input).collect()
}
