//! Which inputs are the variants of a task timed with, for each shape of its queries?

use crate::error::ProfileError;
use crate::files::TaskFiles;
use crate::measure::MeasureOptions;
use crate::shapes::{check_count, task_shapes};
use apportion_executor::backend::Signature;
use apportion_executor::measuring::drawn::{DrawError, drawn_inputs};
use apportion_executor::tensor::Tensor;

/// Inputs of one shape.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ShapedInputs {
    /// Share of the task's queries that have this shape.
    pub(crate) share: f64,
    /// All inputs, with equally many rows, at least one.
    pub(crate) tensors: Vec<Tensor>,
}

/// Rows of the first tensor.
pub(crate) fn row_count(tensors: &[Tensor]) -> usize {
    tensors.first().map_or(0, Tensor::rows)
}

/// Inputs that are drawn from the shapes, as agents draw them for profile jobs. They have as many rows as the largest
/// batch, or fewer where these would be too large: rows repeat then.
pub(crate) fn drawn_samples(
    task: &TaskFiles,
    signature: &Signature,
    options: &MeasureOptions,
) -> Result<Vec<ShapedInputs>, ProfileError> {
    if signature.inputs.is_empty() {
        let detail = format!("task {}: its variants have no inputs: expected one at least", task.name);
        return Err(ProfileError::Pipeline(detail));
    }
    let shapes = task_shapes(&signature.inputs, &options.shapes);
    let shapes = shapes.map_err(|source| ProfileError::Shapes { task: task.name.clone(), source })?;
    let largest = options.batches.last().map_or(1, |&batch| batch as usize);
    let mut samples = Vec::with_capacity(shapes.len());
    for shape in shapes {
        let mut rows = largest;
        let tensors = loop {
            match drawn_inputs(&signature.inputs, &shape.sizes, rows) {
                Err(DrawError::TooLarge { .. }) if rows > 1 => rows /= 2,
                drawn => break drawn.map_err(|source| ProfileError::Inputs { task: task.name.clone(), source })?,
            }
        };
        samples.push(ShapedInputs { share: shape.share, tensors });
    }
    Ok(samples)
}

/// The queries of a validation set that reached a task, by shape. The shares are those of the rows.
pub(crate) fn recorded_samples(task: &TaskFiles, reached: Vec<Vec<Tensor>>) -> Result<Vec<ShapedInputs>, ProfileError> {
    let all: usize = reached.iter().map(|tensors| row_count(tensors)).sum();
    if all == 0 {
        return Err(ProfileError::Unreached(task.name.clone()));
    }
    check_count(reached.len()).map_err(|source| ProfileError::Shapes { task: task.name.clone(), source })?;
    let sample = |tensors: Vec<Tensor>| ShapedInputs { share: row_count(&tensors) as f64 / all as f64, tensors };
    Ok(reached.into_iter().map(sample).collect())
}
