//! Which prices of devices and accuracy balance demand and supply, and which bound follows from them?
//!
//! Only the rows of devices, budget and floors join the pipelines, the operating points and the ways of queries. With a
//! price on each of these rows the rest falls apart: for every pipeline and for every choice of points the best plan takes
//! parts of replicas and one way, which a walk finds ([`least_cost`]). A small master programme mixes the plans that are
//! known. Its duals are the next prices (column generation). The least cost at any prices, less the worth of the rows, is
//! a bound on every plan (Lagrange).

use super::free::least_cost_of_any_points;
use super::points::GroupPoints;
use super::walk::{LaneNeeds, NeededReplicas, cheapest_way, least_cost};
use crate::exact::model::space::PipelineSpace;
use apportion_domain::Problem;
use apportion_mip::tableau::{PivotEnd, Tableau};
use apportion_mip::{ColumnId, Formulation, RunLimits};

/// Most rounds of column generation.
const ROUNDS_MAX: usize = 60;
/// Most pivots of one master programme.
const PIVOTS_MAX: usize = 2_000;
/// Distance of value and bound, relative, at which the prices are found.
const SOLVED: f64 = 1e-7;
/// Cost of one missing device, or of one unit of missing accuracy, in units of the goal's scale.
const MISSING_COST: f64 = 1e4;

/// Units of counted work of one prefix in one walk.
const UNITS_OF_PREFIX: u64 = 5;

/// What a stage optimises. All of it is minimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PricedGoal {
    /// Fewest replicas.
    Replicas,
    /// Least cost of devices, and of switching.
    Cost,
    /// Minus the weighted accuracy.
    Accuracy,
    /// Nothing: is there any plan?
    Nothing,
}

/// One stage: its goal, and the least weighted accuracy that it must keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct PricedStage {
    pub goal: PricedGoal,
    pub accuracy_min: Option<f64>,
}

/// Prices of the rows that pipelines share, all at least 0.
#[derive(Clone, Debug, Default)]
pub(super) struct BudgetPrices {
    /// Of a device, by hardware type, in addition to its own price.
    device: Vec<f64>,
    /// Of a unit of the budget.
    budget: f64,
    /// Of a unit of each pipeline's accuracy.
    floor: Vec<f64>,
    /// Of a unit of the weighted accuracy.
    total: f64,
}

/// One pipeline with the points that it may run at.
pub(super) struct PartCandidates<'a> {
    pub part: &'a PipelineSpace,
    /// The replicas that its lanes need.
    pub needs: LaneNeeds<'a>,
    pub candidates: Vec<GroupPoints>,
    /// Whether every plan runs at one of the candidates, or at slower points of one.
    pub is_complete: bool,
    /// The budget vectors that the candidates come from.
    pub vectors: Vec<Vec<f64>>,
}

/// A candidate with the cost of its best relaxed plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankedCandidate {
    pub cost: f64,
    pub candidate: usize,
}

/// The result of the relaxation.
pub(super) struct PricedBound {
    pub prices: BudgetPrices,
    /// No plan costs less.
    pub bound: f64,
    /// By pipeline: all candidates that can serve the demand, the cheapest first.
    pub ranked: Vec<Vec<RankedCandidate>>,
    /// Devices and accuracy that the relaxed plan misses.
    pub missing: f64,
}

/// A relaxed plan of one pipeline.
struct MasterColumn {
    part: usize,
    cost: f64,
    devices: Vec<f64>,
    accuracy: f64,
}

/// What the master programme found.
struct MasterResult {
    prices: BudgetPrices,
    value: f64,
    missing: f64,
}

/// The relaxation of one stage.
pub(super) struct PricedRelaxation<'a> {
    pub problem: &'a Problem,
    pub stage: PricedStage,
    pub parts: &'a [PartCandidates<'a>],
}

impl PricedBound {
    /// Price of a device by hardware type, in addition to its own price.
    pub fn device_prices(&self) -> &[f64] {
        &self.prices.device
    }
}

