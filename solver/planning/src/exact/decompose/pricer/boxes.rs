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

/// Which vector of the cheapest box is the answer if the boxes do not suffice?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnprovenVector {
    /// That of its least levels.
    Least,
    /// That of the cheaper half again and again.
    Followed,
}

/// The settings of one search.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoxSearch {
    /// Reward of a unit of accuracy.
    pub reward: f64,
    /// Most boxes. Beyond them the answer has the bound so far, and some vector of the cheapest box.
    pub boxes_max: usize,
    /// That vector.
    pub unproven: UnprovenVector,
}

/// The best budget vector at some prices.
pub(super) struct CheapestBudgets {
    /// No strategy within any budgets costs less. Infinite if no budgets keep to the SLO.
    pub bound: f64,
    /// Levels of the tasks; `None` if no budgets keep to the SLO. It may cost more than the bound if the boxes did not
    /// suffice.
    pub vector: Option<Vec<usize>>,
}

/// A box of budgets.
struct BudgetBox {
    /// Cost of the walk at the most levels, or more.
    cost: f64,
    levels: LevelRange,
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
        let (own, others) = (&self.levels, &other.levels);
        let by_cost = other.cost.total_cmp(&self.cost);
        by_cost.then_with(|| others.most.cmp(&own.most)).then_with(|| others.least.cmp(&own.least))
    }
}

/// Searches the cheapest budget vector of a pipeline.
pub(super) fn cheapest_budgets(
    pipeline: &Pipeline,
    part: &PipelineSpace,
    levels: &[PricedLevels],
    walker: &mut Walker<'_>,
    search: BoxSearch,
) -> CheapestBudgets {
    let mut open = OpenBoxes { pipeline, part, levels, reward: search.reward, heap: BinaryHeap::new() };
    open.add_all_budgets(walker);
    for boxes in 1.. {
        let Some(cheapest) = open.heap.pop() else { break };
        // boxes come by rising cost, so the first vector is a best one
        let bound = cheapest.cost;
        if boxes > search.boxes_max {
            let vector = match search.unproven {
                UnprovenVector::Least => cheapest.levels.least,
                UnprovenVector::Followed => open.follow(cheapest, walker),
            };
            return CheapestBudgets { bound, vector: Some(vector) };
        }
        match open.task_to_split(&cheapest) {
            None => return CheapestBudgets { bound, vector: Some(cheapest.levels.most) },
            Some(t) => open.add_halves(cheapest, t, walker),
        }
    }
    CheapestBudgets { bound: f64::INFINITY, vector: None }
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
        if let Some(all) = LevelRange::all(self.levels) {
            self.add(f64::NEG_INFINITY, all, walker);
        }
    }

    /// Adds a box whose vectors cost at least `cost_min`, if it has any.
    fn add(&mut self, cost_min: f64, levels: LevelRange, walker: &mut Walker<'_>) {
        let found = self.narrowed(cost_min, levels, walker);
        self.heap.extend(found);
    }

    /// The box of some levels; `None` if it has no vector.
    fn narrowed(&self, cost_min: f64, mut levels: LevelRange, walker: &mut Walker<'_>) -> Option<BudgetBox> {
        if !levels.narrow(self.pipeline, self.part, self.levels) {
            return None;
        }
        let cost = walker.least_cost(self.levels, &levels.most, self.reward);
        cost.is_finite().then(|| BudgetBox { cost: cost.max(cost_min), levels })
    }

    /// A vector of a box: the cheaper half again and again.
    fn follow(&self, mut from: BudgetBox, walker: &mut Walker<'_>) -> Vec<usize> {
        while let Some(t) = self.task_to_split(&from) {
            let halves = from.levels.clone().halves(t).into_iter();
            let cheaper = halves.filter_map(|half| self.narrowed(from.cost, half, walker)).max();
            match cheaper {
                Some(cheaper) => from = cheaper,
                None => return from.levels.least,
            }
        }
        from.levels.most
    }

    /// Adds both halves of a box, which is split at this task.
    fn add_halves(&mut self, whole: BudgetBox, t: usize, walker: &mut Walker<'_>) {
        let BudgetBox { cost, levels, .. } = whole;
        levels.halves(t).into_iter().for_each(|half| self.add(cost, half, walker));
    }

    /// The task at which a box is split; `None` if it has a best vector.
    fn task_to_split(&self, of: &BudgetBox) -> Option<usize> {
        of.levels.task_to_split(self.pipeline, self.part, self.levels)
    }
}

