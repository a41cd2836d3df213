//! How much of a promise is left, and how fast is it spent? Requests that missed over those that may miss.
//!
//! Example: 99 % of an hour's requests shall be answered in time. Of 180,000 requests 1,800 may miss: that is the error
//! budget. With 900 misses half of it is left. A minute of 3,000 requests with 300 misses has a *burn rate* of 10: ten
//! times the 30 misses that the promise permits them. Two burn rates are measured, over a sixtieth and over a sixth of
//! the window. They are those of multi-window alerts (Beyer et al., The Site Reliability Workbook, 2018, chapter 5),
//! whose windows are scaled from a month to the promise's window.

use apportion_domain::{Moment, TimeSpan};
use std::collections::VecDeque;

/// Parts that a window is counted in: a count leaves the window with its part.
const PARTS: usize = 360;
/// Parts of the fast burn rate: a sixtieth of the window, which is a minute of an hour.
const FAST_PARTS: usize = PARTS / 60;
/// Parts of the slow burn rate: a sixth of the window, which is ten minutes of an hour.
const SLOW_PARTS: usize = PARTS / 6;
/// The fast burn rate that is worth an alert: a fifth of the budget in a sixtieth of the window.
pub const FAST_ALERT: f64 = 12.0;
/// The slow burn rate that is worth an alert: half of the budget in a sixth of the window.
pub const SLOW_ALERT: f64 = 3.0;

/// The least share of requests that may miss. At a percentile of 100 no promise could be kept.
pub const MISSED_SHARE_MIN: f64 = 1e-4;

/// Standard deviations above the permitted misses. Fewer prove nothing.
const DEVIATIONS: f64 = 3.0;

/// Requests that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCount {
    /// Answered within the SLO.
    pub in_time: u64,
    /// Answered late, dropped or failed.
    pub missed: u64,
}

impl OutcomeCount {
    /// All of them.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.in_time + self.missed
    }

    /// The requests that ended after an earlier count of the same requests.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self { in_time: self.in_time - earlier.in_time, missed: self.missed - earlier.missed }
    }

    /// Both counts together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self { in_time: self.in_time + other.in_time, missed: self.missed + other.missed }
    }
}

/// A promise about requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttainmentPromise {
    /// The share of the requests that may miss, above 0 and below 1: 0.01 for 99 % in time.
    pub missed_share_max: f64,
    /// The time over which the share counts.
    pub window: TimeSpan,
}

impl AttainmentPromise {
    /// Of these requests, as many may miss.
    #[must_use]
    pub fn permitted(self, requests: OutcomeCount) -> f64 {
        requests.total() as f64 * self.missed_share_max
    }

    /// Whether more of these requests missed than the promise permits and than chance explains.
    ///
    /// Misses scatter: a count of mean m has a standard deviation of about sqrt(m). At three deviations a pipeline
    /// that just keeps its promise is outside about once in 1,000 times.
    #[must_use]
    pub fn is_broken_by(self, requests: OutcomeCount) -> bool {
        let permitted = self.permitted(requests);
        requests.missed as f64 > permitted + DEVIATIONS * permitted.max(1.0).sqrt()
    }

    /// The promise over the same time that this percentile of the requests, in percent, is in time.
    #[must_use]
    pub fn with_percentile(self, percentile: f64) -> Self {
        let missed = (100.0 - percentile) / 100.0;
        Self { missed_share_max: missed.clamp(MISSED_SHARE_MIN, 1.0 - MISSED_SHARE_MIN), ..self }
    }
}

/// The rates at which a budget is spent: 1 spends it exactly within the window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BurnRates {
    /// Over the last sixtieth of the window.
    pub fast: f64,
    /// Over the last sixth of the window.
    pub slow: f64,
}

/// The most urgent news about a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BudgetAlert {
    /// Nothing to report.
    #[default]
    None,
    /// The slow burn rate reaches [`SLOW_ALERT`].
    SlowBurn,
    /// The fast burn rate reaches [`FAST_ALERT`].
    FastBurn,
    /// Nothing is left.
    Spent,
}

/// The error budget of one pipeline: its requests of the promise's window, and those of them that missed.
#[derive(Clone, Debug)]
pub struct ErrorBudget {
    promise: AttainmentPromise,
    /// Counts by part of the window, the oldest first; the last part is the present one.
    parts: VecDeque<OutcomeCount>,
    /// The number of the present part since the start of the clock.
    present: u64,
    whole: OutcomeCount,
}

impl ErrorBudget {
    /// A budget of which nothing was spent.
    ///
    /// # Panics
    /// If the share is not above 0 and below 1, or the window is shorter than a microsecond.
    #[must_use]
    pub fn new(promise: AttainmentPromise) -> Self {
        assert!(promise.missed_share_max > 0.0 && promise.missed_share_max < 1.0, "a share of the requests");
        assert!(promise.window >= TimeSpan::from_nanos(1_000), "a window with parts");
        Self { promise, parts: VecDeque::from([OutcomeCount::default()]), present: 0, whole: OutcomeCount::default() }
    }

    /// The promise.
    #[must_use]
    pub const fn promise(&self) -> AttainmentPromise {
        self.promise
    }

    /// Counts requests whose end was reported at `now`. An empty count only lets time pass.
    pub fn count(&mut self, now: Moment, ended: OutcomeCount) {
        let part = now.as_nanos() / (self.promise.window.as_nanos() / PARTS as u64);
        // After a pause of a whole window nothing of before counts.
        let passed = part.saturating_sub(self.present).min(PARTS as u64);
        self.present = self.present.max(part);
        for _ in 0..passed {
            self.parts.push_back(OutcomeCount::default());
            if self.parts.len() > PARTS {
                self.whole = self.whole.since(self.parts.pop_front().unwrap_or_default());
            }
        }
        self.whole = self.whole.with(ended);
        if let Some(last) = self.parts.back_mut() {
            *last = last.with(ended);
        }
    }

    /// The requests of the window.
    #[must_use]
    pub const fn counted(&self) -> OutcomeCount {
        self.whole
    }

    /// The part of the budget that is left, at most 1 and below 0 once more requests missed than may: 1 less the misses
    /// over the misses that the window's requests so far permit.
    #[must_use]
    pub fn left_ratio(&self) -> f64 {
        1.0 - self.burn_rate(self.whole)
    }

    /// Both burn rates.
    #[must_use]
    pub fn burn_rates(&self) -> BurnRates {
        let of = |parts: usize| {
            let youngest = self.parts.iter().rev().take(parts);
            self.burn_rate(youngest.fold(OutcomeCount::default(), |sum, count| sum.with(*count)))
        };
        BurnRates { fast: of(FAST_PARTS), slow: of(SLOW_PARTS) }
    }

    /// The most urgent news.
    #[must_use]
    pub fn alert(&self) -> BudgetAlert {
        let BurnRates { fast, slow } = self.burn_rates();
        match () {
            () if self.left_ratio() <= 0.0 => BudgetAlert::Spent,
            () if fast >= FAST_ALERT => BudgetAlert::FastBurn,
            () if slow >= SLOW_ALERT => BudgetAlert::SlowBurn,
            () => BudgetAlert::None,
        }
    }

    /// The share of these requests that missed, over the share that may.
    fn burn_rate(&self, count: OutcomeCount) -> f64 {
        match count.total() {
            0 => 0.0,
            total => count.missed as f64 / total as f64 / self.promise.missed_share_max,
        }
    }
}
