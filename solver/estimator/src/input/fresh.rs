//! Which loads are like a given one, but drawn again?
//!
//! A trace of rates gets other arrivals by another seed. A recording of single arrivals happened once. Arrivals like it are
//! drawn from its rates and from the variation of its gaps.

use super::workload::{ArrivalProcess, Workload, draw};
use apportion_domain::{ArrivalTrace, Moment, Problem};
use std::collections::BTreeMap;

/// Seconds before and after a second whose arrivals count for its rate. The window of 5 s is that of InferLine's tuner
/// (section 5).
const RATE_REACH_SECONDS: u64 = 2;
/// Largest coefficient of variation of gaps. A larger one comes from single breaks of a recording.
const VARIATION_MAX: f64 = 8.0;
/// Nanoseconds in a second.
const NANOS: u64 = 1_000_000_000;

/// A load of which fresh samples are drawn.
#[derive(Clone, Debug)]
pub struct FreshLoad<'a> {
    workload: &'a Workload,
    /// By pipeline; `None` for a trace of rates.
    recordings: Vec<Option<RecordedRates>>,
}

/// What is kept of a recording.
#[derive(Clone, Debug)]
struct RecordedRates {
    rates: ArrivalTrace,
    gaps: ArrivalProcess,
}

impl<'a> FreshLoad<'a> {
    /// The load of which a workload is one sample.
    #[must_use]
    pub fn new(workload: &'a Workload) -> Self {
        let of_trace = |trace: &ArrivalTrace| match trace {
            ArrivalTrace::Rates(_) => None,
            ArrivalTrace::Arrivals(moments) => Some(RecordedRates::new(moments)),
        };
        Self { workload, recordings: workload.traces.iter().map(of_trace).collect() }
    }

    /// Whether any pipeline's arrivals are drawn from the rates of a recording.
    #[must_use]
    pub fn has_recordings(&self) -> bool {
        self.recordings.iter().any(Option::is_some)
    }

    /// The sample of this seed.
    #[must_use]
    pub fn sample(&self, problem: &Problem, seed: u64) -> Workload {
        let traces = self.workload.traces.iter().zip(&self.recordings).zip(&problem.pipelines);
        let drawn = |((trace, recording), p): ((&ArrivalTrace, &Option<RecordedRates>), &apportion_domain::Pipeline)| {
            match recording {
                None => trace.clone(),
                Some(RecordedRates { rates, gaps }) => ArrivalTrace::Arrivals(draw(rates, *gaps, seed, &p.name)),
            }
        };
        Workload { traces: traces.map(drawn).collect(), arrivals: self.workload.arrivals, seed }
    }
}

impl RecordedRates {
    fn new(moments: &[Moment]) -> Self {
        let rows = rates_of(moments);
        let gaps = ArrivalProcess::Gamma(variation(moments, &rows));
        Self { rates: ArrivalTrace::Rates(rows), gaps }
    }
}

/// The rate of each second: the mean over the seconds around it.
fn rates_of(moments: &[Moment]) -> Vec<(u64, f64)> {
    let second = |m: &Moment| m.as_nanos() / NANOS;
    let (Some(first), Some(last)) = (moments.first().map(second), moments.last().map(second)) else { return Vec::new() };
    let mut counts: BTreeMap<u64, f64> = BTreeMap::new();
    for moment in moments {
        let at = second(moment);
        for near in at.saturating_sub(RATE_REACH_SECONDS).max(first)..=(at + RATE_REACH_SECONDS).min(last) {
            *counts.entry(near).or_default() += 1.0;
        }
    }
    let seconds_near = |s: u64| (s + RATE_REACH_SECONDS).min(last) - s.saturating_sub(RATE_REACH_SECONDS).max(first) + 1;
    counts.into_iter().map(|(s, count)| (s, count / seconds_near(s) as f64)).collect()
}

/// The coefficient of variation of the gaps, measured in expected arrivals, so that changes of the rate do not count.
fn variation(moments: &[Moment], rates: &[(u64, f64)]) -> f64 {
    let mut expected = 0.0;
    let mut row = 0;
    let mut gaps = Vec::with_capacity(moments.len());
    let mut before = None;
    for moment in moments {
        let (second, into) = (moment.as_nanos() / NANOS, (moment.as_nanos() % NANOS) as f64 / NANOS as f64);
        while rates[row].0 < second {
            expected += rates[row].1;
            row += 1;
        }
        let now = expected + rates[row].1 * into;
        gaps.extend(before.map(|before: f64| now - before));
        before = Some(now);
    }
    let n = gaps.len() as f64;
    let mean = gaps.iter().sum::<f64>() / n;
    // a recording of few arrivals shows nothing about its gaps
    if gaps.len() < 2 || mean <= 0.0 {
        return 1.0;
    }
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (variance.sqrt() / mean).min(VARIATION_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(rows: &[(u64, f64)], process: ArrivalProcess) -> Vec<Moment> {
        draw(&ArrivalTrace::Rates(rows.to_vec()), process, 5, "recorded")
    }

    #[test]
    fn a_recordings_like_has_its_rates_and_its_variation() {
        let rows: Vec<_> = (0..400).map(|s| (s, if s / 100 % 2 == 0 { 40.0 } else { 120.0 })).collect();
        for (process, expected) in
            [(ArrivalProcess::Poisson, 1.0), (ArrivalProcess::Gamma(2.5), 2.5), (ArrivalProcess::Uniform, 0.0)]
        {
            let moments = recorded(&rows, process);
            let RecordedRates { rates: ArrivalTrace::Rates(rates), gaps: ArrivalProcess::Gamma(cv) } =
                RecordedRates::new(&moments)
            else {
                panic!("rates and gaps")
            };
            assert!((cv - expected).abs() < 0.15 * expected.max(1.0), "{process:?}: {cv}");
            let total: f64 = rates.iter().map(|r| r.1).sum();
            assert!((total / moments.len() as f64 - 1.0).abs() < 0.01, "{process:?}: {total} of {}", moments.len());
            let mean = |from: usize| rates[from..from + 90].iter().map(|r| r.1).sum::<f64>() / 90.0;
            assert!(mean(5) < 60.0 && mean(105) > 100.0, "{process:?}: {} {}", mean(5), mean(105));
        }
    }

    #[test]
    fn samples_of_a_recording_differ_by_their_seed() {
        let moments = recorded(&[(3, 50.0), (4, 50.0), (900, 20.0)], ArrivalProcess::Poisson);
        let rates = RecordedRates::new(&moments);
        let drawn = |seed| draw(&rates.rates, rates.gaps, seed, "p");
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        let ArrivalTrace::Rates(rows) = &rates.rates else { panic!("rates") };
        assert!(rows.len() < 20, "long breaks take no rows: {}", rows.len());
    }

    #[test]
    fn few_arrivals_count_as_poisson() {
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        for moments in [vec![at(7)], vec![at(7), at(9)], vec![at(7); 5]] {
            let rates = RecordedRates::new(&moments);
            assert_eq!(rates.gaps, ArrivalProcess::Gamma(1.0), "{moments:?}");
        }
    }
}
