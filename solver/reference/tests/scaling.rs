//! INFaaS's scaling problem: production planner, HiGHS and `microlp` on drawn problems.

use apportion_domain::{Application, ScalingOutcome, ScalingProblem, ScalingVariant};
use apportion_planning::PlanningOptions;
use apportion_reference::{ReferenceSettings, Solver, solve_scaling};
use apportion_serving::mix::SplitMix;
use std::sync::Arc;
use std::time::Duration;

/// Problems that are drawn.
const PROBLEMS: u64 = 150;

/// A stream of numbers from a seed.
struct Draw(SplitMix);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0.bits() % n
    }

    /// A number of tenths.
    fn tenths(&mut self, from: u64, to: u64) -> f64 {
        (10 * from + self.below(10 * (to - from) + 1)) as f64 / 10.0
    }

    fn variant(&mut self, v: u64) -> ScalingVariant {
        ScalingVariant {
            name: format!("v{v}"),
            saturation_qps: self.tenths(3, 25),
            latency_ms: 10.0 * (1 + self.below(12)) as f64,
            load_s: self.tenths(0, 9),
            cost_per_s: self.tenths(0, 6),
            resources: [("cores".to_owned(), self.tenths(1, 5)), ("memory".to_owned(), self.tenths(0, 2))].into(),
            running: self.below(5).saturating_sub(1) as u32,
        }
    }

    fn application(&mut self, a: u64) -> Application {
        Application {
            name: format!("a{a}"),
            load_qps: self.tenths(0, 40),
            slack_qps: self.tenths(0, 4),
            slo_ms: 10.0 * (4 + self.below(9)) as f64,
            variants: (0..1 + self.below(4)).map(|v| self.variant(v)).collect(),
        }
    }
}

/// Tight enough that a good part of the problems has no plan.
fn problem(seed: u64) -> ScalingProblem {
    let mut draw = Draw(SplitMix(seed));
    let applications = (0..1 + draw.below(4)).map(|a| draw.application(a)).collect();
    let resources = [("cores".to_owned(), draw.tenths(4, 50)), ("memory".to_owned(), draw.tenths(2, 20))].into();
    ScalingProblem { lambda: draw.below(4) as f64 / 10.0, resources, applications }
}

fn production(problem: &ScalingProblem) -> Option<f64> {
    let options = PlanningOptions::new(Arc::new(|| Duration::ZERO));
    match apportion_planning::scaling::plan(problem, &options).0 {
        ScalingOutcome::Optimal(plan) => Some(plan.value),
        ScalingOutcome::Infeasible { .. } => None,
        other => panic!("{}", other.status()),
    }
}

fn reference(problem: &ScalingProblem, solver: Solver) -> Option<f64> {
    let plan = solve_scaling(problem, &ReferenceSettings { solver, ..ReferenceSettings::default() }).expect("an answer");
    let findings = plan.as_ref().map(|plan| apportion_checker::check_scaling(problem, plan)).unwrap_or_default();
    assert!(findings.is_empty(), "{solver:?}: {findings:?}");
    plan.map(|plan| plan.value)
}

#[test]
fn production_highs_and_microlp_find_equal_costs() {
    let (mut wrong, mut infeasible) = (Vec::new(), 0);
    for seed in 0..PROBLEMS {
        let problem = problem(seed);
        let answers = [production(&problem), reference(&problem, Solver::Highs), reference(&problem, Solver::MicroLp)];
        infeasible += u64::from(answers[0].is_none());
        let is_same = |pair: &[Option<f64>]| match (pair[0], pair[1]) {
            (None, None) => true,
            (Some(a), Some(b)) => (a - b).abs() <= 1e-6 * a.abs().max(1.0),
            _ => false,
        };
        if !answers.windows(2).all(is_same) {
            wrong.push(format!("seed {seed}: {answers:?}"));
        }
    }
    eprintln!("{PROBLEMS} problems, {infeasible} infeasible");
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
    assert!((PROBLEMS / 10..PROBLEMS * 2 / 3).contains(&infeasible), "the problems are too alike: {infeasible}");
}
