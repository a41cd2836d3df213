//! Which groups can ever meet the SLO, and what are their best batch sizes?

use super::latency::{delays, finish_times, optional_tasks, remaining_times};
use super::tightening::Tightening;
use apportion_domain::{
    HardwareIndex, LatencyRule, Pipeline, PipelineIndex, Problem, ProfileRow, SLACK, Share, TaskIndex, VariantIndex,
};

/// A batch size of a group. No other batch size of the group is better in both latency and throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OperatingPoint {
    pub batch: u32,
    pub latency_ms: f64,
    /// `queue_factor * latency + hop`, plus the charge of the check loop.
    pub charge_ms: f64,
    pub qps: f64,
}

/// A (task, variant, hardware, share) that fits into memory and into the SLO, or that only holds idle replicas.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FeasibleGroup {
    pub task: TaskIndex,
    pub variant: VariantIndex,
    pub hardware: HardwareIndex,
    pub share: Share,
    /// By increasing charge, and so by increasing throughput; never empty.
    pub points: Vec<OperatingPoint>,
    /// Position of its lane.
    pub lane: usize,
    /// Deployed replicas.
    pub deployed: u32,
    /// The deployed batch size.
    pub deployed_batch: Option<u32>,
    /// Cost of loading one more replica, for the objective of `min_cost`.
    pub switch_cost: f64,
    /// Whether it is too slow for every query. Its replicas count for `min_replicas` and stay idle: no query passes there,
    /// so they need no time.
    pub is_idle: bool,
}

impl FeasibleGroup {
    /// The point of highest throughput that a budget admits. Idle replicas need no budget.
    pub fn best_within(&self, budget_ms: f64) -> Option<usize> {
        if self.is_idle {
            return Some(0);
        }
        let slack = SLACK * budget_ms.abs().max(1.0);
        self.points.iter().rposition(|p| p.charge_ms <= budget_ms + slack)
    }
}

/// The groups of a pipeline that can ever meet the SLO, of the variants that are `wanted`. Under rule `path`, an optional
/// task with `min_replicas` that has no such group keeps its slow groups for idle replicas.
pub(crate) fn usable_groups(
    problem: &Problem,
    index: PipelineIndex,
    tightening: &Tightening,
    wanted: impl Fn(TaskIndex, VariantIndex) -> bool,
) -> Vec<FeasibleGroup> {
    let pipeline = problem.pipeline(index);
    let mut groups = all_groups(problem, index, tightening);
    groups.retain(|g| wanted(g.task, g.variant));
    let (optional, rule) = (optional_tasks(pipeline), problem.objective.latency_rule);
    let slow = prune_slow(pipeline, &optional, rule, &mut groups);
    if rule == LatencyRule::Path {
        add_idle_groups(pipeline, &optional, slow, &mut groups);
    }
    groups
}

/// The least time in which a pipeline can answer, in milliseconds, at any load and with any number of replicas. The error
/// is a task that fits into no memory.
pub(crate) fn least_latency_ms(problem: &Problem, index: PipelineIndex) -> Result<f64, TaskIndex> {
    let pipeline = problem.pipeline(index);
    let optional = optional_tasks(pipeline);
    let groups = all_groups(problem, index, &Tightening::none(problem));
    let least = least_charges(pipeline, &optional, &groups);
    match least.iter().position(|charge| charge.is_infinite()) {
        Some(t) => Err(TaskIndex(t)),
        None => Ok(finish_times(pipeline, problem.objective.latency_rule, &least).into_iter().fold(0.0, f64::max)),
    }
}

/// Distinct charges of each task, increasing. Idle groups charge nothing.
pub(crate) fn levels(pipeline: &Pipeline, groups: &[FeasibleGroup]) -> Vec<Vec<f64>> {
    let mut levels = vec![Vec::new(); pipeline.tasks.len()];
    for group in groups.iter().filter(|group| !group.is_idle) {
        levels[group.task.get()].extend(group.points.iter().map(|p| p.charge_ms));
    }
    for of_task in &mut levels {
        of_task.sort_by(f64::total_cmp);
        of_task.dedup();
    }
    levels
}

