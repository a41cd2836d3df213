//! Which known plans of the pipelines are best together? The master programme chooses one plan for each pipeline, within
//! the shared devices and budget.
//!
//! With columns c of pipeline g, goal `v_gc` and devices `a_gch`:
//!
//! `min sum v_gc y_gc + sum cost_h d_h`, `sum over c of y_gc = 1`,
//! `sum a_gch y_gc <= d_h <= most_h`, `sum price_h d_h <= budget`. For each row of a quota:
//! `sum over its pipelines g of sum weight_h ceil(a_gch) y_gc <= most`.
//!
//! Its linear relaxation over all columns is the Dantzig-Wolfe relaxation of the joint problem. Its optimum is that of the
//! Lagrangian dual. The duals `lambda_h` of the device rows are the prices at which the pipelines give new columns. A
//! pipeline with quotas pays the duals of their rows too, each times the row's weight ([`SharedResources::prices_for`]).

use super::sub::{Column, is_no_worse};
use crate::exact::model::quotas::QuotaRow;
use apportion_domain::PipelineIndex;
use apportion_mip::RunLimits;
use apportion_mip::highs::{self, SolveSettings};
use apportion_mip::{ColumnId, Ending, Formulation};

/// Price of a device beyond the limits, as a multiple of its cost.
const PENALTY: f64 = 2.0;
/// Most nodes of a search for the best combination.
const NODES_MAX: i32 = 1_000;

/// The resources that pipelines share.
#[derive(Clone, Debug)]
pub(super) struct SharedResources {
    /// Existing devices of each type, or the most that can be useful.
    pub most: Vec<f64>,
    /// Cost of a device in the objective; 0 if the goal does not count devices.
    pub cost: Vec<f64>,
    /// Price of a device in the budget.
    pub price: Vec<f64>,
    /// Cap on the price of all devices.
    pub budget: Option<f64>,
    /// Types of which parts of devices are used. Whole devices must be counted there.
    pub split: Vec<bool>,
    /// The rows of quotas.
    pub quotas: Vec<QuotaRow>,
}

impl SharedResources {
    /// The prices of what devices cost by themselves, in the order of duals: those of quotas are 0.
    pub fn own_prices(&self) -> Vec<f64> {
        self.cost.iter().copied().chain(self.quotas.iter().map(|_| 0.0)).collect()
    }

    /// The prices of devices for one pipeline: the dual of each type, and those of its quotas. `duals` has the rows of
    /// devices and then those of quotas.
    pub fn prices_for(&self, pipeline: usize, duals: &[f64]) -> Vec<f64> {
        let (devices, quotas) = duals.split_at(self.most.len().min(duals.len()));
        let mut prices = devices.to_vec();
        for (row, dual) in self.quotas.iter().zip(quotas).filter(|(row, _)| row.has(PipelineIndex(pipeline))) {
            prices.iter_mut().zip(&row.weights).for_each(|(price, weight)| *price += dual * weight);
        }
        prices
    }

    /// Whether each device costs something in the objective.
    pub fn has_costs(&self) -> bool {
        self.cost.iter().all(|cost| *cost > 0.0)
    }

    /// The highest cost of a unit of the row of a quota.
    fn cost_of_unit(&self, row: &QuotaRow) -> f64 {
        let weighted = self.cost.iter().zip(&row.weights).filter(|(_, weight)| **weight > 0.0);
        weighted.map(|(cost, weight)| cost / weight).fold(0.0, f64::max)
    }

    /// Whether these duals weigh the violation of each row at most as the goal of a shortage does. Other duals bound
    /// nothing there.
    pub fn weigh_shortage(&self, duals: &[f64]) -> bool {
        let most = self.most.iter().copied().chain(self.quotas.iter().map(|row| row.most));
        duals.iter().zip(most).all(|(dual, most)| *dual <= 1.0 / most.max(1.0) + 1e-12)
    }

    /// The devices' part of the Lagrangian: `min sum (cost_h - lambda_h) d_h` over `0 <= d <= most`,
    /// `sum price d <= budget`, and `-sum mu most` over the rows of quotas with duals mu.
    pub fn lagrangian_min(&self, lambda: &[f64]) -> f64 {
        let gain = |h: usize| lambda[h] - self.cost[h];
        let mut order: Vec<usize> = (0..self.most.len()).filter(|&h| gain(h) > 0.0 && self.most[h] > 0.0).collect();
        order.sort_by(|&a, &b| (gain(b) * self.price[a]).total_cmp(&(gain(a) * self.price[b])));
        let mut left = self.budget.unwrap_or(f64::INFINITY);
        let quotas = self.quotas.iter().zip(lambda.iter().skip(self.most.len()));
        let mut sum = -quotas.map(|(row, dual)| row.most * dual).sum::<f64>();
        for h in order {
            let devices = if self.price[h] > 0.0 { self.most[h].min(left / self.price[h]) } else { self.most[h] };
            left -= devices * self.price[h];
            sum -= gain(h) * devices;
        }
        sum
    }

