//! Which groups, each with a batch size, can queries pass in time, and what is each way worth? For rule `path`.
//!
//! Example: `find-l` with batch 4 takes 100 ms of 250 ms, so `read-m` may follow with every batch size up to 150 ms. With
//! batch 8 `find-l` takes 190 ms, and only the small batches of `read-m` may follow. A *configuration* is such a prefix:
//! groups from the root on, each with its batch size, that leaves enough time for the rest.
//!
//! The relaxation gives each prefix its own batch sizes and takes parts of replicas. With a price for the replicas of
//! each task its optimum is one best way through the tree, and a walk up the tree finds it without a solver. Each
//! configuration then has a *loss*: the distance of the best way from the best way through that configuration.

use crate::exact::model::covers::rests;
use crate::exact::model::latency::optional_tasks;
use crate::exact::model::space::PipelineSpace;
use apportion_domain::{Pipeline, SLACK};
use apportion_mip::RunLimits;
use std::collections::VecDeque;
use std::ops::Range;

/// Most configurations of a pipeline. A walk over all of them takes about a millisecond.
const CONFIGURATIONS_MAX: usize = 200_000;
/// Configurations between two checks of the limits.
const CONFIGURATIONS_PER_CHECK: usize = 1_024;

/// A group with a batch size at the end of a prefix.
struct Configuration {
    task: usize,
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
    /// By task: whether some queries skip it.
    optional: Vec<bool>,
}

/// The best way at some prices.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Way {
    /// Replicas that all root queries need, by task, not rounded.
    pub replicas: Vec<f64>,
    /// Accuracy if all root queries take it.
    pub accuracy: f64,
}

/// What counts in a walk: `accuracy` times a way's accuracy, less the price of its task for each replica.
#[derive(Clone, Copy)]
pub(crate) struct Worth<'a> {
    pub accuracy: f64,
    /// By task.
    pub prices: &'a [f64],
}

/// The queries that may pass a group with a batch size.
struct PointLoss {
    /// The most that all queries there bring back of a replica's price.
    gain: f64,
    /// The most that the queries of one full replica bring back.
    rate: f64,
    /// The least loss of any query there.
    least: f64,
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
    pub fn new(pipeline: &Pipeline, part: &PipelineSpace, limits: &RunLimits) -> Option<Self> {
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
                    all.push(Configuration { task: node.task.get(), group, point, replicas, accuracy: node.accuracy });
                }
            }
            branchings.push(Branching { from, to: first..all.len() });
        }
        Some(Self { all, branchings, optional: optional_tasks(pipeline) })
    }

    /// The value of the best way, and this way.
    pub fn best_way(&self, worth: Worth<'_>) -> (f64, Way) {
        let walk = self.walk(worth);
        let mut taken = vec![false; self.all.len()];
        let mut way = Way { replicas: vec![0.0; worth.prices.len()], accuracy: 0.0 };
        for (branching, best) in self.branchings.iter().zip(&walk.best) {
            if branching.from.is_some_and(|from| !taken[from]) {
                continue;
            }
            if let Some(i) = branching.to.clone().find(|&i| walk.values[i] == *best) {
                taken[i] = true;
                way.replicas[self.all[i].task] += self.all[i].replicas;
                way.accuracy += self.all[i].accuracy;
            }
        }
        (walk.whole, way)
    }

    /// By group and point: how far a plan with a replica there stays below the bound of these prices, at least. Infinite
    /// where no query can pass in time. `most` is the largest number of replicas of each task.
    ///
    /// A replica costs its price. The queries that it can serve bring back their part of the price, less the loss of
    /// their ways: together at most the best rate times one replica, and at most the best gain of all queries. If the
    /// other replicas of the task cannot serve all queries, some queries must take the losses of this one.
    pub fn losses(&self, part: &PipelineSpace, prices: &[f64], most: &[f64]) -> Vec<Vec<f64>> {
        let walk = self.walk(Worth { accuracy: 1.0, prices });
        let mut lost = vec![0.0; self.all.len()];
        let nothing = || PointLoss { gain: f64::NEG_INFINITY, rate: 0.0, least: f64::INFINITY };
        let mut points: Vec<Vec<PointLoss>> =
            part.groups.iter().map(|g| g.points.iter().map(|_| nothing()).collect()).collect();
        let mut served_max = vec![0.0_f64; prices.len()];
        for (branching, best) in self.branchings.iter().zip(&walk.best) {
            let before = branching.from.map_or(0.0, |from| lost[from]);
            for i in branching.to.clone() {
                lost[i] = before + (best - walk.values[i]).max(0.0);
                let at = &self.all[i];
                let own = prices[at.task] * at.replicas - lost[i];
                let point = &mut points[at.group][at.point];
                point.gain = point.gain.max(own);
                point.least = point.least.min(lost[i]);
                if at.replicas > 0.0 {
                    point.rate = point.rate.max(own / at.replicas);
                    served_max[at.task] = served_max[at.task].max(1.0 / at.replicas);
                } else {
                    served_max[at.task] = f64::INFINITY;
                }
            }
        }
        let loss = |task: usize, point: &PointLoss| {
            if point.least == f64::INFINITY {
                return f64::INFINITY;
            }
            let price = prices[task] - point.gain.min(point.rate).max(0.0);
            let by_others = (most[task] - 1.0).max(0.0) * served_max[task];
            let must = if self.optional[task] || by_others >= 1.0 { 0.0 } else { 1.0 - by_others };
            price.max(must * point.least)
        };
        let by_group = part.groups.iter().zip(&points);
        by_group.map(|(g, points)| points.iter().map(|p| loss(g.task.get(), p)).collect()).collect()
    }

    fn walk(&self, worth: Worth<'_>) -> Walk {
        let own = |c: &Configuration| worth.accuracy * c.accuracy - worth.prices[c.task] * c.replicas;
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
}
