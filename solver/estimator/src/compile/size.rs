//! How large is a run, and does the plan fit the problem?

use crate::error::SimulateError;
use crate::input::ingresses::{INGRESSES_MAX, IngressSettings};
use crate::input::options::SimulateOptions;
use crate::input::workload::Workload;
use apportion_domain::{
    ArrivalTrace, Assignment, Pipeline, PipelinePlan, Plan, Problem, Queueing, TaskIndex, TaskKind, VariantIndex,
};

/// Replicas of one plan that a run can simulate, and slots of its `continuous` tasks.
pub const REPLICAS_MAX: u64 = 1 << 22;

/// Most places that a plan's stations, routers and tables have in a run. A sender has one place for each replica that it
/// sends to. A station has one for each query of its batch, and a prefix of a measured path has one for each variant.
pub const PLACES_MAX: u64 = 1 << 26;

/// The number of requests of a trace: its listed arrivals, or the mean number of its rates.
#[must_use]
pub fn expected_requests(trace: &ArrivalTrace) -> f64 {
    match trace {
        ArrivalTrace::Arrivals(moments) => moments.len() as f64,
        ArrivalTrace::Rates(rows) => rows.iter().map(|&(_, qps)| qps).sum(),
    }
}

/// The mean number of queries that a run of `plan` serves, over all tasks. Its time grows with them. `traces` has one trace
/// for each pipeline of the problem. Pipelines that the plan does not have count nothing.
#[must_use]
pub fn expected_visits(problem: &Problem, plan: &Plan, traces: &[ArrivalTrace]) -> f64 {
    let of = |(pipeline, trace): (&Pipeline, &ArrivalTrace)| {
        let part = plan.pipeline(&pipeline.name)?;
        Some(expected_requests(trace) * visits(pipeline, part).iter().sum::<f64>())
    };
    problem.pipelines.iter().zip(traces).filter_map(of).sum()
}

/// By task, the mean number of queries for one query at the root.
fn visits(pipeline: &Pipeline, part: &PipelinePlan) -> Vec<f64> {
    let mut visits = vec![0.0; pipeline.tasks.len()];
    for &t in pipeline.order() {
        visits[t.get()] = match pipeline.primary_parent(t) {
            None => 1.0,
            Some(edge) => {
                let of_variant = |(v, share): (VariantIndex, f64)| share * pipeline.fanout(edge, v);
                visits[edge.from.get()] * shares(pipeline, part, edge.from).into_iter().map(of_variant).sum::<f64>()
            }
        };
    }
    visits
}

/// The shares of a task's queries by variant: the plan's shares, otherwise in proportion to replicas and batch.
fn shares(pipeline: &Pipeline, part: &PipelinePlan, task: TaskIndex) -> Vec<(VariantIndex, f64)> {
    let name = &pipeline.task(task).name;
    let assigned = || part.assignments.iter().filter(|a| a.group.task == *name && a.replicas > 0);
    let planned: f64 = assigned().map(|a| a.traffic_share).sum();
    let weight = |a: &Assignment| match planned > 0.0 {
        true => a.traffic_share,
        false => f64::from(a.replicas) * f64::from(a.batch),
    };
    let total: f64 = assigned().map(weight).sum();
    let variants = &pipeline.task(task).variants;
    let share = |a: &Assignment| {
        let at = variants.iter().position(|v| v.name == a.group.variant)?;
        Some((VariantIndex(at), weight(a) / total))
    };
    assigned().filter_map(share).collect()
}

/// Refuses too many ingresses, or ingresses whose routers would not fit into memory.
///
/// # Errors
/// If there are more than [`INGRESSES_MAX`], or if their routers have more than [`PLACES_MAX`] places.
pub fn check_ingresses(problem: &Problem, plan: &Plan, ingresses: IngressSettings) -> Result<(), SimulateError> {
    let count = ingresses.count.get();
    if count > INGRESSES_MAX {
        let (found, most) = (f64::from(count), f64::from(INGRESSES_MAX));
        return Err(SimulateError::TooLarge { what: "ingresses", found, most });
    }
    let at_root = |part: &PipelinePlan| -> u64 {
        let Some(index) = problem.pipeline_named(&part.name) else { return 0 };
        let pipeline = problem.pipeline(index);
        let root = &pipeline.task(pipeline.root()).name;
        part.assignments.iter().filter(|a| a.group.task == *root).map(|a| u64::from(a.replicas)).sum()
    };
    let places = plan.pipelines.iter().map(at_root).fold(0, u64::saturating_add).saturating_mul(u64::from(count));
    if places > PLACES_MAX {
        let (found, most) = (places as f64, PLACES_MAX as f64);
        return Err(SimulateError::TooLarge { what: "places in routers of ingresses", found, most });
    }
    Ok(())
}

