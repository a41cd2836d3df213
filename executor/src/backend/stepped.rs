//! How does a model with state make its answers step by step, for queries that join and leave between two steps?
//!
//! Example: a decoder has the input `past.cache` and the output `present.cache`. Query 1 has made three steps when query 2
//! joins. The next step runs both in one batch: query 1 with its cache, query 2 with zeros. When the output `done` of
//! query 1 is true, its outputs are its answer, and query 2 goes on (PARD section 7; Orca's iteration-level batches).

use super::batch::check_inputs;
use super::interface::{EndedQuery, SteppedQuery, Stepping};
use super::{Backend, BackendError, Signature};
pub use apportion_domain::tensor::{DONE, PAST, PRESENT};
use apportion_node::node::split::{CHILD, PARENT};
use apportion_node::tensor::{Datatype, Tensor, TensorSignature, concatenate, no_rows, zero_row};
use std::collections::BTreeMap;

/// Steps after which a query fails. A model that never says `done` would keep its slot for ever.
pub const STEPS_MAX: u32 = 4_096;

/// Why a model file cannot run the queries of a continuous task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SteppingError {
    /// It has no state.
    #[error("it has no state: expected an input {PAST}NAME and an output {PRESENT}NAME for each state tensor")]
    NoState,
    /// A state has an input or an output only, or the two differ.
    #[error(
        "state {name}: expected an input {PAST}{name} and an output {PRESENT}{name} of one datatype and shape, the rows \
         first and all other dimensions fixed, at most 1 GiB for a row"
    )]
    State {
        /// The state's name.
        name: String,
    },
    /// It does not say when a query has ended.
    #[error("expected an output {DONE} of BOOL, one value for each row, which is true when the query has ended")]
    Done,
    /// It has no inputs or no outputs beyond the state.
    #[error("expected an input and an output that are no state")]
    Empty,
    /// It makes several rows of a query.
    #[error("output {0}: a continuous task makes one row of each query")]
    Rows(String),
}

/// Most bytes of one state of one query.
const STATE_BYTES_MAX: u64 = 1 << 30;

/// Bytes of one row; `None` if a dimension is not fixed, or the product is too large for a number.
fn row_bytes(tensor: &TensorSignature) -> Option<u64> {
    let element = tensor.datatype.size() as u64;
    tensor.shape.iter().skip(1).try_fold(element, |bytes, d| bytes.checked_mul(u64::try_from(*d).ok()?))
}

/// A state tensor.
struct StateTensor {
    past: TensorSignature,
    present: String,
}

/// A model that is run step by step.
pub struct SteppedBackend {
    model: Box<dyn Backend>,
    states: Vec<StateTensor>,
    /// Of whole queries, without state.
    signature: Signature,
}

impl SteppedBackend {
    /// Runs this model step by step.
    ///
    /// # Errors
    /// [`SteppingError`] if its tensors do not follow the convention.
    pub fn new(model: Box<dyn Backend>) -> Result<Self, SteppingError> {
        let Signature { inputs, outputs } = model.signature().clone();
        let states = states(&inputs, &outputs)?;
        let is_done = |o: &&TensorSignature| o.name == DONE && o.datatype == Datatype::Bool;
        if !outputs.iter().filter(is_done).any(|o| o.shape.iter().skip(1).all(|d| *d == 1)) {
            return Err(SteppingError::Done);
        }
        let inputs: Vec<_> = inputs.into_iter().filter(|i| !i.name.starts_with(PAST)).collect();
        let is_answer = |o: &TensorSignature| !o.name.starts_with(PRESENT) && o.name != DONE;
        let outputs: Vec<_> = outputs.into_iter().filter(is_answer).collect();
        if let Some(several) = outputs.iter().find(|o| o.name == PARENT || o.name == CHILD) {
            return Err(SteppingError::Rows(several.name.clone()));
        }
        if inputs.is_empty() || outputs.is_empty() {
            return Err(SteppingError::Empty);
        }
        Ok(Self { model, states, signature: Signature { inputs, outputs } })
    }

    /// One step of queries whose tensors have the same shapes. If it fails, each makes the step alone: one query's inputs
    /// harm no other query.
    fn step_alike(&mut self, queries: Vec<SteppedQuery>, going_on: &mut Vec<SteppedQuery>, ended: &mut Vec<EndedQuery>) {
        match self.outputs_of(&queries) {
            Ok(outputs) => {
                for (row, query) in queries.into_iter().enumerate() {
                    match self.advanced(query, &outputs, row) {
                        Ok(query) => going_on.push(query),
                        Err(end) => ended.push(end),
                    }
                }
            }
            Err(error) if queries.len() == 1 => {
                ended.extend(queries.first().map(|query| EndedQuery { slot: query.slot, result: Err(error) }));
            }
            Err(_) => queries.into_iter().for_each(|query| self.step_alike(vec![query], going_on, ended)),
        }
    }

    /// The outputs of the model for one step of these queries, a row for each.
    fn outputs_of(&mut self, queries: &[SteppedQuery]) -> Result<Vec<Tensor>, BackendError> {
        let count = queries.first().map_or(0, |query| query.tensors.len());
        let input = |at: usize| concatenate(&queries.iter().map(|query| &query.tensors[at]).collect::<Vec<_>>());
        let inputs: Option<Vec<Tensor>> = (0..count).map(input).collect();
        let inputs = inputs.ok_or_else(|| BackendError::Run("the queries of a step do not fit together".to_owned()))?;
        let outputs = self.model.run(&inputs)?;
        match outputs.iter().find(|tensor| tensor.rows() != queries.len()) {
            Some(odd) => {
                let (name, found, expected) = (&odd.name, odd.rows(), queries.len());
                Err(BackendError::Run(format!("output {name} has {found} rows: expected {expected}, one for each query")))
            }
            None => Ok(outputs),
        }
    }

