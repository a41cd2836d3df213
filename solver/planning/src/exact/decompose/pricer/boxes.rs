//! Which budgets are best at given prices? A search over boxes of budgets, the cheapest first.
//!
//! A box has a least and a most level of each task. At its most levels no budget vector of the box is dearer, so the walk
//! there is a bound. If they keep to the SLO, they are the best vector of the box. Otherwise the box is split at a task of
//! the longest path.

use super::walk::{PricedLevels, Walker};
use crate::exact::model::latency::{finish_times, remaining_times};
use crate::exact::model::space::PipelineSpace;
use apportion_domain::{Pipeline, SLACK};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Most boxes to which the cost of rounding is added.
const ROUNDED_MAX: usize = 60;
/// Most boxes of one search.
const BOXES_MAX: usize = 600;

/// The settings of one search.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoxSearch {
    /// Reward of a unit of accuracy.
    pub reward: f64,
    /// Most budget vectors in the answer.
    pub vectors_max: usize,
    /// Boxes whose bound exceeds the first vector's cost by more than this are left out.
    pub distance: f64,
}

/// The best budget vectors at some prices.
pub(super) struct CheapestBudgets {
    /// No strategy within any budgets costs less. Infinite if no budgets keep to the SLO.
    pub bound: f64,
    /// Levels of the tasks, the cheapest first.
    pub vectors: Vec<Vec<usize>>,
}

/// A box of budgets.
struct BudgetBox {
    /// Cost of the walk at the most levels, or more.
    cost: f64,
    /// Whether the cost contains that of rounding up.
    is_rounded: bool,
    least: Vec<usize>,
    most: Vec<usize>,
}

impl PartialEq for BudgetBox {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for BudgetBox {}
impl PartialOrd for BudgetBox {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for BudgetBox {
    /// The cheapest box is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.cost.total_cmp(&self.cost).then_with(|| other.most.cmp(&self.most)).then_with(|| other.least.cmp(&self.least))
    }
}

/// Searches the cheapest budget vectors of a pipeline.
pub(super) fn cheapest_budgets(
    pipeline: &Pipeline,
    part: &PipelineSpace,
    levels: &[PricedLevels],
    walker: &mut Walker<'_>,
    search: BoxSearch,
) -> CheapestBudgets {
    let mut found = CheapestBudgets { bound: f64::INFINITY, vectors: Vec::new() };
    let mut open = OpenBoxes { pipeline, part, levels, reward: search.reward, heap: BinaryHeap::new() };
    open.add_all_budgets(walker);
    let mut boxes = 0;
    while let Some(cheapest) = open.heap.pop() {
        // boxes come by rising cost, so the first vector is a best one
        if found.vectors.is_empty() {
            found.bound = cheapest.cost;
        }
        boxes += 1;
        if boxes > BOXES_MAX && found.vectors.is_empty() {
            // any vector of the box, for a plan
            found.vectors.push(cheapest.least);
            break;
        }
        let is_far = cheapest.cost > found.bound + search.distance;
        if is_far || found.vectors.len() >= search.vectors_max || boxes > BOXES_MAX {
            break;
        }
        match open.task_to_split(&cheapest) {
            None => found.vectors.push(cheapest.most),
            Some(t) => open.add_halves(cheapest, t, walker),
        }
    }
    found
}

/// A bound on plans of whole replicas. `rounding` is the extra cost of whole replicas at the levels of the last walk. It is
/// added to the boxes in the order of their costs, until the cheapest one is a single vector or costs `enough`.
pub(super) fn bound_of_whole_replicas(
    pipeline: &Pipeline,
    part: &PipelineSpace,
    levels: &[PricedLevels],
    walker: &mut Walker<'_>,
    (reward, enough): (f64, f64),
    mut rounding: impl FnMut(&Walker<'_>, &[usize]) -> f64,
) -> f64 {
    let mut open = OpenBoxes { pipeline, part, levels, reward, heap: BinaryHeap::new() };
    open.add_all_budgets(walker);
    let mut rounded = 0;
    for _ in 0..BOXES_MAX {
        let Some(cheapest) = open.heap.pop() else { return f64::INFINITY };
        let split = open.task_to_split(&cheapest);
        let BudgetBox { cost, is_rounded, .. } = cheapest;
        if cost >= enough || (is_rounded && split.is_none()) || rounded >= ROUNDED_MAX {
            return cost;
        }
        // boxes far below every vector gain nothing
        if !is_rounded && (rounded > 0 || split.is_none()) {
            rounded += 1;
            let walked = walker.least_cost(levels, &cheapest.most, reward);
            let cost = cost.max(walked + rounding(walker, &cheapest.most));
            open.heap.push(BudgetBox { cost, is_rounded: true, ..cheapest });
        } else if let Some(t) = split {
            open.add_halves(cheapest, t, walker);
        }
    }
    open.heap.pop().map_or(f64::INFINITY, |of| of.cost)
}

/// The boxes that a search has not looked at, the cheapest first.
struct OpenBoxes<'a> {
    pipeline: &'a Pipeline,
    part: &'a PipelineSpace,
    levels: &'a [PricedLevels],
    reward: f64,
    heap: BinaryHeap<BudgetBox>,
}

impl OpenBoxes<'_> {
    /// Adds the box of all budgets. There is none if some task has no level.
    fn add_all_budgets(&mut self, walker: &mut Walker<'_>) {
        let most: Option<Vec<usize>> = self.levels.iter().map(|l| l.budgets_ms.len().checked_sub(1)).collect();
        if let Some(most) = most {
            self.add(f64::NEG_INFINITY, vec![0; most.len()], most, walker);
        }
    }