/// Refuses a plan whose stations and routers would not fit into memory, before any is built.
///
/// # Errors
/// If there are more than [`PLACES_MAX`] places.
pub fn check_places(
    problem: &Problem,
    plan: &Plan,
    is_central: impl Fn(&PipelinePlan) -> bool,
) -> Result<(), SimulateError> {
    let mut places = 0_u64;
    for part in &plan.pipelines {
        let Some(p) = problem.pipeline_named(&part.name) else { continue };
        let pipeline = problem.pipeline(p);
        let central = is_central(part);
        let stations = |name: &str| -> u64 {
            let of_task = part.assignments.iter().filter(|a| a.replicas > 0 && a.group.task == name);
            of_task.map(|a| if central { 1 } else { u64::from(a.replicas) }).sum()
        };
        let by_task: Vec<u64> = pipeline.tasks.iter().map(|t| stations(&t.name)).collect();
        let routed = pipeline.edges.iter().filter(|e| e.primary);
        let routed = routed.map(|e| by_task[e.from.get()].saturating_mul(by_task[e.to.get()]));
        let batches = part.assignments.iter().map(|a| {
            let stations = if central { 1 } else { u64::from(a.replicas) };
            stations.saturating_mul(u64::from(a.batch))
        });
        // The table of measured paths has a row for each of their prefixes, with a place for each variant.
        let variants: usize = pipeline.tasks.iter().map(|t| t.variants.len()).sum();
        let prefixes: usize = pipeline.path_accuracy.iter().map(|e| e.path.len()).sum();
        let measured = (prefixes as u64).saturating_mul(variants.min(prefixes) as u64);
        places = routed.chain(batches).chain([measured]).fold(places, u64::saturating_add);
    }
    match places > PLACES_MAX {
        true => Err(SimulateError::TooLarge {
            what: "places in batches, routers and tables of paths",
            found: places as f64,
            most: PLACES_MAX as f64,
        }),
        false => Ok(()),
    }
}

/// Checks that a plan names only this problem's pipelines, and no more replicas than can be simulated.
///
/// # Errors
/// If not.
pub fn check_plan(p: &Problem, plan: &Plan) -> Result<(), SimulateError> {
    if let Some(unknown) = plan.pipelines.iter().find(|q| p.pipeline_named(&q.name).is_none()) {
        return Err(SimulateError::Plan(format!("the problem has no pipeline {:?}", unknown.name)));
    }
    if plan.replicas() > REPLICAS_MAX {
        return Err(too_large("replicas", plan.replicas() as f64, REPLICAS_MAX));
    }
    let is_continuous =
        |q: &Pipeline, a: &Assignment| q.task_named(&a.group.task).is_some_and(|t| q.task(t).kind == TaskKind::Continuous);
    let of = |part| p.pipeline_named(part).map(|at| p.pipeline(at));
    let parts = plan.pipelines.iter().filter_map(|part| Some((of(&part.name)?, part)));
    let slots = parts.flat_map(|(q, part)| part.assignments.iter().filter(move |a| is_continuous(q, a)));
    let slots: u64 = slots.map(|a| u64::from(a.replicas) * u64::from(a.batch)).sum();
    if slots > REPLICAS_MAX {
        return Err(too_large("slots of continuous tasks", slots as f64, REPLICAS_MAX));
    }
    Ok(())
}

/// Checks that a run is expected to stay within its bounds.
pub fn check_size(p: &Problem, plan: &Plan, w: &Workload, options: &SimulateOptions) -> Result<(), SimulateError> {
    let is_central = |part: &PipelinePlan| options.serving.unwrap_or(part.serving).queueing == Queueing::Central;
    check_places(p, plan, is_central)?;
    let expected = expected_visits(p, plan, &w.traces);
    match options.visits_max {
        Some(most) if expected.is_nan() || expected > most as f64 => {
            Err(too_large("queries that the run is expected to serve", expected, most))
        }
        _ => Ok(()),
    }
}

fn too_large(what: &'static str, found: f64, most: u64) -> SimulateError {
    SimulateError::TooLarge { what, found, most: most as f64 }
}

/// Refuses a pipeline to which requests come although no replica can serve them.
///
/// # Errors
/// If requests come.
pub fn refuse_traffic(p: &Pipeline, trace: &ArrivalTrace, why: &str) -> Result<(), SimulateError> {
    let is_silent = match trace {
        ArrivalTrace::Arrivals(moments) => moments.is_empty(),
        ArrivalTrace::Rates(rows) => rows.iter().all(|&(_, qps)| qps == 0.0),
    };
    if is_silent { Ok(()) } else { Err(SimulateError::Plan(format!("pipeline {:?}: {why}", p.name))) }
}
