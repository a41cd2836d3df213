//! How does `apportion advise` say which replicas a fleet should have?
//!
//! One round: the demand that Prometheus, a trace or a number says, times the headroom; a plan for it; and its figures
//! beside those of the deployment under the demand that was seen.

mod demand;
mod deployed;
mod figures;
mod server;
mod show;

use self::demand::{DemandArgs, SeenDemand};
use self::deployed::DeployedArgs;
use self::figures::group_rows;
use self::server::PrometheusArgs;
use self::show::Advice;
use crate::args;
use crate::plan::explanation;
use crate::workload::{self, SEED};
use apportion_api::decide::replan::{LOWER_MAX, lower_demand};
use apportion_api::jobs::plan_figures;
use apportion_domain::{PlanOutcome, PlanningReport, Problem};
use apportion_estimator::{ArrivalProcess, Workload};
use apportion_planning::PlanningOptions;
use apportion_support::exit::{CommandResult, Exit, Failure};
use apportion_support::input;
use apportion_support::output::{self, OutputFormat};
use apportion_support::progress::spinner;
use apportion_wire::{BadInput, PlanFile, ReplanSpec};
use clap::Args;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Arguments of `apportion advise`.
#[derive(Args, Debug)]
pub struct AdviseArgs {
    /// Problem file, JSON or YAML. Its demands are not used.
    problem: String,
    #[command(flatten)]
    demand: DemandArgs,
    #[command(flatten)]
    prometheus: PrometheusArgs,
    #[command(flatten)]
    deployed: DeployedArgs,
    /// Factor on the demand, as in the replan settings of the service.
    #[arg(long, default_value_t = ReplanSpec::default().headroom, value_parser = headroom)]
    headroom: f64,
    /// Stop solving after this time.
    #[arg(long, default_value = "60s", value_parser = args::duration)]
    time_limit: Duration,
    /// How the advice is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: OutputFormat,
    /// Also write the plan file here.
    #[arg(long)]
    out: Option<String>,
}

/// Largest headroom: with a larger one the advice would be for another fleet.
const HEADROOM_MAX: f64 = 10.0;

/// Why a headroom is refused.
#[derive(Clone, Debug, thiserror::Error)]
#[error("expected a factor from 1 to {HEADROOM_MAX}, for example 1.2")]
struct HeadroomError;

fn headroom(text: &str) -> Result<f64, HeadroomError> {
    text.parse().ok().filter(|factor| (1.0..=HEADROOM_MAX).contains(factor)).ok_or(HeadroomError)
}

/// Runs the command.
pub fn run(args: &AdviseArgs) -> CommandResult {
    let problem = input::read_allocation_problem(&args.problem)?;
    let metrics = args.prometheus.connect()?;
    let seen = args.demand.read(&problem, metrics.as_ref())?;
    let deployed = args.deployed.read(&problem, metrics.as_ref())?;
    let seen_qps = |seen: &SeenDemand| seen.qps;
    let floor_qps = ReplanSpec::default().min_qps;
    let planned_qps = |seen: &SeenDemand| (seen.qps * args.headroom).max(floor_qps);
    let now = at_demand(&problem, &seen.iter().map(seen_qps).collect::<Vec<_>>())?;
    let asked = at_demand(&problem, &seen.iter().map(planned_qps).collect::<Vec<_>>())?;
    let progress = spinner(&format!("planning {}", args.problem));
    let planned = plan(asked, args.time_limit)?;
    progress.finish_and_clear();
    let file = PlanFile::from_outcome(&planned.problem, &planned.outcome, &planned.report);
    if let Some(out) = &args.out {
        output::write_file(out, |f| writeln!(f, "{}", file.to_json()))?;
    }
    let Some(plan) = planned.outcome.plan() else {
        let why = || format!("status      {}\n{}", file.status, explanation::text(&file.explanation));
        args.format.print_text(&file.to_json(), why)?;
        return Ok(if matches!(planned.outcome, PlanOutcome::Infeasible { .. }) {
            Exit::Infeasible
        } else {
            Exit::NoAnswer
        });
    };
    let load = load(&now, &seen);
    let figures =
        |plan, name| plan_figures(&now, plan, &load).map_err(|error| Failure::BadInput(format!("{name}: {error}")));
    let advice = Advice {
        groups: group_rows(&problem, plan, deployed.as_ref()),
        advised: figures(plan, "the advice")?,
        deployed: deployed.as_ref().map(|plan| figures(plan, "the deployment")).transpose()?,
        problem: &planned.problem,
        seen: &seen,
        asked_qps: planned.asked_qps,
    };
    args.format.print(&show::document(&advice), || show::table(&advice))?;
    Ok(Exit::Done)
}

/// The problem with these demands.
fn at_demand(problem: &Problem, demands_qps: &[f64]) -> Result<Problem, Failure> {
    let changed = problem.changed(|draft| {
        for (pipeline, qps) in draft.pipelines.iter_mut().zip(demands_qps) {
            *pipeline = pipeline.with_demand(*qps);
        }
    });
    Ok(changed.map_err(|e| BadInput::refused("the demand", e))?)
}

/// The load that was seen: the traces, and for the other pipelines Poisson arrivals at their demand.
fn load(now: &Problem, seen: &[SeenDemand]) -> Workload {
    let traces = workload::with_demand(now, seen.iter().map(|s| s.trace.clone()).collect());
    Workload { traces, arrivals: ArrivalProcess::Poisson, seed: SEED }
}

/// The answer of the planner.
struct Planned {
    /// The problem that was solved.
    problem: Problem,
    outcome: PlanOutcome,
    report: PlanningReport,
    /// The demand that the devices cannot serve.
    asked_qps: Option<f64>,
}

/// Plans. The demand of a single pipeline is lowered to the most that the devices can serve, as in a round of the service.
fn plan(asked: Problem, time_limit: Duration) -> Result<Planned, Failure> {
    let start = Instant::now();
    let options =
        PlanningOptions { time_limit: Some(time_limit), ..PlanningOptions::new(Arc::new(move || start.elapsed())) };
    let mut problem = asked;
    let asked_qps = problem.pipelines[0].demand_qps;
    let mut lowered = 0;
    loop {
        let (outcome, report) = apportion_planning::plan(&problem, &options);
        let lower_qps = match &outcome {
            PlanOutcome::Infeasible { shortfalls, .. } if problem.pipelines.len() == 1 && lowered < LOWER_MAX => {
                lower_demand(problem.pipelines[0].demand_qps, shortfalls).ok()
            }
            _ => None,
        };
        let Some(qps) = lower_qps else {
            let is_lowered = lowered > 0 && outcome.plan().is_some();
            return Ok(Planned { problem, outcome, report, asked_qps: is_lowered.then_some(asked_qps) });
        };
        problem = at_demand(&problem, &[qps])?;
        lowered += 1;
    }
}
