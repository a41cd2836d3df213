//! Which replicas cover the load of one application most cheaply, at given prices of the resources?
//!
//! At prices `u` a kept replica costs `C + u R`, and an added replica `C (1 + lambda T_load) + u R`. This is a covering
//! knapsack with at most two items for each variant: the kept replicas first, then the added ones. A depth-first search
//! takes items by their price for each query per second. The missing load has a bound: its price if the remaining items
//! are taken in that order, in fractions.

use super::program::{ApplicationNumbers, ReplicaCounts};
use apportion_mip::RunLimits;
use std::ops::ControlFlow;

/// A search covers a load that exceeds the needed one by this, relative. So sums in another order stay above the needed
/// load.
const ROUNDING: f64 = 1e-13;

/// Most steps of one search. Beyond it, HiGHS has better bounds.
const STEPS_MAX: u64 = 20_000_000;
/// Steps between two checks of the limits.
const STEPS_PER_CHECK: u64 = 1_024;

/// The limits, or the count of steps, ended a search before its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SearchStopped;

/// The steps of one search.
struct Steps<'a> {
    taken: u64,
    limits: &'a RunLimits,
}

impl<'a> Steps<'a> {
    fn new(limits: &'a RunLimits) -> Self {
        Self { taken: 0, limits }
    }

    /// Counts a step. Whether the search must stop.
    fn must_stop(&mut self) -> bool {
        self.taken += 1;
        self.taken > STEPS_MAX || (self.taken.is_multiple_of(STEPS_PER_CHECK) && self.limits.exceeded())
    }
}

/// Replicas of one variant: the running ones, or the added ones.
#[derive(Clone, Copy, Debug)]
struct Item {
    kind: usize,
    qps: f64,
    /// At the present prices.
    price: f64,
    most: u32,
    /// Position of the kept replicas of the same variant: they come first, all of them.
    after: Option<usize>,
}

/// A cover of one application's load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoadCover {
    /// Replicas by variant.
    pub counts: Vec<u32>,
    /// Its price without the resources.
    pub price: f64,
    /// Its use of each resource.
    pub uses: Vec<f64>,
    /// Its price with the resources.
    pub priced: f64,
}

/// Which covers a list may contain.
#[derive(Clone, Copy)]
pub(crate) struct ListLimits {
    /// Only covers with a lower price, resources included.
    pub price_below: f64,
    /// Most covers.
    pub covers_max: usize,
}

/// The search of one application at a time; keeps its buffers.
#[derive(Debug, Default)]
pub(crate) struct Knapsack {
    items: Vec<Item>,
    counts: Vec<u32>,
    best: Vec<u32>,
}

/// The least price of the missing load, by items taken in order and in fractions.
fn price_of_fractions(items: &[Item], mut missing: f64) -> f64 {
    let mut price = 0.0;
    for item in items {
        let room = item.qps * f64::from(item.most);
        if room >= missing {
            return price + item.price * (missing / item.qps);
        }
        price += item.price * f64::from(item.most);
        missing -= room;
    }
    if missing > 0.0 { f64::INFINITY } else { price }
}

impl Knapsack {
    /// Lists the items of an application at these prices, the cheapest query per second first. Returns the load to cover.
    fn load_items(&mut self, cover: &ApplicationNumbers, prices: &[f64]) -> f64 {
        self.items.clear();
        for (kind, k) in cover.kinds.iter().enumerate() {
            let resources: f64 = k.uses.iter().zip(prices).map(|(r, u)| r * u).sum();
            let mut push = |price: f64, most: u32| {
                if most > 0 {
                    self.items.push(Item { kind, qps: k.qps, price: price + resources, most, after: None });
                }
            };
            push(k.keep, k.running);
            push(k.add, k.most - k.running);
        }
        // stable: kept replicas were pushed first and stay first where the prices tie
        self.items.sort_by(|a, b| (a.price * b.qps).total_cmp(&(b.price * a.qps)));
        for i in 0..self.items.len() {
            let kind = self.items[i].kind;
            self.items[i].after = self.items[..i].iter().position(|other| other.kind == kind);
        }
        self.counts.clear();
        self.counts.resize(self.items.len(), 0);
        cover.needed * (1.0 + ROUNDING)
    }

