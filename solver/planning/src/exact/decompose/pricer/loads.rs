//! Which whole replicas carry a pipeline at the least price? A search over its budgets and the capacities of its lanes.
//!
//! A box has levels of budgets ([`LevelRange`]) and limits of loads. It is split at a task, until its most levels keep to
//! the SLO, or at a lane. Example: the cheapest mixture loads a lane with 210 queries per second. Its replicas have a
//! capacity of 200 or less, or of 220 or more. In the first case 200 is the most that the lane carries. In the second case
//! it pays at least the price of 220. In both cases the lower convex hull of its prices is closer to them.
//!
//! Many budgets cost about as much. So a lane is also split while budgets are undecided: at their most levels a replica
//! carries most, so the curve there is a bound for all of them. One such split stands for the same split in each of them.
//!
//! The search takes the box of the least bound. From time to time it follows the best box downwards to a plan.

use super::boxes::{LevelRange, budgets_beside, charges, raised_budgets};
use super::cover::{CoverItem, cheapest_cover};
use super::curve::{CapacityCurve, CapacityPoint};
use super::items::{ReplicaPrices, items_at, items_of};
use super::programme::{LaneMixture, LimitedLane, MixtureProgramme, MixtureQuestion};
use super::walk::{PricedLevels, Walker};
use crate::exact::model::groups::FeasibleGroup;
use crate::exact::model::space::PipelineSpace;
use apportion_domain::Pipeline;
use apportion_mip::RunLimits;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, OnceLock};

/// How many of the first boxes of capacities are followed downwards to a plan.
const DIVES_MAX: usize = 2;
/// After so many boxes the best one is followed again.
const BOXES_PER_DIVE: usize = 60;
/// The penalty of a programme, as a multiple of the largest costs.
const PENALTY: f64 = 20.0;
/// A mixture with more missing queries than this is no plan.
const MISSING_MAX: f64 = 1e-9;
/// A cover carries this much more load, relative, so that rounding errors never cost a plan its flows.
const LOAD_MARGIN: f64 = 5e-7;
/// Differences of prices below this, relative, are noise.
const NOISE: f64 = 1e-6;
/// Weight of the half of the smaller price in the choice of a split.
const SMALLER_WEIGHT: f64 = 5.0 / 6.0;
/// Rise of the bound at the split of a lane, as a part of the prices of the two ways from its load to a capacity.
const LANE_FACTOR: f64 = 0.5;
/// A load above a capacity exceeds it by at least this part. Smaller loads count as the capacity.
const BEYOND: f64 = 1e-7;
/// Boxes between two checks of the limits.
const BOXES_PER_CHECK: usize = 8;

/// What a search looks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadGoal {
    /// Least accuracy.
    pub floor: f64,
    /// Price of accuracy of the relaxation.
    pub floor_price: f64,
    /// Replicas of a used group beyond those that carry load.
    pub survive: u32,
    /// Cost of the best known plan; infinite without one.
    pub cost_max: f64,
    /// Plans that are better by less than this, relative, are not searched.
    pub gap: f64,
}

/// A plan of whole replicas.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    pub accuracy: f64,
    /// (group, replicas).
    pub replicas: Vec<(usize, u32)>,
    /// Budgets of the tasks.
    pub budgets_ms: Vec<f64>,
}

/// The budgets of a plan.
struct PlanBudgets {
    budgets_ms: Vec<f64>,
    /// Groups by lane that run within these budgets, by increasing rate.
    items: Vec<Vec<CoverItem>>,
}

/// Some budgets, with what their lanes cost at least.
struct BudgetCell {
    levels: LevelRange,
    /// The task at which the budgets are split best, once it is known.
    task: OnceLock<Option<ScoredTask>>,
    /// The curve of each lane; `None` if no group is in time.
    curves: Vec<Option<Arc<CapacityCurve>>>,
    /// Rate of each lane. It is that of whole replicas where the load is known.
    rates: Vec<f64>,
    /// `None` if the most levels do not keep to the SLO, so that the budgets are still to be split.
    plan: Option<PlanBudgets>,
}

/// The lane that a box is split at.
struct LaneSplit {
    lane: usize,
    /// The largest capacity of the lower half, and the least one of the upper half.
    below_qps: f64,
    upper_qps: f64,
}

/// A split of a lane with its score: the prices of its halves above the whole.
struct ScoredLane {
    score: f64,
    split: LaneSplit,
}