impl PricedRelaxation<'_> {
    /// Finds the prices. `None` if some pipeline has no way at all, if a master programme fails, or if the time for
    /// finishing is up.
    pub fn solve(&self, limits: &RunLimits) -> Option<PricedBound> {
        let nothing = self.no_prices();
        let mut columns = Vec::new();
        for device_price in [0.0, 1.0] {
            // one walk over every candidate of a large problem takes a tenth of a second
            if limits.for_finishing().exceeded() {
                return None;
            }
            let prices = BudgetPrices { device: vec![device_price; self.problem.hardware.len()], ..self.no_prices() };
            self.best_columns(&prices, &mut columns)?;
        }
        let mut best = (f64::NEG_INFINITY, nothing);
        let mut missing = 0.0;
        for _ in 0..ROUNDS_MAX {
            let master = self.solve_master(&columns)?;
            let before = columns.len();
            let bound = self.best_columns(&master.prices, &mut columns)? - self.worth_of_rows(&master.prices);
            missing = master.missing;
            if bound > best.0 {
                best = (bound, master.prices);
            }
            limits.count_work(self.work_of_a_round());
            let solved = best.0 >= master.value - SOLVED * master.value.abs().max(1e-3);
            if solved || columns.len() == before || limits.exceeded() {
                break;
            }
        }
        let (mut bound, prices) = best;
        let ranked: Vec<Vec<RankedCandidate>> = (0..self.parts.len()).map(|p| self.rank(p, &prices)).collect();
        if self.parts.iter().any(|p| !p.is_complete) {
            let costs = (0..self.parts.len()).map(|p| match (self.parts[p].is_complete, ranked[p].first()) {
                (true, Some(best)) => best.cost,
                _ => self.any_points(p, &prices),
            });
            bound = costs.sum::<f64>() - self.worth_of_rows(&prices);
        }
        Some(PricedBound { prices, bound, ranked, missing })
    }

    /// Units of counted work of one walk over every candidate.
    fn work_of_a_round(&self) -> u64 {
        let walks = self.parts.iter().map(|p| p.candidates.len() * p.part.trie.nodes.len());
        UNITS_OF_PREFIX * walks.sum::<usize>() as u64
    }

    /// Whether the relaxation proves that there is no plan.
    pub fn is_infeasible(&self, limits: &RunLimits) -> bool {
        let stage = PricedStage { goal: PricedGoal::Nothing, ..self.stage };
        let whole = PricedRelaxation { stage, ..*self };
        whole.solve(limits).is_some_and(|found| found.bound > 1e-6)
    }

    fn no_prices(&self) -> BudgetPrices {
        BudgetPrices {
            device: vec![0.0; self.problem.hardware.len()],
            floor: vec![0.0; self.parts.len()],
            ..BudgetPrices::default()
        }
    }

    /// The most that the limits of the shared rows are worth at these prices.
    pub fn worth_of_rows(&self, prices: &BudgetPrices) -> f64 {
        let counts = self.problem.hardware.iter().zip(&prices.device);
        let devices: f64 = counts.map(|(h, price)| h.count.map_or(0.0, |count| price * f64::from(count))).sum();
        let budget = prices.budget * self.problem.objective.budget_per_hour.unwrap_or(0.0);
        let floors = self.problem.pipelines.iter().zip(&prices.floor);
        let floors: f64 = floors.map(|(p, price)| price * p.min_accuracy.unwrap_or(0.0)).sum();
        devices + budget - floors - prices.total * self.stage.accuracy_min.unwrap_or(0.0)
    }

    /// Cost of a replica of each group, by the goal and by the prices.
    fn replica_costs(&self, part: &PipelineSpace, prices: &BudgetPrices) -> (Vec<f64>, Vec<f64>) {
        let of_group = |g: &crate::exact::model::groups::FeasibleGroup| {
            let own = self.problem.hardware_at(g.hardware).price_per_hour;
            let goal = match self.stage.goal {
                PricedGoal::Replicas => 1.0,
                PricedGoal::Cost => g.share.value() * own,
                PricedGoal::Accuracy | PricedGoal::Nothing => 0.0,
            };
            let priced = goal + g.share.value() * (prices.device[g.hardware.get()] + prices.budget * own);
            (goal, priced)
        };
        part.groups.iter().map(of_group).unzip()
    }

    /// Reward of a unit of a pipeline's accuracy.
    fn reward(&self, p: usize, prices: &BudgetPrices) -> f64 {
        let weight = self.parts[p].part.weight;
        let goal = if self.stage.goal == PricedGoal::Accuracy { weight } else { 0.0 };
        goal + prices.floor[p] + prices.total * weight
    }

    /// All candidates of a pipeline that can serve the demand, the cheapest first.
    fn rank(&self, p: usize, prices: &BudgetPrices) -> Vec<RankedCandidate> {
        let PartCandidates { part, needs, candidates, .. } = &self.parts[p];
        let (_, priced) = self.replica_costs(part, prices);
        let reward = self.reward(p, prices);
        let mut scratch = Vec::new();
        let cost = |(candidate, points): (usize, &GroupPoints)| {
            let lanes = needs.prices(points, &priced, reward);
            RankedCandidate { cost: least_cost(part, points, &lanes, &mut scratch), candidate }
        };
        let mut all: Vec<RankedCandidate> = candidates.iter().enumerate().map(cost).collect();
        all.retain(|c| c.cost < f64::INFINITY);
        all.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        all
    }

    /// Cost of one candidate at these prices.
    pub fn cost_of(&self, p: usize, points: &GroupPoints, prices: &BudgetPrices, scratch: &mut Vec<f64>) -> f64 {
        let PartCandidates { part, needs, .. } = &self.parts[p];
        let (_, priced) = self.replica_costs(part, prices);
        let lanes = needs.prices(points, &priced, self.reward(p, prices));
        least_cost(part, points, &lanes, scratch)
    }

    /// A bound on the cost of a pipeline at any points.
    fn any_points(&self, p: usize, prices: &BudgetPrices) -> f64 {
        let part = self.parts[p].part;
        let (_, priced) = self.replica_costs(part, prices);
        least_cost_of_any_points(self.problem.pipeline(part.index), part, &priced, self.reward(p, prices))
    }

    /// Adds the best relaxed plan of every pipeline at these prices. Returns their cost; `None` if one has none.
    fn best_columns(&self, prices: &BudgetPrices, columns: &mut Vec<MasterColumn>) -> Option<f64> {
        let mut sum = 0.0;
        for (p, PartCandidates { part, needs, candidates, .. }) in self.parts.iter().enumerate() {
            let best = *self.rank(p, prices).first()?;
            sum += best.cost;
            let points = &candidates[best.candidate];
            let (goal, priced) = self.replica_costs(part, prices);
            let way = cheapest_way(part, points, &needs.prices(points, &priced, self.reward(p, prices)))?;
            let mut column =
                MasterColumn { part: p, cost: 0.0, devices: vec![0.0; prices.device.len()], accuracy: way.accuracy };
            for &n in &way.nodes {
                let NeededReplicas { group: g, replicas } = needs.cheapest(points, n, &priced)?;
                let group = &part.groups[g];
                column.cost += goal[g] * replicas;
                column.devices[group.hardware.get()] += group.share.value() * replicas;
            }
            if self.stage.goal == PricedGoal::Accuracy {
                column.cost -= part.weight * way.accuracy;
            }
            let is_new = |o: &MasterColumn| {
                let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * a.abs().max(1e-9);
                let devices = o.devices.iter().zip(&column.devices).all(|(&a, &b)| near(a, b));
                !(o.part == p && devices && near(o.cost, column.cost) && near(o.accuracy, column.accuracy))
            };
            if columns.iter().all(is_new) {
                columns.push(column);
            }
        }
        Some(sum)
    }

    /// The cost of a unit that is missing.
    fn missing_cost(&self, columns: &[MasterColumn]) -> f64 {
        let scale = columns.iter().map(|c| c.cost.abs()).fold(1.0, f64::max);
        if self.stage.goal == PricedGoal::Nothing { 1.0 } else { MISSING_COST * scale }
    }

    /// The best mix of the known columns.
    fn solve_master(&self, columns: &[MasterColumn]) -> Option<MasterResult> {
        let (problem, missing_cost) = (self.problem, self.missing_cost(columns));
        let mut f = Formulation::default();
        let shares: Vec<ColumnId> = columns.iter().map(|_| f.continuous(0.0, 1.0)).collect();
        shares.iter().zip(columns).for_each(|(&share, c)| f.add_cost(share, c.cost));
        for p in 0..self.parts.len() {
            let own = shares.iter().zip(columns).filter(|(_, c)| c.part == p);
            f.equal(1.0, own.map(|(&share, _)| (share, 1.0)).collect());
        }
        let most = |of: &dyn Fn(&MasterColumn) -> f64| columns.iter().map(of).map(f64::abs).sum::<f64>() + 1.0;
        let mut missing = Vec::new();
        let mut slack = |f: &mut Formulation, most: f64| {
            let column = f.continuous(0.0, most);
            f.add_cost(column, missing_cost);
            missing.push(column);
            column
        };
        let first_row = f.rows.len();
        for (h, hardware) in problem.hardware.iter().enumerate() {
            let Some(count) = hardware.count else { continue };
            let over = slack(&mut f, most(&|c| c.devices[h]));
            let used = shares.iter().zip(columns).map(|(&share, c)| (share, c.devices[h]));
            f.at_most(f64::from(count), used.chain([(over, -1.0)]).collect());
        }
        let spent = |c: &MasterColumn| {
            problem.hardware.iter().zip(&c.devices).map(|(h, devices)| h.price_per_hour * devices).sum::<f64>()
        };
        if let Some(budget) = problem.objective.budget_per_hour {
            let over = slack(&mut f, most(&spent));
            let used = shares.iter().zip(columns).map(|(&share, c)| (share, spent(c)));
            f.at_most(budget, used.chain([(over, -1.0)]).collect());
        }
        for (p, part) in self.parts.iter().enumerate() {
            let Some(floor) = problem.pipeline(part.part.index).min_accuracy else { continue };
            let under = slack(&mut f, 1.0);
            let own = shares.iter().zip(columns).filter(|(_, c)| c.part == p).map(|(&share, c)| (share, c.accuracy));
            f.at_least(floor, own.chain([(under, 1.0)]).collect());
        }
        if let Some(least) = self.stage.accuracy_min {
            let under = slack(&mut f, 1.0);
            let all = shares.iter().zip(columns).map(|(&share, c)| (share, self.parts[c.part].part.weight * c.accuracy));
            f.at_least(least, all.chain([(under, 1.0)]).collect());
        }
        let mut tableau = Tableau::new(&f)?;
        if tableau.reoptimise(f64::INFINITY, PIVOTS_MAX) != PivotEnd::Optimal {
            return None;
        }
        let mut row = f.columns.len() + first_row;
        let mut next_dual = || {
            row += 1;
            tableau.reduced_cost(row - 1).max(0.0)
        };
        let device = problem.hardware.iter().map(|h| h.count.map_or(0.0, |_| next_dual())).collect();
        let budget = problem.objective.budget_per_hour.map_or(0.0, |_| next_dual());
        let has_floor = |part: &PartCandidates<'_>| problem.pipeline(part.part.index).min_accuracy.is_some();
        let floor = self.parts.iter().map(|p| if has_floor(p) { next_dual() } else { 0.0 }).collect();
        let total = self.stage.accuracy_min.map_or(0.0, |_| next_dual());
        let missing = missing.iter().map(|m| tableau.value_of(m.0)).sum();
        Some(MasterResult { prices: BudgetPrices { device, budget, floor, total }, value: tableau.cost, missing })
    }
}
