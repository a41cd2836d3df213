//! How do real variants perform under loads from light to twice the planned demand, beside the estimator's interval?
//!
//! Nothing is fitted to the loads. The agents measure the time of a hop before the first load, and the estimator uses it.

use crate::live::capacity::capacity_of_most_accurate_qps;
use crate::live::console::print_progress;
use crate::live::estimate::{RUNS, poisson_arrivals};
use crate::live::figures::{ComparedFigure, Figures, RequestResult, longest_ms};
use crate::live::fleet::{FleetSettings, HARDWARE, LocalFleet, MULTIPLE};
use crate::live::load::{ClientOutcome, LiveLoad, LoadProgress};
use crate::live::plans::{FetchedPlan, fetch_plan, problem_in};
use crate::live::service::JoinedAgent;
use crate::live::validation::{LabelledRequest, ValidationSet};
use anyhow::{Context, Result, ensure};
use apportion_domain::{ArrivalTrace, PipelineIndex, Plan, Problem, TimeSpan};
use apportion_estimator::{
    ArrivalProcess, RequestOutcome, RequestRecord, Scenario, ServiceTimes, SimulateOptions, Simulation, Workload, replay,
};
use apportion_support::exit::Failure;
use apportion_support::output::{OutputFormat, TextTable, number};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// The loads, in parts of the planned demand.
pub const LOADS: [f64; 10] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.25, 1.5, 2.0];
/// The plan's demand, in parts of the load that all devices serve with the most accurate variants. It leaves no device
/// spare.
const DEMAND: f64 = 0.9;
/// Runs of each load.
pub const LOAD_RUNS: u64 = 5;
/// Most runs of each load.
pub const LOAD_RUNS_MAX: u64 = 1_000;

/// The settings of the benchmark.
#[derive(Clone, Debug)]
pub struct FidelitySettings {
    /// The service, the agents and the pipeline.
    pub fleet: FleetSettings,
    /// Seconds of each run.
    pub seconds: u64,
    /// Runs of each load, at least 1. Each has arrivals of its own.
    pub runs: u64,
    /// Seed of the arrivals.
    pub seed: u64,
    /// How the figures are printed.
    pub format: OutputFormat,
}

/// One figure of all runs of a load.
#[derive(Clone, Debug, Serialize)]
struct FigureOfRuns {
    /// One for each run.
    runs: Vec<ComparedFigure>,
    /// Runs whose figure is in the estimator's interval.
    inside: usize,
    /// Whether these are more than half of the runs.
    is_inside: bool,
}

impl FigureOfRuns {
    /// Compares a figure of each run with those of the estimator's runs.
    fn new(measured: &[Figures], estimated: &[Figures], figure: fn(&Figures) -> f64) -> Self {
        let compare = |of: &Figures| ComparedFigure::new(figure(of), estimated.iter().map(figure).collect());
        let runs: Vec<ComparedFigure> = measured.iter().map(compare).collect();
        let inside = runs.iter().filter(|run| run.is_inside).count();
        Self { is_inside: 2 * inside > runs.len(), inside, runs }
    }