    /// Adds a box whose vectors cost at least `cost_min`, if it has any.
    fn add(&mut self, cost_min: f64, least: Vec<usize>, mut most: Vec<usize>, walker: &mut Walker<'_>) {
        if narrow(self.pipeline, self.part, self.levels, &least, &mut most) {
            let cost = walker.least_cost(self.levels, &most, self.reward);
            if cost.is_finite() {
                self.heap.push(BudgetBox { cost: cost.max(cost_min), is_rounded: false, least, most });
            }
        }
    }

    /// Adds both halves of a box, which is split at this task.
    fn add_halves(&mut self, whole: BudgetBox, t: usize, walker: &mut Walker<'_>) {
        let BudgetBox { cost, least, most, .. } = whole;
        let middle = (least[t] + most[t]) / 2;
        let (mut upper, mut lower) = (least.clone(), most.clone());
        lower[t] = middle;
        upper[t] = middle + 1;
        self.add(cost, least, lower, walker);
        self.add(cost, upper, most, walker);
    }

    /// The task of the longest path with the widest range; `None` if the most levels keep to the SLO.
    fn task_to_split(&self, BudgetBox { least, most, .. }: &BudgetBox) -> Option<usize> {
        let &Self { pipeline, part, levels, .. } = self;
        let high = charges(levels, most);
        let finish = finish_times(pipeline, part.rule, &high);
        let remaining = remaining_times(pipeline, part.rule, &high);
        let slo = slo_of(pipeline);
        let late = (0..high.len()).filter(|&t| finish[t] + remaining[t] > slo && most[t] > least[t]);
        let width = |t: &usize| high[*t] - levels[*t].budgets_ms[least[*t]];
        late.max_by(|a, b| width(a).total_cmp(&width(b)).then(b.cmp(a)))
    }
}

fn charges(levels: &[PricedLevels], at: &[usize]) -> Vec<f64> {
    levels.iter().zip(at).map(|(l, &k)| l.budgets_ms[k]).collect()
}

fn slo_of(pipeline: &Pipeline) -> f64 {
    pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0)
}

/// Lowers the most levels to those that keep to the SLO if the other tasks have their least levels. Whether the box has
/// any vector.
fn narrow(pipeline: &Pipeline, part: &PipelineSpace, levels: &[PricedLevels], least: &[usize], most: &mut [usize]) -> bool {
    let low = charges(levels, least);
    let finish = finish_times(pipeline, part.rule, &low);
    let remaining = remaining_times(pipeline, part.rule, &low);
    for (t, most) in most.iter_mut().enumerate() {
        let left = slo_of(pipeline) - (finish[t] - low[t]) - remaining[t];
        let within = levels[t].budgets_ms.partition_point(|&b| b <= left);
        if within <= least[t] {
            return false;
        }
        *most = (*most).min(within - 1);
    }
    true
}
