//! What does a request cost on this machine now, and how much of the machine is free?

use super::fit::{self, DemandFit, DeviceSlowness, FittedLoad, FreeProcessors};
use super::meter::{Meter, given_processors};
use super::report::measured_figures;
use crate::live::capacity::{PathSize, capacity_of_most_accurate_qps, longest_path};
use crate::live::console::print_progress;
use crate::live::estimate::{PlanStart, PlayedLoad, poisson_arrivals};
use crate::live::figures::Figures;
use crate::live::fleet::{FleetSettings, HARDWARE, LocalFleet, MULTIPLE};
use crate::live::load::{LiveLoad, LoadProgress, SentRequest};
use crate::live::plans::{FetchedPlan, fetch_plan, problem_in};
use crate::live::service::JoinedAgent;
use crate::live::validation::{LabelledRequest, ValidationSet};
use anyhow::{Context, Result};
use apportion_domain::{ArrivalTrace, Mode, ObjectiveStep, PlanOutcome, PlanningReport, Problem};
use apportion_estimator::{ArrivalProcess, Workload};
use apportion_planning::{PlanningOptions, plan};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Length of the rehearsal.
const SECONDS: u64 = 5;

/// Its load, in parts of the load that the devices serve with the most accurate variants. The base load of the run is about
/// as large.
const LOAD: f64 = 0.4;

/// The time for which a program asks for all processors.
const PROBE: Duration = Duration::from_millis(300);

/// The pause between two measurements, so that a short job of another program does not decide.
const PROBE_PAUSE: Duration = Duration::from_millis(200);

const PROBES: usize = 5;

/// The largest charge of the longest path through the most accurate variants, in parts of the objective. The rest is for
/// queueing.
const CHARGE_MAX: f64 = 0.5;

/// The largest time of all hops together, in parts of the objective.
const HOPS_MAX: f64 = 0.25;

/// Seconds of Poisson arrivals on which plans must hold, as in a round of the service.
const TRACE_S: u64 = 20;

const TIME_LIMIT: Duration = Duration::from_secs(5);

/// The results of a rehearsal.
pub struct RehearsalResult {
    /// How slow the devices are.
    pub slowness: DeviceSlowness,
    /// Times of a hop in ms, one for each second, ascending.
    pub hops_ms: Vec<f64>,
    /// The load to be played.
    pub load: FittedLoad,
}

/// The reason why no load can be played on this machine.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoLoad {
    /// The most accurate variants alone take longer than the objective.
    #[error(
        "the most accurate variants of {pipeline} charge {charge_ms:.0} ms here, alone and without queueing: this \
         machine cannot keep its objective of {slo_ms:.0} ms"
    )]
    SlowMachine {
        /// The pipeline.
        pipeline: String,
        /// The charge of the longest path, in ms.
        charge_ms: f64,
        /// The objective, in ms.
        slo_ms: f64,
    },
    /// No plan holds, because hops take too long.
    #[error(
        "no plan with the most accurate variants holds {slo_ms:.0} ms, even for few requests: a hop takes {hop_ms:.1} ms"
    )]
    SlowHops {
        /// The objective, in ms.
        slo_ms: f64,
        /// The median time of a hop, in ms.
        hop_ms: f64,
    },
}

/// The inputs of a rehearsal.
pub struct Rehearsal<'a> {
    /// The service and its agents; the pipeline is profiled, at a multiple of 1.
    pub fleet: &'a LocalFleet,
    /// The settings of the fleet.
    pub settings: &'a FleetSettings,
    /// The pipeline.
    pub spec: &'a ValidationSet,
    /// The requests.
    pub requests: &'a Arc<Vec<LabelledRequest>>,
    /// The agents.
    pub agents: &'a [JoinedAgent],
    /// Seed of the arrivals.
    pub seed: u64,
}

/// The cost of a request.
struct Cost {
    /// Times of a hop in ms, one for each second, ascending.
    hops_ms: Vec<f64>,
    /// Processor seconds; `None` where the system has no figures.
    request_s: Option<f64>,
    /// Whether hops took more than the objective leaves for them.
    is_slow: bool,
}

