//! How does HiGHS solve a formulation? This is the only file that names HiGHS.
//!
//! HiGHS sometimes ignores its own time limit while it processes the root node. So a callback reads the caller's clock
//! and flags. It interrupts simplex, interior point and branch and bound. A status that is neither a proof nor a
//! stop becomes [`Ending::Failed`].
//!
//! Every solve goes through `InterruptibleSolver`. It owns the solver and the state that the callback reads, so
//! neither outlives the other.

#![expect(unsafe_code, reason = "the interrupt callback exists only in the C interface")]

use crate::{ColumnRange, Ending, Formulation, RunLimits, SolveResult};
use highs::{Col, HighsModelStatus, HighsSolutionStatus, Model, RowProblem, Sense, SolvedModel};
use std::any::Any;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;

/// Largest bound of an integer column. HiGHS counts steps between the bounds of integers in 32 bits
/// (`HighsRedcostFixing::addRootRedcost`). Beyond 32 bits a loop of its root node never ends and never calls the callback.
/// Presolve multiplies bounds, so this limit stays far below: a run with bounds of 1e9 did not end.
const INTEGER_MAX: f64 = 1e6;

/// Units of counted work of one iteration of a linear programme, for each non-zero entry, row and column. An iteration
/// solves with the basis several times, and cuts, presolve and branching come with it.
const UNITS_OF_ITERATION: u64 = 60;

/// Units of counted work of a solve before its first iteration: presolve and heuristics without a linear programme.
const UNITS_OF_SOLVE: u64 = 1_000_000;

/// Settings of one solve.
#[derive(Clone, Copy, Debug)]
pub struct SolveSettings {
    /// Relative gap of a MIP.
    pub gap: f64,
    /// Absolute gap of a MIP.
    pub gap_absolute: f64,
    /// Feasibility tolerance of rows and columns.
    pub tolerance: f64,
    /// Most nodes of a MIP. A search with this limit ends without a clock, and in the same way each time.
    pub nodes_max: Option<i32>,
    /// The goal that is reported to the listener; `None` reports nothing.
    pub reported_goal: Option<ReportedGoal>,
}

/// A goal as the listener sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReportedGoal {
    /// `replicas`, `accuracy` or `cost`.
    pub name: &'static str,
    /// A cost of the formulation times this factor is the goal's value.
    pub factor: f64,
}

impl SolveSettings {
    /// Settings for a MIP.
    pub fn mip(gap: f64) -> Self {
        Self { gap, gap_absolute: 1e-9, tolerance: 1e-8, nodes_max: None, reported_goal: None }
    }

    /// Settings for the linear programme of flows. Plans publish its values, so it is solved as exactly as HiGHS can.
    pub fn flows() -> Self {
        Self { gap: 0.0, gap_absolute: 0.0, tolerance: 1e-10, nodes_max: None, reported_goal: None }
    }
}

/// Solves a formulation with HiGHS on one thread. `start` is a complete solution to begin with.
pub fn solve(formulation: &Formulation, settings: SolveSettings, limits: &RunLimits, start: Option<&[f64]>) -> SolveResult {
    let failed = SolveResult { ending: Ending::Failed, values: None, cost: f64::INFINITY, bound: f64::NEG_INFINITY };
    if limits.exceeded() {
        return SolveResult { ending: Ending::Stopped, ..failed };
    }
    if let Some(solved) = solve_without_columns(formulation) {
        return solved;
    }
    if formulation.columns.iter().any(is_too_large) {
        tracing::warn!("HiGHS cannot count an integer column with a bound above {INTEGER_MAX}");
        return failed;
    }
    let is_mip = formulation.columns.iter().any(|c| c.is_integer);
    let Some(mut solver) = InterruptibleSolver::new(formulation, settings, limits) else { return failed };
    if let Some(values) = start
        && solver.model.try_set_solution(Some(values), None, None, None).is_err()
    {
        tracing::debug!("HiGHS refused the start solution");
    }
    limits.count_work(UNITS_OF_SOLVE);
    let Some(solved) = solver.solve() else { return failed };
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
    SolveResult { ending, values, cost, bound }
}

/// Whether a column is an integer with a bound beyond [`INTEGER_MAX`].
fn is_too_large(column: &ColumnRange) -> bool {
    let countable = -INTEGER_MAX..=INTEGER_MAX;
    column.is_integer && !(countable.contains(&column.lower) && countable.contains(&column.upper))
}

