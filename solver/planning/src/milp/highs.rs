//! The one file that names HiGHS.
//!
//! Its time limit has been seen ignored in root processing, so a callback asks the caller's clock and cancel flag and
//! interrupts simplex, interior point and branch and bound alike. Every status that is neither a proof nor a stop is
//! [`Ending::Failed`], never an answer.
//!
//! [`Watched`] is the only way to a solve. It owns the solver and what its callback looks at, so neither outlives the other.

#![expect(unsafe_code, reason = "the interrupt callback exists only in the C interface")]

use super::formulation::{Ending, Formulation, Solved};
use crate::limits::Limits;
use highs::{Col, HighsModelStatus, HighsSolutionStatus, Model, RowProblem, Sense, SolvedModel};
use std::any::Any;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;

/// Largest bound of an integer column. HiGHS counts steps between the bounds of integers in 32 bits
/// (`HighsRedcostFixing::addRootRedcost`): beyond them a loop of its root node never ends, and nobody is asked whether to stop.
/// Its presolve multiplies bounds, so this stays far below: at 1e9 the loop was seen not to end.
const INTEGER_MAX: f64 = 1e6;

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
    let countable = -INTEGER_MAX..=INTEGER_MAX;
    let is_beyond = |&(lower, upper, integer): &(f64, f64, bool)| {
        integer && !(countable.contains(&lower) && countable.contains(&upper))
    };
    if formulation.columns.iter().any(is_beyond) {
        tracing::warn!("an integer of more than {INTEGER_MAX} is beyond HiGHS");
        return failed;
    }
    let is_mip = formulation.columns.iter().any(|c| c.2);
    let Some(mut solver) = Watched::new(formulation, settings, limits) else { return failed };
    if let Some(values) = start
        && solver.model.try_set_solution(Some(values), None, None, None).is_err()
    {
        tracing::debug!("the start was refused");
    }
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
    let tight = Settings { tolerance: 1e-9, ..Settings::mip(0.0) };
    let solved = Watched::new(formulation, tight, limits)?.solve()?;
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
    /// With what the clock or the listener panicked.
    panicked: Cell<Option<Box<dyn Any + Send>>>,
}

impl<'a> Watcher<'a> {
    fn new(limits: &'a Limits, told: Option<(&'static str, f64)>) -> Self {
        Self { limits, told, last: Cell::new((f64::NAN, f64::NAN)), panicked: Cell::new(None) }
    }

    fn tell(&self, cost: f64, bound: f64) {
        let Some((goal, factor)) = self.told else { return };
        let (known, now) = (self.last.get(), (cost, bound));
        if known.0.to_bits() != now.0.to_bits() || known.1.to_bits() != now.1.to_bits() {
            self.last.set(now);
            self.limits.tell(goal, factor * cost, factor * bound);
        }
    }

    /// Whether HiGHS is to stop; `found` are the costs of the best solution and of the bound. A panic of the caller's clock or
    /// listener must not unwind into C++: it stops the solve and goes on after it.
    fn is_over(&self, found: Option<(f64, f64)>) -> bool {
        let look = || {
            if let Some((cost, bound)) = found {
                self.tell(cost, bound);
            }
            self.limits.stopped()
        };
        catch_unwind(AssertUnwindSafe(look)).unwrap_or_else(|payload| {
            self.panicked.set(Some(payload));
            true
        })
    }
}

/// A solver with what its callback looks at.
///
/// HiGHS keeps a bare pointer to the watcher. The watcher is pinned in memory of its own, which moves with nothing, and it is
/// dropped after the model: fields are dropped in their order, by a panic too.
struct Watched<'a> {
    model: Model,
    watcher: Pin<Box<Watcher<'a>>>,
}

impl<'a> Watched<'a> {
    /// Loads a formulation, ready to be solved; `None` if HiGHS refuses it.
    fn new(formulation: &Formulation, settings: Settings, limits: &'a Limits) -> Option<Self> {
        let model = load(formulation).try_optimise(Sense::Minimise).ok()?;
        let watcher = Box::pin(Watcher::new(limits, settings.told));
        let mut watched = Self { model, watcher };
        (configure(&mut watched.model, settings, limits) && watched.watch()).then_some(watched)
    }

