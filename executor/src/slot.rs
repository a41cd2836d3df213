//! A loaded replica: a thread of its own loads the variant and runs its batches one after the other, but for those that
//! are over sooner than the thread would wake.

use crate::backend::{Backend, BackendError, Kind, Loader, Wanted};
use crate::causes::describe;
use crate::parts::contained;
use crate::tensor::{Datatype, Tensor, TensorSpec};
use bytes::Bytes;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// What a slot reports.
#[derive(Debug)]
pub enum Happened {
    /// It is loaded and warm.
    Ready,
    /// It could not be loaded, or its thread died.
    Failed(String),
    /// A batch is done: its outputs or why there are none, and how long it took.
    Batch(Result<Vec<Tensor>, Fault>, Duration),
}

/// Why a batch has no outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// In words.
    pub why: String,
    /// Whether another batch might have done well at this moment: then what is wrong may lie with one of its members.
    pub is_of_batch: bool,
}

impl Fault {
    /// What may lie with one of its members.
    #[must_use]
    pub fn of_batch(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_of_batch: true }
    }
}

/// Longest batch, by its profile, that is run where it is started: to hand it to the replica's thread and back takes longer.
pub const QUICK_MAX: Duration = Duration::from_micros(20);
/// How late the system's sleep is.
const SLEEP_LATE: Duration = Duration::from_micros(60);
/// A batch that ran there and took so long was not quick.
const SLOW_MIN: Duration = Duration::from_millis(1);
/// After so many of those in a row, all batches of the slot go to its thread: the profile is wrong.
const SLOW_RUNS_MAX: u32 = 3;

struct Batch {
    inputs: Vec<Tensor>,
    /// When it was started, and for how long from then on the device is held at least.
    begun: Instant,
    hold: Duration,
}

/// What has become of a batch.
#[derive(Debug)]
pub enum Ran {
    /// It has ended.
    Now(Happened),
    /// It is run; the report follows.
    Later,
}

/// The loaded variant; one batch at a time is run, so nobody waits for the lock.
type Loaded = Arc<OnceLock<Mutex<Box<dyn Backend>>>>;

/// The handle to a slot; dropping it unloads the variant after the batch at hand.
pub struct Slot {
    /// Before `batches`: the thread has the last hold of the variant, for to unload a large one takes long.
    loaded: Loaded,
    batches: mpsc::Sender<Batch>,
    /// Quick batches that were not, in a row; [`SLOW_RUNS_MAX`]: none is taken for quick.
    slow_runs: u32,
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
        let loaded = Loaded::default();
        // Another server's answer is never quick, whatever the profile says.
        let slow_runs = if loader.kind() == Kind::Remote { SLOW_RUNS_MAX } else { 0 };
        let of_thread = loaded.clone();
        std::thread::Builder::new().name(name).spawn(move || serve(&wanted, &loader, &of_thread, &inbox, &report))?;
        Ok(Slot { loaded, batches, slow_runs })
    }

    /// Runs a batch that should take `expected`; the device is held for at least `hold`. None if the thread is gone.
    pub fn run(&mut self, inputs: Vec<Tensor>, expected: Duration, hold: Duration) -> Option<Ran> {
        if expected <= QUICK_MAX
            && self.slow_runs < SLOW_RUNS_MAX
            && let Some(backend) = self.loaded.get()
        {
            let happened = run(backend, &Batch { inputs, begun: Instant::now(), hold });
            let was_slow = matches!(&happened, Happened::Batch(_, took) if *took >= SLOW_MIN);
            self.slow_runs = if was_slow { self.slow_runs + 1 } else { 0 };
            return Some(Ran::Now(happened));
        }
        self.batches.send(Batch { inputs, begun: Instant::now(), hold }).is_ok().then_some(Ran::Later)
    }
}

fn serve(wanted: &Wanted, loader: &Loader, loaded: &Loaded, inbox: &mpsc::Receiver<Batch>, report: &impl Fn(Happened)) {
    let mut backend = match contained(|| loader.load(wanted)) {
        Ok(Ok(backend)) => backend,
        Ok(Err(error)) => return report(Happened::Failed(describe(&error))),
        Err(words) => return report(Happened::Failed(format!("the backend panicked while it was loaded: {words}"))),
    };
    let zeros: Vec<Tensor> = backend.signature().inputs.iter().map(zero_row).collect();
    let warm = contained(|| backend.run(&zeros));
    if let Err(error) = warm.unwrap_or_else(|words| Err(BackendError::Run(format!("the backend panicked: {words}")))) {
        // Zeros need not be a valid input; a variant that cannot run at all shows it at its first batch.
        tracing::warn!(variant = wanted.group.variant, %error, "the warm-up batch failed");
    }
    let backend = loaded.get_or_init(|| Mutex::new(backend));
    report(Happened::Ready);
    while let Ok(batch) = inbox.recv() {
        report(run(backend, &batch));
    }
}

/// Runs a batch here and now. A device that is held is an emulated one: it is busy from when the batch was started, and not only
/// since this thread has woken, or it would be slower than its profile by that with every batch.
fn run(backend: &Mutex<Box<dyn Backend>>, batch: &Batch) -> Happened {
    let start = if batch.hold.is_zero() { Instant::now() } else { batch.begun };
    let mut backend = backend.lock().unwrap_or_else(PoisonError::into_inner);
    let result = match contained(|| backend.run(&batch.inputs)) {
        Ok(result) => result.map_err(|e| Fault { why: e.to_string(), is_of_batch: e.is_of_batch() }),
        Err(words) => Err(Fault::of_batch(format!("the backend panicked: {words}"))),
    };
    wait_until(start + batch.hold);
    Happened::Batch(result, start.elapsed())
}

/// Waits until a moment. The system's sleep is late by about 60 us: that much of it is not slept.
pub fn wait_until(moment: Instant) {
    let left = || moment.saturating_duration_since(Instant::now());
    let slept = left().saturating_sub(SLEEP_LATE);
    if slept > QUICK_MAX {
        std::thread::sleep(slept);
    }
    while !left().is_zero() {
        std::hint::spin_loop();
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

#[cfg(test)]
mod tests;
