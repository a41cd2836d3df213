//! The only file that names HiGHS: a mixed-integer program in, its status, values and bound out.

use crate::control::Control;
use highs::{HighsModelStatus, RowProblem, Sense};
use std::os::raw::{c_char, c_int, c_void};

/// A program to be minimised, column by column and row by row.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Cost, lower and upper bound, integrality of each column.
    pub columns: Vec<Column>,
    /// Lower bound, upper bound and entries of each row.
    pub rows: Vec<Row>,
}

/// One column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Coefficient in the objective.
    pub cost: f64,
    /// Smallest value.
    pub lower: f64,
    /// Largest value.
    pub upper: f64,
    /// Whether it must be whole.
    pub integer: bool,
}

/// One row: `lower <= sum of entries <= upper`.
#[derive(Clone, Debug)]
pub struct Row {
    /// Smallest activity.
    pub lower: f64,
    /// Largest activity.
    pub upper: f64,
    /// Column and coefficient.
    pub entries: Vec<(usize, f64)>,
}

impl Program {
    /// Adds a column, gives its number.
    pub fn column(&mut self, lower: f64, upper: f64, integer: bool) -> usize {
        self.columns.push(Column { cost: 0.0, lower, upper, integer });
        self.columns.len() - 1
    }

    /// Adds a row; an empty one is kept as it is, so that `0 = 1` stays infeasible.
    pub fn row(&mut self, lower: f64, upper: f64, entries: Vec<(usize, f64)>) {
        self.rows.push(Row { lower, upper, entries });
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Proven within the gap.
    Optimal,
    /// Proven that there is nothing.
    Infeasible,
    /// Stopped from outside, with the incumbent if there is one.
    Stopped,
    /// The solver failed.
    Failed,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Solved {
    /// How it ended.
    pub ending: Ending,
    /// A value for each column, if a feasible point was found.
    pub values: Option<Vec<f64>>,
    /// Objective at `values`.
    pub objective: f64,
    /// No feasible point has a lower objective.
    pub bound: f64,
}

/// Minimises. `relaxed` drops all integrality.
pub fn minimise(program: &Program, relaxed: bool, gap: f64, control: &Control) -> Solved {
    if let Some(trivial) = trivially_infeasible(program) {
        return trivial;
    }
    let mut problem = RowProblem::new();
    let columns: Vec<_> = program
        .columns
        .iter()
        .map(|c| problem.add_column_with_integrality(c.cost, c.lower..=c.upper, c.integer && !relaxed))
        .collect();
    for row in program.rows.iter().filter(|r| !r.entries.is_empty()) {
        problem.add_row(row.lower..=row.upper, row.entries.iter().map(|&(c, v)| (columns[c], v)));
    }
    let Ok(mut model) = problem.try_optimise(Sense::Minimise) else { return failed() };
    model.make_quiet();
    model.set_option("threads", 1);
    model.set_option("mip_rel_gap", gap);
    model.set_option("mip_abs_gap", 1e-9);
    if let Some(left) = control.left() {
        model.set_option("time_limit", left.as_secs_f64().max(1e-3));
    }
    // SAFETY: `control` outlives the run, and HiGHS calls back on this thread's run only, with its own valid pointers.
    #[allow(unsafe_code)]
    unsafe {
        let data = std::ptr::from_ref(control).cast_mut().cast::<c_void>();
        highs_sys::Highs_setCallback(model.as_mut_ptr(), Some(interrupt), data);
        highs_sys::Highs_startCallback(model.as_mut_ptr(), highs_sys::kHighsCallbackMipInterrupt);
    }
    let Ok(solved) = model.try_solve() else { return failed() };
    let is_mip = !relaxed && program.columns.iter().any(|c| c.integer);
    read(&solved, program, is_mip)
}

/// HiGHS asks between nodes whether to go on.
#[allow(unsafe_code)]
unsafe extern "C" fn interrupt(
    _kind: c_int,
    _message: *const c_char,
    _out: *const highs_sys::HighsCallbackDataOut,
    input: *mut highs_sys::HighsCallbackDataIn,
    data: *mut c_void,
) {
    // SAFETY: `data` is the `Control` given with the callback; `input` is HiGHS's own, or null for other kinds of callbacks.
    unsafe {
        let control = &*data.cast_const().cast::<Control>();
        if !input.is_null() && control.must_stop() {
            (*input).user_interrupt = 1;
        }
    }
}

fn read(solved: &highs::SolvedModel, program: &Program, is_mip: bool) -> Solved {
    let ending = match solved.status() {
        HighsModelStatus::Optimal | HighsModelStatus::ModelEmpty => Ending::Optimal,
        HighsModelStatus::Infeasible | HighsModelStatus::UnboundedOrInfeasible => Ending::Infeasible,
        HighsModelStatus::ReachedTimeLimit | HighsModelStatus::ReachedInterrupt => Ending::Stopped,
        _ => Ending::Failed,
    };
    let has_values = solved.primal_solution_status() == highs::HighsSolutionStatus::Feasible || ending == Ending::Optimal;
    let values = has_values.then(|| solved.get_solution().columns().to_vec());
    let objective = values.as_ref().map_or(f64::INFINITY, |v| v.iter().zip(&program.columns).map(|(x, c)| x * c.cost).sum());
    let bound = match (ending, is_mip) {
        (Ending::Optimal, false) => objective,
        (_, true) => solved.double_info_value(c"mip_dual_bound").unwrap_or(f64::NEG_INFINITY),
        (_, false) => f64::NEG_INFINITY,
    };
    Solved { ending, values, objective, bound: bound.min(objective) }
}

fn failed() -> Solved {
    Solved { ending: Ending::Failed, values: None, objective: f64::INFINITY, bound: f64::NEG_INFINITY }
}

/// HiGHS answers an empty row that cannot hold with different statuses; it never sees one.
fn trivially_infeasible(program: &Program) -> Option<Solved> {
    let cannot = |r: &Row| r.entries.is_empty() && (r.lower > 0.0 || r.upper < 0.0);
    let crossed = |c: &Column| c.lower > c.upper;
    let none = program.rows.iter().any(cannot) || program.columns.iter().any(crossed);
    let infeasible = Solved { ending: Ending::Infeasible, values: None, objective: f64::INFINITY, bound: f64::INFINITY };
    none.then_some(infeasible)
}
