//! How does an agent measure a variant for a profile job?
//!
//! The work is done on a thread of its own, and only on a device without replicas. A replica that comes to the device ends
//! it at once: serving has precedence.

mod worker;

use super::handle::AgentOptions;
use crate::backend::BackendLoader;
use crate::files::Files;
use crate::parts::part;
use apportion_node::layout::{LayoutGroup, LayoutTask, lay_out};
use apportion_protocol::v1;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use worker::{Emulation, OrderNumbers, PointWork, Worker};

/// Largest batch of an order.
const BATCH_MAX: u32 = 4_096;
/// Longest time of one batch size.
const TIME_MAX: Duration = Duration::from_secs(3_600);

/// Whether a device can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceOccupancy {
    /// It has no replica.
    Free,
    /// It has one.
    Replicas,
}

/// Why an order cannot be carried out, whatever the device.
#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error("batch {0}: expected 1 to {BATCH_MAX}")]
    Batch(u32),
    #[error("the order names no {0}")]
    Missing(&'static str),
    #[error("{0}")]
    Layout(String),
    #[error("the pipeline has no model file for it: register it with `apportion profile --register`")]
    NoFile,
}

/// The last order, until another one comes.
struct LastOrder {
    numbers: OrderNumbers,
    device: u32,
    /// Set when it must end without an answer.
    is_stopped: Arc<AtomicBool>,
}

/// Carries out orders to measure, one at a time.
pub(super) struct Measurer {
    loader: BackendLoader,
    files: Files,
    emulation: Emulation,
    told: Arc<watch::Sender<Option<v1::Measurement>>>,
    last: Option<LastOrder>,
    worker: Option<Worker>,
}

impl Measurer {
    pub(super) fn new(options: &AgentOptions) -> Self {
        let emulation = Emulation { is_paced: options.pace, slowness: options.slowness };
        let (loader, files) = (options.loader.clone(), options.files.clone());
        Self { loader, files, emulation, told: Arc::new(watch::Sender::new(None)), last: None, worker: None }
    }

    /// Where the answers are.
    pub(super) fn told(&self) -> watch::Receiver<Option<v1::Measurement>> {
        self.told.subscribe()
    }

    /// Carries out an order instead of the last one. The same order again changes nothing.
    pub(super) fn obey(&mut self, order: v1::Measure, occupancy: DeviceOccupancy) {
        let numbers = OrderNumbers::of(&order);
        match &self.last {
            Some(last) if last.numbers == numbers && !last.is_stopped.load(Ordering::Relaxed) => return,
            Some(last) if last.numbers.claim > numbers.claim => {
                return tracing::warn!(claim = numbers.claim, "an order of an older claim is not carried out");
            }
            Some(last) => last.is_stopped.store(true, Ordering::Relaxed),
            None => {}
        }
        let is_stopped = Arc::new(AtomicBool::new(false));
        self.last = Some(LastOrder { numbers, device: order.device, is_stopped: is_stopped.clone() });
        if occupancy == DeviceOccupancy::Replicas {
            return self.give_way("the device has a replica");
        }
        match self.prepare(&order, is_stopped) {
            Ok(work) => self.start(work),
            Err(error) => self.tell(v1::Measurement { error: error.to_string(), ..numbers.answer() }),
        }
    }

    /// Ends what is done for a claim, and unloads its variant.
    pub(super) fn stop(&mut self, claim: u64) {
        if let Some(last) = self.last.take_if(|last| last.numbers.claim <= claim) {
            last.is_stopped.store(true, Ordering::Relaxed);
            self.worker = None;
        }
    }

    /// Forgets all orders: another database numbers its claims anew.
    pub(super) fn forget(&mut self) {
        self.stop(u64::MAX);
        self.told.send_replace(None);
    }

    /// A replica comes to this device: what is measured there ends.
    pub(super) fn yield_device(&mut self, device: u32) {
        let is_at_work = |last: &LastOrder| last.device == device && !last.is_stopped.load(Ordering::Relaxed);
        if self.last.as_ref().is_some_and(is_at_work) {
            self.give_way("a replica came to the device");
        }
    }

