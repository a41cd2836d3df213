//! Which tensors does a batch have between two transforms, and from which row of the batch does each of its rows come?
//!
//! A transform that makes rows copies no other tensor: tensors keep the rows that they have, and the set knows which of
//! them each present row stands for. So a photo with a hundred boxes is not copied a hundred times.

use super::fault::{GLUE_ROWS_MAX, TransformFault, bytes_of};
use crate::tensor::{Datatype, Tensor, concatenate, holds};
use apportion_domain::transform::{CHILD, RowType, RowTypes};
use std::collections::BTreeMap;

/// A tensor, and the level of the rows that it has.
#[derive(Clone, Debug)]
struct Variable {
    tensor: Tensor,
    level: usize,
}

/// The tensors of a batch. Each transform that makes rows begins another level of rows.
#[derive(Clone, Debug)]
pub(super) struct RowSet {
    variables: BTreeMap<String, Variable>,
    /// By level: for each present row, its row at that level. The last level is the present one.
    origins: Vec<Vec<usize>>,
}

impl RowSet {
    /// The inputs of a batch, all with as many rows as the first.
    ///
    /// # Errors
    /// [`TransformFault`] if they differ in their rows, or do not hold their elements.
    pub(super) fn of(inputs: &[Tensor]) -> Result<Self, TransformFault> {
        let rows = inputs.first().map_or(0, Tensor::rows);
        let mut set = Self { variables: BTreeMap::new(), origins: vec![(0..rows).collect()] };
        inputs.iter().try_for_each(|tensor| set.add(tensor.clone()))?;
        Ok(set)
    }

    /// Adds a tensor that comes from outside, with a row for each present row.
    ///
    /// # Errors
    /// [`TransformFault`] if it has other rows, or does not hold its elements.
    pub(super) fn add(&mut self, tensor: Tensor) -> Result<(), TransformFault> {
        let (name, found, expected) = (tensor.name.clone(), tensor.rows(), self.rows());
        if tensor.shape.is_empty() || found != expected {
            return Err(TransformFault::RowCount { name, found, expected });
        }
        holds(&tensor.data, &tensor.shape, tensor.datatype).map_err(|cause| TransformFault::Data { name, cause })?;
        self.put(tensor);
        Ok(())
    }

    /// How many rows there are.
    pub(super) fn rows(&self) -> usize {
        self.present().len()
    }

    /// Whether its rows are not those of the batch.
    pub(super) fn has_other_rows(&self) -> bool {
        self.origins.len() > 1
    }

    /// The row of the batch from which each row comes.
    pub(super) fn parents(&self) -> &[usize] {
        &self.origins[0]
    }

    fn present(&self) -> &[usize] {
        self.origins.last().expect("the batch's rows are the first level")
    }

    /// The types of all tensors. No size is open.
    pub(super) fn types(&self) -> RowTypes {
        let size = |size: &usize| i64::try_from(*size).unwrap_or(i64::MAX);
        let type_of =
            |tensor: &Tensor| RowType { datatype: tensor.datatype, inner: tensor.shape.iter().skip(1).map(size).collect() };
        self.variables.iter().map(|(name, variable)| (name.clone(), type_of(&variable.tensor))).collect()
    }

    /// Whether there is a tensor of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.variables.contains_key(name)
    }

    fn variable(&self, name: &str) -> &Variable {
        self.variables.get(name).expect("its type was checked")
    }

    /// A tensor with the rows that it has.
    pub(super) fn tensor(&self, name: &str) -> &Tensor {
        &self.variable(name).tensor
    }

    /// For each present row, the row of this tensor that it stands for.
    pub(super) fn rows_in(&self, name: &str) -> &[usize] {
        &self.origins[self.variable(name).level]
    }

    /// Puts a tensor with a row for each present row, in the place of one of its name.
    pub(super) fn put(&mut self, tensor: Tensor) {
        let level = self.origins.len() - 1;
        self.variables.insert(tensor.name.clone(), Variable { tensor, level });
    }

    /// Puts a tensor that has the rows of the tensor `of`.
    pub(super) fn put_like(&mut self, of: &str, tensor: Tensor) {
        let level = self.variable(of).level;
        self.variables.insert(tensor.name.clone(), Variable { tensor, level });
    }

    /// Forgets all tensors but these, and the one that says where rows go: no step names it.
    pub(super) fn keep(&mut self, names: &[String]) {
        self.variables.retain(|name, _| name == CHILD || names.contains(name));
    }

    /// From now on there are other rows: each comes from the present row that `sources` names.
    ///
    /// # Errors
    /// [`TransformFault::Rows`] if they are too many.
    pub(super) fn replace_rows(&mut self, sources: &[usize]) -> Result<(), TransformFault> {
        if sources.len() > GLUE_ROWS_MAX {
            return Err(TransformFault::Rows);
        }
        for origin in &mut self.origins {
            *origin = sources.iter().map(|source| origin[*source]).collect();
        }
        self.origins.push((0..sources.len()).collect());
        Ok(())
    }

    /// A tensor with a row for each present row.
    ///
    /// # Errors
    /// [`TransformFault::Bytes`] if it is too large.
    pub(super) fn gathered(&self, name: &str) -> Result<Tensor, TransformFault> {
        let Variable { tensor, level } = self.variable(name);
        if *level + 1 == self.origins.len() {
            return Ok(tensor.clone());
        }
        gather(tensor, &self.origins[*level])
    }
}

/// The rows of a tensor at these positions.
fn gather(tensor: &Tensor, at: &[usize]) -> Result<Tensor, TransformFault> {
    let mut shape = tensor.shape.clone();
    let inner = &tensor.shape[1..];
    let bytes = bytes_of(&tensor.name, tensor.datatype, at.len(), inner)?;
    if tensor.datatype == Datatype::Bytes {
        let rows = tensor.each_row();
        let total: usize = at.iter().map(|row| rows[*row].data.len()).sum();
        bytes_of(&tensor.name, Datatype::Uint8, total, &[])?;
        let picked: Vec<&Tensor> = at.iter().map(|row| &rows[*row]).collect();
        return Ok(concatenate(&picked).unwrap_or_else(|| tensor.slice(0, 0)));
    }
    let each: usize = inner.iter().product::<usize>() * tensor.datatype.size();
    let mut data = Vec::with_capacity(bytes);
    at.iter().for_each(|row| data.extend_from_slice(&tensor.data[row * each..(row + 1) * each]));
    shape[0] = at.len();
    Ok(Tensor { name: tensor.name.clone(), datatype: tensor.datatype, shape, data: data.into() })
}
