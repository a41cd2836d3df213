//! The check loop: solve, replay on the trace, give what was measured back to the formulation, solve again.
//!
//! A formulation that fills replicas to the brim misses its tail under random arrivals. So where the percentile is missed,
//! each task at which queries waited longer than the queue factor allows gets headroom (its load counts for more) and, where
//! its replicas were not even busy (a parent's batch arrives at once), a charge on its time. A tightening that no plan can
//! meet, or under which the plan holds, is an upper end: the next one lies half-way to the last that missed.

use crate::limits::Limits;
use crate::report::{self, Attempt, Candidate};
use crate::tightening::Tightening;
use crate::{PlanOptions, replay};
use apportion_domain::{
    Mode, Moment, ObjectiveStep, Pipeline, PipelinePlan, PlanOutcome, PlanningReport, Problem, Round, StopReason,
    TaskWaiting, Trace,
};
use apportion_estimator::{Simulation, Workload};

/// Most rounds (`formats.md`, "Commands").
pub(crate) const ROUNDS_MAX: u32 = 8;
/// Most rounds spent on a better plan once one holds.
const REFINEMENTS_MAX: u32 = 3;
/// Least and most that one round adds to a task's headroom, relative: small enough not to overshoot by a whole variant, large
/// enough to reach twice the load within the rounds.
const HEADROOM_STEP: (f64, f64) = (0.06, 0.5);
/// Replicas below this utilisation did not wait for lack of capacity but because queries came in bursts.
const BUSY: f64 = 0.75;
/// Length of the window over which a trace's peak is taken: InferLine's tuner looks at 5 s (section 5).
const PEAK_WINDOW_SECONDS: u64 = 5;

/// A plan with how it fared.
struct Replayed {
    candidate: Candidate,
    simulation: Simulation,
    tightening: Tightening,
}

/// Where the search for a tightening stands.
#[derive(Default)]
struct Progress {
    held: Option<Replayed>,
    missed: Option<Replayed>,
    /// The last tightening that missed, and the least that holds or that nothing meets.
    low: Option<Tightening>,
    high: Option<Tightening>,
    refinements: u32,
    rounds: Vec<Round>,
    stopped: Option<StopReason>,
}

/// Plans so that the percentile of every pipeline is met on `workload`.
pub(crate) fn hold(problem: &Problem, options: &PlanOptions, workload: &Workload) -> (PlanOutcome, PlanningReport) {
    let limits = options.limits();
    let search = limits.for_search();
    let mut progress = Progress::default();
    let mut tightening = Tightening::none(problem);
    for round in 1..=ROUNDS_MAX {
        match report::attempt(problem, &tightening, options.gap, &search) {
            Attempt::Infeasible if round == 1 => return report::infeasible(problem, options),
            Attempt::Unknown(stopped) if round == 1 => return report::unknown(options, stopped),
            Attempt::Infeasible => progress.high = Some(tightening.clone()),
            Attempt::Unknown(stopped) => {
                progress.stopped = Some(stopped);
                break;
            }
            Attempt::Plan(candidate) => {
                let simulation = match replay::replay(problem, &candidate.plan, workload, &limits.finishing()) {
                    Ok(simulation) => simulation,
                    // what an earlier round has seen says more than a plan that nobody has seen
                    Err(no) if progress.held.is_some() || progress.missed.is_some() => {
                        progress.stopped = Some(no.reason());
                        break;
                    }
                    Err(no) => return report::with_plan(problem, options, *candidate, Err(no), progress.rounds),
                };
                progress.rounds.push(record(problem, round, &tightening, &candidate, &simulation));
                let replayed = Replayed { candidate: *candidate, simulation, tightening: tightening.clone() };
                progress.add(problem, replayed);
            }
        }
        match progress.next(problem, workload, &search) {
            Some(next) => tightening = next,
            None => break,
        }
    }
    progress.answer(problem, options)
}

