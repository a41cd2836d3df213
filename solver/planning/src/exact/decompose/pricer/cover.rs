//! Which replicas of a variant carry a load at the least price? A covering knapsack over its few groups, solved exactly.

use crate::exact::solution::trim::replicas_for;

/// Most steps of one search. Beyond them the best cover so far is the answer, and only the plan is a little dearer.
const STEPS_MAX: u32 = 4_000;

/// A group as the cover of a load sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CoverItem {
    /// Position of the group.
    pub group: usize,
    /// Queries per second of one replica.
    pub qps: f64,
    /// Price of one replica.
    pub price: f64,
    /// Cost of loading one replica more than the deployed ones.
    pub switch_cost: f64,
    /// Deployed replicas.
    pub deployed: u32,
}

impl CoverItem {
    /// Price of this many replicas.
    pub fn price_of(&self, replicas: u32) -> f64 {
        self.price * f64::from(replicas) + self.switch_cost * f64::from(replicas.saturating_sub(self.deployed))
    }

    /// The least price at which it serves one query per second.
    pub fn rate(&self) -> f64 {
        let loading = if self.deployed == 0 { self.switch_cost } else { 0.0 };
        (self.price + loading) / self.qps
    }

    /// The same where no load is larger than this: a replica of more capacity serves no more.
    pub fn rate_up_to(&self, load_max: f64) -> f64 {
        if load_max > 0.0 { self.rate() * (self.qps / load_max).max(1.0) } else { self.rate() }
    }
}

/// The replicas of some groups, with their price.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cover {
    pub price: f64,
    /// (group, replicas) of the groups that have any.
    pub replicas: Vec<(usize, u32)>,
    /// No cover costs less than this.
    pub price_min: f64,
}

/// One search for a cover.
struct CoverSearch<'a> {
    /// By increasing rate.
    items: &'a [CoverItem],
    /// Replicas that a used group has beyond those that carry load.
    survive: u32,
    best: Cover,
    counts: Vec<u32>,
    steps: u32,
}

/// The cheapest cover of a load above 0; `None` without items. `items` are sorted by [`CoverItem::rate`].
pub(super) fn cheapest_cover(items: &[CoverItem], load_qps: f64, survive: u32) -> Option<Cover> {
    let first = items.first()?;
    let alone = replicas_for(load_qps, first.qps) + survive;
    let best = Cover { price: first.price_of(alone), replicas: vec![(first.group, alone)], price_min: 0.0 };
    if items.len() == 1 {
        return Some(Cover { price_min: best.price, ..best });
    }
    let mut search = CoverSearch { items, survive, best, counts: vec![0; items.len()], steps: 0 };
    search.descend(0, load_qps * (1.0 - apportion_domain::SLACK), 0.0);
    let price_min = if search.steps < STEPS_MAX { search.best.price } else { load_qps * first.rate() };
    Some(Cover { price_min, ..search.best })
}

impl CoverSearch<'_> {
    /// Tries all numbers of replicas of item `i` and of the dearer ones for the rest of the load.
    fn descend(&mut self, i: usize, left_qps: f64, price: f64) {
        if left_qps <= 0.0 {
            if price < self.best.price - 1e-12 {
                let used = self.items.iter().zip(&self.counts).filter(|(_, c)| **c > 0);
                self.best = Cover { price, replicas: used.map(|(item, &c)| (item.group, c)).collect(), price_min: 0.0 };
            }
            return;
        }
        self.steps += 1;
        let Some(item) = self.items.get(i).filter(|_| self.steps < STEPS_MAX) else { return };
        if price + left_qps * item.rate() >= self.best.price - 1e-12 {
            return;
        }
        // the cheapest type first carries as much as it can
        let most = (left_qps / item.qps).ceil() as u32;
        for carrying in (0..=most).rev() {
            let count = if carrying > 0 { carrying + self.survive } else { 0 };
            let so_far = price + item.price_of(count);
            let rest = left_qps - f64::from(carrying) * item.qps;
            let next_rate = self.items.get(i + 1).map_or(f64::INFINITY, CoverItem::rate);
            // fewer replicas of this type only raise what the dearer types must carry
            if carrying < most && so_far + rest * next_rate >= self.best.price - 1e-12 {
                if carrying > 0 && self.survive == 0 && item.switch_cost == 0.0 {
                    break;
                }
                continue;
            }
            self.counts[i] = count;
            self.descend(i + 1, rest, so_far);
            self.counts[i] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::drawn::Draw;

    /// Every number of replicas, tried.
    fn brute(items: &[CoverItem], left_qps: f64, survive: u32) -> f64 {
        if left_qps <= 1e-9 {
            return 0.0;
        }
        let Some((item, rest)) = items.split_first() else { return f64::INFINITY };
        let most = (left_qps / item.qps).ceil() as u32 + 1;
        let tried = (0..=most).map(|carrying| {
            let count = if carrying > 0 { carrying + survive } else { 0 };
            item.price_of(count) + brute(rest, left_qps - f64::from(carrying) * item.qps, survive)
        });
        tried.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn a_cover_is_the_cheapest_of_all() {
        for seed in 0..300 {
            let mut draw = Draw::new(seed);
            let survive = draw.below(2) as u32;
            let mut items: Vec<CoverItem> = (0..1 + draw.below(3))
                .map(|group| CoverItem {
                    group,
                    qps: draw.between(2.0, 20.0),
                    price: draw.between(0.5, 5.0),
                    switch_cost: if draw.below(2) == 0 { 0.0 } else { draw.between(0.1, 1.0) },
                    deployed: draw.below(3) as u32,
                })
                .collect();
            items.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
            let load = draw.between(1.0, 60.0);
            let cover = cheapest_cover(&items, load, survive).expect("there are items");
            let best = brute(&items, load, survive);
            assert!((cover.price - best).abs() < 1e-9, "seed {seed}: {} for {best}", cover.price);
            assert_eq!(cover.price_min, cover.price, "seed {seed}");
            let item = |g: usize| items.iter().find(|i| i.group == g).expect("a known group");
            let capacity: f64 = cover.replicas.iter().map(|&(g, n)| f64::from(n - survive) * item(g).qps).sum();
            assert!(capacity >= load * (1.0 - 1e-8), "seed {seed}: {capacity} for {load}");
            let least = items.iter().map(CoverItem::rate).fold(f64::INFINITY, f64::min);
            assert!(least * load <= best + 1e-9, "seed {seed}: a rate is a bound");
        }
    }
}