    fn give_way(&mut self, why: &str) {
        let Some(last) = &self.last else { return };
        last.is_stopped.store(true, Ordering::Relaxed);
        let answer = v1::Measurement { yielded: why.to_owned(), ..last.numbers.answer() };
        self.worker = None;
        self.tell(answer);
    }

    fn tell(&self, answer: v1::Measurement) {
        self.told.send_replace(Some(answer));
    }

    /// The work of an order, without the model file.
    fn prepare(&self, order: &v1::Measure, is_stopped: Arc<AtomicBool>) -> Result<PointWork, OrderError> {
        if !(1..=BATCH_MAX).contains(&order.batch) {
            return Err(OrderError::Batch(order.batch));
        }
        let OrderedVariant { task, group } = variant_of(order)?;
        if self.loader.needs_file() && group.digest.is_empty() {
            return Err(OrderError::NoFile);
        }
        let sizes = order.sizes.iter().map(|input| {
            let sizes: Vec<usize> = input.sizes.iter().map(|size| usize::try_from(*size).unwrap_or(usize::MAX)).collect();
            (input.input.clone(), sizes)
        });
        Ok(PointWork {
            numbers: OrderNumbers::of(order),
            task,
            group,
            device: order.device,
            batch: order.batch,
            time_max: Duration::from_millis(order.time_max_ms.into()).min(TIME_MAX),
            sizes: sizes.collect(),
            file: None,
            is_stopped,
        })
    }

    /// Fetches the model file, then hands the work to the thread.
    fn start(&mut self, work: PointWork) {
        let started = match &self.worker {
            Some(worker) => Ok(worker.clone()),
            None => Worker::start(self.loader.clone(), self.emulation, self.told.clone()),
        };
        let worker = match started {
            Ok(worker) => self.worker.insert(worker).clone(),
            Err(error) => {
                let error = format!("the system has no thread to measure: {error}");
                return self.tell(v1::Measurement { error, ..work.numbers.answer() });
            }
        };
        let (files, told) = (self.files.clone(), self.told.clone());
        let digest = self.loader.needs_file().then(|| work.group.digest.clone());
        tokio::spawn(part("measuring", async move {
            let file: Option<PathBuf> = match digest {
                None => None,
                Some(digest) => match files.get(&digest).await {
                    Ok(file) => Some(file),
                    Err(error) => {
                        if !work.is_stopped.load(Ordering::Relaxed) {
                            told.send_replace(Some(v1::Measurement { error: error.to_string(), ..work.numbers.answer() }));
                        }
                        return;
                    }
                },
            };
            worker.give(PointWork { file, ..work });
        }));
    }
}

/// The variant of an order, as a plan with it alone would name it.
struct OrderedVariant {
    task: LayoutTask,
    group: LayoutGroup,
}

fn variant_of(order: &v1::Measure) -> Result<OrderedVariant, OrderError> {
    let task = order.task.clone().ok_or(OrderError::Missing("task"))?;
    let group = order.group.clone().ok_or(OrderError::Missing("variant"))?;
    let pipeline = v1::PipelineTarget {
        name: task.name.clone(),
        tasks: vec![v1::TaskTarget { one_of: false, ..task }],
        groups: vec![v1::GroupTarget { group: 0, task: 0, fanout: Vec::new(), ..group }],
        ..Default::default()
    };
    let fence = Some(v1::Fence::default());
    let layout = lay_out(&v1::Target { fence, pipelines: vec![pipeline], ..Default::default() });
    let layout = layout.map_err(|error| OrderError::Layout(error.to_string()))?;
    let alone = layout.pipelines.into_values().next().ok_or(OrderError::Missing("task"))?;
    let task = alone.tasks.first().cloned().ok_or(OrderError::Missing("task"))?;
    let group = alone.groups.values().next().cloned().ok_or(OrderError::Missing("variant"))?;
    Ok(OrderedVariant { task, group })
}

#[cfg(test)]
mod tests;
