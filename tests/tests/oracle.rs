//! Tiny random problems against brute force: every way to choose batch sizes and replicas is tried.
//!
//! The oracle shares nothing with the planner. Only the root task has two variants, so that for given replicas the best mix
//! is one number, the largest share of the better variant, in closed form.

use apportion_domain::{PlanOutcome, Problem};
use apportion_planning::{PlanningOptions, plan};
use apportion_wire::problem::{ProblemFile, read_problem};
use std::sync::Arc;
use std::time::Instant;

/// A small deterministic generator of numbers, so that a failure can be repeated from its seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Two root variants and one child variant, each with two batch sizes, on one kind of device.
struct Tiny {
    demand: f64,
    slo: f64,
    devices: u32,
    /// `(accuracy, fan-out, latencies at batch 1 and 4)`.
    root: [(f64, f64, [f64; 2]); 2],
    child: [f64; 2],
}

const BATCHES: [f64; 2] = [1.0, 4.0];

impl Tiny {
    fn draw(seed: u64) -> Self {
        let mut d = Draw(seed);
        d.below(2);
        let mut variant = |accuracy: f64| {
            let one = 2.0 + d.below(20) as f64;
            let four = one * (1.5 + d.below(20) as f64 / 10.0);
            (accuracy, 0.5 + d.below(6) as f64 / 2.0, [one, four])
        };
        let root = [variant(1.0), variant(0.6)];
        let child = variant(1.0).2;
        Self {
            demand: 10.0 + d.below(250) as f64,
            slo: 20.0 + d.below(160) as f64,
            devices: 2 + d.below(4) as u32,
            root,
            child,
        }
    }

    fn problem(&self) -> Problem {
        let rows = |l: [f64; 2]| {
            format!("[{{hardware: g, batch: 1, latency_ms: {}}}, {{hardware: g, batch: 4, latency_ms: {}}}]", l[0], l[1])
        };
        let root = |i: usize| {
            let (accuracy, fanout, l) = self.root[i];
            format!("{{name: v{i}, accuracy: {accuracy}, fanout: {fanout}, profile: {}}}", rows(l))
        };
        let text = format!(
            "{{version: 1, objective: {{mode: hardware_then_accuracy}}, hardware: [{{name: g, count: {}}}], pipelines: [\
             {{name: p, demand_qps: {}, slo_ms: {}, tasks: [{{name: a, variants: [{}, {}]}}, \
             {{name: b, variants: [{{name: c, accuracy: 1.0, profile: {}}}]}}], edges: [{{from: a, to: b}}]}}]}}",
            self.devices,
            self.demand,
            self.slo,
            root(0),
            root(1),
            rows(self.child)
        );
        match read_problem("tiny.yaml", &text).unwrap_or_else(|e| panic!("{e}")) {
            ProblemFile::Allocation(problem) => problem,
            ProblemFile::Scaling(_) => panic!("not a scaling problem"),
        }
    }

    /// The best of all assignments: fewest replicas with the best root variant alone, else the largest share of it.
    fn brute_force(&self) -> Option<(bool, f64)> {
        let mut fewest: Option<u32> = None;
        let mut best: Option<f64> = None;
        for [b0, b1, bc] in batches() {
            let q = |latency: f64, b: usize| 1000.0 * BATCHES[b] / latency;
            let capacity = |x: u32, latency: f64, b: usize| f64::from(x) * q(latency, b) + 1e-9;
            for x0 in 0..=self.devices {
                for x1 in 0..=self.devices - x0 {
                    for xc in 1..=self.devices - x0 - x1 {
                        let slowest = [(x0, self.root[0].2[b0]), (x1, self.root[1].2[b1])]
                            .into_iter()
                            .filter(|(x, _)| *x > 0)
                            .map(|(_, l)| l)
                            .fold(0.0, f64::max);
                        if 2.0 * (slowest + self.child[bc]) > self.slo + 1e-9 {
                            continue;
                        }
                        let c0 = capacity(x0, self.root[0].2[b0], b0) / self.demand;
                        let c1 = capacity(x1, self.root[1].2[b1], b1) / self.demand;
                        let cc = capacity(xc, self.child[bc], bc) / self.demand;
                        let Some(share) = largest_share(c0, c1, cc, self.root[0].1, self.root[1].1) else { continue };
                        if share >= 1.0 && x1 == 0 {
                            fewest = Some(fewest.unwrap_or(u32::MAX).min(x0 + xc));
                        }
                        let accuracy = share * self.root[0].0 + (1.0 - share) * self.root[1].0;
                        best = Some(best.unwrap_or(0.0).max(accuracy));
                    }
                }
            }
        }
        fewest.map(|x| (true, f64::from(x))).or(best.map(|a| (false, a)))
    }
}

fn batches() -> impl Iterator<Item = [usize; 3]> {
    (0..8).map(|code| [code & 1, (code >> 1) & 1, code >> 2])
}

/// The largest share of the first variant within all three capacities, in shares of the demand.
fn largest_share(c0: f64, c1: f64, cc: f64, r0: f64, r1: f64) -> Option<f64> {
    let (mut low, mut high) = ((1.0 - c1).max(0.0), c0.min(1.0));
    // r0 s + r1 (1 - s) <= cc
    let slope = r0 - r1;
    if slope > 0.0 {
        high = high.min((cc - r1) / slope);
    } else if slope < 0.0 {
        low = low.max((cc - r1) / slope);
    } else if r1 > cc {
        return None;
    }
    (low <= high + 1e-9).then_some(high.min(1.0))
}

fn solve(problem: &Problem) -> (PlanOutcome, Option<f64>, bool) {
    let start = Instant::now();
    let options = PlanningOptions { gap: 1e-6, ..PlanningOptions::new(Arc::new(move || start.elapsed())) };
    let (outcome, report) = plan(problem, &options);
    let hardware = report.objective.step.is_some_and(|s| s.name() == "hardware");
    (outcome, report.objective.value, hardware)
}

#[test]
fn the_planner_agrees_with_brute_force_on_tiny_problems() {
    let mut kinds = [0; 3];
    for seed in 0..150 {
        let tiny = Tiny::draw(seed);
        let problem = tiny.problem();
        let (outcome, value, hardware) = solve(&problem);
        match tiny.brute_force() {
            None => {
                assert!(matches!(outcome, PlanOutcome::Infeasible { .. }), "seed {seed}: {outcome:?}");
                kinds[0] += 1;
            }
            Some((by_hardware, expected)) => {
                let value = value.unwrap_or_else(|| panic!("seed {seed}: {outcome:?}, brute force finds {expected}"));
                assert_eq!(hardware, by_hardware, "seed {seed}: {value} for {expected}");
                assert!((value - expected).abs() < 5e-6, "seed {seed}: {value} for {expected}");
                assert_eq!(apportion_checker::check(&problem, outcome.plan().expect("a plan")), [], "seed {seed}");
                kinds[if by_hardware { 1 } else { 2 }] += 1;
            }
        }
    }
    assert!(kinds.iter().all(|&n| n >= 10), "the problems are too alike: {kinds:?}");
}
