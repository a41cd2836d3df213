//! How fast are scaling problems solved?

use super::clock::{milliseconds, wall_clock};
use apportion_domain::{PlanStatus, ScalingProblem};
use apportion_planning::scaling::bench::{self, ScalingRow};
use apportion_support::exit::Failure;
use apportion_support::output::{self, TextTable, number};
use apportion_support::progress::spinner;
use std::time::Duration;

/// Scaling problems with a common name.
pub struct ProblemSet {
    /// The name, for the table.
    pub name: String,
    /// The problems.
    pub problems: Vec<ScalingProblem>,
}

/// Prints the figures of these problems and of generated ones.
///
/// # Errors
/// If stdout cannot be written.
pub fn run(mut sets: Vec<ProblemSet>) -> Result<(), Failure> {
    let (applications, variants) = (bench::APPLICATIONS, bench::VARIANTS);
    for (kind, room) in [("", 1.0), (", tight resources", bench::TIGHT)] {
        let generated = |seed| bench::scaling_problem(applications, variants, room, seed);
        let name = format!("{applications} applications of {variants} variants{kind}");
        sets.push(ProblemSet { name, problems: (1..=bench::PROBLEMS).map(generated).collect() });
    }
    let clock = wall_clock();
    let head =
        ["scaling problem", "solved", "median ms", "worst ms", "HiGHS median ms", "worst", "greedy ms", "greedy gap %"];
    let mut table = TextTable::new(&head);
    for ProblemSet { name, problems } in &sets {
        let bar = spinner(&format!("solving {name}"));
        let rows: Vec<_> = problems.iter().map(|p| bench::scaling_row(p, &clock)).collect();
        bar.finish_and_clear();
        let solved = rows.iter().filter(|r| r.status != PlanStatus::Unknown && agrees(r)).count();
        let [exact, highs, greedy] = [|r: &ScalingRow| r.exact, |r: &ScalingRow| r.highs, |r: &ScalingRow| r.greedy]
            .map(|time| SolveTimes::of(rows.iter().map(time).collect()));
        let gap = |r: &ScalingRow| Some((r.greedy_value? - r.value?) / r.value?.abs().max(1e-9));
        let gaps: Vec<f64> = rows.iter().filter_map(gap).collect();
        let mean = 100.0 * gaps.iter().sum::<f64>() / gaps.len().max(1) as f64;
        let times = [exact.median, exact.worst, highs.median, highs.worst, greedy.median].map(milliseconds);
        let cells = [name.clone(), format!("{solved} of {}", rows.len())].into_iter().chain(times);
        table.row(cells.chain([number(mean)]).collect());
    }
    output::print(&table.text(""))
}

/// Whether the exact search and HiGHS find the same optimum.
fn agrees(row: &ScalingRow) -> bool {
    match (row.value, row.highs_value) {
        (Some(ours), Some(theirs)) => (ours - theirs).abs() <= 1e-6 * ours.abs().max(1.0),
        (ours, theirs) => ours == theirs,
    }
}

/// The median and the longest of some times.
struct SolveTimes {
    median: Duration,
    worst: Duration,
}

impl SolveTimes {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        let median = times.get(times.len() / 2).copied().unwrap_or_default();
        Self { median, worst: times.last().copied().unwrap_or_default() }
    }
}
