//! How is a small linear programme solved again after one bound has changed? By a dense dual simplex.
//!
//! All columns must have finite bounds. Then any basis is dual feasible if each non-basic column stands at the bound that
//! its reduced cost favours. So the slack basis is a start, and no first phase is needed. After a bound changes, the old
//! basis is still dual feasible, and a few pivots repair it. This makes branching cheap. A tableau of 50 by 80 entries is
//! copied in a microsecond.

use crate::Formulation;

/// Largest violation of a row that counts as feasible.
const FEASIBLE: f64 = 1e-9;
/// Smallest pivot: smaller ones would amplify rounding errors.
const PIVOT_MIN: f64 = 1e-7;

/// How a re-optimisation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PivotEnd {
    /// The basis is optimal.
    Optimal,
    /// There is no solution.
    Infeasible,
    /// The cost reached the cutoff: the optimum is not below it.
    Cutoff,
    /// The pivots are used up. The cost is still a valid bound.
    PivotLimit,
}

/// A row whose basic variable leaves the basis.
struct LeavingRow {
    row: usize,
    /// The violated bound: the variable's value after the pivot.
    target: f64,
}

/// A column that may enter the basis.
struct EnteringColumn {
    column: usize,
    /// Its reduced cost over its pivot.
    ratio: f64,
    /// Absolute value of its pivot.
    size: f64,
}

/// The tableau `x_basic = value - T x_nonbasic` of a formulation, minimising.
#[derive(Clone)]
pub struct Tableau {
    rows: usize,
    columns: usize,
    /// Row by row.
    entries: Vec<f64>,
    /// Reduced costs of the non-basic columns.
    reduced: Vec<f64>,
    /// Bounds of all variables: the formulation's columns, then one slack for each row.
    lower: Vec<f64>,
    upper: Vec<f64>,
    /// Values of the basic variables by row.
    values: Vec<f64>,
    basis: Vec<usize>,
    nonbasic: Vec<usize>,
    at_upper: Vec<bool>,
    /// Place of each variable: its non-basic column, or the number of columns plus its row.
    place: Vec<usize>,
    /// Cost of the present basis. It is a lower bound at any time.
    pub cost: f64,
    /// Pivots since it was made. A copy has those of its origin.
    pivots: u64,
}

impl Tableau {
    /// The slack basis; `None` if a column has no finite bounds.
    pub fn new(formulation: &Formulation) -> Option<Self> {
        let columns = formulation.columns.len();
        let rows = formulation.rows.len();
        if formulation.columns.iter().any(|c| !c.lower.is_finite() || !c.upper.is_finite()) {
            return None;
        }
        let mut lower: Vec<f64> = formulation.columns.iter().map(|c| c.lower).collect();
        let mut upper: Vec<f64> = formulation.columns.iter().map(|c| c.upper).collect();
        let mut entries = vec![0.0; rows * columns];
        let mut values = Vec::with_capacity(rows);
        for (r, row) in formulation.rows.iter().enumerate() {
            // a x + slack = right, with 0 <= slack <= right - left
            let (sign, right, left) =
                if row.upper.is_finite() { (1.0, row.upper, row.lower) } else { (-1.0, -row.lower, f64::NEG_INFINITY) };
            for &(c, factor) in &row.terms {
                entries[r * columns + c.0] += sign * factor;
            }
            lower.push(0.0);
            upper.push(right - left);
            values.push(right);
        }
        let mut tableau = Self {
            rows,
            columns,
            entries,
            reduced: formulation.costs.clone(),
            lower,
            upper,
            values,
            basis: (columns..columns + rows).collect(),
            nonbasic: (0..columns).collect(),
            at_upper: formulation.costs.iter().map(|&c| c < 0.0).collect(),
            place: (0..columns + rows).collect(),
            cost: 0.0,
            pivots: 0,
        };
        for c in 0..columns {
            let at = tableau.nonbasic_value(c);
            tableau.move_column(c, at);
        }
        Some(tableau)
    }

    /// Lower and upper bound of a variable.
    pub fn bounds_of(&self, variable: usize) -> (f64, f64) {
        (self.lower[variable], self.upper[variable])
    }

