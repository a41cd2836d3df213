//! How many replicas do a plan's groups need at other rates? The steward follows this ladder between two plans.
//!
//! Groups, batches and policies stay those of the plan. The fewest replicas for a rate are found like in the greedy planner
//! (InferLine, Algorithms 1 and 2). Replicas are added at the busiest group until the estimator meets the percentile. Then
//! they are removed where they save most.
//!
//! The replicas found so fit one sample of the rate. They are judged on fresh samples, and get more replicas until these
//! show that the percentile is met (`held_out`).
//!
//! When the time is up, the other steps are scaled from the plan, which holds at its demand (`scaled`). All are, if the
//! search needs more devices than there are before it reaches the demand: it only adds replicas from rate to rate.

mod room;
mod scaled;
#[cfg(test)]
mod tests;

pub use self::room::fits;
use self::scaled::add_scaled_steps;
use crate::held_out::effort::JudgeEffort;
use crate::held_out::judge::{JudgedPlan, judge};
use crate::held_out::verdict::is_accepted;
use crate::replay;
use crate::replay::ReplayVerdict;
use apportion_domain::{ArrivalTrace, Assignment, Pipeline, PipelinePlan, Plan, Problem, StopReason, TaskKind};
use apportion_estimator::{ArrivalProcess, Workload};
use apportion_mip::RunLimits;
use apportion_serving::ladder::LadderStep;
use std::sync::Arc;
use std::time::Duration;

/// Most replicas of a group in a step, as a factor on the replicas that the rate alone needs. Beyond it the rate cannot be
/// held.
const REPLICAS_OVER_MAX: u32 = 8;
/// While a rate does not hold, the busiest group grows by one replica in this many, at least by one. Superfluous
/// replicas are removed afterwards.
const GROWTH: u32 = 12;
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

/// The search for the step of one rate.
struct StepSearch<'a> {
    problem: &'a Problem,
    pipeline: &'a Pipeline,
    plan: &'a Plan,
    workload: Workload,
    /// Its requests that may miss.
    misses_max: u64,
    limits: &'a RunLimits,
}

impl<'a> StepSearch<'a> {
    fn new(problem: &'a Problem, plan: &'a Plan, workload: Workload, limits: &'a RunLimits) -> Result<Self, StopReason> {
        let misses_max = replay::misses_max(problem, &workload, limits)?;
        Ok(Self { problem, pipeline: &problem.pipelines[0], plan, workload, misses_max, limits })
    }
}

/// A plan with ladders.
pub(crate) struct PlanWithLadders {
    pub plan: Plan,
    /// A sentence for each ladder that the limits cut short.
    pub left_out: Vec<String>,
}

