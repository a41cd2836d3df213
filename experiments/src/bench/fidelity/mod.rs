//! How do agents perform under loads from light to twice the planned demand, beside the estimator's interval?
//!
//! Nothing is fitted to the loads. Before the first load the agents measure the time of a hop. Single requests measure the
//! time of HTTP and JSON. They also measure the time in agents that is neither of a queue, of a batch nor of a hop. The
//! estimator uses all three. A second table says of what each difference is made.
//!
//! Processors do not sleep from the profile to the last load. Else single requests wait until processors wake up, and a
//! load does not.

mod clients;
mod counts;
mod estimated;
mod parts;
mod table;
mod waits;

use crate::live::capacity::capacity_of_most_accurate_qps;
use crate::live::console::print_progress;
use crate::live::figures::Figures;
use crate::live::fleet::{FleetBackend, FleetSettings, HARDWARE, LocalFleet, MULTIPLE, ProfileClock};
use crate::live::idle_start::LEAD;
use crate::live::plans::{FetchedPlan, fetch_plan, problem_in};
use crate::live::service::JoinedAgent;
use crate::live::validation::ValidationSet;
use anyhow::{Context, Result};
use apportion_domain::ArrivalTrace;
use apportion_process::AwakeProcessors;
use apportion_support::exit::Failure;
use apportion_support::output::{OutputFormat, number};
use clients::{Player, RequestFailures, SingleRequests, outside_ms, single_requests_within, sum_of};
use counts::CountedSum;
use estimated::{EstimatedPlan, EstimatedRun, figures_of, with_hop};
use parts::{EstimatedMeans, LatencyParts, MeasuredBefore, MeasuredMeans};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use table::{FidelityReport, FidelityRow, JudgedFigures};
use waits::{ProcessorWaits, WaitReading};

/// The loads, in parts of the planned demand.
pub const LOADS: [f64; 10] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.25, 1.5, 2.0];
/// The plan's demand, in parts of the load that all devices serve with the most accurate variants. It leaves no device
/// spare.
const DEMAND: f64 = 0.9;
/// Runs of each load.
pub const LOAD_RUNS: u64 = 5;
/// Most runs of each load.
pub const LOAD_RUNS_MAX: u64 = 1_000;
/// Seconds without load before each run.
pub const IDLE_S: u64 = LEAD.as_secs();

/// The settings of the benchmark.
#[derive(Clone, Debug)]
pub struct FidelitySettings {
    /// The service, the agents and the pipeline.
    pub fleet: FleetSettings,
    /// How the agents run batches.
    pub backend: FleetBackend,
    /// Seconds of each run.
    pub seconds: u64,
    /// Time without load before each run, of agents and of the estimator.
    pub idle: Duration,
    /// Runs of each load, at least 1. Each has arrivals of its own.
    pub runs: u64,
    /// Seed of the arrivals.
    pub seed: u64,
    /// How the figures are printed.
    pub format: OutputFormat,
}

/// Runs the command.
///
/// # Errors
/// As the demo's.
pub fn run(settings: &FidelitySettings) -> Result<(), Failure> {
    let report = tokio::runtime::Runtime::new().context("starting the runtime")?.block_on(measure(settings))?;
    settings.format.print(&report, || table::text(&report))
}

async fn measure(settings: &FidelitySettings) -> Result<FidelityReport> {
    let file = settings.fleet.pipeline_file()?;
    let spec = ValidationSet::read(&file)?;
    let awake = hold_processors_awake();
    let mut fleet = LocalFleet::start_on(&settings.fleet, settings.backend).await?;
    let agents = fleet.wait_for_agents().await?;
    fleet.profile_by(ProfileClock::Wall, &file, settings.fleet.multiple.unwrap_or(MULTIPLE)).await?;
    let bench = Bench { settings, spec: &spec, agents: &agents, fleet: &fleet };
    let report = bench.measure_loads().await;
    drop(awake);
    report.map_err(|error| error.context(format!("logs are in {}", fleet.keep_logs().display())))
}

/// Keeps processors awake, or says that they may sleep.
fn hold_processors_awake() -> Option<AwakeProcessors> {
    let path = AwakeProcessors::KERNEL_FILE;
    match AwakeProcessors::hold(path.as_ref()) {
        Ok(awake) => Some(awake),
        Err(error) => {
            print_progress(&format!("{path}: {error}. Processors sleep between requests, so single ones take longer"));
            None
        }
    }
}