/// Every group of a pipeline that fits into memory.
pub(crate) fn all_groups(problem: &Problem, index: PipelineIndex, tightening: &Tightening) -> Vec<FeasibleGroup> {
    let pipeline = problem.pipeline(index);
    let mut groups = Vec::new();
    for (t, task) in pipeline.tasks.iter().enumerate() {
        for (v, variant) in task.variants.iter().enumerate() {
            for (hardware, share) in variant.profile.places() {
                if !problem.fits_memory(variant.memory_mib, hardware, share) {
                    continue;
                }
                let extra = tightening.parts[index.0].charge_ms[t];
                let points = undominated_points(pipeline, TaskIndex(t), variant.profile.on(hardware, share), extra);
                let runs = problem.deployed.iter().find(|d| {
                    (d.pipeline, d.task.get(), d.variant.get(), d.hardware, d.share) == (index, t, v, hardware, share)
                });
                let price = problem.hardware_at(hardware).price_per_hour;
                groups.push(FeasibleGroup {
                    task: TaskIndex(t),
                    variant: VariantIndex(v),
                    hardware,
                    share,
                    points,
                    lane: 0,
                    deployed: runs.map_or(0, |d| d.replicas),
                    deployed_batch: runs.map(|d| d.batch),
                    switch_cost: problem.switching_weight * variant.load_ms / 1000.0 * price / 3600.0,
                    is_idle: false,
                });
            }
        }
    }
    groups
}

/// The points of a task's group that no other point beats. Latency and throughput both increase along them.
fn undominated_points(pipeline: &Pipeline, task: TaskIndex, rows: &[ProfileRow], extra_ms: f64) -> Vec<OperatingPoint> {
    let point = |r: &ProfileRow| OperatingPoint {
        batch: r.batch,
        latency_ms: r.latency_ms,
        charge_ms: pipeline.hop_charge_ms(task, r.latency_ms) + extra_ms,
        qps: r.throughput_qps(),
    };
    let mut points: Vec<OperatingPoint> = rows.iter().map(point).collect();
    points.sort_by(|a, b| a.charge_ms.total_cmp(&b.charge_ms).then(b.qps.total_cmp(&a.qps)));
    let mut best = 0.0;
    points.retain(|p| {
        let better = p.qps > best;
        best = p.qps.max(best);
        better
    });
    points
}

/// The least charge of each task: its fastest point, or 0 if the task is optional.
pub(crate) fn least_charges(pipeline: &Pipeline, optional: &[bool], groups: &[FeasibleGroup]) -> Vec<f64> {
    let mut least = vec![f64::INFINITY; pipeline.tasks.len()];
    for group in groups {
        let charge = &mut least[group.task.get()];
        *charge = group.points.iter().map(|p| p.charge_ms).fold(*charge, f64::min);
    }
    least.iter_mut().zip(optional).for_each(|(charge, &optional)| *charge = if optional { 0.0 } else { *charge });
    least
}

/// Removes the points that miss the SLO even if all other tasks run at their fastest, and then the groups without points.
/// Returns these groups with all their points.
fn prune_slow(
    pipeline: &Pipeline,
    optional: &[bool],
    rule: LatencyRule,
    groups: &mut Vec<FeasibleGroup>,
) -> Vec<FeasibleGroup> {
    let least = least_charges(pipeline, optional, groups);
    let finish = finish_times(pipeline, rule, &least);
    let remaining = remaining_times(pipeline, rule, &least);
    let slo = pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0);
    let others: Vec<f64> = (0..pipeline.tasks.len())
        .map(|t| {
            let into = pipeline.edges_into(TaskIndex(t)).filter(|e| delays(rule, e));
            into.map(|e| finish[e.from.get()]).fold(0.0, f64::max) + remaining[t]
        })
        .collect();
    let is_in_time = |task: TaskIndex, point: &OperatingPoint| others[task.get()] + point.charge_ms <= slo;
    let slow: Vec<FeasibleGroup> = groups.extract_if(.., |g| !g.points.iter().any(|p| is_in_time(g.task, p))).collect();
    for group in groups.iter_mut() {
        group.points.retain(|p| is_in_time(group.task, p));
    }
    slow
}

/// Adds the slow groups of each optional task that needs replicas and has no other groups.
fn add_idle_groups(pipeline: &Pipeline, optional: &[bool], slow: Vec<FeasibleGroup>, groups: &mut Vec<FeasibleGroup>) {
    let is_wanted = |group: &FeasibleGroup| {
        let needs_replicas = optional[group.task.get()] && pipeline.task(group.task).min_replicas > 0;
        needs_replicas && groups.iter().all(|other| other.task != group.task)
    };
    let idle: Vec<FeasibleGroup> =
        slow.into_iter().filter(is_wanted).map(|g| FeasibleGroup { is_idle: true, ..g }).collect();
    if !idle.is_empty() {
        groups.extend(idle);
        groups.sort_by_key(|group| group.task);
    }
}

/// Whether two groups differ in their batch sizes at most.
pub(crate) fn is_same_group(a: &FeasibleGroup, b: &FeasibleGroup) -> bool {
    (a.task, a.variant, a.hardware, a.share) == (b.task, b.variant, b.hardware, b.share)
}
