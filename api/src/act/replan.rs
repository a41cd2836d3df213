//! Which plan does a pipeline get in a round of replanning, from the present demand: the one in force or another?
//!
//! The `replan` settings of a pipeline say for which objective it is planned, and whether its plans have a ladder.
//! [`crate::decide::replacement`] decides about the plan in force.

use super::apply::{ApplyError, PlanPart, fence, load_plan};
use crate::app::{App, now};
use crate::decide::correction::Measurements;
use crate::decide::default_dropping::default_to_pard;
use crate::decide::placement::Device;
use crate::decide::projects::DeviceCounts;
use crate::decide::replacement::{
    CandidatePlan, Costs, JudgedSides, ReplacementDecision, at_demand, choose, describe_plan, replay_qps,
};
use crate::decide::replan::{LOWER_MAX, NoPlan, OnBetterPlan, ReplanInput, TRACE_S, describe_lowered, lower_demand};
use crate::decide::shares::devices_of;
use crate::decide::zone_promise::{RAISES_MAX, ZonePromise};
use crate::documents;
use crate::jobs::{self, PlanOptions, SolveError, SolveRequest};
use crate::store::{self, decisions::DecisionRow, holds::FLEET, holds::HoldRow, leases::HeldLease, plans::PlanRow};
use apportion_domain::{PipelinePlan, Plan, PlanOutcome, Problem};
use apportion_planning::FleetMemory;
use apportion_wire::{BadInput, DecisionKind, HardwareSpec, PlanState, ReplanSpec};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use uuid::Uuid;

/// Time limit of one plan of a round.
const TIME_LIMIT_S: f64 = 5.0;

/// Why the round is made.
#[derive(Clone, Debug)]
pub struct ReplanRound {
    /// The reason in words.
    pub why: String,
    /// Stops the round when it is set.
    pub cancel: Arc<AtomicBool>,
    /// The lease under which it is made.
    pub lease: HeldLease,
    /// What agents measured.
    pub measured: Measurements,
    /// The devices on which its plans would be placed.
    pub devices: Vec<Device>,
    /// What is remembered of the rounds before.
    pub memory: FleetMemory,
}

/// A plan that replaces the one in force.
pub(super) struct Replacement {
    /// Its row.
    pub(super) row: PlanRow,
    /// The part of its only pipeline.
    pub(super) part: PipelinePlan,
    /// Why it replaces the one in force.
    pub(super) reason: String,
    /// The demand that it is made for.
    pub(super) demand_qps: f64,
    /// The costs, if they decided.
    pub(super) costs: Option<Costs>,
}

/// What a round decides for one pipeline.
pub(super) enum Verdict {
    Replace(Box<Replacement>),
    Keep { reason: String, costs: Option<Costs>, demand_qps: f64 },
    Fail(String),
}

impl Verdict {
    /// The demand that the plan is made for, or that the plan in force was compared at; 0 without a plan.
    pub(super) fn served_qps(&self) -> f64 {
        match self {
            Self::Replace(made) => made.demand_qps,
            Self::Keep { demand_qps, .. } => *demand_qps,
            Self::Fail(_) => 0.0,
        }
    }

    /// The devices of the plan that is in force afterwards, if nothing forbids it.
    pub(super) fn devices(&self, in_force: Option<&PipelinePlan>) -> DeviceCounts {
        match self {
            Self::Replace(made) => devices_of(&made.part),
            Self::Keep { .. } | Self::Fail(_) => in_force.map(devices_of).unwrap_or_default(),
        }
    }

    /// The same with an addition to its reason.
    pub(super) fn noted(mut self, note: &str) -> Self {
        match &mut self {
            Self::Replace(made) => made.reason += note,
            Self::Keep { reason, .. } | Self::Fail(reason) => *reason += note,
        }
        self
    }
}

