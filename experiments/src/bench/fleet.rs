//! How fast is a whole fleet planned, and how near to its bound?

use super::clock::{milliseconds, wall_clock};
use apportion_planning::FleetMemory;
pub use apportion_planning::bench::fleet::{DEVICES, PIPELINES};
use apportion_planning::bench::fleet::{FleetKind, FleetRow, FleetSize, fleet, next_round, plan_fleet};
use apportion_support::exit::Failure;
use apportion_support::output::{self, TextTable, number};
use apportion_support::progress::spinner;
use std::time::Duration;

/// Gap asked for.
const GAP: f64 = 1e-3;
/// The fleets of one run.
#[derive(Clone, Copy, Debug)]
pub struct FleetBenchSettings {
    /// Pipelines of a fleet.
    pub pipelines: usize,
    /// Its devices.
    pub devices: u32,
    /// Seed of the first fleet.
    pub seed: u64,
    /// Fleets of each kind, with one seed after the other.
    pub fleets: u32,
    /// Limit of each search.
    pub limit: Duration,
}

/// The cells of a search.
fn cells(row: &FleetRow) -> [String; 7] {
    let shown = |value: Option<f64>| value.map_or_else(|| "none".to_owned(), number);
    [
        row.outcome.into(),
        row.step.map_or("", |step| step.name()).into(),
        shown(row.objective.value),
        shown(row.objective.bound),
        shown(row.objective.gap()),
        milliseconds(row.elapsed),
        if row.is_checked { "passed" } else { "no plan" }.into(),
    ]
}

/// Draws fleets, plans each, plans its next round from there, and prints a row for both.
///
/// # Errors
/// If the output cannot be written.
pub fn run(settings: &FleetBenchSettings) -> Result<(), Failure> {
    let mut table = TextTable::new(&["fleet", "seed", "round", "outcome", "step", "value", "bound", "gap", "ms", "check"]);
    let size = FleetSize { pipelines: settings.pipelines, devices: settings.devices };
    for kind in FleetKind::ALL {
        for seed in (settings.seed..).take(settings.fleets as usize) {
            let bar = spinner(&format!("planning a fleet, {}, seed {seed}", kind.name()));
            let (first, memory) = (fleet(kind, size, seed), FleetMemory::default());
            let next = next_round(&first, seed);
            for (round, problem) in [("first", &first), ("next", &next)] {
                let row = plan_fleet(problem, GAP, settings.limit, &memory, &wall_clock());
                let start = [kind.name().to_owned(), seed.to_string(), round.to_owned()];
                table.row(start.into_iter().chain(cells(&row)).collect());
            }
            bar.finish_and_clear();
        }
    }
    output::print(&table.text(""))
}