/// Adds a ladder to each pipeline of a plan, from its demand divided by `up_to` to `up_to` times its demand.
///
/// Below the demand, groups may have fewer replicas than in the plan, except if the pipeline must survive losses. Each
/// ladder may use all devices; several pipelines share them when they need them. Pipelines with `continuous` tasks get
/// no ladder. Steps that the limits leave no time for are scaled from the plan, and all of them if the search has too few
/// devices for the demand.
pub(crate) fn with_ladders(problem: &Problem, mut plan: Plan, up_to: f64, limits: &RunLimits) -> PlanWithLadders {
    let mut left_out = Vec::new();
    for part in &mut plan.pipelines {
        let Some(p) = problem.pipelines.iter().find(|p| p.name == part.name) else { continue };
        if part.demand_qps <= 0.0 || p.tasks.iter().any(|t| t.kind == TaskKind::Continuous) {
            continue;
        }
        let of_pipeline = problem.changed(|draft| {
            draft.pipelines = vec![p.clone()];
            draft.deployed.clear();
            draft.quotas.clear();
        });
        let Ok(of_pipeline) = of_pipeline else { continue };
        let count = (up_to.clamp(1.0, UP_TO_MAX).ln() / STEP_FACTOR.ln()).ceil() as i32;
        let first = if p.survive > 0 { 0 } else { -count };
        let rates: Vec<f64> = (first..=count).map(|k| part.demand_qps * STEP_FACTOR.powi(k)).collect();
        let of_part = Plan { pipelines: vec![part.clone()], cost_per_hour: 0.0 };
        let kept = |a: &Assignment| {
            let asked = p.task_named(&a.group.task).map_or(1, |t| p.task(t).min_replicas);
            if p.survive > 0 { a.replicas } else { asked.clamp(1, a.replicas.max(1)) }
        };
        let least: Vec<u32> = part.assignments.iter().map(kept).collect();
        let steady = |qps: f64| {
            let trace = ArrivalTrace::Rates((0..sample_seconds(qps)).map(|second| (second, qps)).collect());
            Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: SEED }
        };
        let last_qps = rates.last().copied().unwrap_or(part.demand_qps);
        let FoundSteps { mut steps, end } = find_steps(&of_pipeline, &of_part, rates.clone(), &least, steady, limits);
        if let LadderEnd::Limit(why) = end {
            let searched = steps.last().map_or(0.0, |last| last.rate_qps);
            add_scaled_steps(&of_pipeline, &of_part, &rates, &least, &mut steps);
            let from = steps.iter().find(|step| step.rate_qps > searched).map_or(last_qps, |step| step.rate_qps);
            let sentence =
                format!("the ladder of {:?} from {from:.1} queries/s on is scaled from the plan: {why}", part.name);
            left_out.push(sentence);
        }
        let demand_qps = part.demand_qps * (1.0 - 1e-9);
        let reaches_demand = |steps: &[LadderStep]| steps.last().is_some_and(|last| last.rate_qps >= demand_qps);
        if end == LadderEnd::Devices && !reaches_demand(&steps) {
            steps.clear();
            add_scaled_steps(&of_pipeline, &of_part, &rates, &least, &mut steps);
            left_out.push(format!("the ladder of {:?} is scaled from the plan: its search ran out of devices", part.name));
        }
        part.ladder = if reaches_demand(&steps) { steps } else { Vec::new() };
    }
    PlanWithLadders { plan, left_out }
}

/// The length of the load of a rate, in seconds.
fn sample_seconds(qps: f64) -> u64 {
    ((SAMPLE_REQUESTS / qps.max(1.0)) as u64).clamp(SAMPLE_SECONDS_MIN, SAMPLE_SECONDS)
}

/// Cost per hour of a pipeline's part of a plan at a rate in queries per second, with the replicas of its ladder's step.
/// Beyond the last step it grows in proportion. `None` without a ladder.
#[must_use]
pub fn price_per_hour(problem: &Problem, part: &PipelinePlan, rate_qps: f64) -> Option<f64> {
    let of = |replicas: &[u32]| -> f64 {
        part.assignments.iter().zip(replicas).map(|(a, &n)| f64::from(n) * replica_price(problem, a)).sum()
    };
    match part.ladder.iter().find(|step| step.rate_qps >= rate_qps) {
        Some(step) => Some(of(&step.replicas)),
        None => part.ladder.last().map(|last| of(&last.replicas) * rate_qps / last.rate_qps),
    }
}