/// Optimum of a linear programme, with the duals of its rows.
#[derive(Clone, Debug)]
pub struct LinearOptimum {
    /// The least cost.
    pub cost: f64,
    /// By row: how the cost changes with the row's bound.
    pub duals: Vec<f64>,
}

/// Solves a formulation without integers; `None` if it has no optimum, or if the limits ended the solve.
pub fn solve_linear(formulation: &Formulation, limits: &RunLimits) -> Option<LinearOptimum> {
    debug_assert!(formulation.columns.iter().all(|c| !c.is_integer), "a linear programme has no integers");
    if limits.exceeded() {
        return None;
    }
    let tight = SolveSettings { tolerance: 1e-9, ..SolveSettings::mip(0.0) };
    let solved = InterruptibleSolver::new(formulation, tight, limits)?.solve()?;
    let optimal = solved.status() == HighsModelStatus::Optimal;
    optimal.then(|| {
        let duals = solved.get_solution().dual_rows().to_vec();
        LinearOptimum { cost: solved.objective_value(), duals }
    })
}

/// Solves a formulation without columns; `None` if there are columns. HiGHS reports "empty" for it without a look at its
/// rows.
fn solve_without_columns(formulation: &Formulation) -> Option<SolveResult> {
    if !formulation.columns.is_empty() {
        return None;
    }
    let holds = formulation.rows.iter().all(|r| r.lower <= 0.0 && r.upper >= 0.0);
    Some(if holds {
        SolveResult { ending: Ending::Optimal, values: Some(Vec::new()), cost: 0.0, bound: 0.0 }
    } else {
        SolveResult { ending: Ending::Infeasible, values: None, cost: f64::INFINITY, bound: f64::INFINITY }
    })
}

/// The formulation in the form that HiGHS reads.
fn to_row_problem(formulation: &Formulation) -> RowProblem {
    let mut problem = RowProblem::default();
    let columns: Vec<Col> = formulation
        .columns
        .iter()
        .zip(&formulation.costs)
        .map(|(c, &cost)| problem.add_column_with_integrality(cost, c.lower..=c.upper, c.is_integer))
        .collect();
    for row in &formulation.rows {
        problem.add_row(row.lower..=row.upper, row.terms.iter().map(|&(c, factor)| (columns[c.0], factor)));
    }
    problem
}

/// Sets the options of HiGHS. Whether HiGHS accepts them all.
fn configure(solver: &mut Model, settings: SolveSettings, limits: &RunLimits) -> bool {
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
    if let Some(left) = limits.time_left() {
        ok &= solver.try_set_option("time_limit", left.as_secs_f64().max(1e-3)).is_ok();
    }
    ok
}

/// State that the callback reads and writes.
struct CallbackState<'a> {
    limits: &'a RunLimits,
    reported_goal: Option<ReportedGoal>,
    last_reported: Cell<Progress>,
    /// Units of counted work of one iteration.
    units_of_iteration: u64,
    /// Iterations that are counted.
    counted: Cell<u64>,
    /// Payload of a panic of the clock or the listener.
    panic_payload: Cell<Option<Box<dyn Any + Send>>>,
}

/// How far a search is, as HiGHS says it.
#[derive(Clone, Copy)]
struct Progress {
    /// Cost of the best solution.
    cost: f64,
    /// No solution costs less.
    bound: f64,
}

impl Progress {
    /// Before the first report. It differs from every report of HiGHS.
    const NONE: Self = Self { cost: f64::NAN, bound: f64::NAN };

    /// Whether two reports have the same bits.
    fn is_same(self, other: Self) -> bool {
        self.cost.to_bits() == other.cost.to_bits() && self.bound.to_bits() == other.bound.to_bits()
    }
}

impl<'a> CallbackState<'a> {
    fn new(limits: &'a RunLimits, reported_goal: Option<ReportedGoal>, formulation: &Formulation) -> Self {
        let terms: usize = formulation.rows.iter().map(|row| 1 + row.terms.len()).sum();
        Self {
            limits,
            reported_goal,
            last_reported: Cell::new(Progress::NONE),
            units_of_iteration: UNITS_OF_ITERATION * (terms + formulation.columns.len()) as u64,
            counted: Cell::new(0),
            panic_payload: Cell::new(None),
        }
    }

    /// Counts the work of all iterations so far.
    fn count(&self, iterations: u64) {
        let new = iterations.saturating_sub(self.counted.replace(iterations));
        self.limits.count_work(new * self.units_of_iteration);
    }

