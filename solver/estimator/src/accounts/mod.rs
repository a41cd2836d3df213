//! How does a second thread keep the accounts of a run?
//!
//! Example: a plan is replayed on a machine with two processors. One thread plays arrivals, queues and batches. It notes
//! each batch that starts or ends in a journal. The other thread reads the journal: it counts waits, follows each request
//! to its last query, and counts its outcome.
//!
//! The run never asks for an account, and a journal is read in the order in which it was written. So both threads together
//! do what one thread does alone, and the results are equal to the last bit. That holds as long as nothing is dropped: the
//! first drop decides about other queries of its request. So only runs without a dropping policy have a second thread. If
//! a query is dropped there, because a queue is full, the run is played again by one thread.

mod ledger;
mod numbers;

use crate::compile::CompiledPlan;
use crate::compile::size::expected_visits;
use crate::error::SimulateError;
use crate::input::options::{Accounting, SimulateOptions};
use crate::input::workload::{Arrivals, Workload};
use crate::run::SimulationRun;
use crate::state::RunState;
use crate::state::bounds::CutReason;
use crate::state::journal::open_journal;
use crate::state::statistics::Statistics;
use apportion_domain::{ArrivalTrace, Dropping, Moment, Pipeline, Plan, Problem, TimeSpan};
use ledger::RequestLedger;
use std::panic::resume_unwind;
use std::thread::Builder;

/// Fewer expected visits than this take less than two milliseconds: a thread for them gains little.
const VISITS_MIN: f64 = 50_000.0;
/// Within this time after the start no deadline is cut off, so a deadline says when its request arrived.
const EXACT_MAX: TimeSpan = TimeSpan::from_nanos(1 << 61);

/// Whether a second thread keeps the accounts of this run, if the machine gives one. Its caller allows it, the run is long
/// enough, keeps sums alone, and drops nothing by policy.
#[must_use]
pub fn keeps_accounts_apart(problem: &Problem, plan: &Plan, workload: &Workload, options: &SimulateOptions) -> bool {
    let is_asked = options.accounting == Accounting::SecondThread;
    let keeps_sums = !options.requests && options.class_window.is_none() && options.misses_max.is_none();
    let serves_all = |p: &Pipeline| {
        let serving = options.serving.or(plan.pipeline(&p.name).map(|part| part.serving));
        serving.unwrap_or_default().dropping == Dropping::Naive
    };
    // Queries that wait for others are found by the slots of their requests.
    let has_no_joins = |p: &Pipeline| p.edges.iter().all(|edge| edge.primary);
    let is_exact = |p: &Pipeline| TimeSpan::from_millis(p.slo_ms) <= EXACT_MAX;
    is_asked
        && keeps_sums
        && problem.pipelines.iter().all(|p| serves_all(p) && has_no_joins(p) && is_exact(p))
        && workload.traces.iter().all(ends_early)
        && expected_visits(problem, plan, &workload.traces) >= VISITS_MIN
}

/// Whether the last request of a trace arrives within [`EXACT_MAX`].
fn ends_early(trace: &ArrivalTrace) -> bool {
    let last = match trace {
        ArrivalTrace::Arrivals(moments) => moments.last().copied().unwrap_or_default(),
        ArrivalTrace::Rates(rows) => {
            let last_s = rows.last().map_or(0, |&(second, _)| second);
            Moment::from_millis((last_s as f64 + 1.0) * 1e3)
        }
    };
    last <= Moment::ZERO + EXACT_MAX
}

/// How a run with a second thread ended.
#[derive(Debug)]
pub enum ApartRun {
    /// With its counts.
    Done(Box<Statistics>),
    /// Its caller has stopped it.
    Stopped,
    /// A query was dropped, the run met a bound, or the machine gave no thread. One thread has to play the run.
    GivenUp,
}

/// Plays a run of which [`keeps_accounts_apart`] is true.
///
/// # Errors
/// If the plan or the workload does not fit the problem, or the run is too large.
pub fn play_apart(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    options: &SimulateOptions,
) -> Result<ApartRun, SimulateError> {
    let state = CompiledPlan::new(problem, plan, workload, options)?.into_state(options);
    Ok(play(state, Arrivals::of(problem, workload)))
}

/// Plays a run, and keeps its accounts in a second thread.
fn play(mut state: RunState, arrivals: Vec<Arrivals<'_>>) -> ApartRun {
    let mut ledger = RequestLedger::new(&state);
    let (writer, reader) = open_journal();
    state.keep_journal(writer);
    // The run belongs to the scope: if it panics, its journal is closed, and the second thread ends.
    std::thread::scope(|scope| {
        let keep = move || {
            reader.read(|block| ledger.enter(block));
            ledger.into_statistics()
        };
        let Ok(keeper) = Builder::new().name("accounts".to_owned()).spawn_scoped(scope, keep) else {
            return ApartRun::GivenUp;
        };
        let mut run = SimulationRun::new(state, arrivals, None);
        run.run();
        let is_complete = run.state.close_journal();
        let accounts = keeper.join().unwrap_or_else(|panic| resume_unwind(panic));
        match run.state.cut() {
            None if is_complete => {
                let mut statistics = run.state.statistics;
                statistics.merge(&accounts);
                ApartRun::Done(Box::new(statistics))
            }
            Some(CutReason::Stopped) if is_complete => ApartRun::Stopped,
            _ => ApartRun::GivenUp,
        }
    })
}

#[cfg(test)]
mod tests;
