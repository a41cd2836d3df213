//! Which clocks do benchmarks read?

use apportion_support::output::number;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A clock that starts now.
pub fn wall_clock() -> Arc<dyn Fn() -> Duration + Send + Sync> {
    let start = Instant::now();
    Arc::new(move || start.elapsed())
}

/// Processor time of this process in seconds, from `/proc`; wall-clock time on systems without it.
pub fn cpu_seconds() -> f64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let wall = START.get_or_init(Instant::now).elapsed().as_secs_f64();
    let schedule = std::fs::read_to_string("/proc/self/schedstat").ok();
    let nanos = schedule.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    nanos.map_or(wall, |n| n / 1e9)
}

/// A time in milliseconds, for a table.
pub fn milliseconds(time: Duration) -> String {
    number(time.as_secs_f64() * 1e3)
}
