//! What does one pipeline of a fleet cost at given prices of devices? A bound and a plan in less than a millisecond.
//!
//! The bound lets parts of replicas be bought. Then all flow takes one strategy, and a walk up the trie finds it
//! ([`walk`]). The best budgets are searched in boxes ([`boxes`]), so even a million budget vectors are never listed. An
//! accuracy floor is a row of its own with a price ([`Pricer::price`] finds it).
//!
//! The plan has whole replicas: the strategies of nearby prices and mixes of two of them, each load covered exactly
//! ([`cover`], [`mix`]).

mod boxes;
mod cover;
mod mix;
mod rounding;
mod walk;
mod whole;

use crate::exact::model::groups::FeasibleGroup;
use crate::exact::model::latency::optional_tasks;
use crate::exact::model::space::PipelineSpace;
use crate::exact::model::trie::PrefixNode;
use crate::exact::solution::choice::GroupChoice;
use apportion_domain::{LatencyRule, Pipeline};
use apportion_mip::RunLimits;
use boxes::{BoxSearch, CheapestBudgets, bound_of_whole_replicas, cheapest_budgets};
use cover::{CoverItem, cheapest_cover};
use mix::{MixGoal, MixedPlan, Mixer};
use rounding::{CapacityCurve, RoundingCosts};
use walk::{PricedLevels, Walker};

/// Budget vectors for which plans are made.
const VECTORS_MAX: usize = 3;
/// Relative distance of their bounds from the best one.
const DISTANCE: f64 = 0.01;
/// Most prices of accuracy that are tried for a floor.
const FLOOR_ROUNDS_MAX: usize = 12;
/// Relative difference of bound and relaxation at which the price of accuracy is exact enough.
const FLOOR_GAP: f64 = 1e-5;

/// Prices of one pipeline's replicas.
pub(super) struct ReplicaPrices {
    /// Price of one replica of each group, without loading it.
    pub replica: Vec<f64>,
    /// Whether loading a replica costs what its group says.
    pub loading: Loading,
    /// Reward of a unit of accuracy.
    pub reward: f64,
}

/// Whether loading replicas costs anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loading {
    Paid,
    Free,
}

/// How long is a plan searched?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlanEffort {
    /// Mixes of two strategies.
    Mixes,
    /// Also a small integer programme over many strategies, for each of the best budgets.
    Whole,
}

/// The answer for one pipeline.
pub(super) struct FleetAnswer {
    /// No plan costs less; infinite if there is none at any price.
    pub bound: f64,
    /// A plan of whole replicas, by group, with its accuracy.
    pub plan: Option<FleetPlan>,
}

/// A plan of whole replicas.
pub(super) struct FleetPlan {
    /// By group.
    pub groups: Vec<GroupChoice>,
    /// Its accuracy is at least this.
    pub accuracy: f64,
}

/// Prices one pipeline of a fleet.
pub(super) struct Pricer {
    accuracy_min: f64,
    survive: u32,
    min_replicas: Vec<u32>,
}

impl Pricer {
    /// `None` for a pipeline with tasks that some queries skip, and under rule `path`.
    pub fn new(pipeline: &Pipeline, part: &PipelineSpace) -> Option<Self> {
        let is_plain = part.rule == LatencyRule::TaskBudget && !optional_tasks(pipeline).contains(&true);
        is_plain.then(|| Self {
            accuracy_min: pipeline.min_accuracy.unwrap_or(0.0),
            survive: pipeline.survive,
            min_replicas: pipeline.tasks.iter().map(|t| t.min_replicas).collect(),
        })
    }

