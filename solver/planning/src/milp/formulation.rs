//! A mixed-integer linear programme as data, with no word about who solves it.

/// Position of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Column(pub usize);

/// `lower <= sum of coefficient * column <= upper`.
#[derive(Clone, Debug)]
pub struct Row {
    /// May be minus infinity.
    pub lower: f64,
    /// May be infinity.
    pub upper: f64,
    /// Columns with their coefficients; a column may be listed once.
    pub terms: Vec<(Column, f64)>,
}

/// Columns, rows, and an objective to be minimised.
#[derive(Clone, Debug, Default)]
pub struct Formulation {
    /// `(lower, upper, integer)` of each column.
    pub columns: Vec<(f64, f64, bool)>,
    /// Cost of each column; the sum is minimised.
    pub costs: Vec<f64>,
    /// The rows.
    pub rows: Vec<Row>,
}

impl Formulation {
    /// A new continuous column.
    pub fn continuous(&mut self, lower: f64, upper: f64) -> Column {
        self.column(lower, upper, false)
    }

    /// A new integer column.
    pub fn integer(&mut self, lower: f64, upper: f64) -> Column {
        self.column(lower, upper, true)
    }

    fn column(&mut self, lower: f64, upper: f64, integer: bool) -> Column {
        debug_assert!(lower <= upper, "an empty range {lower}..{upper}");
        self.columns.push((lower, upper, integer));
        self.costs.push(0.0);
        Column(self.columns.len() - 1)
    }

    /// Adds `sum = value`.
    pub fn equal(&mut self, value: f64, terms: Vec<(Column, f64)>) {
        self.rows.push(Row { lower: value, upper: value, terms });
    }

    /// Adds `sum <= upper`.
    pub fn at_most(&mut self, upper: f64, terms: Vec<(Column, f64)>) {
        self.rows.push(Row { lower: f64::NEG_INFINITY, upper, terms });
    }

    /// Adds `sum >= lower`.
    pub fn at_least(&mut self, lower: f64, terms: Vec<(Column, f64)>) {
        self.rows.push(Row { lower, upper: f64::INFINITY, terms });
    }

    /// Adds to the cost of a column.
    pub fn add_cost(&mut self, column: Column, cost: f64) {
        self.costs[column.0] += cost;
    }
}

/// How a solve ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Proven within the gap.
    Optimal,
    /// Proven: no solution.
    Infeasible,
    /// Stopped by time or by its caller.
    Stopped,
    /// Anything else: never read as an answer.
    Failed,
}

/// What a solve found.
#[derive(Clone, Debug)]
pub struct Solved {
    /// How it ended.
    pub ending: Ending,
    /// The best values found, if any.
    pub values: Option<Vec<f64>>,
    /// Their cost.
    pub cost: f64,
    /// No solution costs less.
    pub bound: f64,
}
