//! What a choice is worth, what it can do without, and whether what runs now is as good.

use super::extract::{self, Choice};
use super::space::{Part, Space, finish_times};
use super::{ACCURACY_SLACK, Found};
use crate::limits::Limits;
use apportion_domain::{LatencyRule, Mode, ObjectiveStep, Problem, SLACK, TaskIndex};

/// The objective's value of a choice: replicas, accuracy, or cost with switching.
pub(crate) fn worth(
    problem: &Problem,
    space: &Space,
    choice: &Choice,
    flows: &[Vec<f64>],
    step: Option<ObjectiveStep>,
) -> f64 {
    match (problem.objective.mode, step) {
        (Mode::HardwareThenAccuracy, Some(ObjectiveStep::Hardware)) => choice.replicas() as f64,
        (Mode::HardwareThenAccuracy | Mode::MaxAccuracy, _) => weighted_accuracy(space, flows),
        (Mode::MinCost, _) => cost(problem, space, choice) + switching(space, choice),
    }
}

fn weighted_accuracy(space: &Space, flows: &[Vec<f64>]) -> f64 {
    space.parts.iter().zip(flows).map(|(part, shares)| part.weight * extract::accuracy(part, shares)).sum()
}

/// Whole devices of each hardware type.
fn devices(problem: &Problem, space: &Space, choice: &Choice) -> Vec<u64> {
    let mut eighths = vec![0_u64; problem.hardware.len()];
    for (part, groups) in space.parts.iter().zip(&choice.groups) {
        for (group, &(replicas, _)) in part.groups.iter().zip(groups) {
            eighths[group.hardware.get()] += u64::from(replicas) * u64::from(group.share.eighths());
        }
    }
    eighths.into_iter().map(|e| e.div_ceil(8)).collect()
}

/// Price of the devices of a choice.
pub(crate) fn cost(problem: &Problem, space: &Space, choice: &Choice) -> f64 {
    let of = devices(problem, space, choice);
    problem.hardware.iter().zip(of).map(|(h, devices)| h.price_per_hour * devices as f64).sum()
}

fn switching(space: &Space, choice: &Choice) -> f64 {
    let groups = space.parts.iter().zip(&choice.groups).flat_map(|(p, c)| p.groups.iter().zip(c));
    groups.map(|(g, &(x, _))| g.switch_cost * f64::from(x.saturating_sub(g.deployed))).sum()
}

/// Load of each group of a part under the flows, split in proportion to `(replicas - survive) q`.
fn loads(problem: &Problem, space: &Space, choice: &Choice, flows: &[Vec<f64>], p: usize) -> Vec<f64> {
    let part = &space.parts[p];
    let survive = problem.pipeline(part.index).survive;
    let capacity = |g: usize| {
        let (replicas, point) = choice.groups[p][g];
        f64::from(replicas.saturating_sub(survive)) * part.groups[g].points[point].qps
    };
    let mut loads = vec![0.0; part.groups.len()];
    for (node, share) in part.trie.nodes.iter().zip(&flows[p]) {
        let groups = &part.lanes[node.lane];
        let total: f64 = groups.iter().map(|&g| capacity(g)).sum();
        if total > 0.0 {
            groups.iter().for_each(|&g| loads[g] += node.load_qps * share * capacity(g) / total);
        }
    }
    loads
}

/// Fewest replicas that carry a load, at least one where there is traffic.
pub(crate) fn replicas_for(load: f64, qps: f64) -> u32 {
    ((load / qps - SLACK).ceil().max(1.0)) as u32
}

/// Takes away replicas that the flows do not need, keeping `survive` and `min_replicas`.
pub(crate) fn trim(problem: &Problem, space: &Space, mut choice: Choice, flows: &[Vec<f64>]) -> Choice {
    for (p, part) in space.parts.iter().enumerate() {
        let pipeline = problem.pipeline(part.index);
        let loads = loads(problem, space, &choice, flows, p);
        let shares = lane_shares(part, &flows[p]);
        for g in (0..part.groups.len()).rev() {
            let group = &part.groups[g];
            let (replicas, point) = choice.groups[p][g];
            let of_task = part.groups.iter().zip(&choice.groups[p]).filter(|(other, _)| other.task == group.task);
            let total: u32 = of_task.map(|(_, &(x, _))| x).sum();
            let spare = total.saturating_sub(pipeline.task(group.task).min_replicas);
            let used = shares[group.lane] > 0.0 && replicas > pipeline.survive;
            let needed = if used { replicas_for(loads[g], group.points[point].qps) + pipeline.survive } else { 0 };
            choice.groups[p][g].0 = replicas - replicas.saturating_sub(needed).min(spare);
        }
    }
    choice
}