    /// Asks HiGHS to call back, so that it stops when the limits say so and the listener hears how far it is.
    fn watch(&mut self) -> bool {
        let data = std::ptr::from_ref(&*self.watcher).cast_mut().cast::<c_void>();
        // SAFETY: the model is a live HiGHS object. `self` owns it and the watcher, and drops the watcher after it.
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

    /// Solves; `None` if HiGHS fails. Without its callback the solved model may outlive the watcher.
    fn solve(self) -> Option<SolvedModel> {
        let Self { model, watcher } = self;
        let solved = model.try_solve();
        if let Some(payload) = watcher.panicked.take() {
            drop(solved);
            resume_unwind(payload);
        }
        let mut solved = solved.ok()?;
        // SAFETY: the solved model is a live HiGHS object; without a callback it never looks at the data again.
        let status = unsafe { highs_sys::Highs_setCallback(solved.as_mut_ptr(), None, std::ptr::null_mut()) };
        (status == 0).then_some(solved)
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
    // SAFETY: HiGHS hands back the pointer that `Watched::watch` gave it, and its own live blocks.
    unsafe {
        let watcher = &*data.cast::<Watcher<'_>>();
        let is_mip = kind == highs_sys::kHighsCallbackMipInterrupt as c_int && !out.is_null();
        let found = is_mip.then(|| ((*out).mip_primal_bound, (*out).mip_dual_bound));
        if watcher.is_over(found) {
            (*input).user_interrupt = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::formulation::Column;
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    /// A programme of transport with `n` sources and `n` sinks: a dense one that takes simplex many steps.
    fn transport(n: usize, integer: bool) -> Formulation {
        let mut f = Formulation::default();
        let cost = |i: usize, j: usize| ((i * 7919 + j * 104_729 + i * j * 31) % 97 + 1) as f64;
        let flow: Vec<Vec<Column>> = (0..n)
            .map(|i| {
                let of = |j: usize| {
                    let column = if integer { f.integer(0.0, 9.0) } else { f.continuous(0.0, 9.0) };
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

    /// A clock whose `n`-th look, and every later one, does what `then` does.
    fn from_look(n: u32, then: impl Fn() -> Duration + Send + Sync + 'static) -> (Limits, Arc<AtomicU32>) {
        let looks = Arc::new(AtomicU32::new(0));
        let seen = looks.clone();
        let clock = move || if seen.fetch_add(1, Ordering::Relaxed) + 1 < n { Duration::ZERO } else { then() };
        (Limits { until: Some(Duration::from_secs(3_600)), ..Limits::new(Arc::new(clock)) }, looks)
    }

    #[test]
    fn a_linear_programme_asks_its_clock_while_it_is_solved() {
        let (limits, looks) = from_look(u32::MAX, Duration::default);
        let solved = relaxed(&transport(40, false), &limits).expect("an optimum");
        assert!(solved.cost > 0.0 && solved.duals.len() == 80);
        // once before it begins and once for the option; all further looks are the callback's
        assert!(looks.load(Ordering::Relaxed) > 4, "{looks:?}");
    }

    #[test]
    fn integers_that_highs_cannot_count_are_not_given_to_it() {
        let solved = |upper: f64| {
            let mut f = Formulation::default();
            let (x, y) = (f.integer(0.0, upper), f.integer(0.0, upper));
            f.add_cost(x, 2.0);
            f.add_cost(y, 3.0);
            f.at_least(0.7 * upper, vec![(x, 1.0), (y, 1.4)]);
            solve(&f, Settings::mip(0.0), &Limits::new(Arc::new(Duration::default)), None).ending
        };
        assert_eq!((solved(1e6), solved(1e12)), (Ending::Optimal, Ending::Failed));
    }

    #[test]
    fn a_linear_programme_stops_when_its_clock_says_so() {
        let (limits, _) = from_look(4, || Duration::from_secs(7_200));
        assert!(relaxed(&transport(40, false), &limits).is_none());
    }

    #[test]
    fn a_panic_of_the_clock_comes_out_of_the_solve() {
        for integer in [false, true] {
            let (limits, _) = from_look(4, || panic!("the clock is broken"));
            let formulation = transport(40, integer);
            let solve = || match integer {
                true => drop(solve(&formulation, Settings::mip(0.0), &limits, None)),
                false => drop(relaxed(&formulation, &limits)),
            };
            let payload = catch_unwind(AssertUnwindSafe(solve)).expect_err("a panic");
            assert_eq!(payload.downcast_ref::<&str>(), Some(&"the clock is broken"));
        }
    }

    #[test]
    fn a_solver_that_is_moved_keeps_its_watcher() {
        let (limits, looks) = from_look(u32::MAX, Duration::default);
        let formulation = transport(30, false);
        let watched = |_| Watched::new(&formulation, Settings::mip(0.0), &limits).expect("a solver");
        // growing moves them all
        let mut solvers: Vec<Watched<'_>> = (0..9).map(watched).collect();
        solvers.reverse();
        for solver in solvers {
            let before = looks.load(Ordering::Relaxed);
            assert_eq!(solver.solve().expect("solved").status(), HighsModelStatus::Optimal);
            assert!(looks.load(Ordering::Relaxed) > before, "nobody was asked");
        }
    }
}
