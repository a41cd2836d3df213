//! How many replicas do a plan's groups need at other rates? The steward follows this ladder between two plans.
//!
//! Groups, batches and policies stay those of the plan. The fewest replicas for a rate are found like in the greedy planner
//! (InferLine, Algorithms 1 and 2). Replicas are added at the busiest group until the estimator meets the percentile. Then
//! they are removed where they save most.
//!
//! The replicas found so fit one sample of the rate. They are judged on fresh samples, and get more replicas until these
//! show that the percentile is met (`held_out`).
//!
//! Up to the demand, groups on counted devices have at most the plan's replicas. A step that took another group's devices
//! would leave none for the plan itself: replicas never fall from one step to the next.
//!
//! When the time is up, the other steps are scaled from the plan, which holds at its demand (`scaled`).

mod price;
mod room;
mod scaled;
mod search;
#[cfg(test)]
mod tests;

pub(crate) use self::price::price_at_demand;
pub use self::price::{price_at, price_per_hour};
pub use self::room::fits;
use self::scaled::add_scaled_steps;
use self::search::{StepReplicas, StepSearch};
use crate::held_out::verdict::is_accepted;
use apportion_domain::{
    ArrivalTrace, Assignment, JudgedOn, Pipeline, PipelinePlan, Plan, Problem, SLACK, StopReason, TaskKind,
};
use apportion_estimator::{ArrivalProcess, Workload};
use apportion_mip::RunLimits;
use apportion_serving::ladder::LadderStep;
use std::sync::Arc;
use std::time::Duration;

/// Factor from the rate of a step to the next rate. Replicas are whole, so finer steps are mostly alike.
pub const STEP_FACTOR: f64 = 1.15;
/// Largest rate of a ladder, as a factor on the plan's demand. The smallest rate is the demand divided by it.
pub const UP_TO_MAX: f64 = 100.0;
/// Length of the Poisson load on which a step must hold, in seconds.
const SAMPLE_SECONDS: u64 = 30;
/// At high rates a shorter load has enough requests: a percentile of 99 is known to a tenth of a point.
const SAMPLE_REQUESTS: f64 = 20_000.0;
/// The shortest load, in seconds: queues build up within ten times an objective of half a second.
const SAMPLE_SECONDS_MIN: u64 = 5;
/// Root seed of that load.
const SEED: u64 = 1;
/// A ladder reaches clearly further than another one if it ends at this factor over its end. For less no plan is changed.
const CLEARLY_FURTHER: f64 = 1.05;
/// So often the gap between the last step and the first rate with too few devices is halved.
const HALVINGS: usize = 3;

/// A plan with ladders.
pub(crate) struct PlanWithLadders {
    pub plan: Plan,
    /// A sentence for each ladder that is missing, that the limits cut short, or that does not hold the demand.
    pub left_out: Vec<String>,
    /// Whether every pipeline has a ladder, and fresh samples show that its step for the demand holds.
    pub hold_demands: bool,
}

/// Adds a ladder to each pipeline of a plan, from its demand divided by `up_to` to `up_to` times its demand.
///
/// Below the demand, groups may have fewer replicas than in the plan, except if the pipeline must survive losses. Each
/// ladder may use all devices; several pipelines share them when they need them. Pipelines with `continuous` tasks get
/// no ladder. Steps that the limits leave no time for are scaled from the plan.
///
/// `judged` is what fresh samples show of the plan. If it holds, its own replicas are the step of its demand where the
/// search finds none: the samples of a step are fewer. Otherwise, where the devices do not hold the demand on Poisson
/// arrivals, its step has all that they allow, and is the last one.
pub(crate) fn with_ladders(
    problem: &Problem,
    plan: Plan,
    up_to: f64,
    judged: Option<&JudgedOn>,
    limits: &RunLimits,
) -> PlanWithLadders {
    let holds = judged.is_some_and(is_accepted);
    let mut made = PlanWithLadders { plan, left_out: Vec::new(), hold_demands: true };
    for part in &mut made.plan.pipelines {
        let planned: Vec<u32> = part.assignments.iter().map(|a| a.replicas).collect();
        let found = find_ladder(problem, part, up_to, holds.then_some(planned.as_slice()), limits);
        made.hold_demands &= found.as_ref().is_some_and(|found| found.holds_demand);
        let Some(found) = found else { continue };
        made.left_out.extend(found.left_out);
        part.ladder = found.steps;
    }
    made
}

