//! Before the load is played: what a request costs here and now, and what of the machine is free for it.

use super::answers::{Canvas, Example};
use super::estimate::{Figures, Played, capacity_of_most_accurate_qps, drawn, longest_way, planned};
use super::fit::{self, Fitted, Free, MULTIPLE, Serves, Slowness};
use super::fleet::{Fleet, FleetArgs};
use super::load::{Load, Progress};
use super::meter::{Meter, probe};
use super::report::measured;
use super::{HARDWARE, say};
use anyhow::{Context, Result, ensure};
use apportion_domain::{Mode, ObjectiveStep, Plan, Problem, Trace};
use apportion_estimator::{ArrivalProcess, Workload};
use apportion_planning::{PlanOptions, plan};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Length of the rehearsal.
const SECONDS: u64 = 5;
/// Its load, in parts of what the devices serve with the most accurate variants: the base load of the run is about that.
const LOAD: f64 = 0.4;
/// How long a program asks for all processors, to see what it is given.
const PROBE: Duration = Duration::from_millis(300);
/// Pauses between two of these, so that a short job of somebody else's does not decide.
const PROBE_PAUSE: Duration = Duration::from_millis(200);
const PROBES: usize = 5;
/// Most that the longest way through the most accurate variants may charge, in parts of the objective: the rest is for queueing.
const CHARGE_MAX: f64 = 0.5;
/// Most that all hops may take together, in parts of the objective.
const HOPS_MAX: f64 = 0.25;
/// Seconds of Poisson arrivals on which plans must hold, and limit of a plan's time: as in a round of the service.
const TRACE_S: u64 = 20;
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// What the rehearsal has settled.
pub struct Rehearsed {
    /// How slow the devices are.
    pub slowness: Slowness,
    /// What a hop takes.
    pub hop_ms: f64,
    /// The load to be played.
    pub load: Fitted,
}

/// What is rehearsed.
pub struct Rehearsal<'a> {
    /// The service and its agents; the pipeline is profiled, at a multiple of 1.
    pub fleet: &'a Fleet,
    /// As they were asked for.
    pub args: &'a FleetArgs,
    /// The pipeline.
    pub spec: &'a Example,
    /// What is sent.
    pub canvases: &'a Arc<Vec<Canvas>>,
    /// Agents with their ingresses.
    pub ingresses: &'a [(String, String)],
    /// Seed of the arrivals.
    pub seed: u64,
}

/// What a request costs.
struct Cost {
    hop_ms: f64,
    request_s: Option<f64>,
}