/// Cost per hour of a pipeline's part of a plan at a rate: by its ladder, or as planned without one.
#[must_use]
pub fn price_at(problem: &Problem, part: &PipelinePlan, rate_qps: f64) -> f64 {
    let planned = || part.assignments.iter().map(|a| f64::from(a.replicas) * replica_price(problem, a)).sum();
    price_per_hour(problem, part, rate_qps).unwrap_or_else(planned)
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

/// The plan with the rates of its ladders divided by `headroom`. So more replicas run at a rate, or fewer if `headroom` is
/// below 1. A ladder is made on Poisson arrivals, and a load with bursts needs more replicas than its mean rate.
#[must_use]
pub fn with_headroom(mut plan: Plan, headroom: f64) -> Plan {
    plan.pipelines.iter_mut().flat_map(|part| &mut part.ladder).for_each(|step| step.rate_qps /= headroom);
    plan
}

/// Price of a replica per hour.
fn replica_price(problem: &Problem, a: &Assignment) -> f64 {
    let hardware = problem.hardware.iter().find(|h| h.name == a.group.hardware);
    hardware.map_or(0.0, |h| h.price_per_hour * f64::from(a.group.share.eighths()) / 8.0)
}

/// Cost per hour of a plan at the demands of its pipelines: by their ladders, or as planned without one.
pub(crate) fn price_at_demand(problem: &Problem, plan: &Plan) -> f64 {
    plan.pipelines.iter().map(|part| price_at(problem, part, part.demand_qps)).sum()
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
    find_steps(problem, plan, rates_qps, least, workload, &limits).steps
}

/// Why a ladder has no further step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LadderEnd {
    /// It has its last rate.
    LastRate,
    /// No number of replicas holds the next rate.
    NothingHolds,
    /// The next rate needs more devices than there are.
    Devices,
    /// A limit has ended the search.
    Limit(StopReason),
}

/// Steps of a ladder.
struct FoundSteps {
    steps: Vec<LadderStep>,
    end: LadderEnd,
}

/// The same as [`steps`], within limits.
fn find_steps(
    problem: &Problem,
    plan: &Plan,
    rates_qps: impl IntoIterator<Item = f64>,
    least: &[u32],
    workload: impl Fn(f64) -> Workload,
    limits: &RunLimits,
) -> FoundSteps {
    let mut steps: Vec<LadderStep> = Vec::new();
    let Some(pipeline) = problem.pipelines.first().filter(|_| plan.pipelines.len() == 1) else {
        return FoundSteps { steps, end: LadderEnd::NothingHolds };
    };
    for rate_qps in rates_qps {
        let least = steps.last().map_or(least, |s| &s.replicas);
        let fewest = StepSearch::new(problem, plan, workload(rate_qps), limits).and_then(|search| {
            let fewest = search.find_held_replicas(rate_qps, least)?;
            Ok(fewest.map(|replicas| (fits(problem, &search.plan_with(&replicas)), replicas)))
        });
        let end = match fewest {
            Ok(Some((true, replicas))) => {
                steps.push(LadderStep { rate_qps, replicas });
                continue;
            }
            Ok(_) if rate_qps < pipeline.demand_qps => continue,
            Ok(Some(_)) => LadderEnd::Devices,
            Ok(None) => LadderEnd::NothingHolds,
            Err(stopped) => LadderEnd::Limit(stopped),
        };
        return FoundSteps { steps, end };
    }
    FoundSteps { steps, end: LadderEnd::LastRate }
}

