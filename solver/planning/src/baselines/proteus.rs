//! How does a planner scale accuracy if it knows no pipelines? Proteus as Loki evaluates it (section 6.1).
//!
//! Each task is an application of its own. It has the demand that is observed at the task, an even share of the SLO,
//! and its own variants. All tasks share the devices. The exact planner finds the highest accuracy over all queries,
//! weighted by demand, on single-task pipelines. Proteus does not know that the fan-out of a variant is another task's
//! demand. It also does not know which task matters most for the accuracy of the pipeline.
//!
//! Two readings of the paper favour it. First, its demand estimates belong to a steady state. It plans, observes and plans
//! again, until the variants above a task make the queries that were counted there. The first count uses the most accurate
//! variants, or the least accurate ones if no plan serves that many queries. If the estimates never settle, it keeps the
//! last plan that carries its load. Second, its split of the SLO is even over the longest path through a task, so short
//! branches get more time.
//!
//! It scales no hardware: unused devices get replicas of the busiest group (Loki, section 6.2: it always uses the whole
//! cluster).

use super::assemble;
use super::assemble::BaselineGroup;
use super::common::{BaselinePlan, LargestPart, answer, demands, largest_part, no_plan, with_part};
use crate::answer::report;
use crate::exact::model::tightening::Tightening;
use crate::exact::search::attempt::{SearchOutcome, attempt};
use crate::options::PlanningOptions;
use apportion_domain::pipeline::NUMBER_MAX;
use apportion_domain::{
    AccuracyModel, HardwareIndex, Mode, Pipeline, PipelineDraft, PipelineIndex, PipelinePlan, PlanOutcome, PlanningReport,
    Problem, SLACK, Share, StopReason, Task, TaskIndex, Variant, VariantIndex,
};
use apportion_mip::RunLimits;
use std::collections::BTreeMap;

/// Most rounds of planning and observing.
const ROUNDS_MAX: u32 = 8;
/// Precision of the largest part of the demand, and the gap of the searches for it: each takes several programmes.
const PART_PRECISION: f64 = 1e-2;
const PART_GAP: f64 = 1e-2;
/// Most unused devices of one type that get replicas: no run can simulate more.
const FILLED_MAX: u64 = 1 << 20;
/// Devices between two checks of the limits.
const FILLED_AT_ONCE: u64 = 256;
/// Estimates that change by less, relative, have settled.
const SETTLED: f64 = 1e-6;

/// Plans each task by itself.
pub(crate) fn plan(problem: &Problem, options: &PlanningOptions) -> (PlanOutcome, PlanningReport) {
    let limits = options.limits().for_search();
    let whole = match plan_until(problem, options.gap, &limits, StopRule::Settled) {
        Ok(whole) => whole,
        Err(stopped) => return report::report_unknown(options, stopped),
    };
    let found = match whole {
        Some(groups) => Ok(Some(LargestPart { part: 1.0, plan: groups })),
        None => {
            largest_part(PART_PRECISION, |part| plan_until(&with_part(problem, part), PART_GAP, &limits, StopRule::Carried))
        }
    };
    let LargestPart { part, plan: mut groups } = match found {
        Ok(Some(found)) => found,
        Ok(None) => return no_plan(problem, options, Vec::new()),
        Err(stopped) => return report::report_unknown(options, stopped),
    };
    let served = with_part(problem, part);
    if part < 1.0
        && let Ok(Some(better)) = plan_until(&served, options.gap, &limits, StopRule::Settled)
    {
        groups = better;
    }
    fill_devices(&served, &observed_visits(&served, &groups), &mut groups, &limits);
    match assemble::plan(problem, &groups, &demands(&served)) {
        Some(plan) => answer(problem, options, BaselinePlan { plan, part, rates: demands(problem) }),
        None => report::report_unknown(options, StopReason::Unsupported),
    }
}

/// The variants of the first estimate.
#[derive(Clone, Copy)]
enum StartVariants {
    MostAccurate,
    LeastAccurate,
}

/// When to stop planning and observing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StopRule {
    /// When estimates no longer change.
    Settled,
    /// When a plan carries its load.
    Carried,
}

/// The groups of each task when the demand estimates have settled. If they never settle: the last groups that carry their
/// load. `None` if no groups carry their load. The first estimates use the most accurate variants, or the least accurate
/// ones if no plan serves that many queries.
fn plan_until(
    problem: &Problem,
    gap: f64,
    limits: &RunLimits,
    rule: StopRule,
) -> Result<Option<Vec<Vec<BaselineGroup>>>, StopReason> {
    for start in [StartVariants::MostAccurate, StartVariants::LeastAccurate] {
        let mut visits: Vec<Vec<f64>> = problem.pipelines.iter().map(|p| first_estimate(p, start)).collect();
        let mut kept = None;
        for _ in 0..ROUNDS_MAX {
            let Some(groups) = plan_each_task(problem, &visits, gap, limits)? else { break };
            let seen = observed_visits(problem, &groups);
            let changed = visits.iter().flatten().zip(seen.iter().flatten());
            let same = changed.into_iter().all(|(a, b)| (a - b).abs() <= SETTLED * a.max(*b));
            let carried = utilisation_max(problem, &seen, &groups) <= 1.0 + SLACK;
            if carried {
                kept = Some(groups);
            }
            visits = seen;
            if same || (carried && rule == StopRule::Carried) {
                break;
            }
        }
        if kept.is_some() {
            return Ok(kept);
        }
    }
    Ok(None)
}

