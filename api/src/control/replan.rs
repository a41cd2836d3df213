//! One round of replanning: a plan for each pipeline from the demand now, kept or replaced.
//!
//! Each pipeline is planned for as its `replan` settings ask: for which objective, and whether with a ladder. What becomes of the plan in force
//! is decided in [`super::keep`].

use super::apply::{ApplyError, Proposal, Specs, apply_to, load_plan};
use super::fleet::Fleet;
use super::keep::{Choice, Costs, choose};
use super::shares::{divide, least_work};
use crate::app::{App, now};
use crate::documents;
use crate::jobs::{self, Ask, PlanOptions};
use crate::store::{self, decisions::DecisionRow, plans::PlanRow};
use apportion_domain::{Constraint, Mode, PipelinePlan, Plan, PlanOutcome, Problem};
use apportion_planning::change::Loads;
use apportion_planning::ladder;
use apportion_wire::{HardwareSpec, ObjectiveSpec, PipelineSpec, ReplanSpec};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use uuid::Uuid;

/// Seconds of Poisson arrivals on which a plan must hold. 20 s show queues that build up; more would make a round slow.
pub(super) const TRACE_S: u64 = 20;
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
    /// Loads seen last, by which costs are compared.
    pub loads: Loads,
    /// Whether plans are deployed, or only kept for reading.
    pub apply: bool,
    /// Whether a plan that still holds may be replaced by a better one: not right after a change. Where costs decide, the change
    /// has its price instead.
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
    row: PlanRow,
    reason: String,
    demand_qps: f64,
    costs: Option<Costs>,
}

enum Verdict {
    Replace(Box<Made>),
    Keep(String, Option<Costs>),
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
            (Verdict::Keep(..), _) => "kept",
            (Verdict::Fail(_), _) => "failed",
        };
        record(app, wish, &verdict, decision, round).await?;
        if let (Verdict::Replace(made), true) = (verdict, wish.apply) {
            plans.push(made.row.id);
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
        apply_to(app, &proposal, Some(&fleet.numbers())).await?;
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
    let mut document = match documents::problem_document(objective(wish), hardware, vec![spec]) {
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
            let budget = problem.objective.budget_per_hour.map_or("", |_| " within the budget");
            lowered =
                format!("; the devices cannot serve {:.1}/s{budget}, so it is made for the most they can", wish.demand_qps);
            continue;
        }
        let Some(plan) = solved.outcome.plan() else {
            return Verdict::Fail("the planner stopped without a plan".into());
        };
        let choice = match current {
            Some(current) => choose(wish, &problem, current, (plan, solved.attainment.unwrap_or(0.0))).await.map(Some),
            None => Ok(None),
        };
        return match choice {
            Ok(Some(Choice { keep: true, why, costs })) => Verdict::Keep(format!("{why}{lowered}"), costs),
            Ok(choice) => {
                let reason = format!("{}{lowered}", described(&problem, plan, choice.as_ref()));
                let row = row(document, &options(wish), solved.document);
                Verdict::Replace(Box::new(Made { row, reason, demand_qps, costs: choice.and_then(|choice| choice.costs) }))
            }
            Err(error) => Verdict::Fail(error),
        };
    }
    Verdict::Fail("no demand was found that the devices can serve".into())
}

/// What a new plan is like, and why it replaces another.
fn described(problem: &Problem, plan: &Plan, choice: Option<&Choice>) -> String {
    let part = &plan.pipelines[0];
    let mut text = format!("{} replicas, accuracy {:.4}", plan.replicas(), part.accuracy);
    if problem.objective.mode == Mode::MinCost {
        text += &format!(", {:.4} per hour at its demand", ladder::price_at(problem, part, part.demand_qps));
    }
    choice.map_or(text.clone(), |choice| format!("{text}; {}", choice.why))
}

fn settings(wish: &Wish) -> ReplanSpec {
    wish.spec.replan.clone().unwrap_or_default()
}

fn objective(wish: &Wish) -> ObjectiveSpec {
    settings(wish).objective.unwrap_or_default()
}

/// How a round's plan of a pipeline is solved.
fn options(wish: &Wish) -> PlanOptions {
    let ReplanSpec { ladder, ladder_headroom, .. } = settings(wish);
    PlanOptions { time_limit_s: TIME_LIMIT_S, ladder, ladder_headroom, ..PlanOptions::default() }
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

/// A plan as if it had been asked for.
fn row(problem: Value, options: &PlanOptions, document: Value) -> PlanRow {
    let at = now();
    PlanRow {
        id: Uuid::now_v7(),
        state: "succeeded".into(),
        problem,
        options: serde_json::to_value(options).expect("options are JSON"),
        plan: Some(document),
        error: None,
        created_at: at,
        started_at: Some(at),
        finished_at: Some(at),
        progress: None,
    }
}

/// Stores the decision and the plan that it speaks of.
async fn record(app: &App, wish: &Wish, verdict: &Verdict, decision: &str, round: &Round) -> store::Result<()> {
    let (reason, plan, demand_qps, costs) = match verdict {
        Verdict::Replace(made) => (&made.reason, Some(made.row.id), made.demand_qps, made.costs),
        Verdict::Keep(reason, costs) => (reason, None, wish.demand_qps, *costs),
        Verdict::Fail(reason) => (reason, None, wish.demand_qps, None),
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
        costs: costs.map(|costs| serde_json::to_value(costs).expect("costs are JSON")),
        made_at: now(),
    };
    store::decisions::insert(&mut tx, &row).await?;
    tx.commit().await
}
