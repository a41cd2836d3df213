//! Which capacities can the whole replicas of a lane have, and at which prices?
//!
//! Example: the cheapest replica serves 100 queries per second for 4, and a small one serves 20 for 1. For 210 queries per
//! second two of the first and one of the second cost 9, and three of the first cost 12. Beyond some replicas of other
//! types the same choice comes again with each further replica of the cheapest type. So a curve keeps few combinations of
//! the other types, each with its premium: its price above that of the same capacity at the cheapest rate.

use super::cover::CoverItem;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Combinations of replicas beside the cheapest ones that are told apart. Dearer ones count as if they fitted any load.
const COMBINATIONS_MAX: usize = 40;
/// Largest rounding error of a capacity, relative.
const ROUNDING: f64 = 1e-9;

/// Some replicas beside those of the cheapest rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ReplicaCombination {
    /// Their price above that of the same capacity at the cheapest rate.
    pub premium: f64,
    /// Queries per second.
    pub capacity: f64,
    /// Only items from here on are added to it.
    from: usize,
}

impl Eq for ReplicaCombination {}
impl PartialOrd for ReplicaCombination {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for ReplicaCombination {
    /// The lowest premium is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .premium
            .total_cmp(&self.premium)
            .then_with(|| other.capacity.total_cmp(&self.capacity))
            .then_with(|| other.from.cmp(&self.from))
    }
}

/// A capacity that some whole replicas have together, and their price.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CapacityPoint {
    pub qps: f64,
    pub price: f64,
}

/// What capacities the replicas of a lane have, and what they cost above the cheapest rate.
#[derive(Clone, Debug)]
pub(super) struct CapacityCurve {
    /// The cheapest price of one query per second.
    pub rate: f64,
    /// Queries per second of a replica of that rate.
    pub unit: f64,
    /// By premium. The first one has no replicas.
    pub combinations: Vec<ReplicaCombination>,
    /// No other combination has a lower premium.
    pub premium_max: f64,
    /// Whether every other combination is worse than one of these.
    pub is_complete: bool,
}

impl CapacityCurve {
    /// The curve of some groups, sorted by [`CoverItem::rate`]; `None` without any.
    pub fn new(items: &[CoverItem]) -> Option<Self> {
        Self::with_combinations(items, COMBINATIONS_MAX)
    }

    /// The same with at most this many combinations.
    fn with_combinations(items: &[CoverItem], combinations_max: usize) -> Option<Self> {
        let first = items.first()?;
        let (rate, unit) = (first.rate(), first.qps);
        // one more of the cheapest replicas fits any load too
        let whole = rate * unit;
        let mut curve = Self { rate, unit, combinations: Vec::new(), premium_max: whole, is_complete: true };
        let mut open = BinaryHeap::from([ReplicaCombination { premium: 0.0, capacity: 0.0, from: 1 }]);
        while let Some(next) = open.pop() {
            if curve.combinations.iter().any(|known| curve.is_better(known, &next)) {
                continue;
            }
            if curve.combinations.len() == combinations_max {
                (curve.premium_max, curve.is_complete) = (next.premium.min(whole), false);
                break;
            }
            for (i, item) in items.iter().enumerate().skip(next.from) {
                let premium = next.premium + ((item.rate() - rate) * item.qps).max(0.0);
                if premium < whole {
                    open.push(ReplicaCombination { premium, capacity: next.capacity + item.qps, from: i });
                }
            }
            curve.combinations.push(next);
        }
        Some(curve)
    }

    /// Whether a combination, with some of the cheapest replicas, has as much capacity as another one for no higher price.
    fn is_better(&self, known: &ReplicaCombination, other: &ReplicaCombination) -> bool {
        let more = self.first_of(known, other.capacity);
        more.price <= other.premium + self.rate * other.capacity
    }

