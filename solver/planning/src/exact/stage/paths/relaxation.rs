//! What is the best relaxed plan if each place has this many replicas? For rule `path`.
//!
//! Example: in the traffic pipeline the third task needs 0.6 replicas, so a plan has at least one. The relaxation without
//! this knowledge spends the other 0.4 on accuracy. With bounds on the replicas of each place it cannot.
//!
//! The relaxed plan mixes ways ([`Ways`]). A small programme holds the ways that are known so far: its rows are the
//! replicas of each place, the devices, the budget and the floor of accuracy. Its duals price a replica of each place. The
//! best way at these prices joins the programme, until no way improves it (column generation; Dantzig and Wolfe 1960). At
//! any prices the best way also gives a bound (Lagrangian relaxation; Geoffrion 1974).

use super::ways::{BatchSizeOfGroup, TaskPlace, Way, Ways, Worth};
use crate::exact::model::goal::Goal;
use crate::exact::model::groups::FeasibleGroup;
use apportion_domain::{HardwareIndex, Pipeline, Problem};
use apportion_mip::tableau::{PivotEnd, Tableau};
use apportion_mip::{ColumnId, Formulation, RunLimits};

/// Most ways that one relaxation may add.
const WAYS_ADDED_MAX: usize = 200;
/// Most pivots for one small programme.
const PIVOTS_MAX: usize = 2_000;
/// Cost of a missing replica, and of missing accuracy, as a multiple of the largest cost of a plan. It is raised where it
/// is too low.
const MISSING_COST: f64 = 1_000.0;
/// Most times that it is raised a thousandfold.
const RAISED_MAX: usize = 3;
/// Relative distance of bound and value at which a relaxation is solved.
const SOLVED: f64 = 1e-9;
/// A part of a replica, or of accuracy, that counts as missing.
const MISSING: f64 = 1e-7;
/// Share of traffic that counts as none.
const UNUSED: f64 = 1e-9;

/// What is minimised over relaxed plans, and which accuracy they must have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RelaxedGoal {
    pub goal: Goal,
    pub accuracy_min: Option<f64>,
    /// Most replicas of all places together.
    pub replicas_max: Option<f64>,
}

/// The numbers of replicas that each place may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub least: u32,
    pub most: u32,
}

/// The best relaxed plan within some numbers of replicas.
#[derive(Clone, Debug)]
pub(crate) struct Relaxed {
    /// Price of a replica by place, in the unit of the goal.
    pub prices: Vec<f64>,
    /// Worth of accuracy, in the unit of the goal.
    pub accuracy: f64,
    /// No plan within these numbers costs less.
    pub bound: f64,
    /// Replicas of each place within these numbers, not rounded.
    pub needed: Vec<f64>,
    /// The batch sizes that its ways use.
    pub stops: Vec<BatchSizeOfGroup>,
}

/// The relaxations of one pipeline. They share the ways that they find.
pub(crate) struct Relaxations<'a> {
    problem: &'a Problem,
    pipeline: &'a Pipeline,
    ways: &'a Ways,
    known: Vec<Way>,
    /// At least the cost of any plan that has no excess: it scales the cost of missing replicas.
    cost_max: f64,
    /// By place: the deployed replicas, and the least cost of loading one more.
    switching: Vec<Switching>,
    limits: &'a RunLimits,
}

/// What is deployed at a place.
#[derive(Clone, Copy)]
struct Switching {
    deployed: u32,
    cost: f64,
}

/// Answer of a relaxation.
pub(crate) enum RelaxedAnswer {
    Solved(Relaxed),
    /// No plan has these numbers of replicas.
    Infeasible,
    /// The relaxation is too large, numerically too hard, or beyond the limits. It proves nothing.
    Unknown,
}

/// How one column generation ended.
enum Generated {
    Solved { relaxed: Relaxed, missing: f64 },
    Unknown,
}

