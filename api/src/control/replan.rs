//! One round of replanning: a plan for each pipeline from the demand now, kept or replaced.
//!
//! The plan in force stays while it still checks against the new demand and is within 5 % of the best; then changing it would
//! cost loads and gain nothing that anybody would notice.

use super::apply::{ApplyError, Proposal, Specs, apply, load_plan};
use super::fleet::Fleet;
use super::shares::{divide, least_work};
use crate::app::{App, now};
use crate::documents;
use crate::jobs::{self, Ask, PlanOptions};
use crate::store::{self, decisions::DecisionRow, plans::PlanRow};
use apportion_domain::{Constraint, PipelinePlan, Plan, PlanOutcome, Problem};
use apportion_wire::{HardwareSpec, ObjectiveSpec, PipelineSpec};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use uuid::Uuid;

/// A plan this close to the best, in accuracy and in replicas, is not worth replacing.
const CLOSE_ENOUGH: f64 = 0.05;
/// Seconds of Poisson arrivals on which a plan must hold. 20 s show queues that build up; more would make a round slow.
const TRACE_S: u64 = 20;
/// Time limit of one plan of a round.
const TIME_LIMIT_S: f64 = 5.0;
/// How often a demand that the devices cannot serve is lowered before the round gives up.
const LOWER_MAX: u32 = 8;

/// A pipeline to be planned.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Its spec with profiles.
    pub spec: PipelineSpec,
    /// Demand to plan for.
    pub demand_qps: f64,
    /// Demand at which a plan in force must still hold to stay. It is lower, or else a plan that was made to measure would
    /// be replaced whenever the load breathes.
    pub keep_qps: f64,
    /// Whether plans are deployed, or only kept for reading.
    pub apply: bool,
    /// Whether a plan that still holds may be replaced by a better one: not right after a change.
    pub may_improve: bool,
}

/// Why the round was made, in words.
#[derive(Clone, Debug)]
pub struct Round {
    /// The reason.
    pub why: String,
    /// Set it to stop the round.
    pub cancel: Arc<AtomicBool>,
}

struct Made {
    id: Uuid,
    row: PlanRow,
    reason: String,
    demand_qps: f64,
}

enum Verdict {
    Replace(Box<Made>),
    Keep(String),
    Fail(String),
}

/// Plans every wish, stores what was decided, and makes the new target if anything is to change. Answers which pipelines
/// got another plan.
///
/// # Errors
/// The database's, or another target came first.
pub async fn round(app: &App, fleet: &Fleet, wishes: &[Wish], round: &Round) -> Result<Vec<String>, ApplyError> {
    let (in_force, generation) = parts_in_force(app).await?;
    let hardware = hardware(app, fleet, &in_force, wishes).await?;
    let counts: BTreeMap<String, u32> = hardware.iter().filter_map(|h| Some((h.name.clone(), h.count?))).collect();
    let sizes: Vec<_> = wishes.iter().map(|w| (least_work(&w.spec, w.demand_qps), w.spec.tasks.len() as u32)).collect();
    let mut replaced = Vec::new();
    let mut plans: Vec<Uuid> = in_force_ids(&in_force);
    for (wish, part) in wishes.iter().zip(divide(&counts, &sizes)) {
        let hardware: Vec<HardwareSpec> = hardware
            .iter()
            .map(|h| HardwareSpec { count: part.get(&h.name).copied(), ..h.clone() })
            .filter(|h| h.count.unwrap_or(0) > 0)
            .collect();
        let current = in_force.iter().find(|(_, p)| p.name == wish.spec.name).map(|(_, p)| p);
        let verdict = decide(wish, hardware, current, round).await;
        let decision = match (&verdict, wish.apply) {
            (Verdict::Replace(_), true) => "applied",
            (Verdict::Replace(_), false) => "advised",
            (Verdict::Keep(_), _) => "kept",
            (Verdict::Fail(_), _) => "failed",
        };
        record(app, wish, &verdict, decision, round).await?;
        if let (Verdict::Replace(made), true) = (verdict, wish.apply) {
            plans.push(made.id);
            replaced.push(wish.spec.name.clone());
        }
    }
    if !replaced.is_empty() {
        let reason = format!("{} for {}", round.why, replaced.join(", "));
        let proposal = Proposal {
            plans,
            last_wins: true,
            replaces: Some(generation),
            partial: true,
            specs: Specs::Registered,
            reason,
        };
        apply(app, &proposal).await?;
    }
    Ok(replaced)
}