    /// The median over the runs, the estimator's interval, and the runs that are inside.
    fn cells(&self, scale: f64) -> [String; 3] {
        let mut measured: Vec<f64> = self.runs.iter().map(|run| run.measured).collect();
        measured.sort_by(f64::total_cmp);
        let median = measured.get(measured.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
        let interval = self
            .runs
            .first()
            .map_or_else(String::new, |run| format!("{} to {}", number(scale * run.from), number(scale * run.to)));
        let inside = format!("{} of {}{}", self.inside, self.runs.len(), if self.is_inside { "" } else { " OUTSIDE" });
        [number(scale * median), interval, inside]
    }
}

/// One load.
#[derive(Clone, Debug, Serialize)]
struct Row {
    /// Part of the plan's demand.
    load: f64,
    qps: f64,
    /// Requests of all runs.
    requests: usize,
    attainment: FigureOfRuns,
    p50_ms: FigureOfRuns,
    p95_ms: FigureOfRuns,
    p99_ms: FigureOfRuns,
    /// Whether all figures are inside.
    is_inside: bool,
}

impl Row {
    fn new(load: f64, qps: f64, runs: &[PlayedRun], estimated: &[Figures]) -> Self {
        let measured: Vec<Figures> = runs.iter().map(|run| run.figures).collect();
        let of = |figure: fn(&Figures) -> f64| FigureOfRuns::new(&measured, estimated, figure);
        let (attainment, p50_ms) = (of(|f| f.attainment), of(|f| f.p50_ms));
        let (p95_ms, p99_ms) = (of(|f| f.p95_ms), of(|f| f.p99_ms));
        let is_inside = [&attainment, &p50_ms, &p95_ms, &p99_ms].iter().all(|figure| figure.is_inside);
        let requests = runs.iter().map(|run| run.requests).sum();
        Self { load, qps, requests, attainment, p50_ms, p95_ms, p99_ms, is_inside }
    }
}

/// The result of the benchmark.
#[derive(Clone, Debug, Serialize)]
struct FidelityReport {
    /// The time of a hop that the estimator used, as the agents measured it; null for a single agent.
    hop_ms: Option<f64>,
    loads: Vec<Row>,
    /// Loads that are inside in all figures.
    inside: usize,
}

/// A run of a load, as its clients saw it.
struct PlayedRun {
    requests: usize,
    figures: Figures,
}

/// Runs the command.
///
/// # Errors
/// As the demo's.
pub fn run(settings: &FidelitySettings) -> Result<(), Failure> {
    let report = tokio::runtime::Runtime::new().context("starting the runtime")?.block_on(measure(settings))?;
    settings.format.print(&report, || text(&report))
}

async fn measure(settings: &FidelitySettings) -> Result<FidelityReport> {
    let file = settings.fleet.pipeline_file()?;
    let spec = ValidationSet::read(&file)?;
    let fleet = LocalFleet::start(&settings.fleet).await?;
    let agents = fleet.service.wait_for_agents(settings.fleet.agents as usize).await?;
    fleet.profile(&file, settings.fleet.multiple.unwrap_or(MULTIPLE)).await?;
    let problem = problem_in(&fleet.service.request_plan(&spec.name, 1.0).await?)?;
    let devices = settings.fleet.agents * settings.fleet.devices;
    let demand_qps = DEMAND * capacity_of_most_accurate_qps(&problem, &spec.name, HARDWARE, devices)?;
    // Agents connect to each other when they have a target.
    fleet.deploy(&spec.name, demand_qps, &agents).await?;
    print_progress("the agents measure the time of a hop");
    let hop_ms = fleet.service.measured_hop_ms(&spec.name, agents.len()).await?;
    print_progress(
        &hop_ms.map_or_else(|| "one agent has no hop".to_owned(), |ms| format!("a hop takes {} ms", number(ms))),
    );
    // This plan knows it, too.
    let id = fleet.deploy(&spec.name, demand_qps, &agents).await?;
    let FetchedPlan { problem, plan } = fetch_plan(&fleet.service, &id).await?;
    let index = problem.pipeline_named(&spec.name).context("the plan is of another pipeline")?;
    let estimated = EstimatedPlan { problem: with_hop(&problem, index, hop_ms)?, plan, index };
    let player = Player { settings, spec: &spec, agents: &agents, requests: Arc::new(spec.requests()?) };
    let mut loads = Vec::new();
    for (at, part) in (0..).zip(LOADS) {
        let qps = part * demand_qps;
        let mut runs = Vec::new();
        for run in 0..settings.runs {
            let of = settings.runs;
            print_progress(&format!(
                "load {part} of the plan's demand, run {} of {of}: {qps:.1} queries/s for {} s",
                run + 1,
                settings.seconds
            ));
            match player.play(qps, settings.seed + at * of + run).await {
                Ok(played) => runs.push(played),
                Err(error) => return Err(error.context(format!("logs are in {}", fleet.keep_logs().display()))),
            }
        }
        let estimates = estimated.estimate_runs(rates(qps, settings.seconds), longest_ms(spec.slo_ms))?;
        loads.push(Row::new(part, qps, &runs, &estimates));
    }
    let inside = loads.iter().filter(|row| row.is_inside).count();
    Ok(FidelityReport { hop_ms, loads, inside })
}

fn rates(qps: f64, seconds: u64) -> Vec<(u64, f64)> {
    (0..seconds).map(|s| (s, qps)).collect()
}

/// The clients.
struct Player<'a> {
    settings: &'a FidelitySettings,
    spec: &'a ValidationSet,
    agents: &'a [JoinedAgent],
    requests: Arc<Vec<LabelledRequest>>,
}

impl Player<'_> {
    async fn play(&self, qps: f64, seed: u64) -> Result<PlayedRun> {
        let load = LiveLoad {
            ingresses: self.agents.iter().map(|agent| agent.ingress_http.clone()).collect(),
            pipeline: self.spec.name.clone(),
            requests: self.requests.clone(),
            arrivals: poisson_arrivals(rates(qps, self.settings.seconds), seed)?,
            slo: Duration::from_secs_f64(self.spec.slo_ms / 1e3),
        };
        let sent = load.run(Arc::new(LoadProgress::default())).await?;
        let failed = sent.iter().filter(|s| s.outcome == ClientOutcome::Failed).count();
        ensure!(failed == 0, "{failed} of {} requests failed", sent.len());
        let longest_ms = longest_ms(self.spec.slo_ms);
        let seen: Vec<RequestResult> = sent.iter().map(|s| RequestResult::of(s, longest_ms)).collect();
        Ok(PlayedRun { requests: seen.len(), figures: Figures::of(&seen, &[]) })
    }
}

/// The problem with this time of a hop. A single agent has no hop.
fn with_hop(problem: &Problem, index: PipelineIndex, hop_ms: Option<f64>) -> Result<Problem> {
    let network_ms = hop_ms.unwrap_or(0.0);
    let pipeline = problem.pipeline(index).changed(&problem.hardware, |draft| draft.network_ms = network_ms)?;
    Ok(problem.changed(|draft| draft.pipelines[index.get()] = pipeline)?)
}

