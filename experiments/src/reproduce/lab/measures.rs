//! Which measures do comparisons report? Those of PARD's evaluation (section 5.1), and means and quantiles.

use apportion_domain::{Estimate, TimeSpan, nearest_rank};
use apportion_estimator::{RequestOutcome, RequestRecord};

/// Counts of requests by the second of their arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seconds {
    /// Requests that arrived.
    pub offered: Vec<u64>,
    /// Requests that were answered within the SLO.
    pub ok: Vec<u64>,
}

impl Seconds {
    /// Counts the records by second.
    pub fn of(records: &[RequestRecord]) -> Self {
        const NANOS: u64 = 1_000_000_000;
        let mut seconds = Self::default();
        for r in records {
            let second = (r.arrival.as_nanos() / NANOS) as usize;
            if seconds.offered.len() <= second {
                seconds.offered.resize(second + 1, 0);
                seconds.ok.resize(second + 1, 0);
            }
            seconds.offered[second] += 1;
            seconds.ok[second] += u64::from(r.outcome == RequestOutcome::Ok);
        }
        seconds
    }

    /// The seconds that require dropping. A second does so if it offers more than `capacity_qps`, or if one of the `after`
    /// seconds before it does, while queues drain.
    pub fn overloaded(&self, capacity_qps: f64, after: usize) -> Vec<bool> {
        let above = |s: usize| self.offered[s] as f64 > capacity_qps;
        (0..self.offered.len()).map(|s| (s.saturating_sub(after)..=s).any(above)).collect()
    }

    /// Requests answered in time per second, over the marked seconds; `None` without a marked second.
    pub fn goodput_qps(&self, marked: &[bool]) -> Option<f64> {
        let chosen = || self.ok.iter().zip(marked).filter(|(_, m)| **m).map(|(ok, _)| *ok);
        let n = chosen().count();
        (n > 0).then(|| chosen().sum::<u64>() as f64 / n as f64)
    }
}

/// Share of the requests that were dropped, failed or late.
pub fn drop_rate(e: &Estimate) -> f64 {
    if e.requests == 0 { 0.0 } else { 1.0 - e.ok as f64 / e.requests as f64 }
}

/// Share of the device time spent on requests that were not answered in time. It holds for pipelines in which every request
/// visits every task exactly once. A query is charged its task's mean time of a batch over its mean size.
pub fn invalid_rate(e: &Estimate) -> f64 {
    let per_query = |w: &apportion_domain::TaskWaiting| if w.batch > 0.0 { w.service_ms / w.batch } else { 0.0 };
    let all: f64 = e.waiting.iter().map(|w| w.queries as f64 * per_query(w)).sum();
    let useful: f64 = e.waiting.iter().map(|w| e.ok as f64 * per_query(w)).sum();
    if all > 0.0 { (1.0 - useful / all).max(0.0) } else { 0.0 }
}

/// The value below which a share `q` of the values lies (nearest rank); 0 without values.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    nearest_rank(&sorted, q).unwrap_or(0.0)
}

/// The mean of some values; 0 of none.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The mean of some times, in ms; 0 without any.
pub fn mean_ms(spans: impl Iterator<Item = TimeSpan>) -> f64 {
    let (sum, n) = spans.fold((0.0, 0_u64), |(sum, n), span| (sum + span.as_millis(), n + 1));
    sum / n.max(1) as f64
}

/// Variance of the values as a population; 0 without values.
pub fn variance(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n
}

/// The geometric mean of the positive ratios; `None` without any.
pub fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let logs: Vec<f64> = ratios.iter().filter(|r| **r > 0.0).map(|r| r.ln()).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// A mean with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval; infinite for a single value.
    pub half: f64,
}

/// The mean of some values and its 95 % interval, by Student's t.
pub fn interval(values: &[f64]) -> Interval {
    let n = values.len() as f64;
    if values.is_empty() {
        return Interval { mean: 0.0, half: 0.0 };
    }
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return Interval { mean, half: f64::INFINITY };
    }
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    // quantiles of Student's t at 97.5 % for 1, 2, ... degrees of freedom
    const STUDENT: [f64; 10] = [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let t = STUDENT.get(values.len() - 2).copied().unwrap_or(1.96 + 2.5 / (n - 1.0));
    Interval { mean, half: t * (variance / n).sqrt() }
}

