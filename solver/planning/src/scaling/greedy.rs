//! Which scaling actions does the greedy heuristic of INFaaS section 4.2.2 take? One application after the other.
//!
//! *Scaling up*: the running replicas cannot serve the load with its slack. There are two actions: replicate a running
//! variant, or upgrade to a variant of the same architecture with a higher throughput. Each has as many replicas as the
//! load needs. The action that is cheaper by the objective of the integer programme is taken. The paper leaves open whether
//! an upgrade keeps the running replicas, so both are tried. If neither fits into the resources, replicas are added one by
//! one where load is cheapest. *Scaling down*: the running replicas are enough. The action that saves most is taken, until
//! none saves anything: remove replicas, or downgrade a variant to a cheaper one.
//!
//! The paper runs this on each worker at intervals, and waits for a load latency before it scales down. Here it runs once,
//! over all applications in the order of the file. First all applications scale down, which frees resources. Then the
//! applications with too few replicas scale up. The heuristic proves nothing.

use super::program::{ApplicationNumbers, Program, ReplicaCounts, fits};
use apportion_mip::RunLimits;

/// Savings below this, relative to the price, are rounding.
const SAVING_MIN: f64 = 1e-12;
/// Most single replicas that are added where no whole action fits.
const SINGLES_MAX: usize = 100_000;
/// Most actions of one application's scaling down; each saves, so this only bounds rounding.
const DOWN_MAX: usize = 10_000;

/// Counts that obey every constraint, within the limits. The error is the application for which no action was found.
pub(crate) fn counts(program: &Program, limits: &RunLimits) -> Result<ReplicaCounts, usize> {
    let mut greedy = Greedy { program, counts: program.running(), used: Vec::new(), limits };
    greedy.used = (0..program.totals.len()).map(|t| program.used(&greedy.counts, t)).collect();
    let applications = 0..program.covers.len();
    for i in applications.clone() {
        greedy.scale_down(i);
    }
    for i in applications.clone() {
        greedy.scale_up(i)?;
    }
    for i in applications {
        greedy.scale_down(i);
    }
    match program.admits(&greedy.counts) {
        true => Ok(greedy.counts),
        // the running replicas exceed the resources, and every application needs them
        false => Err(0),
    }
}

/// The state of the heuristic.
struct Greedy<'a> {
    program: &'a Program,
    counts: ReplicaCounts,
    /// Use of each resource.
    used: Vec<f64>,
    limits: &'a RunLimits,
}

impl Greedy<'_> {
    fn application(&self, i: usize) -> &ApplicationNumbers {
        &self.program.covers[i]
    }

    /// Sets the replicas of an application, and updates the use of the resources.
    fn set_counts(&mut self, i: usize, counts: Vec<u32>) {
        let cover = &self.program.covers[i];
        for (t, used) in self.used.iter_mut().enumerate() {
            *used += cover.used(&counts, t) - cover.used(&self.counts[i], t);
        }
        self.counts[i] = counts;
    }

    /// Whether an application may run these replicas beside those of the others. It may always use as much as now.
    fn has_room(&self, i: usize, counts: &[u32]) -> bool {
        let cover = self.application(i);
        self.program.totals.iter().enumerate().all(|(t, &total)| {
            let more = cover.used(counts, t) - cover.used(&self.counts[i], t);
            more <= 0.0 || fits(self.used[t] + more, total)
        })
    }

    /// The cheapest candidate that covers the load and fits into the resources.
    fn cheapest(&self, i: usize, candidates: Vec<Vec<u32>>) -> Option<Vec<u32>> {
        let cover = self.application(i);
        let fitting = candidates.into_iter().filter(|n| cover.admits(n) && self.has_room(i, n));
        fitting.min_by(|a, b| cover.price(a).total_cmp(&cover.price(b)))
    }

    fn scale_up(&mut self, i: usize) -> Result<(), usize> {
        if self.limits.exceeded() {
            return Err(i);
        }
        let cover = self.application(i);
        let now = &self.counts[i];
        if cover.capacity(now) >= cover.needed {
            return Ok(());
        }
        let candidates = [
            replicated(cover, now),
            upgraded(cover, now, UpgradeTargets::FasterThanRunning),
            upgraded(cover, now, UpgradeTargets::All),
        ];
        for candidates in [[candidates[0].clone(), candidates[1].clone()].concat(), candidates[2].clone()] {
            if let Some(best) = self.cheapest(i, candidates) {
                self.set_counts(i, best);
                return Ok(());
            }
        }
        self.add_singles(i)
    }

    /// Adds replicas one by one where a query per second is cheapest, because no whole action fits.
    fn add_singles(&mut self, i: usize) -> Result<(), usize> {
        for _ in 0..SINGLES_MAX {
            if self.limits.exceeded() {
                return Err(i);
            }
            let cover = self.application(i);
            let now = &self.counts[i];
            if cover.capacity(now) >= cover.needed {
                return Ok(());
            }
            let one_more = |v: usize| with_replicas(now, v, now[v] + 1);
            let open = (0..now.len()).filter(|&v| now[v] < cover.kinds[v].most);
            let fitting = open.filter(|&v| self.has_room(i, &one_more(v)));
            let price = |v: usize| (cover.price(&one_more(v)) - cover.price(now)) / cover.kinds[v].qps;
            let best = fitting.min_by(|&a, &b| price(a).total_cmp(&price(b))).ok_or(i)?;
            let counts = one_more(best);
            self.set_counts(i, counts);
        }
        Err(i)
    }

    fn scale_down(&mut self, i: usize) {
        for _ in 0..DOWN_MAX {
            if self.limits.exceeded() {
                return;
            }
            let cover = self.application(i);
            let now = &self.counts[i];
            if cover.capacity(now) < cover.needed {
                return;
            }
            let price = cover.price(now);
            let candidates = [removed(cover, now), downgraded(cover, now)].concat();
            match self.cheapest(i, candidates) {
                Some(best) if cover.price(&best) < price - SAVING_MIN * price.abs().max(1.0) => self.set_counts(i, best),
                _ => return,
            }
        }
    }
}

