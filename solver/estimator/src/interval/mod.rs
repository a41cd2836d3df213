//! Between which values does an attainment lie, judged by independent runs?
//!
//! Requests of one run are no independent trials: one full queue makes many of them late together. So a run counts as one
//! cluster. The interval is Korn and Graubard's ("Confidence intervals for proportions with small expected number of
//! positive counts estimated from survey data", Survey Methodology 24, 1998). It is Clopper and Pearson's exact interval
//! for as many independent requests as the runs are worth. A Student interval over the runs' attainments would be too
//! narrow near 1, and of width 0 where no run misses.

mod special;

use special::{beta_quantile, student_quantile};

/// Degrees of freedom that stand for infinitely many.
const MANY: f64 = 1e6;

/// The requests of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCount {
    /// Requests that arrived.
    pub requests: u64,
    /// Those of them that were late, dropped or failed.
    pub missed: u64,
}

/// An attainment with its interval, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttainmentInterval {
    /// Requests answered in time over all requests of all runs; 1 without requests.
    pub attainment: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Probability that an interval does not contain the expected attainment.
const ERROR: f64 = 0.05;
/// Requests that miss come in groups: a queue that is too long stays too long for several SLOs. So the requests within this
/// many SLOs count as one at most. With one SLO, a queue at 90 % of its capacity is promised too much in 17 % of the cases.
const GROUP_SLOS: f64 = 4.0;

/// The error of a look at the runs, from 1: half of 5 % for the first look, a quarter for the second, and so on. So the
/// interval of the last look is right with 95 %, whichever look is the last (Bonferroni's inequality).
#[must_use]
pub fn error_of_look(look: i32) -> f64 {
    ERROR * 0.5_f64.powi(look)
}

/// The largest number of independent requests in a time of so many SLOs.
#[must_use]
pub fn independent_max(slos: f64) -> f64 {
    slos / GROUP_SLOS
}

/// The interval that contains the expected attainment with probability `1 - error`. Each end fails with half the error.
///
/// `independent_max` is the largest number of independent requests that the runs can be worth. It matters where few
/// requests miss, because the runs then do not show how requests miss together. Without two runs the interval is 0 to 1.
#[must_use]
pub fn attainment_interval(runs: &[RunCount], independent_max: f64, error: f64) -> AttainmentInterval {
    interval_after(runs, 1.0, independent_max, error)
}

