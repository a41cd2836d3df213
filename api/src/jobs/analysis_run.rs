//! How does an analysis run on its thread, and what is ready of it?

use crate::analyses::comparison::{ComparisonRequest, ComparisonWatch};
use crate::analyses::frontier::{FrontierError, FrontierRequest, FrontierWatch};
use crate::analyses::load::with_demand;
use crate::analyses::simulation::{SimulationInput, SimulationRequest};
use crate::documents;
use crate::store::analyses::{AnalysisInputRow, ReadyPoints};
use apportion_domain::{ArrivalTrace, Plan, Problem};
use apportion_estimator::bounds::LOOK_EVERY;
use apportion_estimator::{SimulateError, SimulateOptions, Stop, expected_visits};
use apportion_planning::REPLAY_VISITS_MAX;
use apportion_wire::{AnalysisKind, BadInput};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The parts of a simulation's progress: percent.
const PERCENT: i32 = 100;
/// Steps of work of one query: it is made, and it ends.
const WORK_PER_VISIT: f64 = 2.0;

/// An analysis with its input, ready to run.
pub(super) enum AnalysisTask {
    /// One plan replays a load.
    Simulation { request: SimulationRequest, problem: Problem, plan: Plan },
    /// Plans while one value varies.
    Frontier { request: FrontierRequest, problem: Problem },
    /// Planners side by side.
    Comparison { request: ComparisonRequest, problem: Problem },
}

