//! Replicas by rate, planned ahead: a pipeline climbs the steps of a ladder as its load rises.
//!
//! InferLine's tuner (SoCC'20, section 5) scales the one plan that it has in proportion to the rate of the busiest window.
//! At a few replicas for each task this is far from a plan for that rate, because queues are pooled and whole replicas are
//! rounded. Here the estimator has checked a ladder of rates beforehand, and only the rate is left to decide. That decision
//! is our own. The rate is the mean of the last minute, or a larger rate that chance does not explain. The latter is the
//! largest rate in the tuner's windows, for arrivals that scatter as in the last two minutes. Where the rate leaps or
//! rises, it is the expected rate at the moment when new replicas would serve. Up at once, down when half a minute has
//! asked for clearly less. Steps may lie below the plan's demand. InferLine's tuner takes replicas of the plan away
//! (section 5, "scaling down"). A ladder gives them up too, but only down to its lowest step, which the estimator has
//! checked.

use crate::scaling::error_budget::OutcomeCount;
use crate::scaling::headroom_controller::HeadroomController;
use crate::scaling::leap_reserve::LeapLoss;
use crate::scaling::tuner::Windows;
pub use apportion_domain::LadderStep;
use apportion_domain::{Moment, TimeSpan};
use std::collections::VecDeque;

/// The shortest window: a step of the load is seen after about so long.
pub const WINDOW_MIN: TimeSpan = TimeSpan::from_nanos(500_000_000);
/// The longest window that is looked at: longer ones say little of a load that has changed.
pub const LOOK_BACK_SECONDS: f64 = 8.5;
/// How long a rate is kept after it was last seen. To load a replica again takes seconds, and bursts come in groups.
pub const KEPT_SECONDS: usize = 30;
/// Standard deviations that a window's count may lie above its mean by chance: a window in 700.
const DEVIATIONS: f64 = 3.0;
/// Seconds whose mean is served in any case.
const MEAN_SECONDS: usize = 60;
/// A window whose certain rate is this many times the rate of before is a leap: its mean counts, not its certain rate.
const LEAP: f64 = 1.4;
/// The youngest seconds, which do not count as before.
const LEAP_SECONDS: usize = 3;
/// This number of seconds is compared with as many seconds before. A rise between them is taken to go on.
const RISE_SECONDS: usize = 8;
/// Standard deviations beyond which such a difference is a rise: rarely by chance, as it is looked for each second.
const RISE_DEVIATIONS: f64 = 4.0;
/// How far ahead a rise is followed, in seconds: about the time until a wanted replica serves.
const LEAD_SECONDS: f64 = 6.0;
/// The rate has to fall by this factor before replicas are given up. A smaller fall may be chance. A constant count misses
/// fewer requests than two counts in turn with the same mean.
const FALL: f64 = 1.2;
/// Seconds whose mean rate is compared with the load that was acted on before. One second more or less full is chance.
const RECENT_SECONDS: usize = 2;
/// Seconds in which the scatter of arrivals is measured.
const SCATTER_SECONDS: usize = 120;
/// Fewer seconds say nothing about the scatter.
const SCATTER_SECONDS_MIN: usize = 10;
/// The median of the square of a standard normal variable.
const MEDIAN_SQUARE: f64 = 0.4549;
/// Replicas that one task is given at most.
pub const STEP_REPLICAS_MAX: u32 = 1 << 16;

/// The factor on every rate that a ladder serves.
#[derive(Clone, Debug)]
pub enum Headroom {
    /// Always the same one.
    Constant(f64),
    /// The measured misses move it.
    Feedback(Box<HeadroomController>),
}

impl Headroom {
    /// The present factor.
    #[must_use]
    pub fn factor(&self) -> f64 {
        match self {
            Self::Constant(factor) => *factor,
            Self::Feedback(controller) => controller.headroom(),
        }
    }

    /// The same headroom for a pipeline that promises this percentile of its requests, in percent. Feedback begins anew.
    #[must_use]
    pub fn for_percentile(&self, percentile: f64) -> Self {
        match self {
            Self::Constant(factor) => Self::Constant(*factor),
            Self::Feedback(controller) => {
                let promise = controller.budget().promise().with_percentile(percentile);
                Self::Feedback(Box::new(HeadroomController::new(promise)))
            }
        }
    }

    /// The rate that replicas should hold at this load, in queries per second.
    fn held_qps(&self, load_qps: f64) -> f64 {
        match self {
            Self::Constant(factor) => factor * load_qps,
            Self::Feedback(controller) => (controller.headroom() * load_qps).max(controller.leap().held_qps(load_qps)),
        }
    }
}

/// One pipeline's ladder. Arrivals are offered ones: shed queries are handed in too.
#[derive(Clone, Debug)]
pub struct Ladder {
    steps: Vec<LadderStep>,
    headroom: Headroom,
    windows: Windows,
    /// The largest rate of each of the last seconds, the oldest first.
    seconds: VecDeque<f64>,
    /// Arrivals in each of the last [`SCATTER_SECONDS`] and the present one.
    counts: VecDeque<u64>,
    /// Variance of the arrivals in a second over their mean, at least that of a Poisson process.
    scatter: f64,
    present: u64,
    /// The last second that a headroom with feedback was told of.
    observed: u64,
    /// The rate that the present replicas serve.
    level_qps: f64,
    replicas: Vec<u32>,
    begun: Beginning,
}

