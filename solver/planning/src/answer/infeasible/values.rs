//! Which values of a problem can be relaxed to make it feasible?

use crate::exact::model::groups::{all_groups, levels};
use crate::exact::model::latency::{optional_tasks, possible_finish_times};
use crate::exact::model::tightening::Tightening;
use apportion_domain::{HardwareIndex, PipelineDraft, PipelineIndex, Problem, Share, TaskIndex};

/// One value of a problem file that can be relaxed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProblemValue {
    /// `/hardware/h/count`, upwards.
    Count(HardwareIndex),
    /// `/pipelines/p/demand_qps`, downwards.
    Demand(PipelineIndex),
    /// `/pipelines/p/slo_ms`, upwards.
    Slo(PipelineIndex),
    /// `/pipelines/p/min_accuracy`, downwards.
    Floor(PipelineIndex),
    /// `/objective/budget_per_hour`, upwards.
    Budget,
    /// `/hardware/h/memory_mib`, upwards.
    Memory(HardwareIndex),
    /// `/pipelines/p/tasks/t/min_replicas`, downwards.
    MinReplicas(PipelineIndex, TaskIndex),
    /// `/pipelines/p/survive`, downwards.
    Survive(PipelineIndex),
}

/// Most finish times of one task that are listed. Beyond it, bisection tries any number.
const SLO_STEPS_MAX: usize = 200_000;
/// An SLO that every plan meets.
const SLO_FREE_MS: f64 = 1e12;

/// All values of a problem that limit its plans.
pub(super) fn limiting_values(problem: &Problem) -> Vec<ProblemValue> {
    let hardware = || (0..problem.hardware.len()).map(HardwareIndex);
    let pipelines = || (0..problem.pipelines.len()).map(PipelineIndex);
    let mut values: Vec<ProblemValue> = Vec::new();
    values.extend(hardware().filter(|&h| problem.hardware_at(h).count.is_some()).map(ProblemValue::Count));
    values.extend(pipelines().filter(|&p| problem.pipeline(p).demand_qps > 0.0).map(ProblemValue::Demand));
    values.extend(pipelines().map(ProblemValue::Slo));
    values.extend(pipelines().filter(|&p| problem.pipeline(p).min_accuracy.is_some()).map(ProblemValue::Floor));
    values.extend(problem.objective.budget_per_hour.map(|_| ProblemValue::Budget));
    values.extend(hardware().filter(|&h| problem.hardware_at(h).memory_mib.is_some()).map(ProblemValue::Memory));
    values.extend(pipelines().filter(|&p| problem.pipeline(p).survive > 0).map(ProblemValue::Survive));
    for p in pipelines() {
        let tasks = problem.pipeline(p).tasks.iter().enumerate().filter(|(_, task)| task.min_replicas > 1);
        values.extend(tasks.map(|(t, _)| ProblemValue::MinReplicas(p, TaskIndex(t))));
    }
    values
}

impl ProblemValue {
    /// JSON pointer of the value.
    pub fn pointer(self) -> String {
        match self {
            Self::Count(h) => format!("/hardware/{}/count", h.0),
            Self::Demand(p) => format!("/pipelines/{}/demand_qps", p.0),
            Self::Slo(p) => format!("/pipelines/{}/slo_ms", p.0),
            Self::Floor(p) => format!("/pipelines/{}/min_accuracy", p.0),
            Self::Budget => "/objective/budget_per_hour".into(),
            Self::Memory(h) => format!("/hardware/{}/memory_mib", h.0),
            Self::MinReplicas(p, t) => format!("/pipelines/{}/tasks/{}/min_replicas", p.0, t.0),
            Self::Survive(p) => format!("/pipelines/{}/survive", p.0),
        }
    }

    /// Name of the part of the problem that has the value.
    pub fn place(self, problem: &Problem) -> String {
        match self {
            Self::Count(h) | Self::Memory(h) => problem.hardware_at(h).name.clone(),
            Self::Demand(p) | Self::Slo(p) | Self::Floor(p) | Self::Survive(p) => problem.pipeline(p).name.clone(),
            Self::MinReplicas(p, t) => format!("{}/{}", problem.pipeline(p).name, problem.pipeline(p).task(t).name),
            Self::Budget => "plan".into(),
        }
    }

    /// The present value.
    pub fn now(self, problem: &Problem) -> f64 {
        match self {
            Self::Count(h) => problem.hardware_at(h).count.map_or(f64::INFINITY, f64::from),
            Self::Demand(p) => problem.pipeline(p).demand_qps,
            Self::Slo(p) => problem.pipeline(p).slo_ms,
            Self::Floor(p) => problem.pipeline(p).min_accuracy.unwrap_or(0.0),
            Self::Budget => problem.objective.budget_per_hour.unwrap_or(f64::INFINITY),
            Self::Memory(h) => problem.hardware_at(h).memory_mib.unwrap_or(f64::INFINITY),
            Self::MinReplicas(p, t) => f64::from(problem.pipeline(p).task(t).min_replicas),
            Self::Survive(p) => f64::from(problem.pipeline(p).survive),
        }
    }