    /// Reports progress to the listener, if it differs from the last report.
    fn report(&self, now: Progress) {
        let Some(ReportedGoal { name, factor }) = self.reported_goal else { return };
        if !self.last_reported.get().is_same(now) {
            self.last_reported.set(now);
            self.limits.report_progress(name, factor * now.cost, factor * now.bound);
        }
    }

    /// Whether HiGHS must stop. `progress` is that of a branch and bound.
    ///
    /// A panic of the caller's clock or listener must not unwind into C++. So it stops the solve, and continues after it.
    fn must_stop(&self, progress: Option<Progress>) -> bool {
        let report_and_check = || {
            if let Some(progress) = progress {
                self.report(progress);
            }
            self.limits.exceeded()
        };
        catch_unwind(AssertUnwindSafe(report_and_check)).unwrap_or_else(|payload| {
            self.panic_payload.set(Some(payload));
            true
        })
    }
}

/// A solver with the state of its callback.
///
/// HiGHS keeps a raw pointer to the state. The state is pinned on the heap, so it stays in place when the solver moves.
/// Fields are dropped in their order, also after a panic: the model before the state.
struct InterruptibleSolver<'a> {
    model: Model,
    state: Pin<Box<CallbackState<'a>>>,
}

impl<'a> InterruptibleSolver<'a> {
    /// Loads a formulation, ready to be solved; `None` if HiGHS refuses it.
    fn new(formulation: &Formulation, settings: SolveSettings, limits: &'a RunLimits) -> Option<Self> {
        let model = to_row_problem(formulation).try_optimise(Sense::Minimise).ok()?;
        let state = Box::pin(CallbackState::new(limits, settings.reported_goal, formulation));
        let mut solver = Self { model, state };
        (configure(&mut solver.model, settings, limits) && solver.install_callback()).then_some(solver)
    }