/// The replicas that a ladder began with.
#[derive(Clone, Debug)]
struct Beginning {
    replicas: Vec<u32>,
    /// Until this second none of them is given up: the ladder has not seen the load that they serve.
    kept_until: Option<u64>,
}

impl Ladder {
    /// A ladder of a pipeline that has these `replicas` now. `headroom` multiplies every rate.
    ///
    /// # Panics
    /// Without steps, or if their rates do not rise.
    #[must_use]
    pub fn new(steps: Vec<LadderStep>, replicas: Vec<u32>, headroom: Headroom) -> Self {
        assert!(!steps.is_empty() && steps.windows(2).all(|s| s[0].rate_qps < s[1].rate_qps), "steps that rise");
        assert!(steps.iter().all(|s| s.replicas.len() == replicas.len()), "a count for each group");
        let (windows, seconds, counts) = (Windows::new(WINDOW_MIN), VecDeque::from([0.0]), VecDeque::from([0]));
        let begun = Beginning { replicas: replicas.clone(), kept_until: None };
        let (scatter, present, observed, level_qps) = (1.0, 0, 0, 0.0);
        Self { steps, headroom, windows, seconds, counts, scatter, present, observed, level_qps, replicas, begun }
    }

    /// `count` queries were offered in the bin of `now`. Constant work, but for sorting the last two minutes' seconds once
    /// in a second.
    pub fn arrived(&mut self, now: Moment, count: u32) {
        self.advance(now);
        self.windows.add(now, count);
        if let Some(last) = self.counts.back_mut() {
            *last += u64::from(count);
        }
        let rate = self.rate_qps();
        if let Some(last) = self.seconds.back_mut() {
            *last = last.max(rate);
        }
    }

    /// Takes over the arrivals that the ladder of the pipeline's former plan has seen: rates do not depend on the plan. A
    /// headroom with feedback goes on from that of the former ladder, if both have the same promise.
    pub fn inherit(&mut self, former: &Self) {
        (self.windows, self.seconds, self.present) = (former.windows.clone(), former.seconds.clone(), former.present);
        (self.counts, self.scatter, self.observed) = (former.counts.clone(), former.scatter, former.observed);
        self.begun.kept_until = former.begun.kept_until;
        if let (Headroom::Feedback(own), Headroom::Feedback(former)) = (&mut self.headroom, &former.headroom) {
            // Another promise begins anew: its budget counts other misses.
            if own.budget().promise() != former.budget().promise() {
                return;
            }
            let (reaction_s, loss) = (own.leap().reaction_s(), own.leap().loss());
            own.clone_from(former);
            own.react_within(reaction_s);
            own.lose_by_leaps(loss);
        }
    }

    /// The same ladder whose replicas serve this long after the load that they are asked for, rounded up to whole seconds.
    /// A headroom with feedback looks as far ahead.
    #[must_use]
    pub fn with_reaction(mut self, reaction: TimeSpan) -> Self {
        if let Headroom::Feedback(controller) = &mut self.headroom {
            controller.react_within((reaction.as_millis() / 1e3).ceil() as usize);
        }
        self
    }

    /// A leap beyond its replicas misses these requests; [`LeapLoss::Queue`] until this is said.
    pub const fn lose_by_leaps(&mut self, loss: LeapLoss) {
        if let Headroom::Feedback(controller) = &mut self.headroom {
            controller.lose_by_leaps(loss);
        }
    }

    /// All requests that ended since the last report.
    pub fn ended(&mut self, now: Moment, count: OutcomeCount) {
        if let Headroom::Feedback(controller) = &mut self.headroom {
            controller.report(now, count);
        }
    }

    /// The present factor on every rate.
    #[must_use]
    pub fn headroom(&self) -> f64 {
        self.headroom.factor()
    }

    /// The controller of its headroom, if the measured misses move it.
    #[must_use]
    pub fn feedback(&self) -> Option<&HeadroomController> {
        match &self.headroom {
            Headroom::Constant(_) => None,
            Headroom::Feedback(controller) => Some(controller),
        }
    }

    /// The fewest replicas of each group that it ever asks for.
    #[must_use]
    pub fn least(&self) -> &[u32] {
        &self.steps[0].replicas
    }

