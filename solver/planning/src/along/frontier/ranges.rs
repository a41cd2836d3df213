//! Which values of a sweep are worth a point?

use super::fill::limits;
use super::sweep::Sweep;
use crate::answer::infeasible;
use crate::exact::model::groups::least_latency_ms;
use crate::exact::model::latency::finish_times;
use crate::exact::model::tightening::Tightening;
use crate::exact::search::attempt::{SearchOutcome, attempt};
use crate::exact::search::best::search;
use crate::exact::search::modes::SearchResult;
use crate::options::PlanningOptions;
use apportion_domain::{HardwareIndex, Mode, PipelineIndex, Plan, Problem, Shortfall, StopReason, TaskIndex};
use apportion_mip::RunLimits;

/// Most points of one frontier.
pub const POINTS_MAX: usize = 10_000;
/// First demand of the default range, as a part of the largest demand that can be served.
const DEMAND_FIRST: f64 = 0.10;
/// Last demand of the default range, as a part of the same.
const DEMAND_LAST: f64 = 1.15;
/// Most doublings or halvings in the search for the largest demand. Beyond them the servable demand counts as unlimited.
const DOUBLINGS_MAX: u32 = 12;
/// Relative precision of the largest demand.
const DEMAND_PRECISION: f64 = 1e-3;
/// Largest SLO of the default range, as a factor on the problem's SLO or on the smallest possible one.
const SLO_FACTOR: f64 = 4.0;
/// Gap of a search that only asks whether there is a plan.
const ANY_GAP: f64 = 0.5;

/// Why there is no default range.
#[derive(Debug, thiserror::Error)]
pub enum NoRange {
    /// No value of the sweep makes the problem feasible.
    #[error("infeasible at every value")]
    Infeasible(Vec<Shortfall>),
    /// A search stopped without an answer.
    #[error("stopped without an answer: {0}")]
    Stopped(StopReason),
}

/// The first and the last value of a sweep, in the unit of [`Sweep::unit`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SweepRange {
    /// The first value.
    pub from: f64,
    /// The last value; at least `from`.
    pub to: f64,
}

/// `points` values of a range, evenly spaced. A count has whole numbers, each of them once.
#[must_use]
pub fn values(sweep: Sweep, range: SweepRange, points: usize) -> Vec<f64> {
    let SweepRange { from, to } = range;
    let points = points.clamp(1, POINTS_MAX);
    let last = (points - 1).max(1) as f64;
    let at = |i: usize| if i + 1 == points && points > 1 { to } else { from + (to - from) * i as f64 / last };
    let mut values: Vec<f64> = (0..points).map(at).collect();
    if matches!(sweep, Sweep::Count(_)) {
        values.iter_mut().for_each(|v| *v = v.round());
    }
    values.dedup();
    values
}

/// The range in which plans change along a sweep. The time limit of `options` holds for each search.
///
/// # Errors
/// Why there is no such range.
pub fn default_range(problem: &Problem, sweep: Sweep, options: &PlanningOptions) -> Result<SweepRange, NoRange> {
    match sweep {
        Sweep::Demand(_) => demand_range(problem, sweep, options),
        Sweep::Slo(p) => slo_range(problem, p, options),
        Sweep::Budget => budget_range(problem, options),
        Sweep::Count(h) => count_range(problem, h, options),
    }
}

/// From 10 to 115 % of the largest demand that can be served; to twice the present one if there is no largest.
fn demand_range(problem: &Problem, sweep: Sweep, options: &PlanningOptions) -> Result<SweepRange, NoRange> {
    let servable = |demand: f64| match sweep.problem_at(problem, demand) {
        Ok(at) => is_feasible(&at, &limits(options)),
        // the demand is too large for a problem file
        Err(_) => Ok(false),
    };
    let present = sweep.present(problem).filter(|d| *d > 0.0).unwrap_or(1.0);
    let (mut low, mut high) = (0.0, present);
    if servable(present)? {
        let mut doublings = 0;
        while servable(high)? {
            if doublings == DOUBLINGS_MAX {
                return Ok(SweepRange { from: DEMAND_FIRST * present, to: 2.0 * present });
            }
            doublings += 1;
            low = high;
            high *= 2.0;
        }
    } else {
        // find the first power of two below that works, so that a tiny capacity is found as precisely as a large one
        low = present / 2.0;
        let mut halvings = 0;
        while !servable(low)? {
            if halvings == DOUBLINGS_MAX {
                return Err(NoRange::Infeasible(infeasible::shortfalls(problem, &limits(options))));
            }
            halvings += 1;
            high = low;
            low /= 2.0;
        }
    }
    while high - low > DEMAND_PRECISION * high {
        let middle = 0.5 * (low + high);
        if servable(middle)? { low = middle } else { high = middle }
    }
    Ok(SweepRange { from: DEMAND_FIRST * low, to: DEMAND_LAST * low })
}

