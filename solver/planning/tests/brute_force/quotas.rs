//! Problems with quotas.

use crate::draw::{Draw, problem};
use apportion_domain::{DeviceQuota, LatencyRule, PipelineIndex, Plan, Problem};

/// The problem of a seed with quotas: one on the first pipeline or on all of them, and often one on the last.
pub fn problem_with_quotas(seed: u64, rule: LatencyRule) -> Problem {
    let mut d = Draw::new(seed ^ 0x5eed);
    let problem = problem(seed, rule);
    let (all, types) = (problem.pipelines.len(), problem.hardware.len());
    let mut quota = |name: &str, pipelines: Vec<PipelineIndex>| DeviceQuota {
        name: name.to_owned(),
        pipelines,
        counts: (0..types).map(|_| d.once_in(2).then(|| 1 + d.below(6) as u32)).collect(),
        devices: d.once_in(3).then(|| 2 + d.below(8) as u32),
        cost_per_hour: d.once_in(3).then(|| 1.5 + d.below(20) as f64 / 2.0),
    };
    let first = if seed.is_multiple_of(2) { all } else { 1 };
    let mut quotas = vec![quota("first", (0..first).map(PipelineIndex).collect())];
    if !seed.is_multiple_of(3) {
        quotas.push(quota("last", vec![PipelineIndex(all - 1)]));
    }
    problem.changed(|draft| draft.quotas = quotas).unwrap_or_else(|e| panic!("seed {seed}: {e}"))
}

/// The problem with a quota of one device less than a plan uses of the type of which it uses the most.
pub fn problem_with_one_device_less(problem: &Problem, plan: &Plan) -> Problem {
    let used = plan.devices();
    let (most, count) = used.iter().max_by_key(|(_, count)| **count).expect("a plan has devices");
    let less = u32::try_from(*count).expect("few devices") - 1;
    let quota = DeviceQuota {
        name: "less".to_owned(),
        pipelines: (0..problem.pipelines.len()).map(PipelineIndex).collect(),
        counts: problem.hardware.iter().map(|h| (h.name == *most).then_some(less)).collect(),
        devices: None,
        cost_per_hour: None,
    };
    problem.changed(|draft| draft.quotas = vec![quota]).expect("a valid problem")
}