/// Why a pipeline got no plan in a round.
#[derive(Debug, thiserror::Error)]
pub(super) enum RoundError {
    #[error("no live agent has a device for it")]
    NoDevice,
    #[error(transparent)]
    Document(#[from] BadInput),
    #[error(transparent)]
    Solve(#[from] SolveError),
    #[error(transparent)]
    NoPlan(#[from] NoPlan),
    #[error("the planner stopped without a plan")]
    Unknown,
    #[error("no demand was found that the devices can serve")]
    NoDemand,
}

/// The parts in force that a round of these pipelines leaves as they are.
pub(super) fn staying_parts<'a>(parts: &'a [PlanPart], wishes: &[&ReplanInput]) -> Vec<&'a PipelinePlan> {
    let is_planned = |name: &str| wishes.iter().any(|w| w.on_better_plan == OnBetterPlan::Apply && w.spec.name == name);
    parts.iter().map(|p| &p.part).filter(|part| !is_planned(&part.name)).collect()
}

pub(super) async fn holds_in_force(app: &App) -> store::Result<Vec<HoldRow>> {
    store::holds::in_force(&mut *app.pool.acquire().await?, now()).await
}

/// A pipeline for which nothing may be deployed now.
pub(super) struct HeldInput<'a> {
    /// The pipeline.
    pub(super) wish: &'a ReplanInput,
    /// Its hold.
    pub(super) hold: HoldRow,
}

/// The held pipelines and the free ones. A hold of the pipeline itself counts before that of the fleet. A pipeline whose
/// plans are only advice is free.
pub(super) fn part_held<'a>(wishes: &'a [ReplanInput], holds: &[HoldRow]) -> (Vec<HeldInput<'a>>, Vec<&'a ReplanInput>) {
    let hold_of = |name: &str| holds.iter().find(|hold| hold.pipeline == name);
    let (mut held, mut free) = (Vec::new(), Vec::new());
    for wish in wishes {
        let hold = hold_of(&wish.spec.name).or_else(|| hold_of(FLEET));
        match hold.filter(|_| wish.on_better_plan == OnBetterPlan::Apply) {
            Some(hold) => held.push(HeldInput { wish, hold: hold.clone() }),
            None => free.push(wish),
        }
    }
    (held, free)
}

/// The hardware types of which a pipeline has devices, with their number.
pub(super) fn share_of(hardware: &[HardwareSpec], counts: &BTreeMap<String, u32>) -> Vec<HardwareSpec> {
    let shares = hardware.iter().map(|h| HardwareSpec { count: counts.get(&h.name).copied(), ..h.clone() });
    shares.filter(|h| h.count.unwrap_or(0) > 0).collect()
}

/// The target in force.
pub(super) struct InForce {
    /// The parts of its plans, one for each pipeline.
    pub(super) parts: Vec<PlanPart>,
    /// Its generation.
    pub(super) generation: i64,
}

pub(super) async fn parts_in_force(app: &App) -> Result<InForce, ApplyError> {
    let mut db = app.pool.acquire().await?;
    let target = store::target::get(&mut db).await?;
    let mut parts: Vec<PlanPart> = Vec::new();
    for plan in target.plans {
        for part in load_plan(&mut db, plan).await? {
            parts.retain(|earlier| earlier.part.name != part.name);
            parts.push(PlanPart { plan, part });
        }
    }
    Ok(InForce { parts, generation: target.generation })
}

/// These devices with their registered prices, without those of pipelines that this round does not replan.
pub(super) async fn free_hardware(
    app: &App,
    mut counts: BTreeMap<String, u32>,
    in_force: &[PlanPart],
    wishes: &[&ReplanInput],
) -> Result<Vec<HardwareSpec>, ApplyError> {
    let mut db = app.pool.acquire().await?;
    let others = staying_parts(in_force, wishes).into_iter().cloned().collect();
    for (name, held) in (Plan { pipelines: others, cost_per_hour: 0.0 }).devices() {
        if let Some(count) = counts.get_mut(name) {
            *count = count.saturating_sub(held as u32);
        }
    }
    live_hardware(&mut db, counts).await.map_err(ApplyError::Database)
}

/// These hardware types with their registered prices and memory. A type that is not registered costs 1 per hour.
///
/// # Errors
/// The database's.
pub async fn live_hardware(
    db: &mut store::PgConnection,
    counts: BTreeMap<String, u32>,
) -> store::Result<Vec<HardwareSpec>> {
    let registered = store::hardware::list(db).await?;
    let spec = |(name, count): (String, u32)| {
        let known = registered.iter().find(|r| r.name == name);
        HardwareSpec {
            price_per_hour: known.map_or(1.0, |r| r.price_per_hour),
            memory_mib: known.and_then(|r| r.memory_mib),
            count: Some(count),
            name,
        }
    };
    Ok(counts.into_iter().map(spec).collect())
}

