//! Replicas by rate, planned ahead: the steps of a ladder that a pipeline climbs as its load rises.
//!
//! InferLine's tuner (SoCC'20, section 5) scales the one plan that it has in proportion to the rate of the busiest window. At
//! a few replicas for each task that is far from what a plan for that rate would have: queues are pooled, whole replicas are
//! rounded. Here the estimator has been asked beforehand, for a ladder of rates, and what is left to decide is the rate. That
//! decision is our own: from the same windows as the tuner's, the largest rate that Poisson noise does not explain; up at
//! once, down when half a minute has not asked for more. Steps may lie below the plan's demand: as InferLine's tuner takes
//! replicas of the plan away (section 5, "scaling down"), a ladder gives them up, but only where it was shown what fewer hold.

use crate::tuner::Windows;
pub use apportion_domain::LadderStep as Step;
use apportion_domain::{Moment, Span};
use std::collections::VecDeque;

/// The shortest window: a step of the load is seen after about so long.
pub const WINDOW_MIN: Span = Span::from_nanos(500_000_000);
/// The longest window that is looked at: longer ones say little of a load that has changed.
pub const LOOK_BACK_SECONDS: f64 = 8.5;
/// How long a rate is kept after it was last seen. Loading a replica again takes seconds, and bursts come in groups.
pub const KEPT_SECONDS: usize = 30;
/// Standard deviations that a window's count may lie above its mean by chance: a window in 160.
const DEVIATIONS: f64 = 2.5;
/// Replicas that one task is given at most.
pub const STEP_REPLICAS_MAX: u32 = 1 << 16;

/// One pipeline's ladder. Arrivals are offered ones: shed queries are handed in too.
#[derive(Clone, Debug)]
pub struct Ladder {
    steps: Vec<Step>,
    headroom: f64,
    windows: Windows,
    /// The largest rate of each of the last seconds, the oldest first.
    seconds: VecDeque<f64>,
    present: u64,
    replicas: Vec<u32>,
    /// Replicas that it began with, and the second up to which none of them is given up: it has not seen what they are for.
    begun: (Vec<u32>, Option<u64>),
}

impl Ladder {
    /// A ladder of a pipeline that has so many `replicas` now. `headroom` multiplies every rate.
    ///
    /// # Panics
    /// Without steps, or if their rates do not rise.
    #[must_use]
    pub fn new(steps: Vec<Step>, replicas: Vec<u32>, headroom: f64) -> Self {
        assert!(!steps.is_empty() && steps.windows(2).all(|s| s[0].rate_qps < s[1].rate_qps), "steps that rise");
        assert!(steps.iter().all(|s| s.replicas.len() == replicas.len()), "a count for each group");
        let (windows, seconds, begun) = (Windows::new(WINDOW_MIN), VecDeque::from([0.0]), (replicas.clone(), None));
        Self { steps, headroom, windows, seconds, present: 0, replicas, begun }
    }

    /// `count` queries were offered in the bin of `now`. Constant work.
    pub fn arrived(&mut self, now: Moment, count: u32) {
        self.advance(now);
        self.windows.add(now, count);
        let rate = self.rate_qps();
        if let Some(last) = self.seconds.back_mut() {
            *last = last.max(rate);
        }
    }

    /// Goes on from what the ladder of the pipeline's former plan has seen: a rate is a rate, whatever plan answers it.
    pub fn inherit(&mut self, former: &Self) {
        (self.windows, self.seconds, self.present) = (former.windows.clone(), former.seconds.clone(), former.present);
        self.begun.1 = former.begun.1;
    }

    /// The fewest replicas of each group that it ever asks for.
    #[must_use]
    pub fn least(&self) -> &[u32] {
        &self.steps[0].replicas
    }

    /// The replicas by group, if they are to change.
    pub fn decide(&mut self, now: Moment) -> Option<&[u32]> {
        self.advance(now);
        let rate = self.headroom * self.seconds.iter().copied().fold(0.0, f64::max);
        let mut wanted = self.needed(rate);
        let until = *self.begun.1.get_or_insert(self.present + KEPT_SECONDS as u64);
        if self.present < until {
            wanted.iter_mut().zip(&self.begun.0).for_each(|(n, &had)| *n = had.max(*n));
        }
        let is_changed = wanted != self.replicas;
        self.replicas = wanted;
        is_changed.then_some(self.replicas.as_slice())
    }

    /// The largest rate that some window cannot owe to chance.
    fn rate_qps(&self) -> f64 {
        let windows = self.windows.lengths_s().zip(self.windows.counts());
        let looked_at = windows.take_while(|(length, _)| *length <= LOOK_BACK_SECONDS);
        looked_at.map(|(length, &count)| (count as f64 - DEVIATIONS * (count as f64).sqrt()) / length).fold(0.0, f64::max)
    }

    /// What a rate needs; beyond the last step in proportion to it.
    fn needed(&self, rate_qps: f64) -> Vec<u32> {
        if let Some(step) = self.steps.iter().find(|s| s.rate_qps >= rate_qps) {
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
            self.seconds = VecDeque::from([0.0]);
            self.present = second;
        }
        while self.present < second {
            self.present += 1;
            self.seconds.push_back(0.0);
            if self.seconds.len() > KEPT_SECONDS + 1 {
                self.seconds.pop_front();
            }
        }
    }
}
