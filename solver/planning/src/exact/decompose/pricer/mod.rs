//! What does one pipeline of a fleet cost at given prices of devices? A bound and a plan in less than a millisecond.
//!
//! The bound lets parts of replicas be bought. Then all flow takes one strategy, and a walk up the trie finds it
//! ([`walk`]). The best budgets are searched in boxes ([`boxes`]), so even a million budget vectors are never listed. An
//! accuracy floor is a row of its own with a price ([`Pricer::price`] finds it).
//!
//! The plan has whole replicas: the strategies of nearby prices and mixes of two of them, each load covered exactly
//! ([`cover`], [`mix`]).
//!
//! With more time a search over the capacities of whole replicas ([`loads`]) raises the bound and improves the plan.

mod accuracy;
mod boxes;
mod cells;
mod cover;
mod curve;
mod items;
mod largest;
mod loads;
mod mix;
mod programme;
mod walk;
mod whole;

use crate::exact::model::latency::optional_tasks;
use crate::exact::model::space::PipelineSpace;
use crate::exact::model::trie::PrefixNode;
use crate::exact::solution::choice::GroupChoice;
use accuracy::{FloorEffort, FloorQuestion, PricedFloor};
use apportion_domain::{LatencyRule, Pipeline};
use apportion_mip::RunLimits;
use boxes::{UnprovenVector, charges};
use cells::{BudgetCells, PricedLanes};
use cover::cheapest_cover;
use items::{Criterion, cover_item, items_of, items_within};
pub(super) use items::{Loading, ReplicaPrices};
use largest::largest_loads;
use loads::LoadGoal;
pub(super) use loads::{LoadPlan, LoadSearch};
use mix::{MixGoal, MixedPlan, Mixer};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use walk::{PricedLevels, Walker};

/// What is known of the best plan before a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownCost {
    /// Cost of the best known plan; infinite without one.
    pub cost_max: f64,
    /// Plans that are better by less than this, relative, are not searched.
    pub gap: f64,
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

/// How closely prices of accuracy are searched for plans and their columns. The next round of prices corrects them.
const PLAN_EFFORT: FloorEffort = FloorEffort { boxes_max: 50, unproven: UnprovenVector::Followed, gap: 1e-2 };
/// How closely the price of accuracy is searched that a search over whole replicas keeps.
const SEARCH_EFFORT: FloorEffort = FloorEffort { boxes_max: 100, unproven: UnprovenVector::Followed, gap: 5e-3 };
/// The effort where something else than a floor decides. Most pipelines have no floor there, and so a single price.
const OTHER_EFFORT: FloorEffort = FloorEffort { boxes_max: 600, unproven: UnprovenVector::Least, gap: 1e-3 };

/// The price of accuracy of the last question, from which the next one begins. It is relative to the prices of replicas.
#[derive(Default)]
struct LastFloorPrice(AtomicU64);

impl LastFloorPrice {
    /// The price of accuracy at these prices of replicas; 0 if none is known.
    fn at(&self, prices: &ReplicaPrices) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed)) * Self::scale(prices)
    }

    fn set(&self, price: f64, prices: &ReplicaPrices) {
        let scale = Self::scale(prices);
        if scale > 0.0 {
            self.0.store((price / scale).to_bits(), Ordering::Relaxed);
        }
    }

    fn scale(prices: &ReplicaPrices) -> f64 {
        prices.replica.iter().sum()
    }
}

/// Prices one pipeline of a fleet.
pub(super) struct Pricer {
    floor_price: LastFloorPrice,
    /// The largest load of each lane under the floor, once it is known.
    load_max: OnceLock<Vec<f64>>,
    accuracy_min: f64,
    survive: u32,
    min_replicas: Vec<u32>,
}

