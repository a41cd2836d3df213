//! `apportion bench estimator`.

use crate::exit::Failure;
use crate::output::{self, Table, number};
use std::time::Instant;

pub fn run(seconds: u64) -> Result<(), Failure> {
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
