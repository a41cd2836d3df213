//! Problems with quotas.

use crate::draw::{Draw, problem};
use apportion_domain::{DeviceQuota, LatencyRule, PipelineIndex, Problem};

/// The problem of a seed with quotas: one on the first pipeline or on all of them, and often one on the last.
pub fn problem_with_quotas(seed: u64, rule: LatencyRule) -> Problem {
    let mut d = Draw::new(seed ^ 0x5eed);
    let problem = problem(seed, rule);
    let (all, types) = (problem.pipelines.len(), problem.hardware.len());
    let mut quota = |name: &str, pipelines: Vec<PipelineIndex>| DeviceQuota {
        name: name.to_owned(),
        pipelines,
        counts: (0..types).map(|_| d.once_in(2).then(|| 1 + d.below(4) as u32)).collect(),
        devices: d.once_in(3).then(|| 2 + d.below(4) as u32),
        cost_per_hour: d.once_in(3).then(|| 1.0 + d.below(10) as f64 / 2.0),
    };
    let first = if seed.is_multiple_of(2) { all } else { 1 };
    let mut quotas = vec![quota("first", (0..first).map(PipelineIndex).collect())];
    if !seed.is_multiple_of(3) {
        quotas.push(quota("last", vec![PipelineIndex(all - 1)]));
    }
    problem.changed(|draft| draft.quotas = quotas).unwrap_or_else(|e| panic!("seed {seed}: {e}"))
}