impl<'a> Relaxations<'a> {
    /// Begins with the most accurate way and with the way of the fewest replicas. `None` if no way is in time.
    pub fn new(
        problem: &'a Problem,
        pipeline: &'a Pipeline,
        groups: &[FeasibleGroup],
        ways: &'a Ways,
        replicas_max: &[f64],
        limits: &'a RunLimits,
    ) -> Option<Self> {
        let (nothing, one) = (vec![0.0; ways.places.len()], vec![1.0; ways.places.len()]);
        let (_, accurate) = ways.best_way(Worth { accuracy: 1.0, prices: &nothing })?;
        let (_, thrifty) = ways.best_way(Worth { accuracy: 0.0, prices: &one })?;
        let price = |r: usize| problem.hardware_at(ways.places[r].hardware).price_per_hour.max(1.0);
        let cost_max = (0..ways.places.len()).map(|r| price(r) * replicas_max[r]).sum::<f64>().max(1.0);
        let switching = |&place: &TaskPlace| {
            let here = || groups.iter().filter(move |g| TaskPlace::of(g) == place);
            let deployed = here().map(|g| g.deployed).sum();
            Switching { deployed, cost: here().map(|g| g.switch_cost).fold(f64::INFINITY, f64::min) }
        };
        let switching = ways.places.iter().map(switching).collect();
        Some(Self { problem, pipeline, ways, known: vec![accurate, thrifty], cost_max, switching, limits })
    }

    /// The best relaxed plan within these numbers of replicas by place.
    pub fn solve(&mut self, goal: RelaxedGoal, bounds: &[Bounds]) -> RelaxedAnswer {
        if bounds.iter().any(|of| of.least > of.most) {
            return RelaxedAnswer::Infeasible;
        }
        let scale = if goal.goal == Goal::Accuracy { 1.0 } else { self.cost_max };
        let mut missing_cost = MISSING_COST * scale;
        for _ in 0..=RAISED_MAX {
            match self.generate(goal, bounds, Some(missing_cost)) {
                Generated::Unknown => return RelaxedAnswer::Unknown,
                Generated::Solved { relaxed, missing } if missing <= MISSING => return RelaxedAnswer::Solved(relaxed),
                Generated::Solved { .. } => {}
            }
            // something is missing: must it be?
            match self.generate(goal, bounds, None) {
                Generated::Solved { relaxed, .. } if relaxed.bound > MISSING => return RelaxedAnswer::Infeasible,
                Generated::Solved { .. } => missing_cost *= 1_000.0,
                Generated::Unknown => return RelaxedAnswer::Unknown,
            }
        }
        RelaxedAnswer::Unknown
    }

    /// Generates ways until none improves the mix. Without a cost of missing replicas, only they are minimised.
    fn generate(&mut self, goal: RelaxedGoal, bounds: &[Bounds], missing_cost: Option<f64>) -> Generated {
        let mut best: Option<Relaxed> = None;
        for _ in 0..WAYS_ADDED_MAX {
            if best.is_some() && self.limits.exceeded() {
                return Generated::Unknown;
            }
            let statement = Statement::new(self, goal, bounds, missing_cost);
            let Some(mix) = statement.solve(self.known.len(), self.limits) else { return Generated::Unknown };
            let worth = Worth { accuracy: mix.accuracy, prices: &mix.prices };
            let Some((value, way)) = self.ways.best_way(worth) else { return Generated::Unknown };
            let bound = mix.without_ways - value;
            let improved = best.as_ref().is_none_or(|best| bound > best.bound);
            let before = best.take();
            let mut relaxed = match before.filter(|_| !improved) {
                Some(before) => before,
                None => Relaxed {
                    prices: mix.prices.clone(),
                    accuracy: mix.accuracy,
                    bound,
                    needed: Vec::new(),
                    stops: Vec::new(),
                },
            };
            let solved = relaxed.bound >= mix.value - SOLVED * mix.value.abs().max(1.0);
            relaxed.needed = self.needed(&mix.shares, bounds);
            if solved || self.known.contains(&way) {
                relaxed.stops = self.stops_of(&mix.shares);
                return Generated::Solved { relaxed, missing: mix.missing };
            }
            self.known.push(way);
            best = Some(relaxed);
        }
        Generated::Unknown
    }

    /// Replicas of each place that a mix needs, within their bounds.
    fn needed(&self, shares: &[f64], bounds: &[Bounds]) -> Vec<f64> {
        let load = |r: usize| self.known.iter().zip(shares).map(|(way, share)| share * way.replicas[r]).sum::<f64>();
        let within = |(r, of): (usize, &Bounds)| load(r).clamp(f64::from(of.least), f64::from(of.most));
        bounds.iter().enumerate().map(within).collect()
    }

