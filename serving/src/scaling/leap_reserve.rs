//! How far may the load leap before replicas that are asked for serve?
//!
//! Example: a replica loads for 5 s, so a command serves 6 s after the load that it answers. At 40 queries/s the reserve of
//! 1.7 keeps the replicas of the ladder's step for 68. While the load stays steady, the reserve falls by 0.0005 each
//! second: in 20 minutes to 1.1. Then the load leaps to 120 for 8 s. In the 6 s before the new replicas serve, requests
//! come at 3 times the rate that was acted on. The reserve rises, because more of such seconds came than one in a hundred.
//!
//! **Why not by misses?** A leap that exceeds the replicas' throughput queues. Queries that waited too long are served late
//! in their turn, until the queue is gone. So a leap misses either next to nothing, or nearly every request of the loading
//! time and of as much time again. In recorded traffic this happens once or twice in an hour, which is about 1 % of the
//! requests. Misses say too late, and too seldom, how much should have been there. The load says it every second.
//!
//! **The score** of a second is its rate over the load that was acted on one reaction time ago. The reserve covers a
//! score of up to [`LeapLoss::passing`] times itself: for a while, replicas serve more than the rate that their step
//! holds. The reserve follows the quantile of the scores that [`SHARE`] of the requests exceed. That is adaptive conformal
//! inference (Gibbs and Candes, NeurIPS 2021, equation 2) with requests as weights: `r <- r + GAIN * w * (exceeded -
//! SHARE)`, where `w` is the second's rate over the mean rate. A second is compared with the present reserve, not with that
//! of one reaction time ago: a leap counts until the reserve has grown to it, not until it is over.
//!
//! **The reserve begins at** [`RESERVE_START`], and learns from steady traffic that it is not needed. A day's traffic may
//! leap in its first minute, and nothing has announced it.
//!
//! **Where late queries are dropped ahead** ([`LeapLoss::Excess`]), a leap misses only its excess over the replicas. Two
//! figures differ then. A larger reserve pays, because it holds a part of each leap: the reserve may rise above its
//! beginning. But small leaps miss too little to pay for: a second counts from a higher score on.
//!
//! **What it multiplies** is the load, or the mean rate of about half an hour if that is less. Leaps begin at quiet times.
//! While the load is far above its mean it has leapt already, and the ladder's headroom is enough.

use apportion_domain::Dropping;
use std::collections::VecDeque;

/// The first reserve.
///
/// All figures of this file were chosen on stretches that choose settings (`train` in `experiments/protocol.yaml`), and on
/// parts of the same day that no set judges.
pub const RESERVE_START: f64 = 1.7;
/// The least reserve.
pub const RESERVE_MIN: f64 = 1.0;
/// Rise of the reserve for a second at the mean rate whose score exceeds it.
pub const GAIN: f64 = 0.05;
/// Share of the requests that may come in seconds that the reserve does not cover.
pub const SHARE: f64 = 0.01;
/// Seconds whose mean rate limits what the reserve multiplies.
pub const MEAN_SECONDS: u32 = 1800;
/// Seconds from a load to the replicas that answer it, where nobody says how long replicas load: 5 s of loading, reports
/// and commands of a tenth, and half a second until the load is seen.
pub const REACTION_SECONDS: usize = 6;

/// Which requests miss when the load leaps beyond the replicas?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeapLoss {
    /// Nearly all: replicas serve queries that are late already, until the queue is gone.
    #[default]
    Queue,
    /// Those beyond the replicas: queries that would be late are dropped before they cost time.
    Excess,
}

impl LeapLoss {
    /// Under a dropping policy. Only `pard` has been measured, so the others count as the worse case.
    #[must_use]
    pub const fn under(dropping: Dropping) -> Self {
        match dropping {
            Dropping::Pard => Self::Excess,
            _ => Self::Queue,
        }
    }

    /// The largest reserve. With `pard` it was chosen as the protocol's entry of 2026-11-28 on the reserve says.
    #[must_use]
    pub const fn reserve_max(self) -> f64 {
        match self {
            Self::Queue => RESERVE_START,
            Self::Excess => 2.5,
        }
    }

    /// The rate that a reserve covers, over the rate that the replicas' step holds. Replicas serve 1.7 times that rate
    /// until a queue of theirs is too long. Where the excess alone misses, a little more misses little.
    #[must_use]
    pub const fn passing(self) -> f64 {
        match self {
            Self::Queue => 1.7,
            Self::Excess => 2.2,
        }
    }
}

/// The reserve of one pipeline.
#[derive(Clone, Debug)]
pub struct LeapReserve {
    factor: f64,
    loss: LeapLoss,
    reaction_s: usize,
    mean_qps: f64,
    seconds: u32,
    /// What the factor multiplied in the last seconds, the oldest first.
    acted_on: VecDeque<f64>,
}

impl LeapReserve {
    /// A reserve that has seen nothing. Replicas serve `reaction_s` seconds after the load that they are asked for.
    #[must_use]
    pub const fn new(reaction_s: usize) -> Self {
        let (factor, loss) = (RESERVE_START, LeapLoss::Queue);
        Self { factor, loss, reaction_s, mean_qps: 0.0, seconds: 0, acted_on: VecDeque::new() }
    }

    /// The same reserve where a leap misses these requests; [`LeapLoss::Queue`] until this is said.
    pub const fn lose(&mut self, loss: LeapLoss) {
        self.loss = loss;
    }

    /// The requests that a leap misses.
    #[must_use]
    pub const fn loss(&self) -> LeapLoss {
        self.loss
    }

    /// The same reserve for replicas that serve `reaction_s` seconds after the load that they are asked for.
    pub const fn react_within(&mut self, reaction_s: usize) {
        self.reaction_s = reaction_s;
    }

    /// Seconds from a load to the replicas that answer it.
    #[must_use]
    pub const fn reaction_s(&self) -> usize {
        self.reaction_s
    }

    /// A second has ended. `rate_qps` came in it, and the ladder acts on `load_qps` now.
    pub fn observe(&mut self, rate_qps: f64, load_qps: f64) {
        self.seconds = (self.seconds + 1).min(MEAN_SECONDS);
        self.mean_qps += (rate_qps - self.mean_qps) / f64::from(self.seconds);
        self.acted_on.push_back(self.basis_qps(load_qps));
        while self.acted_on.len() > self.reaction_s.max(1) {
            let Some(basis) = self.acted_on.pop_front() else { return };
            let exceeded = if rate_qps > self.factor * self.loss.passing() * basis { 1.0 } else { 0.0 };
            let weight = if self.mean_qps > 0.0 { rate_qps / self.mean_qps } else { 0.0 };
            self.factor = (self.factor + GAIN * weight * (exceeded - SHARE)).clamp(RESERVE_MIN, self.loss.reserve_max());
        }
    }

    /// The present factor.
    #[must_use]
    pub const fn factor(&self) -> f64 {
        self.factor
    }

    /// The rate that the replicas should hold for the sake of leaps, in queries per second.
    #[must_use]
    pub fn held_qps(&self, load_qps: f64) -> f64 {
        self.factor * self.basis_qps(load_qps)
    }

    /// What the reserve multiplies.
    fn basis_qps(&self, load_qps: f64) -> f64 {
        if self.seconds == 0 { load_qps } else { load_qps.min(self.mean_qps) }
    }
}
