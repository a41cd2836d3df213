//! How much of the SLO has each task, so that its variants can be chosen by themselves?
//!
//! Example: `find` takes 20 ms and `read` 30 ms, and the SLO is 100 ms. So `find` may take up to 40 ms and `read` up to
//! 60 ms. INFaaS has no pipelines: there the SLO is that of the one model (constraint 2 of section 4.2.1).

use crate::exact::model::latency::finish_times;
use apportion_domain::{LatencyRule, Pipeline, PipelineIndex, Problem, ProfileRow, SLACK, TaskIndex, VariantIndex};
use std::collections::BTreeSet;

/// A variant of a task of a pipeline that must not run.
pub(super) type LeftOutVariant = (PipelineIndex, TaskIndex, VariantIndex);

/// The most that one query may be charged at each task, in milliseconds. `None` if the fastest groups miss the SLO.
///
/// The times of the groups that run grow by one factor until the longest way takes the SLO. If they miss the SLO, or a
/// task has none, the fastest group of each task counts instead.
pub(super) fn task_budgets_ms(
    problem: &Problem,
    p: PipelineIndex,
    left_out: &BTreeSet<LeftOutVariant>,
) -> Option<Vec<f64>> {
    let pipeline = problem.pipeline(p);
    let tasks = || (0..pipeline.tasks.len()).map(TaskIndex);
    let running: Option<Vec<f64>> = tasks().map(|t| running_charge_ms(problem, (p, t), left_out)).collect();
    let base = match running.filter(|charges| meets_slo(pipeline, charges)) {
        Some(charges) => charges,
        None => tasks().map(|t| least_charge_ms(problem, (p, t), left_out)).collect::<Option<Vec<f64>>>()?,
    };
    if !meets_slo(pipeline, &base) {
        return None;
    }
    let longest_ms = longest_ms(pipeline, &base);
    let factor = if longest_ms > 0.0 { (pipeline.slo_ms / longest_ms).max(1.0) } else { 1.0 };
    Some(base.into_iter().map(|charge| charge * factor).collect())
}

/// The measured batch size of the highest throughput whose charge is within the budget of its task.
pub(super) fn best_row<'a>(
    pipeline: &Pipeline,
    task: TaskIndex,
    rows: &'a [ProfileRow],
    budget_ms: f64,
) -> Option<&'a ProfileRow> {
    let most_ms = budget_ms + SLACK * budget_ms.max(1.0);
    let within = rows.iter().filter(|row| pipeline.hop_charge_ms(task, row.latency_ms) <= most_ms);
    within.max_by(|a, b| a.throughput_qps().total_cmp(&b.throughput_qps()))
}

fn longest_ms(pipeline: &Pipeline, charges: &[f64]) -> f64 {
    finish_times(pipeline, LatencyRule::TaskBudget, charges).into_iter().fold(0.0, f64::max)
}

fn meets_slo(pipeline: &Pipeline, charges: &[f64]) -> bool {
    longest_ms(pipeline, charges) <= pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0)
}

/// The charge of the slowest group of a task that runs and may stay; `None` if there is none.
fn running_charge_ms(
    problem: &Problem,
    (p, t): (PipelineIndex, TaskIndex),
    left_out: &BTreeSet<LeftOutVariant>,
) -> Option<f64> {
    let pipeline = problem.pipeline(p);
    let runs = problem.deployed.iter().filter(|d| d.pipeline == p && d.task == t && d.replicas > 0);
    let own = runs.filter(|d| !left_out.contains(&(p, t, d.variant)));
    let rows = own.filter_map(|d| pipeline.variant(t, d.variant).profile.row(d.hardware, d.share, d.batch));
    rows.map(|row| pipeline.hop_charge_ms(t, row.latency_ms)).max_by(f64::total_cmp)
}

/// The charge of the fastest group that a task may have; `None` if it may have none.
fn least_charge_ms(
    problem: &Problem,
    (p, t): (PipelineIndex, TaskIndex),
    left_out: &BTreeSet<LeftOutVariant>,
) -> Option<f64> {
    let pipeline = problem.pipeline(p);
    let variants = pipeline.task(t).variants.iter().enumerate();
    let may_run = variants.filter(|(v, _)| !left_out.contains(&(p, t, VariantIndex(*v))));
    let rows = may_run.flat_map(|(_, variant)| {
        let fits = move |row: &&ProfileRow| problem.fits_memory(variant.memory_mib, row.hardware, row.share);
        variant.profile.rows().iter().filter(fits)
    });
    rows.map(|row| pipeline.hop_charge_ms(t, row.latency_ms)).min_by(f64::total_cmp)
}
