//! Which ways can a query take in time, and what is each way worth? For rule `path`.
//!
//! Example: `find-l` with batch 4 takes 100 ms of 250 ms, so `read-m` may follow with every batch size up to 150 ms. With
//! batch 8 `find-l` takes 190 ms, and only the small batches of `read-m` may follow. A *way* is one variant for each task
//! that the query visits, with a group and a batch size for each. All its paths keep to the SLO.
//!
//! With a price for a replica of each place, the relaxation of the pipeline is its best way. A walk up the prefixes of
//! variants finds it: each prefix has the best value of all that follows, as a function of the time that is left
//! ([`ValueSteps`]). Groups and batch sizes are no part of a prefix, because only their time matters to what follows. A
//! walk down gives the *loss* of each batch size: the distance of the best way from the best way through it.

use super::steps::{ValueStep, ValueSteps};
use crate::exact::model::groups::{FeasibleGroup, OperatingPoint};
use crate::exact::model::latency::optional_tasks;
use crate::exact::model::trie::{Trie, TrieError, TrieInputs};
use apportion_domain::{HardwareIndex, LatencyRule, Pipeline, SLACK, Share, TaskIndex, VariantIndex};
use apportion_mip::RunLimits;
use std::collections::BTreeMap;

/// Most prefixes of variants of one pipeline.
const PREFIXES_MAX: usize = 200_000;
/// Units of counted work of one step of a walk. Steps are sorted.
const UNITS_OF_STEP: u64 = 20;
/// Most steps of one function. More of them would make a walk slower than the search that it saves.
const STEPS_MAX: usize = 20_000;

/// Where replicas of one task run: on devices of one type, or on one share of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TaskPlace {
    pub task: TaskIndex,
    pub hardware: HardwareIndex,
    pub share: Share,
}

impl TaskPlace {
    /// The place of a group's replicas.
    pub fn of(group: &FeasibleGroup) -> Self {
        Self { task: group.task, hardware: group.hardware, share: group.share }
    }
}

/// A group with one of its batch sizes, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BatchSizeOfGroup {
    pub group: usize,
    pub point: usize,
}

/// A batch size of a variant, as far as ways are concerned.
struct Stop {
    at: BatchSizeOfGroup,
    place: usize,
    charge_ms: f64,
    qps: f64,
}

/// A prefix of variants, by its last one.
struct Prefix {
    /// Position in [`Ways::stops`].
    stops: usize,
    load_qps: f64,
    accuracy: f64,
    /// Its own branching.
    branching: usize,
    /// The branchings that follow.
    next: Vec<usize>,
}

/// A task after a prefix: one variant must be taken.
struct Branching {
    /// The prefixes that it follows: several where the history of a query does not matter. Empty at the root.
    after: Vec<usize>,
    to: Vec<usize>,
}

/// All ways of one pipeline.
pub(crate) struct Ways {
    pub places: Vec<TaskPlace>,
    groups: usize,
    slo_ms: f64,
    prefixes: Vec<Prefix>,
    /// Parents before children; the first one is the root.
    branchings: Vec<Branching>,
    /// By variant of a task.
    stops: Vec<Vec<Stop>>,
    /// By place: whether some queries skip its task.
    optional: Vec<bool>,
    /// By place: whether its task has the least number of replicas even if all queries skip it.
    may_idle: Vec<bool>,
    /// The work of walks is counted there.
    limits: RunLimits,
}

/// One way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Way {
    /// Replicas that all root queries need, by place, not rounded.
    pub replicas: Vec<f64>,
    /// Accuracy if all root queries take it.
    pub accuracy: f64,
    /// Where its queries stop.
    pub stops: Vec<BatchSizeOfGroup>,
}

/// What counts in a walk: `accuracy` times a way's accuracy, less the price of its place for each replica.
#[derive(Clone, Copy)]
pub(crate) struct Worth<'a> {
    pub accuracy: f64,
    /// By place.
    pub prices: &'a [f64],
}

/// The queries that may stop at a batch size.
#[derive(Clone, Copy)]
struct StopLoss {
    /// The most that all queries there bring back of a replica's price.
    gain: f64,
    /// The most that the queries of one full replica bring back.
    rate: f64,
    /// The least loss of any query there.
    least: f64,
}

/// The result of a walk up the prefixes.
struct Walk {
    /// By prefix: the best value of all that follows, within the time after it.
    rest: Vec<ValueSteps>,
    /// By branching: the best value within a time.
    best: Vec<ValueSteps>,
}

