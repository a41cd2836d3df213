//! How does the thread of a measurer work? It keeps the loaded variant from one batch size to the next.

use crate::backend::{Backend, BackendError, BackendKind, BackendLoader, ReplicaVariant};
use crate::causes::describe;
use crate::measuring::drawn::{DrawError, drawn_inputs};
use crate::measuring::held::HeldBackend;
use crate::measuring::point::{PointRule, time_point};
use crate::measuring::provenance::{DeviceProvenance, VERSION};
use crate::measuring::rows::windows;
use crate::measuring::stats::{ProfilePoint, fit_profile};
use crate::parts::{CallPanic, contained};
use apportion_node::layout::{LayoutGroup, LayoutTask};
use apportion_protocol::v1;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::sync::watch;

/// The numbers of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OrderNumbers {
    pub(super) claim: u64,
    pub(super) point: u64,
}

impl OrderNumbers {
    pub(super) fn of(order: &v1::Measure) -> Self {
        Self { claim: order.claim, point: order.point }
    }

    /// The answer with these numbers, and nothing else yet.
    pub(super) fn answer(self) -> v1::Measurement {
        v1::Measurement { claim: self.claim, point: self.point, ..Default::default() }
    }
}

/// How batches of emulated devices are paced, as in service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Emulation {
    /// Batches take at least as long as their profile says.
    pub(super) is_paced: bool,
    /// Multiple of the profile.
    pub(super) slowness: f64,
}

/// One batch size of a variant to measure.
pub(super) struct PointWork {
    pub(super) numbers: OrderNumbers,
    pub(super) task: LayoutTask,
    pub(super) group: LayoutGroup,
    pub(super) device: u32,
    pub(super) batch: u32,
    pub(super) time_max: Duration,
    /// Inner sizes of inputs that the file leaves open.
    pub(super) sizes: BTreeMap<String, Vec<usize>>,
    /// The model file; `None` for backends without one.
    pub(super) file: Option<PathBuf>,
    pub(super) is_stopped: Arc<AtomicBool>,
}

/// Why a batch size was not measured.
#[derive(Debug, thiserror::Error)]
enum PointError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Inputs(#[from] DrawError),
    #[error("the backend panicked: {0}")]
    Panic(#[from] CallPanic),
}

/// A loaded variant.
struct LoadedVariant {
    claim: u64,
    variant: String,
    file: Option<PathBuf>,
    backend: Box<dyn Backend>,
    /// Asked once: a driver takes a while to answer.
    provenance: DeviceProvenance,
}

impl LoadedVariant {
    fn is_of(&self, work: &PointWork) -> bool {
        self.claim == work.numbers.claim && self.variant == work.group.variant && self.file == work.file
    }
}

/// The thread. It ends, and unloads its variant, when nobody can give it work.
#[derive(Clone)]
pub(super) struct Worker(mpsc::Sender<PointWork>);

impl Worker {
    /// Starts the thread; it tells its results.
    ///
    /// # Errors
    /// If the system has no thread.
    pub(super) fn start(
        loader: BackendLoader,
        emulation: Emulation,
        told: Arc<watch::Sender<Option<v1::Measurement>>>,
    ) -> std::io::Result<Self> {
        let (sender, works) = mpsc::channel::<PointWork>();
        let work_off = move || {
            let mut loaded = None;
            for work in works {
                let numbers = work.numbers;
                let is_stopped = work.is_stopped.clone();
                let answer = match measure(&loader, emulation, &mut loaded, work) {
                    Ok(None) => continue,
                    Ok(Some(measured)) => v1::Measurement { claim: numbers.claim, point: numbers.point, ..measured },
                    Err(error) => v1::Measurement { error: describe(&error), ..numbers.answer() },
                };
                if !is_stopped.load(Ordering::Relaxed) {
                    told.send_replace(Some(answer));
                }
            }
        };
        std::thread::Builder::new().name("measuring".into()).spawn(work_off)?;
        Ok(Self(sender))
    }

    /// Gives it work. A thread that has ended does nothing.
    pub(super) fn give(&self, work: PointWork) {
        let _ended = self.0.send(work);
    }
}

/// Measures a batch size; `None` if it is stopped meanwhile.
fn measure(
    loader: &BackendLoader,
    emulation: Emulation,
    loaded: &mut Option<LoadedVariant>,
    work: PointWork,
) -> Result<Option<v1::Measurement>, PointError> {
    let is_stopped = || work.is_stopped.load(Ordering::Relaxed);
    if is_stopped() {
        return Ok(None);
    }
    let mut variant = match loaded.take_if(|loaded| loaded.is_of(&work)) {
        Some(known) => known,
        None => {
            // Two variants never share the memory.
            drop(loaded.take());
            load(loader, emulation, &work)?
        }
    };
    let rule = PointRule { time_max: work.time_max, ..PointRule::default() };
    let inputs = drawn_inputs(&variant.backend.signature().inputs, &work.sizes, work.batch as usize)?;
    let timed = contained(|| {
        let batches = windows(&inputs, work.batch);
        time_point(variant.backend.as_mut(), &batches, work.batch, &rule, &is_stopped)
    })??;
    let provenance = variant.provenance.clone();
    *loaded = Some(variant);
    let Some(times) = timed else { return Ok(None) };
    Ok(Some(measurement(&fit_profile(&[times], 1.0).remove(0), provenance)))
}

fn load(loader: &BackendLoader, emulation: Emulation, work: &PointWork) -> Result<LoadedVariant, PointError> {
    let (task, group) = (work.task.clone(), work.group.clone());
    let wanted = ReplicaVariant { file: work.file.clone(), task, group: group.clone(), device: work.device };
    let inner = contained(|| loader.load(&wanted))??;
    let is_held = emulation.is_paced || loader.kind() == BackendKind::Emulated;
    let backend: Box<dyn Backend> =
        if is_held { Box::new(HeldBackend::new(inner, group, emulation.slowness)) } else { inner };
    let (claim, variant) = (work.numbers.claim, work.group.variant.clone());
    let provenance = contained(|| DeviceProvenance::of(loader, work.device)).unwrap_or_default();
    Ok(LoadedVariant { claim, variant, file: work.file.clone(), backend, provenance })
}

fn measurement(point: &ProfilePoint, DeviceProvenance { device, software }: DeviceProvenance) -> v1::Measurement {
    v1::Measurement {
        median_ms: point.latency_ms,
        p95_ms: point.p95_ms,
        p99_ms: point.p99_ms,
        runs: point.repeats,
        warm_up_runs: point.conditions.warm_up_runs,
        steady: point.conditions.is_steady,
        noise: point.conditions.noise,
        median_low_ms: point.median.low,
        median_high_ms: point.median.high,
        p99_low_ms: point.tail.low,
        p99_high_ms: point.tail.high,
        device,
        software,
        version: VERSION.to_owned(),
        ..Default::default()
    }
}
