//! InferLine's tuner (SoCC'20, section 5): how many replicas does each task need for the present arrivals?
//!
//! A [`TrafficEnvelope`] is the traffic envelope of network calculus: the largest number of arrivals in any window of a
//! length, for several lengths at once. The [`Tuner`] compares the present windows with the envelope of the trace that the
//! plan was made for. The same [`Windows`] count both, so bins round both alike.

use apportion_domain::{Moment, TimeSpan};
use std::collections::VecDeque;

/// The widest bin in which arrivals are counted.
pub const BIN_MAX: TimeSpan = TimeSpan::from_nanos(10_000_000);
/// The narrowest, a guard of memory: service times below it count as this.
pub const BIN_MIN: TimeSpan = TimeSpan::from_nanos(1_000_000);
/// The longest window.
pub const WINDOW_MAX: TimeSpan = TimeSpan::from_nanos(60_000_000_000);
/// No replica is removed for this time after a change.
pub const STABLE: TimeSpan = TimeSpan::from_nanos(15_000_000_000);
/// Window of the rate that replicas are removed for.
pub const DOWN_WINDOW: TimeSpan = TimeSpan::from_nanos(5_000_000_000);
/// The largest such rate of this time counts.
pub const DOWN_HORIZON: TimeSpan = TimeSpan::from_nanos(30_000_000_000);
/// Replicas that one task is given at most.
pub const TUNED_REPLICAS_MAX: u32 = 1 << 16;
/// Rounding errors below this do not cost a replica.
const SLACK: f64 = 1e-9;

/// Arrivals counted in sliding windows that end at the present bin; the lengths double from the service time to 60 s.
///
/// An arrival costs one addition for each window, of which there are at most 17; so does a bin that passes.
#[derive(Clone, Debug)]
pub struct Windows {
    bin: TimeSpan,
    /// Lengths in bins, ascending.
    lengths: Vec<usize>,
    /// Arrivals in each window.
    counts: Vec<u64>,
    /// The last [`WINDOW_MAX`] of bins.
    ring: Vec<u32>,
    /// Number of the present bin since the origin.
    present: u64,
}

impl Windows {
    /// Windows from this service time on.
    #[must_use]
    pub fn new(service: TimeSpan) -> Self {
        let service = service.as_nanos().clamp(BIN_MIN.as_nanos(), WINDOW_MAX.as_nanos());
        let first = service.div_ceil(BIN_MAX.as_nanos());
        let bin = (service / first).max(BIN_MIN.as_nanos());
        let last = WINDOW_MAX.as_nanos().div_ceil(bin);
        let doubled = std::iter::successors(Some(first), |length| Some(length * 2)).take_while(|&length| length < last);
        let lengths: Vec<usize> = doubled.chain([last]).map(|length| length as usize).collect();
        let (counts, ring) = (vec![0; lengths.len()], vec![0; last as usize]);
        Self { bin: TimeSpan::from_nanos(bin), lengths, counts, ring, present: 0 }
    }

    /// The length of a bin.
    #[must_use]
    pub const fn bin(&self) -> TimeSpan {
        self.bin
    }

    /// Lengths in seconds, ascending.
    pub fn lengths_s(&self) -> impl Iterator<Item = f64> + '_ {
        self.lengths.iter().map(|&length| length as f64 * self.bin.as_millis() / 1e3)
    }

    /// Arrivals in each window that ends now.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// `count` queries arrived in the bin of `now`, which is not before that of the last call. Older arrivals than the
    /// present bin count for the present one.
    pub fn add(&mut self, now: Moment, count: u32) {
        self.advance(now);
        let at = (self.present % self.ring.len() as u64) as usize;
        self.ring[at] = self.ring[at].saturating_add(count);
        self.counts.iter_mut().for_each(|c| *c += u64::from(count));
    }

    /// Moves the windows on to `now`.
    pub fn advance(&mut self, now: Moment) {
        let bin = now.since(Moment::ZERO).as_nanos() / self.bin.as_nanos();
        if bin.saturating_sub(self.present) >= self.ring.len() as u64 {
            self.ring.fill(0);
            self.counts.fill(0);
            self.present = bin;
        }
        let slots = self.ring.len() as u64;
        while self.present < bin {
            self.present += 1;
            for (count, &length) in self.counts.iter_mut().zip(&self.lengths) {
                // The bin that leaves the window; before the origin there is none.
                let Some(left) = self.present.checked_sub(length as u64) else { continue };
                *count -= u64::from(self.ring[(left % slots) as usize]);
            }
            self.ring[(self.present % slots) as usize] = 0;
        }
    }
}