impl Ways {
    /// Lists the prefixes of these groups. The error says that there are too many, or that the time for finishing is up.
    pub fn new(
        pipeline: &Pipeline,
        groups: &[FeasibleGroup],
        headroom: &[f64],
        limits: &RunLimits,
    ) -> Result<Self, TrieError> {
        let places = places(groups);
        let by_variant = stops_by_variant(groups, &places);
        let lane = |t: TaskIndex, v: VariantIndex| by_variant.keys().position(|&key| key == (t, v)).into_iter().collect();
        // the history of a query is its variants only: as under rule `task_budget`
        let rule = LatencyRule::TaskBudget;
        let trie =
            Trie::new(TrieInputs { pipeline, rule, headroom, nodes_max: PREFIXES_MAX }, lane, &limits.for_finishing())?;
        let mut prefixes: Vec<Prefix> = trie
            .nodes
            .iter()
            .map(|n| Prefix { stops: n.lane, load_qps: n.load_qps, accuracy: n.accuracy, branching: 0, next: Vec::new() })
            .collect();
        let mut branchings = Vec::with_capacity(trie.splits.len());
        for (b, split) in trie.splits.iter().enumerate() {
            let parent_task = split.to.first().and_then(|&n| pipeline.primary_parent(trie.nodes[n].task)).map(|e| e.from);
            let after: Vec<usize> = match split.from {
                Some(from) => vec![from],
                // without history, all variants of the parent task come before
                None => (0..trie.nodes.len()).filter(|&n| Some(trie.nodes[n].task) == parent_task).collect(),
            };
            after.iter().for_each(|&n| prefixes[n].next.push(b));
            split.to.iter().for_each(|&n| prefixes[n].branching = b);
            branchings.push(Branching { after, to: split.to.clone() });
        }
        let skipped = optional_tasks(pipeline);
        Ok(Self {
            optional: places.iter().map(|place| skipped[place.task.get()]).collect(),
            may_idle: places.iter().map(|p| skipped[p.task.get()] && pipeline.task(p.task).min_replicas > 0).collect(),
            places,
            groups: groups.len(),
            slo_ms: pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0),
            prefixes,
            branchings,
            stops: by_variant.into_values().collect(),
            limits: limits.clone(),
        })
    }

    /// The largest load of a task, in queries per second.
    pub fn load_max(&self, task: TaskIndex) -> f64 {
        let is_there = |prefix: &&Prefix| self.stops[prefix.stops].iter().any(|stop| self.places[stop.place].task == task);
        self.prefixes.iter().filter(is_there).map(|prefix| prefix.load_qps).fold(0.0, f64::max)
    }

    /// Whether the fastest way is in time.
    pub fn is_any_in_time(&self) -> bool {
        let mut fastest = vec![f64::INFINITY; self.branchings.len()];
        for (b, branching) in self.branchings.iter().enumerate().rev() {
            for &p in &branching.to {
                let rest = self.prefixes[p].next.iter().map(|&next| fastest[next]).fold(0.0, f64::max);
                let own = self.stops_of(p).iter().map(|stop| stop.charge_ms).fold(f64::INFINITY, f64::min);
                fastest[b] = fastest[b].min(own + rest);
            }
        }
        fastest[0] <= self.slo_ms
    }

    /// The value of the best way, and this way. `None` if no way is in time, or if there are too many steps.
    pub fn best_way(&self, worth: Worth<'_>) -> Option<(f64, Way)> {
        let walk = self.walk(worth)?;
        let value = walk.best[0].at(self.slo_ms);
        let mut way = Way { replicas: vec![0.0; self.places.len()], accuracy: 0.0, stops: Vec::new() };
        let mut open = vec![(0, self.slo_ms)];
        while let Some((b, left_ms)) = open.pop() {
            let choices = self.branchings[b].to.iter().flat_map(|&p| self.stops_of(p).iter().map(move |stop| (p, stop)));
            let valued = choices
                .map(|(p, stop)| (self.own_value(p, stop, worth) + walk.rest[p].at(left_ms - stop.charge_ms), p, stop));
            let (_, p, stop) = valued.max_by(|a, b| a.0.total_cmp(&b.0))?;
            way.replicas[stop.place] += self.prefixes[p].load_qps / stop.qps;
            way.accuracy += self.prefixes[p].accuracy;
            way.stops.push(stop.at);
            open.extend(self.prefixes[p].next.iter().map(|&next| (next, left_ms - stop.charge_ms)));
        }
        value.is_finite().then_some((value, way))
    }

    /// By group and batch size: how far a plan with a replica there stays below the bound of these prices, at least.
    /// Infinite where no query can stop in time. A task that needs replicas, and where no query can stop, has them at their
    /// price. `most` is the largest number of replicas at each place.
    ///
    /// A replica costs its price. The queries that it can serve bring back their part of the price, less the loss of
    /// their ways: together at most the best rate times one replica, and at most the best gain of all queries. If the
    /// other replicas of the task cannot serve all queries, some queries must take the losses of this one.
    pub fn losses(&self, worth: Worth<'_>, most: &[f64]) -> Option<Vec<Vec<f64>>> {
        let walk = self.walk(worth)?;
        let whole = walk.best[0].at(self.slo_ms);
        let nothing = StopLoss { gain: f64::NEG_INFINITY, rate: 0.0, least: f64::INFINITY };
        let mut losses: Vec<Vec<StopLoss>> = self.stops.iter().map(|of| vec![nothing; of.len()]).collect();
        let mut served_max = vec![0.0_f64; self.places.len()];
        let before = self.walk_down(&walk, worth)?;
        for (b, branching) in self.branchings.iter().enumerate() {
            for &p in &branching.to {
                let prefix = &self.prefixes[p];
                for (s, stop) in self.stops_of(p).iter().enumerate() {
                    let through = |at: ValueStep| at.value + walk.rest[p].at(at.time_ms - stop.charge_ms);
                    let best = before[b].iter().copied().map(through).fold(f64::NEG_INFINITY, f64::max);
                    let lost = (whole - best - self.own_value(p, stop, worth)).max(0.0);
                    if lost == f64::INFINITY {
                        continue;
                    }
                    let replicas = prefix.load_qps / stop.qps;
                    let own = worth.prices[stop.place] * replicas - lost;
                    let loss = &mut losses[prefix.stops][s];
                    loss.gain = loss.gain.max(own);
                    loss.least = loss.least.min(lost);
                    if replicas > 0.0 {
                        loss.rate = loss.rate.max(own / replicas);
                        served_max[stop.place] = served_max[stop.place].max(1.0 / replicas);
                    } else {
                        served_max[stop.place] = f64::INFINITY;
                    }
                }
            }
        }
        Some(self.losses_by_group(&losses, worth.prices, &served_max, most))
    }

    /// The loss of each batch size, from the losses of the queries that may stop there.
    fn losses_by_group(
        &self,
        of_stops: &[Vec<StopLoss>],
        prices: &[f64],
        served_max: &[f64],
        most: &[f64],
    ) -> Vec<Vec<f64>> {
        let mut by_group = vec![Vec::new(); self.groups];
        for (stops, losses) in self.stops.iter().zip(of_stops) {
            for (stop, loss) in stops.iter().zip(losses) {
                let place = stop.place;
                let of_task = (0..self.places.len()).filter(|&r| self.places[r].task == self.places[place].task);
                let reached = of_task.filter(|&r| served_max[r] > 0.0);
                let is_idle = self.may_idle[place] && reached.clone().next().is_none();
                let all: f64 = reached.map(|r| most[r].max(0.0) * served_max[r]).sum();
                let by_others = (all - served_max[place].min(all)).max(0.0);
                let must = if self.optional[place] || by_others >= 1.0 { 0.0 } else { 1.0 - by_others };
                let price = prices[place] - loss.gain.min(loss.rate).max(0.0);
                let loss = match loss.least == f64::INFINITY {
                    true if is_idle => price,
                    true => f64::INFINITY,
                    false => price.max(must * loss.least),
                };
                let of_group: &mut Vec<f64> = &mut by_group[stop.at.group];
                of_group.resize(of_group.len().max(stop.at.point + 1), f64::INFINITY);
                of_group[stop.at.point] = loss;
            }
        }
        by_group
    }

    /// The stops of a prefix.
    fn stops_of(&self, prefix: usize) -> &[Stop] {
        &self.stops[self.prefixes[prefix].stops]
    }

    /// The value of a stop after a prefix, without the rest of the way.
    fn own_value(&self, prefix: usize, stop: &Stop, worth: Worth<'_>) -> f64 {
        let prefix = &self.prefixes[prefix];
        worth.accuracy * prefix.accuracy - worth.prices[stop.place] * prefix.load_qps / stop.qps
    }

    /// Children before parents: the best value within each time.
    fn walk(&self, worth: Worth<'_>) -> Option<Walk> {
        let mut rest = vec![ValueSteps::default(); self.prefixes.len()];
        let mut best = vec![ValueSteps::default(); self.branchings.len()];
        let mut candidates = Vec::new();
        let mut steps = 0;
        for (b, branching) in self.branchings.iter().enumerate().rev() {
            for &p in &branching.to {
                rest[p] = self.prefixes[p].next.iter().fold(ValueSteps::zero(), |sum, &next| best[next].plus(&sum));
                for stop in self.stops_of(p) {
                    let own = self.own_value(p, stop, worth);
                    let shifted =
                        rest[p].iter().map(|s| ValueStep { time_ms: s.time_ms + stop.charge_ms, value: s.value + own });
                    candidates.extend(shifted.take_while(|s| s.time_ms <= self.slo_ms));
                }
            }
            steps += candidates.len() + branching.to.len();
            best[b] = ValueSteps::best_of(&mut candidates);
            if best[b].len() > STEPS_MAX {
                return None;
            }
        }
        self.limits.count_work(UNITS_OF_STEP * steps as u64);
        Some(Walk { rest, best })
    }

    /// Parents before children: by branching, the best value of all the rest of a way that has this time left there. No
    /// entry has both less time left and less value than another one.
    fn walk_down(&self, walk: &Walk, worth: Worth<'_>) -> Option<Vec<Vec<ValueStep>>> {
        let mut before: Vec<Vec<ValueStep>> = Vec::with_capacity(self.branchings.len());
        for (b, branching) in self.branchings.iter().enumerate() {
            if branching.after.is_empty() {
                before.push(vec![ValueStep { time_ms: self.slo_ms, value: 0.0 }]);
                continue;
            }
            let mut entries = Vec::new();
            let mut steps = 0;
            for &p in &branching.after {
                let siblings = self.prefixes[p].next.iter().filter(|&&next| next != b);
                let siblings = siblings.fold(ValueSteps::zero(), |sum, &next| walk.best[next].plus(&sum));
                steps += self.stops_of(p).len() * before[self.prefixes[p].branching].len();
                for stop in self.stops_of(p) {
                    let own = self.own_value(p, stop, worth);
                    for entry in &before[self.prefixes[p].branching] {
                        let time_ms = entry.time_ms - stop.charge_ms;
                        let value = entry.value + own + siblings.at(time_ms);
                        if value.is_finite() && walk.best[b].at(time_ms).is_finite() {
                            entries.push(ValueStep { time_ms, value });
                        }
                    }
                }
            }
            // the losses look at all of them once more
            self.limits.count_work(2 * UNITS_OF_STEP * steps as u64);
            entries.sort_unstable_by(|a, b| b.time_ms.total_cmp(&a.time_ms).then(b.value.total_cmp(&a.value)));
            let mut most = f64::NEG_INFINITY;
            entries.retain(|entry| {
                let is_better = entry.value > most;
                most = most.max(entry.value);
                is_better
            });
            if entries.len() > STEPS_MAX {
                return None;
            }
            before.push(entries);
        }
        Some(before)
    }
}

/// The places of these groups, in the order of their first group.
fn places(groups: &[FeasibleGroup]) -> Vec<TaskPlace> {
    let mut places: Vec<TaskPlace> = Vec::new();
    for group in groups {
        let place = TaskPlace::of(group);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// The stops of each variant of each task. No query stops at an idle group.
fn stops_by_variant(groups: &[FeasibleGroup], places: &[TaskPlace]) -> BTreeMap<(TaskIndex, VariantIndex), Vec<Stop>> {
    let mut by_variant: BTreeMap<(TaskIndex, VariantIndex), Vec<Stop>> = BTreeMap::new();
    for (g, group) in groups.iter().enumerate().filter(|(_, group)| !group.is_idle) {
        let place = places.iter().position(|&place| place == TaskPlace::of(group)).expect("each group has a place");
        let stop = |(point, at): (usize, &OperatingPoint)| Stop {
            at: BatchSizeOfGroup { group: g, point },
            place,
            charge_ms: at.charge_ms,
            qps: at.qps,
        };
        by_variant.entry((group.task, group.variant)).or_default().extend(group.points.iter().enumerate().map(stop));
    }
    by_variant
}
