//! Which headroom keeps a promise? Feedback from the requests that missed, and from the load.
//!
//! Example: 99 % of an hour's requests shall be answered in time, and a ladder begins with a headroom of 1.1. While
//! nothing misses, the headroom falls by 0.0001 each second: it is 1.07 after five minutes. Then two seconds' worth of
//! requests miss. The headroom rises by 0.02, and by half for as long as these misses go on.
//!
//! **Two sources.** The load of every second says how far it leaps before replicas are loaded: the [`LeapReserve`] holds
//! what that takes. The misses correct the headroom in use, slowly. A ladder takes the larger of both rates. So the bound
//! below needs nothing of the reserve.
//!
//! **The tracked headroom** is online quantile tracking, that is adaptive conformal inference (Gibbs and Candes,
//! NeurIPS 2021, equation 2) on requests instead of predictions: `h <- h + step * (missed - share * ended)`, kept
//! within [`HEADROOM_MIN`] and [`TRACKED_MAX`]. The step is [`GAIN`] over the largest mean rate of a minute so far (at
//! first, of at least ten seconds). So steps never grow (Angelopoulos, Barber and Bates, ICML 2024).
//!
//! **The surge** is the fast part (the P term of the PID form: Angelopoulos, Candes and Tibshirani, NeurIPS 2023).
//! While a tenth to three tenths of the last second's requests miss, the headroom is up to [`SURGE`] times the tracked
//! one. A replica that is asked for serves seconds later, so a leap of the load misses until then, whatever the
//! headroom is. The surge ends the misses once those replicas serve, and its cost ends with it.
//!
//! **Safety before price.** When the budget of the window is spent, or no report came for [`SILENCE_MAX`], the headroom
//! is at least [`HEADROOM_START`].
//!
//! **The bound.** Of `n` requests that were reported, at most `share * n + (TRACKED_MAX - HEADROOM_MIN) / GAIN * rate +
//! unpaid` missed. Here `rate` is the largest mean rate of a minute, and `unpaid` counts the misses in excess of the
//! share while the tracked headroom stood at its maximum ([`HeadroomController::unpaid`]). So the long-run share of
//! misses is at most the promised share plus `unpaid / n`, whatever the load does.
//!
//! *Proof.* Let `x = h - HEADROOM_MIN`, `e` the excess `missed - share * ended` of a report, and `s` its step. Then `x'
//! = x + s * e`, but for two cuts: at 0, which only makes `x'` larger, and at the maximum, where the cut part over `s`
//! is added to `unpaid`. So `e <= (x' - x) / s + unpaid' - unpaid`. In the sum over all reports, `x / s` of one report
//! and of the next cancel, except for `x * (1 / s' - 1 / s)`. That is subtracted and not negative, because steps never
//! grow. There remains the last `x / s`, which is at most `(TRACKED_MAX - HEADROOM_MIN) / GAIN * rate`.
//!
//! *Conditions.* `unpaid` stays 0 if the pipeline at [`HEADROOM_MAX`] misses at most the share, once the replicas serve
//! and the reports have come, and both take less than ten seconds. Where devices lack, or replicas are slower than
//! profiled, no headroom holds the promise. The machine says so ([`HeadroomController::is_saturated`]). Reports count
//! all requests that ended since the last one, so a lost report delays its counts and loses none.

use crate::scaling::error_budget::{AttainmentPromise, ErrorBudget, OutcomeCount};
use crate::scaling::leap_reserve::{LeapLoss, LeapReserve, REACTION_SECONDS};
use apportion_domain::{Moment, TimeSpan};

