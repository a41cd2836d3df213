//! How do replicas become a plan? The shares of the paths are solved again, and groups get their names.

use crate::answer::ReferenceError;
use crate::choice::RoundedSolution;
use crate::model::{Model, PipelineVariables};
use crate::solver::Programme;
use apportion_domain::{Assignment, Flow, PipelinePlan, Plan, Problem, Routing};
use good_lp::constraint;

/// Shares below this are the solver's tolerance.
const SHARE_MIN: f64 = 1e-9;

impl Programme<'_> {
    /// The plan of a choice. (27) `x(g, b)` is the chosen number, and the accuracy is as high as these replicas allow.
    pub fn plan(self, choice: &RoundedSolution) -> Result<Plan, ReferenceError> {
        let mut model = self.model()?;
        for (part, chosen) in model.parts.iter().zip(&choice.replicas) {
            let pairs = part.replicas.iter().flatten().zip(chosen.iter().flatten());
            pairs.for_each(|(&x, &n)| model.constraints.push(constraint!(x == f64::from(n)))); // (27)
        }
        let accuracy = model.accuracy();
        let solved = self.maximise(model, accuracy)?;
        let solved = solved.ok_or_else(|| ReferenceError::Solver("its replicas carry no queries".to_owned()))?;
        let Model { parts, .. } = Model::new(self.problem)?;
        let of = |(part, (replicas, share)): (&PipelineVariables, (&Vec<Vec<u32>>, &Vec<f64>))| {
            part_of_plan(self.problem, part, replicas, &consistent(part, share))
        };
        let choices = choice.replicas.iter().zip(&solved.choice.share);
        let mut plan = Plan { pipelines: parts.iter().zip(choices).map(of).collect(), cost_per_hour: 0.0 };
        let price = |(name, devices): (&str, u64)| {
            let hardware = self.problem.hardware_named(name).map(|h| self.problem.hardware_at(h));
            hardware.map_or(0.0, |h| h.price_per_hour * devices as f64)
        };
        plan.cost_per_hour = plan.devices().into_iter().map(price).sum();
        Ok(plan)
    }
}

/// The shares without the solver's tolerance: the shares over each split sum to the share that arrives there.
fn consistent(part: &PipelineVariables, share: &[f64]) -> Vec<f64> {
    let mut exact = vec![0.0; share.len()];
    // a split comes after the split that made the prefix it goes on from
    for split in &part.sets.splits {
        let arriving = split.from.map_or(1.0, |p| exact[p]);
        let kept = |p: usize| if share[p] < SHARE_MIN { 0.0 } else { share[p] };
        let total: f64 = split.to.iter().map(|&p| kept(p)).sum();
        if total > 0.0 {
            split.to.iter().for_each(|&p| exact[p] = arriving * kept(p) / total);
        }
    }
    exact
}

fn part_of_plan(problem: &Problem, part: &PipelineVariables, replicas: &[Vec<u32>], share: &[f64]) -> PipelinePlan {
    let (sets, pipeline) = (&part.sets, problem.pipeline(part.index));
    let load = |g: usize| sets.ending_at(g).map(|p| sets.prefixes[p].load_qps * share[p]).sum::<f64>();
    let mut assignments = Vec::new();
    for (g, group) in sets.groups.iter().enumerate() {
        let of_task: f64 = sets.groups_of(group.task).map(load).sum();
        for (b, &replicas) in group.batches.iter().zip(&replicas[g]).filter(|(_, n)| **n > 0) {
            assignments.push(Assignment {
                group: sets.name(problem, pipeline, g),
                batch: b.batch,
                replicas,
                traffic_share: if of_task > 0.0 { load(g) / of_task } else { 0.0 },
                latency_budget_ms: b.charge_ms,
                utilisation: load(g) / (f64::from(replicas) * b.qps),
            });
        }
    }
    let paths = sets.prefixes.iter().zip(share).filter(|(prefix, share)| prefix.is_path && **share > 0.0);
    let flow = |(prefix, &share): (&crate::sets::Prefix, &f64)| Flow {
        path: prefix.groups.iter().map(|&g| sets.name(problem, pipeline, g)).collect(),
        share,
    };
    PipelinePlan {
        name: pipeline.name.clone(),
        demand_qps: pipeline.demand_qps,
        accuracy: sets.prefixes.iter().zip(share).map(|(prefix, share)| prefix.accuracy * share).sum(),
        serving: pipeline.serving.resolve(),
        assignments,
        flows: paths.map(flow).collect(),
        routing: Routing::default(),
        ladder: Vec::new(),
    }
}
