//! How many replicas do a plan's groups need at other rates? The steward follows this ladder between two plans.
//!
//! Groups, batches and policies stay those of the plan. The fewest replicas for a rate are found like in the greedy planner
//! (InferLine, Algorithms 1 and 2). Replicas are added at the busiest group until the estimator meets the percentile. Then
//! they are removed where they save most.
//!
//! The replicas found so fit one sample of the rate. They are judged on fresh samples, and get more replicas until these
//! show that the percentile is met (`held_out`).
//!
//! When the time is up, the other steps are scaled from the plan, which holds at its demand (`scaled`).

mod room;
mod scaled;

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
/// no ladder. Steps that the limits leave no time for are scaled from the plan.
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
        let FoundSteps { mut steps, stopped } = find_steps(&of_pipeline, &of_part, rates.clone(), &least, steady, limits);
        if let Some(why) = stopped {
            let searched = steps.last().map_or(0.0, |last| last.rate_qps);
            add_scaled_steps(&of_pipeline, &of_part, &rates, &least, &mut steps);
            let from = steps.iter().find(|step| step.rate_qps > searched).map_or(last_qps, |step| step.rate_qps);
            let sentence =
                format!("the ladder of {:?} from {from:.1} queries/s on is scaled from the plan: {why}", part.name);
            left_out.push(sentence);
        }
        let reaches_demand = steps.last().is_some_and(|last| last.rate_qps >= part.demand_qps * (1.0 - 1e-9));
        part.ladder = if reaches_demand { steps } else { Vec::new() };
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

