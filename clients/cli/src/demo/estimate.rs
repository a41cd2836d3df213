//! What the estimator and the profiles say of a run.

use super::load::{Outcome, Sent};
use super::report::{PlanInForce, SETTLE};
use super::service::Service;
use anyhow::{Context, Result, bail, ensure};
use apportion_domain::{HardwareIndex, Moment, Pipeline, PipelineIndex, Plan, Problem, Share, Span, Trace, nearest_rank};
use apportion_estimator::{ArrivalProcess, Arrivals, Event, Scenario, SimulateOptions, Workload, replay};
use apportion_wire::{ProblemFile, problem_from_tree, read_plan};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// Runs of the estimator for each load.
pub const RUNS: u64 = 40;
/// Runs left out at each end: 95 % of 40 are between.
const TRIMMED: usize = 1;
/// Agents give a request up after so many times the SLO, and two seconds at least; the estimator's wait on. Both count as having
/// taken that long.
const GIVE_UP_SLOS: f64 = 10.0;
const GIVE_UP_MS_MIN: f64 = 2_000.0;
/// Nothing comes for so long at first: stewards of the estimator begin without a past, those of the agents have been idle.
const LEAD: Duration = Duration::from_secs(10);

/// What a request that was given up counts as having taken.
pub fn longest_ms(slo_ms: f64) -> f64 {
    (GIVE_UP_SLOS * slo_ms).max(GIVE_UP_MS_MIN)
}

/// Arrivals of a load that doubles for its middle third, Poisson within each second.
pub fn arrivals(base_qps: f64, seconds: u64, seed: u64) -> Result<Vec<Duration>> {
    let rate = |second: u64| if second * 3 >= seconds && second * 3 < 2 * seconds { 2.0 * base_qps } else { base_qps };
    drawn((0..seconds).map(|s| (s, rate(s))).collect(), seed)
}

/// Arrivals of these rates by second, Poisson within each.
pub fn drawn(rates: Vec<(u64, f64)>, seed: u64) -> Result<Vec<Duration>> {
    let trace = Trace::rates(rates)?;
    let drawn = Arrivals::new(&trace, ArrivalProcess::Poisson, seed, "demo");
    Ok(drawn.map(|at| Duration::from_nanos(at.as_nanos())).collect())
}

/// A plan of the service's, and the problem that it solves.
pub async fn planned(service: &Service, plan: &str) -> Result<(Problem, Plan)> {
    let document = service.get(&format!("/v1/plans/{plan}")).await?;
    Ok((problem_of(&document)?, read_plan("plan", &document["plan"].to_string())?))
}

/// The problem of a plan of the service's.
pub fn problem_of(document: &Value) -> Result<Problem> {
    match problem_from_tree("problem", document["problem"].clone())? {
        ProblemFile::Allocation(problem) => Ok(problem),
        ProblemFile::Scaling(_) => bail!("plan {} has a scaling problem", document["id"]),
    }
}

/// Root queries per second that `devices` devices can serve with the most accurate variants at their best batch, if no
/// time were lost: devices divided by the device seconds that a query takes.
pub fn capacity_of_most_accurate_qps(problem: &Problem, pipeline: &str, hardware: &str, devices: u32) -> Result<f64> {
    let index = problem.pipeline_named(pipeline).context("the pipeline is in its own problem")?;
    let hardware = problem.hardware_named(hardware).unwrap_or(HardwareIndex(0));
    let pipeline = problem.pipeline(index);
    let mut multiplier = vec![0.0; pipeline.tasks.len()];
    multiplier[pipeline.root().get()] = 1.0;
    let mut device_seconds = 0.0;
    for &task in pipeline.order() {
        let best = pipeline.most_accurate(task).next().context("a task without variants")?;
        let rows = pipeline.variant(task, best).profile.on(hardware, Share::WHOLE);
        let fits = rows.iter().filter(|r| pipeline.hop_charge_ms(r.latency_ms) <= 0.5 * pipeline.slo_ms);
        let qps = fits.map(apportion_domain::ProfileRow::throughput_qps).fold(0.0, f64::max);
        device_seconds += multiplier[task.get()] / qps.max(1e-9);
        for edge in pipeline.children(task) {
            multiplier[edge.to.get()] += multiplier[task.get()] * pipeline.fanout(edge, best);
        }
    }
    Ok(f64::from(devices) / device_seconds)
}

/// Tasks on the longest way through a pipeline, and what that way charges the most accurate variants for batches of one, in ms.
pub fn longest_way(pipeline: &Pipeline) -> (u32, f64) {
    let mut before = vec![(0, 0.0); pipeline.tasks.len()];
    let mut most: (u32, f64) = (0, 0.0);
    for &task in pipeline.order() {
        let rows = pipeline.most_accurate(task).next().map(|best| pipeline.variant(task, best).profile.rows());
        let alone_ms = rows.into_iter().flatten().map(|row| row.latency_ms).fold(f64::INFINITY, f64::min);
        let (tasks, ms) = before[task.get()];
        let here = (tasks + 1, ms + pipeline.hop_charge_ms(alone_ms));
        most = (most.0.max(here.0), most.1.max(here.1));
        for edge in pipeline.children(task) {
            let child: &mut (u32, f64) = &mut before[edge.to.get()];
            *child = (child.0.max(here.0), child.1.max(here.1));
        }
    }
    most
}

