//! How much processor time did the calling thread have? Other work on the machine does not change it.

use std::time::Duration;

/// The processor time of the calling thread, in nanosecond steps; `None` if the system does not report it.
#[must_use]
pub fn thread_time() -> Option<Duration> {
    // The kernel updates the time of a running thread at its next tick. A yield updates it now.
    std::thread::yield_now();
    parse(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// The first number of a `schedstat` file. Kernels that do not count write 0.
fn parse(text: &str) -> Option<Duration> {
    let nanos: u64 = text.split_whitespace().next()?.parse().ok()?;
    (nanos > 0).then(|| Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_needs::{Need, need};
    use std::time::Instant;

    #[test]
    fn a_schedstat_file_begins_with_the_run_time() {
        assert_eq!(parse("104792 380416 2\n"), Some(Duration::from_nanos(104_792)));
        for text in ["", "0 0 0", "x 1 2"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn sleep_takes_no_processor_time() {
        let before = thread_time().ok_or("/proc/thread-self/schedstat is not there");
        let Some(before) = need(Need::ProcessorTimes, before) else { return };
        std::thread::sleep(Duration::from_millis(50));
        let slept = thread_time().expect("as before") - before;
        assert!(slept < Duration::from_millis(25), "{slept:?}");
        let begun = Instant::now();
        while thread_time().expect("as before") - before - slept < Duration::from_millis(20) {
            assert!(begun.elapsed() < Duration::from_secs(60), "a thread that spins gets processor time");
        }
        assert!(begun.elapsed() >= Duration::from_millis(19), "no more than the clock's");
    }
}