/// Why an analysis has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnalysisError {
    /// Its input cannot be read.
    #[error(transparent)]
    Input(#[from] BadInput),
    /// Its request cannot be read: another release wrote it.
    #[error("the request cannot be read: {0}")]
    Request(serde_json::Error),
    /// The estimator refuses it.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// There is no frontier.
    #[error(transparent)]
    Frontier(#[from] FrontierError),
}

/// The traces of an analysis, by the text that its request has for each.
pub(super) type TracesById = BTreeMap<String, ArrivalTrace>;

impl AnalysisTask {
    /// The analysis of a row.
    ///
    /// # Errors
    /// If problem, plan or request cannot be read.
    pub(super) fn read(row: &AnalysisInputRow) -> Result<Self, AnalysisError> {
        let problem = documents::problem(&row.problem)?;
        Ok(match row.kind {
            AnalysisKind::Simulation => {
                let tree = row.plan.clone().unwrap_or_default();
                let plan = apportion_wire::plan_for_from_tree(&problem, "plan", tree)?;
                Self::Simulation { request: request(row)?, problem, plan }
            }
            AnalysisKind::Frontier => Self::Frontier { request: request(row)?, problem },
            AnalysisKind::Comparison => Self::Comparison { request: request(row)?, problem },
        })
    }

    /// The identifiers of its traces.
    pub(super) fn traces(&self) -> Vec<String> {
        let (trace, traces, samples) = match self {
            Self::Simulation { request, .. } => (request.trace.as_ref(), Some(&request.traces), Some(&request.samples)),
            Self::Comparison { request, .. } => (request.trace.as_ref(), Some(&request.traces), None),
            Self::Frontier { .. } => (None, None, None),
        };
        let by_pipeline = traces.into_iter().chain(samples).flat_map(BTreeMap::values);
        trace.into_iter().chain(by_pipeline).cloned().collect()
    }

    /// Runs it on this thread, and returns its result as JSON.
    ///
    /// # Errors
    /// If there is no result.
    pub(super) fn run(
        self,
        traces: &TracesById,
        cancel: &Arc<AtomicBool>,
        progress: &Arc<AnalysisProgress>,
    ) -> Result<Value, AnalysisError> {
        match self {
            Self::Simulation { request, problem, plan } => {
                let loads = with_demand(&problem, named(&problem, request.trace.as_ref(), &request.traces, traces));
                let looks = expected_visits(&problem, &plan, &loads) * WORK_PER_VISIT / LOOK_EVERY as f64;
                let stop = stop_with_progress(cancel.clone(), progress.clone(), looks);
                let settings = SimulateOptions { visits_max: Some(REPLAY_VISITS_MAX), stop, ..SimulateOptions::default() };
                let samples = named(&problem, None, &request.samples, traces);
                let (problem, plan) = (&problem, &plan);
                let input = SimulationInput { problem, plan, traces: loads, samples, settings, keeps_windows: false };
                Ok(json(&request.run(input)?.file(problem)))
            }
            Self::Frontier { request, problem } => {
                let watch = FrontierWatch {
                    cancel: cancel.clone(),
                    on_total: &|total| progress.set_total(total),
                    on_point: &|point| progress.add(json(&point)),
                };
                Ok(json(&request.run(&problem, &watch)?))
            }
            Self::Comparison { request, problem } => {
                progress.set_total(request.contenders().len());
                let loads = with_demand(&problem, named(&problem, request.trace.as_ref(), &request.traces, traces));
                let watch = ComparisonWatch {
                    cancel: cancel.clone(),
                    on_begin: &|planner| tracing::debug!(planner, "a planner of a comparison begins"),
                    on_planned: &|row| progress.add(json(&row)),
                };
                Ok(json(&request.run(&problem, loads, &watch)))
            }
        }
    }
}

/// The request of a row.
fn request<T: DeserializeOwned>(row: &AnalysisInputRow) -> Result<T, AnalysisError> {
    serde_json::from_value(row.request.clone()).map_err(AnalysisError::Request)
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("a result is JSON")
}

/// The trace of each pipeline: its own, or that of all.
fn named(
    problem: &Problem,
    all: Option<&String>,
    by_pipeline: &BTreeMap<String, String>,
    traces: &TracesById,
) -> Vec<Option<ArrivalTrace>> {
    let of = |name: &str| by_pipeline.get(name).or(all).and_then(|id| traces.get(id)).cloned();
    problem.pipelines.iter().map(|pipeline| of(&pipeline.name)).collect()
}

/// Stops a simulation that is cancelled, and notes its percentage at each look. `looks` is the expected number of looks.
fn stop_with_progress(cancel: Arc<AtomicBool>, progress: Arc<AnalysisProgress>, looks: f64) -> Stop {
    let looked = AtomicU64::new(0);
    progress.set_percent(0);
    Stop::when(move || {
        let share = looked.fetch_add(1, Ordering::Relaxed) as f64 / looks.max(1.0);
        progress.set_percent((share * f64::from(PERCENT)) as i32);
        cancel.load(Ordering::Relaxed)
    })
}

/// How far an analysis is. Its thread writes, and its job reads and stores.
#[derive(Default)]
pub(super) struct AnalysisProgress(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    total: Option<i32>,
    percent: Option<i32>,
    points: Vec<Value>,
    /// Points that the database has.
    stored: usize,
}

impl AnalysisProgress {
    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_total(&self, total: usize) {
        self.lock().total = i32::try_from(total).ok();
    }

    /// An estimate: a simulation that is not over is at most at 99.
    fn set_percent(&self, percent: i32) {
        self.lock().percent = Some(percent.clamp(0, PERCENT - 1));
    }

    fn add(&self, point: Value) {
        self.lock().points.push(point);
    }

    /// How far it is, with the points that the database does not have.
    pub(super) fn unstored(&self) -> ReadyPoints {
        let noted = self.lock();
        let as_i32 = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        ReadyPoints {
            ready: noted.percent.unwrap_or_else(|| as_i32(noted.points.len())),
            total: noted.total.or(noted.percent.map(|_| PERCENT)),
            first: as_i32(noted.stored),
            points: noted.points[noted.stored..].to_vec(),
        }
    }

    /// Notes that the database has these points.
    pub(super) fn note_stored(&self, ready: &ReadyPoints) {
        let stored = usize::try_from(ready.first).unwrap_or_default() + ready.points.len();
        let mut noted = self.lock();
        noted.stored = noted.stored.max(stored);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn points_are_handed_out_until_they_are_stored() {
        let progress = AnalysisProgress::default();
        progress.set_total(3);
        progress.add(json!(1));
        progress.add(json!(2));
        let ready = progress.unstored();
        assert_eq!((ready.ready, ready.total, ready.first, ready.points.len()), (2, Some(3), 0, 2));
        assert_eq!(progress.unstored(), ready, "a write that failed is tried again");
        progress.add(json!(3));
        progress.note_stored(&ready);
        let rest = progress.unstored();
        assert_eq!((rest.ready, rest.first, rest.points), (3, 2, vec![json!(3)]));
    }

    #[test]
    fn a_simulation_that_runs_is_never_complete() {
        let (cancel, progress) = (Arc::new(AtomicBool::new(false)), Arc::new(AnalysisProgress::default()));
        let stop = stop_with_progress(cancel.clone(), progress.clone(), 4.0);
        let mut seen = Vec::new();
        for _ in 0..6 {
            assert!(!stop.is_asked());
            seen.push(progress.unstored().ready);
        }
        assert_eq!(seen, [0, 25, 50, 75, 99, 99]);
        assert_eq!(progress.unstored().total, Some(100));
        cancel.store(true, Ordering::Relaxed);
        assert!(stop.is_asked());
    }
}
