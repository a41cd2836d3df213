//! Which whole replicas carry a pipeline at the least price? A search over its budgets and the capacities of its lanes.
//!
//! A box has levels of budgets ([`LevelRange`]) and limits of loads. It is split at a task, until its most levels keep to
//! the SLO, or at a lane. Example: the cheapest mixture loads a lane with 210 queries per second. Its replicas have a
//! capacity of 200 or less, or of 220 or more. In the first case 200 is the most that the lane carries. In the second case
//! it pays at least the price of 220. In both cases the lower convex hull of its prices is closer to them.
//!
//! Under a floor many budgets cost about as much. So a lane is also split while budgets are undecided: at their most levels
//! a replica carries most, so the curve there is a bound for all of them. One such split stands for the same split in each
//! of them. Where something else than a floor decides ([`Criterion`]), budgets are split first, by walks alone.
//!
//! The search takes the box of the least bound. At times it follows the best box downwards to a plan.

use super::boxes::LevelRange;
use super::cells::{BudgetCell, BudgetCells, PlanBudgets, ScoredTask, SplitScale, limits_within, score_of};
use super::cover::cheapest_cover;
use super::curve::CapacityPoint;
use super::items::Criterion;
use super::programme::{LaneMixture, LimitedLane, MixtureProgramme, MixtureQuestion};
use super::walk::Walker;
use apportion_mip::RunLimits;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Under a floor one box in so many is followed downwards to a plan, the first one included.
const BOXES_PER_DIVE: usize = 60;
/// Otherwise so many boxes of capacities are.
const DIVES_MAX: usize = 2;
/// The penalty of a programme, as a multiple of the largest costs.
const PENALTY: f64 = 20.0;
/// A mixture with more missing queries than this is no plan.
const MISSING_MAX: f64 = 1e-9;
/// A cover carries this much more load, relative, so that rounding errors never cost a plan its flows.
const LOAD_MARGIN: f64 = 5e-7;
/// Differences of prices below this, relative, are noise.
const NOISE: f64 = 1e-6;
/// Rise of the bound at the split of a lane, as a part of the prices of the two ways from its load to a capacity.
const LANE_FACTOR: f64 = 0.2;
/// Boxes between two checks of the limits.
const BOXES_PER_CHECK: usize = 8;

/// What a search looks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadGoal {
    pub criterion: Criterion,
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

/// A box of which the cheapest mixture is known.
struct SolvedBox {
    cell: Arc<BudgetCell>,
    limited: Vec<Arc<LimitedLane>>,
    /// The best lane to split, if any lane pays less than its whole price.
    lane: Option<ScoredLane>,
}

/// What a box contains.
enum BoxState {
    /// All capacities within some budgets. Only a walk has bounded their cost.
    Walked(LevelRange),
    Solved(SolvedBox),
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

/// A search that can be interrupted.
pub struct LoadSearch<'a> {
    cells: BudgetCells<'a>,
    goal: LoadGoal,
    walker: Walker<'a>,
    programme: MixtureProgramme,
    penalty: f64,
    open: BinaryHeap<OpenBox>,
    /// The box that is followed downwards.
    dive: Option<OpenBox>,
    /// The least bound of the boxes that are searched no further.
    closed_min: f64,
    boxes: usize,
    since_dive: usize,
    dives: usize,
    /// Lanes that were split before the budgets were decided.
    early_splits: usize,
    plan: Option<LoadPlan>,
}

impl<'a> LoadSearch<'a> {
    /// A search at the prices of these cells.
    pub(super) fn new(cells: BudgetCells<'a>, walker: Walker<'a>, goal: LoadGoal) -> Self {
        let programme = MixtureProgramme::new(&cells.load_max);
        let mut search = Self {
            cells,
            goal,
            walker,
            programme,
            penalty: 0.0,
            open: BinaryHeap::new(),
            dive: None,
            closed_min: f64::INFINITY,
            boxes: 0,
            since_dive: 0,
            dives: 0,
            early_splits: 0,
            plan: None,
        };
        search.start();
        search
    }

