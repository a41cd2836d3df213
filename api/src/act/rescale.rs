//! Which plan does a pipeline get by scaling actions from the replicas that run?
//!
//! The setting `scaling` of a pipeline asks for it. The plan in force says which replicas run, and the demand is that of
//! the agents' reports. [`crate::decide::rescaling`] decides whether the actions are carried out.

use super::replan::{Replacement, ReplanRound, RoundError, Verdict, judge, options, plan_row, problem_of};
use crate::decide::replacement::{ReplacementDecision, describe_plan};
use crate::decide::replan::{NoPlan, ReplanInput, TRACE_S, describe_lowered};
use crate::decide::rescaling::{ScalingSides, choose_scaling, deployed_groups, scaling_steps};
use crate::documents;
use crate::jobs::{self, PlanOptions, RescaleRequest, RescaledPlan};
use apportion_domain::{PipelinePlan, PlanOutcome, Problem, SLACK};
use apportion_planning::scaling::rescale::RescaleSettings;
use apportion_wire::{HardwareSpec, ScalingReplanSpec};

/// Finds the scaling actions of one pipeline on its devices. A demand that they cannot serve is lowered.
pub(super) async fn rescale_pipeline(
    wish: &ReplanInput,
    hardware: Vec<HardwareSpec>,
    current: Option<&PipelinePlan>,
    round: &ReplanRound,
) -> Result<Verdict, RoundError> {
    let settings = wish.settings().scaling.unwrap_or_default();
    let mut document = problem_of(wish, hardware, round)?;
    if let Some(current) = current {
        let deployed = deployed_groups(&documents::problem(&document)?, current);
        document["deployed"] = serde_json::to_value(deployed).expect("groups are JSON");
    }
    let options = PlanOptions { planner: settings.planner.clone(), ladder: None, ladder_headroom: None, ..options(wish) };
    let rescaled = jobs::rescale(RescaleRequest {
        problem: documents::problem(&document)?,
        options: options.clone(),
        settings: RescaleSettings { lambda: settings.lambda },
        trace_s: TRACE_S,
        cancel: round.cancel.clone(),
    });
    let RescaledPlan { solved, problem } = rescaled.await?;
    if let PlanOutcome::Infeasible { shortfalls } = &solved.outcome {
        return Err(NoPlan::of(shortfalls).into());
    }
    let plan = solved.outcome.plan().ok_or(RoundError::Unknown)?;
    let part = plan.pipelines[0].clone();
    let demand_qps = problem.pipelines[0].demand_qps;
    let is_lowered = demand_qps < wish.demand_qps * (1.0 - SLACK);
    let lowered = if is_lowered { describe_lowered(&problem, wish.demand_qps) } else { String::new() };
    let choice = match current {
        Some(current) => Some(decide(wish, &problem, current, &part, &settings).await?),
        None => None,
    };
    if let Some(ReplacementDecision { keep: true, why, costs }) = choice {
        return Ok(Verdict::Keep { reason: format!("{why}{lowered}"), costs, demand_qps });
    }
    let actions = current.map_or(String::new(), |current| describe_actions(&problem, current, &part));
    let reason = format!("{}{lowered}{actions}", describe_plan(&problem, plan, choice.as_ref()));
    document["pipelines"][0]["demand_qps"] = demand_qps.into();
    let row = plan_row(document, &options, solved.document);
    Ok(Verdict::Replace(Box::new(Replacement { row, part, reason, demand_qps, costs: None })))
}

/// Judges the plan in force beside the plan after the actions, and decides whether they are carried out.
async fn decide(
    wish: &ReplanInput,
    problem: &Problem,
    current: &PipelinePlan,
    new: &PipelinePlan,
    settings: &ScalingReplanSpec,
) -> Result<ReplacementDecision, RoundError> {
    let judged = judge(wish, problem, current, new).await?;
    Ok(choose_scaling(wish, problem, ScalingSides { current, new, judged: &judged }, settings))
}

/// The addition to a reason: each action with the replicas before and after it.
fn describe_actions(problem: &Problem, current: &PipelinePlan, new: &PipelinePlan) -> String {
    let steps: Vec<String> = scaling_steps(problem, current, new).iter().map(ToString::to_string).collect();
    if steps.is_empty() { "; other batch sizes".to_owned() } else { format!("; actions: {}", steps.join(", ")) }
}
