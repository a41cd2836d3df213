//! How many promises are missed where nobody has looked?

use super::clock::wall_clock;
use apportion_domain::JudgedVerdict;
pub use apportion_planning::bench::promises::PromiseSettings;
use apportion_planning::bench::promises::{PlanPromise, promises};
use apportion_support::exit::Failure;
use apportion_support::output::{self, TextTable, number};
use apportion_support::progress::spinner;

/// Makes promises, tests each on further samples, and prints a row for each plan and their counts.
///
/// # Errors
/// If the output cannot be written.
pub fn run(settings: &PromiseSettings) -> Result<(), Failure> {
    let bar = spinner("making promises");
    let all = promises(settings, &wall_clock());
    bar.finish_and_clear();
    let mut table = TextTable::new(&["seed", "planner", "asked", "verdict", "lower end", "on further samples", ""]);
    for p in &all {
        table.row(vec![
            p.seed.to_string(),
            p.planner.name().into(),
            number(p.asked),
            p.verdict.name().into(),
            format!("{:.4}", p.low),
            format!("{:.4}", p.kept),
            if p.is_missed() { "missed" } else { "" }.into(),
        ]);
    }
    output::print(&table.text(""))?;
    output::print(&format!("\n{}\n", summary(settings, &all)))
}

/// The counts in words.
fn summary(settings: &PromiseSettings, all: &[PlanPromise]) -> String {
    let made = all.iter().filter(|p| p.verdict == JudgedVerdict::Holds).count();
    let missed = all.iter().filter(|p| p.is_missed()).count();
    let PromiseSettings { samples, seconds, .. } = settings;
    format!("{missed} of {made} promises missed, on {samples} further samples of {seconds} s each; {} plans", all.len())
}