/// The plan in force, as the estimator replays it.
struct EstimatedPlan {
    problem: Problem,
    plan: Plan,
    index: PipelineIndex,
}

impl EstimatedPlan {
    /// The figures of each run of the estimator. Batch times are drawn to match the profile's 99th percentiles, and a
    /// steward runs, as on agents.
    fn estimate_runs(&self, rates: Vec<(u64, f64)>, longest_ms: f64) -> Result<Vec<Figures>> {
        let mut traces = vec![ArrivalTrace::Rates(vec![(0, 0.0)]); self.problem.pipelines.len()];
        traces[self.index.get()] = ArrivalTrace::rates(rates)?;
        let options = SimulateOptions { service: ServiceTimes::P99Matched, requests: true, ..SimulateOptions::default() };
        let run = |seed: u64| -> Result<Figures> {
            let workload = Workload { traces: traces.clone(), arrivals: ArrivalProcess::Poisson, seed };
            let scenario = Scenario { steward: true, ..Scenario::default() };
            let simulation = replay(&self.problem, &self.plan, &workload, &options, scenario)?.simulation;
            Ok(Figures::of(&self.results(&simulation, longest_ms), &[]))
        };
        (1..=RUNS).map(run).collect()
    }

    /// The pipeline's requests in a run of the estimator.
    fn results(&self, simulation: &Simulation, longest_ms: f64) -> Vec<RequestResult> {
        let of = simulation.requests.iter().filter(|request| request.pipeline == self.index);
        let result = |request: &RequestRecord| {
            let took_ms = request.finish.map(|finish| finish.since(request.arrival)).map(TimeSpan::as_millis);
            RequestResult {
                at: Duration::from_nanos(request.arrival.as_nanos()),
                in_time: request.outcome == RequestOutcome::Ok,
                took_ms: took_ms.map(|ms| ms.min(longest_ms)),
            }
        };
        of.map(result).collect()
    }
}

fn text(report: &FidelityReport) -> String {
    let interval = "95 % of 40 runs";
    let header = [
        "load",
        "queries/s",
        "requests",
        "in time %",
        interval,
        "inside",
        "p50 ms",
        interval,
        "inside",
        "p95 ms",
        interval,
        "inside",
        "p99 ms",
        interval,
        "inside",
    ];
    let mut table = TextTable::new(&header);
    for row in &report.loads {
        let mut cells = vec![row.load.to_string(), number(row.qps), row.requests.to_string()];
        cells.extend(row.attainment.cells(100.0));
        [&row.p50_ms, &row.p95_ms, &row.p99_ms].iter().for_each(|figure| cells.extend(figure.cells(1.0)));
        table.row(cells);
    }
    let hop = report.hop_ms.map_or_else(|| "no hop: one agent".to_owned(), |ms| format!("measured hop: {} ms", number(ms)));
    format!("{hop}\n\n{}\n{} of {} loads inside in all figures\n", table.text(""), report.inside, report.loads.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(p50_ms: f64) -> Figures {
        Figures { attainment: 1.0, attainment_steady: 1.0, p50_ms, p95_ms: 2.0 * p50_ms, p99_ms: 3.0 * p50_ms }
    }

    /// A load whose runs have these medians. The estimator's runs have medians from 10 to 14 ms.
    fn row(medians_ms: &[f64]) -> Row {
        let runs: Vec<_> = medians_ms.iter().map(|ms| PlayedRun { requests: 10, figures: figures(*ms) }).collect();
        let estimated: Vec<_> = (0..=40).map(|run| figures(10.0 + f64::from(run) / 10.0)).collect();
        Row::new(0.5, 20.0, &runs, &estimated)
    }

    #[test]
    fn a_figure_is_inside_if_most_runs_are() {
        let most = row(&[11.0, 12.0, 13.0, 90.0, 90.0]);
        assert_eq!((most.p50_ms.inside, most.p50_ms.is_inside, most.is_inside), (3, true, true));
        let few = row(&[11.0, 12.0, 90.0, 90.0, 90.0]);
        assert_eq!((few.p50_ms.inside, few.p50_ms.is_inside, few.is_inside), (2, false, false));
        let half = row(&[11.0, 90.0]);
        assert!(!half.p95_ms.is_inside, "half is not most");
    }

    #[test]
    fn the_last_line_counts_the_loads_that_are_inside() {
        let loads = vec![row(&[11.0]), row(&[90.0]), row(&[12.0])];
        let inside = loads.iter().filter(|row| row.is_inside).count();
        let text = text(&FidelityReport { hop_ms: Some(0.25), loads, inside });
        assert_eq!(text.lines().last(), Some("2 of 3 loads inside in all figures"));
        assert!(
            text.starts_with("measured hop: 0.2500 ms\n") && text.contains("1 of 1") && text.contains("0 of 1 OUTSIDE")
        );
    }

    #[test]
    fn loads_go_from_light_to_twice_the_demand() {
        assert!(LOADS.is_sorted() && LOADS.len() == 10);
        assert_eq!((LOADS[0], LOADS[9]), (0.1, 2.0));
    }
}