/// The same for the budgets of a task.
#[derive(Clone, Copy)]
struct ScoredTask {
    score: f64,
    task: usize,
}

/// What a box contains.
enum BoxState {
    Budgets(LevelRange),
    Capacities { cell: Arc<BudgetCell>, limited: Vec<Arc<LimitedLane>>, lane: Option<ScoredLane> },
}

/// A box that is still to be searched.
struct OpenBox {
    /// No plan of it costs less.
    bound: f64,
    /// Boxes of equal bounds are searched in the order of their making.
    number: usize,
    state: BoxState,
}

impl PartialEq for OpenBox {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for OpenBox {}
impl PartialOrd for OpenBox {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for OpenBox {
    /// The box of the least bound is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.bound.total_cmp(&self.bound).then_with(|| other.number.cmp(&self.number))
    }
}

/// The curve of some operating points of a lane.
struct KnownCurve {
    points: Vec<Option<usize>>,
    curve: Option<Arc<CapacityCurve>>,
}

/// A search that can be interrupted.
pub struct LoadSearch<'a> {
    pipeline: &'a Pipeline,
    part: &'a PipelineSpace,
    prices: ReplicaPrices,
    levels: Vec<PricedLevels>,
    goal: LoadGoal,
    walker: Walker<'a>,
    programme: MixtureProgramme,
    /// The largest load of each lane.
    load_max: Vec<f64>,
    /// Whether the load of a lane is known: one variant at one prefix.
    is_known: Vec<bool>,
    /// By lane.
    curves: Vec<Vec<KnownCurve>>,
    penalty: f64,
    open: BinaryHeap<OpenBox>,
    /// The box that is followed downwards.
    dive: Option<OpenBox>,
    /// The least bound of the boxes that are searched no further.
    closed_min: f64,
    boxes: usize,
    dives: usize,
    since_dive: usize,
    plan: Option<LoadPlan>,
}

impl<'a> LoadSearch<'a> {
    /// A search at these prices.
    pub(super) fn new(
        pipeline: &'a Pipeline,
        part: &'a PipelineSpace,
        prices: ReplicaPrices,
        levels: Vec<PricedLevels>,
        goal: LoadGoal,
    ) -> Self {
        let mut walker = Walker::new(part);
        let lanes = part.lanes.len();
        let mut load_max = Vec::with_capacity(lanes);
        for lane in 0..lanes {
            let mut rates = vec![0.0; lanes];
            rates[lane] = -1.0;
            load_max.push(-walker.least_cost_of_lanes(&rates, 0.0));
        }
        let nodes_of = |t: usize| part.trie.nodes.iter().filter(|n| n.task.get() == t).count();
        let is_known = part.lanes.iter().map(|groups| nodes_of(part.groups[groups[0]].task.get()) == 1).collect();
        let curves = part.lanes.iter().map(|_| Vec::new()).collect();
        let programme = MixtureProgramme::new(&load_max);
        let mut search = Self {
            pipeline,
            part,
            prices,
            levels,
            goal,
            walker,
            programme,
            load_max,
            is_known,
            curves,
            penalty: 0.0,
            open: BinaryHeap::new(),
            dive: None,
            closed_min: f64::INFINITY,
            boxes: 0,
            dives: 0,
            since_dive: 0,
            plan: None,
        };
        search.start();
        search
    }

    /// Opens the box of all budgets.
    fn start(&mut self) {
        let Some(all) = LevelRange::all(&self.levels) else { return };
        if let Some(first) = self.budget_box(all, f64::NEG_INFINITY) {
            let known = if self.goal.cost_max.is_finite() { self.goal.cost_max.abs() } else { 0.0 };
            self.penalty = PENALTY * (first.bound.abs() + known + self.prices.reward + self.goal.floor_price);
            self.open.push(first);
        }
    }

    /// No plan costs less than this.
    pub fn bound(&self) -> f64 {
        self.open_min().min(self.closed_min).min(self.goal.cost_max)
    }

    /// The least bound of the boxes that are still to be searched.
    fn open_min(&self) -> f64 {
        let open = self.open.peek().into_iter().chain(&self.dive);
        open.map(|of| of.bound).fold(f64::INFINITY, f64::min)
    }

    /// Cost of the best known plan.
    pub fn cost_max(&self) -> f64 {
        self.goal.cost_max
    }

