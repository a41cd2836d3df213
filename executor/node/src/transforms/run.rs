//! How do the transforms of a task run around the batch of a variant?

use super::fault::{GlueFault, TransformFault};
use super::rows::RowSet;
use super::{boxes, numbers, pictures, texts};
use crate::tensor::{Datatype, Tensor, TensorSignature, int64s};
use apportion_domain::transform::{CHILD, PARENT, TaskGlue, Transform};
use std::collections::BTreeSet;

/// Carries out one transform.
pub(super) fn apply(transform: &Transform, rows: &mut RowSet) -> Result<(), TransformFault> {
    transform.check_types(&mut rows.types())?;
    let (of, made) = match transform {
        Transform::Crop(step) => return pictures::crop(step, rows),
        Transform::Nms(step) => return boxes::nms(step, rows),
        Transform::Keep(step) => {
            rows.keep(&step.tensors);
            return Ok(());
        }
        Transform::Tokenise(step) => {
            let made = texts::tokenise(step, rows.tensor(&step.of))?;
            made.into_iter().for_each(|tensor| rows.put_like(&step.of, tensor));
            return Ok(());
        }
        Transform::Resize(step) => (&step.of, pictures::resize(step, rows.tensor(&step.of))?),
        Transform::Pad(step) => (&step.of, numbers::pad(step, rows.tensor(&step.of))?),
        Transform::Normalise(step) => (&step.of, numbers::normalise(step, rows.tensor(&step.of))?),
        Transform::DecodeText(step) => (&step.of, texts::decode_text(step, rows.tensor(&step.of))?),
        Transform::Transpose(step) => (&step.of, numbers::transpose(step, rows.tensor(&step.of))),
        Transform::Cast(step) => (&step.of, numbers::cast(step, rows.tensor(&step.of))?),
        Transform::Slice(step) => (&step.of, numbers::slice(step, rows.tensor(&step.of))),
    };
    rows.put_like(of, made);
    Ok(())
}

/// Carries out a list of transforms.
fn follow(place: &str, transforms: &[Transform], rows: &mut RowSet) -> Result<(), GlueFault> {
    for (at, transform) in transforms.iter().enumerate() {
        apply(transform, rows).map_err(|cause| GlueFault::Step {
            place: place.to_owned(),
            number: at + 1,
            transform: transform.name(),
            cause: Box::new(cause),
        })?;
    }
    Ok(())
}

/// A tensor of the set, with a row for each present row.
fn handed_out(place: &str, rows: &RowSet, name: &str) -> Result<Tensor, GlueFault> {
    if !rows.has(name) {
        return Err(GlueFault::Missing { place: place.to_owned(), name: name.to_owned() });
    }
    rows.gathered(name).map_err(GlueFault::Batch)
}

/// The inputs `taken` of a variant from those of a batch of queries.
///
/// # Errors
/// [`GlueFault`] if a transform cannot be carried out for this batch.
pub fn run_before(glue: &TaskGlue, inputs: &[Tensor], taken: &[TensorSignature]) -> Result<Vec<Tensor>, GlueFault> {
    const PLACE: &str = "`before`";
    let mut rows = RowSet::of(inputs).map_err(GlueFault::Batch)?;
    follow(PLACE, &glue.before, &mut rows)?;
    taken.iter().map(|input| handed_out(PLACE, &rows, &input.name)).collect()
}

/// The outputs of a task from those of a variant, `made`, and the inputs of the batch of queries. `answers` names the
/// tensors that it hands out after `after` (see [`TaskGlue::answers`]).
///
/// # Errors
/// [`GlueFault`] if a transform cannot be carried out for this batch.
pub fn run_after(
    glue: &TaskGlue,
    answers: &BTreeSet<String>,
    inputs: &[Tensor],
    made: Vec<Tensor>,
) -> Result<Vec<Tensor>, GlueFault> {
    let mut rows = made_rows(inputs, made).map_err(GlueFault::Batch)?;
    follow("`after`", &glue.after, &mut rows)?;
    let known = answers.iter().filter(|name| rows.has(name));
    let mut outputs: Vec<Tensor> =
        known.map(|name| handed_out("`after`", &rows, name)).collect::<Result<_, GlueFault>>()?;
    let mut last = None;
    for edge in glue.edges.iter().filter(|edge| !edge.steps.is_empty()) {
        let place = format!("edge to {}", edge.to);
        let mut of_edge = rows.clone();
        follow(&place, &edge.steps, &mut of_edge)?;
        for output in &edge.outputs {
            let tensor = handed_out(&place, &of_edge, output)?;
            outputs.push(Tensor { name: edge.exported(output), ..tensor });
        }
        last = Some(of_edge);
    }
    // Transforms of an edge make rows only where it is the only edge.
    let rows = last.unwrap_or(rows);
    if rows.has(CHILD) {
        outputs.push(rows.gathered(CHILD).map_err(GlueFault::Batch)?);
    }
    if rows.has_other_rows() {
        let parents: Vec<i64> = rows.parents().iter().map(|row| *row as i64).collect();
        outputs.push(numbers::of_int64s(PARENT, vec![parents.len()], &parents));
    }
    Ok(outputs)
}

/// The inputs of a batch, and the outputs of the variant with the rows that it has made.
fn made_rows(inputs: &[Tensor], made: Vec<Tensor>) -> Result<RowSet, TransformFault> {
    let mut rows = RowSet::of(inputs)?;
    if let Some(parent) = made.iter().find(|tensor| tensor.name == PARENT) {
        let members = rows.rows();
        let wrong = || TransformFault::Parent(members);
        let is_right = parent.datatype == Datatype::Int64 && parent.shape.len() == 1;
        let numbers = int64s(parent).filter(|_| is_right).ok_or_else(wrong)?;
        let row = |number: &i64| usize::try_from(*number).ok().filter(|row| *row < members).ok_or_else(wrong);
        let sources: Vec<usize> = numbers.iter().map(row).collect::<Result<_, _>>()?;
        rows.replace_rows(&sources)?;
    }
    made.into_iter().filter(|tensor| tensor.name != PARENT).try_for_each(|tensor| rows.add(tensor))?;
    Ok(rows)
}