    /// The fewest cheapest replicas beside a combination for a load.
    fn first_of(&self, of: &ReplicaCombination, load_qps: f64) -> CapacityPoint {
        let units = ((load_qps - of.capacity) / self.unit - ROUNDING).ceil().max(0.0);
        self.with_units(of, units)
    }

    fn with_units(&self, of: &ReplicaCombination, units: f64) -> CapacityPoint {
        let qps = of.capacity + units * self.unit;
        CapacityPoint { qps, price: of.premium + self.rate * qps }
    }

    /// A price and a capacity of combinations that are not told apart.
    fn rest_at(&self, load_qps: f64) -> CapacityPoint {
        CapacityPoint { qps: load_qps, price: self.rate * load_qps + self.premium_max }
    }

    /// The cheapest price of one query per second at any load up to this one.
    pub fn rate_up_to(&self, load_max: f64) -> f64 {
        let corners = self.hull(0.0, 0.0, load_max).into_iter().filter(|corner| corner.qps > 0.0);
        corners.map(|corner| corner.price / corner.qps).fold(f64::INFINITY, f64::min).max(self.rate)
    }

    /// The cheapest replicas for a load. Their price is a bound if the curve is not complete.
    pub fn at_least(&self, load_qps: f64) -> CapacityPoint {
        let mut best = self.rest_at(load_qps);
        if self.is_complete {
            best.price = f64::INFINITY;
        }
        for of in &self.combinations {
            if of.premium + self.rate * load_qps >= best.price {
                break;
            }
            let point = self.first_of(of, load_qps);
            if point.price < best.price {
                best = point;
            }
        }
        best
    }

    /// The largest capacity below a load that costs less than a price.
    pub fn below(&self, load_qps: f64, price: f64) -> CapacityPoint {
        let mut best = CapacityPoint { qps: 0.0, price: 0.0 };
        for of in &self.combinations {
            let units = ((load_qps - of.capacity) / self.unit - ROUNDING).ceil() - 1.0;
            for units in [units, units - 1.0].into_iter().filter(|units| *units >= 0.0) {
                let point = self.with_units(of, units);
                if point.price < price && point.qps > best.qps {
                    best = point;
                }
            }
        }
        best
    }

    /// The lower convex hull of the prices of loads from `least`, a capacity of the curve, to `most`. Its corners are
    /// capacities, but for the last one: the load `most` pays for the next capacity. Capacities that cost at least as much
    /// as a larger one are left out. Combinations that are not told apart may be a little smaller: anything above `above`.
    pub fn hull(&self, above: f64, least: f64, most: f64) -> Vec<CapacityPoint> {
        let mut points = Vec::with_capacity(2 * self.combinations.len() + 2);
        let (low, high) = (least * (1.0 - ROUNDING), most * (1.0 + ROUNDING));
        for of in self.combinations.iter().filter(|of| of.capacity <= high) {
            let mut first = self.first_of(of, least);
            if first.qps < low {
                first = CapacityPoint { qps: first.qps + self.unit, price: first.price + self.rate * self.unit };
            }
            let units = ((most - of.capacity) / self.unit + ROUNDING).floor().max(0.0);
            let last = self.with_units(of, units);
            points.extend([first, last].into_iter().filter(|point| (low..=high).contains(&point.qps)));
        }
        points.push(CapacityPoint { qps: most, price: self.at_least(most).price });
        if !self.is_complete && above <= most {
            points.extend([self.rest_at(above), self.rest_at(most)]);
        }
        lower_hull(points)
    }
}

/// The corners of the lower convex hull by increasing capacity and price.
fn lower_hull(mut points: Vec<CapacityPoint>) -> Vec<CapacityPoint> {
    points.sort_by(|a, b| b.qps.total_cmp(&a.qps).then(a.price.total_cmp(&b.price)));
    let mut hull: Vec<CapacityPoint> = Vec::new();
    let mut cheapest = f64::INFINITY;
    for point in points {
        // more capacity for as little is better
        if point.price >= cheapest {
            continue;
        }
        cheapest = point.price;
        while let [.., far, near] = hull.as_slice()
            && is_above(*near, point, *far)
        {
            hull.pop();
        }
        hull.push(point);
    }
    hull.reverse();
    hull
}

