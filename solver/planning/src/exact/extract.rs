//! A plan from whole replicas: flows are solved again with the integers fixed, so that rounding cannot overload a group.

use super::constraints::Formulation;
use super::highs::{Ending, minimise};
use super::search::{Incumbent, Search};
use super::variables::{Choice, Site};
use apportion_domain::{Assignment, Flow, GroupName, PipelinePlan, Plan, Routing, TaskIndex, VariantIndex};

/// Flows below this are left out.
const FLOW_MIN: f64 = 1e-12;
/// Most paths of groups of one pipeline that are written down.
const PATHS_MAX: usize = 200_000;

struct Staffed<'a> {
    site: &'a Site,
    choice: Choice,
    replicas: u32,
    load_qps: f64,
}

/// The plan of an incumbent; `None` if the flows cannot be found, which is the solver's failure.
#[must_use]
pub fn plan(search: &Search<'_>, incumbent: &Incumbent) -> Option<Plan> {
    let mut formulation = Formulation::new(search.problem, search.space, search.tightenings, Some(&incumbent.budgets));
    for (x, &n) in formulation.layout.replicas.iter().zip(&incumbent.replicas) {
        if let Some(x) = *x {
            let column = &mut formulation.program.columns[x];
            (column.lower, column.upper) = (f64::from(n), f64::from(n));
        }
    }
    formulation.maximise_accuracy();
    let solved = minimise(&formulation.program, true, search.gap, search.control);
    let values = solved.values.filter(|_| solved.ending == Ending::Optimal)?;
    let flows: Vec<f64> = formulation.layout.flow.iter().map(|&f| values[f].clamp(0.0, 1.0)).collect();
    let pipelines = (0..search.problem.pipelines.len()).map(|p| pipeline_plan(search, incumbent, &flows, p)).collect();
    let mut plan = Plan { pipelines, cost_per_hour: 0.0 };
    plan.cost_per_hour = cost(search, &plan);
    Some(plan)
}

fn cost(search: &Search<'_>, plan: &Plan) -> f64 {
    let price = |name: &str| search.problem.hardware_named(name).map_or(0.0, |h| search.problem.hardware_at(h).price_per_hour);
    plan.devices().into_iter().map(|(name, count)| price(name) * count as f64).sum()
}

fn pipeline_plan(search: &Search<'_>, incumbent: &Incumbent, flows: &[f64], p: usize) -> PipelinePlan {
    let pipeline = &search.problem.pipelines[p];
    let mut staffed = staffed(search, incumbent, p);
    let mut paths = Vec::new();
    let mut total = vec![0.0; pipeline.tasks.len()];
    let mut accuracy = 0.0;
    for (n, node) in search.space.nodes.iter().enumerate().filter(|(n, node)| node.pipeline == p && flows[*n] > FLOW_MIN) {
        let load = pipeline.demand_qps * node.multiplier * flows[n];
        total[node.task.get()] += load;
        accuracy += node.accuracy * flows[n];
        for (i, part) in parts(&staffed, pipeline.survive, node.task, node.variant) {
            staffed[i].load_qps += load * part;
        }
        if paths.len() < PATHS_MAX && ends_somewhere(search, n) {
            expand(search, &staffed, pipeline.survive, n, flows[n], &mut paths);
        }
    }
    staffed.sort_by_key(|s| s.site.task);
    let assignment = |s: &Staffed<'_>| {
        let row = pipeline.variant(s.site.task, s.site.variant).profile.row(s.site.hardware, s.site.share, s.choice.batch);
        let total = total[s.site.task.get()];
        Assignment {
            group: name(search, s.site),
            batch: s.choice.batch,
            replicas: s.replicas,
            traffic_share: if total > 0.0 { s.load_qps / total } else { 0.0 },
            latency_budget_ms: row.map_or(0.0, |r| pipeline.hop_charge_ms(r.latency_ms)),
            utilisation: s.load_qps / (f64::from(s.replicas) * s.choice.qps),
        }
    };
    PipelinePlan {
        name: pipeline.name.clone(),
        demand_qps: pipeline.demand_qps,
        accuracy,
        serving: pipeline.serving.resolve(),
        assignments: staffed.iter().map(assignment).collect(),
        flows: paths,
        routing: Routing::default(),
    }
}

fn staffed<'a>(search: &Search<'a>, incumbent: &Incumbent, p: usize) -> Vec<Staffed<'a>> {
    let sites = search.space.sites.iter().zip(&incumbent.replicas);
    let here = sites.filter(|(site, replicas)| site.pipeline == p && **replicas > 0);
    here.filter_map(|(site, &replicas)| {
        let choice = *site.best_within(incumbent.budgets[p][site.task.get()])?;
        Some(Staffed { site, choice, replicas, load_qps: 0.0 })
    })
    .collect()
}

/// Groups of one variant share its queries in proportion to the capacity that survives.
fn parts(staffed: &[Staffed<'_>], survive: u32, task: TaskIndex, variant: VariantIndex) -> Vec<(usize, f64)> {
    let capacity = |s: &Staffed<'_>| f64::from(s.replicas.saturating_sub(survive)) * s.choice.qps;
    let same = |s: &Staffed<'_>| s.site.task == task && s.site.variant == variant;
    let groups: Vec<_> = staffed.iter().enumerate().filter(|(_, s)| same(s)).map(|(i, s)| (i, capacity(s))).collect();
    let total: f64 = groups.iter().map(|g| g.1).sum();
    groups.into_iter().filter(|g| g.1 > 0.0).map(|(i, c)| (i, c / total)).collect()
}

/// Whether some of a prefix's traffic goes no further on the way to a sink.
fn ends_somewhere(search: &Search<'_>, n: usize) -> bool {
    let node = &search.space.nodes[n];
    let pipeline = &search.problem.pipelines[node.pipeline];
    let mut children = pipeline.children(node.task).peekable();
    children.peek().is_none() || children.any(|e| pipeline.fanout(e, node.variant) <= 0.0)
}

/// Writes the paths of groups of one prefix down.
fn expand(search: &Search<'_>, staffed: &[Staffed<'_>], survive: u32, n: usize, flow: f64, paths: &mut Vec<Flow>) {
    let mut nodes = vec![n];
    while let Some(parent) = search.space.nodes[nodes[nodes.len() - 1]].parent {
        nodes.push(parent);
    }
    let mut open: Vec<(Vec<GroupName>, f64)> = vec![(Vec::new(), flow)];
    for &n in nodes.iter().rev() {
        let node = &search.space.nodes[n];
        let parts = parts(staffed, survive, node.task, node.variant);
        let longer = |(path, share): &(Vec<GroupName>, f64)| {
            let next = |&(i, part): &(usize, f64)| {
                let mut path = path.clone();
                path.push(name(search, staffed[i].site));
                (path, share * part)
            };
            parts.iter().map(next).collect::<Vec<_>>()
        };
        open = open.iter().flat_map(longer).collect();
    }
    paths.extend(open.into_iter().filter(|(_, share)| *share > FLOW_MIN).map(|(path, share)| Flow { path, share }));
}

fn name(search: &Search<'_>, site: &Site) -> GroupName {
    let task = search.problem.pipelines[site.pipeline].task(site.task);
    GroupName {
        task: task.name.clone(),
        variant: task.variants[site.variant.get()].name.clone(),
        hardware: search.problem.hardware_at(site.hardware).name.clone(),
        share: site.share,
    }
}
