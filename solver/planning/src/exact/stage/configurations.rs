//! Which groups, each with a batch size, can queries pass in time, and what is each way worth? For rule `path`.
//!
//! Example: `find-l` with batch 4 takes 100 ms of 250 ms, so `read-m` may follow with every batch size up to 150 ms. With
//! batch 8 `find-l` takes 190 ms, and only the small batches of `read-m` may follow. A *configuration* is such a prefix:
//! groups from the root on, each with its batch size, that leaves enough time for the rest.
//!
//! The relaxation gives each prefix its own batch sizes and takes parts of replicas. With one price for a replica its
//! optimum is one best way for each branch of the tree, so a walk up the tree finds it without a solver. The price at
//! which this bound is least comes from few such walks. Each configuration then has a *loss*: the distance of the bound
//! from the best way through that configuration.

use crate::exact::model::covers::rests;
use crate::exact::model::space::PipelineSpace;
use apportion_domain::{Pipeline, SLACK};
use apportion_mip::Limits;
use std::collections::VecDeque;
use std::ops::Range;

/// Most configurations of a pipeline. A walk over so many takes about a millisecond.
const CONFIGURATIONS_MAX: usize = 200_000;
/// Configurations between two checks of the limits.
const CONFIGURATIONS_PER_CHECK: usize = 1_024;
/// Most walks for one price. Each finds another corner of the envelope, and few remain after ten.
const WALKS_MAX: usize = 100;

/// A group with a batch size at the end of a prefix.
struct Configuration {
    group: usize,
    point: usize,
    /// Replicas that all root queries need here.
    replicas: f64,
    /// A share of 1 adds this to the pipeline's accuracy.
    accuracy: f64,
}

/// The configurations that may follow one, for one child task.
struct Branching {
    from: Option<usize>,
    to: Range<usize>,
}

/// All configurations of one pipeline.
pub(crate) struct Configurations {
    all: Vec<Configuration>,
    /// Parents before children.
    branchings: Vec<Branching>,
}

/// What counts in a walk: `accuracy` times a way's accuracy, less `price` for each replica.
#[derive(Clone, Copy)]
struct Worth {
    accuracy: f64,
    price: f64,
}

/// The best way at one worth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// Its worth.
    pub value: f64,
    /// Replicas that all root queries need, not rounded.
    pub replicas: f64,
    /// Accuracy if all root queries take it.
    pub accuracy: f64,
}

/// The result of a walk up the tree.
struct Walk {
    /// Value of each configuration with the best ways below it.
    values: Vec<f64>,
    /// Best value of each branching.
    best: Vec<f64>,
    /// Value of the best way.
    whole: f64,
}