    /// A bound and a plan at these prices.
    pub fn price(
        &self,
        pipeline: &Pipeline,
        part: &PipelineSpace,
        prices: &ReplicaPrices,
        effort: PlanEffort,
        limits: &RunLimits,
    ) -> FleetAnswer {
        let levels = self.priced_levels(pipeline, part, prices);
        let mut walker = Walker::new(part);
        let question = FloorQuestion { pipeline, part, levels: &levels, floor: self.accuracy_min };
        let Some(priced) = question.price_of_accuracy(prices.reward, &mut walker) else {
            return FleetAnswer { bound: f64::INFINITY, plan: None };
        };
        let PricedFloor { bound, price, guide, vectors } = priced;
        let goal = MixGoal { reward: prices.reward, guide, accuracy_min: self.accuracy_min, survive: self.survive };
        let mut best: Option<(MixedPlan, &Vec<usize>)> = None;
        for at in &vectors {
            let mixer = Mixer { part, items: items_within(part, prices, &levels, at), goal };
            let strategies = mixer.strategies(&levels, at, &mut walker);
            if let Some(plan) = mixer.best_plan(&strategies)
                && best.as_ref().is_none_or(|(b, _)| plan.cost < b.cost)
            {
                best = Some((plan, at));
            }
            if effort == PlanEffort::Whole || best.is_none() {
                let cutoff = best.as_ref().map_or(f64::INFINITY, |(b, _)| b.cost);
                if let Some(plan) = mixer.best_whole_plan(&strategies, &walker, cutoff, limits) {
                    best = Some((plan, at));
                }
            }
        }
        let enough = best.as_ref().map_or(f64::INFINITY, |(plan, _)| plan.cost);
        let bound = match effort {
            PlanEffort::Mixes => bound,
            PlanEffort::Whole => bound.max(question.bound_of_whole(prices, price, enough, &mut walker)),
        };
        let plan = best.map(|(plan, at)| self.to_plan(part, &levels, at, &plan));
        FleetAnswer { bound, plan }
    }

    /// The levels of every task at which some variant gets cheaper. A variant's price is that of parts of replicas. A task
    /// with one variant in one prefix has a known load, so its price is that of whole replicas.
    fn priced_levels(&self, pipeline: &Pipeline, part: &PipelineSpace, prices: &ReplicaPrices) -> Vec<PricedLevels> {
        let of_task = |t: usize| {
            let nodes: Vec<&PrefixNode> = part.trie.nodes.iter().filter(|n| n.task.get() == t).collect();
            let only = (nodes.len() == 1).then(|| nodes[0]);
            let mut levels = PricedLevels { budgets_ms: Vec::new(), rates: Vec::new() };
            let mut rates = vec![f64::INFINITY; pipeline.tasks[t].variants.len()];
            let mut points: Vec<PricedPoint> = Vec::new();
            for (g, group) in part.groups.iter().enumerate().filter(|(_, g)| g.task.get() == t) {
                let rate = |qps: f64| cover_item(part, prices, g, qps).rate();
                let variant = group.variant.get();
                points.extend(group.points.iter().map(|p| PricedPoint {
                    charge_ms: p.charge_ms,
                    variant,
                    rate: rate(p.qps),
                }));
            }
            points.sort_by(|a, b| a.charge_ms.total_cmp(&b.charge_ms));
            for PricedPoint { charge_ms, variant, rate } in points {
                let rate = match only {
                    Some(node) => self.whole_rate(part, prices, node, charge_ms).unwrap_or(rate),
                    None => rate,
                };
                if rate < rates[variant] {
                    rates[variant] = rate;
                    if levels.budgets_ms.last() == Some(&charge_ms) {
                        levels.rates.pop();
                    } else {
                        levels.budgets_ms.push(charge_ms);
                    }
                    levels.rates.push(rates.clone());
                }
            }
            levels
        };
        (0..pipeline.tasks.len()).map(of_task).collect()
    }

    /// Price of one query per second if whole replicas carry all load of the only prefix of a task.
    fn whole_rate(&self, part: &PipelineSpace, prices: &ReplicaPrices, node: &PrefixNode, budget_ms: f64) -> Option<f64> {
        let items = items_of(part, prices, &part.lanes[node.lane], budget_ms);
        Some(cheapest_cover(&items, node.load_qps, self.survive)?.price_min / node.load_qps)
    }