/// Steps of a ladder.
struct FoundSteps {
    steps: Vec<LadderStep>,
    /// Why the limits ended the ladder before its last rate.
    stopped: Option<StopReason>,
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
        return FoundSteps { steps, stopped: None };
    };
    for rate_qps in rates_qps {
        let least = steps.last().map_or(least, |s| &s.replicas);
        let fewest = StepSearch::new(problem, plan, workload(rate_qps), limits).and_then(|search| {
            let fewest = search.find_held_replicas(rate_qps, least)?;
            Ok(fewest.filter(|replicas| fits(problem, &search.plan_with(replicas))))
        });
        match fewest {
            Ok(Some(replicas)) => steps.push(LadderStep { rate_qps, replicas }),
            Ok(None) if rate_qps < pipeline.demand_qps => {}
            Ok(None) => break,
            Err(stopped) => return FoundSteps { steps, stopped: Some(stopped) },
        }
    }
    FoundSteps { steps, stopped: None }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{chain, problem};
    use crate::options::{Planner, PlanningOptions};
    use apportion_domain::Mode;
    use apportion_estimator::ArrivalProcess;

    fn unlimited() -> RunLimits {
        RunLimits::new(Arc::new(Duration::default))
    }

    fn steady(qps: f64) -> Workload {
        let trace = ArrivalTrace::Rates((0..10).map(|s| (s, qps)).collect());
        Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: 3 }
    }

    #[test]
    fn every_step_holds_its_rate_with_the_fewest_replicas() {
        let problem = problem(chain(120.0));
        let options = PlanningOptions { planner: Planner::Greedy, ..PlanningOptions::new(Arc::new(Duration::default)) };
        let (outcome, _) = crate::plan(&problem, &options);
        let plan = outcome.plan().expect("a plan");
        let rates = [50.0, 100.0, 200.0, 400.0, 800.0];
        let steps = steps(&problem, plan, rates, &[1, 1], steady);
        assert_eq!(steps.iter().map(|s| s.rate_qps).collect::<Vec<_>>(), rates);
        let mut before = vec![1; plan.pipelines[0].assignments.len()];
        for step in &steps {
            let limits = unlimited();
            let search = StepSearch::new(&problem, plan, steady(step.rate_qps), &limits).expect("few requests");
            assert!(search.holds(&step.replicas).expect("a verdict"), "{step:?}");
            assert!(step.replicas.iter().zip(&before).all(|(now, before)| now >= before), "{steps:?}");
            let fewest = search.find_fewest_replicas(step.rate_qps, &before).expect("a verdict").expect("replicas");
            let is_fewest = fewest == step.replicas;
            assert!(is_fewest || !search.holds_fresh(&fewest).expect("a verdict"), "{step:?}: {fewest:?} would do");
            for i in (0..step.replicas.len()).filter(|&i| is_fewest && step.replicas[i] > before[i]) {
                let mut fewer = step.replicas.clone();
                fewer[i] -= 1;
                let load =
                    plan.pipelines[0].assignments[i].utilisation * f64::from(plan.pipelines[0].assignments[i].replicas);
                let is_bare = f64::from(fewer[i]) < load * step.rate_qps / problem.pipelines[0].demand_qps;
                assert!(
                    is_bare || !search.holds(&fewer).expect("a verdict"),
                    "{step:?} can do with a replica less of group {i}"
                );
            }
            assert!(search.holds_fresh(&step.replicas).expect("a verdict"), "{step:?}");
            before.clone_from(&step.replicas);
        }
        assert!(steps[4].replicas.iter().sum::<u32>() > steps[0].replicas.iter().sum(), "{steps:?}");
    }

    #[test]
    fn a_rate_that_nothing_holds_ends_the_ladder() {
        // batches take 10 ms and then 5 ms at least, which no number of replicas fits into 14 ms
        let problem = problem(chain(120.0));
        let options = PlanningOptions { planner: Planner::Greedy, ..PlanningOptions::new(Arc::new(Duration::default)) };
        let (outcome, _) = crate::plan(&problem, &options);
        let tight = crate::fixtures::problem(chain(14.0));
        assert_eq!(steps(&tight, outcome.plan().expect("a plan"), [50.0, 100.0], &[1, 1], steady), []);
    }

    #[test]
    fn the_plan_with_the_cheaper_ladder_is_chosen() {
        let problem = problem(chain(60.0))
            .changed(|d| {
                d.objective.mode = Mode::MinCost;
                d.pipelines[0] = d.pipelines[0].changed(&d.hardware, |p| p.demand_qps = 90.0).expect("valid");
            })
            .expect("valid");
        let options = |planner, ladder| {
            let elapsed = Arc::new(Duration::default);
            PlanningOptions { planner, ladder, trace: Some(steady(90.0)), ..PlanningOptions::new(elapsed) }
        };
        let price = |plan: &Plan| price_per_hour(&problem, &plan.pipelines[0], 90.0).expect("a ladder");
        let alone = [Planner::Milp, Planner::Greedy].map(|planner| {
            let (outcome, _) = crate::plan(&problem, &options(planner, None));
            price(&with_ladders(&problem, outcome.plan().expect("a plan").clone(), 2.0, &unlimited()).plan)
        });
        let (outcome, _) = crate::plan(&problem, &options(Planner::Milp, Some(2.0)));
        assert_eq!(price(outcome.plan().expect("a plan")), alone[0].min(alone[1]), "{alone:?}");
    }

    #[test]
    fn a_ladder_is_priced_by_its_step() {
        let problem = problem(chain(120.0));
        let options = PlanningOptions { planner: Planner::Greedy, ..PlanningOptions::new(Arc::new(Duration::default)) };
        let (outcome, _) = crate::plan(&problem, &options);
        let mut plan = outcome.plan().expect("a plan").clone();
        assert_eq!(price_per_hour(&problem, &plan.pipelines[0], 10.0), None);
        assert!((price_at_demand(&problem, &plan) - plan.cost_per_hour).abs() < 1e-9, "as planned");
        let part = &mut plan.pipelines[0];
        let one = |a: &Assignment| replica_price(&problem, a);
        let (first, second) = (one(&part.assignments[0]), one(&part.assignments[1]));
        part.ladder =
            vec![LadderStep { rate_qps: 10.0, replicas: vec![1, 2] }, LadderStep { rate_qps: 20.0, replicas: vec![3, 2] }];
        let asked = [1.0, 10.0, 15.0, 20.0, 40.0].map(|rate| price_per_hour(&problem, part, rate).expect("a ladder"));
        let (low, high) = (first + 2.0 * second, 3.0 * first + 2.0 * second);
        assert!(
            first > 0.0 && asked.iter().zip([low, low, high, high, 2.0 * high]).all(|(a, b)| (a - b).abs() < 1e-9),
            "{asked:?}"
        );
        let earlier = with_headroom(plan.clone(), 2.0);
        let rates = |plan: &Plan| plan.pipelines[0].ladder.iter().map(|s| s.rate_qps).collect::<Vec<_>>();
        assert_eq!((rates(&plan), rates(&earlier)), (vec![10.0, 20.0], vec![5.0, 10.0]));
        let prices = |rate: f64| [&plan, &earlier].map(|plan| price_at(&problem, &plan.pipelines[0], rate));
        assert!(prices(8.0)[0] < prices(8.0)[1], "{:?}", prices(8.0));
        let replicas =
            |rate: f64| at_rate(&plan.pipelines[0], rate).assignments.iter().map(|a| a.replicas).collect::<Vec<_>>();
        assert_eq!([1.0, 10.0, 15.0, 40.0].map(replicas), [[1, 2], [1, 2], [3, 2], [3, 2]]);
    }

    #[test]
    fn a_ladder_ends_where_the_devices_end() {
        let problem = problem(chain(120.0))
            .changed(|d| d.pipelines[0] = d.pipelines[0].changed(&d.hardware, |p| p.demand_qps = 30.0).expect("valid"))
            .expect("valid");
        let options = PlanningOptions {
            planner: Planner::Greedy,
            ladder: Some(8.0),
            ..PlanningOptions::new(Arc::new(Duration::default))
        };
        let ladder = |problem: &Problem| {
            let (outcome, _) = crate::plan(problem, &options);
            let part = outcome.plan().expect("a plan").pipelines[0].clone();
            let planned: Vec<u32> = part.assignments.iter().map(|a| a.replicas).collect();
            (part.demand_qps, planned, part.ladder)
        };
        let (demand_qps, _, steps) = ladder(&problem);
        assert!(steps[0].rate_qps <= demand_qps / 8.0, "{steps:?}");
        assert!(steps[steps.len() - 1].rate_qps >= 8.0 * demand_qps, "{steps:?}");
        assert_eq!(steps[0].replicas, [1, 1], "an eighth of 30 queries/s");
        // What is spare so that losses are survived is not given up.
        let careful = problem
            .changed(|d| d.pipelines[0] = d.pipelines[0].changed(&d.hardware, |p| p.survive = 1).expect("valid"))
            .expect("valid");
        let (_, planned_spare, kept) = ladder(&careful);
        assert_eq!(kept[0].rate_qps, demand_qps);
        assert!(kept.iter().all(|s| s.replicas.iter().zip(&planned_spare).all(|(n, planned)| n >= planned)), "{kept:?}");
        let at_demand = steps.iter().find(|s| s.rate_qps >= demand_qps).expect("the demand's");
        let count: u32 = at_demand.replicas.iter().sum();
        let few = problem.changed(|d| d.hardware.iter_mut().for_each(|h| h.count = Some(count))).expect("valid");
        let (_, _, short) = ladder(&few);
        assert!(!short.is_empty() && short.len() < steps.len(), "{} of {}", short.len(), steps.len());
        assert!(short.iter().all(|s| s.replicas.iter().sum::<u32>() <= count * few.hardware.len() as u32));
    }
}