impl Progress {
    fn add(&mut self, problem: &Problem, replayed: Replayed) {
        let miss = worst_miss(problem, &replayed.simulation);
        if miss <= 0.0 {
            self.high = Some(replayed.tightening.clone());
            self.refinements += 1;
            if self.held.as_ref().is_none_or(|h| is_better(problem, &replayed.candidate, &h.candidate)) {
                self.held = Some(replayed);
            }
        } else {
            self.low = Some(replayed.tightening.clone());
            if self.missed.as_ref().is_none_or(|m| miss < worst_miss(problem, &m.simulation)) {
                self.missed = Some(replayed);
            }
        }
    }

    /// What to try next; `None` when nothing better is to be expected.
    fn next(&self, problem: &Problem, workload: &Workload, limits: &Limits) -> Option<Tightening> {
        if limits.stopped() {
            return None;
        }
        match (&self.low, &self.high) {
            // the very first plan holds
            (None, _) => None,
            (Some(low), Some(high)) => {
                let enough = self.refinements > REFINEMENTS_MAX || (self.held.is_some() && low.is_near(high));
                (!enough).then(|| low.halfway(high))
            }
            (Some(low), None) => {
                let missed = self.missed.as_ref().filter(|m| m.tightening == *low).or(self.missed.as_ref())?;
                Some(tighten(problem, workload, low, missed))
            }
        }
    }

    fn answer(self, problem: &Problem, options: &PlanOptions) -> (PlanOutcome, PlanningReport) {
        match (self.held, self.missed) {
            (Some(held), _) => report::with_plan(problem, options, held.candidate, Ok(held.simulation.total), self.rounds),
            (None, Some(missed)) => {
                let reason = self.stopped.unwrap_or(StopReason::TraceNotMet);
                // a run that was told to stop has not tried all that it would have
                let stopped = if options.limits().is_cancelled() { StopReason::Cancelled } else { StopReason::TraceNotMet };
                let candidate = Candidate { stopped: Some(stopped), ..missed.candidate };
                tracing::info!(%reason, "no plan holds on the trace");
                report::with_plan(problem, options, candidate, Ok(missed.simulation.total), self.rounds)
            }
            (None, None) => report::unknown(options, self.stopped.unwrap_or(StopReason::TimeLimit)),
        }
    }
}

fn worst_miss(problem: &Problem, simulation: &Simulation) -> f64 {
    replay::misses(problem, &simulation.pipelines).into_iter().fold(0.0, f64::max)
}

/// Which of two plans that hold is kept: the cheaper or the more accurate, then the one with fewer replicas.
fn is_better(problem: &Problem, a: &Candidate, b: &Candidate) -> bool {
    let value = |c: &Candidate| c.objective.value.unwrap_or(f64::NEG_INFINITY);
    let score = |c: &Candidate| -> (f64, f64) {
        match (problem.objective.mode, c.objective.step) {
            (Mode::HardwareThenAccuracy, Some(ObjectiveStep::Hardware)) => (1.0, -value(c)),
            (Mode::HardwareThenAccuracy, _) => (0.0, value(c)),
            (Mode::MaxAccuracy, _) => (0.0, value(c)),
            (Mode::MinCost, _) => (0.0, -value(c)),
        }
    };
    let (left, right) = (score(a), score(b));
    let order = left.0.total_cmp(&right.0).then(left.1.total_cmp(&right.1));
    order.then(b.plan.replicas().cmp(&a.plan.replicas())).is_gt()
}