/// The fleet with its clients.
struct Bench<'a> {
    settings: &'a FidelitySettings,
    spec: &'a ValidationSet,
    agents: &'a [JoinedAgent],
    fleet: &'a LocalFleet,
}

impl Bench<'_> {
    async fn measure_loads(&self) -> Result<FidelityReport> {
        let (settings, spec, agents, fleet) = (self.settings, self.spec, self.agents, self.fleet);
        let demand_qps = DEMAND * self.capacity_qps().await?;
        // Agents connect to each other when they have a target.
        fleet.deploy(&spec.name, demand_qps, agents).await?;
        print_progress("the agents measure the time of a hop");
        let hop_ms = fleet.service.measured_hop_ms(&spec.name, agents.len()).await?;
        // This plan knows it, too.
        let id = fleet.deploy(&spec.name, demand_qps, agents).await?;
        let FetchedPlan { problem, plan } = fetch_plan(&fleet.service, &id).await?;
        let index = problem.pipeline_named(&spec.name).context("the plan is of another pipeline")?;
        let (problem, ingresses) = (with_hop(&problem, index, hop_ms)?, settings.fleet.agents);
        let estimated = EstimatedPlan { problem, plan, index, ingresses, idle: settings.idle };
        let player = Player { spec, agents, requests: Arc::new(spec.requests()?) };
        print_progress("single requests measure the time of HTTP and JSON, and that of agents");
        let requests = single_requests_within(Duration::from_secs(settings.seconds.saturating_mul(settings.runs)));
        let before = measure_before(&player, &estimated, requests, hop_ms).await?;
        let hop = hop_ms.map_or_else(|| "one agent has no hop".to_owned(), |ms| format!("a hop takes {} ms", number(ms)));
        let [ingress, agent] = [before.ingress_ms, before.agent_ms].map(number);
        print_progress(&format!("{hop}, an ingress {ingress} ms, and the rest of agents {agent} ms"));
        let mut loads = Vec::new();
        for (at, part) in (0..).zip(LOADS) {
            let load = PlannedLoad { part, qps: part * demand_qps, first_seed: settings.seed + at * settings.runs };
            loads.push(self.measure_load(&player, &estimated, before, load).await?);
        }
        Ok(FidelityReport::new(settings.backend.name(), before, loads))
    }

    /// The load that all devices serve with the most accurate variants.
    async fn capacity_qps(&self) -> Result<f64> {
        let name = &self.spec.name;
        let problem = problem_in(&self.fleet.service.request_plan(name, 1.0).await?)?;
        let devices = self.settings.fleet.agents * self.settings.fleet.devices;
        capacity_of_most_accurate_qps(&problem, name, HARDWARE, devices)
    }

    /// Plays a load, and compares it with the estimator.
    async fn measure_load(
        &self,
        player: &Player<'_>,
        estimated: &EstimatedPlan,
        before: MeasuredBefore,
        load: PlannedLoad,
    ) -> Result<FidelityRow> {
        let rates: Vec<(u64, f64)> = (0..self.settings.seconds).map(|second| (second, load.qps)).collect();
        let PlayedLoadRuns { figures, requests, failures, measured } = self.play(player, &rates, load).await?;
        let trace = ArrivalTrace::rates(rates)?;
        let runs = estimated.estimate_runs(&trace)?;
        let told = estimated.told(&measured.sums)?.estimate_runs(&trace)?;
        let judge = |runs: &[EstimatedRun], later_ms: f64| {
            JudgedFigures::new(&figures, &figures_of(runs, later_ms, self.spec.slo_ms))
        };
        let of_estimator = EstimatedMeans {
            mean_ms: before.added_ms() + mean_ms(&runs),
            outside_ms: before.ingress_ms,
            waits_ms: mean_waits_ms(&runs),
            hop_ms: before.hop_ms,
        };
        let pipeline = estimated.problem.pipeline(estimated.index);
        Ok(FidelityRow {
            load: load.part,
            qps: load.qps,
            requests,
            failures,
            judged: judge(&runs, before.added_ms()),
            without_single_requests: judge(&runs, 0.0),
            told: judge(&told, measured.outside_ms + before.agent_ms),
            parts: LatencyParts::new(pipeline, &measured, &of_estimator),
        })
    }

    /// Plays all runs of a load, and reads meanwhile what agents count and how long threads wait.
    async fn play(&self, player: &Player<'_>, rates: &[(u64, f64)], load: PlannedLoad) -> Result<PlayedLoadRuns> {
        let (settings, fleet) = (self.settings, self.fleet);
        let (before, waited) = (player.agent_sums().await?, WaitReading::now(fleet));
        let (mut figures, mut requests, mut failures) = (Vec::new(), 0, RequestFailures::default());
        let (mut latencies, mut answered) = (CountedSum::default(), CountedSum::default());
        for run in 0..settings.runs {
            print_progress(&format!(
                "load {} of the plan's demand, run {} of {}: {:.1} queries/s for {} s",
                load.part,
                run + 1,
                settings.runs,
                load.qps,
                settings.seconds
            ));
            // By default the steward forgets the load of the run before meanwhile, as in the estimator.
            tokio::time::sleep(settings.idle).await;
            let played = player.play(rates.to_vec(), load.first_seed + run).await?;
            figures.push(played.figures);
            requests += played.requests;
            failures.add(played.failures);
            latencies.add(played.latencies, 1.0);
            answered.add(played.answered, 1.0);
        }
        let waits = WaitReading::now(fleet).since(&waited, requests);
        let mut sums = player.agent_sums().await?;
        sums.add(&before, -1.0);
        let hop_ms = fleet.service.measured_hop_ms(&self.spec.name, self.agents.len()).await?;
        let measured =
            MeasuredMeans { mean_ms: latencies.mean(), outside_ms: outside_ms(answered, &sums), sums, hop_ms, waits };
        Ok(PlayedLoadRuns { figures, requests, failures, measured })
    }
}