/// The counts with `n` replicas of variant `v`.
fn with_replicas(counts: &[u32], v: usize, n: u32) -> Vec<u32> {
    let mut counts = counts.to_vec();
    counts[v] = n;
    counts
}

/// Replicas of a variant that serve a load in queries per second. `None` if the variant may not have so many.
fn replicas_for(cover: &ApplicationNumbers, v: usize, load: f64) -> Option<u32> {
    let n = (load / cover.kinds[v].qps).ceil().max(0.0);
    (n <= f64::from(cover.kinds[v].most)).then_some(n as u32)
}

/// Every variant that runs, replicated until the load is covered.
fn replicated(cover: &ApplicationNumbers, now: &[u32]) -> Vec<Vec<u32>> {
    let missing = cover.needed - cover.capacity(now);
    let more = |v: usize| Some(with_replicas(now, v, now[v].checked_add(replicas_for(cover, v, missing)?)?));
    (0..now.len()).filter(|&v| now[v] > 0).filter_map(more).collect()
}

/// The variants that an upgrade may load.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UpgradeTargets {
    /// Variants of a higher throughput than every running variant.
    FasterThanRunning,
    /// Every variant.
    All,
}

/// Replicas of each target variant: beside the running replicas, and instead of them.
fn upgraded(cover: &ApplicationNumbers, now: &[u32], targets: UpgradeTargets) -> Vec<Vec<u32>> {
    let fastest = now.iter().zip(&cover.kinds).filter(|(n, _)| **n > 0).map(|(_, k)| k.qps).fold(0.0, f64::max);
    let missing = cover.needed - cover.capacity(now);
    let mut candidates = Vec::new();
    let is_target = |v: usize| match targets {
        UpgradeTargets::FasterThanRunning => cover.kinds[v].qps > fastest,
        UpgradeTargets::All => true,
    };
    for v in (0..now.len()).filter(|&v| is_target(v)) {
        let beside = replicas_for(cover, v, missing).and_then(|n| now[v].checked_add(n));
        candidates.extend(beside.map(|n| with_replicas(now, v, n)));
        candidates.extend(replicas_for(cover, v, cover.needed).map(|n| with_replicas(&vec![0; now.len()], v, n)));
    }
    candidates
}

/// Every variant with as many replicas removed as the load can spare.
fn removed(cover: &ApplicationNumbers, now: &[u32]) -> Vec<Vec<u32>> {
    let spare = (cover.capacity(now) - cover.needed).max(0.0);
    let fewer = |v: usize| {
        let n = (spare / cover.kinds[v].qps).floor().min(f64::from(now[v])) as u32;
        (n > 0).then(|| with_replicas(now, v, now[v] - n))
    };
    (0..now.len()).filter_map(fewer).collect()
}

/// Every variant that runs, unloaded for as many replicas of another as the load then needs.
fn downgraded(cover: &ApplicationNumbers, now: &[u32]) -> Vec<Vec<u32>> {
    let mut candidates = Vec::new();
    for v in (0..now.len()).filter(|&v| now[v] > 0) {
        let without = with_replicas(now, v, 0);
        let missing = (cover.needed - cover.capacity(&without)).max(0.0);
        for w in (0..now.len()).filter(|&w| w != v) {
            let more = replicas_for(cover, w, missing).and_then(|n| now[w].checked_add(n));
            candidates.extend(more.map(|n| with_replicas(&without, w, n)));
        }
    }
    candidates
}