/// What is said of a run, measured or estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Share of requests within the objective.
    pub attainment: f64,
    /// The same without the time after each step of the load.
    pub attainment_steady: f64,
    /// Median latency of answered requests.
    pub p50_ms: f64,
    /// 99th percentile of the same.
    pub p99_ms: f64,
}

/// One request: when it was due, whether it was answered in time, and what it took if it was answered or given up, in ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    at: Duration,
    in_time: bool,
    took_ms: Option<f64>,
}

impl Seen {
    /// As its client saw it.
    pub fn of(sent: &Sent, longest_ms: f64) -> Self {
        let took_ms = match sent.outcome {
            Outcome::Ok | Outcome::Late => Some((sent.latency.as_secs_f64() * 1e3).min(longest_ms)),
            Outcome::GivenUp => Some(longest_ms),
            Outcome::Dropped | Outcome::Failed => None,
        };
        Self { at: sent.at, in_time: sent.outcome == Outcome::Ok, took_ms }
    }
}

/// Whether a moment is not in the time after a step.
fn is_steady(at: Duration, steps: &[Duration]) -> bool {
    !steps.iter().any(|&step| at >= step && at < step + SETTLE)
}

impl Figures {
    /// Of these requests.
    pub fn of(seen: &[Seen], steps: &[Duration]) -> Self {
        let share = |of: &mut dyn Iterator<Item = &Seen>| {
            let (ok, all) = of.fold((0, 0), |(ok, all), s| (ok + u32::from(s.in_time), all + 1));
            if all == 0 { 1.0 } else { f64::from(ok) / f64::from(all) }
        };
        let mut took: Vec<f64> = seen.iter().filter_map(|s| s.took_ms).collect();
        took.sort_by(f64::total_cmp);
        Self {
            attainment: share(&mut seen.iter()),
            attainment_steady: share(&mut seen.iter().filter(|s| is_steady(s.at, steps))),
            p50_ms: nearest_rank(&took, 0.50).unwrap_or(0.0),
            p99_ms: nearest_rank(&took, 0.99).unwrap_or(0.0),
        }
    }
}

/// A figure as measured, and the interval in which the estimator's runs lie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// What was measured.
    pub measured: f64,
    /// The median of the runs.
    pub estimated: f64,
    /// The smallest of all runs but the outermost.
    pub from: f64,
    /// The largest of them.
    pub to: f64,
    /// Whether what was measured is between.
    pub is_inside: bool,
}

impl Compared {
    /// Beside the estimator's runs, of which there is at least one.
    pub fn new(measured: f64, mut runs: Vec<f64>) -> Self {
        runs.sort_by(f64::total_cmp);
        let (from, to) = (runs[TRIMMED.min(runs.len() - 1)], runs[runs.len().saturating_sub(1 + TRIMMED)]);
        Self { measured, estimated: runs[runs.len() / 2], from, to, is_inside: (from..=to).contains(&measured) }
    }
}

/// A run as the estimator is to replay it.
pub struct Played<'a> {
    /// What is served, and on what.
    pub problem: &'a Problem,
    /// Which of its pipelines gets the load.
    pub index: PipelineIndex,
    /// The plans in force, each from when on; the first from before the load.
    pub plans: &'a [(Duration, Plan)],
    /// The load.
    pub arrivals: &'a [Duration],
    /// When its rate changes.
    pub steps: &'a [Duration],
    /// What a hop takes, in ms: runs take these in turns, at least one.
    pub hops_ms: &'a [f64],
}