    /// The value at which it limits no plan.
    pub fn loosest(self, problem: &Problem) -> f64 {
        match self {
            Self::Count(_) | Self::Budget | Self::Memory(_) => f64::INFINITY,
            Self::Slo(p) => {
                let pipeline = problem.pipeline(p);
                let charges = (0..pipeline.tasks.len()).map(TaskIndex).flat_map(|t| {
                    let rows = pipeline.task(t).variants.iter().flat_map(|v| v.profile.rows());
                    rows.map(move |r| pipeline.hop_charge_ms(t, r.latency_ms))
                });
                let slowest = charges.fold(0.0, f64::max);
                (slowest * pipeline.tasks.len() as f64).clamp(pipeline.slo_ms, SLO_FREE_MS)
            }
            Self::Demand(_) | Self::Floor(_) | Self::Survive(_) | Self::MinReplicas(..) => 0.0,
        }
    }

    /// The possible values from the present one (excluded) to the loosest one, the smallest change first. Infinity means no
    /// limit. `None` if any number is possible.
    pub fn steps(self, problem: &Problem) -> Option<Vec<f64>> {
        let down = |least: u32, now: f64| (least..now as u32).rev().map(f64::from).collect();
        match self {
            Self::MinReplicas(..) => Some(down(0, self.now(problem))),
            Self::Survive(_) => Some(down(0, self.now(problem))),
            Self::Memory(h) => Some(memory_steps(problem, h, self.now(problem))),
            Self::Slo(p) => slo_steps(problem, p, self.now(problem)),
            Self::Count(_) | Self::Demand(_) | Self::Floor(_) | Self::Budget => None,
        }
    }

    /// The problem with this value; `None` if it would not be valid.
    pub fn set(self, problem: &Problem, value: f64) -> Option<Problem> {
        let limit = value.is_finite().then_some(value);
        let pipeline = |p: PipelineIndex, change: &dyn Fn(&mut PipelineDraft)| {
            let changed = problem.pipeline(p).changed(&problem.hardware, change).ok()?;
            problem.changed(|d| d.pipelines[p.0] = changed).ok()
        };
        match self {
            Self::Count(h) => problem.changed(|d| d.hardware[h.0].count = limit.map(|v| v as u32)).ok(),
            Self::Memory(h) => problem.changed(|d| d.hardware[h.0].memory_mib = limit).ok(),
            Self::Budget => problem.changed(|d| d.objective.budget_per_hour = limit).ok(),
            Self::Demand(p) => pipeline(p, &|d| d.demand_qps = value),
            Self::Slo(p) => pipeline(p, &|d| d.slo_ms = value),
            Self::Floor(p) => pipeline(p, &|d| d.min_accuracy = Some(value)),
            Self::Survive(p) => pipeline(p, &|d| d.survive = value as u32),
            Self::MinReplicas(p, t) => pipeline(p, &|d| d.tasks[t.0].min_replicas = value as u32),
        }
    }
}

/// SLOs at which a path of other charges becomes fast enough. `None` if there are too many.
fn slo_steps(problem: &Problem, p: PipelineIndex, now: f64) -> Option<Vec<f64>> {
    let pipeline = problem.pipeline(p);
    let mut levels = levels(pipeline, &all_groups(problem, p, &Tightening::none(problem)));
    // a task without replicas takes no time, and its parents still delay the tasks after it
    let optional = levels.iter_mut().zip(optional_tasks(pipeline)).filter(|(_, optional)| *optional);
    optional.for_each(|(of_task, _)| of_task.insert(0, 0.0));
    let mut times = possible_finish_times(pipeline, problem.objective.latency_rule, &levels, SLO_STEPS_MAX)?;
    times.retain(|&time| time > now);
    Some(times)
}

/// Memory sizes of one device at which another variant fits into one of its measured shares.
fn memory_steps(problem: &Problem, h: HardwareIndex, now: f64) -> Vec<f64> {
    let variants = problem.pipelines.iter().flat_map(|p| &p.tasks).flat_map(|t| &t.variants);
    let mut sizes: Vec<f64> = Vec::new();
    for variant in variants {
        let shares = variant.profile.places().filter(|(hardware, _)| *hardware == h).map(|(_, share)| share);
        sizes.extend(shares.filter_map(|share| Some(variant.memory_mib? / Share::value(share))));
    }
    sizes.retain(|&size| size > now);
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn a_way_past_an_optional_task_is_an_slo() {
        let task = |name, latency_ms| fixtures::task(name, vec![fixtures::variant(name, 1.0, 1.0, &[(0, 1, latency_ms)])]);
        let tasks = vec![task("r", 1.0), task("x", 4.0), task("b", 16.0), task("c", 64.0)];
        let mut draft = fixtures::draft(1.0, tasks, &[(0, 1), (1, 2), (0, 3), (2, 3)]);
        // c waits for b over an edge that makes no queries, and x may make none for b
        draft.edges[3].primary = false;
        let mut blind = fixtures::variant("blind", 0.5, 1.0, &[(0, 1, 4.0)]);
        blind.fanout_to.insert(TaskIndex(2), 0.0);
        draft.tasks[1].variants.push(blind);
        let problem = fixtures::problem(draft);
        let steps = slo_steps(&problem, PipelineIndex(0), 100.0).expect("few steps");
        // twice the latencies: r and c; r, x and c; all four
        assert_eq!(steps, [130.0, 138.0, 170.0]);
    }
}