/// The parts of the target in force with their plans, and its generation.
async fn parts_in_force(app: &App) -> Result<(Vec<(Uuid, PipelinePlan)>, i64), ApplyError> {
    let mut db = app.pool.acquire().await?;
    let target = store::target::get(&mut db).await?;
    let mut parts: Vec<(Uuid, PipelinePlan)> = Vec::new();
    for id in target.plans {
        for part in load_plan(&mut db, id).await? {
            parts.retain(|(_, earlier)| earlier.name != part.name);
            parts.push((id, part));
        }
    }
    Ok((parts, target.generation))
}

fn in_force_ids(parts: &[(Uuid, PipelinePlan)]) -> Vec<Uuid> {
    let mut ids: Vec<Uuid> = Vec::new();
    for (id, _) in parts {
        if !ids.contains(id) {
            ids.push(*id);
        }
    }
    ids
}

/// Live hardware with its registered prices, less what pipelines hold that this round does not replan.
async fn hardware(
    app: &App,
    fleet: &Fleet,
    in_force: &[(Uuid, PipelinePlan)],
    wishes: &[Wish],
) -> Result<Vec<HardwareSpec>, ApplyError> {
    let mut db = app.pool.acquire().await?;
    let mut counts = fleet.counts();
    let planned = |name: &str| wishes.iter().any(|w| w.apply && w.spec.name == name);
    let others = in_force.iter().filter(|(_, part)| !planned(&part.name)).map(|(_, part)| part.clone()).collect();
    for (name, held) in (Plan { pipelines: others, cost_per_hour: 0.0 }).devices() {
        if let Some(count) = counts.get_mut(name) {
            *count = count.saturating_sub(held as u32);
        }
    }
    live_hardware(&mut db, counts).await.map_err(ApplyError::Database)
}

/// These hardware types with their registered prices and memory; a type that is not registered costs 1.
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

async fn decide(wish: &Wish, hardware: Vec<HardwareSpec>, current: Option<&PipelinePlan>, round: &Round) -> Verdict {
    if hardware.is_empty() {
        return Verdict::Fail("no live agent has a device for it".into());
    }
    let mut spec = wish.spec.clone();
    spec.demand_qps = wish.demand_qps;
    let mut document = match documents::problem_document(objective(), hardware, vec![spec]) {
        Ok(document) => document,
        Err(error) => return Verdict::Fail(error.to_string()),
    };
    let mut lowered = String::new();
    for _ in 0..LOWER_MAX {
        let problem = match documents::problem(&document) {
            Ok(problem) => problem,
            Err(error) => return Verdict::Fail(error.to_string()),
        };
        let demand_qps = problem.pipelines[0].demand_qps;
        let solved = match solve(&problem, options(wish), round).await {
            Ok(solved) => solved,
            Err(error) => return Verdict::Fail(error),
        };
        if let PlanOutcome::Infeasible { shortfalls } = &solved.outcome {
            let what = shortfalls.iter().map(|s| format!("{} at {}", s.constraint, s.place)).collect::<Vec<_>>().join(", ");
            if !shortfalls.iter().any(|s| s.constraint == Constraint::Capacity) {
                return Verdict::Fail(format!("no plan exists: {what}"));
            }
            let most = shortfalls.iter().filter_map(|s| s.relax.as_ref());
            let most = most.filter(|r| r.pointer.ends_with("/demand_qps")).map(|r| r.to * 0.999).next();
            let next = most.unwrap_or(demand_qps * 0.85).min(demand_qps * 0.999);
            document["pipelines"][0]["demand_qps"] = next.into();
            lowered = format!("; the devices cannot serve {:.1}/s, so it is made for the most they can", wish.demand_qps);
            continue;
        }
        let Some(plan) = solved.outcome.plan() else {
            return Verdict::Fail("the planner stopped without a plan".into());
        };
        let keep = match current {
            Some(current) => reason_to_keep(wish, &problem, current, plan, solved.attainment.unwrap_or(0.0)).await,
            None => Ok(None),
        };
        return match keep {
            Ok(Some(reason)) => Verdict::Keep(format!("{reason}{lowered}")),
            Ok(None) => {
                let reason = format!("{} replicas, accuracy {:.4}{lowered}", plan.replicas(), plan.pipelines[0].accuracy);
                Verdict::Replace(Box::new(made((document, options(wish)), &solved.document, reason, demand_qps)))
            }
            Err(error) => Verdict::Fail(error),
        };
    }
    Verdict::Fail("no demand was found that the devices can serve".into())
}

