//! The tuner of the crate `serving` in the loop of a run.

use super::positions::report_positions;
use crate::error::SimulateError;
use crate::input::workload::{Workload, draw};
use crate::scenario::{Controller, Observation, ScenarioEvent};
use apportion_domain::{Moment, Pipeline, PipelinePlan, Plan, Problem, TimeSpan};
use apportion_serving::{Outline, TrafficEnvelope, Tuner};

/// How often arrivals are reported to it. The paper's tuner reads them as they come; 100 ms is far below the time that a
/// replica takes to load.
pub const TUNER_PERIOD: TimeSpan = TimeSpan::from_nanos(100_000_000);

struct OfPipeline {
    tuner: Tuner,
    outline: Outline,
    /// Position of each of its groups in the reports.
    places: Vec<usize>,
}

struct TunerController {
    pipelines: Vec<Option<OfPipeline>>,
}

/// The tuners of all pipelines of a plan that was made for `sample`. A task with several groups is scaled as a whole, its
/// groups in proportion.
///
/// # Errors
/// If the plan does not fit the problem.
pub fn tuner(problem: &Problem, plan: &Plan, sample: &Workload) -> Result<Box<dyn Controller>, SimulateError> {
    let mut groups_before = 0;
    let mut pipelines = Vec::new();
    for (p, trace) in problem.pipelines.iter().zip(&sample.traces) {
        let of = match plan.pipeline(&p.name) {
            None => None,
            Some(part) => {
                let arrivals = draw(trace, sample.arrivals, sample.seed, &p.name);
                of_pipeline(problem, p, part, arrivals, groups_before)?
            }
        };
        groups_before += of.as_ref().map_or(0, |of| of.places.len());
        pipelines.push(of);
    }
    Ok(Box::new(TunerController { pipelines }))
}

/// The tuner of one pipeline, given the `arrivals` of its sample; `None` if the sample is empty.
fn of_pipeline(
    problem: &Problem,
    p: &Pipeline,
    part: &PipelinePlan,
    arrivals: Vec<Moment>,
    groups_before: usize,
) -> Result<Option<OfPipeline>, SimulateError> {
    let (Some(&first), Some(&last)) = (arrivals.first(), arrivals.last()) else { return Ok(None) };
    let offered_qps = arrivals.len() as f64 * 1e3 / last.since(first).as_millis().max(1e3);
    let outline = Outline::of(p, &problem.hardware, part);
    let outline = outline.map_err(|e| SimulateError::Plan(format!("pipeline {:?}: {e}", p.name)))?;
    let envelope = TrafficEnvelope::of(outline.service(), arrivals);
    let tuner = outline.tuner(&envelope, offered_qps, outline.replicas_by_task());
    let places = report_positions(&outline, groups_before);
    Ok(Some(OfPipeline { tuner, outline, places }))
}

impl Controller for TunerController {
    fn period(&self) -> TimeSpan {
        TUNER_PERIOD
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(TimeSpan, ScenarioEvent)> {
        let mut commands = Vec::new();
        for (of, arrivals) in self.pipelines.iter_mut().zip(&seen.arrivals) {
            let Some(of) = of else { continue };
            arrivals.iter().for_each(|a| of.tuner.arrived(a.bin, a.count));
            let Some(replicas) = of.tuner.decide(seen.at) else { continue };
            let replicas = of.outline.by_group(replicas);
            commands.extend(of.places.iter().zip(replicas).map(|(&at, n)| (TimeSpan::ZERO, seen.groups[at].to_have(n))));
        }
        commands
    }
}
