//! A loaded replica: a thread of its own that loads the variant and runs its batches one after the other.

use crate::backend::{Loader, Wanted};
use crate::causes::describe;
use crate::tensor::{Datatype, Tensor, TensorSpec};
use bytes::Bytes;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What a slot reports.
#[derive(Debug)]
pub enum Happened {
    /// It is loaded and warm.
    Ready,
    /// It could not be loaded, or its thread died.
    Failed(String),
    /// A batch is done: its outputs or why there are none, and how long it took.
    Batch(Result<Vec<Tensor>, String>, Duration),
}

struct Batch {
    inputs: Vec<Tensor>,
    hold: Duration,
}

/// The handle to a slot; dropping it unloads the variant after the batch at hand.
pub struct Slot {
    batches: mpsc::Sender<Batch>,
}

impl Slot {
    /// Starts the thread; `report` is called from it.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn start(
        name: String,
        wanted: Wanted,
        loader: Loader,
        report: impl Fn(Happened) + Send + 'static,
    ) -> std::io::Result<Slot> {
        let (batches, inbox) = mpsc::channel();
        std::thread::Builder::new().name(name).spawn(move || serve(&wanted, &loader, &inbox, &report))?;
        Ok(Slot { batches })
    }

    /// Runs a batch; the device is held for at least `hold`. False if the thread is gone.
    pub fn run(&self, inputs: Vec<Tensor>, hold: Duration) -> bool {
        self.batches.send(Batch { inputs, hold }).is_ok()
    }
}

fn serve(wanted: &Wanted, loader: &Loader, inbox: &mpsc::Receiver<Batch>, report: &impl Fn(Happened)) {
    let mut backend = match loader.load(wanted) {
        Ok(backend) => backend,
        Err(error) => return report(Happened::Failed(describe(&error))),
    };
    let zeros: Vec<Tensor> = backend.signature().inputs.iter().map(zero_row).collect();
    if let Err(error) = backend.run(&zeros) {
        // Zeros need not be a valid input; a variant that cannot run at all shows it at its first batch.
        tracing::warn!(variant = wanted.group.variant, %error, "the warm-up batch failed");
    }
    report(Happened::Ready);
    while let Ok(batch) = inbox.recv() {
        let start = Instant::now();
        let run = std::panic::AssertUnwindSafe(|| backend.run(&batch.inputs));
        let result = match std::panic::catch_unwind(run) {
            Ok(result) => result.map_err(|e| e.to_string()),
            Err(_) => Err("the backend panicked".to_string()),
        };
        std::thread::sleep(batch.hold.saturating_sub(start.elapsed()));
        report(Happened::Batch(result, start.elapsed()));
    }
}

/// One row of zeros of this kind; open dimensions are 1.
#[must_use]
pub fn zero_row(spec: &TensorSpec) -> Tensor {
    let shape: Vec<usize> = spec.shape.iter().map(|d| usize::try_from(*d).unwrap_or(1)).collect();
    zeros(spec, shape)
}

fn zeros(spec: &TensorSpec, shape: Vec<usize>) -> Tensor {
    let data = Bytes::from(vec![0; shape.iter().product::<usize>() * spec.datatype.size()]);
    Tensor { name: spec.name.clone(), datatype: spec.datatype, shape, data }
}

/// No rows of this kind.
#[must_use]
pub fn no_rows(spec: &TensorSpec) -> Tensor {
    let mut shape: Vec<usize> = spec.shape.iter().map(|d| usize::try_from(*d).unwrap_or(0)).collect();
    if let Some(rows) = shape.first_mut() {
        *rows = 0;
    }
    zeros(spec, shape)
}

/// The rows of all parts under each other; none if their names, types or row shapes differ.
#[must_use]
pub fn concatenate(parts: &[&Tensor]) -> Option<Tensor> {
    let first = *parts.first()?;
    if parts.len() == 1 {
        return Some(first.clone());
    }
    let same = |t: &&Tensor| {
        t.name == first.name
            && t.datatype == first.datatype
            && t.shape.get(1..) == first.shape.get(1..)
            && !t.shape.is_empty()
    };
    if !parts.iter().all(same) {
        return None;
    }
    let mut data = Vec::with_capacity(parts.iter().map(|t| t.data.len()).sum());
    parts.iter().for_each(|t| data.extend_from_slice(&t.data));
    let mut shape = first.shape.clone();
    shape[0] = parts.iter().map(|t| t.rows()).sum();
    Some(Tensor { name: first.name.clone(), datatype: first.datatype, shape, data: data.into() })
}

/// The whole numbers of an int64 tensor; none if it is another.
#[must_use]
pub fn int64s(tensor: &Tensor) -> Option<Vec<i64>> {
    let number = |b: &[u8]| i64::from_le_bytes(b.try_into().expect("chunks of 8"));
    (tensor.datatype == Datatype::Int64).then(|| tensor.data.chunks_exact(8).map(number).collect())
}
