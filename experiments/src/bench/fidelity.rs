//! How do real variants perform under loads from light to twice the planned demand, beside the estimator's interval?

use crate::live::capacity::capacity_of_most_accurate_qps;
use crate::live::console::print_progress;
use crate::live::estimate::{RUNS, poisson_arrivals};
use crate::live::figures::{ComparedFigure, Figures, RequestResult, longest_ms};
use crate::live::fleet::{FleetSettings, HARDWARE, LocalFleet, MULTIPLE};
use crate::live::load::{ClientOutcome, LiveLoad, LoadProgress, SentRequest};
use crate::live::plans::{FetchedPlan, fetch_plan, problem_in};
use crate::live::validation::ValidationSet;
use anyhow::{Context, Result, ensure};
use apportion_domain::{ArrivalTrace, Plan, Problem};
use apportion_estimator::{ArrivalProcess, Scenario, ServiceTimes, SimulateOptions, Workload, replay};
use apportion_support::exit::Failure;
use apportion_support::output::{self, OutputFormat, TextTable, number};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// The loads, in parts of the planned demand.
const LOADS: [f64; 6] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0];
/// The plan's demand, in parts of the load that all devices serve with the most accurate variants. It leaves no device
/// spare.
const DEMAND: f64 = 0.9;

/// The settings of the benchmark.
#[derive(Clone, Debug)]
pub struct FidelitySettings {
    /// The service, the agents and the pipeline.
    pub fleet: FleetSettings,
    /// Seconds of each load.
    pub seconds: u64,
    /// Seed of the arrivals.
    pub seed: u64,
    /// How the figures are printed.
    pub format: OutputFormat,
}

fn text(of: &ComparedFigure, scale: f64) -> [String; 3] {
    let interval = format!("{} to {}", number(scale * of.from), number(scale * of.to));
    [number(scale * of.measured), interval, if of.is_inside { "inside" } else { "OUTSIDE" }.to_owned()]
}

/// One load.
#[derive(Clone, Debug, Serialize)]
struct Row {
    /// Part of the plan's demand.
    load: f64,
    qps: f64,
    requests: usize,
    attainment: ComparedFigure,
    p50_ms: ComparedFigure,
    p99_ms: ComparedFigure,
}

/// Runs the command.
///
/// # Errors
/// As the demo's.
pub fn run(settings: &FidelitySettings) -> Result<(), Failure> {
    let rows = tokio::runtime::Runtime::new().context("starting the runtime")?.block_on(measure(settings))?;
    output::print(&if settings.format == OutputFormat::Json { output::json(&rows)? } else { table(&rows) })
}

async fn measure(settings: &FidelitySettings) -> Result<Vec<Row>> {
    let file = settings.fleet.pipeline_file()?;
    let spec = ValidationSet::read(&file)?;
    let fleet = LocalFleet::start(&settings.fleet).await?;
    let agents = fleet.service.wait_for_agents(settings.fleet.agents as usize).await?;
    fleet.profile(&file, settings.fleet.multiple.unwrap_or(MULTIPLE)).await?;
    let problem = problem_in(&fleet.service.request_plan(&spec.name, 1.0).await?)?;
    let devices = settings.fleet.agents * settings.fleet.devices;
    let demand_qps = DEMAND * capacity_of_most_accurate_qps(&problem, &spec.name, HARDWARE, devices)?;
    let id = fleet.deploy(&spec.name, demand_qps, &agents).await?;
    let FetchedPlan { problem, plan } = fetch_plan(&fleet.service, &id).await?;
    let requests = Arc::new(spec.requests()?);
    let mut rows = Vec::new();
    for (at, part) in (0..).zip(LOADS) {
        let qps = part * demand_qps;
        print_progress(&format!("{qps:.1} queries/s for {} s: {part} times the plan's demand", settings.seconds));
        let load = LiveLoad {
            ingresses: agents.iter().map(|agent| agent.ingress_http.clone()).collect(),
            pipeline: spec.name.clone(),
            requests: requests.clone(),
            arrivals: poisson_arrivals(rates(qps, settings.seconds), settings.seed + at)?,
            slo: Duration::from_secs_f64(spec.slo_ms / 1e3),
        };
        let sent = load.run(Arc::new(LoadProgress::default())).await?;
        let failed = sent.iter().filter(|s| s.outcome == ClientOutcome::Failed).count();
        ensure!(failed == 0, "{failed} of {} requests failed; logs are in {}", sent.len(), fleet.keep_logs().display());
        let estimated = estimates(&problem, &plan, &spec.name, rates(qps, settings.seconds))?;
        rows.push(compare(part, qps, &sent, estimated, longest_ms(spec.slo_ms)));
    }
    Ok(rows)
}

fn rates(qps: f64, seconds: u64) -> Vec<(u64, f64)> {
    (0..seconds).map(|s| (s, qps)).collect()
}

/// Attainment, median and 99th percentile of each run of the estimator. Batch times are drawn to match the profile's 99th
/// percentiles, and a steward runs, as on agents.
fn estimates(problem: &Problem, plan: &Plan, pipeline: &str, rates: Vec<(u64, f64)>) -> Result<Vec<[f64; 3]>> {
    let index = problem.pipeline_named(pipeline).context("the plan is of another pipeline")?.get();
    let mut traces = vec![ArrivalTrace::Rates(vec![(0, 0.0)]); problem.pipelines.len()];
    traces[index] = ArrivalTrace::rates(rates)?;
    let options = SimulateOptions { service: ServiceTimes::P99Matched, ..SimulateOptions::default() };
    let mut runs = Vec::new();
    for seed in 1..=RUNS {
        let workload = Workload { traces: traces.clone(), arrivals: ArrivalProcess::Poisson, seed };
        let scenario = Scenario { steward: true, ..Scenario::default() };
        let estimate = &replay(problem, plan, &workload, &options, scenario)?.simulation.pipelines[index];
        runs.push([estimate.attainment, estimate.p50_ms, estimate.p99_ms]);
    }
    Ok(runs)
}

fn compare(load: f64, qps: f64, sent: &[SentRequest], mut runs: Vec<[f64; 3]>, longest_ms: f64) -> Row {
    let seen: Vec<RequestResult> = sent.iter().map(|s| RequestResult::of(s, longest_ms)).collect();
    let measured = Figures::of(&seen, &[]);
    runs.iter_mut().flat_map(|run| &mut run[1..]).for_each(|latency_ms| *latency_ms = latency_ms.min(longest_ms));
    let compare_figure =
        |measured, figure: usize| ComparedFigure::new(measured, runs.iter().map(|run| run[figure]).collect());
    Row {
        load,
        qps,
        requests: sent.len(),
        attainment: compare_figure(measured.attainment, 0),
        p50_ms: compare_figure(measured.p50_ms, 1),
        p99_ms: compare_figure(measured.p99_ms, 2),
    }
}

fn table(rows: &[Row]) -> String {
    let interval = "95 % of 40 runs";
    let header =
        ["load", "queries/s", "requests", "in time %", interval, "", "p50 ms", interval, "", "p99 ms", interval, ""];
    let mut table = TextTable::new(&header);
    for row in rows {
        let mut cells = vec![row.load.to_string(), number(row.qps), row.requests.to_string()];
        cells.extend(text(&row.attainment, 100.0));
        cells.extend(text(&row.p50_ms, 1.0));
        cells.extend(text(&row.p99_ms, 1.0));
        table.row(cells);
    }
    table.text("")
}