/// Lets single requests measure what the estimator does not know. The time in agents is what is left of their latency
/// without HTTP and JSON, the estimate, and the differences of queues, batches and hops.
async fn measure_before(
    player: &Player<'_>,
    estimated: &EstimatedPlan,
    requests: u32,
    hop_ms: Option<f64>,
) -> Result<MeasuredBefore> {
    let SingleRequests { mean_ms: measured_ms, outside_ms, sums } = player.play_single_requests(requests).await?;
    let runs = estimated.estimate_runs(&clients::single_requests(requests)?)?;
    let (waits, waits_ms) = (ProcessorWaits::default(), mean_waits_ms(&runs));
    let measured = MeasuredMeans { mean_ms: measured_ms, outside_ms, sums, hop_ms, waits };
    let of_estimator = EstimatedMeans { mean_ms: outside_ms + mean_ms(&runs), outside_ms, waits_ms, hop_ms };
    let parts = LatencyParts::new(estimated.problem.pipeline(estimated.index), &measured, &of_estimator);
    Ok(MeasuredBefore { hop_ms, ingress_ms: outside_ms, agent_ms: parts.rest_ms.max(0.0) })
}

/// A load before it is played.
#[derive(Clone, Copy, Debug)]
struct PlannedLoad {
    /// Part of the planned demand.
    part: f64,
    qps: f64,
    /// Seed of the first run's arrivals.
    first_seed: u64,
}

/// All runs of a load.
struct PlayedLoadRuns {
    figures: Vec<Figures>,
    requests: usize,
    failures: RequestFailures,
    measured: MeasuredMeans,
}

/// The mean latency over all runs in ms.
fn mean_ms(runs: &[EstimatedRun]) -> f64 {
    sum_of(runs.iter().map(EstimatedRun::mean_ms)).mean()
}

/// By task, the mean wait over all runs in ms.
fn mean_waits_ms(runs: &[EstimatedRun]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, CountedSum> = BTreeMap::new();
    for (task, ms) in runs.iter().flat_map(|run| &run.waits_ms) {
        sums.entry(task.clone()).or_default().add(CountedSum { count: 1.0, sum: *ms }, 1.0);
    }
    sums.into_iter().map(|(task, sum)| (task, sum.mean())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_go_from_light_to_twice_the_demand() {
        assert!(LOADS.is_sorted() && LOADS.len() == 10);
        assert_eq!((LOADS[0], LOADS[9]), (0.1, 2.0));
    }
}