    /// The cheapest cover at these prices; `None` if nothing covers the load.
    pub fn cheapest(
        &mut self,
        cover: &ApplicationNumbers,
        prices: &[f64],
        limits: &RunLimits,
    ) -> Result<Option<LoadCover>, SearchStopped> {
        let needed = self.load_items(cover, prices);
        let mut best = std::mem::take(&mut self.best);
        best.clear();
        best.resize(self.items.len(), 0);
        let mut least = f64::INFINITY;
        let mut visit = |counts: &[u32], _missing: f64, priced: f64| {
            least = priced;
            best.copy_from_slice(counts);
            ControlFlow::Continue(priced)
        };
        let steps = &mut Steps::new(limits);
        let ended = visit_covers(&self.items, &mut self.counts, Position::start(needed), f64::INFINITY, steps, &mut visit);
        let choice = least.is_finite().then(|| cover_of_items(&self.items, cover, &best, least));
        self.best = best;
        if ended.is_break() { Err(SearchStopped) } else { Ok(choice) }
    }

    /// All covers below a price that need every replica. No listed cover is dominated by another in price and in the use of
    /// every resource. `None` if there are too many, or if the limits end the search.
    pub fn list_covers(
        &mut self,
        cover: &ApplicationNumbers,
        prices: &[f64],
        list: ListLimits,
        limits: &RunLimits,
    ) -> Option<Vec<LoadCover>> {
        let ListLimits { price_below: limit, covers_max: most } = list;
        let needed = self.load_items(cover, prices);
        let mut found = Vec::new();
        let items = &self.items;
        let mut steps = 0_usize;
        let mut visit = |counts: &[u32], missing: f64, priced: f64| {
            steps += 1;
            let spare = items.iter().zip(counts).any(|(item, &n)| n > 0 && missing + item.qps <= 0.0);
            if !spare {
                found.push(cover_of_items(items, cover, counts, priced));
            }
            if found.len() > most || steps > 16 * most { ControlFlow::Break(()) } else { ControlFlow::Continue(limit) }
        };
        let ended =
            visit_covers(items, &mut self.counts, Position::start(needed), limit, &mut Steps::new(limits), &mut visit);
        ended.is_continue().then(|| undominated(found))
    }
}

/// Where a depth-first search stands.
#[derive(Clone, Copy)]
struct Position {
    /// The next item.
    item: usize,
    /// Load that is not covered yet.
    missing: f64,
    /// Price of the items taken.
    price: f64,
}

impl Position {
    fn start(needed: f64) -> Self {
        Self { item: 0, missing: needed, price: 0.0 }
    }
}

/// Visits the covers below a position. A visit returns the price that further covers must stay below. A break comes from a
/// visit, or from the limit of steps.
fn visit_covers(
    items: &[Item],
    counts: &mut [u32],
    at: Position,
    mut limit: f64,
    steps: &mut Steps<'_>,
    visit: &mut impl FnMut(&[u32], f64, f64) -> ControlFlow<(), f64>,
) -> ControlFlow<(), f64> {
    let Position { item: j, missing, price } = at;
    if missing <= 0.0 {
        return if price < limit { visit(counts, missing, price) } else { ControlFlow::Continue(limit) };
    }
    let Some(item) = items.get(j) else { return ControlFlow::Continue(limit) };
    let open = item.after.is_none_or(|kept| counts[kept] == items[kept].most);
    let most = if open { (missing / item.qps).ceil().min(f64::from(item.most)) as u32 } else { 0 };
    for n in (0..=most).rev() {
        if steps.must_stop() {
            counts[j] = 0;
            return ControlFlow::Break(());
        }
        let (missing, price) = (missing - f64::from(n) * item.qps, price + f64::from(n) * item.price);
        // fewer of this item means more of dearer items, so the bound only rises
        let bound = price + if missing > 0.0 { price_of_fractions(&items[j + 1..], missing) } else { 0.0 };
        if bound >= limit && missing > 0.0 {
            break;
        }
        counts[j] = n;
        limit = match visit_covers(items, counts, Position { item: j + 1, missing, price }, limit, steps, visit) {
            ControlFlow::Continue(limit) => limit,
            ended => {
                counts[j] = 0;
                return ended;
            }
        };
    }
    counts[j] = 0;
    ControlFlow::Continue(limit)
}

fn cover_of_items(items: &[Item], cover: &ApplicationNumbers, of_items: &[u32], priced: f64) -> LoadCover {
    let mut counts = vec![0; cover.kinds.len()];
    for (item, &n) in items.iter().zip(of_items) {
        counts[item.kind] += n;
    }
    let resources = cover.kinds.first().map_or(0, |k| k.uses.len());
    let use_of = |t: usize| cover.kinds.iter().zip(&counts).map(|(k, &n)| k.uses[t] * f64::from(n)).sum();
    LoadCover { price: cover.price(&counts), uses: (0..resources).map(use_of).collect(), counts, priced }
}

