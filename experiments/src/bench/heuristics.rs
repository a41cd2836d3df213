//! How often does a heuristic planner equal the proven optimum, and how far off is it at worst?

use super::clock::{milliseconds, wall_clock};
use apportion_planning::bench::heuristics::{EXACT_LIMIT, GAP, HeuristicsRow, Topology, case, problem, row};
use apportion_support::exit::Failure;
use apportion_support::output::{self, TextTable, number};
use indicatif::ProgressBar;
use std::time::Duration;

/// The drawn problems of one run.
#[derive(Clone, Copy, Debug)]
pub struct HeuristicsSettings {
    /// Problems.
    pub problems: u32,
    /// Seed of the first one.
    pub seed: u64,
}

/// Solves drawn chains, trees and DAGs exactly and by price and branch, and prints a row for each topology.
///
/// # Errors
/// If the output cannot be written.
pub fn run(settings: &HeuristicsSettings) -> Result<(), Failure> {
    let clock = wall_clock();
    let bar = ProgressBar::new(settings.problems.into());
    let mut rows = Vec::with_capacity(settings.problems as usize);
    for seed in (settings.seed..).take(settings.problems as usize) {
        let case = case(seed);
        rows.push(row(&case, &problem(&case), &clock));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut table = TextTable::new(&[
        "topology",
        "problems",
        "with a plan",
        "proven",
        "equal",
        "no plan found",
        "worst gap",
        "median ms",
        "worst ms",
        "exact median ms",
        "exact worst ms",
    ]);
    for topology in Topology::ALL {
        let of_topology: Vec<&HeuristicsRow> = rows.iter().filter(|r| r.case.topology == topology).collect();
        table.row(cells(topology.name(), &of_topology));
    }
    table.row(cells("all", &rows.iter().collect::<Vec<_>>()));
    output::print(&table.text(""))?;
    for row in rows.iter().filter(|r| r.gap > GAP) {
        output::print(&format!("not optimal: {}\n", sentence(row)))?;
    }
    output::print(&format!(
        "\nequal: within {GAP:e} of the best value of an exact search of at most {} s\n",
        EXACT_LIMIT.as_secs()
    ))
}

/// The cells of a row of the table.
fn cells(name: &str, rows: &[&HeuristicsRow]) -> Vec<String> {
    let count = |is: &dyn Fn(&HeuristicsRow) -> bool| rows.iter().filter(|r| is(r)).count();
    let planned = count(&|r| r.optimum.is_some());
    let equal = count(&|r| r.optimum.is_some() && r.gap <= GAP);
    let worst_gap = rows.iter().map(|r| r.gap).filter(|gap| gap.is_finite()).fold(0.0, f64::max);
    let (median, worst) = median_and_worst(rows.iter().map(|r| r.time).collect());
    let (exact_median, exact_worst) = median_and_worst(rows.iter().map(|r| r.exact_time).collect());
    vec![
        name.into(),
        rows.len().to_string(),
        planned.to_string(),
        count(&|r| r.exact == "optimal").to_string(),
        format!("{equal} ({:.1} %)", 100.0 * equal as f64 / planned.max(1) as f64),
        count(&|r| r.optimum.is_some() && r.value.is_none()).to_string(),
        format!("{:.2} %", 100.0 * worst_gap),
        milliseconds(median),
        milliseconds(worst),
        milliseconds(exact_median),
        milliseconds(exact_worst),
    ]
}

fn median_and_worst(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    (median, times.last().copied().unwrap_or_default())
}

/// Gap above which the conditions of a problem are printed too.
const LARGE_GAP: f64 = 0.05;

/// One problem that the heuristic does not solve to optimality.
fn sentence(row: &HeuristicsRow) -> String {
    let case = &row.case;
    let conditions = if row.gap > LARGE_GAP { format!(" ({})", row.conditions) } else { String::new() };
    let value = |value: Option<f64>| value.map_or_else(|| "none".to_owned(), number);
    format!(
        "seed {}, {}, {}, rule {}, {} pipelines{conditions}: {} (bound {}) after {} ms instead of {} after {} ms",
        case.seed,
        case.topology.name(),
        case.mode.name(),
        case.rule.name(),
        row.pipelines,
        value(row.value),
        value(row.bound),
        milliseconds(row.time),
        value(row.optimum),
        milliseconds(row.exact_time)
    )
}