/// The problem of a pipeline at its demand on these devices, with its corrected profile.
pub(super) fn problem_of(
    wish: &ReplanInput,
    hardware: Vec<HardwareSpec>,
    round: &ReplanRound,
) -> Result<Value, RoundError> {
    if hardware.is_empty() {
        return Err(RoundError::NoDevice);
    }
    let mut spec = wish.spec.clone();
    spec.demand_qps = wish.demand_qps;
    let notes = round.measured.fill(&mut spec);
    if wish.settings().ladder.is_some() {
        default_to_pard(&mut spec);
    }
    let mut document = documents::problem_document(wish.objective(), hardware, vec![spec])?;
    documents::add_notes(&mut document, notes);
    Ok(document)
}

/// Plans one pipeline anew on its devices. A demand that they cannot serve is lowered.
pub(super) async fn plan_anew(
    wish: &ReplanInput,
    hardware: Vec<HardwareSpec>,
    current: Option<&PipelinePlan>,
    round: &ReplanRound,
) -> Result<Verdict, RoundError> {
    let mut document = problem_of(wish, hardware, round)?;
    let (mut lowered, mut raises) = (String::new(), 0);
    let promise = ZonePromise::new(wish.spec.survive.unwrap_or(0), &round.devices);
    for _ in 0..LOWER_MAX + RAISES_MAX {
        let problem = documents::problem(&document)?;
        let solved = solve(&problem, options(wish), round).await?;
        if let PlanOutcome::Infeasible { shortfalls } = &solved.outcome {
            document["pipelines"][0]["demand_qps"] = lower_demand(problem.pipelines[0].demand_qps, shortfalls)?.into();
            lowered = describe_lowered(&problem, wish.demand_qps);
            continue;
        }
        let plan = solved.outcome.plan().ok_or(RoundError::Unknown)?;
        let (groups, survive) = (&plan.pipelines[0].assignments, problem.pipelines[0].survive);
        if let Some(more) = promise.raised(groups, survive).filter(|_| raises < RAISES_MAX) {
            document["pipelines"][0]["survive"] = more.into();
            raises += 1;
            continue;
        }
        let zones = promise.describe(groups, survive);
        let choice = match current {
            Some(current) => {
                let candidate = CandidatePlan { plan: &plan.pipelines[0], at_its_demand: solved.attainment.unwrap_or(0.0) };
                Some(compare(wish, &problem, current, candidate).await?)
            }
            None => None,
        };
        if let Some(ReplacementDecision { keep: true, why, costs }) = choice {
            let demand_qps = problem.pipelines[0].demand_qps;
            return Ok(Verdict::Keep { reason: format!("{why}{lowered}"), costs, demand_qps });
        }
        let reason = format!("{}{lowered}{zones}", describe_plan(&problem, plan, choice.as_ref()));
        let costs = choice.and_then(|choice| choice.costs);
        let demand_qps = problem.pipelines[0].demand_qps;
        let part = plan.pipelines[0].clone();
        let row = plan_row(document, &options(wish), solved.document);
        return Ok(Verdict::Replace(Box::new(Replacement { row, part, reason, demand_qps, costs })));
    }
    Err(RoundError::NoDemand)
}

/// Judges the plan in force in the present problem beside the new one, and decides whether it stays.
async fn compare(
    wish: &ReplanInput,
    problem: &Problem,
    current: &PipelinePlan,
    candidate: CandidatePlan<'_>,
) -> Result<ReplacementDecision, SolveError> {
    let judged = judge(wish, problem, current, candidate.plan).await?;
    Ok(choose(wish, problem, current, &judged, candidate))
}

/// Judges the plan in force and a new one on fresh samples of the demand at which the plan in force must hold to stay.
pub(super) async fn judge(
    wish: &ReplanInput,
    problem: &Problem,
    current: &PipelinePlan,
    new: &PipelinePlan,
) -> Result<JudgedSides, SolveError> {
    let qps = replay_qps(wish, problem, current);
    let at = problem.changed(|draft| draft.pipelines[0] = draft.pipelines[0].with_demand(qps));
    let at = at.expect("a problem with a lower demand");
    let (in_force, new) = (at_demand(current, &at), at_demand(new, &at));
    jobs::judge_sides(at, in_force, new, vec![documents::steady(qps, TRACE_S)]).await
}

/// The options of a round's plan of a pipeline.
pub(super) fn options(wish: &ReplanInput) -> PlanOptions {
    let ReplanSpec { ladder, ladder_headroom, .. } = wish.settings();
    // Where requests miss, stewards need more replicas at every load. Without a constant headroom they see that themselves.
    let ladder_headroom = match (ladder, ladder_headroom) {
        (Some(up_to), Some(headroom)) => Some((headroom * wish.ladder_factor).min(up_to)),
        (None, headroom) => headroom,
        (Some(_), None) => None,
    };
    PlanOptions { time_limit_s: TIME_LIMIT_S, ladder, ladder_headroom, ..PlanOptions::default() }
}