/// Whether a point lies on or above the line between two others, of less and of more capacity.
fn is_above(point: CapacityPoint, less: CapacityPoint, more: CapacityPoint) -> bool {
    (point.price - less.price) * (more.qps - less.qps) >= (more.price - less.price) * (point.qps - less.qps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::drawn::Draw;

    /// Some groups of drawn rates.
    fn drawn_items(draw: &mut Draw) -> Vec<CoverItem> {
        let item = |group| CoverItem {
            group,
            qps: draw.between(2.0, 20.0),
            price: draw.between(0.5, 5.0),
            switch_cost: 0.0,
            deployed: 0,
        };
        let mut items: Vec<CoverItem> = (0..4).map(item).collect();
        items.truncate(1 + draw.below(4));
        items.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
        items
    }

    /// A curve of all combinations, or of one or two.
    fn drawn_curve(draw: &mut Draw, items: &[CoverItem]) -> CapacityCurve {
        let combinations_max = [COMBINATIONS_MAX, COMBINATIONS_MAX, 1, 2][draw.below(4)];
        CapacityCurve::with_combinations(items, combinations_max).expect("there are items")
    }

    /// All capacities up to some more than `most`, with their prices, tried.
    fn brute(items: &[CoverItem], most: f64) -> Vec<CapacityPoint> {
        let Some((item, rest)) = items.split_first() else { return vec![CapacityPoint { qps: 0.0, price: 0.0 }] };
        let others = brute(rest, most);
        let count = (most / item.qps).ceil() as u32 + 1;
        let with = |n: u32| {
            let n = f64::from(n);
            others.iter().map(move |p| CapacityPoint { qps: p.qps + n * item.qps, price: p.price + n * item.price })
        };
        let all = (0..=count).flat_map(with);
        all.filter(|p| p.qps <= most + 20.0).collect()
    }

    #[test]
    fn a_curve_has_the_cheapest_price_of_each_load() {
        let (mut complete, mut truncated) = (0, 0);
        for seed in 0..200 {
            let mut draw = Draw::new(seed);
            let items = drawn_items(&mut draw);
            let curve = drawn_curve(&mut draw, &items);
            let all = brute(&items, 60.0);
            for _ in 0..20 {
                let load = draw.between(0.5, 60.0);
                let enough = all.iter().filter(|p| p.qps >= load - 1e-9);
                let best = enough.map(|p| p.price).fold(f64::INFINITY, f64::min);
                let found = curve.at_least(load);
                assert!(found.price <= best + 1e-9, "seed {seed}: {} for {best}", found.price);
                if curve.is_complete {
                    assert!((found.price - best).abs() < 1e-9, "seed {seed}: {} for {best}", found.price);
                    let point = |p: &&CapacityPoint| p.qps < load - 1e-6 && p.price < best - 1e-9;
                    let largest = all.iter().filter(point).map(|p| p.qps).fold(0.0, f64::max);
                    let below = curve.below(load, best);
                    assert!((below.qps - largest).abs() < 1e-6, "seed {seed}: {} for {largest}", below.qps);
                }
            }
            complete += usize::from(curve.is_complete);
            truncated += usize::from(!curve.is_complete);
        }
        assert!(complete > 100 && truncated > 10, "{complete} complete curves, {truncated} others");
    }

    #[test]
    fn no_capacity_lies_below_its_hull() {
        let mut several = 0;
        for seed in 0..200 {
            let mut draw = Draw::new(seed);
            let items = drawn_items(&mut draw);
            let curve = drawn_curve(&mut draw, &items);
            let least = if draw.below(2) == 0 { 0.0 } else { curve.at_least(draw.between(1.0, 30.0)).qps };
            let most = curve.at_least(least + draw.between(1.0, 40.0)).qps;
            let hull = curve.hull(least, least, most);
            let all = brute(&items, most);
            // a plan never needs another capacity
            let is_best = |p: &&CapacityPoint| !all.iter().any(|o| o.qps > p.qps + 1e-9 && o.price <= p.price + 1e-9);
            let within = |p: &&CapacityPoint| p.qps >= least - 1e-9 && p.qps <= most + 1e-9;
            for point in all.iter().filter(within).filter(is_best) {
                for rate in [0.0, 0.1, 0.3, 1.0] {
                    let worth = |p: &CapacityPoint| p.price - rate * p.qps;
                    let bound = hull.iter().map(worth).fold(f64::INFINITY, f64::min);
                    assert!(worth(point) >= bound - 1e-9, "seed {seed}: {point:?} below {hull:?}");
                }
            }
            assert!(hull.windows(2).all(|pair| pair[0].qps < pair[1].qps && pair[0].price < pair[1].price), "{hull:?}");
            several += usize::from(hull.len() > 2);
        }
        assert!(several > 15, "{several} hulls of several pieces");
    }

    #[test]
    fn no_load_up_to_the_largest_one_pays_less_than_the_rate() {
        let mut raised = 0;
        for seed in 2_000..2_200 {
            let mut draw = Draw::new(seed);
            let items = drawn_items(&mut draw);
            let curve = drawn_curve(&mut draw, &items);
            let most = draw.between(1.0, 40.0);
            let rate = curve.rate_up_to(most);
            let by_group = items.iter().map(|item| item.rate_up_to(most)).fold(f64::INFINITY, f64::min);
            assert!(rate >= curve.rate && by_group >= curve.rate, "seed {seed}");
            let all = brute(&items, most);
            for load in (1..=40).map(|k| most * f64::from(k) / 40.0) {
                let enough = all.iter().filter(|p| p.qps >= load - 1e-9);
                let price = enough.map(|p| p.price).fold(f64::INFINITY, f64::min);
                assert!(rate * load <= price + 1e-9, "seed {seed}: {rate} for {load}, {price}");
                assert!(by_group * load <= price + 1e-9, "seed {seed}: {by_group} for {load}, {price}");
            }
            raised += usize::from(rate > 1.1 * curve.rate);
        }
        assert!(raised > 20, "{raised} rates are above those of parts of replicas");
    }

    #[test]
    fn no_load_pays_less_than_its_hull() {
        let (mut loads, mut tight) = (0, 0);
        for seed in 1_000..1_200 {
            let mut draw = Draw::new(seed);
            let items = drawn_items(&mut draw);
            let curve = drawn_curve(&mut draw, &items);
            // any two loads, as they stay behind when the budgets of a split lane are narrowed
            let above = if draw.below(3) == 0 { 0.0 } else { draw.between(1.0, 30.0) };
            let most = above + draw.between(0.5, 40.0);
            let least = if above > 0.0 { curve.at_least(above * (1.0 + 1e-7)).qps } else { 0.0 };
            let hull = curve.hull(above, least, most);
            let all = brute(&items, most);
            for _ in 0..20 {
                let load = draw.between(above, most);
                let enough = all.iter().filter(|p| p.qps >= load - 1e-9);
                let price = enough.map(|p| p.price).fold(f64::INFINITY, f64::min);
                for rate in [0.0, 0.1, 0.3, 1.0] {
                    let bound = hull.iter().map(|p| p.price - rate * p.qps).fold(f64::INFINITY, f64::min);
                    assert!(price - rate * load >= bound - 1e-6, "seed {seed}: {load} for {price} below {hull:?}");
                    tight += usize::from(price - rate * load <= bound + 1e-6);
                    loads += 1;
                }
            }
        }
        assert!(30 * tight > loads, "{tight} of {loads} loads pay what their hull says");
    }
}