    /// Installs the callback, which stops HiGHS at the limits and reports progress. Whether HiGHS accepts it.
    fn install_callback(&mut self) -> bool {
        let data = std::ptr::from_ref(&*self.state).cast_mut().cast::<c_void>();
        // SAFETY: the model is a live HiGHS object. `self` owns it and the state, and drops the state after it.
        unsafe {
            let highs = self.model.as_mut_ptr();
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

    /// Solves; `None` if HiGHS fails. The callback is removed, so the solved model may outlive the state.
    fn solve(self) -> Option<SolvedModel> {
        let Self { model, state } = self;
        let solved = model.try_solve();
        if let Some(payload) = state.panic_payload.take() {
            drop(solved);
            resume_unwind(payload);
        }
        let mut solved = solved.ok()?;
        // SAFETY: the solved model is a live HiGHS object. Without a callback it never reads the state again.
        let status = unsafe { highs_sys::Highs_setCallback(solved.as_mut_ptr(), None, std::ptr::null_mut()) };
        (status == 0).then_some(solved)
    }
}

/// The callback: `data` is the [`CallbackState`] of the solve.
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
    // SAFETY: HiGHS hands back the pointer that `install_callback` gave it, and its own live blocks.
    unsafe {
        let state = &*data.cast::<CallbackState<'_>>();
        let is_mip = kind == highs_sys::kHighsCallbackMipInterrupt as c_int && !out.is_null();
        if !out.is_null() {
            let iterations = if is_mip { (*out).mip_total_lp_iterations } else { (*out).simplex_iteration_count.into() };
            state.count(iterations.max(0) as u64);
        }
        let progress = is_mip.then(|| Progress { cost: (*out).mip_primal_bound, bound: (*out).mip_dual_bound });
        if state.must_stop(progress) {
            (*input).user_interrupt = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ColumnId;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    /// The kind of all columns of a programme.
    #[derive(Clone, Copy)]
    enum Columns {
        Integer,
        Continuous,
    }

    /// A transport programme with `n` sources and `n` sinks. It is dense, so simplex needs many steps.
    fn transport(n: usize, columns: Columns) -> Formulation {
        let mut f = Formulation::default();
        let cost = |i: usize, j: usize| ((i * 7919 + j * 104_729 + i * j * 31) % 97 + 1) as f64;
        let flow: Vec<Vec<ColumnId>> = (0..n)
            .map(|i| {
                let of = |j: usize| {
                    let column = match columns {
                        Columns::Integer => f.integer(0.0, 9.0),
                        Columns::Continuous => f.continuous(0.0, 9.0),
                    };
                    f.add_cost(column, cost(i, j));
                    column
                };
                (0..n).map(of).collect()
            })
            .collect();
        for i in 0..n {
            f.equal(10.0 + (i % 3) as f64, flow[i].iter().map(|&c| (c, 1.0)).collect());
            f.at_most(13.0, flow.iter().map(|of| (of[i], 1.0)).collect());
        }
        f
    }

    /// A clock that returns zero for `n - 1` calls, and then calls `then`. Also the counter of its calls.
    fn clock_after(n: u32, then: impl Fn() -> Duration + Send + Sync + 'static) -> (RunLimits, Arc<AtomicU32>) {
        let calls = Arc::new(AtomicU32::new(0));
        let counter = calls.clone();
        let clock = move || if counter.fetch_add(1, Ordering::Relaxed) + 1 < n { Duration::ZERO } else { then() };
        (RunLimits { deadline: Some(Duration::from_secs(3_600)), ..RunLimits::new(Arc::new(clock)) }, calls)
    }

    #[test]
    fn solving_a_linear_programme_reads_the_clock() {
        let (limits, calls) = clock_after(u32::MAX, Duration::default);
        let solved = solve_linear(&transport(40, Columns::Continuous), &limits).expect("an optimum");
        assert!(solved.cost > 0.0 && solved.duals.len() == 80);
        // one call before the solve, one for the option; all further calls come from the callback
        assert!(calls.load(Ordering::Relaxed) > 4, "{calls:?}");
    }

    #[test]
    fn integers_with_huge_bounds_fail_before_highs() {
        let solved = |upper: f64| {
            let mut f = Formulation::default();
            let (x, y) = (f.integer(0.0, upper), f.integer(0.0, upper));
            f.add_cost(x, 2.0);
            f.add_cost(y, 3.0);
            f.at_least(0.7 * upper, vec![(x, 1.0), (y, 1.4)]);
            solve(&f, SolveSettings::mip(0.0), &RunLimits::new(Arc::new(Duration::default)), None).ending
        };
        assert_eq!((solved(1e6), solved(1e12)), (Ending::Optimal, Ending::Failed));
    }

    #[test]
    fn counted_work_ends_a_solve_at_the_same_step() {
        let formulation = transport(40, Columns::Continuous);
        let done = |units_max: u64| {
            let limits = RunLimits::new(Arc::new(Duration::default)).with_work(units_max);
            let is_solved = solve_linear(&formulation, &limits).is_some();
            (is_solved, limits.work.map_or(0, |work| work.done()))
        };
        let (is_solved, all) = done(u64::MAX);
        assert!(is_solved && all > 0);
        let half = done(all / 2);
        assert!(!half.0 && half.1 >= all / 2 && half.1 < all, "{half:?} of {all}");
        assert_eq!(half, done(all / 2));
    }

    #[test]
    fn a_linear_programme_stops_at_its_deadline() {
        let (limits, _) = clock_after(4, || Duration::from_secs(7_200));
        assert!(solve_linear(&transport(40, Columns::Continuous), &limits).is_none());
    }

    #[test]
    fn a_panic_of_the_clock_leaves_the_solve() {
        for columns in [Columns::Continuous, Columns::Integer] {
            let (limits, _) = clock_after(4, || panic!("the clock is broken"));
            let formulation = transport(40, columns);
            let solve = || match columns {
                Columns::Integer => drop(solve(&formulation, SolveSettings::mip(0.0), &limits, None)),
                Columns::Continuous => drop(solve_linear(&formulation, &limits)),
            };
            let payload = catch_unwind(AssertUnwindSafe(solve)).expect_err("a panic");
            assert_eq!(payload.downcast_ref::<&str>(), Some(&"the clock is broken"));
        }
    }

    #[test]
    fn a_moved_solver_keeps_its_callback_state() {
        let (limits, calls) = clock_after(u32::MAX, Duration::default);
        let formulation = transport(30, Columns::Continuous);
        let new_solver = |_| InterruptibleSolver::new(&formulation, SolveSettings::mip(0.0), &limits).expect("a solver");
        // the growing vector moves all solvers
        let mut solvers: Vec<InterruptibleSolver<'_>> = (0..9).map(new_solver).collect();
        solvers.reverse();
        for solver in solvers {
            let before = calls.load(Ordering::Relaxed);
            assert_eq!(solver.solve().expect("solved").status(), HighsModelStatus::Optimal);
            assert!(calls.load(Ordering::Relaxed) > before, "the callback was not called");
        }
    }
}
