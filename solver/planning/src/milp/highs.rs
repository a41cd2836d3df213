//! The one file that names HiGHS.
//!
//! Its time limit has been seen ignored in root processing, so a callback asks the caller's clock and cancel flag and
//! interrupts simplex, interior point and branch and bound alike. Every status that is neither a proof nor a stop is
//! [`Ending::Failed`], never an answer.

#![expect(unsafe_code, reason = "the interrupt callback exists only in the C interface")]

use super::formulation::{Ending, Formulation, Solved};
use crate::limits::Limits;
use highs::{Col, HighsModelStatus, HighsSolutionStatus, Model, RowProblem, Sense};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

/// Settings of one solve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Relative gap of a MIP.
    pub gap: f64,
    /// Absolute gap of a MIP.
    pub gap_absolute: f64,
    /// Feasibility tolerance of rows and columns.
    pub tolerance: f64,
    /// Most nodes of a MIP, for searches that must end without a clock and the same way each time.
    pub nodes_max: Option<i32>,
    /// What the listener is told that is searched for, and the factor that makes a cost its value.
    pub told: Option<(&'static str, f64)>,
}

impl Settings {
    /// For a MIP.
    pub fn mip(gap: f64) -> Self {
        Self { gap, gap_absolute: 1e-9, tolerance: 1e-8, nodes_max: None, told: None }
    }

    /// For the linear programme of flows, whose values are published: as exact as HiGHS can be.
    pub fn flows() -> Self {
        Self { gap: 0.0, gap_absolute: 0.0, tolerance: 1e-10, nodes_max: None, told: None }
    }
}

/// Solves by HiGHS on one thread. `start` is a full assignment of the columns to begin with.
pub(crate) fn solve(formulation: &Formulation, settings: Settings, limits: &Limits, start: Option<&[f64]>) -> Solved {
    let failed = Solved { ending: Ending::Failed, values: None, cost: f64::INFINITY, bound: f64::NEG_INFINITY };
    if limits.stopped() {
        return Solved { ending: Ending::Stopped, ..failed };
    }
    if let Some(ending) = without_columns(formulation) {
        return ending;
    }
    let Ok(mut solver) = load(formulation).try_optimise(Sense::Minimise) else { return failed };
    let is_mip = formulation.columns.iter().any(|c| c.2);
    let options_set = configure(&mut solver, settings, limits);
    let watcher = Watcher::new(limits, settings.told);
    if !options_set || !watch(&mut solver, &watcher) {
        return failed;
    }
    if let Some(values) = start
        && solver.try_set_solution(Some(values), None, None, None).is_err()
    {
        tracing::debug!("the start was refused");
    }
    let Ok(solved) = solver.try_solve() else { return failed };
    let ending = match solved.status() {
        HighsModelStatus::Optimal => Ending::Optimal,
        HighsModelStatus::Infeasible => Ending::Infeasible,
        HighsModelStatus::ReachedTimeLimit
        | HighsModelStatus::ReachedInterrupt
        | HighsModelStatus::ReachedSolutionLimit => Ending::Stopped,
        _ => Ending::Failed,
    };
    let feasible = solved.primal_solution_status() == HighsSolutionStatus::Feasible;
    let has_values = feasible && ending != Ending::Infeasible && (is_mip || ending == Ending::Optimal);
    let values = has_values.then(|| solved.get_solution().columns().to_vec());
    let cost = if has_values { solved.objective_value() } else { f64::INFINITY };
    let bound = match ending {
        Ending::Infeasible => f64::INFINITY,
        _ if is_mip => solved.double_info_value(c"mip_dual_bound").unwrap_or(f64::NEG_INFINITY),
        Ending::Optimal => cost,
        _ => f64::NEG_INFINITY,
    };
    Solved { ending, values, cost, bound }
}

/// A linear programme's optimum with the prices of its rows.
#[derive(Clone, Debug)]
pub(crate) struct Relaxed {
    pub cost: f64,
    /// By row: how the cost changes with the row's bound.
    pub duals: Vec<f64>,
}

/// Solves a formulation without integers to its optimum; `None` if there is none, or if it was stopped.
pub(crate) fn relaxed(formulation: &Formulation, limits: &Limits) -> Option<Relaxed> {
    debug_assert!(formulation.columns.iter().all(|c| !c.2), "a linear programme");
    if limits.stopped() {
        return None;
    }
    let mut solver = load(formulation).try_optimise(Sense::Minimise).ok()?;
    let tight = Settings { tolerance: 1e-9, ..Settings::mip(0.0) };
    if !configure(&mut solver, tight, limits) || !watch(&mut solver, &Watcher::new(limits, None)) {
        return None;
    }
    let solved = solver.try_solve().ok()?;
    let optimal = solved.status() == HighsModelStatus::Optimal;
    optimal.then(|| {
        let duals = solved.get_solution().dual_rows().to_vec();
        Relaxed { cost: solved.objective_value(), duals }
    })
}

