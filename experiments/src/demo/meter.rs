//! How busy are this machine's processors, with the demo's processes and with other work?
//!
//! The figures come from `/proc` of Linux. Other systems have none.

use crate::live::waits::{numbers_in, thread_waits, total_gain};
use apportion_profiler::processor::thread_time;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// The use of processors in a period. 1.5 means one and a half processors all the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProcessorUse {
    /// Length of the period.
    pub seconds: f64,
    /// Processors of the machine.
    pub processors: f64,
    /// Used by the demo, its service and its agents.
    pub own: f64,
    /// Threads of the demo that waited for a processor, on average.
    pub waiting: f64,
    /// Used by other work, the host of a virtual machine included.
    pub others: f64,
}

impl ProcessorUse {
    /// The mean of several periods.
    pub fn mean(of: &[Self]) -> Option<Self> {
        let seconds: f64 = of.iter().map(|u| u.seconds).sum();
        let mean = |field: fn(&Self) -> f64| of.iter().map(|u| field(u) * u.seconds).sum::<f64>() / seconds;
        (seconds > 0.0).then(|| Self {
            seconds,
            processors: mean(|u| u.processors),
            own: mean(|u| u.own),
            waiting: mean(|u| u.waiting),
            others: mean(|u| u.others),
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
struct ProcessorTicks {
    processors: u32,
    /// Ticks in use.
    busy: u64,
    total: u64,
}

struct Reading {
    at: Instant,
    machine: ProcessorTicks,
    /// Ticks that each of the demo's processes has used, threads that have ended included.
    used: BTreeMap<u32, u64>,
    /// Nanoseconds that each of their threads has waited for a processor.
    waited: BTreeMap<u32, u64>,
}

/// Samples the use of the processors.
pub struct Meter {
    last: Option<Reading>,
    /// One entry for each period between two samples.
    pub seen: Vec<ProcessorUse>,
}

impl Meter {
    /// Starts with a first sample.
    pub fn start() -> Self {
        Self { last: Reading::now(), seen: Vec::new() }
    }

    /// Adds the period since the last sample.
    pub fn sample(&mut self) {
        let Some(now) = Reading::now() else { return };
        if let Some(of) = self.last.as_ref().and_then(|last| now.since(last)) {
            self.seen.push(of);
        }
        self.last = Some(now);
    }

    /// Samples again and returns the mean of all periods.
    pub fn mean(mut self) -> Option<ProcessorUse> {
        self.sample();
        ProcessorUse::mean(&self.seen)
    }
}

impl Reading {
    fn now() -> Option<Self> {
        let machine = ProcessorTicks::parse(&std::fs::read_to_string("/proc/stat").ok()?)?;
        let (mut used, mut waited) = (BTreeMap::new(), BTreeMap::new());
        for process in descendants(std::process::id(), &parents_of_processes()) {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
            used.extend(stat.ok().and_then(|text| process_ticks(&text)).map(|ticks| (process, ticks)));
            waited.extend(thread_waits(process, |_| true));
        }
        Some(Self { at: Instant::now(), machine, used, waited })
    }

    fn since(&self, before: &Self) -> Option<ProcessorUse> {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let total = self.machine.total.checked_sub(before.machine.total).filter(|total| *total > 0)?;
        let processors = f64::from(self.machine.processors);
        let busy = processors * self.machine.busy.saturating_sub(before.machine.busy) as f64 / total as f64;
        let own = processors * total_gain(&self.used, &before.used) as f64 / total as f64;
        let own = own.min(busy);
        let waiting = total_gain(&self.waited, &before.waited) as f64 / 1e9 / seconds;
        Some(ProcessorUse { seconds, processors, own, waiting, others: busy - own })
    }
}

impl ProcessorTicks {
    /// From `/proc/stat`.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let fields: Vec<u64> =
            lines.next()?.strip_prefix("cpu ")?.split_whitespace().filter_map(|f| f.parse().ok()).collect();
        let is_processor =
            |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let processors = lines.filter(is_processor).count() as u32;
        // user nice system idle iowait irq softirq steal; guest time is in user already
        let total: u64 = fields.iter().take(8).sum();
        let idle = fields.get(3)? + fields.get(4)?;
        (processors > 0).then(|| Self { processors, busy: total - idle, total })
    }
}

/// Ticks of user and system time from a process's `stat`; its name, in parentheses, may hold anything.
fn process_ticks(text: &str) -> Option<u64> {
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11).map(str::parse::<u64>);
    Some(fields.next()?.ok()? + fields.next()?.ok()?)
}

/// The parent from a process's `stat`; its name, in parentheses, may hold anything.
fn parent_of_process(text: &str) -> Option<u32> {
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The parent of each process.
fn parents_of_processes() -> BTreeMap<u32, u32> {
    let with_parent =
        |process: u32| Some((process, parent_of_process(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)?));
    numbers_in(Path::new("/proc")).into_iter().filter_map(with_parent).collect()
}

/// A process with its children, their children, and so on.
fn descendants(of: u32, parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut found = vec![of];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(parents.iter().filter(|&(&child, &p)| p == parent && child != of).map(|(&child, _)| child));
        at += 1;
    }
    found
}

/// The processors that the machine gives to a program that asks for all of them. An idle machine with two processors gives
/// two; with two other computing threads it gives one. `None` where the system has no figures.
pub fn given_processors(length: Duration) -> Option<f64> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let spin = || {
        let (begun, had) = (Instant::now(), thread_time()?);
        while begun.elapsed() < length {
            std::hint::spin_loop();
        }
        Some((thread_time()? - had).as_secs_f64() / begun.elapsed().as_secs_f64())
    };
    std::thread::scope(|scope| {
        let spinning: Vec<_> = (0..threads).map(|_| scope.spawn(spin)).collect();
        spinning.into_iter().map(|thread| thread.join().ok().flatten()).sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_needs::{Need, need};

    #[test]
    fn steal_counts_as_other_work() {
        let text = "cpu  100 10 20 500 50 1 2 30 7 0\ncpu0 1 2\ncpu1 3 4\nintr 5\n";
        assert_eq!(ProcessorTicks::parse(text), Some(ProcessorTicks { processors: 2, busy: 163, total: 713 }));
        for text in ["", "cpu  1 2 3", "intr 1\n", "cpu  1 1 1 1 1 1 1 1\n"] {
            assert_eq!(ProcessorTicks::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_process_name_may_hold_anything() {
        assert_eq!(parent_of_process("71 (a) b (c)) S 7 71 71"), Some(7));
        assert_eq!(process_ticks("71 (a) b (c)) S 7 71 71 0 -1 4 1 2 3 4 120 30 9 9"), Some(150));
        assert_eq!((parent_of_process("71"), process_ticks("71 (a) S 7")), (None, None));
    }

    #[test]
    fn descendants_are_children_of_any_depth() {
        assert_eq!(descendants(2, &[(1, 0), (2, 1), (3, 2), (4, 3), (5, 1), (6, 2)].into()), [2, 3, 6, 4]);
        assert_eq!(descendants(1, &[(1, 1)].into()), [1], "one that is its own parent is counted once");
    }

    #[test]
    fn other_work_is_the_rest_of_the_busy_time() {
        let reading = |at, busy, total, used: &[(u32, u64)], waited: &[(u32, u64)]| Reading {
            at,
            machine: ProcessorTicks { processors: 2, busy, total },
            used: used.iter().copied().collect(),
            waited: waited.iter().copied().collect(),
        };
        let begin = Instant::now();
        let before = reading(begin, 1_000, 4_000, &[(1, 500)], &[(1, 1_000_000_000)]);
        let after = begin + Duration::from_secs(1);
        let now = reading(after, 1_150, 4_200, &[(1, 550), (2, 25)], &[(1, 1_200_000_000), (2, 0)]);
        let now = now.since(&before).expect("time has passed");
        let ProcessorUse { seconds, processors, own, waiting, others } = now;
        assert_eq!((seconds, processors), (1.0, 2.0));
        assert!((own - 0.75).abs() < 1e-9 && (waiting - 0.2).abs() < 1e-9 && (others - 0.75).abs() < 1e-9, "{now:?}");
    }

    #[test]
    fn a_long_period_counts_more_than_a_short_one() {
        let of = |seconds, own| ProcessorUse { seconds, processors: 2.0, own, waiting: 0.0, others: 0.0 };
        assert_eq!(ProcessorUse::mean(&[of(1.0, 2.0), of(3.0, 0.0)]), Some(of(4.0, 0.5)));
        assert_eq!(ProcessorUse::mean(&[]), None);
    }

    #[test]
    fn a_spinning_program_counts_as_own_work() {
        let mut meter = Meter::start();
        let free = given_processors(Duration::from_millis(300)).ok_or("the processor times of this program are not told");
        meter.sample();
        let seen = meter.seen.first().ok_or("/proc/stat is not there");
        let Some((free, seen)) = need(Need::ProcessorTimes, free.and_then(|free| Ok((free, seen?)))) else { return };
        assert!(free > 0.0 && free <= seen.processors * 1.1, "{free} of {seen:?}");
        assert!(seen.own > 0.3 * free, "{seen:?} while {free} were given");
    }
}
