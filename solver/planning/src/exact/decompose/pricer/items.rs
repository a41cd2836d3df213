//! Which groups may carry a lane, and what does a replica of each cost at given prices?

use super::cover::CoverItem;
use super::walk::PricedLevels;
use crate::exact::model::groups::FeasibleGroup;
use crate::exact::model::space::PipelineSpace;

/// Prices of one pipeline's replicas.
pub struct ReplicaPrices {
    /// Price of one replica of each group, without loading it.
    pub replica: Vec<f64>,
    /// Whether loading a replica costs what its group says.
    pub loading: Loading,
    /// Reward of a unit of accuracy.
    pub reward: f64,
}

/// Whether loading replicas costs anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loading {
    Paid,
    Free,
}

/// What decides the plan of a pipeline?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Criterion {
    /// The least cost at which a floor of accuracy is met.
    CostUnderFloor,
    /// A reward of accuracy, the number of replicas, or the least cost of any accuracy.
    Other,
}

/// A group that runs at a point of this throughput.
pub(super) fn cover_item(part: &PipelineSpace, prices: &ReplicaPrices, g: usize, qps: f64) -> CoverItem {
    let group = &part.groups[g];
    let switch_cost = match prices.loading {
        Loading::Paid => group.switch_cost,
        Loading::Free => 0.0,
    };
    CoverItem { group: g, qps, price: prices.replica[g], switch_cost, deployed: group.deployed }
}

/// The groups that run within a budget, by increasing rate.
pub(super) fn items_of(part: &PipelineSpace, prices: &ReplicaPrices, groups: &[usize], budget_ms: f64) -> Vec<CoverItem> {
    items_at(part, prices, groups, |group| group.best_within(budget_ms))
}

/// The groups that have an operating point, by increasing rate.
pub(super) fn items_at(
    part: &PipelineSpace,
    prices: &ReplicaPrices,
    groups: &[usize],
    point: impl Fn(&FeasibleGroup) -> Option<usize>,
) -> Vec<CoverItem> {
    let item = |&g: &usize| {
        let group = &part.groups[g];
        Some(cover_item(part, prices, g, group.points[point(group)?].qps))
    };
    let mut items: Vec<CoverItem> = groups.iter().filter_map(item).collect();
    items.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
    items
}

/// The groups of each lane that run at these levels, by increasing rate.
pub(super) fn items_within(
    part: &PipelineSpace,
    prices: &ReplicaPrices,
    levels: &[PricedLevels],
    at: &[usize],
) -> Vec<Vec<CoverItem>> {
    let budget = |groups: &[usize]| {
        let t = part.groups[groups[0]].task.get();
        levels[t].budgets_ms[at[t]]
    };
    part.lanes.iter().map(|groups| items_of(part, prices, groups, budget(groups))).collect()
}