    /// The batch sizes of the ways that have a share of the traffic.
    fn stops_of(&self, shares: &[f64]) -> Vec<BatchSizeOfGroup> {
        let used = self.known.iter().zip(shares).filter(|(_, share)| **share > UNUSED);
        let mut stops: Vec<BatchSizeOfGroup> = used.flat_map(|(way, _)| way.stops.iter().copied()).collect();
        stops.sort_unstable();
        stops.dedup();
        stops
    }
}

/// The best mix of the known ways.
struct Mix {
    value: f64,
    /// The bound, without the part of the ways.
    without_ways: f64,
    prices: Vec<f64>,
    accuracy: f64,
    shares: Vec<f64>,
    /// Replicas and accuracy that are missing.
    missing: f64,
}

/// The programme over the known ways, with the meaning of its columns and rows.
struct Statement {
    programme: Formulation,
    /// Replicas by place.
    replicas: Vec<ColumnId>,
    missing: Vec<ColumnId>,
    /// Columns that stand in the true problem too: replicas and devices.
    own: Vec<ColumnId>,
    /// Row of the floor of accuracy.
    floor: Option<usize>,
    /// Accuracy counts by itself.
    accuracy: f64,
}

impl Statement {
    fn new(of: &Relaxations<'_>, goal: RelaxedGoal, bounds: &[Bounds], missing_cost: Option<f64>) -> Self {
        let mut programme = Formulation::default();
        let accuracy = if goal.goal == Goal::Accuracy && missing_cost.is_some() { 1.0 } else { 0.0 };
        for way in &of.known {
            let share = programme.continuous(0.0, 1.0);
            programme.add_cost(share, -accuracy * way.accuracy);
        }
        let replicas: Vec<ColumnId> =
            bounds.iter().map(|of| programme.continuous(f64::from(of.least), f64::from(of.most))).collect();
        let mut statement = Self { programme, own: replicas.clone(), replicas, missing: Vec::new(), floor: None, accuracy };
        statement.add_places(of);
        if let Some(most) = goal.replicas_max {
            let all = statement.replicas.iter().map(|&x| (x, 1.0)).collect();
            statement.programme.at_most(most, all);
        }
        statement.add_devices(of, missing_cost.map(|_| goal.goal));
        if goal.goal == Goal::CostAndSwitching && missing_cost.is_some() {
            statement.add_switching(of);
        }
        statement.add_floor(of, goal);
        for &missing in &statement.missing {
            statement.programme.add_cost(missing, missing_cost.unwrap_or(1.0));
        }
        let shares = (0..of.known.len()).map(|w| (ColumnId(w), 1.0)).collect();
        statement.programme.equal(1.0, shares);
        statement
    }

    /// By place r: `sum over ways of share * replicas there <= X_r + missing_r`. By task: `sum of X_r >= min_replicas`.
    fn add_places(&mut self, of: &Relaxations<'_>) {
        for (r, &replicas) in self.replicas.clone().iter().enumerate() {
            let needs = || of.known.iter().enumerate().map(|(w, way)| (ColumnId(w), way.replicas[r]));
            // twice the need: no solution reaches it, so no price is above the cost of what is missing
            let missing = self.programme.continuous(0.0, 2.0 * needs().map(|(_, need)| need).fold(1.0, f64::max));
            self.missing.push(missing);
            let terms = needs().filter(|(_, need)| *need > 0.0).chain([(replicas, -1.0), (missing, -1.0)]).collect();
            self.programme.at_most(0.0, terms);
        }
        for (t, task) in of.pipeline.tasks.iter().enumerate().filter(|(_, task)| task.min_replicas > 0) {
            let here = of.ways.places.iter().zip(&self.replicas).filter(|(place, _)| place.task.get() == t);
            let here: Vec<(ColumnId, f64)> = here.map(|(_, &x)| (x, 1.0)).collect();
            if here.len() > 1 {
                self.programme.at_least(f64::from(task.min_replicas), here);
            }
        }
    }