    /// Opens the box of all budgets.
    fn start(&mut self) {
        let Some(mut all) = LevelRange::all(&self.cells.levels) else { return };
        if self.cells.narrow(&mut all) {
            let bound = self.walked_bound(&all);
            let known = if self.goal.cost_max.is_finite() { self.goal.cost_max.abs() } else { 0.0 };
            self.penalty = PENALTY * (bound.abs() + known + self.cells.prices.reward + self.goal.floor_price);
            let first = match self.goal.criterion {
                Criterion::CostUnderFloor => {
                    let cell = Arc::new(self.cells.cell(all));
                    self.capacity_box(cell, Vec::new(), bound)
                }
                Criterion::Other => self.open_box(bound, BoxState::Walked(all)),
            };
            self.open.extend(first);
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

    /// How many lanes were split before the budgets were decided.
    pub fn early_splits(&self) -> usize {
        self.early_splits
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
        if self.goal.criterion == Criterion::Other {
            self.open.extend(self.dive.take());
        }
    }

    /// Whether a box that is no part of a dive begins one. Its parts are `found`.
    fn starts_dive(&mut self, found: &[OpenBox]) -> bool {
        if self.goal.criterion == Criterion::CostUnderFloor {
            self.since_dive = (self.since_dive + 1) % BOXES_PER_DIVE;
            return self.since_dive == 1;
        }
        let starts = self.dives < DIVES_MAX && found.iter().any(|of| matches!(of.state, BoxState::Solved(_)));
        self.dives += usize::from(starts);
        starts
    }

    /// The parts of a box that may have better plans.
    fn split(&mut self, OpenBox { bound, state, .. }: OpenBox) -> Vec<OpenBox> {
        match state {
            BoxState::Solved(of) => self.split_solved(of, bound),
            BoxState::Walked(levels) => match self.cells.widest_task(&levels) {
                Some(t) => levels.halves(t).into_iter().filter_map(|half| self.walked_box(half, bound)).collect(),
                None => {
                    let cell = Arc::new(self.cells.cell(levels));
                    self.capacity_box(cell, Vec::new(), bound).into_iter().collect()
                }
            },
        }
    }

    /// The same of a box of which the mixture is known.
    fn split_solved(&mut self, SolvedBox { cell, limited, lane }: SolvedBox, bound: f64) -> Vec<OpenBox> {
        match (lane, self.task_to_split(&cell)) {
            (lane, Some(of)) if lane.as_ref().is_none_or(|lane| LANE_FACTOR * lane.score <= of.score) => {
                self.split_budgets(&cell, &limited, of.task, bound)
            }
            (Some(lane), _) => {
                self.early_splits += usize::from(cell.plan.is_none());
                self.split_capacities(&cell, &limited, &lane.split, bound)
            }
            // nothing is left to be split
            (None, _) => {
                self.closed_min = self.closed_min.min(bound);
                Vec::new()
            }
        }
    }

    /// A bound of some budgets that takes a single walk.
    fn walked_bound(&mut self, levels: &LevelRange) -> f64 {
        let LoadGoal { floor, floor_price, .. } = self.goal;
        let reward = self.cells.prices.reward + floor_price;
        self.walker.least_cost(&self.cells.levels, &levels.most, reward) + floor_price * floor
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

    /// A box of budgets; `None` if it has no better plan.
    fn walked_box(&mut self, mut levels: LevelRange, bound: f64) -> Option<OpenBox> {
        if !self.cells.narrow(&mut levels) {
            return None;
        }
        let walked = self.walked_bound(&levels);
        self.open_box(walked.max(bound), BoxState::Walked(levels))
    }

    /// A box of capacities; `None` if it has no better plan. Its cheapest mixture may give one.
    fn capacity_box(&mut self, cell: Arc<BudgetCell>, limited: Vec<Arc<LimitedLane>>, bound: f64) -> Option<OpenBox> {
        let question = MixtureQuestion {
            reward: self.cells.prices.reward,
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
        let is_open = bound < self.enough();
        let lane = if is_open { self.lane_to_split(&cell, &limited, &mixture) } else { None };
        if !is_open || (lane.is_none() && cell.plan.is_some()) {
            self.closed_min = self.closed_min.min(bound);
            return None;
        }
        self.open_box(bound, BoxState::Solved(SolvedBox { cell, limited, lane }))
    }

    /// The task at which budgets are split; `None` if their most levels keep to the SLO.
    fn task_to_split(&mut self, cell: &BudgetCell) -> Option<ScoredTask> {
        let scale = SplitScale { reward: self.cells.prices.reward + self.goal.floor_price, rise_max: self.penalty };
        self.cells.task_to_split(cell, scale, &mut self.walker)
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
            if !self.cells.narrow(&mut levels) {
                continue;
            }
            let bound = bound.max(self.walked_bound(&levels));
            if bound >= self.enough() {
                self.closed_min = self.closed_min.min(bound);
                continue;
            }
            let half = Arc::new(self.cells.cell(levels));
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
            let Some(curve) = curve.as_ref().filter(|_| load > NOISE * self.cells.load_max[lane]) else { continue };
            let CapacityPoint { qps: upper_qps, price } = curve.at_least(load);
            let up = price - paid;
            if up <= NOISE * (mixture.bound.abs() + self.cells.prices.reward) {
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
            None => (0.0, 0.0, curve.at_least(self.cells.load_max[lane]).qps.max(upper_qps)),
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
        let reward = self.cells.prices.reward * mixture.accuracy;
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