/// The ladder of one pipeline.
struct FoundLadder {
    /// Empty if no number of replicas holds the demand.
    steps: Vec<LadderStep>,
    /// A sentence for what is missing.
    left_out: Option<String>,
    /// Whether fresh samples show that the step for the demand holds.
    holds_demand: bool,
}

/// The ladder of a part of a plan; `None` for a pipeline that has none. `at_demand` are replicas that are known to hold its
/// demand.
fn find_ladder(
    problem: &Problem,
    part: &PipelinePlan,
    up_to: f64,
    at_demand: Option<&[u32]>,
    limits: &RunLimits,
) -> Option<FoundLadder> {
    let p = problem.pipelines.iter().find(|p| p.name == part.name)?;
    if part.demand_qps <= 0.0 || p.tasks.iter().any(|t| t.kind == TaskKind::Continuous) {
        return None;
    }
    let of_pipeline = problem.changed(|draft| {
        draft.pipelines = vec![p.clone()];
        draft.deployed.clear();
        draft.quotas.clear();
    });
    let (of_pipeline, of_part) = (of_pipeline.ok()?, Plan { pipelines: vec![part.clone()], cost_per_hour: 0.0 });
    let (rates, least) = (rates_of(p, part, up_to), least_of(p, part));
    let asked = AskedSteps { rates_qps: rates.iter().copied(), least: &least, at_demand };
    let FoundSteps { mut steps, end } = find_steps(&of_pipeline, &of_part, asked, steady, limits);
    let (name, demand_qps) = (&part.name, part.demand_qps);
    let reaches_demand = |steps: &[LadderStep]| end_of(steps).is_some_and(|end| end >= demand_qps * (1.0 - 1e-9));
    let holds_demand = reaches_demand(&steps) && end != LadderEnd::TooFewDevicesForDemand;
    let mut left_out = None;
    if let LadderEnd::Stopped(why) = end {
        let searched = end_of(&steps).unwrap_or_default();
        add_scaled_steps(&of_pipeline, &of_part, &rates, &least, &mut steps);
        let scaled = steps.iter().map(|step| step.rate_qps).find(|&rate| rate > searched);
        let from = scaled.or(rates.last().copied()).unwrap_or(demand_qps);
        left_out = Some(format!("the ladder of {name:?} from {from:.1} queries/s on is scaled from the plan: {why}"));
    }
    if end == LadderEnd::TooFewDevicesForDemand {
        left_out = Some(format!(
            "the ladder of {name:?} has all devices in its step of {demand_qps:.1} queries/s, and does not hold them on \
             Poisson arrivals"
        ));
    }
    if !reaches_demand(&steps) {
        steps.clear();
        left_out = Some(format!(
            "the ladder of {name:?}: no number of replicas holds {demand_qps:.1} queries/s on Poisson arrivals"
        ));
    }
    Some(FoundLadder { steps, left_out, holds_demand })
}

/// The last rate of these steps, in queries per second.
fn end_of(steps: &[LadderStep]) -> Option<f64> {
    steps.last().map(|last| last.rate_qps)
}

/// The rates of a ladder, in queries per second.
fn rates_of(pipeline: &Pipeline, part: &PipelinePlan, up_to: f64) -> Vec<f64> {
    let count = (up_to.clamp(1.0, UP_TO_MAX).ln() / STEP_FACTOR.ln()).ceil() as i32;
    let first = if pipeline.survive > 0 { 0 } else { -count };
    (first..=count).map(|k| part.demand_qps * STEP_FACTOR.powi(k)).collect()
}