/// The headroom before anything is known.
pub const HEADROOM_START: f64 = 1.1;
/// The least tracked headroom. A ladder's steps hold on fresh Poisson samples, so a pipeline may need less than 1.
pub const HEADROOM_MIN: f64 = 0.9;
/// The largest headroom.
pub const HEADROOM_MAX: f64 = 3.0;
/// Rise of the headroom for a second of load that misses. A larger one pays for replicas after the misses of a leap, when
/// they help no more.
///
/// Start, least and gain are chosen on stretches that choose settings (`train` in `experiments/protocol.yaml`), and on
/// parts of the same day that no set judges.
pub const GAIN: f64 = 0.01;
/// The largest tracked headroom. The misses until the replicas of the largest headroom serve raise it above
/// [`HEADROOM_MAX`]: ten seconds of load, which are paid for by staying there.
pub const TRACKED_MAX: f64 = HEADROOM_MAX + 10.0 * GAIN;
/// The most that a surge multiplies the headroom by.
pub const SURGE: f64 = 1.5;
/// Shares of the last second's requests that miss, between which the surge grows from nothing to its most.
const SURGE_SHARES: [f64; 2] = [0.1, 0.3];
/// How far back misses count for the surge: their weight halves within about this time.
const SURGE_MEMORY: TimeSpan = TimeSpan::from_nanos(1_000_000_000);
/// A surge stays this long after its largest share: about the loading time of a replica.
const SURGE_KEPT: TimeSpan = TimeSpan::from_nanos(5_000_000_000);
/// Then it ends evenly within this time.
const SURGE_RELEASE: TimeSpan = TimeSpan::from_nanos(5_000_000_000);
/// Without a report for this long, nobody knows what misses.
pub const SILENCE_MAX: TimeSpan = TimeSpan::from_nanos(3_000_000_000);
/// The time whose mean rate scales the steps.
const RATE_WINDOW: TimeSpan = TimeSpan::from_nanos(60_000_000_000);
/// Before this much time was reported, the rate is unknown and the tracked headroom waits.
const RATE_WINDOW_MIN: TimeSpan = TimeSpan::from_nanos(10_000_000_000);
/// The promise of a pipeline that states none: 99 % over an hour.
pub const PROMISE: AttainmentPromise =
    AttainmentPromise { missed_share_max: 0.01, window: TimeSpan::from_nanos(3_600_000_000_000) };

/// The headroom of one pipeline, moved by its misses, with its reserve for leaps.
#[derive(Clone, Debug)]
pub struct HeadroomController {
    budget: ErrorBudget,
    tracked: f64,
    rate: LargestRate,
    surge: Surge,
    leap: LeapReserve,
    /// Misses less the permitted ones that no step has counted, because the rate was unknown.
    pending: f64,
    unpaid: f64,
    is_saturated: bool,
    /// The last report.
    reported: Option<Moment>,
    now: Moment,
}

impl HeadroomController {
    /// A controller that has seen nothing.
    ///
    /// # Panics
    /// As [`ErrorBudget::new`].
    #[must_use]
    pub fn new(promise: AttainmentPromise) -> Self {
        Self {
            budget: ErrorBudget::new(promise),
            tracked: HEADROOM_START,
            rate: LargestRate::default(),
            surge: Surge::default(),
            leap: LeapReserve::new(REACTION_SECONDS),
            pending: 0.0,
            unpaid: 0.0,
            is_saturated: false,
            reported: None,
            now: Moment::ZERO,
        }
    }

    /// A report of all requests that ended since the last one has come, maybe of none.
    pub fn report(&mut self, now: Moment, ended: OutcomeCount) {
        self.advance(now);
        self.budget.count(now, ended);
        self.surge.count(now.since(self.reported.unwrap_or(now)), ended);
        self.rate.count(now, ended.total());
        self.reported = Some(now);
        self.pending += ended.missed as f64 - self.budget.promise().missed_share_max * ended.total() as f64;
        let Some(step) = self.step() else { return };
        let moved = self.tracked + step * std::mem::take(&mut self.pending);
        if ended.total() > 0 {
            self.is_saturated = moved > TRACKED_MAX;
        }
        self.unpaid += (moved - TRACKED_MAX).max(0.0) / step;
        self.tracked = moved.clamp(HEADROOM_MIN, TRACKED_MAX);
    }

    /// A second has ended. `rate_qps` came in it, and the ladder acts on `load_qps` now.
    pub fn observe_load(&mut self, rate_qps: f64, load_qps: f64) {
        self.leap.observe(rate_qps, load_qps);
    }

    /// Replicas serve `reaction_s` seconds after the load that they are asked for; [`REACTION_SECONDS`] until this is said.
    pub const fn react_within(&mut self, reaction_s: usize) {
        self.leap.react_within(reaction_s);
    }

    /// A leap beyond the replicas misses these requests; [`LeapLoss::Queue`] until this is said.
    pub const fn lose_by_leaps(&mut self, loss: LeapLoss) {
        self.leap.lose(loss);
    }

    /// The reserve for leaps of the load.
    #[must_use]
    pub const fn leap(&self) -> &LeapReserve {
        &self.leap
    }

    /// Time passes.
    pub fn advance(&mut self, now: Moment) {
        self.now = self.now.max(now);
    }

