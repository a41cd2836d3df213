//! How is one stage solved on the whole formulation?

use crate::exact::model::constraints::build;
use crate::exact::model::goal::Stage;
use crate::exact::model::space::Space;
use crate::exact::model::tolerances::STAGE_GAP_SHARE;
use crate::exact::solution::choice::{PlanIntegers, read_choice};
use apportion_domain::{Problem, StopReason};
use apportion_mip::branch::{self, BranchSettings};
use apportion_mip::highs::{self, SolveSettings};
use apportion_mip::{Ending, Formulation, Rounding, RunLimits, SolveResult};

/// Result of one stage.
pub(crate) enum StageResult {
    /// A choice; its goal's value and bound, both to be minimised; why it ended early.
    Found {
        choice: PlanIntegers,
        value: f64,
        bound: f64,
        stopped: Option<StopReason>,
    },
    Infeasible,
    Unknown(StopReason),
}

/// Builds and solves one stage. With the cost of an `incumbent`, only cheaper solutions count.
///
/// Stages with given budgets or given numbers of replicas are small. They go to our own branch and bound first, and then
/// to HiGHS. A stage with a limit of nodes goes to ours alone. At that limit it has stopped as [`StopReason::Finished`].
pub(crate) fn solve_stage(
    problem: &Problem,
    space: &Space,
    stage: Stage<'_>,
    gap: f64,
    limits: &RunLimits,
    incumbent: Option<f64>,
) -> StageResult {
    // a stage with given budgets is small, and may give the only solution of the run
    let late = if stage.budgets.is_some() { limits.for_finishing() } else { limits.clone() };
    if let Some(reason) = late.stop_reason() {
        return StageResult::Unknown(reason);
    }
    let mut built = build(problem, space, stage);
    let is_small = stage.budgets.is_some() || stage.totals.is_some();
    let own_search = |f: &Formulation| {
        let (gap, cutoff) = (STAGE_GAP_SHARE * gap, incumbent.unwrap_or(f64::INFINITY));
        match stage.nodes_max {
            // only heuristics have a limit of nodes: they take any solution
            Some(nodes) => {
                let (nodes_max, rounding) = (nodes as usize, Rounding::WithDependents);
                branch::solve_with(f, BranchSettings { gap, cutoff, nodes_max, rounding }, limits)
            }
            None => branch::solve(f, gap, cutoff, limits),
        }
    };
    let small = is_small.then(|| own_search(&built.formulation)).flatten();
    if small.is_none() && stage.nodes_max.is_some() {
        return StageResult::Unknown(StopReason::Finished);
    }
    let solved = small.unwrap_or_else(|| {
        if let Some(incumbent) = incumbent {
            let terms = built.formulation.cost_terms();
            built.formulation.at_most(if stage.is_whole() { incumbent - 1.0 } else { incumbent }, terms);
        }
        let reported_goal = stage.goal.reported().filter(|_| stage.budgets.is_none());
        highs::solve(
            &built.formulation,
            SolveSettings { reported_goal, ..SolveSettings::mip(STAGE_GAP_SHARE * gap) },
            limits,
            None,
        )
    });
    let SolveResult { ending, values, cost, bound } = solved;
    let reason = || match stage.nodes_max {
        Some(_) => limits.stop_reason().unwrap_or(StopReason::Finished),
        None => limits.stop_reason_or_time_limit(),
    };
    match (ending, values) {
        (Ending::Infeasible, _) => StageResult::Infeasible,
        (Ending::Optimal | Ending::Stopped, Some(values)) => StageResult::Found {
            choice: read_choice(space, &built.columns.parts, &values),
            value: cost,
            bound: bound.min(cost),
            stopped: (ending == Ending::Stopped).then(reason),
        },
        (Ending::Stopped, None) => StageResult::Unknown(reason()),
        _ => StageResult::Unknown(StopReason::Numerics),
    }
}