/// The multiple of the measured time for which devices hold their slots.
struct ChosenMultiple {
    multiple: f64,
    /// The free processors that it fits; `None` where the system has no figures.
    free: Option<FreeProcessors>,
}

impl Rehearsal<'_> {
    /// Measures the free processors and the cost of a request, sets the devices' multiple, and finds the load. There is no
    /// load if the most accurate variants cannot meet the objective on this machine.
    ///
    /// # Errors
    /// If the service or an agent breaks down.
    pub async fn run(&self) -> Result<Result<RehearsalResult, NoLoad>> {
        let name = &self.spec.name;
        let devices = self.settings.agents * self.settings.devices;
        let problem = self.problem().await?;
        let index = problem.pipeline_named(name).context("the pipeline is in its own problem")?;
        let PathSize { tasks, charge_ms } = longest_path(problem.pipeline(index));
        let multiple_max = CHARGE_MAX * self.spec.slo_ms / charge_ms;
        if multiple_max < 1.0 && self.settings.multiple.is_none() {
            return Ok(Err(NoLoad::SlowMachine { pipeline: name.clone(), charge_ms, slo_ms: self.spec.slo_ms }));
        }
        let alone_qps = capacity_of_most_accurate_qps(&problem, name, HARDWARE, devices)?;
        let first = self.settings.multiple.unwrap_or_else(|| MULTIPLE.min(multiple_max));
        self.fleet.scale_profile(name, 1.0, first).await?;
        let cost = self.measure_request_cost(LOAD * alone_qps / first, tasks).await?;
        let ChosenMultiple { multiple, free } = self.choose_multiple(alone_qps, &cost, multiple_max).await;
        self.fleet.scale_profile(name, first, multiple).await?;
        let hop_ms = median_of_sorted(&cost.hops_ms);
        self.fleet.change_pipeline(name, |spec| spec["network_ms"] = hop_ms.into()).await?;
        let problem = self.problem().await?;
        let capacity_qps = capacity_of_most_accurate_qps(&problem, name, HARDWARE, devices)?;
        print_progress("looking for the load that needs cheaper variants when it doubles");
        let fitted =
            tokio::task::spawn_blocking(move || fit::fit_load(capacity_qps, |qps| how_demand_is_served(&problem, qps)))
                .await?;
        let Some(load) = fitted else {
            return Ok(Err(NoLoad::SlowHops { slo_ms: self.spec.slo_ms, hop_ms }));
        };
        let unseen = DeviceSlowness { multiple, needed: 0.0, allowed: 0.0, fits: true };
        let mut slowness = free.map_or(unseen, |free| fit::slowness_at_load(load.peak_qps(), &free, multiple));
        slowness.fits &= !cost.is_slow;
        Ok(Ok(RehearsalResult { slowness, hops_ms: cost.hops_ms, load }))
    }

    /// The pipeline as it is registered, on the devices of the live agents.
    async fn problem(&self) -> Result<Problem> {
        problem_in(&self.fleet.service.request_plan(&self.spec.name, 1.0).await?)
    }

    /// Plays a short load, and compares its latency with the estimator's for the same load without a network.
    async fn measure_request_cost(&self, qps: f64, tasks: u32) -> Result<Cost> {
        print_progress(&format!("rehearsing: {qps:.1} queries/s for {SECONDS} s"));
        let id = self.fleet.deploy(&self.spec.name, fit::HEADROOM * qps, self.agents).await?;
        let load = LiveLoad {
            ingresses: self.agents.iter().map(|agent| agent.ingress_http.clone()).collect(),
            pipeline: self.spec.name.clone(),
            requests: self.requests.clone(),
            arrivals: poisson_arrivals((0..SECONDS).map(|s| (s, qps)).collect(), self.seed)?,
            slo: Duration::from_secs_f64(self.spec.slo_ms / 1e3),
        };
        let meter = Meter::start();
        let sent = load.run(Arc::new(LoadProgress::default())).await?;
        let seen = meter.mean();
        let FetchedPlan { problem, plan } = fetch_plan(&self.fleet.service, &id).await?;
        let index = problem.pipeline_named(&self.spec.name).context("the plan is of another pipeline")?;
        let plans = [PlanStart { at: Duration::ZERO, plan }];
        let (arrivals, ingresses) = (&load.arrivals, load.ingresses.len() as u32);
        let (plans, steps, hops_ms) = (&plans, &[], &[0.0]);
        let played = PlayedLoad { problem: &problem, index, plans, arrivals, steps, hops_ms, ingresses };
        let estimated = played.estimate_runs()?.first().map_or(0.0, |run| run.p50_ms);
        let Figures { p50_ms, .. } = measured_figures(&sent, &[], self.spec.slo_ms);
        let is_slow = p50_ms - estimated > HOPS_MAX * self.spec.slo_ms;
        let hops_ms = hop_times_ms(&sent, estimated, tasks, self.spec.slo_ms);
        let request_s = seen.map(|seen| seen.own * seen.seconds / sent.len().max(1) as f64);
        print_progress(&format!(
            "a request takes {p50_ms:.1} ms at the median and {estimated:.1} ms of its devices: {:.1} ms a hop",
            median_of_sorted(&hops_ms)
        ));
        Ok(Cost { hops_ms, request_s, is_slow })
    }

    /// Chooses the multiple that fits the free processors.
    async fn choose_multiple(&self, alone_qps: f64, cost: &Cost, multiple_max: f64) -> ChosenMultiple {
        let free = tokio::task::spawn_blocking(measure_free_processors).await.ok().flatten();
        let (Some(free), Some(request_s)) = (free, cost.request_s) else {
            let multiple = self.settings.multiple.unwrap_or_else(|| MULTIPLE.min(multiple_max));
            print_progress(&format!(
                "the free part of this machine cannot be measured here: devices hold their slots for {multiple:.1} \
                 times the measured time"
            ));
            return ChosenMultiple { multiple, free: None };
        };
        let processors = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        let seen = FreeProcessors { processors, free, request_s };
        // The high load is below the load that the devices serve without lost time.
        let multiple = fit::fit_multiple(alone_qps, &seen, multiple_max, self.settings.multiple).multiple;
        print_progress(&format!(
            "of {processors:.0} processors a program that asks for all of them gets {free:.2}. A request takes {:.1} ms \
             of one. Devices hold their slots for {multiple:.1} times the measured time",
            1e3 * request_s
        ));
        ChosenMultiple { multiple, free: Some(seen) }
    }
}

