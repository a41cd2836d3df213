//! `apportion bench`: the speed of a part, printed as figures.

use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Table, number};
use crate::{input, plan};
use clap::Subcommand;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    let mut table = Table::new(&["policies", "visits", "CPU s", "million visits / CPU s", "attainment"]);
    for (name, serving) in apportion_estimator::bench::ROWS {
        let speed = apportion_estimator::bench::visits_per_second(serving, seconds, cpu_seconds);
        let rate = number(speed.visits_per_second() / 1e6);
        let row = [name.to_owned(), speed.visits.to_string(), number(speed.seconds), rate, number(speed.attainment)];
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
    let start = Instant::now();
    let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(move || start.elapsed());
    let mut table = Table::new(&["problem", "largest qps", "median ms", "worst ms"]);
    for file in files {
        let problem = input::problem(file)?;
        let bar = plan::spinner(&format!("solving {file}"));
        let bench = apportion_planning::bench::demand_levels(&problem, &clock);
        bar.finish_and_clear();
        let bench = bench.map_err(|stopped| anyhow::anyhow!("{file}: stopped without an answer: {stopped}"))?;
        let ms = |time: Duration| number(time.as_secs_f64() * 1e3);
        table.row(vec![file.clone(), number(bench.demand_max_qps), ms(bench.median()), ms(bench.worst())]);
    }
    output::print(&table.text(""))
}