    /// The replicas by group, if they are to change.
    pub fn decide(&mut self, now: Moment) -> Option<&[u32]> {
        self.advance(now);
        let load_qps = self.load_qps();
        let recent_qps = self.arrived_in(RECENT_SECONDS, 0) / RECENT_SECONDS as f64;
        if let Headroom::Feedback(controller) = &mut self.headroom {
            controller.advance(now);
            if self.observed < self.present {
                self.observed = self.present;
                controller.observe_load(recent_qps, load_qps);
            }
        }
        let rate = self.headroom.held_qps(load_qps);
        if rate > self.level_qps || rate * FALL < self.level_qps {
            self.level_qps = rate;
        }
        let mut wanted = self.needed(self.level_qps);
        let until = *self.begun.kept_until.get_or_insert(self.present + KEPT_SECONDS as u64);
        if self.present < until {
            wanted.iter_mut().zip(&self.begun.replicas).for_each(|(n, &had)| *n = had.max(*n));
        }
        let is_changed = wanted != self.replicas;
        self.replicas = wanted;
        is_changed.then_some(self.replicas.as_slice())
    }

    /// The load that replicas are counted for: the largest rate of the last half minute, at least the last minute's mean.
    fn load_qps(&self) -> f64 {
        self.seconds.iter().copied().fold(self.mean_qps(), f64::max)
    }

    /// The largest rate of a window that chance does not explain.
    fn rate_qps(&self) -> f64 {
        let windows = self.windows.lengths_s().zip(self.windows.counts());
        let looked_at = windows.take_while(|(length, _)| *length <= LOOK_BACK_SECONDS);
        let before = self.seconds.iter().rev().skip(LEAP_SECONDS - 1).copied().reduce(f64::max).unwrap_or(f64::INFINITY);
        let rate = |(length, &count): (f64, &u64)| {
            let count = count as f64;
            let certain = (count - DEVIATIONS * (self.scatter * count).sqrt()) / length;
            if certain > LEAP * before { count / length } else { certain }
        };
        looked_at.map(rate).fold(0.0, f64::max)
    }

    /// Arrivals in `seconds` whole seconds, of which the last ended `ago` seconds ago.
    fn arrived_in(&self, seconds: usize, ago: usize) -> f64 {
        // The present second has only begun.
        self.counts.iter().rev().skip(1 + ago).take(seconds).sum::<u64>() as f64
    }

    /// The mean rate of the last minute, or of the seen part of it.
    fn mean_qps(&self) -> f64 {
        let seconds = MEAN_SECONDS.min(self.counts.len() - 1);
        if seconds == 0 { 0.0 } else { self.arrived_in(seconds, 0) / seconds as f64 }
    }

    /// Where the rate rises, the expected rate [`LEAD_SECONDS`] from now; else 0.
    fn rising_qps(&self) -> f64 {
        if self.counts.len() <= 2 * RISE_SECONDS {
            return 0.0;
        }
        let (now, was) = (self.arrived_in(RISE_SECONDS, 0), self.arrived_in(RISE_SECONDS, RISE_SECONDS));
        if now - was <= RISE_DEVIATIONS * (self.scatter * (now + was)).sqrt() {
            return 0.0;
        }
        let length = RISE_SECONDS as f64;
        now / length + (now - was) / (length * length) * (length / 2.0 + LEAD_SECONDS)
    }

    /// The mean square of the differences between successive seconds, over its value in a Poisson process; by the median,
    /// so that leaps do not count.
    fn measured_scatter(&self) -> f64 {
        let whole = self.counts.len() - 1;
        if whole < SCATTER_SECONDS_MIN {
            return 1.0;
        }
        let square = |(&a, &b): (&u64, &u64)| (a as f64 - b as f64).powi(2) / ((a + b) as f64).max(1.0);
        let pairs = self.counts.iter().zip(self.counts.iter().skip(1)).take(whole - 1);
        let mut squares: Vec<f64> = pairs.map(square).collect();
        squares.sort_by(f64::total_cmp);
        (squares[squares.len() / 2] / MEDIAN_SQUARE).max(1.0)
    }

    /// The replicas that a rate needs; beyond the last step in proportion to it.
    fn needed(&self, rate_qps: f64) -> Vec<u32> {
        if let Some(step) = self.steps.iter().find(|step| step.rate_qps >= rate_qps) {
            return step.replicas.clone();
        }
        let last = &self.steps[self.steps.len() - 1];
        let more = rate_qps / last.rate_qps;
        let grown = |n: &u32| ((f64::from(*n) * more - 1e-9).ceil() as u32).min(STEP_REPLICAS_MAX);
        last.replicas.iter().map(grown).collect()
    }

    fn advance(&mut self, now: Moment) {
        const NANOS: u64 = 1_000_000_000;
        let second = now.since(Moment::ZERO).as_nanos() / NANOS;
        if second.saturating_sub(self.present) > KEPT_SECONDS as u64 {
            (self.seconds, self.counts) = (VecDeque::from([0.0]), VecDeque::from([0]));
            self.present = second;
        }
        while self.present < second {
            self.present += 1;
            self.counts.push_back(0);
            self.scatter = self.measured_scatter();
            if self.counts.len() > SCATTER_SECONDS + 1 {
                self.counts.pop_front();
            }
            self.seconds.push_back(self.rising_qps());
            if self.seconds.len() > KEPT_SECONDS + 1 {
                self.seconds.pop_front();
            }
        }
    }
}