/// The largest number of arrivals in any window of each length, of a whole trace.
///
/// Example: ten arrivals per second at equal gaps have the counts 1, 2 and 4 in windows of 0.1, 0.2 and 0.4 s.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficEnvelope {
    service: TimeSpan,
    counts: Vec<u64>,
}

impl TrafficEnvelope {
    /// Of arrivals in order, with windows from this service time on.
    #[must_use]
    pub fn of(service: TimeSpan, arrivals: impl IntoIterator<Item = Moment>) -> Self {
        let mut windows = Windows::new(service);
        let mut counts = vec![0; windows.counts().len()];
        for arrival in arrivals {
            windows.add(arrival, 1);
            counts.iter_mut().zip(windows.counts()).for_each(|(max, &now)| *max = now.max(*max));
        }
        Self { service, counts }
    }

    /// Of a steady load without a trace: in each window the mean plus four standard deviations of a Poisson process. The
    /// paper always has a trace; this replaces one.
    #[must_use]
    pub fn of_rate(service: TimeSpan, rate_qps: f64) -> Self {
        let most = |length_s: f64| {
            let mean = rate_qps * length_s;
            (mean + 4.0 * mean.sqrt()).ceil().max(1.0) as u64
        };
        let counts = Windows::new(service).lengths_s().map(most).collect();
        Self { service, counts }
    }

    /// Arrivals by window, ascending lengths.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }
}

/// One task, as the tuner sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TunedTask {
    /// Queries at the task for each that arrives at the root: s_m of the paper.
    pub scale: f64,
    /// Throughput of one replica with full batches, in queries per second: mu_m.
    pub replica_qps: f64,
    /// Offered rate of the trace that the plan was made for, over the task's throughput in the plan: rho_m.
    pub provisioning: f64,
}

impl TunedTask {
    /// Replicas for a rate at the root; at least 1.
    fn replicas(&self, rate_qps: f64, provisioning: f64) -> u32 {
        let wanted = rate_qps * self.scale / (self.replica_qps * provisioning);
        // A task that no query reaches, or that has no slack by its numbers, keeps one.
        let wanted = if wanted.is_finite() { (wanted - SLACK).ceil().max(1.0) } else { 1.0 };
        (wanted as u32).min(TUNED_REPLICAS_MAX)
    }
}

/// One pipeline's tuner. Arrivals are offered ones: shed queries are handed in too.
#[derive(Clone, Debug)]
pub struct Tuner {
    windows: Windows,
    sample: Vec<u64>,
    tasks: Vec<TunedTask>,
    /// rho_p: the smallest of the tasks' ratios.
    provisioning_min: f64,
    replicas: Vec<u32>,
    /// Highest rate of a window that exceeded its sample since the last decision.
    exceeded_qps: Option<f64>,
    down: Down,
    changed: Moment,
}

impl Tuner {
    /// A tuner of tasks that have these `replicas`, planned for a trace with this envelope.
    #[must_use]
    pub fn new(sample: &TrafficEnvelope, tasks: Vec<TunedTask>, replicas: Vec<u32>) -> Self {
        assert!(tasks.len() == replicas.len(), "a count for each task");
        let windows = Windows::new(sample.service);
        let positive = tasks.iter().map(|t| t.provisioning).filter(|p| *p > 0.0);
        let provisioning_min = positive.fold(f64::INFINITY, f64::min);
        let (sample, exceeded_qps, down) = (sample.counts.clone(), None, Down::default());
        Self { windows, sample, tasks, provisioning_min, replicas, exceeded_qps, down, changed: Moment::ZERO }
    }

    /// Takes over the arrivals that the tuner of the pipeline's former plan has seen. Windows of other lengths start empty:
    /// their lengths follow the plan's batches, and a sample of the same lengths is compared with them.
    pub fn inherit(&mut self, former: &Self) {
        (self.down, self.changed) = (former.down.clone(), former.changed);
        if (self.windows.bin, &self.windows.lengths) == (former.windows.bin, &former.windows.lengths) {
            self.windows = former.windows.clone();
        }
    }

