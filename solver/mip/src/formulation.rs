//! How is a mixed-integer linear programme stated? As data that names no solver.

/// Position of a column in its [`Formulation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ColumnId(pub usize);

/// The values that a column may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnRange {
    /// May be minus infinity.
    pub lower: f64,
    /// May be infinity.
    pub upper: f64,
    /// Whether only whole numbers are allowed.
    pub is_integer: bool,
}

/// `lower <= sum of coefficient * column <= upper`.
#[derive(Clone, Debug)]
pub struct ConstraintRow {
    /// May be minus infinity.
    pub lower: f64,
    /// May be infinity.
    pub upper: f64,
    /// Columns with their coefficients; a column may be listed once.
    pub terms: Vec<(ColumnId, f64)>,
}

/// Columns, rows, and an objective to be minimised.
#[derive(Clone, Debug, Default)]
pub struct Formulation {
    /// The range of each column.
    pub columns: Vec<ColumnRange>,
    /// Cost of each column; the sum is minimised.
    pub costs: Vec<f64>,
    /// The rows.
    pub rows: Vec<ConstraintRow>,
}

impl Formulation {
    /// Adds a continuous column.
    pub fn continuous(&mut self, lower: f64, upper: f64) -> ColumnId {
        self.add_column(ColumnRange { lower, upper, is_integer: false })
    }

    /// Adds an integer column.
    pub fn integer(&mut self, lower: f64, upper: f64) -> ColumnId {
        self.add_column(ColumnRange { lower, upper, is_integer: true })
    }

    fn add_column(&mut self, range: ColumnRange) -> ColumnId {
        debug_assert!(range.lower <= range.upper, "an empty range {}..{}", range.lower, range.upper);
        self.columns.push(range);
        self.costs.push(0.0);
        ColumnId(self.columns.len() - 1)
    }

    /// Adds `sum = value`.
    pub fn equal(&mut self, value: f64, terms: Vec<(ColumnId, f64)>) {
        self.rows.push(ConstraintRow { lower: value, upper: value, terms });
    }

    /// Adds `sum <= upper`.
    pub fn at_most(&mut self, upper: f64, terms: Vec<(ColumnId, f64)>) {
        self.rows.push(ConstraintRow { lower: f64::NEG_INFINITY, upper, terms });
    }

    /// Adds `sum >= lower`.
    pub fn at_least(&mut self, lower: f64, terms: Vec<(ColumnId, f64)>) {
        self.rows.push(ConstraintRow { lower, upper: f64::INFINITY, terms });
    }

    /// Adds to the cost of a column.
    pub fn add_cost(&mut self, column: ColumnId, cost: f64) {
        self.costs[column.0] += cost;
    }

    /// The objective as terms of a row: every column that has a cost.
    pub fn cost_terms(&self) -> Vec<(ColumnId, f64)> {
        let costs = self.costs.iter().enumerate().filter(|(_, cost)| **cost != 0.0);
        costs.map(|(i, &cost)| (ColumnId(i), cost)).collect()
    }
}

/// How a solve ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The solution is proven optimal within the gap.
    Optimal,
    /// It is proven that there is no solution.
    Infeasible,
    /// The limits or the caller ended the solve.
    Stopped,
    /// Any other ending. It proves nothing.
    Failed,
}

/// Result of a solve.
#[derive(Clone, Debug)]
pub struct SolveResult {
    /// How the solve ended.
    pub ending: Ending,
    /// The best solution found: one value for each column.
    pub values: Option<Vec<f64>>,
    /// Cost of that solution; infinite without one.
    pub cost: f64,
    /// No solution costs less.
    pub bound: f64,
}
