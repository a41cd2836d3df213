//! What do a plan and the deployed one cost, and how do they serve the load that was seen?

use apportion_domain::{Plan, Problem};
use apportion_estimator::{SimulateOptions, Workload, simulate};
use apportion_support::exit::Failure;
use std::collections::BTreeMap;

/// One plan under the load that was seen.
#[derive(Clone, Debug)]
pub struct PlanFigures {
    /// Price of its devices.
    pub cost_per_hour: f64,
    /// Its replicas.
    pub replicas: u64,
    /// Requests of the replay.
    pub requests: u64,
    /// Share of the requests that are answered by their deadline.
    pub attainment: f64,
    /// Mean accuracy of the answers; `None` without an answer.
    pub accuracy: Option<f64>,
    /// 99th percentile of the latency; `None` without an answer.
    pub p99_ms: Option<f64>,
    /// The checker's findings at that load, one sentence each.
    pub findings: Vec<String>,
}

/// The replicas of one group in both plans.
#[derive(Clone, Debug)]
pub struct GroupRow {
    /// The group.
    pub key: AdvisedGroup,
    /// Replicas of the advice.
    pub desired: u32,
    /// Replicas that run now; `None` if nothing is known of the deployment.
    pub deployed: Option<u32>,
}

/// A group with its batch size, in the order of the problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AdvisedGroup {
    place: (usize, usize),
    /// The pipeline.
    pub pipeline: String,
    /// The task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The hardware type.
    pub hardware: String,
    /// The share of a device, in eighths.
    pub share_eighths: u8,
    /// The batch size.
    pub batch: u32,
}

/// Checks and replays a plan. `problem` has the demand that was seen.
///
/// # Errors
/// If the plan cannot be replayed, for example because it lacks a pipeline.
pub fn plan_figures(problem: &Problem, plan: &Plan, load: &Workload, name: &str) -> Result<PlanFigures, Failure> {
    let price = |name: &str| problem.hardware_named(name).map_or(0.0, |h| problem.hardware_at(h).price_per_hour);
    let mut plan = plan.clone();
    plan.cost_per_hour = plan.devices().into_iter().map(|(name, count)| price(name) * count as f64).sum();
    // Demand, accuracy and utilisation are claims for another demand, which the checker would compare with this one.
    for part in &mut plan.pipelines {
        if let Some(index) = problem.pipeline_named(&part.name) {
            part.demand_qps = problem.pipeline(index).demand_qps;
        }
        part.assignments.iter_mut().for_each(|a| a.utilisation = 0.0);
    }
    let findings = apportion_checker::check(problem, &plan).iter().map(ToString::to_string).collect();
    let replayed = simulate(problem, &plan, load, &SimulateOptions::default());
    let total = replayed.map_err(|e| Failure::BadInput(format!("{name}: {e}")))?.total;
    let estimate = apportion_wire::EstimateFile::from(&total);
    Ok(PlanFigures {
        cost_per_hour: plan.cost_per_hour,
        replicas: plan.replicas(),
        requests: estimate.requests,
        attainment: estimate.attainment,
        accuracy: estimate.accuracy,
        p99_ms: estimate.p99_ms,
        findings,
    })
}

/// The groups of both plans, in the problem's order.
pub fn group_rows(problem: &Problem, advised: &Plan, deployed: Option<&Plan>) -> Vec<GroupRow> {
    let mut rows: BTreeMap<AdvisedGroup, [u32; 2]> = BTreeMap::new();
    for (side, plan) in [Some(advised), deployed].into_iter().enumerate() {
        for (key, replicas) in plan.map(|plan| groups_of(problem, plan)).unwrap_or_default() {
            rows.entry(key).or_default()[side] += replicas;
        }
    }
    let row = |(key, [desired, now]): (AdvisedGroup, [u32; 2])| GroupRow { key, desired, deployed: deployed.map(|_| now) };
    rows.into_iter().map(row).collect()
}

fn groups_of(problem: &Problem, plan: &Plan) -> Vec<(AdvisedGroup, u32)> {
    let mut groups = Vec::new();
    for part in &plan.pipelines {
        let index = problem.pipelines.iter().position(|p| p.name == part.name).unwrap_or(usize::MAX);
        let tasks = problem.pipelines.get(index).map_or(&[][..], |p| &p.tasks);
        for a in &part.assignments {
            let task = tasks.iter().position(|t| t.name == a.group.task).unwrap_or(usize::MAX);
            let key = AdvisedGroup {
                place: (index, task),
                pipeline: part.name.clone(),
                task: a.group.task.clone(),
                variant: a.group.variant.clone(),
                hardware: a.group.hardware.clone(),
                share_eighths: a.group.share.eighths(),
                batch: a.batch,
            };
            groups.push((key, a.replicas));
        }
    }
    groups
}