async fn solve(problem: &Problem, options: PlanOptions, round: &ReplanRound) -> Result<jobs::SolvedPlan, SolveError> {
    let traces = vec![documents::steady(problem.pipelines[0].demand_qps, TRACE_S)];
    let request = SolveRequest::unwatched(problem.clone(), options, traces);
    jobs::solve(SolveRequest { cancel: round.cancel.clone(), ..request }).await
}

/// The row of a plan that a round has made.
pub(super) fn plan_row(problem: Value, options: &PlanOptions, document: Value) -> PlanRow {
    let at = now();
    PlanRow {
        id: Uuid::now_v7(),
        state: PlanState::Succeeded,
        problem,
        options: serde_json::to_value(options).expect("options are JSON"),
        plan: Some(document),
        error: None,
        created_at: at,
        started_at: Some(at),
        finished_at: Some(at),
        progress: None,
        best: None,
    }
}

fn decision_kind(verdict: &Verdict, on_better_plan: OnBetterPlan) -> DecisionKind {
    match (verdict, on_better_plan) {
        (Verdict::Replace(_), OnBetterPlan::Apply) => DecisionKind::Applied,
        (Verdict::Replace(_), OnBetterPlan::Advise) => DecisionKind::Advised,
        (Verdict::Keep { .. }, _) => DecisionKind::Kept,
        (Verdict::Fail(_), _) => DecisionKind::Failed,
    }
}

/// Stores the decision, and its plan if it is only advice. A plan that is deployed is stored before its target. Returns the
/// decision's identifier.
pub(super) async fn store_decision(
    app: &App,
    wish: &ReplanInput,
    verdict: &Verdict,
    round: &ReplanRound,
) -> Result<Uuid, ApplyError> {
    let (reason, plan, demand_qps, costs) = match verdict {
        Verdict::Replace(made) => (&made.reason, Some(made.row.id), made.demand_qps, made.costs),
        Verdict::Keep { reason, costs, .. } => (reason, None, wish.demand_qps, *costs),
        Verdict::Fail(reason) => (reason, None, wish.demand_qps, None),
    };
    let reason = format!("{}: {reason}", round.why);
    let decision = decision_kind(verdict, wish.on_better_plan);
    tracing::info!(pipeline = wish.spec.name, decision = decision.name(), reason, demand_qps, "replanned");
    let mut tx = app.pool.begin().await?;
    fence(&mut tx, round.lease).await?;
    if let (Verdict::Replace(made), OnBetterPlan::Advise) = (verdict, wish.on_better_plan) {
        store::plans::insert_finished(&mut tx, &made.row).await?;
    }
    let row = DecisionRow {
        id: Uuid::now_v7(),
        pipeline: wish.spec.name.clone(),
        decision,
        reason,
        demand_qps,
        plan,
        costs: costs.map(|costs| serde_json::to_value(costs).expect("costs are JSON")),
        alternative: None,
        made_at: now(),
    };
    store::decisions::insert(&mut tx, &row).await?;
    tx.commit().await?;
    Ok(row.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The headroom of ladders in a round of a pipeline with these replan settings, whose budget has this factor.
    fn ladder_headroom(replan: Value, ladder_factor: f64) -> Option<f64> {
        let spec = json!({"name": "p", "slo_ms": 100.0, "replan": replan, "tasks": [{"name": "t", "variants": []}]});
        let spec = serde_json::from_value(spec).expect("a spec");
        options(&ReplanInput { ladder_factor, ..ReplanInput::for_seen_demand(spec, 10.0) }).ladder_headroom
    }

    #[test]
    fn misses_raise_only_a_constant_headroom() {
        let constant = || json!({"mode": "apply", "ladder": 4.0, "ladder_headroom": 1.2});
        assert_eq!(ladder_headroom(constant(), 1.0), Some(1.2));
        assert_eq!(ladder_headroom(constant(), 1.5), Some(1.2 * 1.5));
        assert_eq!(ladder_headroom(constant(), 100.0), Some(4.0), "a ladder reaches its own demand");
        let followed = || json!({"mode": "apply", "ladder": 4.0});
        assert_eq!(ladder_headroom(followed(), 1.5), None, "the stewards count the same misses");
        assert_eq!(ladder_headroom(json!({"mode": "apply"}), 1.5), None, "no ladder");
    }
}