/// The fewest replicas of each group.
fn least_of(pipeline: &Pipeline, part: &PipelinePlan) -> Vec<u32> {
    let kept = |a: &Assignment| {
        let asked = pipeline.task_named(&a.group.task).map_or(1, |t| pipeline.task(t).min_replicas);
        if pipeline.survive > 0 { a.replicas } else { asked.clamp(1, a.replicas.max(1)) }
    };
    part.assignments.iter().map(kept).collect()
}

/// Poisson arrivals of a rate in queries per second.
fn steady(qps: f64) -> Workload {
    let trace = ArrivalTrace::Rates((0..sample_seconds(qps)).map(|second| (second, qps)).collect());
    Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: SEED }
}

/// The length of the load of a rate, in seconds.
fn sample_seconds(qps: f64) -> u64 {
    ((SAMPLE_REQUESTS / qps.max(1.0)) as u64).clamp(SAMPLE_SECONDS_MIN, SAMPLE_SECONDS)
}

/// A pipeline's part of a plan with its replicas at a rate: those of its ladder's step, or of the last step beyond it.
/// Without a ladder the part is unchanged.
#[must_use]
pub fn at_rate(part: &PipelinePlan, rate_qps: f64) -> PipelinePlan {
    let mut part = part.clone();
    if let Some(step) = part.ladder.iter().find(|step| step.rate_qps >= rate_qps).or(part.ladder.last()) {
        part.assignments.iter_mut().zip(&step.replicas).for_each(|(a, &n)| a.replicas = n);
    }
    part
}

/// The last rate of a part's ladder, in queries per second; its demand without a ladder.
#[must_use]
pub fn end_qps(part: &PipelinePlan) -> f64 {
    end_of(&part.ladder).unwrap_or(part.demand_qps)
}

/// Whether a part's ladder ends below a rate, and that of another part reaches clearly further.
#[must_use]
pub fn is_outgrown(part: &PipelinePlan, by: &PipelinePlan, rate_qps: f64) -> bool {
    let ends = end_qps(part);
    ends < rate_qps * (1.0 - SLACK) && end_qps(by) > ends * CLEARLY_FURTHER
}

/// The plan with the rates of its ladders divided by `headroom`. So more replicas run at a rate, or fewer if `headroom` is
/// below 1. A ladder is made on Poisson arrivals, and a load with bursts needs more replicas than its mean rate.
#[must_use]
pub fn with_headroom(mut plan: Plan, headroom: f64) -> Plan {
    plan.pipelines.iter_mut().flat_map(|part| &mut part.ladder).for_each(|step| step.rate_qps /= headroom);
    plan
}

/// A step for each of these rising rates in queries per second, for a problem of one pipeline and its plan. `workload`
/// makes the load of a rate.
///
/// No group has fewer replicas than `least`, and replicas never fall from one step to the next. The ladder ends before the
/// first rate that no number of replicas holds, or that needs too many devices. Below the demand such a rate is left out:
/// at low rates batches wait long to be full, and queries may be late.
#[must_use]
pub fn steps(
    problem: &Problem,
    plan: &Plan,
    rates_qps: impl IntoIterator<Item = f64>,
    least: &[u32],
    workload: impl Fn(f64) -> Workload,
) -> Vec<LadderStep> {
    let limits = RunLimits::new(Arc::new(Duration::default));
    let asked = AskedSteps { rates_qps: rates_qps.into_iter(), least, at_demand: None };
    find_steps(problem, plan, asked, workload, &limits).steps
}

/// Why a ladder has no further step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LadderEnd {
    /// It has its last rate.
    LastRate,
    /// No number of replicas holds the next rate.
    NothingHolds,
    /// The next rate needs more devices than there are.
    TooFewDevices,
    /// The demand needs more devices than there are. Its step has as many as there are, and does not hold it.
    TooFewDevicesForDemand,
    /// A limit has ended the search.
    Stopped(StopReason),
}