/// The next tightening after a miss, from the waiting that was measured.
fn tighten(problem: &Problem, workload: &Workload, low: &Tightening, missed: &Replayed) -> Tightening {
    let first = *low == Tightening::none(problem);
    let misses = replay::misses(problem, &missed.simulation.pipelines);
    let mut next = low.clone();
    for (i, pipeline) in problem.pipelines.iter().enumerate().filter(|(i, _)| misses[*i] > 0.0) {
        let waiting = &missed.simulation.pipelines[i].waiting;
        let part = &missed.candidate.plan.pipelines[i];
        let ratios: Vec<f64> = pipeline.tasks.iter().map(|t| overrun(pipeline, part, waiting, &t.name)).collect();
        let worst = ratios.iter().copied().fold(0.0, f64::max);
        let peak = if first { peak_over(&workload.traces[i], pipeline.demand_qps) } else { 1.0 };
        let own = &mut next.parts[i];
        for (t, task) in pipeline.tasks.iter().enumerate() {
            own.headroom[t] *= peak;
            // the worst task is always tightened: the percentile was missed, whatever the budgets say
            if ratios[t] <= 1.0 && ratios[t] < worst {
                continue;
            }
            let step = (0.1 * (ratios[t] - 1.0)).clamp(HEADROOM_STEP.0, HEADROOM_STEP.1);
            own.headroom[t] *= 1.0 + step;
            if let Some(w) = waiting.iter().find(|w| w.task == task.name && w.utilisation < BUSY) {
                let beyond = (w.p99_ms - allowed_ms(pipeline, part, &task.name)).max(0.0);
                own.charge_ms[t] = own.charge_ms[t].max(beyond.min(0.5 * pipeline.slo_ms));
            }
        }
    }
    next
}

/// What a query may wait at a task by the queue factor: `(queue_factor - 1) * latency` of its slowest group.
fn allowed_ms(pipeline: &Pipeline, part: &PipelinePlan, task: &str) -> f64 {
    let budgets = part.assignments.iter().filter(|a| a.group.task == task).map(|a| a.latency_budget_ms);
    let latency = (budgets.fold(0.0, f64::max) - pipeline.network_ms) / pipeline.queue_factor;
    (pipeline.queue_factor - 1.0) * latency
}

/// Measured waiting (99th percentile) of a task over what it is allowed.
fn overrun(pipeline: &Pipeline, part: &PipelinePlan, waiting: &[TaskWaiting], task: &str) -> f64 {
    let measured = waiting.iter().find(|w| w.task == task).map_or(0.0, |w| w.p99_ms);
    let floor = 0.01 * pipeline.slo_ms;
    measured / allowed_ms(pipeline, part, task).max(floor)
}

/// By how much the busiest window of a trace exceeds the demand, at least 1.
fn peak_over(trace: &Trace, demand_qps: f64) -> f64 {
    if demand_qps <= 0.0 {
        return 1.0;
    }
    let window = PEAK_WINDOW_SECONDS as usize;
    let peak = match trace {
        Trace::Rates(rows) => {
            let rates: Vec<f64> = rows.iter().map(|&(_, qps)| qps).collect();
            let sums = rates.windows(window.min(rates.len())).map(|w| w.iter().sum::<f64>() / w.len() as f64);
            sums.fold(0.0, f64::max)
        }
        Trace::Arrivals(moments) => {
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
    // a window of few arrivals is above the mean by chance; only a clear excess counts
    let ratio = peak / demand_qps;
    if ratio > 1.25 { ratio } else { 1.0 }
}

fn record(problem: &Problem, round: u32, tightening: &Tightening, candidate: &Candidate, simulation: &Simulation) -> Round {
    let mut headroom = Vec::new();
    let mut charge_ms = Vec::new();
    for (pipeline, part) in problem.pipelines.iter().zip(&tightening.parts) {
        for (t, task) in pipeline.tasks.iter().enumerate() {
            let name = format!("{}/{}", pipeline.name, task.name);
            headroom.push((name.clone(), part.headroom[t]));
            charge_ms.push((name, part.charge_ms[t]));
        }
    }
    Round {
        round,
        headroom,
        charge_ms,
        objective: candidate.objective,
        replicas: candidate.plan.replicas(),
        attainment: simulation.total.attainment,
        p99_ms: simulation.total.p99_ms,
    }
}
