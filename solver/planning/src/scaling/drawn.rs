//! Problems drawn from a seed, for tests: tiny ones that brute force can answer.

use super::program::Program;
use apportion_domain::{Application, ScalingProblem, ScalingVariant};
use apportion_serving::mix::SplitMix;

/// A stream of numbers.
pub(crate) struct Draw(SplitMix);

impl Draw {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix(seed))
    }

    /// A whole number from 0 to `n - 1`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.bits() % n
    }

    fn tenths(&mut self, from: u64, to: u64) -> f64 {
        (10 * from + self.below(10 * (to - from) + 1)) as f64 / 10.0
    }
}

/// Up to three applications of up to three variants on two resources, tight enough that about half have no plan.
pub(crate) fn problem(draw: &mut Draw) -> ScalingProblem {
    let applications = 1 + draw.below(3) as usize;
    let mut variant = |v: usize| ScalingVariant {
        name: format!("v{v}"),
        saturation_qps: draw.tenths(3, 25),
        latency_ms: 10.0 * (1 + draw.below(12)) as f64,
        load_s: draw.tenths(0, 9),
        cost_per_s: draw.tenths(0, 6),
        resources: [("cpu".to_owned(), (1 + draw.below(4)) as f64), ("gpu".to_owned(), draw.below(3) as f64 * 0.7)].into(),
        running: draw.below(4).saturating_sub(1) as u32,
    };
    let variants: Vec<Vec<ScalingVariant>> =
        (0..applications).map(|a| (0..1 + (a + applications) % 3).map(&mut variant).collect()).collect();
    let mut application = |(a, variants): (usize, Vec<ScalingVariant>)| Application {
        name: format!("a{a}"),
        load_qps: draw.tenths(0, 30),
        slack_qps: draw.tenths(0, 4),
        slo_ms: 10.0 * (4 + draw.below(9)) as f64,
        variants,
    };
    let applications = variants.into_iter().enumerate().map(&mut application).collect();
    let resources = [("cpu".to_owned(), (2 + draw.below(18)) as f64), ("gpu".to_owned(), draw.tenths(0, 7))].into();
    ScalingProblem { lambda: draw.below(4) as f64 / 10.0, resources, applications }
}

/// The same as numbers.
pub(crate) fn program(draw: &mut Draw) -> Program {
    Program::new(&problem(draw))
}
