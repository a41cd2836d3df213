//! How many task visits per second does the simulation make?

use super::chain::{self, RunSpeed};
use super::clock::cpu_seconds;
use apportion_domain::ServingPolicy;
use apportion_support::exit::Failure;
use apportion_support::input::read_trace;
use apportion_support::output::{self, TextTable, number};

pub use super::chain::SECONDS;

/// Measures each policy for `seconds` of simulated time and prints a table.
///
/// # Errors
/// If the file of arrivals cannot be written or read.
pub fn run(seconds: u64) -> Result<(), Failure> {
    let mut table = TextTable::new(&["policies", "visits", "CPU s", "million visits / CPU s", "attainment"]);
    let mut row = |name: &str, speed: RunSpeed| {
        let rate = number(speed.visits_per_second() / 1e6);
        let row = [name.to_owned(), speed.visits.to_string(), number(speed.seconds), rate, number(speed.attainment)];
        table.row(row.into());
    };
    for (name, serving) in chain::ROWS {
        row(name, chain::visits_per_second(serving, seconds, cpu_seconds));
    }
    let (name, serving) = chain::ROWS[0];
    row(&format!("{name}, arrivals read from CSV"), from_csv(serving, seconds)?);
    output::print(&table.text(""))
}

/// The same arrivals from a file. The time to read it counts.
fn from_csv(serving: ServingPolicy, seconds: u64) -> Result<RunSpeed, Failure> {
    let file = std::env::temp_dir().join(format!("apportion-bench-{}.csv", std::process::id()));
    let name = file.to_string_lossy().into_owned();
    output::write_file(&name, |out| apportion_wire::write_trace(&chain::arrivals(seconds), out))?;
    let speed = chain::visits_per_second_of(serving, || read_trace(&name, None), cpu_seconds);
    // The system removes files of its temporary folder.
    let _ = std::fs::remove_file(&file);
    speed
}
