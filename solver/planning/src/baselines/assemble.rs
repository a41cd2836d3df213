//! How do groups and their traffic shares become a plan? Routing ignores the history of a query: every sender splits its
//! queries for a task in the same way.

use crate::exact::solution::plan::{FLOW_STAGES_MAX, cost_per_hour};
use apportion_domain::{
    AccuracyModel, Assignment, Edge, Flow, GroupName, HardwareIndex, Pipeline, PipelinePlan, Plan, Problem, Routing,
    RoutingEntry, RoutingTable, Share, TaskIndex, VariantIndex,
};

/// One group of one pipeline.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BaselineGroup {
    pub task: TaskIndex,
    pub variant: VariantIndex,
    pub hardware: HardwareIndex,
    pub share: Share,
    /// A measured size.
    pub batch: u32,
    pub replicas: u32,
    /// Share of the task's queries. The shares of one task sum to 1.
    pub traffic: f64,
}

/// Mean queries that reach each task for one of the root's, given the traffic of the groups above it.
pub(crate) fn visits(pipeline: &Pipeline, groups: &[BaselineGroup]) -> Vec<f64> {
    multiply_from_root(pipeline, groups, |edge, variant| pipeline.fanout(edge, variant))
}

/// Share of the root's queries that reach each task at all.
fn reach(pipeline: &Pipeline, groups: &[BaselineGroup]) -> Vec<f64> {
    multiply_from_root(pipeline, groups, |edge, variant| if pipeline.fanout(edge, variant) > 0.0 { 1.0 } else { 0.0 })
}

/// By task, the product of a factor over all edges from the root. At each edge it is the mean factor of the parent's
/// groups, by traffic.
fn multiply_from_root(
    pipeline: &Pipeline,
    groups: &[BaselineGroup],
    factor: impl Fn(&Edge, VariantIndex) -> f64,
) -> Vec<f64> {
    let mut at = vec![0.0; pipeline.tasks.len()];
    for &t in pipeline.order() {
        at[t.get()] = pipeline.primary_parent(t).map_or(1.0, |edge| {
            let parents = groups.iter().filter(|g| g.task == edge.from);
            at[edge.from.get()] * parents.map(|g| g.traffic * factor(edge, g.variant)).sum::<f64>()
        });
    }
    at
}

/// The plan in which pipeline `p` runs `groups[p]`, ordered by task; `None` if it would list too many paths.
pub(crate) fn plan(problem: &Problem, groups: &[Vec<BaselineGroup>], demands: &[f64]) -> Option<Plan> {
    let parts = problem.pipelines.iter().zip(groups).zip(demands);
    let pipelines = parts.map(|((p, own), &demand)| pipeline_plan(problem, p, own, demand)).collect::<Option<_>>()?;
    let mut plan = Plan { pipelines, cost_per_hour: 0.0 };
    plan.cost_per_hour = cost_per_hour(problem, &plan);
    Some(plan)
}

/// The part of one pipeline at a demand.
fn pipeline_plan(
    problem: &Problem,
    pipeline: &Pipeline,
    groups: &[BaselineGroup],
    demand_qps: f64,
) -> Option<PipelinePlan> {
    let visits = visits(pipeline, groups);
    let assignment = |g: &BaselineGroup| {
        let row = pipeline.variant(g.task, g.variant).profile.row(g.hardware, g.share, g.batch);
        let row = row.expect("groups run measured batches only");
        let load = demand_qps * visits[g.task.get()] * g.traffic;
        Assignment {
            group: group_name(problem, pipeline, g),
            batch: g.batch,
            replicas: g.replicas,
            traffic_share: if visits[g.task.get()] > 0.0 { g.traffic } else { 0.0 },
            latency_budget_ms: pipeline.hop_charge_ms(g.task, row.latency_ms),
            utilisation: load / (f64::from(g.replicas) * row.throughput_qps()),
        }
    };
    let Traffic { flows, accuracy } = traffic(problem, pipeline, groups)?;
    Some(PipelinePlan {
        name: pipeline.name.clone(),
        demand_qps,
        accuracy,
        serving: pipeline.serving.resolve(),
        assignments: groups.iter().map(assignment).collect(),
        flows,
        routing: Routing { tables: tables(problem, pipeline, groups), backup: Vec::new() },
        ladder: vec![],
    })
}

fn group_name(problem: &Problem, pipeline: &Pipeline, g: &BaselineGroup) -> GroupName {
    GroupName {
        task: pipeline.task(g.task).name.clone(),
        variant: pipeline.variant(g.task, g.variant).name.clone(),
        hardware: problem.hardware_at(g.hardware).name.clone(),
        share: g.share,
    }
}