fn lane_shares(part: &Part, flows: &[f64]) -> Vec<f64> {
    let mut shares = vec![0.0; part.lanes.len()];
    part.trie.nodes.iter().zip(flows).for_each(|(node, share)| shares[node.lane] += share);
    shares
}

/// What runs now instead of what was found, if it is as good: planning again from one's own plan changes nothing.
pub(crate) fn prefer_deployed(problem: &Problem, found: Found, limits: &Limits) -> Found {
    let Some(choice) = deployed_choice(problem, &found.space) else { return found };
    if choice == found.choice || !fits(problem, &found.space, &choice) {
        return found;
    }
    let Ok(Some(flows)) = extract::flows(problem, &found.space, &choice, limits) else { return found };
    let floors_met = found.space.parts.iter().zip(&flows).all(|(part, shares)| {
        let floor = problem.pipeline(part.index).min_accuracy.unwrap_or(0.0);
        extract::accuracy(part, shares) >= floor - SLACK
    });
    let value = worth(problem, &found.space, &choice, &flows, found.step);
    let slack = ACCURACY_SLACK * found.value.abs();
    let tied = match (problem.objective.mode, found.step) {
        (Mode::HardwareThenAccuracy, Some(ObjectiveStep::Hardware)) => value <= found.value,
        (Mode::HardwareThenAccuracy, _) => value >= found.value - slack && choice.replicas() <= found.choice.replicas(),
        (Mode::MaxAccuracy, _) => {
            let costs = (cost(problem, &found.space, &choice), cost(problem, &found.space, &found.choice));
            value >= found.value - slack && costs.0 <= costs.1 + slack
        }
        (Mode::MinCost, _) => value <= found.value + slack,
    };
    if floors_met && tied { Found { choice, flows, value, ..found } } else { found }
}

/// The deployed groups as a choice; `None` if any of them is no longer worth running, or nothing is deployed.
fn deployed_choice(problem: &Problem, space: &Space) -> Option<Choice> {
    let running: u64 = problem.deployed.iter().map(|d| u64::from(d.replicas)).sum();
    if running == 0 {
        return None;
    }
    let mut groups = Vec::new();
    for part in &space.parts {
        let mut of_part = Vec::new();
        for group in &part.groups {
            let point = match group.deployed_batch.filter(|_| group.deployed > 0) {
                Some(batch) => group.points.iter().position(|p| p.batch == batch)?,
                None => 0,
            };
            of_part.push((group.deployed, point));
        }
        groups.push(of_part);
    }
    let choice = Choice { groups };
    (choice.replicas() == running).then_some(choice)
}

/// Whether a choice keeps to counts, budget, least replicas and the latency rule.
fn fits(problem: &Problem, space: &Space, choice: &Choice) -> bool {
    let devices = devices(problem, space, choice);
    let counts = problem.hardware.iter().zip(devices).all(|(h, n)| h.count.is_none_or(|count| n <= u64::from(count)));
    let budget = problem.objective.budget_per_hour.is_none_or(|b| cost(problem, space, choice) <= b + SLACK * b.max(1.0));
    let parts = space.parts.iter().zip(&choice.groups).all(|(part, groups)| {
        let pipeline = problem.pipeline(part.index);
        let mut charges = vec![0.0_f64; pipeline.tasks.len()];
        let mut replicas = vec![0_u32; pipeline.tasks.len()];
        for (group, &(x, point)) in part.groups.iter().zip(groups).filter(|(_, c)| c.0 > 0) {
            let t = group.task.get();
            charges[t] = charges[t].max(group.points[point].charge_ms);
            replicas[t] += x;
        }
        let enough = (0..replicas.len()).all(|t| replicas[t] >= pipeline.task(TaskIndex(t)).min_replicas);
        let slo = pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0);
        // under rule `path` it is the flows that keep to the SLO
        let in_time = || finish_times(pipeline, part.rule, &charges).iter().all(|&f| f <= slo);
        enough && (part.rule == LatencyRule::Path || in_time())
    });
    counts && budget && parts
}
