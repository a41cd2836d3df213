//! When is the next request due, and how does a thread sleep until then?

use std::time::{Duration, Instant};

/// Shortest sleep. A request that is due sooner is sent at once. Sleeps end late by some tens of microseconds, so at high
/// rates a few requests still come together.
const SLEEP_MIN: Duration = Duration::from_micros(5);

/// How long to sleep before the request of this number is due, if that is worth it.
pub(super) fn early(number: u64, rate: f64, begun: Instant) -> Option<Duration> {
    let due = Duration::from_secs_f64(number as f64 / rate);
    Some(due.saturating_sub(begun.elapsed())).filter(|early| *early > SLEEP_MIN)
}

/// Lets this thread's sleeps end when they should: the kernel adds 50 us otherwise, and requests would come in bunches.
pub(super) fn sleep_sharply() -> std::io::Result<()> {
    let thread = std::fs::read_link("/proc/thread-self")?;
    let number = thread.file_name().unwrap_or_default();
    std::fs::write(std::path::Path::new("/proc").join(number).join("timerslack_ns"), "1")
}
