//! `apportion bench estimator`.

use crate::exit::Failure;
use crate::input;
use crate::output::{self, Table, number};
use apportion_domain::ServingPolicy;
use apportion_estimator::bench::{self, Speed};
use std::time::Instant;

pub fn run(seconds: u64) -> Result<(), Failure> {
    let mut table = Table::new(&["policies", "visits", "CPU s", "million visits / CPU s", "attainment"]);
    let mut row = |name: &str, speed: Speed| {
        let rate = number(speed.visits_per_second() / 1e6);
        let row = [name.to_owned(), speed.visits.to_string(), number(speed.seconds), rate, number(speed.attainment)];
        table.row(row.into());
    };
    for (name, serving) in bench::ROWS {
        row(name, bench::visits_per_second(serving, seconds, cpu_seconds));
    }
    let (name, serving) = bench::ROWS[0];
    row(&format!("{name}, arrivals read from CSV"), from_csv(serving, seconds)?);
    output::print(&table.text(""))
}

/// The same arrivals out of a file, whose reading counts.
fn from_csv(serving: ServingPolicy, seconds: u64) -> Result<Speed, Failure> {
    let file = std::env::temp_dir().join(format!("apportion-bench-{}.csv", std::process::id()));
    let name = file.to_string_lossy().into_owned();
    output::write_file(&name, |out| apportion_wire::write_trace(&bench::arrivals(seconds), out))?;
    let speed = bench::visits_per_second_of(serving, || input::trace(&name, None), cpu_seconds);
    // What cannot be removed is the system's to remove.
    let _ = std::fs::remove_file(&file);
    speed
}

/// Processor time of this process, from `/proc`; wall-clock time where there is none.
fn cpu_seconds() -> f64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let wall = START.get_or_init(Instant::now).elapsed().as_secs_f64();
    let schedule = std::fs::read_to_string("/proc/self/schedstat").ok();
    let nanos = schedule.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    nanos.map_or(wall, |n| n / 1e9)
}