impl Rehearsal<'_> {
    /// Measures what is free and what a request costs, sets the devices' multiple, and finds the load.
    ///
    /// # Errors
    /// If the most accurate variants cannot meet the objective on this machine however few the requests are.
    pub async fn run(&self) -> Result<Rehearsed> {
        let name = &self.spec.name;
        let devices = self.args.agents * self.args.devices;
        let (problem, _) = self.problem().await?;
        let index = problem.pipeline_named(name).context("the pipeline is in its own problem")?;
        let (tasks, charge_ms) = longest_way(problem.pipeline(index));
        let multiple_max = CHARGE_MAX * self.spec.slo_ms / charge_ms;
        ensure!(
            multiple_max >= 1.0 || self.args.multiple.is_some(),
            "the most accurate variants of {name} charge {charge_ms:.0} ms here, alone and without queueing: its objective of {:.0} ms \
             is more than this machine can keep",
            self.spec.slo_ms
        );
        let alone_qps = capacity_of_most_accurate_qps(&problem, name, HARDWARE, devices)?;
        let first = self.args.multiple.unwrap_or_else(|| MULTIPLE.min(multiple_max));
        self.fleet.slow_down(name, 1.0, first).await?;
        let cost = self.play(LOAD * alone_qps / first, tasks).await?;
        let slowness = self.slowness(alone_qps, cost.request_s, multiple_max).await;
        self.fleet.slow_down(name, first, slowness.multiple).await?;
        self.fleet.change(name, |spec| spec["network_ms"] = cost.hop_ms.into()).await?;
        let (problem, _) = self.problem().await?;
        let capacity_qps = capacity_of_most_accurate_qps(&problem, name, HARDWARE, devices)?;
        say("looking for the load that needs cheaper variants when it doubles");
        let fitted = tokio::task::spawn_blocking(move || fit::fit_load(capacity_qps, |qps| serves(&problem, qps))).await?;
        let load = fitted.with_context(|| {
            format!(
                "no plan with the most accurate variants holds {:.0} ms here, even for a few requests: a hop takes {:.1} ms",
                self.spec.slo_ms, cost.hop_ms
            )
        })?;
        Ok(Rehearsed { slowness, hop_ms: cost.hop_ms, load })
    }

    /// The pipeline as it is registered, on the devices of the live agents, with a plan for next to nothing.
    async fn problem(&self) -> Result<(Problem, Plan)> {
        let plan = self.fleet.service.plan(&self.spec.name, 1e-3).await?;
        planned(&self.fleet.service, plan["id"].as_str().context("a plan without an id")?).await
    }

    /// Plays a short load, and compares what a request takes with what the estimator says of the same load without a network.
    async fn play(&self, qps: f64, tasks: u32) -> Result<Cost> {
        say(&format!("rehearsing: {qps:.1} queries/s for {SECONDS} s"));
        let id = self.fleet.deploy(&self.spec.name, fit::HEADROOM * qps, self.ingresses).await?;
        let load = Load {
            ingresses: self.ingresses.iter().map(|(_, address)| address.clone()).collect(),
            pipeline: self.spec.name.clone(),
            canvases: self.canvases.clone(),
            arrivals: drawn((0..SECONDS).map(|s| (s, qps)).collect(), self.seed)?,
            slo: Duration::from_secs_f64(self.spec.slo_ms / 1e3),
        };
        let meter = Meter::start();
        let sent = load.run(Arc::new(Progress::default())).await?;
        let seen = meter.mean();
        let (problem, plan) = planned(&self.fleet.service, &id).await?;
        let index = problem.pipeline_named(&self.spec.name).context("the plan is of another pipeline")?;
        let plans = [(Duration::ZERO, plan)];
        let played = Played { problem: &problem, index, plans: &plans, arrivals: &load.arrivals, steps: &[] };
        let estimated = played.estimates()?.first().map_or(0.0, |run| run.p50_ms);
        let Figures { p50_ms, .. } = measured(&sent, &[], self.spec.slo_ms);
        let hop_ms = ((p50_ms - estimated) / f64::from(tasks)).clamp(0.0, HOPS_MAX * self.spec.slo_ms / f64::from(tasks));
        let request_s = seen.map(|seen| seen.own * seen.seconds / sent.len().max(1) as f64);
        say(&format!("a request takes {p50_ms:.1} ms at the median and {estimated:.1} ms of its devices: {hop_ms:.1} ms a hop"));
        Ok(Cost { hop_ms, request_s })
    }

    /// How slow the devices must be for what is free; said where it is not what was asked for, or does not fit.
    async fn slowness(&self, alone_qps: f64, request_s: Option<f64>, multiple_max: f64) -> Slowness {
        let free = tokio::task::spawn_blocking(free).await.ok().flatten();
        let (Some(free), Some(request_s)) = (free, request_s) else {
            let multiple = self.args.multiple.unwrap_or_else(|| MULTIPLE.min(multiple_max));
            say(&format!("what of this machine is free cannot be seen here: devices hold their slots for {multiple:.1} times the measured time"));
            return Slowness { multiple, needed: 0.0, allowed: 0.0, fits: true };
        };
        let processors = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        let seen = Free { processors, free, request_s };
        // Twice the base load is about what the devices could serve at most.
        let slowness = fit::fit_multiple(alone_qps, &seen, multiple_max, self.args.multiple);
        say(&format!(
            "of {processors:.0} processors a program that asks for all of them gets {free:.2}, a request takes {:.1} ms of one: with devices \
             that hold their slots for {:.1} times the measured time the load takes {:.2}, and {:.2} are set aside for it",
            1e3 * request_s, slowness.multiple, slowness.needed, slowness.allowed
        ));
        if !slowness.fits {
            say("THIS MACHINE IS TOO BUSY for a fair run, as slow as the objective lets the devices be. The load is played all the same; \
                 if promises are not kept, the demo says so and ends with 5");
        }
        slowness
    }
}

/// What of the processors is free: the median of several looks.
fn free() -> Option<f64> {
    let mut looks: Vec<f64> = (0..PROBES)
        .filter_map(|_| {
            std::thread::sleep(PROBE_PAUSE);
            probe(PROBE)
        })
        .collect();
    looks.sort_by(f64::total_cmp);
    looks.get(looks.len() / 2).copied()
}

/// How the planner of a round of the service serves a demand of the only pipeline.
fn serves(problem: &Problem, demand_qps: f64) -> Serves {
    let Ok(problem) = problem.changed(|draft| {
        draft.objective.mode = Mode::HardwareThenAccuracy;
        draft.pipelines[0] = draft.pipelines[0].with_demand(demand_qps);
    }) else {
        return Serves::Never;
    };
    let Ok(trace) = Trace::rates((0..TRACE_S).map(|second| (second, demand_qps)).collect()) else { return Serves::Never };
    let begun = Instant::now();
    let options = PlanOptions {
        time_limit: Some(TIME_LIMIT),
        trace: Some(Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: 1 }),
        explain: false,
        ..PlanOptions::new(Arc::new(move || begun.elapsed()))
    };
    let (outcome, report) = plan(&problem, &options);
    let has_plan = outcome.plan().is_some();
    let holds = report.estimate.as_ref().is_some_and(|e| e.attainment >= problem.pipelines[0].percentile / 100.0);
    match report.objective.step {
        Some(ObjectiveStep::Hardware) if has_plan && holds => Serves::Accurately,
        Some(ObjectiveStep::Accuracy) if has_plan && holds => Serves::Cheaply,
        _ => Serves::Never,
    }
}
