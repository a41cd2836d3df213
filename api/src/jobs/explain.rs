//! How is a stored plan explained in full?
//!
//! The job of a plan searches for prices and alternatives only briefly, because its client waits. Here the plan is planned
//! again with its own options, and the searches get more time. They need the state of the search that found the plan,
//! and that state is not stored.

use super::solve::{PlanOptions, SolveError, SolveRequest, each_trace, solve_in_place};
use crate::documents;
use crate::store::plans::PlanRow;
use apportion_domain::Plan;
use apportion_planning::{ExplanationDepth, Planner};
use apportion_wire::{BadInput, PlanState, plan_for_from_tree};
use serde_json::Value;
use std::time::Duration;

/// Longest time of a full explanation: to plan again, and to search.
pub const FULL_EXPLANATION_TIME_MAX: Duration = Duration::from_secs(60);
/// Longest search for prices and alternatives within it.
const SEARCHES_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a planner may go on after its limit, before it is cancelled.
const OVERRUN_MAX: Duration = Duration::from_secs(5);

/// A stored plan with everything that its explanation needs.
pub struct PlanToExplain {
    request: SolveRequest,
    plan: Plan,
    limit: Duration,
}

/// Why a stored plan cannot be explained in full.
#[derive(Debug, thiserror::Error)]
pub enum UnreadablePlan {
    /// Its problem, its plan file or its trace cannot be read.
    #[error(transparent)]
    Document(#[from] BadInput),
    /// Its options cannot be read: another release wrote them.
    #[error("its options cannot be read: {0}")]
    Options(#[from] serde_json::Error),
}

/// The result of a full explanation.
#[derive(Clone, Debug, PartialEq)]
pub enum FullExplanation {
    /// The explanation, as a plan file has it.
    Explained(Value),
    /// There is none, for this reason.
    LeftOut(&'static str),
}

impl PlanToExplain {
    /// Reads the documents of a plan that has succeeded. `trace` is the text of its uploaded trace, if it has one.
    ///
    /// # Errors
    /// If a document cannot be read.
    pub fn read(row: PlanRow, trace: Option<&str>) -> Result<Self, UnreadablePlan> {
        let problem = documents::problem(&row.problem)?;
        let plan = plan_for_from_tree(&problem, "plan", row.plan.unwrap_or_default())?;
        let stored: PlanOptions = serde_json::from_value(row.options)?;
        let limit = (stored.time_limit() + SEARCHES_TIME_MAX).min(FULL_EXPLANATION_TIME_MAX);
        // A ladder changes nothing at the demand, and takes time.
        let options = PlanOptions { time_limit_s: limit.as_secs_f64(), ladder: None, ladder_headroom: None, ..stored };
        let traces = each_trace(&problem, trace)?;
        let explain = ExplanationDepth::Full { within: SEARCHES_TIME_MAX };
        let request = SolveRequest { explain, ..SolveRequest::unwatched(problem, options, traces) };
        Ok(Self { request, plan, limit })
    }
}

/// Whether a longer search could add to the stored explanation of a plan.
#[must_use]
pub fn leaves_searches_out(row: &PlanRow) -> bool {
    let Some(plan) = row.plan.as_ref().filter(|_| row.state == PlanState::Succeeded) else { return false };
    let planner = plan["planner"]["name"].as_str().and_then(Planner::from_name);
    let searches = matches!(planner, Some(Planner::Milp | Planner::PriceAndBranch));
    searches && plan["explanation"]["left_out"].as_array().is_some_and(|left_out| !left_out.is_empty())
}

/// Explains a plan in full, in a thread of its own. If the future is dropped, the search stops. `place` is held until the
/// thread ends.
///
/// # Errors
/// If the planner panicked, or its plan breaks a rule.
pub async fn explain_in_full(explained: PlanToExplain, place: impl Send + 'static) -> Result<FullExplanation, SolveError> {
    let PlanToExplain { request, plan, limit } = explained;
    let Ok(solved) = tokio::time::timeout(limit + OVERRUN_MAX, solve_in_place(request, place)).await else {
        return Ok(FullExplanation::LeftOut("a full explanation: the planner did not end in time"));
    };
    let mut solved = solved?;
    Ok(match solved.outcome.plan() {
        Some(again) if plan.diff(again).is_empty() => FullExplanation::Explained(solved.document["explanation"].take()),
        Some(_) => FullExplanation::LeftOut("a full explanation: planned again, the search found another plan"),
        None => FullExplanation::LeftOut("a full explanation: planned again, the search found no plan in time"),
    })
}
