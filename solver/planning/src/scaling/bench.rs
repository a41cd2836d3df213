//! How long do scaling problems take to solve? The problems are generated, and a command prints the times.

use super::greedy;
use super::program::{Program, plan_of};
use super::search::{MinimumResult, minimise, minimise_with_highs};
use apportion_domain::{Application, PlanStatus, ScalingProblem, ScalingVariant};
use apportion_mip::RunLimits;
use apportion_serving::mix::SplitMix;
use std::sync::Arc;
use std::time::Duration;

/// Applications of the design's speed table.
pub const APPLICATIONS: usize = 100;
/// Variants of each.
pub const VARIANTS: usize = 8;
/// Room in the resources, of the samples' proportion, at which they bind in nearly every problem and some have no plan.
pub const TIGHT: f64 = 0.55;
/// Problems that are drawn, by seed from 1.
pub const PROBLEMS: u64 = 20;

/// One problem, solved in three ways.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingRow {
    /// Status of the exact search.
    pub status: PlanStatus,
    /// The optimum, if there is a plan.
    pub value: Option<f64>,
    /// The optimum that HiGHS finds.
    pub highs_value: Option<f64>,
    /// The heuristic's value, if it finds a plan.
    pub greedy_value: Option<f64>,
    /// Time of the exact search, the heuristic that it begins with included.
    pub exact: Duration,
    /// Time of HiGHS on the integer programme.
    pub highs: Duration,
    /// Time of the heuristic.
    pub greedy: Duration,
}

/// Solves a problem by the exact search, by HiGHS on the integer programme of INFaaS, and by the heuristic. Times are
/// read from the clock `now`.
#[must_use]
pub fn scaling_row(problem: &ScalingProblem, now: &Arc<dyn Fn() -> Duration + Send + Sync>) -> ScalingRow {
    let limits = RunLimits::new(now.clone());
    let status = |result: &MinimumResult| match result {
        MinimumResult::Found { .. } => PlanStatus::Optimal,
        MinimumResult::Infeasible => PlanStatus::Infeasible,
        MinimumResult::Unknown(_) => PlanStatus::Unknown,
    };
    let value = |result: &MinimumResult| match result {
        MinimumResult::Found { counts, .. } => Some(plan_of(problem, counts).value),
        MinimumResult::Infeasible | MinimumResult::Unknown(_) => None,
    };
    let start = now();
    let program = Program::new(problem);
    let heuristic = greedy::counts(&program, &limits).ok();
    let greedy = now().saturating_sub(start);
    let found = minimise(&program, heuristic.as_ref(), &limits);
    let exact = now().saturating_sub(start);
    let begun = now();
    let highs_found = minimise_with_highs(&program, None, f64::NEG_INFINITY, &limits);
    let highs = now().saturating_sub(begun);
    ScalingRow {
        status: status(&found),
        value: value(&found),
        highs_value: value(&highs_found),
        greedy_value: heuristic.map(|counts| plan_of(problem, &counts).value),
        exact,
        highs,
        greedy,
    }
}

/// A problem in the proportions of the sample files.
///
/// Each application has CPU variants of low throughput, GPU variants priced by their memory, and one variant on an
/// inference accelerator. Two thirds of them are within the SLO. The resources grow with the number of applications, and
/// the cheapest choices together exceed them. `room` scales the resources; 1 is the proportion of the samples.
#[must_use]
pub fn scaling_problem(applications: usize, variants: usize, room: f64, seed: u64) -> ScalingProblem {
    let mut draw = Draw::new(seed);
    let count = applications as f64;
    let resources = [("cpu_cores", 2.9), ("gpu_mem_gb", 1.0), ("inferentia_cores", 0.36)];
    ScalingProblem {
        lambda: 0.1,
        resources: resources.map(|(name, each)| (name.to_owned(), (each * count * room).ceil())).into(),
        applications: (0..applications).map(|i| draw.application(i, variants)).collect(),
    }
}

/// A stream of numbers.
struct Draw(SplitMix);

impl Draw {
    fn new(seed: u64) -> Self {
        Self(SplitMix(seed))
    }

    /// Uniform in 0 to 1.
    fn unit(&mut self) -> f64 {
        self.0.unit()
    }

    /// Uniform in the logarithm, to three decimals.
    fn spread(&mut self, from: f64, to: f64) -> f64 {
        thousandths(from * (to / from).powf(self.unit()))
    }

    fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[((self.unit() * list.len() as f64) as usize).min(list.len() - 1)]
    }

    fn application(&mut self, i: usize, variants: usize) -> Application {
        let load_qps = self.spread(15.0, 350.0);
        let slo_ms = self.one_of(&[50.0, 100.0, 200.0, 500.0]);
        let variants = (0..variants).map(|v| self.variant(v, format!("a{i}v{v}"))).collect();
        Application { name: format!("a{i}"), load_qps, slack_qps: thousandths(load_qps * 0.05), slo_ms, variants }
    }

    /// Of eight variants the first two and the last run on CPU cores, the sixth on an accelerator, the others on a GPU.
    fn variant(&mut self, v: usize, name: String) -> ScalingVariant {
        let (cpu, gpu, accelerator, saturation_qps, load_s) = match v % 8 {
            0 | 1 | 7 => (self.one_of(&[1.0, 2.0, 4.0]), 0.0, 0.0, self.spread(6.0, 60.0), self.spread(0.25, 2.0)),
            5 => (1.0, 0.0, self.one_of(&[1.0, 2.0]), self.spread(75.0, 450.0), self.spread(2.0, 8.0)),
            _ => (1.0, self.spread(0.6, 4.0), 0.0, self.spread(40.0, 900.0), self.spread(1.0, 9.0)),
        };
        let batch = self.one_of(&[1.0, 2.0, 4.0, 8.0]);
        let resources = [("cpu_cores", cpu), ("gpu_mem_gb", gpu), ("inferentia_cores", accelerator)];
        let running = if self.unit() < 0.08 { 1.0 + 3.0 * self.unit() } else { 0.0 };
        ScalingVariant {
            name,
            saturation_qps,
            latency_ms: thousandths(1000.0 * batch / saturation_qps),
            load_s,
            cost_per_s: thousandths(0.65 * cpu + 1.56 * gpu + 1.4 * accelerator),
            resources: resources.into_iter().filter(|(_, n)| *n > 0.0).map(|(name, n)| (name.to_owned(), n)).collect(),
            running: running as u32,
        }
    }
}

fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_search_and_highs_agree_on_problems_of_forty_applications() {
        let now: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(|| Duration::ZERO);
        let (mut optimal, mut infeasible) = (0, 0);
        for (seed, room) in (1..=6).flat_map(|seed| [0.45, TIGHT, 0.7].map(|room| (seed, room))) {
            let row = scaling_row(&scaling_problem(40, VARIANTS, room, seed), &now);
            match (row.value, row.highs_value) {
                (Some(ours), Some(theirs)) => {
                    assert!((ours - theirs).abs() <= 1e-7 * ours.abs().max(1.0), "seed {seed}: {ours} for {theirs}");
                    assert!(row.greedy_value.is_none_or(|greedy| greedy >= ours - 1e-9), "seed {seed}");
                    optimal += 1;
                }
                (None, None) => {
                    assert_eq!((row.status, row.greedy_value), (PlanStatus::Infeasible, None), "seed {seed}");
                    infeasible += 1;
                }
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        assert!(optimal >= 5 && infeasible >= 2, "{optimal} optimal, {infeasible} infeasible");
    }
}