/// Queries at each task for one query of the root, by pipeline.
fn observed_visits(problem: &Problem, groups: &[Vec<BaselineGroup>]) -> Vec<Vec<f64>> {
    problem.pipelines.iter().zip(groups).map(|(p, own)| assemble::visits(p, own)).collect()
}

/// The largest utilisation of any group.
fn utilisation_max(problem: &Problem, visits: &[Vec<f64>], groups: &[Vec<BaselineGroup>]) -> f64 {
    let of = |(p, own): (usize, &Vec<BaselineGroup>)| {
        own.iter().map(|g| utilisation(problem, PipelineIndex(p), visits[p][g.task.get()], g)).fold(0.0, f64::max)
    };
    groups.iter().enumerate().map(of).fold(0.0, f64::max)
}

/// Queries at each task for one of the root's, with the variants of `start` above.
fn first_estimate(pipeline: &Pipeline, start: StartVariants) -> Vec<f64> {
    let one = |t: usize| {
        let task = TaskIndex(t);
        let variants = (0..pipeline.task(task).variants.len()).map(VariantIndex);
        let accuracy = |v: &VariantIndex| pipeline.variant(task, *v).accuracy;
        let best = pipeline.most_accurate(task).next();
        let variant = match start {
            StartVariants::MostAccurate => best,
            StartVariants::LeastAccurate => variants.min_by(|a, b| accuracy(a).total_cmp(&accuracy(b))),
        };
        let variant = variant.expect("a task has variants");
        let row = &pipeline.variant(task, variant).profile.rows()[0];
        let (hardware, share, batch) = (row.hardware, row.share, row.batch);
        BaselineGroup { task, variant, hardware, share, batch, replicas: 1, traffic: 1.0 }
    };
    assemble::visits(pipeline, &(0..pipeline.tasks.len()).map(one).collect::<Vec<_>>())
}

/// Number of tasks on the longest path through each task.
pub(super) fn longest_path(pipeline: &Pipeline) -> Vec<usize> {
    let mut above = vec![1; pipeline.tasks.len()];
    for &t in pipeline.order() {
        above[t.get()] = 1 + pipeline.edges_into(t).map(|e| above[e.from.get()]).max().unwrap_or(0);
    }
    let mut below = vec![0; pipeline.tasks.len()];
    for &t in pipeline.order().iter().rev() {
        below[t.get()] = pipeline.edges_from(t).map(|e| 1 + below[e.to.get()]).max().unwrap_or(0);
    }
    above.iter().zip(&below).map(|(a, b)| a + b).collect()
}

/// The problem in which each task is a pipeline: pipelines in order, their tasks in order.
pub(super) fn split_into_tasks(problem: &Problem, visits: &[Vec<f64>]) -> Problem {
    let mut pipelines = Vec::new();
    for (pipeline, visits) in problem.pipelines.iter().zip(visits) {
        let lengths = longest_path(pipeline);
        for t in 0..pipeline.tasks.len() {
            let (demand_qps, slo_ms) = (pipeline.demand_qps * visits[t], pipeline.slo_ms / lengths[t] as f64);
            pipelines.push(pipeline_of_task(problem, pipeline, TaskIndex(t), demand_qps, slo_ms));
        }
    }
    let change = |d: &mut apportion_domain::ProblemDraft| {
        d.pipelines = pipelines;
        d.deployed = Vec::new();
        d.objective.mode = Mode::MaxAccuracy;
    };
    problem.changed(change).expect("names of tasks differ, and their numbers are the pipelines'")
}

/// A task of pipeline `of` as a pipeline of its own. The hop into it is that of the pipeline.
fn pipeline_of_task(problem: &Problem, of: &Pipeline, index: TaskIndex, demand_qps: f64, slo_ms: f64) -> Pipeline {
    let task = of.task(index);
    let variant = |v: &Variant| Variant { fanout_to: BTreeMap::new(), fanout_counts: BTreeMap::new(), ..v.clone() };
    let task = Task { variants: task.variants.iter().map(variant).collect(), ..task.clone() };
    let draft = PipelineDraft {
        name: format!("{}/{}", of.name, task.name),
        demand_qps,
        slo_ms,
        ingress_ms: if index == of.root() { of.ingress_ms } else { 0.0 },
        ingress_kib_per_query: of.kib_per_query(index),
        weight: demand_qps,
        min_accuracy: None,
        accuracy_model: AccuracyModel::Product,
        path_accuracy: Vec::new(),
        leaf_weights: BTreeMap::new(),
        tasks: vec![task],
        edges: Vec::new(),
        ..PipelineDraft::clone(of)
    };
    Pipeline::new(draft, &problem.hardware, "").expect("one task of a valid pipeline is a valid pipeline")
}

