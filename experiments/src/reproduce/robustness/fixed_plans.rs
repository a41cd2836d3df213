//! How does a plan of each planner fare that nobody changes?

use super::disturbance::MachineDisturbance;
use super::pipelines::TriedPipeline;
use crate::reproduce::lab::{Lab, constant, in_parallel, mean};
use crate::reproduce::report::{Plot, Series, TitledTable};
use apportion_domain::{Plan, Problem};
use apportion_estimator::{ArrivalProcess, Scenario, SimulateOptions, replay};
use apportion_planning::Planner;
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, percent};

/// Loads that each plan is judged on.
pub const SEEDS: u64 = 5;

/// Length of each load.
pub const SECONDS: usize = 60;

/// Length of the load that plans are made on.
const SAMPLE_SECONDS: usize = 30;

/// The plan of one planner for one pipeline.
struct TriedPlan<'a> {
    problem: &'a Problem,
    plan: Option<Plan>,
}

/// The mean attainment of a plan under a disturbance; 0 without a plan.
fn attainment(lab: &Lab, of: &TriedPlan<'_>, disturbance: MachineDisturbance) -> Result<f64, Failure> {
    let Some(plan) = &of.plan else { return Ok(0.0) };
    let machine = disturbance.disturbed(of.problem)?;
    let seconds = lab.full_or_quick(SECONDS, 12);
    let demand_qps = of.problem.pipelines[0].demand_qps;
    let mut seen = Vec::new();
    for seed in 0..lab.full_or_quick(SEEDS, 1) {
        let workload = constant(demand_qps, seconds, ArrivalProcess::Poisson, lab.held_out_seed() + seed);
        let scenario = Scenario { events: disturbance.events(plan, seconds), ..Scenario::default() };
        let run = replay(&machine, plan, &workload, &SimulateOptions::default(), scenario).map_err(anyhow::Error::new)?;
        seen.push(run.simulation.total.attainment);
    }
    Ok(mean(&seen))
}

/// The fixed plans of all planners.
pub struct FixedPlans {
    /// One row for each planner: the mean and the worst pipeline under each disturbance.
    pub table: TitledTable,
    /// The mean by the factor on all latencies, one line for each planner.
    pub plot: Plot,
}

/// Judges a plan of every planner for every pipeline under every disturbance.
pub fn compare(lab: &Lab, tried: &[TriedPipeline]) -> Result<FixedPlans, Failure> {
    let names = MachineDisturbance::ALL.map(MachineDisturbance::name);
    let mut header = vec!["planner", "plans"];
    header.extend(names.iter().map(String::as_str));
    let mut table = TextTable::new(&header);
    let mut series = Vec::new();
    for planner in Planner::ALL {
        lab.show_step(format!("robustness: fixed plans of {}", planner.name()));
        let plans: Vec<TriedPlan<'_>> = tried.iter().map(|of| planned(lab, of, planner)).collect();
        let mut row = vec![planner.name().to_owned()];
        row.push(format!("{} of {}", plans.iter().filter(|of| of.plan.is_some()).count(), plans.len()));
        let mut points = Vec::new();
        for disturbance in MachineDisturbance::ALL {
            let seen = in_parallel(&plans, |of| attainment(lab, of, disturbance))?;
            let worst = seen.iter().copied().fold(1.0, f64::min);
            row.push(format!("{} ({})", percent(mean(&seen)), percent(worst)));
            points.extend(disturbance.latency_factor().map(|factor| (factor, 100.0 * mean(&seen))));
        }
        table.row(row);
        series.push(Series { name: planner.name().into(), points });
    }
    let title = "Fixed plans: requests in time, mean over the pipelines";
    let plot =
        Plot { title: title.into(), x: "factor on all latencies".into(), y: "in time (%)".into(), series, places: vec![] };
    Ok(FixedPlans { table: TitledTable { title: format!("{title} (worst pipeline)"), table }, plot })
}

fn planned<'a>(lab: &Lab, of: &'a TriedPipeline, planner: Planner) -> TriedPlan<'a> {
    let demand_qps = of.problem.pipelines[0].demand_qps;
    let sample = constant(demand_qps, lab.full_or_quick(SAMPLE_SECONDS, 3), ArrivalProcess::Poisson, lab.seed);
    TriedPlan { problem: &of.problem, plan: lab.plan(&of.problem, planner, Some(sample)) }
}
