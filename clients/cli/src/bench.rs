//! `apportion bench`: the speed of a part, printed as figures.

use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Table, number};
use crate::{input, plan};
use apportion_domain::{PlanStatus, Queueing, ScalingProblem};
use apportion_planning::scaling::bench::{self as scaling_bench, ScalingRow};
use apportion_wire::ProblemFile;
use clap::Subcommand;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is measured.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Solving each problem file at 20 demand levels from 10 to 115 % of the largest demand that can be served; scaling
    /// problems as they stand, beside 20 generated ones of 100 applications with 8 variants.
    Solver {
        /// Problem files of one pipeline, or scaling problems.
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
    let start = Instant::now();
    let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(move || start.elapsed());
    let mut table = Table::new(&["problem", "largest qps", "median ms", "worst ms"]);
    let mut scaling = Vec::new();
    for file in files {
        let problem = match input::any_problem(file)? {
            ProblemFile::Allocation(problem) => problem,
            ProblemFile::Scaling(problem) => {
                scaling.push((file.clone(), vec![problem]));
                continue;
            }
        };
        let bar = plan::spinner(&format!("solving {file}"));
        let bench = apportion_planning::bench::demand_levels(&problem, &clock);
        bar.finish_and_clear();
        let bench = bench.map_err(|stopped| anyhow::anyhow!("{file}: stopped without an answer: {stopped}"))?;
        table.row(vec![file.clone(), number(bench.demand_max_qps), ms(bench.median()), ms(bench.worst())]);
    }
    if files.len() > scaling.len() {
        output::print(&table.text(""))?;
        output::print("\n")?;
    }
    let (applications, variants) = (scaling_bench::APPLICATIONS, scaling_bench::VARIANTS);
    for (kind, room) in [("", 1.0), (", tight resources", scaling_bench::TIGHT)] {
        let generated = |seed| scaling_bench::scaling_problem(applications, variants, room, seed);
        let name = format!("{applications} applications of {variants} variants{kind}");
        scaling.push((name, (1..=scaling_bench::PROBLEMS).map(generated).collect()));
    }
    scaling_table(&scaling, &clock)
}

fn scaling_table(
    problems: &[(String, Vec<ScalingProblem>)],
    clock: &Arc<dyn Fn() -> Duration + Send + Sync>,
) -> Result<(), Failure> {
    let head =
        ["scaling problem", "solved", "median ms", "worst ms", "HiGHS median ms", "worst", "greedy ms", "greedy gap %"];
    let mut table = Table::new(&head);
    for (name, problems) in problems {
        let bar = plan::spinner(&format!("solving {name}"));
        let rows: Vec<_> = problems.iter().map(|p| scaling_bench::scaling_row(p, clock)).collect();
        bar.finish_and_clear();
        let solved = rows.iter().filter(|r| r.status != PlanStatus::Unknown && agrees(r)).count();
        let [exact, highs, greedy] = [|r: &ScalingRow| r.exact, |r: &ScalingRow| r.highs, |r: &ScalingRow| r.greedy]
            .map(|time| median_and_worst(rows.iter().map(time).collect()));
        let gap = |r: &ScalingRow| Some((r.greedy_value? - r.value?) / r.value?.abs().max(1e-9));
        let gaps: Vec<f64> = rows.iter().filter_map(gap).collect();
        let mean = 100.0 * gaps.iter().sum::<f64>() / gaps.len().max(1) as f64;
        let cells = [ms(exact.0), ms(exact.1), ms(highs.0), ms(highs.1), ms(greedy.0), number(mean)];
        table.row([name.clone(), format!("{solved} of {}", rows.len())].into_iter().chain(cells).collect());
    }
    output::print(&table.text(""))
}

/// Whether the exact search and HiGHS say the same.
fn agrees(row: &ScalingRow) -> bool {
    match (row.value, row.highs_value) {
        (Some(ours), Some(theirs)) => (ours - theirs).abs() <= 1e-6 * ours.abs().max(1.0),
        (ours, theirs) => ours == theirs,
    }
}

fn median_and_worst(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times.get(times.len() / 2).copied().unwrap_or_default(), times.last().copied().unwrap_or_default())
}

fn ms(time: Duration) -> String {
    number(time.as_secs_f64() * 1e3)
}
