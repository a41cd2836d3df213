//! Prints task visits per second of one core, by policies: `cargo run --release -p apportion-estimator --example speed [SECONDS [POLICIES]]`.
#![allow(clippy::print_stdout)]

use apportion_estimator::bench::{ROWS, SECONDS, visits_per_second};
use std::time::Duration;

/// CPU time of this process in seconds, as Linux reports it (in ticks of 10 ms).
fn cpu_seconds() -> f64 {
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may hold spaces; utime and stime are the 12th and 13th fields after it.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u32 = after.split_whitespace().skip(11).take(2).filter_map(|f| f.parse::<u32>().ok()).sum();
    (TICK * ticks).as_secs_f64()
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(SECONDS);
    let only = std::env::args().nth(2);
    for (name, serving) in ROWS.into_iter().filter(|r| only.as_deref().is_none_or(|o| o == r.0)) {
        let speed = visits_per_second(serving, seconds, cpu_seconds);
        let millions = speed.visits_per_second() / 1e6;
        println!("{name}: {millions:.1} million visits/s, {} visits, attainment {}", speed.visits, speed.attainment);
    }
}