    /// A query after a step; if it has ended, its end.
    fn advanced(&self, query: SteppedQuery, outputs: &[Tensor], row: usize) -> Result<SteppedQuery, EndedQuery> {
        let SteppedQuery { slot, mut tensors, steps } = query;
        let named = |name: &str| outputs.iter().find(|tensor| tensor.name == name).map(|tensor| tensor.row(row));
        if named(DONE).is_some_and(|done| done.data.first().is_some_and(|byte| *byte != 0)) {
            let answer = self.signature.outputs.iter().filter_map(|output| named(&output.name)).collect();
            return Err(EndedQuery { slot, result: Ok(answer) });
        }
        if steps + 1 >= STEPS_MAX {
            let why = format!("no end after {STEPS_MAX} steps: expected the output {DONE} to be true by then");
            return Err(EndedQuery { slot, result: Err(BackendError::Run(why)) });
        }
        for state in &self.states {
            let past = tensors.iter_mut().find(|tensor| tensor.name == state.past.name);
            if let (Some(past), Some(present)) = (past, named(&state.present)) {
                (past.shape, past.data) = (present.shape, present.data);
            }
        }
        Ok(SteppedQuery { slot, tensors, steps: steps + 1 })
    }
}

/// The state tensors of a model: each input with its output.
fn states(inputs: &[TensorSignature], outputs: &[TensorSignature]) -> Result<Vec<StateTensor>, SteppingError> {
    let mut states = Vec::new();
    for past in inputs {
        let Some(name) = past.name.strip_prefix(PAST) else { continue };
        let present = format!("{PRESENT}{name}");
        let is_same = |o: &TensorSignature| o.name == present && (o.datatype, &o.shape) == (past.datatype, &past.shape);
        let has_rows = past.shape.first() == Some(&-1);
        if !has_rows || !outputs.iter().any(is_same) || row_bytes(past).is_none_or(|bytes| bytes > STATE_BYTES_MAX) {
            return Err(SteppingError::State { name: name.to_owned() });
        }
        states.push(StateTensor { past: past.clone(), present });
    }
    let mut made = outputs.iter().filter_map(|output| output.name.strip_prefix(PRESENT));
    let is_known = |name: &str| states.iter().any(|state| state.present.strip_prefix(PRESENT) == Some(name));
    if let Some(name) = made.find(|name| !is_known(name)) {
        return Err(SteppingError::State { name: name.to_owned() });
    }
    if states.is_empty() { Err(SteppingError::NoState) } else { Ok(states) }
}

/// The shapes of a query's tensors.
fn shapes_of(query: &SteppedQuery) -> impl Iterator<Item = &[usize]> {
    query.tensors.iter().map(|tensor| tensor.shape.as_slice())
}

impl Stepping for SteppedBackend {
    fn begin(&self, slot: u32, inputs: &[Tensor]) -> Result<SteppedQuery, BackendError> {
        check_inputs(&self.signature.inputs, inputs)?;
        let given = self.signature.inputs.iter().filter_map(|spec| inputs.iter().find(|input| input.name == spec.name));
        let state = self.states.iter().map(|state| zero_row(&state.past));
        Ok(SteppedQuery { slot, tensors: given.cloned().chain(state).collect(), steps: 0 })
    }

    fn step(&mut self, running: &mut Vec<SteppedQuery>) -> Vec<EndedQuery> {
        let mut ended = Vec::new();
        let mut rest = std::mem::take(running);
        rest.sort_by(|a, b| shapes_of(a).cmp(shapes_of(b)));
        while let Some(first) = rest.first() {
            let alike = rest.iter().take_while(|query| shapes_of(query).eq(shapes_of(first))).count();
            let later = rest.split_off(alike);
            self.step_alike(rest, running, &mut ended);
            rest = later;
        }
        ended
    }
}

impl Backend for SteppedBackend {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Each row is a query, and all of them begin together. The outputs are there when the last one has ended.
    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        check_inputs(&self.signature.inputs, inputs)?;
        let rows = inputs.first().map_or(0, Tensor::rows);
        let columns: Vec<Vec<Tensor>> = inputs.iter().map(Tensor::each_row).collect();
        let mut running = Vec::new();
        for row in 0..rows {
            let of_row: Vec<Tensor> = columns.iter().map(|column| column[row].clone()).collect();
            running.push(self.begin(row as u32, &of_row)?);
        }
        let mut answers: BTreeMap<u32, Vec<Tensor>> = BTreeMap::new();
        while !running.is_empty() {
            for EndedQuery { slot, result } in self.step(&mut running) {
                answers.insert(slot, result?);
            }
        }
        let output = |(at, spec): (usize, &TensorSignature)| {
            let parts: Vec<&Tensor> = answers.values().filter_map(|answer| answer.get(at)).collect();
            let unlike = || BackendError::Run(format!("output {}: its rows have different shapes", spec.name));
            if parts.is_empty() {
                return Ok(no_rows(spec));
            }
            concatenate(&parts).ok_or_else(unlike)
        };
        self.signature.outputs.iter().enumerate().map(output).collect()
    }

    fn stepping(&mut self) -> Option<&mut dyn Stepping> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