    /// Cost of the whole devices of a set of plans in the objective, one for each pipeline; `None` if they do not fit.
    pub fn fits(&self, columns: &[&Column]) -> Option<f64> {
        let mut used = vec![0.0; self.most.len()];
        for column in columns {
            used.iter_mut().zip(&column.devices).for_each(|(u, a)| *u += a);
        }
        let whole: Vec<f64> = used.iter().map(|u| u.ceil()).collect();
        let priced: f64 = whole.iter().zip(&self.price).map(|(d, p)| d * p).sum();
        let within = whole.iter().zip(&self.most).all(|(d, m)| d <= m)
            && self.budget.is_none_or(|b| priced <= b + apportion_domain::SLACK * b.max(1.0))
            && self.quotas.iter().all(|row| row.excess(|p| columns[p.get()].devices.as_slice()) <= 0.0);
        within.then(|| whole.iter().zip(&self.cost).map(|(d, c)| d * c).sum())
    }
}

/// Optimum of the linear relaxation over the known columns.
pub(super) struct Duals {
    pub value: f64,
    /// Price of a device of each type, then of a unit of each row of a quota.
    pub lambda: Vec<f64>,
}

/// The goal of the relaxed master programme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MasterGoal {
    /// The goal of the joint problem.
    Cost,
    /// The violation of the device counts and quotas, each relative to its limit.
    Shortage,
    /// The goal of the joint problem, in which devices and quotas can be exceeded at [`PENALTY`] times their cost.
    CostOrShortage,
}

impl MasterGoal {
    /// Cost of a unit above a limit, if any is allowed; `priced` is that of a goal with costs.
    fn penalty(self, most: f64, priced: f64) -> Option<f64> {
        match self {
            Self::Cost => None,
            Self::Shortage => Some(1.0 / most.max(1.0)),
            Self::CostOrShortage => Some(priced),
        }
    }
}

/// Whether columns are chosen as wholes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Integrality {
    Whole,
    Relaxed,
}

/// One known column for each pipeline.
pub(super) struct ColumnCombination {
    /// Positions of the columns, by pipeline.
    pub chosen: Vec<usize>,
    /// The goal's value with the devices' cost.
    pub value: f64,
}

/// The master programme over the known columns.
struct MasterProgramme {
    formulation: Formulation,
    /// Position of the row of each hardware type, then of each row of a quota.
    priced_rows: Vec<usize>,
}

/// The known columns, by pipeline.
pub(super) struct Master {
    pub shared: SharedResources,
    pub columns: Vec<Vec<Column>>,
}

impl Master {
    pub fn new(shared: SharedResources, pipelines: usize) -> Self {
        Self { shared, columns: vec![Vec::new(); pipelines] }
    }

    /// Adds a plan unless a known plan is at least as good and needs no more devices. Whether it was added.
    pub fn add(&mut self, pipeline: usize, column: Column) -> bool {
        let known = &mut self.columns[pipeline];
        if known.iter().any(|c| is_no_worse(c, &column)) {
            return false;
        }
        known.retain(|c| !is_no_worse(&column, c));
        known.push(column);
        true
    }

    /// Prices at the optimum of the relaxation. `None` if some pipeline has no column, or the relaxation has no solution.
    pub fn relax(&self, goal: MasterGoal, limits: &RunLimits) -> Option<Duals> {
        let MasterProgramme { formulation, priced_rows } = self.formulate(Integrality::Relaxed, goal)?;
        let solved = highs::solve_linear(&formulation, limits)?;
        let lambda = priced_rows.iter().map(|&r| (-solved.duals[r]).max(0.0)).collect();
        Some(Duals { value: solved.cost, lambda })
    }