    /// The best plan that was found since the last call.
    pub fn take_plan(&mut self) -> Option<LoadPlan> {
        self.plan.take()
    }

    /// Whether nothing is left to be searched.
    pub fn is_finished(&self) -> bool {
        self.open_min() >= self.enough()
    }

    /// Boxes of at least this bound are not searched.
    fn enough(&self) -> f64 {
        let known = self.goal.cost_max;
        if known.is_finite() { known - self.goal.gap * known.abs() } else { known }
    }

    /// Searches this many boxes, or fewer.
    pub fn run(&mut self, boxes: usize, limits: &RunLimits) {
        for count in 0..boxes {
            if count % BOXES_PER_CHECK == 0 && limits.exceeded() {
                break;
            }
            let is_dive = self.dive.is_some();
            let Some(of) = self.dive.take().or_else(|| self.open.pop()) else { break };
            if of.bound >= self.enough() {
                self.closed_min = self.closed_min.min(of.bound);
                if is_dive {
                    continue;
                }
                // all others have larger bounds
                self.open.clear();
                break;
            }
            let mut found = self.split(of);
            found.sort_by(|a, b| a.bound.total_cmp(&b.bound));
            if is_dive || self.starts_dive(&found) {
                self.dive = (!found.is_empty()).then(|| found.remove(0));
            }
            self.open.extend(found);
        }
    }

    /// Whether the best of these boxes, which are no part of a dive, is followed downwards.
    fn starts_dive(&mut self, found: &[OpenBox]) -> bool {
        let is_first =
            self.dives < DIVES_MAX && found.iter().any(|of| matches!(of.state, BoxState::Capacities { .. }));
        self.dives += usize::from(is_first);
        self.since_dive = if is_first || self.since_dive >= BOXES_PER_DIVE { 0 } else { self.since_dive + 1 };
        self.since_dive == 0
    }

    /// The parts of a box that may have better plans.
    fn split(&mut self, OpenBox { bound, state, .. }: OpenBox) -> Vec<OpenBox> {
        match state {
            BoxState::Budgets(levels) => match levels.task_to_split(self.pipeline, self.part, &self.levels) {
                // before the first plans the cheapest budgets are found
                Some(t) if self.dives < DIVES_MAX => {
                    levels.halves(t).into_iter().filter_map(|half| self.budget_box(half, bound)).collect()
                }
                _ => {
                    let cell = Arc::new(self.cell(levels));
                    self.capacity_box(cell, Vec::new(), bound).into_iter().collect()
                }
            },
            BoxState::Capacities { cell, limited, lane } => match (lane, self.task_to_split(&cell)) {
                (lane, Some(of)) if lane.as_ref().is_none_or(|lane| LANE_FACTOR * lane.score <= of.score) => {
                    self.split_budgets(&cell, &limited, of.task, bound)
                }
                (Some(lane), _) => self.split_capacities(&cell, &limited, &lane.split, bound),
                (None, _) => Vec::new(),
            },
        }
    }

    /// A box of budgets; `None` if it has no better plan.
    fn budget_box(&mut self, mut levels: LevelRange, bound: f64) -> Option<OpenBox> {
        if !levels.narrow(self.pipeline, self.part, &self.levels) {
            return None;
        }
        let LoadGoal { floor, floor_price, .. } = self.goal;
        let reward = self.prices.reward + floor_price;
        let walked = self.walker.least_cost(&self.levels, &levels.most, reward) + floor_price * floor;
        self.open_box(walked.max(bound), BoxState::Budgets(levels))
    }

    /// A box; `None` if its bound is large enough.
    fn open_box(&mut self, bound: f64, state: BoxState) -> Option<OpenBox> {
        if bound >= self.enough() {
            self.closed_min = self.closed_min.min(bound);
            return None;
        }
        self.boxes += 1;
        Some(OpenBox { bound, number: self.boxes, state })
    }

