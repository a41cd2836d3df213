//! `apportion bench`: the speed of a part, printed as figures.

use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Table, number};
use crate::{input, plan};
use apportion_domain::{Problem, Queueing};
use apportion_planning::bench::{cluster, with_devices};
use clap::Subcommand;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Gaps at which a cluster is divided: the speed table's, and a plan's.
const CLUSTER_GAPS: [f64; 2] = [1e-2, 1e-4];
/// Limit of each.
const CLUSTER_LIMIT: Duration = Duration::from_secs(60);

/// What is measured.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Solving each problem file at 20 demand levels from 10 to 115 % of the largest demand that can be served; then the first
    /// of them on clusters of other sizes; then many of their pipelines on one cluster.
    Solver {
        /// Problem files of one pipeline.
        #[arg(required = true)]
        problems: Vec<String>,
        /// Sizes of the cluster that the first problem is also solved on.
        #[arg(long, value_delimiter = ',', default_value = "20,1000")]
        sizes: Vec<u32>,
        /// Pipelines that share one cluster; 0 leaves this out.
        #[arg(long, default_value_t = cluster::PIPELINES)]
        pipelines: usize,
        /// Devices of that cluster.
        #[arg(long, default_value_t = cluster::DEVICES)]
        devices: u32,
        /// Seed of the demands and weights of these pipelines.
        #[arg(long, default_value_t = 1)]
        seed: u64,
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
        BenchCommand::Solver { problems, sizes, pipelines, devices, seed } => {
            let read: Vec<(String, Problem)> =
                problems.iter().map(|f| Ok((f.clone(), input::problem(f)?))).collect::<Result<_, Failure>>()?;
            solver(&read, sizes)?;
            if *pipelines > 0 {
                shared_cluster(&read, *pipelines, *devices, *seed)?;
            }
        }
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

fn clock() -> Arc<dyn Fn() -> Duration + Send + Sync> {
    let start = Instant::now();
    Arc::new(move || start.elapsed())
}

fn milliseconds(time: Duration) -> String {
    number(time.as_secs_f64() * 1e3)
}

fn solver(problems: &[(String, Problem)], sizes: &[u32]) -> Result<(), Failure> {
    let clock = clock();
    let mut table = Table::new(&["problem", "largest qps", "median ms", "worst ms"]);
    let first = problems.first().into_iter();
    let sized = first.flat_map(|(f, p)| sizes.iter().map(move |&n| (format!("{f}, {n} devices"), with_devices(p, n))));
    for (name, problem) in problems.iter().cloned().chain(sized) {
        let bar = plan::spinner(&format!("solving {name}"));
        let bench = apportion_planning::bench::demand_levels(&problem, &clock);
        bar.finish_and_clear();
        let bench = bench.map_err(|stopped| anyhow::anyhow!("{name}: stopped without an answer: {stopped}"))?;
        let (median, worst) = (milliseconds(bench.median()), milliseconds(bench.worst()));
        table.row(vec![name, number(bench.demand_max_qps), median, worst]);
    }
    output::print(&table.text(""))
}

/// Many pipelines on one cluster, at the gap of a plan and at the one of the design's speed table.
fn shared_cluster(problems: &[(String, Problem)], pipelines: usize, devices: u32, seed: u64) -> Result<(), Failure> {
    let templates: Vec<Problem> = problems.iter().map(|(_, p)| p.clone()).collect();
    let problem = cluster::cluster(&templates, pipelines, devices, seed);
    let mut table = Table::new(&["pipelines", "devices", "gap asked", "outcome", "value", "bound", "gap", "ms"]);
    for gap in CLUSTER_GAPS {
        let bar = plan::spinner("dividing a cluster");
        let row = cluster::divide(&problem, gap, CLUSTER_LIMIT, &clock());
        bar.finish_and_clear();
        let shown = |value: Option<f64>| value.map_or_else(|| "none".to_owned(), number);
        table.row(vec![
            pipelines.to_string(),
            devices.to_string(),
            number(gap),
            row.outcome.to_owned(),
            shown(row.objective.value),
            shown(row.objective.bound),
            shown(row.objective.gap()),
            milliseconds(row.elapsed),
        ]);
    }
    output::print(&table.text(""))
}