/// The interval that `times` as many runs would give, if all were like these on average. It says whether more runs can
/// decide, and promises nothing. `independent_max` belongs to these runs.
#[must_use]
pub fn interval_after(runs: &[RunCount], times: f64, independent_max: f64, error: f64) -> AttainmentInterval {
    let requests: f64 = runs.iter().map(|run| run.requests as f64).sum();
    let missed: f64 = runs.iter().map(|run| run.missed as f64).sum();
    let share = if requests > 0.0 { missed / requests } else { 0.0 };
    if runs.len() < 2 || requests <= 0.0 {
        return AttainmentInterval { attainment: 1.0 - share, low: 0.0, high: 1.0 };
    }
    let count = runs.len() as f64;
    let deviation = |run: &RunCount| (run.missed as f64 - share * run.requests as f64).powi(2);
    // The variance of a ratio of two sums over runs, by its linear part.
    let variance = count / (count - 1.0) * runs.iter().map(deviation).sum::<f64>() / (requests * requests);
    let shown = if variance > 0.0 { share * (1.0 - share) / variance } else { f64::INFINITY };
    let tail = 0.5 * error;
    let few_runs = student_quantile(tail, MANY) / student_quantile(tail, times * count - 1.0);
    let worth = times * shown.min(requests).min(independent_max) * few_runs * few_runs;
    let missed = share * worth;
    let miss_low = if missed <= 0.0 { 0.0 } else { beta_quantile(tail, missed, worth - missed + 1.0) };
    let miss_high = if missed >= worth { 1.0 } else { beta_quantile(1.0 - tail, missed + 1.0, worth - missed) };
    AttainmentInterval { attainment: 1.0 - share, low: 1.0 - miss_high, high: 1.0 - miss_low }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::RandomStream;

    /// Runs of independent requests.
    fn bernoulli(stream: &mut RandomStream, runs: usize, requests: u64, share: f64) -> Vec<RunCount> {
        let mut one = || {
            let missed = (0..requests).filter(|_| stream.positive() <= share).count() as u64;
            RunCount { requests, missed }
        };
        (0..runs).map(|_| one()).collect()
    }

    /// Runs of a queue with one server, exponential gaps of mean `1 / load` and exponential service of mean 1. A request
    /// misses if it stays longer than `slo`. The first request of a run meets a queue in its stationary state. So the share
    /// of requests that miss is `exp(-(1 - load) * slo)` (M/M/1, for example Kleinrock, "Queueing Systems", volume 1).
    fn queue(stream: &mut RandomStream, runs: usize, length: f64, load: f64, slo: f64) -> Vec<RunCount> {
        let mut one = || {
            let mut run = RunCount::default();
            let mut now = stream.exponential() / load;
            // The work found by the first request: none with probability `1 - load`, else exponential.
            let mut work = if stream.positive() <= load { stream.exponential() / (1.0 - load) } else { 0.0 };
            while now < length {
                work += stream.exponential();
                run.requests += 1;
                run.missed += u64::from(work > slo);
                let gap = stream.exponential() / load;
                work = (work - gap).max(0.0);
                now += gap;
            }
            run
        };
        (0..runs).map(|_| one()).collect()
    }

    /// How often the true attainment is below the lower end, and above the upper end.
    fn failures(trials: usize, attainment: f64, mut interval: impl FnMut() -> AttainmentInterval) -> (f64, f64) {
        let (mut below, mut above) = (0, 0);
        for _ in 0..trials {
            let AttainmentInterval { low, high, .. } = interval();
            below += usize::from(attainment < low);
            above += usize::from(attainment > high);
        }
        (below as f64 / trials as f64, above as f64 / trials as f64)
    }

    #[test]
    fn equal_runs_give_clopper_and_pearsons_interval() {
        // 5 of 100 with infinitely many runs: 0.0164 to 0.1128 (the usual table).
        let runs: Vec<RunCount> = (0..100_000).map(|_| RunCount { requests: 20, missed: 1 }).collect();
        let AttainmentInterval { attainment, low, high } = attainment_interval(&runs, 100.0, 0.05);
        assert!((attainment - 0.95).abs() < 1e-12, "{attainment}");
        assert!((1.0 - high - 0.0164).abs() < 1e-4 && (1.0 - low - 0.1128).abs() < 1e-4, "{low} to {high}");
    }

    #[test]
    fn little_is_known_without_two_runs_or_requests() {
        let one = RunCount { requests: 1000, missed: 0 };
        for runs in [vec![], vec![one], vec![RunCount::default(); 5]] {
            let known = attainment_interval(&runs, 1e9, 0.05);
            assert_eq!(known, AttainmentInterval { attainment: 1.0, low: 0.0, high: 1.0 }, "{runs:?}");
        }
        let all_missed = attainment_interval(&[RunCount { requests: 1000, missed: 1000 }; 8], 1e9, 0.05);
        assert!(all_missed.low == 0.0 && all_missed.high < 0.02, "{all_missed:?}");
    }

    #[test]
    fn runs_that_differ_widen_the_interval() {
        let even = [RunCount { requests: 1000, missed: 10 }; 8];
        let mut uneven = [RunCount { requests: 1000, missed: 0 }; 8];
        uneven[3].missed = 80;
        let width = |runs: &[RunCount]| {
            let interval = attainment_interval(runs, f64::INFINITY, 0.05);
            assert!((interval.attainment - 0.99).abs() < 1e-12);
            interval.high - interval.low
        };
        assert!(width(&uneven) > 3.0 * width(&even), "{} {}", width(&uneven), width(&even));
    }

    #[test]
    fn more_runs_like_these_give_the_expected_interval() {
        let mut uneven = [RunCount { requests: 1000, missed: 4 }; 8];
        uneven[3].missed = 30;
        let four_times: Vec<RunCount> = (0..32).map(|at| uneven[at % 8]).collect();
        let projected = interval_after(&uneven, 4.0, 900.0, 0.05);
        let measured = attainment_interval(&four_times, 3600.0, 0.05);
        // The variance of 32 runs is estimated with 31 degrees of freedom, that of 8 with 7.
        assert!((projected.low - measured.low).abs() < 1e-3 && (projected.high - measured.high).abs() < 1e-3);
        assert!(projected.low > attainment_interval(&uneven, 900.0, 0.05).low + 1e-3, "{projected:?}");
    }

    #[test]
    fn the_interval_covers_independent_requests() {
        let mut stream = RandomStream::new(11, "coverage/bernoulli");
        for (runs, requests, share) in [(8, 500, 0.01), (8, 2000, 0.001), (3, 1000, 0.05), (16, 100, 0.01), (8, 50, 0.4)] {
            let worth = runs as f64 * requests as f64;
            let (below, above) = failures(1500, 1.0 - share, || {
                attainment_interval(&bernoulli(&mut stream, runs, requests, share), worth, 0.05)
            });
            // a failure rate of 0.025 has a standard error of 0.004 here
            assert!(below <= 0.037 && above <= 0.037, "{runs} x {requests} x {share}: {below} {above}");
        }
    }

    #[test]
    fn the_interval_covers_the_requests_of_a_queue() {
        let mut stream = RandomStream::new(12, "coverage/queue");
        let cases = [(0.5, 0.01, 16, 60.0), (0.8, 0.01, 8, 120.0), (0.9, 0.01, 16, 60.0), (0.9, 0.01, 64, 12.0)];
        for (load, share, runs, slos) in cases.into_iter().chain([(0.8, 0.05, 3, 240.0), (0.7, 0.002, 8, 120.0)]) {
            let slo = -f64::ln(share) / (1.0 - load);
            let (below, above) = failures(250, 1.0 - share, || {
                let runs = queue(&mut stream, runs, slos * slo, load, slo);
                attainment_interval(&runs, independent_max(slos * runs.len() as f64), 0.05)
            });
            // a failure rate of 0.025 has a standard error of 0.01 here
            assert!(below <= 0.05 && above <= 0.05, "load {load}, {runs} runs of {slos} SLOs: {below} {above}");
        }
    }

    #[test]
    fn one_request_an_slo_as_independent_would_promise_too_much() {
        let mut stream = RandomStream::new(13, "coverage/groups");
        let (load, share, slos) = (0.9, 0.01, 60.0);
        let slo = -f64::ln(share) / (1.0 - load);
        let (below, _) = failures(250, 1.0 - share, || {
            attainment_interval(&queue(&mut stream, 16, slos * slo, load, slo), 16.0 * slos, 0.05)
        });
        assert!(below > 0.08, "{below}");
    }

    #[test]
    fn looking_again_makes_no_false_promise() {
        // an attainment of 0.989 is asked to be 0.99
        let mut stream = RandomStream::new(14, "coverage/looks");
        let (load, share, slos) = (0.8, 0.011, 60.0);
        let slo = -f64::ln(share) / (1.0 - load);
        let trials = 250;
        let mut promised = 0;
        for _ in 0..trials {
            let mut runs = Vec::new();
            let holds = (1..=4).any(|look| {
                let more = (8 << (look - 1)) - runs.len();
                runs.extend(queue(&mut stream, more, slos * slo, load, slo));
                let groups = independent_max(slos * runs.len() as f64);
                attainment_interval(&runs, groups, error_of_look(look)).low >= 0.99
            });
            promised += usize::from(holds);
        }
        assert!(promised as f64 <= 0.05 * f64::from(trials), "{promised} of {trials}");
    }
}
