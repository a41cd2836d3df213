//! From a solution's integers to a plan: flows solved again, groups' shares, budgets, utilisation.

use super::formulation::{Ending, Formulation};
use super::highs::{self, Settings};
use super::paths;
use super::space::{Part, Space};
use super::variables::PartColumns;
use crate::limits::Limits;
use apportion_domain::{Assignment, Flow, GroupName, LatencyRule, PipelinePlan, Plan, Problem, Routing, StopReason};

/// Most stages of all paths that a plan lists for one pipeline: each is a name of a hundred bytes, which the checker follows.
pub(crate) const FLOW_STAGES_MAX: usize = 50_000;
/// Paths that carry less than this are noise of the solver.
const FLOW_MIN: f64 = 1e-12;

/// The integers of a plan: replicas and operating point of every group of every pipeline.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    /// `(replicas, point)` by pipeline and group; the point means nothing without replicas.
    pub groups: Vec<Vec<(u32, usize)>>,
}

impl Choice {
    /// All replicas.
    pub fn replicas(&self) -> u64 {
        self.groups.iter().flatten().map(|&(x, _)| u64::from(x)).sum()
    }
}

/// Reads the integers of a solution; budgets that no binary chose are those of the fixed points.
pub(crate) fn choice(space: &Space, columns: &[PartColumns], values: &[f64]) -> Choice {
    let of_part = |(part, own): (&Part, &PartColumns)| {
        let budget = |t: usize| {
            let chosen = own.level[t].iter().zip(&part.levels[t]).filter(|(w, _)| values[w.0] > 0.5);
            chosen.map(|(_, &theta)| theta).fold(0.0, f64::max)
        };
        let budgets: Vec<f64> = (0..own.level.len()).map(budget).collect();
        let group = |(g, group): (usize, &super::space::Group)| {
            let point = match (&own.fixed, own.batch.get(g)) {
                (Some(fixed), _) => fixed[g],
                (None, Some(batches)) => batches.iter().position(|z| values[z.0] > 0.5),
                (None, None) => group.best_within(budgets[group.task.get()]),
            };
            let replicas = values[own.replicas[g].0].round().max(0.0) as u32;
            point.map_or((0, 0), |point| (replicas, point))
        };
        part.groups.iter().enumerate().map(group).collect()
    };
    Choice { groups: space.parts.iter().zip(columns).map(of_part).collect() }
}

/// The flows of highest weighted accuracy that a choice can carry; `None` if it can carry none.
pub(crate) fn flows(
    problem: &Problem,
    space: &Space,
    choice: &Choice,
    limits: &Limits,
) -> Result<Option<Vec<Vec<f64>>>, StopReason> {
    let mut all = Vec::with_capacity(space.parts.len());
    for (part, groups) in space.parts.iter().zip(&choice.groups) {
        let Some(found) = part_flows(problem, part, groups, limits)? else { return Ok(None) };
        all.push(found);
    }
    Ok(Some(all))
}

/// Capacity of a group that may be counted on: `(replicas - survive) * q`.
fn capacity(problem: &Problem, part: &Part, g: usize, (replicas, point): (u32, usize)) -> f64 {
    let survive = problem.pipeline(part.index).survive;
    f64::from(replicas.saturating_sub(survive)) * part.groups[g].points[point].qps
}

fn part_flows(
    problem: &Problem,
    part: &Part,
    groups: &[(u32, usize)],
    limits: &Limits,
) -> Result<Option<Vec<f64>>, StopReason> {
    let mut formulation = Formulation::default();
    let of_lane = |lane: &Vec<usize>| lane.iter().map(|&g| capacity(problem, part, g, groups[g])).sum();
    let capacities: Vec<f64> = part.lanes.iter().map(of_lane).collect();
    let in_time = match part.rule {
        LatencyRule::TaskBudget => vec![true; part.trie.nodes.len()],
        LatencyRule::Path => paths::in_time(problem.pipeline(part.index), part, groups),
    };
    let flow: Vec<_> = part
        .trie
        .nodes
        .iter()
        .zip(in_time)
        .map(|(n, in_time)| {
            let open = in_time && capacities[n.lane] > 0.0;
            let column = formulation.continuous(0.0, if open { 1.0 } else { 0.0 });
            formulation.add_cost(column, -n.accuracy);
            column
        })
        .collect();
    for split in &part.trie.splits {
        let to = split.to.iter().map(|&n| (flow[n], 1.0));
        match split.from {
            Some(from) => formulation.equal(0.0, to.chain([(flow[from], -1.0)]).collect()),
            None => formulation.equal(1.0, to.collect()),
        }
    }
    for (lane, &capacity) in capacities.iter().enumerate().filter(|(_, c)| **c > 0.0) {
        let here = part.trie.nodes.iter().zip(&flow).filter(|(n, _)| n.lane == lane);
        formulation.at_most(1.0, here.map(|(n, &f)| (f, n.load_qps / capacity)).collect());
    }
    let solved = highs::solve(&formulation, Settings::flows(), limits, None);
    match (solved.ending, solved.values) {
        (Ending::Optimal, Some(values)) => {
            let mut shares: Vec<f64> = flow.iter().map(|f| values[f.0].clamp(0.0, 1.0)).collect();
            normalise(part, &mut shares);
            Ok(Some(shares))
        }
        (Ending::Infeasible, _) => Ok(None),
        (Ending::Stopped, _) => Err(limits.reason().unwrap_or(StopReason::TimeLimit)),
        _ => Err(StopReason::Numerics),
    }
}

