//! How long do searches take at several levels of demand? A command prints the times.

pub mod cluster;
pub mod drawn;
pub mod fleet;
pub mod heuristics;
pub mod promises;

use crate::exact::model::space::Space;
use crate::exact::model::tightening::Tightening;
use crate::exact::search::best::search;
use crate::exact::search::modes::SearchResult;
use crate::exact::stage::enumerate;
use crate::options::PlanningOptions;
use crate::planners::plan;
use apportion_domain::{ObjectiveStep, PlanStatus, Problem, SecondsOf, StopReason};
use apportion_mip::RunLimits;
use std::sync::Arc;
use std::time::Duration;

/// Gap of the benchmark.
pub const GAP: f64 = 1e-4;
/// Demand levels between [`LEVEL_FIRST`] and [`LEVEL_LAST`] of the largest servable demand.
pub const LEVELS: usize = 20;
/// First level, as a part of the largest servable demand.
pub const LEVEL_FIRST: f64 = 0.10;
/// Last level.
pub const LEVEL_LAST: f64 = 1.15;

/// Levels are parts of this many times the problem's own demand, if every demand can be served.
const OWN_DEMAND_TIMES: f64 = 2.0;

/// One plan at one demand level.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchRow {
    /// The level, 1 being the largest servable demand.
    pub level: f64,
    /// The demand in queries per second.
    pub demand_qps: f64,
    /// How the run ended: the step's name, `optimal`, `infeasible` or `unknown`.
    pub outcome: &'static str,
    /// The objective's value, if there is one.
    pub value: Option<f64>,
    /// Time of the run in seconds, by the clock passed in.
    pub seconds: f64,
    /// The same by what took it.
    pub seconds_of: SecondsOf,
}

/// All levels of one problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Bench {
    /// The largest demand that can be served; twice the problem's demand if every demand can be served.
    pub demand_max_qps: f64,
    /// By increasing demand.
    pub rows: Vec<BenchRow>,
}

/// A median and the largest value, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TypicalAndWorst {
    /// The median over the levels.
    pub median: f64,
    /// The largest one.
    pub worst: f64,
}

impl Bench {
    /// Median and largest value over the levels.
    #[must_use]
    pub fn over_levels(&self, seconds: impl Fn(&BenchRow) -> f64) -> TypicalAndWorst {
        let mut all: Vec<f64> = self.rows.iter().map(seconds).collect();
        all.sort_by(f64::total_cmp);
        let median = all.get(all.len() / 2).copied().unwrap_or_default();
        TypicalAndWorst { median, worst: all.last().copied().unwrap_or_default() }
    }
}

/// Plans a single-pipeline problem at [`LEVELS`] demands as `apportion plan` does, with replay, explanation and
/// shortfalls, by the clock `now`.
///
/// # Errors
/// If the largest servable demand is not found, why.
pub fn demand_levels(problem: &Problem, now: &Arc<dyn Fn() -> Duration + Send + Sync>) -> Result<Bench, StopReason> {
    let demand_max_qps = match demand_max(problem, &RunLimits::new(now.clone()))? {
        Some(demand_max_qps) => demand_max_qps,
        None => OWN_DEMAND_TIMES * problem.pipelines.iter().map(|p| p.demand_qps).fold(0.0, f64::max),
    };
    let mut rows = Vec::with_capacity(LEVELS);
    for i in 0..LEVELS {
        let level = LEVEL_FIRST + (LEVEL_LAST - LEVEL_FIRST) * i as f64 / (LEVELS - 1) as f64;
        let demand_qps = level * demand_max_qps;
        let (start, clock) = (now(), now.clone());
        let options = PlanningOptions::new(Arc::new(move || clock().saturating_sub(start)));
        let (outcome, report) = plan(&with_demand(problem, demand_qps), &options);
        let name = match outcome.status() {
            PlanStatus::Optimal | PlanStatus::Feasible => report.objective.step.map_or("optimal", ObjectiveStep::name),
            status @ (PlanStatus::Infeasible | PlanStatus::Unknown) => status.name(),
        };
        rows.push(BenchRow {
            level,
            demand_qps,
            outcome: name,
            value: report.objective.value,
            seconds: report.seconds,
            seconds_of: report.seconds_of,
        });
    }
    Ok(Bench { demand_max_qps, rows })
}

/// The same problem with another number of every device, for a look at how the time grows with the cluster.
#[must_use]
pub fn with_devices(problem: &Problem, devices: u32) -> Problem {
    let change = |d: &mut apportion_domain::ProblemDraft| d.hardware.iter_mut().for_each(|h| h.count = Some(devices));
    problem.changed(change).expect("a count changes no validity")
}

fn with_demand(problem: &Problem, demand_qps: f64) -> Problem {
    let pipelines = problem.pipelines.iter().map(|p| p.with_demand(demand_qps)).collect();
    problem.changed(|d| d.pipelines = pipelines).expect("a demand changes no validity")
}

/// The largest demand at which there is a plan, to 1e-3, by doubling and bisection; `None` if every demand has one.
fn demand_max(problem: &Problem, limits: &RunLimits) -> Result<Option<f64>, StopReason> {
    if problem.objective.budget_per_hour.is_none() && problem.hardware.iter().all(|h| h.count.is_none()) {
        return Ok(None);
    }
    let servable = |demand: f64| {
        let at = with_demand(problem, demand);
        match search(&at, &Tightening::none(&at), 0.5, limits) {
            SearchResult::Found(_) => Ok(true),
            SearchResult::Infeasible => Ok(false),
            SearchResult::Unknown(stopped) => Err(stopped),
        }
    };
    let (mut low, mut high) = (0.0, 1.0);
    while servable(high)? {
        low = high;
        high *= 2.0;
        if high > 1e9 {
            return Err(StopReason::Finished);
        }
    }
    while high - low > 1e-3 * high {
        let middle = 0.5 * (low + high);
        if servable(middle)? { low = middle } else { high = middle }
    }
    Ok(Some(low))
}

/// Repetitions of the hardware step, which takes microseconds.
const HARDWARE_STEPS: usize = 200;

/// Median time of step 1 of `hardware_then_accuracy`, formulation included, at half the given demand. `None` if the
/// step has no closed form.
pub fn hardware_step(
    problem: &Problem,
    demand_max_qps: f64,
    now: &Arc<dyn Fn() -> Duration + Send + Sync>,
) -> Option<Duration> {
    let problem = with_demand(problem, 0.5 * demand_max_qps);
    let tightening = Tightening::none(&problem);
    let limits = RunLimits::new(now.clone());
    let mut times = Vec::with_capacity(HARDWARE_STEPS);
    for _ in 0..HARDWARE_STEPS {
        let start = now();
        let space = Space::of_most_accurate(&problem, &tightening, &limits).ok()?;
        std::hint::black_box(enumerate::fewest_replicas(&problem, &space, &limits)?);
        times.push(now().saturating_sub(start));
    }
    times.sort();
    Some(times[HARDWARE_STEPS / 2])
}
