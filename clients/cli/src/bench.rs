//! `apportion bench`: the speed of a part, printed as figures.

use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Table, number};
use crate::{input, plan};
use apportion_domain::{PipelineIndex, Problem, Queueing};
use apportion_planning::{PlanOptions, Planner};
use clap::Subcommand;
use std::sync::Arc;
use std::time::Instant;

/// Demand levels of one file, from 10 to 115 % of the largest demand that can be served.
const LEVELS: usize = 20;
/// Times that each level is solved; the median counts.
const REPEATS: usize = 3;

/// What is measured.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Solving each problem file at 20 demand levels from 10 to 115 % of the largest demand that can be served.
    Solver {
        /// Problem files of one pipeline.
        #[arg(required = true)]
        problems: Vec<String>,
    },
    /// The estimator: task visits per second of processor time.
    Estimator {
        /// Simulated seconds.
        #[arg(long, default_value_t = apportion_estimator::bench::SECONDS)]
        seconds: u64,
    },
}

/// Runs the command.
pub fn run(command: &BenchCommand) -> Outcome {
    match command {
        BenchCommand::Solver { problems } => solver(problems)?,
        BenchCommand::Estimator { seconds } => estimator(*seconds)?,
    }
    Ok(Exit::Done)
}

fn estimator(seconds: u64) -> Result<(), Failure> {
    let mut table = Table::new(&["queueing", "visits", "CPU s", "million visits / CPU s", "attainment"]);
    for queueing in [Queueing::Central, Queueing::PerReplica] {
        let speed = apportion_estimator::bench::visits_per_second(queueing, seconds, cpu_seconds);
        let rate = number(speed.visits_per_second() / 1e6);
        let row =
            [queueing.name().to_owned(), speed.visits.to_string(), number(speed.seconds), rate, number(speed.attainment)];
        table.row(row.into());
    }
    output::print(&table.text(""))
}

/// Processor time of this process, from `/proc`; wall-clock time where there is none.
fn cpu_seconds() -> f64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let wall = START.get_or_init(Instant::now).elapsed().as_secs_f64();
    let schedule = std::fs::read_to_string("/proc/self/schedstat").ok();
    let nanos = schedule.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    nanos.map_or(wall, |n| n / 1e9)
}

fn solver(files: &[String]) -> Result<(), Failure> {
    let mut table = Table::new(&["problem", "largest qps", "median ms", "worst ms", "hardware step ms", "infeasible"]);
    for file in files {
        let problem = input::problem(file)?;
        let bar = plan::spinner(&format!("solving {file}"));
        let largest = largest_demand(&problem);
        let (mut all, mut hardware, mut infeasible) = (Vec::new(), Vec::new(), 0);
        for level in 0..LEVELS {
            let share = 0.10 + (1.15 - 0.10) * level as f64 / (LEVELS - 1) as f64;
            let at = with_demand(&problem, largest * share);
            let mut times: Vec<_> = (0..REPEATS).map(|_| solve(&at)).collect();
            times.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (ms, step, feasible) = times[REPEATS / 2];
            infeasible += usize::from(!feasible);
            if step { hardware.push(ms) } else { all.push(ms) }
        }
        bar.finish_and_clear();
        let (step, worst) = (median(&mut hardware.clone()), hardware.iter().chain(&all).copied().fold(0.0, f64::max));
        all.extend(hardware);
        table.row(vec![
            file.clone(),
            number(largest),
            number(median(&mut all)),
            number(worst),
            number(step),
            infeasible.to_string(),
        ]);
    }
    output::print(&table.text(""))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Milliseconds of one plan without its replay, whether it ended in the hardware step, and whether there is one.
fn solve(problem: &Problem) -> (f64, bool, bool) {
    let start = Instant::now();
    let options = PlanOptions {
        planner: Planner::Milp,
        gap: 1e-4,
        time_limit: None,
        elapsed: Arc::new(move || start.elapsed()),
        cancel: Arc::default(),
        trace: None,
    };
    let (outcome, report) = apportion_planning::plan(problem, &options);
    let step = report.objective.step == Some(apportion_domain::ObjectiveStep::Hardware);
    (report.seconds * 1e3, step, outcome.plan().is_some())
}

fn with_demand(problem: &Problem, demand_qps: f64) -> Problem {
    let pipeline = problem.pipeline(PipelineIndex(0)).with_demand(demand_qps);
    problem.changed(|draft| draft.pipelines[0] = pipeline).expect("a valid problem with another demand")
}

/// By bisection to 0.1 %.
fn largest_demand(problem: &Problem) -> f64 {
    let feasible = |qps: f64| solve(&with_demand(problem, qps)).2;
    let (mut yes, mut no) = (0.0, 1.0);
    while feasible(no) && no < 1e9 {
        (yes, no) = (no, no * 2.0);
    }
    while no - yes > 1e-3 * no {
        let middle = 0.5 * (yes + no);
        if feasible(middle) { yes = middle } else { no = middle }
    }
    yes
}