impl StepSearch<'_> {
    /// Replicas that hold the rate on fresh samples; `None` if no number does. The error is why the search ended early.
    fn find_held_replicas(&self, rate_qps: f64, floor: &[u32]) -> Result<Option<Vec<u32>>, StopReason> {
        let Some(mut replicas) = self.find_fewest_replicas(rate_qps, floor)? else { return Ok(None) };
        let mut failed = replicas.clone();
        while !self.holds_fresh(&replicas)? {
            failed.clone_from(&replicas);
            if !self.grow(rate_qps, floor, &mut replicas) {
                return Ok(None);
            }
        }
        // the last growth added replicas of one group, and some of them may be superfluous
        for i in 0..replicas.len() {
            while replicas[i] - failed[i] > 1 {
                let middle = failed[i] + (replicas[i] - failed[i]) / 2;
                let held = std::mem::replace(&mut replicas[i], middle);
                if !self.holds_fresh(&replicas)? {
                    (failed[i], replicas[i]) = (middle, held);
                }
            }
        }
        Ok(Some(replicas))
    }

    /// The load of each group at a rate if it has so many replicas, 1 being all of their capacity.
    fn busy(&self, rate_qps: f64, replicas: &[u32]) -> Vec<f64> {
        let one = |(a, &n): (&Assignment, &u32)| {
            a.utilisation * f64::from(a.replicas) * rate_qps / (self.pipeline.demand_qps * f64::from(n))
        };
        self.plan.pipelines[0].assignments.iter().zip(replicas).map(one).collect()
    }

    /// The replicas of each group whose capacity is just enough for the rate.
    fn for_rate(&self, rate_qps: f64) -> Vec<u32> {
        let ones = vec![1; self.plan.pipelines[0].assignments.len()];
        self.busy(rate_qps, &ones).iter().map(|load| (load - 1e-9).ceil().max(1.0) as u32).collect()
    }

    /// Adds replicas at the busiest group. Returns whether it has not more than is worth a try.
    fn grow(&self, rate_qps: f64, floor: &[u32], replicas: &mut [u32]) -> bool {
        let (busy, for_rate) = (self.busy(rate_qps, replicas), self.for_rate(rate_qps));
        let Some(busiest) = (0..busy.len()).max_by(|&a, &b| busy[a].total_cmp(&busy[b])) else { return false };
        replicas[busiest] = replicas[busiest].saturating_add((replicas[busiest] / GROWTH).max(1));
        replicas[busiest] <= REPLICAS_OVER_MAX.saturating_mul(for_rate[busiest].max(floor[busiest]))
    }

    /// The fewest replicas that hold the rate on the sample; `None` if no number does.
    fn find_fewest_replicas(&self, rate_qps: f64, floor: &[u32]) -> Result<Option<Vec<u32>>, StopReason> {
        let assignments = &self.plan.pipelines[0].assignments;
        let for_rate = self.for_rate(rate_qps);
        let mut replicas: Vec<u32> = for_rate.iter().zip(floor).map(|(a, b)| *a.max(b)).collect();
        while !self.holds(&replicas)? {
            if !self.grow(rate_qps, floor, &mut replicas) {
                return Ok(None);
            }
        }
        let price = |i: usize| replica_price(self.problem, &assignments[i]);
        let mut dearest: Vec<usize> = (0..replicas.len()).collect();
        dearest.sort_by(|&a, &b| price(b).total_cmp(&price(a)).then(a.cmp(&b)));
        for i in dearest {
            // Bisection between a count that fails and one that holds. It assumes that more replicas never harm.
            let mut fails = floor[i].max(for_rate[i]) - 1;
            while replicas[i] - fails > 1 {
                let fewer = fails + (replicas[i] - fails) / 2;
                let held = std::mem::replace(&mut replicas[i], fewer);
                if !self.holds(&replicas)? {
                    (fails, replicas[i]) = (fewer, held);
                }
            }
        }
        Ok(Some(replicas))
    }

    /// The plan with these replicas.
    fn plan_with(&self, replicas: &[u32]) -> Plan {
        let mut plan = self.plan.clone();
        plan.pipelines[0].assignments.iter_mut().zip(replicas).for_each(|(a, &n)| a.replicas = n);
        plan
    }

    /// Whether these replicas meet the percentile on fresh samples. Other numbers of replicas get other samples. A plan
    /// that the estimator refuses does not hold.
    fn holds_fresh(&self, replicas: &[u32]) -> Result<bool, StopReason> {
        let plan = self.plan_with(replicas);
        let purpose = format!("step/{replicas:?}");
        let judged = JudgedPlan { problem: self.problem, plan: &plan, workload: &self.workload, purpose: &purpose };
        match judge(&judged, JudgeEffort::STEP, self.limits) {
            Ok(simulation) => Ok(simulation.total.judged_on.as_ref().is_some_and(is_accepted)),
            Err(no) => no.stopped.map_or(Ok(false), Err),
        }
    }

    /// Whether these replicas meet the percentile on the sample. The error is why there is no verdict.
    fn holds(&self, replicas: &[u32]) -> Result<bool, StopReason> {
        match replay::check_percentiles(
            self.problem,
            &self.plan_with(replicas),
            &self.workload,
            self.misses_max,
            self.limits,
        ) {
            ReplayVerdict::Holds => Ok(true),
            ReplayVerdict::Misses => Ok(false),
            ReplayVerdict::Unknown(stopped) => Err(stopped),
        }
    }
}