fn objective() -> ObjectiveSpec {
    ObjectiveSpec { mode: "hardware_then_accuracy".into(), latency_rule: None, budget_per_hour: None }
}

/// How a round's plan of a pipeline is solved.
fn options(wish: &Wish) -> PlanOptions {
    PlanOptions {
        time_limit_s: TIME_LIMIT_S,
        ladder: wish.spec.replan.as_ref().and_then(|replan| replan.ladder),
        ..PlanOptions::default()
    }
}

async fn solve(problem: &Problem, options: PlanOptions, round: &Round) -> Result<jobs::Solved, String> {
    let traces = vec![documents::steady(problem.pipelines[0].demand_qps, TRACE_S)];
    jobs::solve(Ask {
        problem: problem.clone(),
        options,
        traces,
        cancel: round.cancel.clone(),
        explain: false,
        listener: None,
    })
    .await
}

/// Why the plan in force stays, if it does.
async fn reason_to_keep(
    wish: &Wish,
    problem: &Problem,
    current: &PipelinePlan,
    best: &Plan,
    best_attainment: f64,
) -> Result<Option<String>, String> {
    let keep_qps = wish.keep_qps.min(problem.pipelines[0].demand_qps);
    let problem = &problem
        .changed(|draft| draft.pipelines[0] = draft.pipelines[0].with_demand(keep_qps))
        .expect("a problem with a lower demand");
    let plan = at_demand(current, problem);
    let pipeline = &problem.pipelines[0];
    let held = jobs::holds(problem.clone(), plan.clone(), vec![documents::steady(keep_qps, TRACE_S)]).await?;
    let asked = pipeline.percentile / 100.0;
    if !held.findings.is_empty() {
        return Ok(None);
    }
    if held.attainment < asked {
        let no_better = best_attainment <= held.attainment;
        let reason = || format!("the plan in force attains {:.4} and none does better", held.attainment);
        return Ok(no_better.then(reason));
    }
    let accuracy = (current.accuracy, best.pipelines[0].accuracy);
    let replicas = (plan.replicas() as f64, best.replicas() as f64);
    if accuracy.0 >= accuracy.1 * (1.0 - CLOSE_ENOUGH) && replicas.0 <= replicas.1 * (1.0 + CLOSE_ENOUGH) {
        return Ok(Some("the plan in force still holds and is within 5 % of the best".into()));
    }
    let too_soon = || "the plan in force still holds and is too young to be improved on".to_string();
    Ok((!wish.may_improve).then(too_soon))
}

/// The plan in force as a plan for the problem's demand. It claims neither cost nor utilisation: they are no longer its own.
fn at_demand(current: &PipelinePlan, problem: &Problem) -> Plan {
    let mut part = current.clone();
    part.demand_qps = problem.pipelines[0].demand_qps;
    part.assignments.iter_mut().for_each(|a| a.utilisation = 0.0);
    Plan { pipelines: vec![part], cost_per_hour: 0.0 }
}

fn made((problem, options): (Value, PlanOptions), document: &Value, reason: String, demand_qps: f64) -> Made {
    let id = Uuid::now_v7();
    let at = now();
    let row = PlanRow {
        id,
        state: "succeeded".into(),
        problem,
        options: serde_json::to_value(options).expect("options are JSON"),
        plan: Some(document.clone()),
        error: None,
        created_at: at,
        started_at: Some(at),
        finished_at: Some(at),
        progress: None,
    };
    Made { id, row, reason, demand_qps }
}

/// Stores the decision and the plan that it speaks of.
async fn record(app: &App, wish: &Wish, verdict: &Verdict, decision: &str, round: &Round) -> store::Result<()> {
    let (reason, plan, demand_qps) = match verdict {
        Verdict::Replace(made) => (&made.reason, Some(made.id), made.demand_qps),
        Verdict::Keep(reason) | Verdict::Fail(reason) => (reason, None, wish.demand_qps),
    };
    let reason = format!("{}: {reason}", round.why);
    tracing::info!(pipeline = wish.spec.name, decision, reason, demand_qps, "replanned");
    let mut tx = app.pool.begin().await?;
    if let Verdict::Replace(made) = verdict {
        store::plans::insert_finished(&mut tx, &made.row).await?;
    }
    let row = DecisionRow {
        id: Uuid::now_v7(),
        pipeline: wish.spec.name.clone(),
        decision: decision.into(),
        reason,
        demand_qps,
        plan,
        made_at: now(),
    };
    store::decisions::insert(&mut tx, &row).await?;
    tx.commit().await
}
