//! What do the lanes of a pipeline cost at least within some budgets, and at which task are the budgets split?
//!
//! At the most levels of some budgets a replica carries most. So the curve of a lane there is a bound for all of them.

use super::boxes::{LevelRange, budgets_beside, charges, raised_budgets};
use super::cover::CoverItem;
use super::curve::CapacityCurve;
use super::items::{Criterion, ReplicaPrices, items_at, items_of};
use super::programme::LimitedLane;
use super::walk::{PricedLevels, Walker};
use crate::exact::model::groups::FeasibleGroup;
use crate::exact::model::space::PipelineSpace;
use apportion_domain::Pipeline;
use std::sync::{Arc, OnceLock};

/// Weight of the half of the smaller price in the choice of a split.
const SMALLER_WEIGHT: f64 = 5.0 / 6.0;
/// A load above a capacity exceeds it by at least this part. Smaller loads count as the capacity.
const BEYOND: f64 = 1e-7;

/// The budgets of a plan.
pub(super) struct PlanBudgets {
    pub budgets_ms: Vec<f64>,
    /// Groups by lane that run within these budgets, by increasing rate.
    pub items: Vec<Vec<CoverItem>>,
}

/// Some budgets, with what their lanes cost at least.
pub(super) struct BudgetCell {
    pub levels: LevelRange,
    /// The task at which the budgets are split best, once it is known.
    task: OnceLock<Option<ScoredTask>>,
    /// The curve of each lane; `None` if no group is in time.
    pub curves: Vec<Option<Arc<CapacityCurve>>>,
    /// Rate of each lane. It is that of whole replicas where the load is known.
    pub rates: Vec<f64>,
    /// `None` if the most levels do not keep to the SLO, so that the budgets are still to be split.
    pub plan: Option<PlanBudgets>,
}

/// A task at which budgets are split, with the score of the split.
#[derive(Clone, Copy)]
pub(super) struct ScoredTask {
    pub score: f64,
    pub task: usize,
}

/// The curve of some operating points of a lane.
struct KnownCurve {
    points: Vec<Option<usize>>,
    curve: Option<Arc<CapacityCurve>>,
    /// Price of one query per second; infinite without a group.
    rate: f64,
}

/// In which costs budgets are compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct SplitScale {
    /// Reward of a unit of accuracy, with the price of the floor.
    pub reward: f64,
    /// Costs of budgets that do not keep to the SLO.
    pub rise_max: f64,
}

/// What the lanes of a pipeline cost by parts of replicas.
pub(super) struct PricedLanes {
    pub prices: ReplicaPrices,
    pub levels: Vec<PricedLevels>,
    /// The largest load of each lane, in queries per second.
    pub load_max: Vec<f64>,
    pub criterion: Criterion,
}

/// The cells of one pipeline.
pub(super) struct BudgetCells<'a> {
    pipeline: &'a Pipeline,
    part: &'a PipelineSpace,
    pub prices: ReplicaPrices,
    pub levels: Vec<PricedLevels>,
    /// The largest load of each lane.
    pub load_max: Vec<f64>,
    criterion: Criterion,
    /// Whether the load of a lane is known: one variant at one prefix.
    is_known: Vec<bool>,
    /// By lane.
    curves: Vec<Vec<KnownCurve>>,
}

impl<'a> BudgetCells<'a> {
    pub fn new(pipeline: &'a Pipeline, part: &'a PipelineSpace, lanes: PricedLanes) -> Self {
        let PricedLanes { prices, levels, load_max, criterion } = lanes;
        let nodes_of = |t: usize| part.trie.nodes.iter().filter(|n| n.task.get() == t).count();
        let is_known = part.lanes.iter().map(|groups| nodes_of(part.groups[groups[0]].task.get()) == 1).collect();
        let curves = part.lanes.iter().map(|_| Vec::new()).collect();
        Self { pipeline, part, prices, levels, load_max, criterion, is_known, curves }
    }

    /// Lowers the most levels of some budgets as far as they can be. Whether any of them keep to the SLO.
    pub fn narrow(&self, levels: &mut LevelRange) -> bool {
        levels.narrow(self.pipeline, self.part, &self.levels)
    }

    /// The late task with the widest range of budgets; `None` if the most levels keep to the SLO.
    pub fn widest_task(&self, levels: &LevelRange) -> Option<usize> {
        levels.task_to_split(self.pipeline, self.part, &self.levels)
    }

    /// The curves of some budgets.
    pub fn cell(&mut self, levels: LevelRange) -> BudgetCell {
        let most_ms = charges(&self.levels, &levels.most);
        let beside_ms = budgets_beside(self.pipeline, self.part, &charges(&self.levels, &levels.least));
        let mut curves = Vec::with_capacity(self.part.lanes.len());
        let mut rates = Vec::with_capacity(self.part.lanes.len());
        for lane in 0..self.part.lanes.len() {
            let t = self.part.groups[self.part.lanes[lane][0]].task.get();
            // Up to the next level no rate falls. But groups of other rates may have larger batches there.
            let next_ms = self.levels[t].budgets_ms.get(levels.most[t] + 1).copied().unwrap_or(f64::INFINITY);
            let longest_ms = beside_ms[t].max(most_ms[t]) * (1.0 + apportion_domain::SLACK);
            let KnownCurve { curve, rate, .. } = self.curve(lane, next_ms, longest_ms);
            curves.push(curve.clone());
            rates.push(*rate);
        }
        let is_late = self.widest_task(&levels).is_some();
        let plan = (!is_late).then(|| self.plan_budgets(most_ms));
        BudgetCell { levels, task: OnceLock::new(), curves, rates, plan }
    }