    /// The curves of some budgets.
    fn cell(&mut self, levels: LevelRange) -> BudgetCell {
        let most_ms = charges(&self.levels, &levels.most);
        let beside_ms = budgets_beside(self.pipeline, self.part, &charges(&self.levels, &levels.least));
        let mut curves = Vec::with_capacity(self.part.lanes.len());
        let mut rates = Vec::with_capacity(self.part.lanes.len());
        for lane in 0..self.part.lanes.len() {
            let t = self.part.groups[self.part.lanes[lane][0]].task.get();
            // Up to the next level no rate falls. But groups of other rates may have larger batches there.
            let next_ms = self.levels[t].budgets_ms.get(levels.most[t] + 1).copied().unwrap_or(f64::INFINITY);
            let longest_ms = beside_ms[t].max(most_ms[t]) * (1.0 + apportion_domain::SLACK);
            let curve = self.curve(lane, next_ms, longest_ms);
            let load = self.load_max[lane];
            rates.push(curve.as_ref().map_or(f64::INFINITY, |curve| {
                if self.is_known[lane] && load > 0.0 { curve.at_least(load).price / load } else { curve.rate }
            }));
            curves.push(curve);
        }
        let is_late = levels.task_to_split(self.pipeline, self.part, &self.levels).is_some();
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
    fn curve(&mut self, lane: usize, next_ms: f64, longest_ms: f64) -> Option<Arc<CapacityCurve>> {
        let point = |g: &FeasibleGroup| g.points.iter().rposition(|p| p.charge_ms < next_ms && p.charge_ms <= longest_ms);
        let groups = &self.part.lanes[lane];
        let points: Vec<Option<usize>> = groups.iter().map(|&g| point(&self.part.groups[g])).collect();
        if let Some(known) = self.curves[lane].iter().find(|known| known.points == points) {
            return known.curve.clone();
        }
        let curve = CapacityCurve::new(&items_at(self.part, &self.prices, groups, point)).map(Arc::new);
        self.curves[lane].push(KnownCurve { points, curve: curve.clone() });
        curve
    }

    /// A box of capacities; `None` if it has no better plan. Its cheapest mixture may give one.
    fn capacity_box(&mut self, cell: Arc<BudgetCell>, limited: Vec<Arc<LimitedLane>>, bound: f64) -> Option<OpenBox> {
        let question = MixtureQuestion {
            reward: self.prices.reward,
            floor: self.goal.floor,
            rates: &cell.rates,
            limited: &limited,
            enough: self.enough(),
            penalty: self.penalty,
        };
        let mixture = self.programme.solve(&question, &mut self.walker);
        let bound = bound.max(mixture.bound);
        if bound < self.enough() && mixture.missing < MISSING_MAX {
            self.offer_plan(&cell, &mixture);
        }
        let lane = if bound < self.enough() { self.lane_to_split(&cell, &limited, &mixture) } else { None };
        if lane.is_none() && cell.plan.is_some() {
            self.closed_min = self.closed_min.min(bound);
            return None;
        }
        self.open_box(bound, BoxState::Capacities { cell, limited, lane })
    }

    /// The task at which budgets are split; `None` if their most levels keep to the SLO.
    fn task_to_split(&mut self, cell: &BudgetCell) -> Option<ScoredTask> {
        if cell.plan.is_some() {
            return None;
        }
        let known = cell.task.get().copied();
        known.unwrap_or_else(|| {
            let found = self.dearest_task(&cell.levels);
            *cell.task.get_or_init(|| found)
        })
    }

    /// The late task of which the halves cost most above the whole.
    fn dearest_task(&mut self, levels: &LevelRange) -> Option<ScoredTask> {
        let reward = self.prices.reward + self.goal.floor_price;
        let whole = self.walker.least_cost(&self.levels, &levels.most, reward);
        let mut best: Option<ScoredTask> = None;
        for task in levels.late_tasks(self.pipeline, self.part, &self.levels) {
            let mut rises = [f64::INFINITY; 2];
            for (rise, mut half) in rises.iter_mut().zip(levels.clone().halves(task)) {
                if half.narrow(self.pipeline, self.part, &self.levels) {
                    *rise = self.walker.least_cost(&self.levels, &half.most, reward) - whole;
                }
            }
            let score = score_of(rises[0].min(self.penalty), rises[1].min(self.penalty));
            if best.as_ref().is_none_or(|of| score > of.score) {
                best = Some(ScoredTask { score, task });
            }
        }
        best
    }

    /// The two halves of some budgets.
    fn split_budgets(
        &mut self,
        cell: &Arc<BudgetCell>,
        limited: &[Arc<LimitedLane>],
        task: usize,
        bound: f64,
    ) -> Vec<OpenBox> {
        let mut found = Vec::new();
        for mut levels in cell.levels.clone().halves(task) {
            if !levels.narrow(self.pipeline, self.part, &self.levels) {
                continue;
            }
            let half = Arc::new(self.cell(levels));
            if let Some(limited) = limits_within(cell, &half, limited) {
                found.extend(self.capacity_box(half, limited, bound));
            }
        }
        found
    }

    /// The lane of which the load is furthest from the capacities around it; `None` if all lanes pay their whole price.
    fn lane_to_split(&self, cell: &BudgetCell, limited: &[Arc<LimitedLane>], mixture: &LaneMixture) -> Option<ScoredLane> {
        let mut best: Option<ScoredLane> = None;
        for (lane, curve) in cell.curves.iter().enumerate() {
            let (load, paid) = (mixture.loads[lane], mixture.paid[lane]);
            let Some(curve) = curve.as_ref().filter(|_| load > NOISE * self.load_max[lane]) else { continue };
            let CapacityPoint { qps: upper_qps, price } = curve.at_least(load);
            let up = price - paid;
            if up <= NOISE * (mixture.bound.abs() + self.prices.reward) {
                continue;
            }
            let below = curve.below(load, price);
            let down = (paid - below.price).max(0.0);
            let score = score_of(up, down);
            let is_within = limited.iter().all(|of| of.lane != lane || upper_qps > of.least * (1.0 + NOISE));
            if is_within && best.as_ref().is_none_or(|of| score > of.score) {
                best = Some(ScoredLane { score, split: LaneSplit { lane, below_qps: below.qps, upper_qps } });
            }
        }
        best
    }

    /// The two halves of a box of capacities.
    fn split_capacities(
        &mut self,
        cell: &Arc<BudgetCell>,
        limited: &[Arc<LimitedLane>],
        split: &LaneSplit,
        bound: f64,
    ) -> Vec<OpenBox> {
        let &LaneSplit { lane, below_qps, upper_qps } = split;
        let Some(curve) = &cell.curves[lane] else { return Vec::new() };
        let known = limited.iter().find(|of| of.lane == lane);
        let (above, least, most) = match known {
            Some(of) => (of.above, of.least, of.most),
            None => (0.0, 0.0, curve.at_least(self.load_max[lane]).qps.max(upper_qps)),
        };
        let halves = [(above, least, below_qps), (below_qps, upper_qps, most)];
        let mut found = Vec::new();
        for (above, least, most) in halves.into_iter().filter(|(above, _, most)| *above <= 0.0 || above < most) {
            let hull = curve.hull(above, least, most);
            let mut lanes: Vec<Arc<LimitedLane>> = limited.iter().filter(|of| of.lane != lane).cloned().collect();
            lanes.push(Arc::new(LimitedLane { lane, above, least, most, hull }));
            found.extend(self.capacity_box(cell.clone(), lanes, bound));
        }
        found
    }

    /// Keeps the plan that covers the loads of a mixture, if it is the best one.
    fn offer_plan(&mut self, cell: &BudgetCell, mixture: &LaneMixture) {
        let Some(PlanBudgets { budgets_ms, items }) = &cell.plan else { return };
        let loads = || mixture.loads.iter().enumerate().filter(|(_, load)| **load > 0.0);
        let reward = self.prices.reward * mixture.accuracy;
        let least: f64 = loads().filter_map(|(l, &load)| Some(cell.curves[l].as_ref()?.at_least(load).price)).sum();
        if least - reward >= self.goal.cost_max {
            return;
        }
        let mut price = 0.0;
        let mut replicas = Vec::new();
        for (lane, &load) in loads() {
            let cover = cheapest_cover(&items[lane], load * (1.0 + LOAD_MARGIN), self.goal.survive);
            let Some(cover) = cover else { return };
            price += cover.price;
            replicas.extend(cover.replicas);
        }
        if price - reward < self.goal.cost_max {
            self.goal.cost_max = price - reward;
            self.plan = Some(LoadPlan { accuracy: mixture.accuracy, replicas, budgets_ms: budgets_ms.clone() });
        }
    }
}

/// The score of a split whose halves cost this much more than the whole.
fn score_of(one: f64, other: f64) -> f64 {
    SMALLER_WEIGHT * one.min(other) + (1.0 - SMALLER_WEIGHT) * one.max(other)
}

/// The limited lanes of some budgets within a part of them; `None` if a lane that must carry queries has no replicas there.
fn limits_within(whole: &BudgetCell, half: &BudgetCell, limited: &[Arc<LimitedLane>]) -> Option<Vec<Arc<LimitedLane>>> {
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