/// The groups of each task if it is planned alone, by pipeline.
fn plan_each_task(
    problem: &Problem,
    visits: &[Vec<f64>],
    gap: f64,
    limits: &RunLimits,
) -> Result<Option<Vec<Vec<BaselineGroup>>>, StopReason> {
    // The demand of a task may exceed the largest demand of a pipeline.
    let is_beyond = |(p, of): (&Pipeline, &Vec<f64>)| of.iter().any(|visits| p.demand_qps * visits > NUMBER_MAX);
    if problem.pipelines.iter().zip(visits).any(is_beyond) {
        return Err(StopReason::Unsupported);
    }
    let sub = split_into_tasks(problem, visits);
    let plan = match attempt(&sub, &Tightening::none(&sub), gap, limits) {
        SearchOutcome::Plan(candidate) => candidate.plan,
        SearchOutcome::Infeasible => return Ok(None),
        SearchOutcome::Unknown(stopped) if limits.exceeded() => return Err(stopped),
        SearchOutcome::Unknown(_) => return Ok(None),
    };
    let mut parts = plan.pipelines.iter();
    let of_pipeline = |pipeline: &Pipeline| {
        let own = parts.by_ref().take(pipeline.tasks.len());
        own.enumerate().flat_map(|(t, part)| groups_of(problem, pipeline, TaskIndex(t), part)).collect()
    };
    Ok(Some(problem.pipelines.iter().map(of_pipeline).collect()))
}

/// The groups of a task's own plan. Without traffic, the first group gets all queries that may come.
fn groups_of(problem: &Problem, pipeline: &Pipeline, task: TaskIndex, part: &PipelinePlan) -> Vec<BaselineGroup> {
    let idle = part.assignments.iter().all(|a| a.traffic_share <= 0.0);
    let group = |(i, a): (usize, &apportion_domain::Assignment)| {
        let variant = pipeline.task(task).variants.iter().position(|v| v.name == a.group.variant);
        let traffic = if idle && i == 0 { 1.0 } else { a.traffic_share };
        BaselineGroup {
            task,
            variant: VariantIndex(variant.expect("a plan of this task names its variants")),
            hardware: problem.hardware_named(&a.group.hardware).expect("a plan of this problem names its hardware"),
            share: a.group.share,
            batch: a.batch,
            replicas: a.replicas,
            traffic,
        }
    };
    part.assignments.iter().enumerate().map(group).collect()
}

/// The group of the highest utilisation, by position.
struct BusiestGroup {
    utilisation: f64,
    pipeline: usize,
    group: usize,
}

/// Gives unused devices to the busiest groups, up to [`FILLED_MAX`] of each type and as long as there is time. With a
/// budget they stay unused.
fn fill_devices(problem: &Problem, visits: &[Vec<f64>], groups: &mut [Vec<BaselineGroup>], limits: &RunLimits) {
    if problem.objective.budget_per_hour.is_some() {
        return;
    }
    for (h, hardware) in problem.hardware.iter().enumerate() {
        let Some(count) = hardware.count else { continue };
        let on = |g: &BaselineGroup| g.hardware == HardwareIndex(h);
        let used: u64 = groups.iter().flatten().filter(|g| on(g)).map(eighths).sum();
        for filled in 0..u64::from(count).saturating_sub(used.div_ceil(8)).min(FILLED_MAX) {
            if filled.is_multiple_of(FILLED_AT_ONCE) && limits.exceeded() {
                return;
            }
            let mut busiest: Option<BusiestGroup> = None;
            for (p, own) in groups.iter().enumerate() {
                for (i, g) in own.iter().enumerate().filter(|(_, g)| on(g)) {
                    let busy = utilisation(problem, PipelineIndex(p), visits[p][g.task.get()], g);
                    if busiest.as_ref().is_none_or(|b| busy > b.utilisation) {
                        busiest = Some(BusiestGroup { utilisation: busy, pipeline: p, group: i });
                    }
                }
            }
            let Some(busiest) = busiest else { break };
            let group = &mut groups[busiest.pipeline][busiest.group];
            group.replicas += 8 / u32::from(group.share.eighths());
        }
    }
}

/// Devices of a group, in eighths.
fn eighths(g: &BaselineGroup) -> u64 {
    u64::from(g.replicas) * u64::from(Share::eighths(g.share))
}

/// Load of a group over its capacity. `visits` are the queries at its task for one query of the root.
fn utilisation(problem: &Problem, p: PipelineIndex, visits: f64, g: &BaselineGroup) -> f64 {
    let pipeline = problem.pipeline(p);
    let row = pipeline.variant(g.task, g.variant).profile.row(g.hardware, g.share, g.batch);
    let qps = row.expect("groups run measured batches only").throughput_qps();
    pipeline.demand_qps * visits * g.traffic / (f64::from(g.replicas) * qps)
}
