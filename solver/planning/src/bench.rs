//! How long do searches take at several levels of demand? A command prints the times.

pub mod cluster;
pub mod drawn;
pub mod promises;

use crate::exact::model::space::Space;
use crate::exact::model::tightening::Tightening;
use crate::exact::search::modes::{SearchResult, search};
use crate::exact::stage::enumerate;
use apportion_domain::{ObjectiveStep, Problem, StopReason};
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

/// One search at one demand level.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchRow {
    /// The level, 1 being the largest servable demand.
    pub level: f64,
    /// The demand in queries per second.
    pub demand_qps: f64,
    /// How the search ended: the step's name, `infeasible` or `unknown`.
    pub outcome: &'static str,
    /// The objective's value, if there is one.
    pub value: Option<f64>,
    /// Time of the search, by the clock passed in.
    pub elapsed: Duration,
}

/// All levels of one problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Bench {
    /// The largest demand that can be served.
    pub demand_max_qps: f64,
    /// By increasing demand.
    pub rows: Vec<BenchRow>,
}

impl Bench {
    /// Median time of a search.
    #[must_use]
    pub fn median(&self) -> Duration {
        let mut times: Vec<Duration> = self.rows.iter().map(|r| r.elapsed).collect();
        times.sort();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }

    /// Longest time of a search.
    #[must_use]
    pub fn worst(&self) -> Duration {
        self.rows.iter().map(|r| r.elapsed).max().unwrap_or_default()
    }
}

/// Searches for the best plan of a single-pipeline problem at [`LEVELS`] demands, by the clock `now`. The plans are
/// not replayed.
///
/// # Errors
/// If the largest servable demand is not found, why.
pub fn demand_levels(problem: &Problem, now: &Arc<dyn Fn() -> Duration + Send + Sync>) -> Result<Bench, StopReason> {
    let limits = RunLimits::new(now.clone());
    let demand_max_qps = demand_max(problem, &limits)?;
    let mut rows = Vec::with_capacity(LEVELS);
    for i in 0..LEVELS {
        let level = LEVEL_FIRST + (LEVEL_LAST - LEVEL_FIRST) * i as f64 / (LEVELS - 1) as f64;
        let at = with_demand(problem, level * demand_max_qps);
        let start = now();
        let result = search(&at, &Tightening::none(&at), GAP, &limits);
        let elapsed = now().saturating_sub(start);
        let (outcome, value) = match &result {
            SearchResult::Found(found) => (found.step.map_or("optimal", ObjectiveStep::name), Some(found.value)),
            SearchResult::Infeasible => ("infeasible", None),
            SearchResult::Unknown(_) => ("unknown", None),
        };
        rows.push(BenchRow { level, demand_qps: level * demand_max_qps, outcome, value, elapsed });
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

/// The largest demand at which there is a plan, to 1e-3, by doubling and bisection.
fn demand_max(problem: &Problem, limits: &RunLimits) -> Result<f64, StopReason> {
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
    Ok(low)
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