/// Makes the children of every prefix sum to it exactly, parents first.
fn normalise(part: &Part, shares: &mut [f64]) {
    shares.iter_mut().for_each(|s| *s = if *s < FLOW_MIN { 0.0 } else { *s });
    for split in &part.trie.splits {
        let target = split.from.map_or(1.0, |from| shares[from]);
        let total: f64 = split.to.iter().map(|&n| shares[n]).sum();
        if total > 0.0 {
            split.to.iter().for_each(|&n| shares[n] *= target / total);
        }
    }
}

/// The plan of a choice with its flows; `None` if it would list too many paths.
pub(crate) fn plan(problem: &Problem, space: &Space, choice: &Choice, flows: &[Vec<f64>]) -> Option<Plan> {
    let parts = space.parts.iter().zip(&choice.groups).zip(flows);
    let pipelines = parts.map(|((part, groups), shares)| part_plan(problem, part, groups, shares));
    let mut plan = Plan { pipelines: pipelines.collect::<Option<_>>()?, cost_per_hour: 0.0 };
    plan.cost_per_hour = cost_per_hour(problem, &plan);
    Some(plan)
}

/// Price of the whole devices of a plan.
pub(crate) fn cost_per_hour(problem: &Problem, plan: &Plan) -> f64 {
    let price = |name: &str| problem.hardware_named(name).map_or(0.0, |h| problem.hardware_at(h).price_per_hour);
    plan.devices().into_iter().map(|(name, devices)| price(name) * devices as f64).sum()
}

/// Accuracy that shares give one pipeline.
pub(crate) fn accuracy(part: &Part, shares: &[f64]) -> f64 {
    part.trie.nodes.iter().zip(shares).map(|(n, s)| n.accuracy * s).sum()
}

fn part_plan(problem: &Problem, part: &Part, groups: &[(u32, usize)], shares: &[f64]) -> Option<PipelinePlan> {
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
    let mut order: Vec<usize> = (0..groups.len()).filter(|&g| groups[g].0 > 0).collect();
    order.sort_by_key(|&g| part.groups[g].task);
    let assignment = |&g: &usize| {
        let (replicas, point) = groups[g];
        let (group, point) = (&part.groups[g], &part.groups[g].points[point]);
        let total = of_task[group.task.get()];
        // what the check loop added to the load is not the plan's own
        let headroom = part.headroom[group.task.get()];
        Assignment {
            group: name(g),
            batch: point.batch,
            replicas,
            traffic_share: if total > 0.0 { load[g] / total } else { 0.0 },
            latency_budget_ms: pipeline.hop_charge_ms(point.latency_ms),
            utilisation: load[g] / headroom / (f64::from(replicas) * point.qps),
        }
    };
    Some(PipelinePlan {
        name: pipeline.name.clone(),
        demand_qps: pipeline.demand_qps,
        accuracy: accuracy(part, shares),
        serving: pipeline.serving.resolve(),
        assignments: order.iter().map(assignment).collect(),
        flows: group_flows(part, shares, &splits, name)?,
        routing: Routing::default(),
        ladder: vec![],
    })
}

/// How the load of a lane splits over its groups: in proportion to the capacity that may be counted on.
fn group_fractions(problem: &Problem, part: &Part, groups: &[(u32, usize)]) -> Vec<f64> {
    let mut fractions = vec![0.0; groups.len()];
    for lane in &part.lanes {
        let total: f64 = lane.iter().map(|&g| capacity(problem, part, g, groups[g])).sum();
        for &g in lane {
            fractions[g] = if total > 0.0 { capacity(problem, part, g, groups[g]) / total } else { 0.0 };
        }
    }
    fractions
}

/// Shares of paths of groups from shares of prefixes of variants; `None` beyond [`FLOW_STAGES_MAX`].
fn group_flows(part: &Part, shares: &[f64], splits: &[f64], name: impl Fn(usize) -> GroupName) -> Option<Vec<Flow>> {
    let mut flows = Vec::new();
    let mut stages = 0;
    let root = &part.trie.splits[0];
    // (path of groups, its node, its share)
    let mut open: Vec<(Vec<usize>, usize, f64)> = Vec::new();
    let extend = |path: &[usize], node: usize, share: f64, open: &mut Vec<(Vec<usize>, usize, f64)>| {
        for &g in part.lanes[part.trie.nodes[node].lane].iter().rev() {
            if share * splits[g] > FLOW_MIN {
                open.push(([path, &[g]].concat(), node, share * splits[g]));
            }
        }
    };
    for &node in root.to.iter().rev() {
        extend(&[], node, shares[node], &mut open);
    }
    while let Some((path, node, share)) = open.pop() {
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
