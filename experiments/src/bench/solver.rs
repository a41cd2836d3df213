//! How fast are problems solved, at many demands, on clusters of several sizes, and with many pipelines?

use super::clock::{milliseconds, wall_clock};
use super::scaling::{self, ProblemSet};
use apportion_domain::{LatencyRule, Problem};
pub use apportion_planning::bench::cluster::{DEVICES, PIPELINES};
use apportion_planning::bench::{Bench, BenchRow, TypicalAndWorst, cluster, with_devices};
use apportion_support::exit::Failure;
use apportion_support::input::read_problem;
use apportion_support::output::{self, TextTable, number};
use apportion_support::progress::spinner;
use apportion_wire::ProblemFile;
use std::time::Duration;

/// Gaps at which a cluster is divided: the speed table's, and a plan's.
const CLUSTER_GAPS: [f64; 2] = [1e-2, 1e-4];
/// Limit of each.
const CLUSTER_LIMIT: Duration = Duration::from_secs(60);

/// A problem with its name.
#[derive(Clone)]
struct NamedProblem {
    name: String,
    problem: Problem,
}

/// Many pipelines on one cluster.
pub struct Cluster {
    /// Number of pipelines; 0 leaves this benchmark out.
    pub pipelines: usize,
    /// Its devices.
    pub devices: u32,
    /// Seed of the demands and weights.
    pub seed: u64,
}

/// Prints the figures of these problem files, of the first one on clusters of other sizes, and of a shared cluster.
///
/// # Errors
/// If a file holds no valid problem, or a search stops without an answer.
pub fn run(files: &[String], sizes: &[u32], shared: &Cluster) -> Result<(), Failure> {
    let (mut problems, mut scaling_problems) = (Vec::new(), Vec::new());
    for file in files {
        match read_problem(file)? {
            ProblemFile::Allocation(problem) => problems.push(NamedProblem { name: file.clone(), problem }),
            ProblemFile::Scaling(problem) => {
                scaling_problems.push(ProblemSet { name: file.clone(), problems: vec![problem] });
            }
        }
    }
    if !problems.is_empty() {
        demand_levels(&problems, sizes)?;
        output::print("\n")?;
    }
    if shared.pipelines > 0 {
        shared_cluster(&problems, shared)?;
        output::print("\n")?;
    }
    scaling::run(scaling_problems)
}

/// Plans each problem under both rules at 20 demands. Times are median and worst over the demands.
fn demand_levels(problems: &[NamedProblem], sizes: &[u32]) -> Result<(), Failure> {
    let clock = wall_clock();
    let mut table = TextTable::new(&[
        "problem",
        "latency rule",
        "largest qps",
        "search ms",
        "replay ms",
        "shortfalls ms",
        "explanation ms",
        "all ms",
        "hardware step ms",
    ]);
    let first = problems.first().into_iter();
    let with_size = |of: &NamedProblem, devices: u32| NamedProblem {
        name: format!("{}, {devices} devices", of.name),
        problem: with_devices(&of.problem, devices),
    };
    let sized = first.flat_map(|of| sizes.iter().map(move |&devices| with_size(of, devices)));
    for NamedProblem { name, problem } in problems.iter().cloned().chain(sized) {
        for rule in [LatencyRule::TaskBudget, LatencyRule::Path] {
            let problem = problem.changed(|d| d.objective.latency_rule = rule).expect("a rule changes no validity");
            let bar = spinner(&format!("planning {name}, rule {}", rule.name()));
            let bench = apportion_planning::bench::demand_levels(&problem, &clock);
            bar.finish_and_clear();
            let bench = bench.map_err(|stopped| anyhow::anyhow!("{name}: stopped without an answer: {stopped}"))?;
            let step = apportion_planning::bench::hardware_step(&problem, bench.demand_max_qps, &clock);
            let step = step.map_or_else(|| "no closed form".into(), milliseconds);
            let mut row = vec![name.clone(), rule.name().into(), number(bench.demand_max_qps)];
            row.extend(cells(&bench));
            row.push(step);
            table.row(row);
        }
    }
    output::print("Median / worst of 20 demand levels, each planned as `apportion plan` does:\n")?;
    output::print(&table.text(""))
}

/// Median and worst of each part of the time, and of all.
fn cells(bench: &Bench) -> Vec<String> {
    let cell = |seconds: &dyn Fn(&BenchRow) -> f64| {
        let TypicalAndWorst { median, worst } = bench.over_levels(seconds);
        let shown = |seconds: f64| milliseconds(Duration::from_secs_f64(seconds));
        format!("{} / {}", shown(median), shown(worst))
    };
    vec![
        cell(&|row| row.seconds_of.search),
        cell(&|row| row.seconds_of.replay),
        cell(&|row| row.seconds_of.shortfalls),
        cell(&|row| row.seconds_of.explanation),
        cell(&|row| row.seconds),
    ]
}

/// Divides a cluster at the gap of the speed table and at the gap of a plan.
fn shared_cluster(problems: &[NamedProblem], shared: &Cluster) -> Result<(), Failure> {
    let templates: Vec<Problem> = problems.iter().map(|of| of.problem.clone()).collect();
    let problem = cluster::cluster(&templates, shared.pipelines, shared.devices, shared.seed);
    let mut table = TextTable::new(&["pipelines", "devices", "gap asked", "outcome", "value", "bound", "gap", "ms"]);
    for gap in CLUSTER_GAPS {
        let bar = spinner("dividing a cluster");
        let row = cluster::divide(&problem, gap, CLUSTER_LIMIT, &wall_clock());
        bar.finish_and_clear();
        let shown = |value: Option<f64>| value.map_or_else(|| "none".to_owned(), number);
        table.row(vec![
            shared.pipelines.to_string(),
            shared.devices.to_string(),
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