    /// The choice of every group.
    fn to_plan(&self, part: &PipelineSpace, levels: &[PricedLevels], at: &[usize], plan: &MixedPlan) -> FleetPlan {
        let mut groups = vec![GroupChoice::default(); part.groups.len()];
        let mut of_task = vec![0; self.min_replicas.len()];
        for &(g, replicas) in &plan.replicas {
            let t = part.groups[g].task.get();
            let point = part.groups[g].best_within(levels[t].budgets_ms[at[t]]).unwrap_or(0);
            groups[g] = GroupChoice { replicas, point };
            of_task[t] += replicas;
        }
        for (t, &least) in self.min_replicas.iter().enumerate().filter(|(t, least)| of_task[*t] < **least) {
            let used = plan.replicas.iter().find(|(g, _)| part.groups[*g].task.get() == t);
            if let Some(&(g, _)) = used {
                groups[g].replicas += least - of_task[t];
            }
        }
        FleetPlan { groups, accuracy: plan.accuracy }
    }
}

/// A price of a variant that a batch size gives.
struct PricedPoint {
    charge_ms: f64,
    variant: usize,
    rate: f64,
}

/// A group that runs at a point of this throughput.
fn cover_item(part: &PipelineSpace, prices: &ReplicaPrices, g: usize, qps: f64) -> CoverItem {
    let group = &part.groups[g];
    let switch_cost = loading_cost(group, prices);
    CoverItem { group: g, qps, price: prices.replica[g], switch_cost, deployed: group.deployed }
}

/// The groups that run within a budget, by increasing rate.
fn items_of(part: &PipelineSpace, prices: &ReplicaPrices, groups: &[usize], budget_ms: f64) -> Vec<CoverItem> {
    items_at(part, prices, groups, |group| group.best_within(budget_ms))
}