    /// Value of a variable in the present basis.
    pub fn value_of(&self, variable: usize) -> f64 {
        let place = self.place[variable];
        if place < self.columns { self.nonbasic_value(place) } else { self.values[place - self.columns] }
    }

    /// Reduced cost of a variable; 0 if it is basic.
    pub fn reduced_cost(&self, variable: usize) -> f64 {
        let place = self.place[variable];
        if place < self.columns { self.reduced[place] } else { 0.0 }
    }

    /// Pivots since it was made. A copy has those of its origin.
    pub fn pivots(&self) -> u64 {
        self.pivots
    }

    /// Entries, which is the work of a copy. A pivot is as much work.
    pub fn size(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Narrows the bounds of a variable. Call [`Self::reoptimise`] afterwards.
    pub fn narrow_bounds(&mut self, variable: usize, lower: f64, upper: f64) {
        let place = self.place[variable];
        let before = self.value_of(variable);
        self.lower[variable] = lower;
        self.upper[variable] = upper;
        if place < self.columns {
            let by = self.nonbasic_value(place) - before;
            self.move_column(place, by);
        }
    }

    /// The value of a non-basic column: one of its bounds.
    fn nonbasic_value(&self, column: usize) -> f64 {
        let variable = self.nonbasic[column];
        if self.at_upper[column] { self.upper[variable] } else { self.lower[variable] }
    }

    /// Moves a non-basic column by an amount.
    fn move_column(&mut self, column: usize, by: f64) {
        if by != 0.0 {
            for r in 0..self.rows {
                self.values[r] -= self.entries[r * self.columns + column] * by;
            }
            self.cost += self.reduced[column] * by;
        }
    }

    /// Pivots until the basis is also primal feasible, the cost reaches `cutoff`, or `pivots_max` pivots are done.
    pub fn reoptimise(&mut self, cutoff: f64, pivots_max: usize) -> PivotEnd {
        for _ in 0..pivots_max {
            if self.cost >= cutoff {
                return PivotEnd::Cutoff;
            }
            let Some(LeavingRow { row, target }) = self.leaving_row() else { return PivotEnd::Optimal };
            let Some(column) = self.entering_column(row, target) else { return PivotEnd::Infeasible };
            self.pivot(row, column, target);
            self.pivots += 1;
        }
        PivotEnd::PivotLimit
    }

    /// The row that violates its bounds most; `None` if no row does.
    fn leaving_row(&self) -> Option<LeavingRow> {
        let mut worst = FEASIBLE;
        let mut found = None;
        for (r, (&value, &variable)) in self.values.iter().zip(&self.basis).enumerate() {
            let (lower, upper) = (self.lower[variable], self.upper[variable]);
            if lower - value > worst {
                worst = lower - value;
                found = Some(LeavingRow { row: r, target: lower });
            }
            if value - upper > worst {
                worst = value - upper;
                found = Some(LeavingRow { row: r, target: upper });
            }
        }
        found
    }

    /// The column whose reduced cost reaches 0 first; among ties, the one with the largest pivot.
    fn entering_column(&self, row: usize, target: f64) -> Option<usize> {
        let rises = self.values[row] < target;
        let entries = &self.entries[row * self.columns..(row + 1) * self.columns];
        let mut best: Option<EnteringColumn> = None;
        for (c, &entry) in entries.iter().enumerate() {
            let size = entry.abs();
            let variable = self.nonbasic[c];
            if size < PIVOT_MIN || self.lower[variable] == self.upper[variable] {
                continue;
            }
            // the basic value moves against entry * change; a column moves away from the bound at which it stands
            let helps = (entry < 0.0) == (rises != self.at_upper[c]);
            if !helps {
                continue;
            }
            let ratio = self.reduced[c].abs() / size;
            let is_better =
                best.as_ref().is_none_or(|b| ratio < b.ratio - 1e-12 || (ratio < b.ratio + 1e-12 && size > b.size));
            if is_better {
                best = Some(EnteringColumn { column: c, ratio, size });
            }
        }
        best.map(|b| b.column)
    }

    /// Exchanges the basic variable of a row and the non-basic variable of a column.
    fn pivot(&mut self, row: usize, column: usize, target: f64) {
        let n = self.columns;
        let pivot = self.entries[row * n + column];
        let change = (self.values[row] - target) / pivot;
        let entered = self.nonbasic_value(column) + change;
        self.move_column(column, change);
        self.values[row] = entered;
        let (leaving, entering) = (self.basis[row], self.nonbasic[column]);
        let mut pivot_row: Vec<f64> = self.entries[row * n..(row + 1) * n].iter().map(|e| e / pivot).collect();
        pivot_row[column] = 1.0 / pivot;
        for r in (0..self.rows).filter(|&r| r != row) {
            let own = &mut self.entries[r * n..(r + 1) * n];
            let factor = own[column];
            if factor != 0.0 {
                own[column] = 0.0;
                own.iter_mut().zip(&pivot_row).for_each(|(e, p)| *e -= factor * p);
            }
        }
        let factor = self.reduced[column];
        self.reduced[column] = 0.0;
        self.reduced.iter_mut().zip(&pivot_row).for_each(|(e, p)| *e -= factor * p);
        self.entries[row * n..(row + 1) * n].copy_from_slice(&pivot_row);
        self.basis[row] = entering;
        self.nonbasic[column] = leaving;
        self.place[entering] = n + row;
        self.place[leaving] = column;
        self.at_upper[column] = target == self.upper[leaving] && target != self.lower[leaving];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ColumnId;

    /// Minimise -3x - 2y with x + y <= 4, x + 3y <= 6, x <= 3: x = 3, y = 1.
    fn small() -> (Formulation, ColumnId) {
        let mut f = Formulation::default();
        let x = f.continuous(0.0, 3.0);
        let y = f.continuous(0.0, 10.0);
        f.add_cost(x, -3.0);
        f.add_cost(y, -2.0);
        f.at_most(4.0, vec![(x, 1.0), (y, 1.0)]);
        f.at_most(6.0, vec![(x, 1.0), (y, 3.0)]);
        (f, x)
    }

    #[test]
    fn reoptimise_finds_the_optimum_from_the_slack_basis() {
        let mut tableau = Tableau::new(&small().0).expect("boxed");
        assert_eq!(tableau.reoptimise(f64::INFINITY, 100), PivotEnd::Optimal);
        assert!((tableau.cost + 11.0).abs() < 1e-9);
        assert!((tableau.value_of(0) - 3.0).abs() < 1e-9 && (tableau.value_of(1) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn reoptimise_after_narrowed_bounds_repairs_or_proves_infeasible() {
        let (mut f, x) = small();
        f.at_least(5.0, vec![(x, 2.0), (ColumnId(1), 1.0)]);
        let mut tableau = Tableau::new(&f).expect("boxed");
        assert_eq!(tableau.reoptimise(f64::INFINITY, 100), PivotEnd::Optimal);
        tableau.narrow_bounds(0, 0.0, 2.0);
        assert_eq!(tableau.reoptimise(f64::INFINITY, 100), PivotEnd::Optimal);
        // x = 2, y = 4/3
        assert!((tableau.cost + 6.0 + 8.0 / 3.0).abs() < 1e-9);
        assert_eq!(tableau.clone().reoptimise(-9.0, 100), PivotEnd::Cutoff);
        tableau.narrow_bounds(0, 0.0, 1.0);
        assert_eq!(tableau.reoptimise(f64::INFINITY, 100), PivotEnd::Infeasible);
    }

    #[test]
    fn an_equation_holds_at_the_optimum() {
        let (mut f, x) = small();
        f.equal(1.0, vec![(x, 1.0), (ColumnId(1), -1.0)]);
        let mut tableau = Tableau::new(&f).expect("boxed");
        assert_eq!(tableau.reoptimise(f64::INFINITY, 100), PivotEnd::Optimal);
        // x - y = 1, x + 3y = 6: x = 2.25, y = 1.25
        assert!((tableau.value_of(0) - 2.25).abs() < 1e-9 && (tableau.cost + 9.25).abs() < 1e-9);
    }
}