/// A mean difference in percent with its interval, for tables.
pub fn with_interval(values: &[f64]) -> String {
    let Interval { mean, half } = interval(values);
    if half.is_finite() {
        format!("{:+.1} ± {:.1} %", 100.0 * mean, 100.0 * half)
    } else {
        format!("{:+.1} %", 100.0 * mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_domain::{Moment, PipelineIndex, TaskWaiting};

    fn record(ms: f64, outcome: RequestOutcome) -> RequestRecord {
        RequestRecord {
            pipeline: PipelineIndex(0),
            request: 0,
            arrival: Moment::from_millis(ms),
            finish: None,
            outcome,
            drop_task: None,
            reason: None,
            accuracy: 0.0,
        }
    }

    #[test]
    fn goodput_counts_the_seconds_that_require_dropping() {
        // second 0: 1 of 1 in time; second 1: 2 of 4; second 2: 0 of 1; second 3: 1 of 1
        let rows = [
            (10.0, RequestOutcome::Ok),
            (1000.0, RequestOutcome::Ok),
            (1200.0, RequestOutcome::Late),
            (1500.0, RequestOutcome::Dropped),
            (1999.0, RequestOutcome::Ok),
            (2500.0, RequestOutcome::Late),
            (3500.0, RequestOutcome::Ok),
        ];
        let records: Vec<_> = rows.iter().map(|&(ms, outcome)| record(ms, outcome)).collect();
        let seconds = Seconds::of(&records);
        assert_eq!(seconds, Seconds { offered: vec![1, 4, 1, 1], ok: vec![1, 2, 0, 1] });
        assert_eq!(seconds.overloaded(3.0, 0), [false, true, false, false]);
        assert_eq!(seconds.overloaded(3.0, 1), [false, true, true, false]);
        assert_eq!(seconds.goodput_qps(&seconds.overloaded(3.0, 1)), Some(1.0));
        assert_eq!(seconds.goodput_qps(&seconds.overloaded(9.0, 1)), None);
    }

    #[test]
    fn device_time_of_late_requests_is_invalid() {
        // 10 requests: 6 in time, 2 late (both tasks), 2 dropped after the first task
        let waiting = |queries, service_ms, batch| TaskWaiting { queries, service_ms, batch, ..TaskWaiting::default() };
        let e = Estimate { requests: 10, ok: 6, late: 2, dropped: 2, ..Estimate::default() };
        let e = Estimate { waiting: vec![waiting(10, 20.0, 2.0), waiting(8, 5.0, 1.0)], ..e };
        // spent: 10 * 10 + 8 * 5 = 140; on requests in time: 6 * 15 = 90
        assert!((invalid_rate(&e) - 50.0 / 140.0).abs() < 1e-12);
        assert!((drop_rate(&e) - 0.4).abs() < 1e-12);
        assert_eq!((invalid_rate(&Estimate::default()), drop_rate(&Estimate::default())), (0.0, 0.0));
    }

    #[test]
    fn an_interval_uses_students_t() {
        // mean 2, standard deviation 1, three values: 4.303 / sqrt(3)
        let Interval { mean, half } = interval(&[1.0, 2.0, 3.0]);
        assert!((mean - 2.0).abs() < 1e-12 && (half - 4.303 / 3.0_f64.sqrt()).abs() < 1e-9, "{mean} {half}");
        assert_eq!(interval(&[]), Interval { mean: 0.0, half: 0.0 });
        assert_eq!(with_interval(&[0.1]), "+10.0 %");
        assert_eq!(with_interval(&[0.1, 0.1]), "+10.0 ± 0.0 %");
    }

    #[test]
    fn quantiles_and_means_match_the_textbook() {
        assert_eq!(quantile(&[3.0, 1.0, 2.0, 4.0], 0.5), 2.0);
        assert_eq!((quantile(&[3.0, 1.0], 0.0), quantile(&[3.0, 1.0], 1.0), quantile(&[], 0.5)), (1.0, 3.0, 0.0));
        assert!((geometric_mean(&[2.0, 8.0]).expect("two") - 4.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!((variance(&[1.0, 3.0, 5.0]), variance(&[7.0]), variance(&[])), (8.0 / 3.0, 0.0, 0.0));
        let times = [1.0, 4.0].map(TimeSpan::from_millis);
        assert_eq!((mean_ms(times.into_iter()), mean_ms(std::iter::empty())), (2.5, 0.0));
    }
}