impl Configurations {
    /// Lists them; `None` if there are more than `CONFIGURATIONS_MAX`, or if time is up first.
    pub fn new(pipeline: &Pipeline, part: &PipelineSpace, limits: &Limits) -> Option<Self> {
        let slo = pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0);
        let trie = &part.trie;
        let rests = rests(&part.path_view(), |g| part.groups[g].points[0].charge_ms);
        let mut splits_of = vec![Vec::new(); trie.nodes.len()];
        let mut open = VecDeque::new();
        for (s, split) in trie.splits.iter().enumerate() {
            match split.from {
                Some(from) => splits_of[from].push(s),
                None => open.push_back((None, s, 0.0)),
            }
        }
        let mut all = Vec::new();
        let mut branchings = Vec::new();
        while let Some((from, split, used_ms)) = open.pop_front() {
            let first = all.len();
            for &n in &trie.splits[split].to {
                let node = &trie.nodes[n];
                let group = part.lanes[node.lane][0];
                for (point, at) in part.groups[group].points.iter().enumerate() {
                    let done_ms = used_ms + at.charge_ms;
                    if done_ms + rests[n] > slo {
                        break;
                    }
                    let i = all.len();
                    if i == CONFIGURATIONS_MAX || (i.is_multiple_of(CONFIGURATIONS_PER_CHECK) && limits.exceeded()) {
                        return None;
                    }
                    open.extend(splits_of[n].iter().map(|&s| (Some(i), s, done_ms)));
                    let replicas = node.load_qps / at.qps;
                    all.push(Configuration { group, point, replicas, accuracy: node.accuracy });
                }
            }
            branchings.push(Branching { from, to: first..all.len() });
        }
        Some(Self { all, branchings })
    }

    /// The price of a replica at which ways change from `needs_more` replicas than there are to enough; 0 if the most
    /// accurate way has enough, `None` if no way has.
    pub fn price(&self, needs_more: impl Fn(&Way) -> bool) -> Option<f64> {
        let mut above = self.best_way(Worth { accuracy: 1.0, price: 0.0 });
        if !needs_more(&above) {
            return Some(0.0);
        }
        let mut below = self.best_way(Worth { accuracy: 0.0, price: 1.0 });
        if needs_more(&below) || !below.value.is_finite() {
            return None;
        }
        let mut price = 0.0;
        for _ in 0..WALKS_MAX {
            price = (above.accuracy - below.accuracy) / (above.replicas - below.replicas);
            let way = self.best_way(Worth { accuracy: 1.0, price });
            let chord = above.accuracy - price * above.replicas;
            if way.value <= chord + 1e-12 * chord.abs().max(1.0) {
                break;
            }
            if needs_more(&way) {
                above = way;
            } else {
                below = way;
            }
        }
        Some(price)
    }

    /// Value of the best way if a replica costs `price`, in accuracy.
    pub fn value(&self, price: f64) -> f64 {
        self.walk(Worth { accuracy: 1.0, price }).whole
    }

    /// By group and point: how far a plan with a replica there stays below `value(price) + price * replicas`, at least.
    /// Infinite where no query can pass in time.
    ///
    /// A replica costs its price. The queries that it can serve bring back their part of the price, less the loss of
    /// their ways: together at most the best rate times one replica, and at most the best gain of all queries.
    pub fn losses(&self, part: &PipelineSpace, price: f64) -> Vec<Vec<f64>> {
        let walk = self.walk(Worth { accuracy: 1.0, price });
        let unused = || -> Vec<Vec<f64>> { part.groups.iter().map(|g| vec![f64::NEG_INFINITY; g.points.len()]).collect() };
        let (mut gain, mut rate) = (unused(), unused());
        let mut lost = vec![0.0; self.all.len()];
        for (branching, best) in self.branchings.iter().zip(&walk.best) {
            let before = branching.from.map_or(0.0, |from| lost[from]);
            for i in branching.to.clone() {
                lost[i] = before + (best - walk.values[i]).max(0.0);
                let at = &self.all[i];
                let own = price * at.replicas - lost[i];
                let gain = &mut gain[at.group][at.point];
                *gain = gain.max(own);
                let rate = &mut rate[at.group][at.point];
                *rate = rate.max(if at.replicas > 0.0 { own / at.replicas } else { 0.0 });
            }
        }
        let loss = |(gain, rate): (&f64, &f64)| {
            if *gain == f64::NEG_INFINITY { f64::INFINITY } else { price - gain.min(*rate).max(0.0) }
        };
        gain.iter().zip(&rate).map(|(gain, rate)| gain.iter().zip(rate).map(loss).collect()).collect()
    }

    fn walk(&self, worth: Worth) -> Walk {
        let own = |c: &Configuration| worth.accuracy * c.accuracy - worth.price * c.replicas;
        let mut values: Vec<f64> = self.all.iter().map(own).collect();
        let mut best = vec![f64::NEG_INFINITY; self.branchings.len()];
        let mut whole = 0.0;
        for (branching, best) in self.branchings.iter().zip(&mut best).rev() {
            *best = values[branching.to.clone()].iter().copied().fold(f64::NEG_INFINITY, f64::max);
            match branching.from {
                Some(from) => values[from] += *best,
                None => whole += *best,
            }
        }
        Walk { values, best, whole }
    }

    fn best_way(&self, worth: Worth) -> Way {
        let walk = self.walk(worth);
        let mut taken = vec![false; self.all.len()];
        let mut way = Way { value: walk.whole, replicas: 0.0, accuracy: 0.0 };
        for (branching, best) in self.branchings.iter().zip(&walk.best) {
            if branching.from.is_some_and(|from| !taken[from]) {
                continue;
            }
            if let Some(i) = branching.to.clone().find(|&i| walk.values[i] == *best) {
                taken[i] = true;
                way.replicas += self.all[i].replicas;
                way.accuracy += self.all[i].accuracy;
            }
        }
        way
    }
}
