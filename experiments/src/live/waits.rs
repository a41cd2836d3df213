//! How long have threads waited for a processor?
//!
//! The figures come from `/proc` of Linux. Other systems have none.

use std::collections::BTreeMap;
use std::path::Path;

/// Nanoseconds of waiting from a thread's `schedstat`, which has its run time, its waiting time, and how often it ran.
fn waited_ns(text: &str) -> Option<u64> {
    let fields: Vec<u64> = text.split_whitespace().map(|field| field.parse().ok()).collect::<Option<_>>()?;
    match fields.as_slice() {
        [_, waited, _] => Some(*waited),
        _ => None,
    }
}

/// The entries of a folder that are numbers.
pub fn numbers_in(folder: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Nanoseconds that each thread of a process has waited, by the thread's number. Only threads count whose names
/// `is_counted` accepts. Threads that have ended are not there.
pub fn thread_waits(process: u32, is_counted: impl Fn(&str) -> bool) -> BTreeMap<u32, u64> {
    let waited = |thread: u32| {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{process}/task/{thread}/{file}")).ok();
        let name = read("comm")?;
        if !is_counted(name.trim_end()) {
            return None;
        }
        Some((thread, waited_ns(&read("schedstat")?)?))
    };
    numbers_in(Path::new(&format!("/proc/{process}/task"))).into_iter().filter_map(waited).collect()
}

/// The sum of the gains of all counters. A number that is used again begins at 0.
pub fn total_gain(now: &BTreeMap<u32, u64>, before: &BTreeMap<u32, u64>) -> u64 {
    now.iter().map(|(id, now)| now.saturating_sub(before.get(id).copied().unwrap_or(0))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_needs::{Need, need};
    use apportion_profiler::processor::thread_time;
    use std::sync::mpsc;

    #[test]
    fn the_second_number_is_the_waiting_time() {
        assert_eq!(waited_ns("5 6 7\n"), Some(6));
        for text in ["", "5", "5 6", "5 6 7 8", "5 x 7", "5 -6 7", "5 6.5 7", "5 99999999999999999999 7"] {
            assert_eq!(waited_ns(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_gain_is_never_below_zero() {
        let before = [(1, 100), (2, 900)].into();
        assert_eq!(total_gain(&[(1, 150), (2, 30), (3, 7)].into(), &before), 57);
        assert_eq!(total_gain(&BTreeMap::new(), &before), 0);
    }

    #[test]
    fn threads_are_chosen_by_their_names() {
        let here = thread_time().ok_or("/proc/thread-self/schedstat is not there");
        let Some(_here) = need(Need::ProcessorTimes, here) else { return };
        let (begun, begins) = mpsc::channel();
        let (ends, ended) = mpsc::channel::<()>();
        let waits = move || {
            begun.send(()).expect("the test listens");
            ended.recv().expect_err("the test ends it");
        };
        let thread = std::thread::Builder::new().name("waits-test".to_owned()).spawn(waits).expect("a thread");
        begins.recv().expect("it begins");
        let own = std::process::id();
        assert_eq!(thread_waits(own, |name| name == "waits-test").len(), 1);
        assert!(thread_waits(own, |_| true).len() > 1);
        assert!(thread_waits(own, |_| false).is_empty());
        assert!(thread_waits(u32::MAX, |_| true).is_empty(), "no such process");
        drop(ends);
        thread.join().expect("it ends");
    }
}
