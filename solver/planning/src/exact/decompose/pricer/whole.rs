//! Which whole replicas carry many strategies together at the least price? A small integer programme for given budgets.
//!
//! Its columns are the shares of strategies and the replicas of groups. Beside the strategies of nearby prices stand their
//! neighbours, which take another variant at one task. A small share of a neighbour fills the last replica of a variant.

use super::cover::CoverItem;
use super::mix::{MixGoal, MixedPlan, Mixer};
use super::walk::{PureStrategy, Walker};
use apportion_domain::VariantIndex;
use apportion_mip::{ColumnId, Formulation, RunLimits, branch};

/// Most nodes of one programme.
const NODES_MAX: usize = 120;
/// Relative gap at which it is solved.
const GAP: f64 = 3e-4;
/// The programme carries this much more load, relative, so that rounding errors never cost a plan its flows.
const LOAD_MARGIN: f64 = 1e-6;

/// A column of replicas.
struct ReplicaColumn {
    column: ColumnId,
    lane: usize,
    item: usize,
}

/// A programme with the meaning of its columns.
struct WholeProgramme {
    formulation: Formulation,
    shares: Vec<ColumnId>,
    replicas: Vec<ReplicaColumn>,
}

impl Mixer<'_> {
    /// A plan that costs less than `cutoff`. `None` if none was found, or if used groups need replicas in reserve.
    pub fn best_whole_plan(
        &self,
        strategies: &[PureStrategy],
        walker: &Walker<'_>,
        cutoff: f64,
        limits: &RunLimits,
    ) -> Option<MixedPlan> {
        if self.goal.survive > 0 {
            return None;
        }
        let strategies = self.with_neighbours(strategies, walker);
        let loads: Vec<Vec<f64>> = strategies.iter().map(|s| self.loads(s)).collect();
        let programme = self.programme(&strategies, &loads);
        let solved = branch::solve_within(&programme.formulation, GAP, cutoff, NODES_MAX, limits)?;
        let plan = self.read(&programme, &strategies, &solved.values?);
        (plan.cost < cutoff && plan.accuracy >= self.goal.accuracy_min - 1e-9).then_some(plan)
    }

    /// These strategies, and those that take another variant at one task.
    fn with_neighbours(&self, strategies: &[PureStrategy], walker: &Walker<'_>) -> Vec<PureStrategy> {
        let mut all = strategies.to_vec();
        for strategy in strategies {
            let variants = walker.variants_of(strategy);
            for groups in &self.part.lanes {
                let group = &self.part.groups[groups[0]];
                let (t, other) = (group.task.get(), group.variant);
                if variants[t] == Some(other) || self.items[group.lane].is_empty() {
                    continue;
                }
                let mut changed: Vec<Option<VariantIndex>> = variants.clone();
                changed[t] = Some(other);
                let neighbour = walker.strategy_of(&changed);
                if !all.iter().any(|s| s.nodes == neighbour.nodes) {
                    all.push(neighbour);
                }
            }
        }
        all
    }

    /// Shares sum to 1, replicas carry the load of every lane, and the floor holds.
    fn programme(&self, strategies: &[PureStrategy], loads: &[Vec<f64>]) -> WholeProgramme {
        let MixGoal { reward, accuracy_min, .. } = self.goal;
        let mut f = Formulation::default();
        let shares: Vec<ColumnId> = strategies.iter().map(|_| f.continuous(0.0, 1.0)).collect();
        shares.iter().zip(strategies).for_each(|(&share, s)| f.add_cost(share, -reward * s.accuracy));
        f.equal(1.0, shares.iter().map(|&share| (share, 1.0)).collect());
        if accuracy_min > 0.0 {
            f.at_least(accuracy_min, shares.iter().zip(strategies).map(|(&share, s)| (share, s.accuracy)).collect());
        }
        let mut replicas = Vec::new();
        for (lane, items) in self.items.iter().enumerate() {
            let most = loads.iter().map(|of| of[lane]).fold(0.0, f64::max) * (1.0 + LOAD_MARGIN);
            if most <= 0.0 {
                continue;
            }
            let unit = items.iter().map(|item| item.qps).fold(0.0, f64::max);
            let scale = (1.0 + LOAD_MARGIN) / unit;
            let carried = shares.iter().zip(loads).filter(|(_, of)| of[lane] > 0.0);
            let mut terms: Vec<(ColumnId, f64)> = carried.map(|(&share, of)| (share, of[lane] * scale)).collect();
            for (i, item) in items.iter().enumerate() {
                let most = (most / item.qps).ceil();
                for (upper, price) in prices_of(item, most) {
                    let column = f.integer(0.0, upper);
                    f.add_cost(column, price);
                    terms.push((column, -item.qps / unit));
                    replicas.push(ReplicaColumn { column, lane, item: i });
                }
            }
            f.at_most(0.0, terms);
        }
        WholeProgramme { formulation: f, shares, replicas }
    }

    /// The plan of a solution.
    fn read(&self, programme: &WholeProgramme, strategies: &[PureStrategy], values: &[f64]) -> MixedPlan {
        let accuracy: f64 = programme.shares.iter().zip(strategies).map(|(share, s)| values[share.0] * s.accuracy).sum();
        let mut price = 0.0;
        let mut replicas: Vec<(usize, u32)> = Vec::new();
        for (lane, items) in self.items.iter().enumerate() {
            for (i, item) in items.iter().enumerate() {
                let columns = programme.replicas.iter().filter(|r| r.lane == lane && r.item == i);
                let count = columns.map(|r| values[r.column.0].round() as u32).sum();
                if count > 0 {
                    price += item.price_of(count);
                    replicas.push((item.group, count));
                }
            }
        }
        MixedPlan { cost: price - self.goal.reward * accuracy, accuracy, replicas }
    }
}

/// Up to `most` replicas of an item by price: (replicas, price of each). Deployed ones come first, without their loading.
fn prices_of(item: &CoverItem, most: f64) -> Vec<(f64, f64)> {
    let deployed = f64::from(item.deployed).min(most);
    let new = item.price + item.switch_cost;
    if item.switch_cost <= 0.0 || deployed <= 0.0 {
        return vec![(most, new)];
    }
    let kept = (deployed, item.price);
    if most > deployed { vec![kept, (most - deployed, new)] } else { vec![kept] }
}
