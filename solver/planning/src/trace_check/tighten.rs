//! How is the formulation tightened after a plan has missed its percentile?

use crate::exact::model::tightening::Tightening;
use apportion_domain::{ArrivalTrace, Moment, Pipeline, PipelinePlan, Plan, Problem, TaskIndex, TaskWaiting};
use apportion_estimator::{Simulation, Workload};

/// Least that one round adds to a task's headroom, relative. It is too small to overshoot by a whole variant.
const HEADROOM_STEP_MIN: f64 = 0.06;
/// Most that one round adds, relative. It is large enough to reach twice the load within the rounds.
const HEADROOM_STEP_MAX: f64 = 0.5;
/// Queries that wait at replicas below this utilisation wait because of bursts, not because of missing capacity.
const BUSY: f64 = 0.75;
/// Length of the window over which a trace's peak is taken: InferLine's tuner looks at 5 s (section 5).
const PEAK_WINDOW_SECONDS: u64 = 5;

/// A plan that missed a percentile, with its replay.
pub(super) struct MissedPlan<'a> {
    pub plan: &'a Plan,
    pub simulation: &'a Simulation,
    /// By how much each pipeline misses its percentile: 0 where it holds.
    pub misses: Vec<f64>,
}

/// The next tightening after a miss, from the waiting that was measured.
pub(super) fn tighten(problem: &Problem, workload: &Workload, low: &Tightening, missed: &MissedPlan<'_>) -> Tightening {
    let first = *low == Tightening::none(problem);
    let mut next = low.clone();
    for (i, pipeline) in problem.pipelines.iter().enumerate().filter(|(i, _)| missed.misses[*i] > 0.0) {
        let waiting = &missed.simulation.pipelines[i].waiting;
        let part = &missed.plan.pipelines[i];
        let tasks = (0..pipeline.tasks.len()).map(TaskIndex);
        let ratios: Vec<f64> = tasks.map(|t| overrun(pipeline, part, waiting, t)).collect();
        let worst = ratios.iter().copied().fold(0.0, f64::max);
        let peak = if first { peak_over(&workload.traces[i], pipeline.demand_qps) } else { 1.0 };
        let own = &mut next.parts[i];
        for (t, task) in pipeline.tasks.iter().enumerate() {
            own.headroom[t] *= peak;
            // the worst task is always tightened, because the percentile was missed even if all budgets hold
            if ratios[t] <= 1.0 && ratios[t] < worst {
                continue;
            }
            let step = (0.1 * (ratios[t] - 1.0)).clamp(HEADROOM_STEP_MIN, HEADROOM_STEP_MAX);
            own.headroom[t] *= 1.0 + step;
            if let Some(w) = waiting.iter().find(|w| w.task == task.name && w.utilisation < BUSY) {
                let beyond = (w.p99_ms - allowed_ms(pipeline, part, TaskIndex(t))).max(0.0);
                own.charge_ms[t] = own.charge_ms[t].max(beyond.min(0.5 * pipeline.slo_ms));
            }
        }
    }
    next
}

/// Allowed waiting of a query at a task: `(queue_factor - 1) * latency` of its slowest group, in milliseconds.
fn allowed_ms(pipeline: &Pipeline, part: &PipelinePlan, task: TaskIndex) -> f64 {
    let name = &pipeline.task(task).name;
    let budgets = part.assignments.iter().filter(|a| a.group.task == *name).map(|a| a.latency_budget_ms);
    let latency = (budgets.fold(0.0, f64::max) - pipeline.hop_ms(task)) / pipeline.queue_factor;
    (pipeline.queue_factor - 1.0) * latency
}

/// Measured waiting of a task (99th percentile) over its allowed waiting.
fn overrun(pipeline: &Pipeline, part: &PipelinePlan, waiting: &[TaskWaiting], task: TaskIndex) -> f64 {
    let name = &pipeline.task(task).name;
    let measured = waiting.iter().find(|w| w.task == *name).map_or(0.0, |w| w.p99_ms);
    let floor = 0.01 * pipeline.slo_ms;
    measured / allowed_ms(pipeline, part, task).max(floor)
}

/// By how much the busiest window of a trace exceeds the demand, at least 1.
fn peak_over(trace: &ArrivalTrace, demand_qps: f64) -> f64 {
    if demand_qps <= 0.0 {
        return 1.0;
    }
    let window = PEAK_WINDOW_SECONDS as usize;
    let peak = match trace {
        ArrivalTrace::Rates(rows) => {
            let rates: Vec<f64> = rows.iter().map(|&(_, qps)| qps).collect();
            let sums = rates.windows(window.min(rates.len())).map(|w| w.iter().sum::<f64>() / w.len() as f64);
            sums.fold(0.0, f64::max)
        }
        ArrivalTrace::Arrivals(moments) => {
            let nanos = PEAK_WINDOW_SECONDS * 1_000_000_000;
            let mut first = 0;
            let mut most = 0;
            for (i, &moment) in moments.iter().enumerate() {
                let since = |earlier: Moment| moment.since(earlier).as_nanos();
                while since(moments[first]) > nanos {
                    first += 1;
                }
                most = most.max(i + 1 - first);
            }
            let length = moments.last().map_or(0, |m| m.since(moments[0]).as_nanos()).clamp(1, nanos);
            if length < nanos { demand_qps } else { most as f64 / PEAK_WINDOW_SECONDS as f64 }
        }
    };
    // a window of few arrivals exceeds the mean by chance, so only a clear excess counts
    let ratio = peak / demand_qps;
    if ratio > 1.25 { ratio } else { 1.0 }
}