impl Played<'_> {
    /// Replays the load's own arrivals through the plans, each from the moment on at which it came into force: what is queued then, what
    /// loads and what is unloaded included. Stewards add replicas on spare devices in between, as those of the agents do. Runs differ in
    /// what queries make, and in what a hop takes.
    ///
    /// # Errors
    /// If a plan does not fit the problem.
    pub fn estimates(&self) -> Result<Vec<Figures>> {
        let (first, later) = self.plans.split_first().context("no plan was in force")?;
        let moment = |at: Duration| Moment::from_nanos((at + LEAD).as_nanos() as u64);
        let mut traces = vec![Trace::Rates(vec![(0, 0.0)]); self.problem.pipelines.len()];
        traces[self.index.get()] = Trace::arrivals(self.arrivals.iter().map(|at| moment(*at)).collect())?;
        let longest_ms = longest_ms(self.problem.pipeline(self.index).slo_ms);
        let options = SimulateOptions { requests: true, ..SimulateOptions::default() };
        let lead = Moment::from_nanos(LEAD.as_nanos() as u64);
        let with_hop = |hop_ms: &f64| {
            let hardware = &self.problem.hardware;
            self.problem.changed(|draft| {
                let at = self.index.get();
                if let Ok(pipeline) = draft.pipelines[at].changed(hardware, |of| of.network_ms = *hop_ms) {
                    draft.pipelines[at] = pipeline;
                }
            })
        };
        let problems = self.hops_ms.iter().map(with_hop).collect::<Result<Vec<_>, _>>()?;
        ensure!(!problems.is_empty(), "a hop takes a time");
        let run = |seed: u64| -> Result<Figures> {
            let problem = &problems[seed as usize % problems.len()];
            let workload = Workload { traces: traces.clone(), arrivals: ArrivalProcess::Poisson, seed };
            let event = |(at, plan): &(Duration, Plan)| (moment(*at), Event::Plan { plan: plan.clone() });
            let events = later.iter().map(event).collect();
            let scenario = Scenario { events, steward: true, ladders: true, tuners: true, ..Scenario::default() };
            let run = replay(problem, &first.1, &workload, &options, scenario)?;
            let seen = run.simulation.requests.iter().map(|r| {
                let took = r.finish.map(|finish| finish.since(r.arrival)).map(Span::as_millis);
                let at = Duration::from_nanos(r.arrival.since(lead).as_nanos());
                let in_time = r.outcome == apportion_estimator::Outcome::Ok;
                Seen { at, in_time, took_ms: took.map(|ms| ms.min(longest_ms)) }
            });
            Ok(Figures::of(&seen.collect::<Vec<_>>(), self.steps))
        };
        (1..=RUNS).map(run).collect()
    }
}

/// What the estimator says of the very load that was played, under the plans that were in force.
pub async fn estimates(
    service: &Service,
    plans: &[PlanInForce],
    (arrivals, steps): (&[Duration], &[Duration]),
    hops_ms: &[f64],
    pipeline: &str,
) -> Result<Vec<Figures>> {
    let mut in_force = Vec::new();
    let mut problem = None;
    for plan in plans {
        let (of, file) = planned(service, &plan.id).await?;
        problem.get_or_insert(of);
        in_force.push((Duration::from_secs_f64(plan.at_s), file));
    }
    let problem = problem.context("no plan was in force")?;
    let index = problem.pipeline_named(pipeline).context("the plan is of another pipeline")?;
    Played { problem: &problem, index, plans: &in_force, arrivals, steps, hops_ms }.estimates()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::rehearse::tests::{digits, plan_for};

    #[test]
    fn the_estimate_has_the_change_of_plans_and_what_stewards_do_until_then() {
        let problem = digits([35.7, 11.7, 3.6], [4.1, 0.48, 0.11]);
        let steps = [20, 40].map(Duration::from_secs);
        let arrivals = arrivals(75.0, 60, 1).expect("a load");
        let estimated = |plans: &[(Duration, Plan)]| {
            let index = problem.pipeline_named("digits").expect("it is there");
            let played =
                Played { problem: &problem, index, plans, arrivals: &arrivals, steps: &steps, hops_ms: &[0.0, 2.0] };
            let runs = played.estimates().expect("the plans fit");
            assert_eq!(runs, played.estimates().expect("the plans fit"), "the same again");
            Compared::new(0.0, runs.iter().map(|run| run.attainment).collect()).estimated
        };
        let (low, high) = (plan_for(&problem, 90.0), plan_for(&problem, 180.0));
        let at = Duration::from_secs;
        let changed = estimated(&[(at(0), low.clone()), (at(23), high.clone()), (at(43), low.clone())]);
        let late = estimated(&[(at(0), low.clone()), (at(33), high.clone()), (at(43), low.clone())]);
        let never = estimated(&[(at(0), low.clone())]);
        assert!(changed > 0.8 && changed > late + 0.05 && late > never, "{changed}, {late}, {never}");
        let all = estimated(&[(at(0), high)]);
        assert!(all > 0.99, "{all} with cheaper variants all the time");
    }

    #[test]
    fn the_interval_leaves_out_the_outermost_run_on_either_side() {
        let runs: Vec<f64> = (0..40).rev().map(f64::from).collect();
        let inside = Compared::new(1.0, runs.clone());
        assert_eq!((inside.from, inside.to, inside.estimated, inside.is_inside), (1.0, 38.0, 20.0, true));
        assert!(!Compared::new(0.5, runs.clone()).is_inside && !Compared::new(38.5, runs).is_inside);
    }

    #[test]
    fn the_time_after_a_step_is_not_steady() {
        let seen = |at_s: f64, in_time, took_ms| Seen { at: Duration::from_secs_f64(at_s), in_time, took_ms };
        let of = [
            seen(0.0, true, Some(10.0)),
            seen(21.0, false, Some(4_000.0)),
            seen(29.9, false, None),
            seen(30.0, false, None),
            seen(31.0, true, Some(20.0)),
        ];
        let figures = Figures::of(&of, &[Duration::from_secs(20)]);
        assert_eq!(figures, Figures { attainment: 0.4, attainment_steady: 2.0 / 3.0, p50_ms: 20.0, p99_ms: 4_000.0 });
    }
}
