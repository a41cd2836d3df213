//! Which requests of a simulated run were in time, on a fallback, late or dropped, over time?

use super::load::seconds_of;
use apportion_domain::{ArrivalTrace, Problem, TimeSpan};
use apportion_estimator::{Replay, RequestClasses, Simulation};
use apportion_wire::{SimulatedClassesFile, SimulatedSeriesFile};

/// Most windows of a series: more than a chart has pixels to show apart.
pub const SERIES_WINDOWS_MAX: u32 = 1_000;
/// Nanoseconds of a second.
const NANOS: u64 = 1_000_000_000;

/// The windows of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeriesWindows {
    /// The length of each, in seconds.
    length_s: u64,
    /// Their number.
    count: usize,
}

impl SeriesWindows {
    /// At most `windows_max` windows over the longest of these traces. Their length is the shortest of 1, 2, 5, 10, 20,
    /// 50, ... seconds that is long enough.
    pub(super) fn over(traces: &[ArrivalTrace], windows_max: u32) -> Self {
        let seconds = traces.iter().map(seconds_of).max().unwrap_or(1);
        // An arrival at the very end of a trace begins one window more.
        let count = |length_s: u64| seconds / length_s + 1;
        let mut scale = 1_u64;
        loop {
            let lengths = [1_u64, 2, 5].map(|step| step.saturating_mul(scale));
            if let Some(length_s) = lengths.into_iter().find(|length_s| count(*length_s) <= u64::from(windows_max.max(1))) {
                return Self { length_s, count: usize::try_from(seconds.div_ceil(length_s)).unwrap_or(1) };
            }
            scale = scale.saturating_mul(10);
        }
    }

    /// The length of each.
    pub(super) fn length(self) -> TimeSpan {
        TimeSpan::from_nanos(self.length_s.saturating_mul(NANOS))
    }

    /// The series of a run with these windows, and the replicas of its replay if replicas could change.
    pub(super) fn file(self, problem: &Problem, simulation: &Simulation, replay: Option<&Replay>) -> SimulatedSeriesFile {
        let longest = simulation.classes.iter().map(Vec::len).max().unwrap_or(0);
        let count = self.count.max(longest);
        let pipelines = problem.pipelines.iter().zip(&simulation.classes);
        SimulatedSeriesFile {
            window_s: self.length_s,
            pipelines: pipelines.map(|(pipeline, classes)| classes_file(&pipeline.name, classes, count)).collect(),
            replicas: replay.map_or_else(Vec::new, |replay| self.replicas(replay, count)),
        }
    }

    /// The mean number of replicas that serve in each window. After the end of the run, it is that of the last window.
    fn replicas(self, replay: &Replay, count: usize) -> Vec<f64> {
        let length = self.length().as_nanos().max(1);
        let mut sums = vec![WeightedSum::default(); count];
        for window in &replay.windows {
            let end = (window.start + window.length).as_nanos();
            let mut at = window.start.as_nanos();
            while at < end {
                let number = at / length;
                let Some(sum) = usize::try_from(number).ok().and_then(|number| sums.get_mut(number)) else { break };
                let until = end.min((number + 1).saturating_mul(length));
                sum.add(window.replicas, (until - at) as f64);
                at = until;
            }
        }
        let mut last = 0.0;
        let mean = |sum: &WeightedSum| {
            last = sum.mean().unwrap_or(last);
            last
        };
        sums.iter().map(mean).collect()
    }
}

/// A sum of values by their weights.
#[derive(Clone, Copy, Debug, Default)]
struct WeightedSum {
    sum: f64,
    weight: f64,
}

impl WeightedSum {
    fn add(&mut self, value: f64, weight: f64) {
        self.sum += value * weight;
        self.weight += weight;
    }

    fn mean(self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

/// The classes of one pipeline in `count` windows. Windows after its last arrival are empty.
fn classes_file(name: &str, classes: &[RequestClasses], count: usize) -> SimulatedClassesFile {
    let list = |of: fn(&RequestClasses) -> u64| {
        let mut list: Vec<u64> = classes.iter().map(of).collect();
        list.resize(count, 0);
        list
    };
    SimulatedClassesFile {
        name: name.to_owned(),
        arrived: list(|window| window.arrived),
        ok: list(|window| window.ok),
        fallback: list(|window| window.fallback),
        late: list(|window| window.late),
        dropped: list(|window| window.dropped),
        failed: list(|window| window.failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_domain::Moment;

    fn rates(seconds: u64) -> ArrivalTrace {
        ArrivalTrace::rates((0..seconds).map(|second| (second, 1.0)).collect()).expect("rates")
    }

    #[test]
    fn windows_have_round_lengths_within_the_bound() {
        for (seconds, windows_max, length_s, count) in [
            (60, 61, 1, 60),
            (60, 60, 2, 30),
            (3_600, 300, 20, 180),
            (86_400, 1_000, 100, 864),
            (7, 1, 10, 1),
            (1, 1, 2, 1),
        ] {
            let found = SeriesWindows::over(&[rates(seconds), rates(1)], windows_max);
            assert_eq!(found, SeriesWindows { length_s, count }, "{seconds} s in {windows_max} windows");
        }
    }

    #[test]
    fn an_arrival_at_the_end_stays_within_the_bound() {
        let last = Moment::from_nanos(60 * NANOS);
        let trace = ArrivalTrace::arrivals(vec![Moment::ZERO, last]).expect("arrivals in order");
        let windows = SeriesWindows::over(&[trace], 60);
        assert!(last.as_nanos() / windows.length().as_nanos() < 60, "{windows:?}");
    }

    #[test]
    fn weights_decide_the_mean() {
        let mut sum = WeightedSum::default();
        assert_eq!(sum.mean(), None);
        sum.add(2.0, 3.0);
        sum.add(6.0, 1.0);
        assert_eq!(sum.mean(), Some(3.0));
    }
}
