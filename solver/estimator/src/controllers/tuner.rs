//! The tuner of the crate `serving` in the loop of a run.

use crate::scenario::{Controller, Event, Observation};
use crate::{ArrivalProcess, SimulateError, Workload, draw};
use apportion_domain::{Pipeline, Plan, Problem, Span, TaskIndex, Trace};
use apportion_serving::{Envelope, TunedTask, Tuner, group_capacity_qps};

/// How often arrivals are reported to it. The paper's tuner reads them as they come; 100 ms is far below the time that a replica
/// takes to load.
pub const TUNER_PERIOD: Span = Span::from_nanos(100_000_000);

struct OfPipeline {
    tuner: Tuner,
    /// Groups of each task, by position in the reports, with their replicas in the plan.
    tasks: Vec<Vec<(usize, u32)>>,
    planned: Vec<u32>,
}

struct TunerController {
    pipelines: Vec<Option<OfPipeline>>,
}

/// The tuners of all pipelines of a plan that was made for `sample`. A task with several groups is scaled as a whole, its groups in
/// proportion.
///
/// # Errors
/// If the plan does not fit the problem.
pub fn tuner(problem: &Problem, plan: &Plan, sample: &Workload) -> Result<Box<dyn Controller>, SimulateError> {
    let mut groups_before = 0;
    let mut pipelines = Vec::new();
    for (p, trace) in problem.pipelines.iter().zip(&sample.traces) {
        let of = of_pipeline(problem, p, plan, (trace, sample.arrivals, sample.seed), groups_before)?;
        groups_before += of.as_ref().map_or(0, |of| of.tasks.iter().map(Vec::len).sum());
        pipelines.push(of);
    }
    Ok(Box::new(TunerController { pipelines }))
}

fn of_pipeline(
    problem: &Problem,
    p: &Pipeline,
    plan: &Plan,
    (trace, process, seed): (&Trace, ArrivalProcess, u64),
    groups_before: usize,
) -> Result<Option<OfPipeline>, SimulateError> {
    let Some(part) = plan.pipeline(&p.name) else { return Ok(None) };
    let arrivals = draw(trace, process, seed, &p.name);
    let (Some(&first), Some(&last)) = (arrivals.first(), arrivals.last()) else { return Ok(None) };
    let offered_qps = arrivals.len() as f64 * 1e3 / last.since(first).as_millis().max(1e3);
    let scales = scales(p, part);
    let (mut tasks, mut tuned, mut planned) = (Vec::new(), Vec::new(), Vec::new());
    let (mut next, mut service_ms) = (groups_before, vec![0.0_f64; p.tasks.len()]);
    for (t, task) in p.tasks.iter().enumerate() {
        let mut groups = Vec::new();
        let (mut capacity_qps, mut replicas) = (0.0, 0);
        for a in part.assignments.iter().filter(|a| a.group.task == task.name && a.replicas > 0) {
            let capacity = group_capacity_qps(p, &problem.hardware, a);
            let capacity = capacity.map_err(|e| SimulateError::Plan(format!("pipeline {:?}: {e}", p.name)))?;
            capacity_qps += capacity;
            replicas += a.replicas;
            service_ms[t] = service_ms[t].max(f64::from(a.replicas) * 1e3 * f64::from(a.batch) / capacity);
            groups.push((next, a.replicas));
            next += 1;
        }
        let replica_qps = capacity_qps / f64::from(replicas.max(1));
        let provisioning = offered_qps * scales[t] / capacity_qps;
        tuned.push(TunedTask { scale: scales[t], replica_qps, provisioning });
        planned.push(replicas);
        tasks.push(groups);
    }
    let envelope = Envelope::of(longest(p, &service_ms), arrivals);
    let tuner = Tuner::new(&envelope, tuned, planned.clone());
    Ok(Some(OfPipeline { tuner, tasks, planned }))
}

/// Queries at each task for one at the root, with the mix of variants that the plan serves.
fn scales(p: &Pipeline, part: &apportion_domain::PipelinePlan) -> Vec<f64> {
    let mut scales = vec![0.0; p.tasks.len()];
    scales[p.root().get()] = 1.0;
    for &task in p.order() {
        let of_task = || part.assignments.iter().filter(move |a| a.group.task == p.task(task).name && a.replicas > 0);
        let weight = |a: &apportion_domain::Assignment| {
            if a.traffic_share > 0.0 { a.traffic_share } else { f64::from(a.replicas) }
        };
        let total: f64 = of_task().map(weight).sum();
        for edge in p.children(task) {
            let fanout = |a: &apportion_domain::Assignment| {
                let variant = p.task(task).variants.iter().position(|v| v.name == a.group.variant);
                variant.map_or(0.0, |v| weight(a) / total * p.fanout(edge, apportion_domain::VariantIndex(v)))
            };
            let mean: f64 = of_task().map(fanout).sum();
            scales[edge.to.get()] += scales[task.get()] * mean;
        }
    }
    scales
}

/// Service time of the pipeline: batches along its longest path.
fn longest(p: &Pipeline, service_ms: &[f64]) -> Span {
    let mut through = vec![0.0_f64; service_ms.len()];
    let mut most = 0.0_f64;
    for &TaskIndex(task) in p.order() {
        through[task] += service_ms[task];
        most = most.max(through[task]);
        for edge in p.edges_from(TaskIndex(task)) {
            through[edge.to.get()] = through[edge.to.get()].max(through[task]);
        }
    }
    Span::from_millis(most)
}

impl Controller for TunerController {
    fn period(&self) -> Span {
        TUNER_PERIOD
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(Span, Event)> {
        let mut commands = Vec::new();
        for (of, arrivals) in self.pipelines.iter_mut().zip(&seen.arrivals) {
            let Some(of) = of else { continue };
            arrivals.iter().for_each(|&(at, count)| of.tuner.arrived(at, count));
            let Some(replicas) = of.tuner.decide(seen.at) else { continue };
            for ((groups, &planned), &wanted) in of.tasks.iter().zip(&of.planned).zip(replicas) {
                for &(at, share) in groups {
                    let part = f64::from(wanted) * f64::from(share) / f64::from(planned);
                    commands.push((Span::ZERO, seen.groups[at].to_have((part - 1e-9).ceil() as u32)));
                }
            }
        }
        commands
    }
}