/// Times of a hop in ms, one for each second, ascending. Of the median latency of a second, the time beyond the devices'
/// time is divided among the tasks of the longest path. It is at most the part of the objective that is left for hops.
fn hop_times_ms(sent: &[SentRequest], devices_ms: f64, tasks: u32, slo_ms: f64) -> Vec<f64> {
    let hop_ms = |of_second: &[SentRequest]| {
        let beyond_ms = measured_figures(of_second, &[], slo_ms).p50_ms - devices_ms;
        beyond_ms.clamp(0.0, HOPS_MAX * slo_ms) / f64::from(tasks.max(1))
    };
    let mut hops: Vec<f64> = sent.chunk_by(|a, b| a.at.as_secs() == b.at.as_secs()).map(hop_ms).collect();
    hops.sort_by(f64::total_cmp);
    if hops.is_empty() { vec![0.0] } else { hops }
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// The free processors: the median of several measurements.
fn measure_free_processors() -> Option<f64> {
    let mut looks: Vec<f64> = (0..PROBES)
        .filter_map(|_| {
            std::thread::sleep(PROBE_PAUSE);
            given_processors(PROBE)
        })
        .collect();
    looks.sort_by(f64::total_cmp);
    looks.get(looks.len() / 2).copied()
}

/// How the planner serves a demand of the only pipeline, as in a round of the service.
fn how_demand_is_served(problem: &Problem, demand_qps: f64) -> DemandFit {
    let Some((outcome, report)) = plan_demand(problem, demand_qps) else { return DemandFit::Never };
    let asked = problem.pipelines[0].percentile / 100.0;
    let holds = outcome.plan().is_some() && report.estimate.as_ref().is_some_and(|e| e.attainment >= asked);
    match report.objective.step {
        Some(ObjectiveStep::Hardware) if holds => DemandFit::Accurately,
        Some(ObjectiveStep::Accuracy) if holds => DemandFit::Cheaply,
        _ => DemandFit::Never,
    }
}

pub(super) fn plan_demand(problem: &Problem, demand_qps: f64) -> Option<(PlanOutcome, PlanningReport)> {
    let changed = problem.changed(|draft| {
        draft.objective.mode = Mode::HardwareThenAccuracy;
        draft.pipelines[0] = draft.pipelines[0].with_demand(demand_qps);
    });
    let trace = ArrivalTrace::rates((0..TRACE_S).map(|second| (second, demand_qps)).collect()).ok()?;
    let begun = Instant::now();
    let options = PlanningOptions {
        time_limit: Some(TIME_LIMIT),
        trace: Some(Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: 1 }),
        ..PlanningOptions::new(Arc::new(move || begun.elapsed()))
    };
    Some(plan(&changed.ok()?, &options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::fixtures::{DEVICES, digits, machines};
    use crate::live::load::ClientOutcome;

    fn capacity_qps(problem: &Problem) -> f64 {
        capacity_of_most_accurate_qps(problem, "digits", HARDWARE, DEVICES).expect("a profile")
    }

    #[test]
    fn on_every_machine_only_the_doubled_load_needs_cheaper_variants() {
        for problem in machines() {
            let fitted = fit::fit_load(capacity_qps(&problem), |qps| how_demand_is_served(&problem, qps)).expect("a load");
            assert!(fitted.needs_cheaper, "{fitted:?} of {}", capacity_qps(&problem));
            assert!(fitted.peak_qps() > 0.9 * fitted.accurate_qps, "{fitted:?}");
            assert_eq!(how_demand_is_served(&problem, fit::HEADROOM * fitted.base_qps), DemandFit::Accurately);
            assert_eq!(how_demand_is_served(&problem, fit::HEADROOM * fitted.peak_qps()), DemandFit::Cheaply);
        }
    }

    #[test]
    fn a_fixed_share_of_capacity_shows_no_cheap_variants() {
        // Twice 0.4 of the capacity, with the headroom.
        let shows_replicas_only = |problem: &Problem| {
            let demand_qps = 0.8 * fit::HEADROOM * capacity_qps(problem);
            how_demand_is_served(problem, demand_qps) == DemandFit::Accurately
        };
        assert!(machines().iter().any(shows_replicas_only));
    }

    #[test]
    fn a_hop_is_the_latency_beyond_the_devices() {
        let sent = |at_ms: u64, took_ms: u64| SentRequest {
            at: Duration::from_millis(at_ms),
            latency: Duration::from_millis(took_ms),
            outcome: ClientOutcome::Ok,
            labels: 0,
            correct: 0,
            error: None,
        };
        let of = [sent(0, 60), sent(100, 70), sent(900, 300), sent(1_100, 54), sent(2_000, 40), sent(3_500, 4_000)];
        assert_eq!(hop_times_ms(&of, 50.0, 2, 400.0), [0.0, 2.0, 10.0, 50.0], "at most a quarter of the objective in all");
        assert_eq!(hop_times_ms(&[], 50.0, 2, 400.0), [0.0]);
    }

    #[test]
    fn the_longest_path_charges_the_most_accurate_variants() {
        let problem = digits([30.0, 10.0, 3.0], [4.0, 0.5, 0.1]);
        assert_eq!(longest_path(&problem.pipelines[0]), PathSize { tasks: 2, charge_ms: 2.0 * 34.0 });
    }
}