/// Removes covers that another cover dominates. A dominating cover costs no more and uses no more of any resource.
fn undominated(mut choices: Vec<LoadCover>) -> Vec<LoadCover> {
    choices.sort_by(|a, b| a.price.total_cmp(&b.price));
    let mut kept: Vec<LoadCover> = Vec::with_capacity(choices.len());
    for c in choices {
        let dominated = kept.iter().any(|k| k.uses.iter().zip(&c.uses).all(|(a, b)| a <= b));
        if !dominated {
            kept.push(c);
        }
    }
    kept.sort_by(|a, b| a.priced.total_cmp(&b.priced));
    kept
}

/// The replicas of covers, one cover for each application.
pub(crate) fn counts_of<'a>(choices: impl Iterator<Item = &'a LoadCover>) -> ReplicaCounts {
    choices.map(|c| c.counts.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::drawn::{Draw, program};

    fn unlimited() -> RunLimits {
        RunLimits::new(std::sync::Arc::new(std::time::Duration::default))
    }

    #[test]
    fn a_long_search_ends_at_its_limits() {
        // subset sums that only ever nearly fit, all at the same price for each query per second: no bound prunes anything
        let kind = |k: u32| {
            let qps = 1.0 + f64::from(k) * 1e-3;
            crate::scaling::program::VariantNumbers { qps, keep: qps, add: qps, uses: vec![], running: 0, most: 7 }
        };
        let cover = ApplicationNumbers { needed: 100.000_5, kinds: (0..40).map(kind).collect() };
        let limits = RunLimits::new(std::sync::Arc::new(std::time::Duration::default));
        limits.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(Knapsack::default().cheapest(&cover, &[], &limits), Err(SearchStopped));
    }

    /// Every vector of counts up to the need of one variant alone.
    fn all(cover: &ApplicationNumbers) -> Vec<Vec<u32>> {
        let mut all = vec![Vec::new()];
        for kind in &cover.kinds {
            let most = ((cover.needed / kind.qps).ceil().max(0.0) as u32).min(kind.most);
            all = all.iter().flat_map(|head| (0..=most).map(|n| [&head[..], &[n]].concat())).collect();
        }
        all.into_iter().filter(|n| cover.admits(n)).collect()
    }

    fn priced(cover: &ApplicationNumbers, prices: &[f64], n: &[u32]) -> f64 {
        let uses = |t: usize| cover.kinds.iter().zip(n).map(|(k, &n)| k.uses[t] * f64::from(n)).sum::<f64>();
        cover.price(n) + prices.iter().enumerate().map(|(t, u)| u * uses(t)).sum::<f64>()
    }

    #[test]
    fn the_cheapest_cover_agrees_with_brute_force() {
        let mut knapsack = Knapsack::default();
        let mut none = 0;
        for seed in 0..300 {
            let mut draw = Draw::new(seed);
            for cover in &program(&mut draw).covers {
                let prices = [draw.below(5) as f64, draw.below(30) as f64 / 10.0];
                let best = all(cover).iter().map(|n| priced(cover, &prices, n)).fold(f64::INFINITY, f64::min);
                match knapsack.cheapest(cover, &prices, &unlimited()).expect("a small search") {
                    Some(choice) => {
                        assert!((choice.priced - best).abs() < 1e-9, "seed {seed}: {choice:?} for {best}");
                        assert!(cover.admits(&choice.counts), "seed {seed}");
                    }
                    None => {
                        assert!(best.is_infinite(), "seed {seed}: {best}");
                        none += 1;
                    }
                }
            }
        }
        assert!(none > 0, "some loads can be covered by nothing");
    }

    #[test]
    fn every_cover_below_a_limit_is_listed_or_dominated() {
        let mut knapsack = Knapsack::default();
        for seed in 0..200 {
            let mut draw = Draw::new(seed);
            for cover in &program(&mut draw).covers {
                let prices = [draw.below(3) as f64, draw.below(30) as f64 / 10.0];
                let Ok(Some(best)) = knapsack.cheapest(cover, &prices, &unlimited()) else { continue };
                let limit = best.priced * 1.4 + 0.1;
                let listed = knapsack
                    .list_covers(cover, &prices, ListLimits { price_below: limit, covers_max: 100_000 }, &unlimited())
                    .expect("few");
                for n in all(cover).iter().filter(|n| priced(cover, &prices, n) < limit - 1e-9) {
                    let no_worse = |c: &LoadCover| {
                        let uses =
                            |t: usize| cover.kinds.iter().zip(n).map(|(k, &n)| k.uses[t] * f64::from(n)).sum::<f64>();
                        c.price <= cover.price(n) + 1e-9 && (0..prices.len()).all(|t| c.uses[t] <= uses(t) + 1e-9)
                    };
                    assert!(listed.iter().any(no_worse), "seed {seed}: {n:?} is missing");
                }
                assert!(listed.iter().all(|c| cover.admits(&c.counts)), "seed {seed}");
            }
        }
    }
}