/// HiGHS calls a formulation without columns "empty", whatever its rows ask for.
fn without_columns(formulation: &Formulation) -> Option<Solved> {
    if !formulation.columns.is_empty() {
        return None;
    }
    let holds = formulation.rows.iter().all(|r| r.lower <= 0.0 && r.upper >= 0.0);
    Some(if holds {
        Solved { ending: Ending::Optimal, values: Some(Vec::new()), cost: 0.0, bound: 0.0 }
    } else {
        Solved { ending: Ending::Infeasible, values: None, cost: f64::INFINITY, bound: f64::INFINITY }
    })
}

fn load(formulation: &Formulation) -> RowProblem {
    let mut problem = RowProblem::default();
    let columns: Vec<Col> = formulation
        .columns
        .iter()
        .zip(&formulation.costs)
        .map(|(&(lower, upper, integer), &cost)| problem.add_column_with_integrality(cost, lower..=upper, integer))
        .collect();
    for row in &formulation.rows {
        problem.add_row(row.lower..=row.upper, row.terms.iter().map(|&(c, factor)| (columns[c.0], factor)));
    }
    problem
}

fn configure(solver: &mut Model, settings: Settings, limits: &Limits) -> bool {
    let mut ok = solver.try_set_option("output_flag", false).is_ok();
    ok &= solver.try_set_option("threads", 1).is_ok();
    ok &= solver.try_set_option("parallel", "off").is_ok();
    ok &= solver.try_set_option("mip_rel_gap", settings.gap).is_ok();
    ok &= solver.try_set_option("mip_abs_gap", settings.gap_absolute).is_ok();
    ok &= solver.try_set_option("mip_feasibility_tolerance", settings.tolerance.max(1e-10)).is_ok();
    ok &= solver.try_set_option("primal_feasibility_tolerance", settings.tolerance.max(1e-10)).is_ok();
    if let Some(nodes) = settings.nodes_max {
        ok &= solver.try_set_option("mip_max_nodes", nodes).is_ok();
    }
    if let Some(left) = limits.left() {
        ok &= solver.try_set_option("time_limit", left.as_secs_f64().max(1e-3)).is_ok();
    }
    ok
}

/// What the callback looks at.
struct Watcher<'a> {
    limits: &'a Limits,
    told: Option<(&'static str, f64)>,
    /// Cost and bound that the listener has heard of.
    last: Cell<(f64, f64)>,
}

impl<'a> Watcher<'a> {
    fn new(limits: &'a Limits, told: Option<(&'static str, f64)>) -> Self {
        Self { limits, told, last: Cell::new((f64::NAN, f64::NAN)) }
    }

    fn tell(&self, cost: f64, bound: f64) {
        let Some((goal, factor)) = self.told else { return };
        let (known, now) = (self.last.get(), (cost, bound));
        if known.0.to_bits() != now.0.to_bits() || known.1.to_bits() != now.1.to_bits() {
            self.last.set(now);
            self.limits.tell(goal, factor * cost, factor * bound);
        }
    }
}

/// Asks HiGHS to call back, so that it stops when the limits say so and the listener hears how far it is.
fn watch(solver: &mut Model, watcher: &Watcher<'_>) -> bool {
    let data = std::ptr::from_ref(watcher).cast_mut().cast::<c_void>();
    // SAFETY: `solver` owns a live HiGHS object and is solved and dropped before `watcher`, which its caller owns.
    unsafe {
        let highs = solver.as_mut_ptr();
        let mut status = highs_sys::Highs_setCallback(highs, Some(interrupt), data);
        for kind in [
            highs_sys::kHighsCallbackSimplexInterrupt,
            highs_sys::kHighsCallbackIpmInterrupt,
            highs_sys::kHighsCallbackMipInterrupt,
        ] {
            status |= highs_sys::Highs_startCallback(highs, kind as c_int);
        }
        status == 0
    }
}

/// The callback: `data` is the [`Watcher`] of the solve.
unsafe extern "C" fn interrupt(
    kind: c_int,
    _message: *const c_char,
    out: *const highs_sys::HighsCallbackDataOut,
    input: *mut highs_sys::HighsCallbackDataIn,
    data: *mut c_void,
) {
    if input.is_null() || data.is_null() {
        return;
    }
    // SAFETY: HiGHS hands back the pointer that `watch` gave it, and its own live blocks.
    unsafe {
        let watcher = &*data.cast::<Watcher<'_>>();
        if kind == highs_sys::kHighsCallbackMipInterrupt as c_int && !out.is_null() {
            watcher.tell((*out).mip_primal_bound, (*out).mip_dual_bound);
        }
        if watcher.limits.stopped() {
            (*input).user_interrupt = 1;
        }
    }
}