    /// The best combination of known columns; `None` if no combination was found.
    pub fn combine(&self, gap: f64, limits: &RunLimits) -> Option<ColumnCombination> {
        let MasterProgramme { formulation, .. } = self.formulate(Integrality::Whole, MasterGoal::Cost)?;
        let solved = highs::solve(
            &formulation,
            SolveSettings { nodes_max: Some(NODES_MAX), ..SolveSettings::mip(gap) },
            limits,
            None,
        );
        let values = match solved.ending {
            Ending::Optimal | Ending::Stopped => solved.values?,
            Ending::Infeasible | Ending::Failed => return None,
        };
        let mut next = 0;
        let mut chosen = Vec::with_capacity(self.columns.len());
        for known in &self.columns {
            chosen.push((0..known.len()).find(|&c| values[next + c] > 0.5)?);
            next += known.len();
        }
        let picked: Vec<&Column> = chosen.iter().zip(&self.columns).map(|(&c, known)| &known[c]).collect();
        let devices = self.shared.fits(&picked)?;
        let value = devices + picked.iter().map(|c| c.goal).sum::<f64>();
        Some(ColumnCombination { chosen, value })
    }

    /// The programme; `None` if some pipeline has no column.
    fn formulate(&self, integrality: Integrality, goal: MasterGoal) -> Option<MasterProgramme> {
        let is_whole = integrality == Integrality::Whole;
        if self.columns.iter().any(Vec::is_empty) {
            return None;
        }
        let mut f = Formulation::default();
        let types = self.shared.most.len();
        let mut device_terms: Vec<Vec<(ColumnId, f64)>> = vec![Vec::new(); types];
        let mut quota_terms: Vec<Vec<(ColumnId, f64)>> = vec![Vec::new(); self.shared.quotas.len()];
        for (p, known) in self.columns.iter().enumerate() {
            let mut ones = Vec::with_capacity(known.len());
            for column in known {
                let y = if is_whole { f.integer(0.0, 1.0) } else { f.continuous(0.0, f64::INFINITY) };
                if goal != MasterGoal::Shortage {
                    f.add_cost(y, column.goal);
                }
                ones.push((y, 1.0));
                for (h, &a) in column.devices.iter().enumerate().filter(|(_, a)| **a > 0.0) {
                    device_terms[h].push((y, a));
                }
                let of_pipeline = self.shared.quotas.iter().zip(&mut quota_terms);
                for (row, terms) in of_pipeline.filter(|(row, _)| row.has(PipelineIndex(p))) {
                    terms.push((y, row.used(&column.devices)));
                }
            }
            f.equal(1.0, ones);
        }
        let mut rows = Vec::with_capacity(types);
        let mut priced = Vec::new();
        for (h, mut terms) in device_terms.into_iter().enumerate() {
            let most = self.shared.most[h];
            let d = if is_whole && self.shared.split[h] { f.integer(0.0, most) } else { f.continuous(0.0, most) };
            terms.push((d, -1.0));
            if goal != MasterGoal::Shortage {
                f.add_cost(d, self.shared.cost[h]);
            }
            let penalty = goal.penalty(most, (1.0 + PENALTY) * self.shared.cost[h]);
            terms.extend(penalty.map(|penalty| (add_shortage(&mut f, penalty), -1.0)));
            rows.push(f.rows.len());
            f.at_most(0.0, terms);
            priced.push((d, self.shared.price[h]));
        }
        for (row, mut terms) in self.shared.quotas.iter().zip(quota_terms) {
            let penalty = goal.penalty(row.most, PENALTY * self.shared.cost_of_unit(row));
            terms.extend(penalty.map(|penalty| (add_shortage(&mut f, penalty), -1.0)));
            rows.push(f.rows.len());
            f.at_most(row.most, terms);
        }
        if let Some(budget) = self.shared.budget {
            f.at_most(budget, priced);
        }
        Some(MasterProgramme { formulation: f, priced_rows: rows })
    }
}