/// Steps of a ladder.
struct FoundSteps {
    steps: Vec<LadderStep>,
    end: LadderEnd,
}

/// The steps of a ladder to be found.
struct AskedSteps<'a, R> {
    /// Rising rates, in queries per second.
    rates_qps: R,
    /// No group has fewer replicas.
    least: &'a [u32],
    /// Replicas that are known to hold the demand.
    at_demand: Option<&'a [u32]>,
}

/// The same as [`steps`], within limits. Where a rate above the demand needs too many devices, a last step for less than
/// that rate is looked for. Where the demand does, its step has all that the devices allow.
fn find_steps(
    problem: &Problem,
    plan: &Plan,
    asked: AskedSteps<'_, impl Iterator<Item = f64>>,
    workload: impl Fn(f64) -> Workload,
    limits: &RunLimits,
) -> FoundSteps {
    let mut steps = Vec::new();
    if plan.pipelines.len() != 1 || problem.pipelines.len() != 1 {
        return FoundSteps { steps, end: LadderEnd::NothingHolds };
    }
    let search = |rate_qps: f64| StepSearch::new(problem, plan, rate_qps, workload(rate_qps), limits);
    let end = add_steps(&mut steps, problem.pipelines[0].demand_qps, asked, search);
    FoundSteps { steps, end: end.unwrap_or_else(LadderEnd::Stopped) }
}

/// Adds a step for each rate. The error is why the search ended early.
fn add_steps<'a>(
    steps: &mut Vec<LadderStep>,
    demand_qps: f64,
    asked: AskedSteps<'_, impl Iterator<Item = f64>>,
    search: impl Fn(f64) -> Result<StepSearch<'a>, StopReason>,
) -> Result<LadderEnd, StopReason> {
    for rate_qps in asked.rates_qps {
        let floor = steps.last().map_or(asked.least, |s| &s.replicas);
        let at_rate = search(rate_qps)?;
        let found = at_rate.find_step(floor)?;
        let is_demand = rate_qps >= demand_qps && steps.last().is_none_or(|last| last.rate_qps < demand_qps);
        match (found, asked.at_demand.filter(|_| is_demand)) {
            (StepReplicas::Held(replicas), _) => steps.push(LadderStep { rate_qps, replicas }),
            _ if rate_qps < demand_qps => {}
            (_, Some(known)) => {
                let replicas = known.iter().zip(floor).map(|(&known, &least)| known.max(least)).collect();
                steps.push(LadderStep { rate_qps, replicas });
            }
            (StepReplicas::NothingHolds, None) => return Ok(LadderEnd::NothingHolds),
            (StepReplicas::TooFewDevices, None) => {
                if let Some(last) = steps.last().filter(|last| last.rate_qps >= demand_qps) {
                    steps.extend(find_between(last, rate_qps, search)?);
                    return Ok(LadderEnd::TooFewDevices);
                }
                steps.push(LadderStep { rate_qps, replicas: at_rate.most_on_devices(floor) });
                return Ok(LadderEnd::TooFewDevicesForDemand);
            }
        }
    }
    Ok(LadderEnd::LastRate)
}

/// The step of the largest rate between a step and a rate that needs too many devices, as far as halving finds it.
fn find_between<'a>(
    held: &LadderStep,
    rate_qps: f64,
    search: impl Fn(f64) -> Result<StepSearch<'a>, StopReason>,
) -> Result<Option<LadderStep>, StopReason> {
    let (mut found, mut high_qps) = (None, rate_qps);
    for _ in 0..HALVINGS {
        let low = found.as_ref().unwrap_or(held);
        let middle_qps = (low.rate_qps * high_qps).sqrt();
        match search(middle_qps)?.find_step(&low.replicas)? {
            StepReplicas::Held(replicas) => found = Some(LadderStep { rate_qps: middle_qps, replicas }),
            StepReplicas::NothingHolds | StepReplicas::TooFewDevices => high_qps = middle_qps,
        }
    }
    Ok(found)
}
