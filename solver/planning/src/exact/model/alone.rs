//! What is the problem of one pipeline, as if it had all devices to itself?

use apportion_domain::{Deployed, DeviceQuota, PipelineIndex, Problem, ProblemDraft};

/// The problem of one pipeline, which is number 0 there, with all devices, the whole budget and its quotas.
pub(crate) fn alone(problem: &Problem, index: PipelineIndex) -> Problem {
    let deployed = problem.deployed.iter().filter(|d| d.pipeline == index).cloned();
    let draft = ProblemDraft {
        objective: problem.objective,
        hardware: problem.hardware.clone(),
        pipelines: vec![problem.pipeline(index).clone()],
        deployed: deployed.map(|d| Deployed { pipeline: PipelineIndex(0), ..d }).collect(),
        switching_weight: problem.switching_weight,
        quotas: quotas_of(problem, index),
        notes: Vec::new(),
        evidence: Vec::new(),
    };
    Problem::new(draft).expect("a part of a valid problem is valid")
}

/// The quotas of one pipeline, as if it were alone in them.
fn quotas_of(problem: &Problem, pipeline: PipelineIndex) -> Vec<DeviceQuota> {
    let own = problem.quotas.iter().filter(|quota| quota.pipelines.contains(&pipeline));
    own.map(|quota| DeviceQuota { pipelines: vec![PipelineIndex(0)], ..quota.clone() }).collect()
}