/// Adds a column for the violation of a limit, with the cost of a unit.
fn add_shortage(f: &mut Formulation, penalty: f64) -> ColumnId {
    let shortage = f.continuous(0.0, f64::INFINITY);
    f.add_cost(shortage, penalty);
    shortage
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    fn column(goal: f64, devices: f64) -> Column {
        Column { groups: Vec::new(), goal, devices: vec![devices] }
    }

    fn no_quotas() -> SharedResources {
        SharedResources { most: vec![], cost: vec![], price: vec![], budget: None, split: vec![], quotas: vec![] }
    }

    fn limits() -> RunLimits {
        RunLimits::new(Arc::new(|| Duration::ZERO))
    }

    #[test]
    fn duals_are_the_value_of_one_more_device() {
        let shared =
            SharedResources { most: vec![5.0], cost: vec![0.0], price: vec![1.0], split: vec![false], ..no_quotas() };
        let mut master = Master::new(shared, 2);
        for p in 0..2 {
            for (goal, devices) in [(-1.0, 1.0), (-5.0, 3.0), (-6.0, 5.0)] {
                assert!(master.add(p, column(goal, devices)));
            }
            assert!(!master.add(p, column(-4.0, 3.0)), "a worse plan with as many devices");
        }
        // both take 2 devices of slope 2 beyond the first, one of them only half: 3 + 2 devices
        let duals = master.relax(MasterGoal::Cost, &limits()).expect("a relaxation");
        assert!((duals.value + 8.0).abs() < 1e-9 && (duals.lambda[0] - 2.0).abs() < 1e-9, "{}", duals.value);
        let ColumnCombination { chosen, value } = master.combine(0.0, &limits()).expect("a combination");
        assert!((value + 6.0).abs() < 1e-9, "3 + 1 devices: {chosen:?} {value}");
    }

    #[test]
    fn a_quota_has_a_price_for_its_pipelines_alone() {
        let row = QuotaRow { pipelines: vec![PipelineIndex(1)], weights: vec![2.0], most: 4.0 };
        let (cost, price) = (vec![0.0], vec![2.0]);
        let shared = SharedResources { most: vec![9.0], cost, price, split: vec![false], quotas: vec![row], ..no_quotas() };
        assert_eq!((shared.prices_for(0, &[1.0, 3.0]), shared.prices_for(1, &[1.0, 3.0])), (vec![1.0], vec![7.0]));
        assert_eq!(shared.prices_for(1, &[1.0]), [1.0], "before the first duals");
        let mut master = Master::new(shared, 2);
        for p in 0..2 {
            for (goal, devices) in [(-1.0, 1.0), (-5.0, 3.0), (-6.0, 5.0)] {
                assert!(master.add(p, column(goal, devices)));
            }
        }
        // pipeline 1 may have two devices of price 2, so it has one
        let ColumnCombination { value, .. } = master.combine(0.0, &limits()).expect("a combination");
        assert!((value + 7.0).abs() < 1e-9, "{value}");
        // relaxed it has half of one device and half of three, and a device more is worth 2
        let duals = master.relax(MasterGoal::Cost, &limits()).expect("a relaxation");
        assert!((duals.value + 9.0).abs() < 1e-9 && (duals.lambda[1] - 1.0).abs() < 1e-9, "{:?}", duals.lambda);
    }

    #[test]
    fn a_shortage_costs_its_penalty() {
        let relaxed = |most: f64, goal: MasterGoal| {
            let (cost, price) = (vec![1.5], vec![1.5]);
            let shared = SharedResources { most: vec![most], cost, price, split: vec![false], ..no_quotas() };
            let mut master = Master::new(shared, 2);
            for p in 0..2 {
                assert!(master.add(p, column(0.0, 4.0)) && master.add(p, column(2.0, 3.0)));
            }
            master.relax(goal, &limits()).map(|duals| (duals.value, duals.lambda[0]))
        };
        // 6 devices and switching costs of 4 are the least; with 5 one is missing
        assert!(relaxed(5.0, MasterGoal::Cost).is_none());
        let (value, lambda) = relaxed(5.0, MasterGoal::CostOrShortage).expect("a relaxation");
        let penalised = (1.0 + PENALTY) * 1.5;
        assert!((value - (5.0 * 1.5 + penalised + 4.0)).abs() < 1e-9 && (lambda - penalised).abs() < 1e-9, "{value}");
        // where the columns fit, nothing is short
        let both = [MasterGoal::Cost, MasterGoal::CostOrShortage].map(|goal| relaxed(7.5, goal).expect("a relaxation"));
        assert!((both[0].0 - both[1].0).abs() < 1e-9 && (both[0].1 - both[1].1).abs() < 1e-9, "{both:?}");
    }

    #[test]
    fn the_devices_part_of_the_lagrangian_is_a_fractional_knapsack() {
        let shared = SharedResources {
            most: vec![4.0, 10.0],
            cost: vec![0.0, 1.0],
            price: vec![2.0, 1.0],
            budget: Some(10.0),
            split: vec![false, false],
            ..no_quotas()
        };
        // gains 6 and 2: per price 3 and 2, so 4 of the first (8 of the budget) and 2 of the second
        assert!((shared.lagrangian_min(&[6.0, 3.0]) + 28.0).abs() < 1e-12);
        assert!(shared.lagrangian_min(&[0.0, 0.5]).abs() < 1e-12);
    }
}