    /// By hardware type h: `sum of share X_r <= d_h <= count_h`; `sum of price_h d_h <= budget`; and the costs of a goal.
    fn add_devices(&mut self, of: &Relaxations<'_>, goal: Option<Goal>) {
        if goal == Some(Goal::Replicas) {
            self.replicas.clone().into_iter().for_each(|x| self.programme.add_cost(x, 1.0));
        }
        let mut costs = Vec::new();
        for (h, hardware) in of.problem.hardware.iter().enumerate() {
            let here = of.ways.places.iter().zip(&self.replicas).filter(|(place, _)| place.hardware == HardwareIndex(h));
            let mut terms: Vec<(ColumnId, f64)> = here.map(|(place, &x)| (x, place.share.value())).collect();
            if terms.is_empty() {
                continue;
            }
            let used: f64 = terms.iter().map(|&(x, share)| share * self.programme.columns[x.0].upper).sum();
            let count = hardware.count.map_or(used, f64::from);
            let devices = self.programme.continuous(0.0, count);
            self.own.push(devices);
            terms.push((devices, -1.0));
            self.programme.at_most(0.0, terms);
            costs.push((devices, hardware.price_per_hour));
        }
        if matches!(goal, Some(Goal::Cost | Goal::CostAndSwitching)) {
            costs.iter().for_each(|&(devices, price)| self.programme.add_cost(devices, price));
        }
        if let Some(budget) = of.problem.objective.budget_per_hour {
            self.programme.at_most(budget, costs);
        }
    }

    /// `p_r >= X_r - deployed_r`, at the least cost of any group there. A plan pays at least that.
    fn add_switching(&mut self, of: &Relaxations<'_>) {
        for (at, &replicas) in of.switching.iter().zip(&self.replicas.clone()).filter(|(at, _)| at.cost > 0.0) {
            let loaded = self.programme.continuous(0.0, self.programme.columns[replicas.0].upper);
            self.own.push(loaded);
            self.programme.at_most(f64::from(at.deployed), vec![(replicas, 1.0), (loaded, -1.0)]);
            self.programme.add_cost(loaded, at.cost);
        }
    }

    /// `sum over ways of share * accuracy >= floor`.
    fn add_floor(&mut self, of: &Relaxations<'_>, goal: RelaxedGoal) {
        let floor = goal.accuracy_min.into_iter().chain(of.pipeline.min_accuracy).reduce(f64::max);
        if let Some(floor) = floor {
            let missing = self.programme.continuous(0.0, 2.0 * floor.max(0.0) + 1.0);
            self.missing.push(missing);
            let ways = of.known.iter().enumerate().map(|(w, way)| (ColumnId(w), way.accuracy));
            let terms = ways.chain([(missing, 1.0)]).collect();
            self.floor = Some(self.programme.rows.len());
            self.programme.at_least(floor, terms);
        }
    }

    /// The best mix, with the prices of its rows.
    fn solve(&self, ways: usize, limits: &RunLimits) -> Option<Mix> {
        let mut tableau = Tableau::new(&self.programme)?;
        let ended = tableau.reoptimise(f64::INFINITY, PIVOTS_MAX);
        limits.count_work(tableau.size() * (1 + tableau.pivots()));
        if ended != PivotEnd::Optimal {
            return None;
        }
        let columns = self.programme.columns.len();
        // a row `a x <= b` has a dual of at most 0, and the reduced cost of its slack is the dual's absolute value
        let price = |row: usize| tableau.reduced_cost(columns + row).max(0.0);
        let rows = self.programme.rows.len() - 1;
        let mut reduced: Vec<f64> = self.programme.costs.clone();
        let mut bound = 0.0;
        for (r, row) in self.programme.rows.iter().take(rows).enumerate() {
            let price = price(r);
            let (sign, right) = if row.upper.is_finite() { (1.0, row.upper) } else { (-1.0, -row.lower) };
            bound -= price * right;
            row.terms.iter().for_each(|&(c, factor)| reduced[c.0] += price * sign * factor);
        }
        for c in &self.own {
            let range = self.programme.columns[c.0];
            bound += (reduced[c.0] * range.lower).min(reduced[c.0] * range.upper);
        }
        Some(Mix {
            value: tableau.cost,
            without_ways: bound,
            prices: (0..self.replicas.len()).map(price).collect(),
            accuracy: self.accuracy + self.floor.map_or(0.0, price),
            shares: (0..ways).map(|w| tableau.value_of(w)).collect(),
            missing: self.missing.iter().map(|m| tableau.value_of(m.0)).sum(),
        })
    }
}