impl Pricer {
    /// `None` for a pipeline with tasks that some queries skip, and under rule `path`.
    pub fn new(pipeline: &Pipeline, part: &PipelineSpace) -> Option<Self> {
        let is_plain = part.rule == LatencyRule::TaskBudget && !optional_tasks(pipeline).contains(&true);
        is_plain.then(|| Self {
            floor_price: LastFloorPrice::default(),
            load_max: OnceLock::new(),
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
        limits: &RunLimits,
    ) -> FleetAnswer {
        let mut walker = Walker::new(part);
        let levels = self.priced_levels(pipeline, part, prices, &mut walker);
        let effort = self.effort(prices, PLAN_EFFORT);
        let question = FloorQuestion { pipeline, part, levels: &levels, floor: self.accuracy_min, effort };
        let Some(PricedFloor { bound, guide, vectors, .. }) = self.price_of_accuracy(&question, prices, &mut walker) else {
            return FleetAnswer { bound: f64::INFINITY, plan: None };
        };
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
            if best.is_none() {
                best = mixer.best_whole_plan(&strategies, &walker, f64::INFINITY, limits).map(|plan| (plan, at));
            }
        }
        let plan = best.map(|(MixedPlan { replicas, accuracy, .. }, at)| FleetPlan {
            groups: self.choices(part, &charges(&levels, at), &replicas),
            accuracy,
        });
        FleetAnswer { bound, plan }
    }

    /// What decides the plan at these prices.
    fn criterion(&self, prices: &ReplicaPrices) -> Criterion {
        let is_cost = prices.loading == Loading::Paid && prices.reward <= 0.0;
        if is_cost && self.accuracy_min > 0.0 { Criterion::CostUnderFloor } else { Criterion::Other }
    }

    /// How closely a price of accuracy is searched, which is `under_floor` if a floor decides.
    fn effort(&self, prices: &ReplicaPrices, under_floor: FloorEffort) -> FloorEffort {
        match self.criterion(prices) {
            Criterion::CostUnderFloor => under_floor,
            Criterion::Other => OTHER_EFFORT,
        }
    }

    /// The price of accuracy. If a floor decides, it is searched from that of the last question.
    fn price_of_accuracy(
        &self,
        question: &FloorQuestion<'_>,
        prices: &ReplicaPrices,
        walker: &mut Walker<'_>,
    ) -> Option<PricedFloor> {
        if self.criterion(prices) == Criterion::Other {
            return question.price_of_accuracy(prices.reward, 0.0, walker);
        }
        let found = question.price_of_accuracy(prices.reward, self.floor_price.at(prices), walker)?;
        self.floor_price.set(found.price, prices);
        Some(found)
    }

    /// The largest load of each lane under the floor.
    fn load_max(&self, part: &PipelineSpace, walker: &mut Walker<'_>) -> &[f64] {
        self.load_max.get_or_init(|| largest_loads(walker, part.lanes.len(), self.accuracy_min))
    }

    /// The levels of every task at which some variant gets cheaper. A variant's price is that of parts of replicas. If a
    /// floor decides, no replica counts for more than the largest load. A task with one variant in one prefix has a known
    /// load, so its price is that of whole replicas.
    fn priced_levels(
        &self,
        pipeline: &Pipeline,
        part: &PipelineSpace,
        prices: &ReplicaPrices,
        walker: &mut Walker<'_>,
    ) -> Vec<PricedLevels> {
        let load_max = match self.criterion(prices) {
            Criterion::CostUnderFloor => self.load_max(part, walker).to_vec(),
            Criterion::Other => vec![f64::INFINITY; part.lanes.len()],
        };
        let of_task = |t: usize| {
            let nodes: Vec<&PrefixNode> = part.trie.nodes.iter().filter(|n| n.task.get() == t).collect();
            let only = (nodes.len() == 1).then(|| nodes[0]);
            let mut levels = PricedLevels { budgets_ms: Vec::new(), rates: Vec::new() };
            let mut rates = vec![f64::INFINITY; pipeline.tasks[t].variants.len()];
            let mut points: Vec<PricedPoint> = Vec::new();
            for (g, group) in part.groups.iter().enumerate().filter(|(_, g)| g.task.get() == t) {
                let rate = |qps: f64| cover_item(part, prices, g, qps).rate_up_to(load_max[group.lane]);
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

    /// A search for the best plan of whole replicas at these prices. `None` if no budgets keep to the SLO.
    pub fn search<'a>(
        &self,
        pipeline: &'a Pipeline,
        part: &'a PipelineSpace,
        prices: ReplicaPrices,
        known: KnownCost,
    ) -> Option<LoadSearch<'a>> {
        let mut walker = Walker::new(part);
        let levels = self.priced_levels(pipeline, part, &prices, &mut walker);
        let (criterion, effort) = (self.criterion(&prices), self.effort(&prices, SEARCH_EFFORT));
        let question = FloorQuestion { pipeline, part, levels: &levels, floor: self.accuracy_min, effort };
        let floor_price = self.price_of_accuracy(&question, &prices, &mut walker)?.price;
        let KnownCost { cost_max, gap } = known;
        let goal = LoadGoal { criterion, floor: self.accuracy_min, floor_price, survive: self.survive, cost_max, gap };
        let load_max = match criterion {
            Criterion::CostUnderFloor => self.load_max(part, &mut walker).to_vec(),
            Criterion::Other => largest_loads(&mut walker, part.lanes.len(), 0.0),
        };
        let cells = BudgetCells::new(pipeline, part, PricedLanes { prices, levels, load_max, criterion });
        Some(LoadSearch::new(cells, walker, goal))
    }

    /// The choice of every group in a plan that a search has found.
    pub fn plan_of_loads(&self, part: &PipelineSpace, plan: &LoadPlan) -> FleetPlan {
        FleetPlan { groups: self.choices(part, &plan.budgets_ms, &plan.replicas), accuracy: plan.accuracy }
    }

    /// The choice of every group, if these (group, replicas) run within these budgets.
    fn choices(&self, part: &PipelineSpace, budgets_ms: &[f64], used: &[(usize, u32)]) -> Vec<GroupChoice> {
        let mut groups = vec![GroupChoice::default(); part.groups.len()];
        let mut of_task = vec![0; self.min_replicas.len()];
        for &(g, replicas) in used {
            let t = part.groups[g].task.get();
            let point = part.groups[g].best_within(budgets_ms[t]).unwrap_or(0);
            groups[g] = GroupChoice { replicas, point };
            of_task[t] += replicas;
        }
        for (t, &least) in self.min_replicas.iter().enumerate().filter(|(t, least)| of_task[*t] < **least) {
            if let Some(&(g, _)) = used.iter().find(|(g, _)| part.groups[*g].task.get() == t) {
                groups[g].replicas += least - of_task[t];
            }
        }
        groups
    }
}

/// A price of a variant that a batch size gives.
struct PricedPoint {
    charge_ms: f64,
    variant: usize,
    rate: f64,
}
