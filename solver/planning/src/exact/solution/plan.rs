//! Which plan follows from the integers and the flows of a solution?

use super::choice::{GroupChoice, PlanIntegers, capacity};
use super::coupling::{GroupPath, GroupShare, coupled_paths};
use super::flows::{FLOW_MIN, accuracy};
use crate::exact::model::space::{PipelineSpace, Space};
use apportion_domain::{Assignment, Flow, GroupName, Pipeline, PipelinePlan, Plan, Problem, Routing};

/// Most stages of all paths that a plan lists for one pipeline. Each stage is a name of about a hundred bytes, and the
/// checker follows it.
pub(crate) const FLOW_STAGES_MAX: usize = 50_000;

/// The plan of a choice with its flows; `None` if it would list too many paths.
pub(crate) fn plan_of(problem: &Problem, space: &Space, choice: &PlanIntegers, flows: &[Vec<f64>]) -> Option<Plan> {
    let parts = space.parts.iter().zip(&choice.groups).zip(flows);
    let pipelines = parts.map(|((part, groups), shares)| part_plan(problem, part, groups, shares));
    let mut plan = Plan { pipelines: pipelines.collect::<Option<_>>()?, cost_per_hour: 0.0 };
    plan.cost_per_hour = cost_per_hour(problem, &plan);
    Some(plan)
}

/// Price of the whole devices of a plan per hour.
pub(crate) fn cost_per_hour(problem: &Problem, plan: &Plan) -> f64 {
    let price = |name: &str| problem.hardware_named(name).map_or(0.0, |h| problem.hardware_at(h).price_per_hour);
    plan.devices().into_iter().map(|(name, devices)| price(name) * devices as f64).sum()
}

fn part_plan(problem: &Problem, part: &PipelineSpace, groups: &[GroupChoice], shares: &[f64]) -> Option<PipelinePlan> {
    let pipeline = problem.pipeline(part.index);
    let name = |g: usize| GroupName {
        task: pipeline.task(part.groups[g].task).name.clone(),
        variant: pipeline.variant(part.groups[g].task, part.groups[g].variant).name.clone(),
        hardware: problem.hardware_at(part.groups[g].hardware).name.clone(),
        share: part.groups[g].share,
    };
    let splits = group_fractions(problem, part, groups);
    let mut load: Vec<f64> = vec![0.0; part.groups.len()];
    let mut of_task: Vec<f64> = vec![0.0; pipeline.tasks.len()];
    for (node, share) in part.trie.nodes.iter().zip(shares) {
        for &g in &part.lanes[node.lane] {
            load[g] += node.load_qps * share * splits[g];
            of_task[node.task.get()] += node.load_qps * share * splits[g];
        }
    }
    let mut order: Vec<usize> = (0..groups.len()).filter(|&g| groups[g].replicas > 0).collect();
    order.sort_by_key(|&g| part.groups[g].task);
    let assignment = |&g: &usize| {
        let GroupChoice { replicas, point } = groups[g];
        let (group, point) = (&part.groups[g], &part.groups[g].points[point]);
        let total = of_task[group.task.get()];
        // the headroom of the check loop is not a part of the plan's load
        let headroom = part.headroom[group.task.get()];
        Assignment {
            group: name(g),
            batch: point.batch,
            replicas,
            traffic_share: if total > 0.0 { load[g] / total } else { 0.0 },
            latency_budget_ms: pipeline.hop_charge_ms(group.task, point.latency_ms),
            utilisation: load[g] / headroom / (f64::from(replicas) * point.qps),
        }
    };
    let flows = match group_flows(part, shares, &splits, name) {
        None if part.trie.merged => few_flows(pipeline, part, shares, &splits, name),
        flows => flows,
    };
    Some(PipelinePlan {
        name: pipeline.name.clone(),
        demand_qps: pipeline.demand_qps,
        accuracy: accuracy(part, shares),
        serving: pipeline.serving.resolve(),
        assignments: order.iter().map(assignment).collect(),
        flows: flows?,
        routing: Routing::default(),
        ladder: vec![],
    })
}

/// How the load of a lane splits over its groups: in proportion to their reliable capacity.
fn group_fractions(problem: &Problem, part: &PipelineSpace, groups: &[GroupChoice]) -> Vec<f64> {
    let mut fractions = vec![0.0; groups.len()];
    for lane in &part.lanes {
        let total: f64 = lane.iter().map(|&g| capacity(problem, part, g, groups[g])).sum();
        for &g in lane {
            fractions[g] = if total > 0.0 { capacity(problem, part, g, groups[g]) / total } else { 0.0 };
        }
    }
    fractions
}

/// A path of groups that may go on.
struct OpenPath {
    groups: Vec<usize>,
    /// The node of its last group.
    node: usize,
    /// Share of the root's queries.
    share: f64,
}

/// Shares of paths of groups from shares of prefixes of variants; `None` beyond [`FLOW_STAGES_MAX`].
fn group_flows(
    part: &PipelineSpace,
    shares: &[f64],
    splits: &[f64],
    name: impl Fn(usize) -> GroupName,
) -> Option<Vec<Flow>> {
    let mut flows = Vec::new();
    let mut stages = 0;
    let root = &part.trie.splits[0];
    let mut open: Vec<OpenPath> = Vec::new();
    let extend = |path: &[usize], node: usize, share: f64, open: &mut Vec<OpenPath>| {
        for &g in part.lanes[part.trie.nodes[node].lane].iter().rev() {
            if share * splits[g] > FLOW_MIN {
                open.push(OpenPath { groups: [path, &[g]].concat(), node, share: share * splits[g] });
            }
        }
    };
    for &node in root.to.iter().rev() {
        extend(&[], node, shares[node], &mut open);
    }
    while let Some(OpenPath { groups: path, node, share }) = open.pop() {
        stages += path.len();
        if stages > FLOW_STAGES_MAX {
            return None;
        }
        if part.trie.nodes[node].ends {
            flows.push(Flow { path: path.iter().map(|&g| name(g)).collect(), share });
        }
        for &next in part.trie.next[node].iter().rev() {
            // without history a child's share is its fraction; with history it is a part of its parent's
            let fraction = if part.trie.merged { shares[next] } else { shares[next] / shares[node] };
            extend(&path, next, share * fraction, &mut open);
        }
    }
    Some(flows)
}

/// Without history, any paths that give every group its share carry the same loads. So few paths do where all combinations
/// of groups are too many. `None` beyond [`FLOW_STAGES_MAX`] all the same.
fn few_flows(
    pipeline: &Pipeline,
    part: &PipelineSpace,
    shares: &[f64],
    splits: &[f64],
    name: impl Fn(usize) -> GroupName,
) -> Option<Vec<Flow>> {
    let mut by_task: Vec<Vec<GroupShare>> = vec![Vec::new(); pipeline.tasks.len()];
    for (node, share) in part.trie.nodes.iter().zip(shares) {
        let of_lane = part.lanes[node.lane].iter().map(|&group| GroupShare { group, share: share * splits[group] });
        by_task[node.task.get()].extend(of_lane.filter(|g| g.share > FLOW_MIN));
    }
    let paths = coupled_paths(pipeline, &by_task);
    let stages: usize = paths.iter().map(|p| p.groups.len()).sum();
    let flow = |path: &GroupPath| Flow { path: path.groups.iter().map(|&g| name(g)).collect(), share: path.share };
    (stages <= FLOW_STAGES_MAX).then(|| paths.iter().map(flow).collect())
}