    /// The groups that run within some budgets, which keep to the SLO.
    fn plan_budgets(&self, budgets_ms: Vec<f64>) -> PlanBudgets {
        let budgets_ms = raised_budgets(self.pipeline, self.part, budgets_ms);
        let items = |groups: &Vec<usize>| {
            items_of(self.part, &self.prices, groups, budgets_ms[self.part.groups[groups[0]].task.get()])
        };
        let items = self.part.lanes.iter().map(items).collect();
        PlanBudgets { budgets_ms, items }
    }

    /// The curve of a lane whose charges are below the first time and at most the second one.
    fn curve(&mut self, lane: usize, next_ms: f64, longest_ms: f64) -> &KnownCurve {
        let point = |g: &FeasibleGroup| g.points.iter().rposition(|p| p.charge_ms < next_ms && p.charge_ms <= longest_ms);
        let groups = &self.part.lanes[lane];
        let points: Vec<Option<usize>> = groups.iter().map(|&g| point(&self.part.groups[g])).collect();
        let known = self.curves[lane].iter().position(|known| known.points == points);
        let at = known.unwrap_or_else(|| {
            let curve = CapacityCurve::new(&items_at(self.part, &self.prices, groups, point));
            let rate = curve.as_ref().map_or(f64::INFINITY, |curve| self.rate(lane, curve));
            self.curves[lane].push(KnownCurve { points, curve: curve.map(Arc::new), rate });
            self.curves[lane].len() - 1
        });
        &self.curves[lane][at]
    }

    /// The rate of a lane: that of whole replicas where the load is known. If a floor decides, a replica counts for no more
    /// than the largest load.
    fn rate(&self, lane: usize, curve: &CapacityCurve) -> f64 {
        match self.load_max[lane] {
            load if load <= 0.0 => curve.rate,
            load if self.is_known[lane] => curve.at_least(load).price / load,
            load => match self.criterion {
                Criterion::CostUnderFloor => curve.rate_up_to(load),
                Criterion::Other => curve.rate,
            },
        }
    }

    /// The task at which budgets are split; `None` if their most levels keep to the SLO.
    pub fn task_to_split(&self, cell: &BudgetCell, scale: SplitScale, walker: &mut Walker<'_>) -> Option<ScoredTask> {
        if cell.plan.is_some() {
            return None;
        }
        let known = cell.task.get().copied();
        known.unwrap_or_else(|| {
            let found = self.dearest_task(&cell.levels, scale, walker);
            *cell.task.get_or_init(|| found)
        })
    }

    /// The late task of which the halves cost most above the whole.
    fn dearest_task(&self, levels: &LevelRange, scale: SplitScale, walker: &mut Walker<'_>) -> Option<ScoredTask> {
        let SplitScale { reward, rise_max } = scale;
        let whole = walker.least_cost(&self.levels, &levels.most, reward);
        let mut best: Option<ScoredTask> = None;
        for task in levels.late_tasks(self.pipeline, self.part, &self.levels) {
            let mut rises = [f64::INFINITY; 2];
            for (rise, mut half) in rises.iter_mut().zip(levels.clone().halves(task)) {
                if self.narrow(&mut half) {
                    *rise = walker.least_cost(&self.levels, &half.most, reward) - whole;
                }
            }
            let score = score_of(rises[0].min(rise_max), rises[1].min(rise_max));
            if best.as_ref().is_none_or(|of| score > of.score) {
                best = Some(ScoredTask { score, task });
            }
        }
        best
    }
}

/// The score of a split whose halves cost this much more than the whole.
pub(super) fn score_of(one: f64, other: f64) -> f64 {
    SMALLER_WEIGHT * one.min(other) + (1.0 - SMALLER_WEIGHT) * one.max(other)
}

/// The limited lanes of some budgets within a part of them; `None` if a lane that must carry queries has no replicas there.
pub(super) fn limits_within(
    whole: &BudgetCell,
    half: &BudgetCell,
    limited: &[Arc<LimitedLane>],
) -> Option<Vec<Arc<LimitedLane>>> {
    let mut within = Vec::with_capacity(limited.len());
    for of in limited {
        match (&whole.curves[of.lane], &half.curves[of.lane]) {
            (Some(before), Some(curve)) if Arc::ptr_eq(before, curve) => within.push(of.clone()),
            (_, Some(curve)) => {
                let &LimitedLane { lane, above, most, .. } = of.as_ref();
                let least = if above > 0.0 { curve.at_least(above * (1.0 + BEYOND)).qps } else { 0.0 };
                within.push(Arc::new(LimitedLane { lane, above, least, most, hull: curve.hull(above, least, most) }));
            }
            (_, None) if of.above > 0.0 => return None,
            // without replicas the lane is closed anyway
            (_, None) => {}
        }
    }
    Some(within)
}