    /// The factor on the load.
    #[must_use]
    pub fn headroom(&self) -> f64 {
        let is_silent = self.reported.is_some_and(|last| self.now.since(last) > SILENCE_MAX);
        let is_spent = self.budget.counted().missed > 0 && self.budget.left_ratio() <= 0.0;
        let least = if is_silent || is_spent { HEADROOM_START } else { HEADROOM_MIN };
        (self.tracked.max(least) * self.surge.factor()).min(HEADROOM_MAX)
    }

    /// The factor on a planned demand, at least 1: the headroom over the one that it starts with. The planned demand has a
    /// headroom of its own.
    #[must_use]
    pub fn demand_factor(&self) -> f64 {
        (self.headroom() / HEADROOM_START).max(1.0)
    }

    /// The headroom without surge and safety.
    #[must_use]
    pub const fn tracked(&self) -> f64 {
        self.tracked
    }

    /// The budget of the promise.
    #[must_use]
    pub const fn budget(&self) -> &ErrorBudget {
        &self.budget
    }

    /// Whether the headroom is at its maximum and more requests miss than may. More headroom would be asked for in vain.
    #[must_use]
    pub const fn is_saturated(&self) -> bool {
        self.is_saturated
    }

    /// Misses in excess of the promised share while the headroom was at its maximum, in requests. The bound does not
    /// cover them.
    #[must_use]
    pub const fn unpaid(&self) -> f64 {
        self.unpaid
    }

    /// The misses that the bound permits of all requests so far, in requests; infinite while the rate is unknown.
    #[must_use]
    pub fn missed_max(&self, ended: u64) -> f64 {
        let room = self.step().map_or(f64::INFINITY, |step| (TRACKED_MAX - HEADROOM_MIN) / step);
        self.budget.promise().missed_share_max * ended as f64 + room + self.unpaid
    }

    /// The rise of the headroom for a request that misses.
    fn step(&self) -> Option<f64> {
        self.rate.largest_qps.map(|rate| GAIN / rate)
    }
}

/// The largest mean rate over [`RATE_WINDOW`] so far: of whole windows, and before the first one ends of its beginning.
#[derive(Clone, Copy, Debug, Default)]
struct LargestRate {
    begun: Option<Moment>,
    count: u64,
    largest_qps: Option<f64>,
}

impl LargestRate {
    fn count(&mut self, now: Moment, requests: u64) {
        // The requests of the first report ended before it, nobody knows since when.
        let Some(begun) = self.begun else {
            self.begun = Some(now);
            return;
        };
        self.count += requests;
        let length = now.since(begun);
        let is_whole = length >= RATE_WINDOW;
        if self.count > 0 && (is_whole || self.largest_qps.is_none() && length >= RATE_WINDOW_MIN) {
            let rate = self.count as f64 * 1e3 / length.as_millis();
            self.largest_qps = Some(self.largest_qps.map_or(rate, |largest| largest.max(rate)));
        }
        if is_whole {
            (self.begun, self.count) = (Some(now), 0);
        }
    }
}

/// The fast part: misses of about the last second.
#[derive(Clone, Copy, Debug, Default)]
struct Surge {
    /// Requests and misses, of which older ones weigh less.
    ended: f64,
    missed: f64,
    /// From 0 to 1.
    strength: f64,
    /// Since the strength was last reached.
    age: TimeSpan,
}

impl Surge {
    fn count(&mut self, passed: TimeSpan, ended: OutcomeCount) {
        let keep = (-passed.as_millis() / SURGE_MEMORY.as_millis()).exp();
        self.ended = self.ended * keep + ended.total() as f64;
        self.missed = self.missed * keep + ended.missed as f64;
        let share = if self.ended > 0.0 { self.missed / self.ended } else { 0.0 };
        let [none, most] = SURGE_SHARES;
        let wanted = ((share - none) / (most - none)).clamp(0.0, 1.0);
        self.age = self.age + passed;
        if self.age > SURGE_KEPT {
            self.strength = (self.strength - passed.as_millis() / SURGE_RELEASE.as_millis()).max(0.0);
        }
        if wanted > 0.0 && wanted >= self.strength {
            (self.strength, self.age) = (wanted, TimeSpan::ZERO);
        }
    }

    fn factor(self) -> f64 {
        1.0 + (SURGE - 1.0) * self.strength
    }
}