/// Every path of groups with its share, and the accuracy that they give.
struct Traffic {
    flows: Vec<Flow>,
    accuracy: f64,
}

/// The traffic of a pipeline's groups; `None` if there are too many paths.
fn traffic(problem: &Problem, pipeline: &Pipeline, groups: &[BaselineGroup]) -> Option<Traffic> {
    let mut flows: Vec<Flow> = Vec::new();
    let mut accuracy = 0.0;
    let mut ended: Vec<Vec<usize>> = Vec::new();
    for sink in pipeline.sinks() {
        for GroupPath { groups: path, share } in paths(pipeline, groups, sink)? {
            let stages: Vec<_> = path.iter().map(|&g| (groups[g].task, groups[g].variant)).collect();
            accuracy += pipeline.leaf_weight(sink) * share * pipeline.path_accuracy(&stages);
            // a path that ends early ends so for every sink below
            let whole = stages.last().is_some_and(|&(t, _)| t == sink);
            if whole || !ended.contains(&path) {
                flows.push(Flow { path: path.iter().map(|&g| group_name(problem, pipeline, &groups[g])).collect(), share });
                if !whole {
                    ended.push(path);
                }
            }
        }
    }
    if pipeline.accuracy_model == AccuracyModel::TaskMean {
        let reach = reach(pipeline, groups);
        let one = |g: &BaselineGroup| reach[g.task.get()] * g.traffic * pipeline.variant(g.task, g.variant).accuracy;
        accuracy = groups.iter().map(one).sum::<f64>() / pipeline.tasks.len() as f64;
    }
    Some(Traffic { flows, accuracy })
}

/// A path of groups, by position.
struct GroupPath {
    groups: Vec<usize>,
    /// Share of the root's queries.
    share: f64,
}

/// The paths of groups towards a sink, as far as queries go. `None` beyond [`FLOW_STAGES_MAX`].
fn paths(pipeline: &Pipeline, groups: &[BaselineGroup], sink: TaskIndex) -> Option<Vec<GroupPath>> {
    let mut tasks = vec![sink];
    while let Some(edge) = pipeline.primary_parent(tasks[tasks.len() - 1]) {
        tasks.push(edge.from);
    }
    let mut open = vec![GroupPath { groups: Vec::new(), share: 1.0 }];
    let mut done: Vec<GroupPath> = Vec::new();
    for &t in tasks.iter().rev() {
        let mut next = Vec::new();
        for path in open {
            let last = path.groups.last().map(|&g| groups[g].variant);
            let goes_on = match (last, pipeline.primary_parent(t)) {
                (Some(variant), Some(edge)) => pipeline.fanout(edge, variant) > 0.0,
                _ => true,
            };
            if !goes_on {
                done.push(path);
                continue;
            }
            for (g, group) in groups.iter().enumerate().filter(|(_, g)| g.task == t && g.traffic > 0.0) {
                let longer = [path.groups.as_slice(), &[g]].concat();
                next.push(GroupPath { groups: longer, share: path.share * group.traffic });
            }
            if (next.len() + done.len()).saturating_mul(tasks.len()) > FLOW_STAGES_MAX {
                return None;
            }
        }
        open = next;
    }
    done.extend(open);
    Some(done)
}

/// Every sender's split of its queries for each task below it, most accurate first.
fn tables(problem: &Problem, pipeline: &Pipeline, groups: &[BaselineGroup]) -> Vec<RoutingTable> {
    let entries = |task: TaskIndex| {
        let mut of: Vec<&BaselineGroup> = groups.iter().filter(|g| g.task == task && g.traffic > 0.0).collect();
        let accuracy = |g: &BaselineGroup| pipeline.variant(g.task, g.variant).accuracy;
        of.sort_by(|a, b| accuracy(b).total_cmp(&accuracy(a)));
        of.iter().map(|g| RoutingEntry { to: group_name(problem, pipeline, g), fraction: g.traffic }).collect()
    };
    let table = |from: Option<GroupName>, task: TaskIndex| RoutingTable {
        from,
        to_task: pipeline.task(task).name.clone(),
        entries: entries(task),
    };
    let mut tables = vec![table(None, pipeline.root())];
    for g in groups {
        for edge in pipeline.children(g.task) {
            tables.push(table(Some(group_name(problem, pipeline, g)), edge.to));
        }
    }
    tables
}