fn is_feasible(problem: &Problem, limits: &RunLimits) -> Result<bool, NoRange> {
    match search(problem, &Tightening::none(problem), ANY_GAP, limits) {
        SearchResult::Found(_) => Ok(true),
        SearchResult::Infeasible => Ok(false),
        SearchResult::Unknown(stopped) => Err(NoRange::Stopped(stopped)),
    }
}

/// From the smallest possible SLO, at any load, to an SLO that admits every batch size. The last value is at most
/// [`SLO_FACTOR`] times the SLO.
fn slo_range(problem: &Problem, p: PipelineIndex, options: &PlanningOptions) -> Result<SweepRange, NoRange> {
    let Ok(smallest) = least_latency_ms(problem, p) else {
        return Err(NoRange::Infeasible(infeasible::shortfalls(problem, &limits(options))));
    };
    let pipeline = problem.pipeline(p);
    let slowest = |task: TaskIndex| {
        let rows = pipeline.task(task).variants.iter().flat_map(|v| v.profile.rows());
        rows.map(|r| pipeline.hop_charge_ms(task, r.latency_ms)).fold(0.0, f64::max)
    };
    let charges: Vec<f64> = (0..pipeline.tasks.len()).map(TaskIndex).map(slowest).collect();
    let loosest = finish_times(pipeline, problem.objective.latency_rule, &charges).into_iter().fold(0.0, f64::max);
    let most = SLO_FACTOR * pipeline.slo_ms.max(smallest);
    // a whole hundredth above, so that rounding does not make the first point impossible
    let from = (smallest * 100.0).ceil() / 100.0;
    Ok(SweepRange { from, to: loosest.min(most).max(from) })
}

/// From 90 % of the cost of the cheapest plan to 110 % of the cost of the best plan.
fn budget_range(problem: &Problem, options: &PlanningOptions) -> Result<SweepRange, NoRange> {
    let free = problem.changed(|d| d.objective.budget_per_hour = None).expect("no budget makes no problem invalid");
    let cheapest = free.changed(|d| d.objective.mode = Mode::MinCost).expect("a mode makes no problem invalid");
    let least = best_plan(&cheapest, options)?.cost_per_hour;
    let most = best_plan(&free, options)?.cost_per_hour.max(least);
    Ok(SweepRange { from: 0.9 * least, to: 1.1 * most })
}

/// From one device, or none if no device is needed, to one more than the best plan takes of an unlimited number.
fn count_range(problem: &Problem, h: HardwareIndex, options: &PlanningOptions) -> Result<SweepRange, NoRange> {
    let free = problem.changed(|d| d.hardware[h.get()].count = None).expect("no count makes no problem invalid");
    let plan = best_plan(&free, options)?;
    let most = plan.devices().get(problem.hardware_at(h).name.as_str()).copied().unwrap_or(0) as f64;
    let none = Sweep::Count(h).problem_at(problem, 0.0);
    let none = none.is_ok_and(|at| matches!(is_feasible(&at, &limits(options)), Ok(true)));
    let from = if none { 0.0 } else { 1.0 };
    Ok(SweepRange { from, to: (most + 1.0).max(from) })
}

/// The best plan of a problem, without a replay.
fn best_plan(problem: &Problem, options: &PlanningOptions) -> Result<Plan, NoRange> {
    let limits = limits(options);
    match attempt(problem, &Tightening::none(problem), options.gap, &limits) {
        SearchOutcome::Plan(candidate) => Ok(candidate.plan),
        SearchOutcome::Infeasible => Err(NoRange::Infeasible(infeasible::shortfalls(problem, &limits))),
        SearchOutcome::Unknown(stopped) => Err(NoRange::Stopped(stopped)),
    }
}