/// The budgets of a box at which its tasks are split.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LevelRange {
    /// Least and most level of each task.
    pub least: Vec<usize>,
    pub most: Vec<usize>,
}

impl LevelRange {
    /// All levels; `None` if some task has none.
    pub fn all(levels: &[PricedLevels]) -> Option<Self> {
        let most: Option<Vec<usize>> = levels.iter().map(|l| l.budgets_ms.len().checked_sub(1)).collect();
        most.map(|most| Self { least: vec![0; most.len()], most })
    }

    /// The lower and the upper half at a task.
    pub fn halves(self, t: usize) -> [Self; 2] {
        let middle = (self.least[t] + self.most[t]) / 2;
        let (mut lower, mut upper) = (self.clone(), self);
        lower.most[t] = middle;
        upper.least[t] = middle + 1;
        [lower, upper]
    }

    /// The task of the longest path with the widest range; `None` if the most levels keep to the SLO.
    pub fn task_to_split(&self, pipeline: &Pipeline, part: &PipelineSpace, levels: &[PricedLevels]) -> Option<usize> {
        let width = |t: &usize| levels[*t].budgets_ms[self.most[*t]] - levels[*t].budgets_ms[self.least[*t]];
        let late = self.late_tasks(pipeline, part, levels).into_iter();
        late.max_by(|a, b| width(a).total_cmp(&width(b)).then(b.cmp(a)))
    }

    /// The tasks with several levels on paths that are too long at the most levels.
    pub fn late_tasks(&self, pipeline: &Pipeline, part: &PipelineSpace, levels: &[PricedLevels]) -> Vec<usize> {
        let high = charges(levels, &self.most);
        let finish = finish_times(pipeline, part.rule, &high);
        let remaining = remaining_times(pipeline, part.rule, &high);
        let slo = slo_of(pipeline);
        (0..high.len()).filter(|&t| finish[t] + remaining[t] > slo && self.most[t] > self.least[t]).collect()
    }

    /// Lowers the most levels to those that keep to the SLO if the other tasks have their least levels. Whether the box
    /// has any vector.
    pub fn narrow(&mut self, pipeline: &Pipeline, part: &PipelineSpace, levels: &[PricedLevels]) -> bool {
        let left = budgets_beside(pipeline, part, &charges(levels, &self.least));
        for (t, most) in self.most.iter_mut().enumerate() {
            let within = levels[t].budgets_ms.partition_point(|&b| b <= left[t]);
            if within <= self.least[t] {
                return false;
            }
            *most = (*most).min(within - 1);
        }
        true
    }
}

/// The charges of the tasks at some levels.
pub(super) fn charges(levels: &[PricedLevels], at: &[usize]) -> Vec<f64> {
    levels.iter().zip(at).map(|(l, &k)| l.budgets_ms[k]).collect()
}

fn slo_of(pipeline: &Pipeline) -> f64 {
    pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0)
}

/// The budget that each task can have if all others take these charges.
pub(super) fn budgets_beside(pipeline: &Pipeline, part: &PipelineSpace, charges: &[f64]) -> Vec<f64> {
    let finish = finish_times(pipeline, part.rule, charges);
    let remaining = remaining_times(pipeline, part.rule, charges);
    (0..charges.len()).map(|t| slo_of(pipeline) - (finish[t] - charges[t]) - remaining[t]).collect()
}

/// Budgets that use up the time that these leave, one task after the other.
pub(super) fn raised_budgets(pipeline: &Pipeline, part: &PipelineSpace, mut budgets_ms: Vec<f64>) -> Vec<f64> {
    // a plan gets nothing from the slack of the SLO
    let slack = slo_of(pipeline) - pipeline.slo_ms;
    for t in 0..budgets_ms.len() {
        let left = budgets_beside(pipeline, part, &budgets_ms)[t] - 2.0 * slack;
        budgets_ms[t] = budgets_ms[t].max(left);
    }
    budgets_ms
}