    /// The wanted replicas, by task.
    #[must_use]
    pub fn replicas(&self) -> &[u32] {
        &self.replicas
    }

    /// The length of a bin: reports need not be finer.
    #[must_use]
    pub const fn bin(&self) -> TimeSpan {
        self.windows.bin()
    }

    /// `count` queries were offered in the bin of `now`. Constant work.
    pub fn arrived(&mut self, now: Moment, count: u32) {
        self.windows.add(now, count);
        self.down.add(now, count);
        for ((length_s, &seen), &sample) in self.windows.lengths_s().zip(self.windows.counts()).zip(&self.sample) {
            if seen > sample {
                let rate = seen as f64 / length_s;
                self.exceeded_qps = Some(self.exceeded_qps.map_or(rate, |before| before.max(rate)));
            }
        }
    }

    /// The replicas by task, if they are to change: up at once (Algorithm 3 as the overview spells it out), down after
    /// [`STABLE`] without a change (Algorithm 4).
    pub fn decide(&mut self, now: Moment) -> Option<&[u32]> {
        let up = self.exceeded_qps.take();
        let mut is_changed = false;
        if let Some(rate_qps) = up {
            for (task, replicas) in self.tasks.iter().zip(&mut self.replicas) {
                let wanted = task.replicas(rate_qps, task.provisioning);
                is_changed |= wanted > *replicas;
                *replicas = wanted.max(*replicas);
            }
        } else if now.since(self.changed) >= STABLE {
            let rate_qps = self.down.rate_max_qps(now);
            for (task, replicas) in self.tasks.iter().zip(&mut self.replicas) {
                let wanted = task.replicas(rate_qps, self.provisioning_min);
                is_changed |= wanted < *replicas;
                *replicas = wanted.min(*replicas);
            }
        }
        if is_changed {
            self.changed = now;
        }
        is_changed.then_some(self.replicas.as_slice())
    }
}

/// The largest rate of 5 s windows over the last 30 s: both are whole numbers of seconds, in which it counts.
#[derive(Clone, Debug, Default)]
struct Down {
    /// By second, the oldest first: the horizon, and the seconds that a window at its start looks back on.
    seconds: VecDeque<u64>,
    /// The present second, whose count is the last.
    present: u64,
}

const SECOND_NANOS: u64 = 1_000_000_000;
const DOWN_WINDOW_SECONDS: usize = (DOWN_WINDOW.as_nanos() / SECOND_NANOS) as usize;
const DOWN_HORIZON_SECONDS: usize = (DOWN_HORIZON.as_nanos() / SECOND_NANOS) as usize;

impl Down {
    fn add(&mut self, now: Moment, count: u32) {
        self.advance(now);
        if let Some(last) = self.seconds.back_mut() {
            *last += u64::from(count);
        }
    }

    fn advance(&mut self, now: Moment) {
        let second = now.since(Moment::ZERO).as_nanos() / SECOND_NANOS;
        if self.seconds.is_empty() {
            self.seconds.push_back(0);
            self.present = second;
        }
        if second.saturating_sub(self.present) > DOWN_HORIZON_SECONDS as u64 {
            self.seconds.clear();
            self.seconds.resize(DOWN_HORIZON_SECONDS + 1, 0);
            self.present = second;
        }
        while self.present < second {
            self.present += 1;
            self.seconds.push_back(0);
            if self.seconds.len() > DOWN_HORIZON_SECONDS + 1 {
                self.seconds.pop_front();
            }
        }
    }

    /// In queries per second.
    fn rate_max_qps(&mut self, now: Moment) -> f64 {
        self.advance(now);
        let seconds = self.seconds.make_contiguous();
        // While less than a window has been seen, the seen part counts for a whole one.
        let window = DOWN_WINDOW_SECONDS.min(seconds.len());
        let most = seconds.windows(window).map(|w| w.iter().sum::<u64>()).max().unwrap_or(0);
        most as f64 * 1e9 / DOWN_WINDOW.as_nanos() as f64
    }
}