/// The groups that have an operating point, by increasing rate.
fn items_at(
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
fn items_within(
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

/// What loading one more replica costs.
fn loading_cost(group: &FeasibleGroup, prices: &ReplicaPrices) -> f64 {
    match prices.loading {
        Loading::Paid => group.switch_cost,
        Loading::Free => 0.0,
    }
}

/// The search for the price of accuracy under which the floor is met.
struct FloorQuestion<'a> {
    pipeline: &'a Pipeline,
    part: &'a PipelineSpace,
    levels: &'a [PricedLevels],
    floor: f64,
}

/// The relaxation with its best price of accuracy.
struct PricedFloor {
    bound: f64,
    /// Price of accuracy.
    price: f64,
    /// Reward at which the strategies of plans are made.
    guide: f64,
    /// Levels of the tasks, the cheapest first.
    vectors: Vec<Vec<usize>>,
}

/// One price of accuracy with its relaxation.
struct TriedPrice {
    /// Cost without the reward of the floor's price.
    cost: f64,
    accuracy: f64,
    /// Levels of the tasks.
    vector: Vec<usize>,
}

impl FloorQuestion<'_> {
    fn search(&self, reward: f64, walker: &mut Walker<'_>, vectors_max: usize, distance: f64) -> CheapestBudgets {
        let search = BoxSearch { reward, vectors_max, distance };
        cheapest_budgets(self.pipeline, self.part, self.levels, walker, search)
    }

    /// The relaxation at a price of the floor, and its strategy.
    fn relax(&self, reward: f64, floor_price: f64, walker: &mut Walker<'_>) -> Option<(f64, TriedPrice)> {
        let found = self.search(reward + floor_price, walker, 1, 0.0);
        let at = found.vectors.first()?;
        let cost = walker.least_cost(self.levels, at, reward + floor_price);
        let accuracy = walker.strategy().accuracy;
        let bound = found.bound + floor_price * self.floor;
        Some((bound, TriedPrice { cost: cost + floor_price * accuracy, accuracy, vector: at.clone() }))
    }

    /// A bound on plans of whole replicas at a price of the floor. A bound of `enough` is enough.
    fn bound_of_whole(&self, prices: &ReplicaPrices, price: f64, enough: f64, walker: &mut Walker<'_>) -> f64 {
        let &Self { pipeline, part, levels, floor } = self;
        let reward = prices.reward + price;
        let nodes_of = |t: usize| part.trie.nodes.iter().filter(|n| n.task.get() == t).count();
        let is_whole: Vec<bool> = (0..levels.len()).map(|t| nodes_of(t) == 1).collect();
        // the curves by lane and level, made when they are first needed
        let level_counts = part.lanes.iter().map(|groups| levels[part.groups[groups[0]].task.get()].budgets_ms.len());
        let mut known: Vec<Vec<Option<Option<CapacityCurve>>>> = level_counts.map(|n| vec![None; n]).collect();
        let rounding = |walker: &Walker<'_>, at: &[usize]| {
            let curves = known.iter_mut().zip(&part.lanes).map(|(of, groups)| {
                let t = part.groups[groups[0]].task.get();
                // Up to the next level no rate falls. But groups of other rates may have larger batches there.
                let next_ms = levels[t].budgets_ms.get(at[t] + 1).copied().unwrap_or(f64::INFINITY);
                let point = |group: &FeasibleGroup| group.points.iter().rposition(|p| p.charge_ms < next_ms);
                let make = || CapacityCurve::new(&items_at(part, prices, groups, point));
                of[at[t]].get_or_insert_with(make).as_ref()
            });
            let curves: Vec<Option<&CapacityCurve>> = curves.collect();
            let reduced = walker.reduced_costs(levels, at, reward);
            RoundingCosts { part, reduced: &reduced, curves: &curves, is_whole: &is_whole }.total()
        };
        let enough = enough - price * floor;
        bound_of_whole_replicas(pipeline, part, levels, walker, (reward, enough), rounding) + price * floor
    }

    /// Raises the price of accuracy until the relaxation meets the floor: the secant of a concave function of one variable.
    fn price_of_accuracy(&self, reward: f64, walker: &mut Walker<'_>) -> Option<PricedFloor> {
        let (mut bound, mut low) = self.relax(reward, 0.0, walker)?;
        let mut price = 0.0;
        // a price at which the floor is met
        let mut high: Option<TriedPrice> = None;
        if low.accuracy < self.floor - 1e-12 {
            let mut next = 4.0 * low.cost.abs().max(reward).max(1e-9);
            for _ in 0..FLOOR_ROUNDS_MAX {
                let (found, tried) = self.relax(reward, next, walker)?;
                let better = found > bound;
                (bound, price) = if better { (found, next) } else { (bound, price) };
                if tried.accuracy >= self.floor {
                    high = Some(tried);
                } else {
                    low = tried;
                }
                let Some(high) = &high else {
                    next *= 8.0;
                    continue;
                };
                let slope = ((high.cost - low.cost) / (high.accuracy - low.accuracy)).max(0.0);
                let relaxation = low.cost + slope * (self.floor - low.accuracy);
                if relaxation - bound <= FLOOR_GAP * relaxation.abs() || (slope - next).abs() <= 1e-12 * slope {
                    break;
                }
                next = slope;
            }
        }
        let distance = DISTANCE * bound.abs().max(reward + price);
        let found = self.search(reward + price, walker, VECTORS_MAX, distance);
        let mut vectors = found.vectors;
        // the cheapest vectors may be too short for the floor
        vectors.extend(high.map(|high| high.vector).filter(|vector| !vectors.contains(vector)));
        let guide = if reward + price > 0.0 { reward + price } else { 1e-3 * bound.abs() };
        Some(PricedFloor { bound, price, guide, vectors })
    }
}
