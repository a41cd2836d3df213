//! The one way to a new target: plans, specs and fleet are put together and replace the target by compare-and-set.

use super::compose::{ComposeError, PipelineFacts, compose, wanted};
use super::fleet::Fleet;
use super::reconcile::{Placement, Shortage, reconcile};
use crate::app::{App, now};
use crate::documents;
use crate::store::{self, PgConnection, target::TargetRow};
use apportion_domain::{Fence, Generation, PipelinePlan};
use apportion_wire::{BadInput, PipelineSpec};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Where the specs of the plans' pipelines come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specs {
    /// As registered now.
    Registered,
    /// As they were when the target in force was made: only the fleet has changed.
    InForce,
}

/// A wish for a new target.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The plans; where two speak of one pipeline the later counts, if `last_wins`.
    pub plans: Vec<Uuid>,
    /// Whether a later plan may replace an earlier one's pipeline; else that is an error.
    pub last_wins: bool,
    /// The generation that it replaces; `None`: whichever is in force.
    pub replaces: Option<i64>,
    /// Whether replicas may be missing for want of devices.
    pub partial: bool,
    /// Where specs come from.
    pub specs: Specs,
    /// Why, in a sentence.
    pub reason: String,
}

/// Why there is no new target.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The database's.
    #[error("the database did not do it")]
    Database(#[from] store::Error),
    /// Another target came first.
    #[error("the target's generation is {0} by now")]
    Stale(i64),
    /// A plan is not there or has not succeeded.
    #[error("plan {plan}: {state}")]
    Plan {
        /// The plan.
        plan: Uuid,
        /// Its state, or that it is unknown.
        state: String,
    },
    /// The plans do not go together with the pipelines.
    #[error(transparent)]
    Compose(#[from] ComposeError),
    /// A stored document cannot be used.
    #[error(transparent)]
    Document(#[from] BadInput),
    /// No agent could serve it: nobody knows what a request has to bring or what it gets.
    #[error(
        "pipeline {pipeline}: task {task} has no {what}: expected them in the pipeline (`tasks[].{what}`), or in its profile, \
         which takes them from the model files"
    )]
    Tensors {
        /// The pipeline.
        pipeline: String,
        /// The task.
        task: String,
        /// `inputs` or `outputs`.
        what: &'static str,
    },
    /// There are not enough devices.
    #[error("{}", describe(.0))]
    Devices(Vec<Shortage>),
}

/// What is missing, in words.
#[must_use]
pub fn describe(shortages: &[Shortage]) -> String {
    let one = |s: &Shortage| {
        let missing = s.wanted - s.placed;
        let (key, hardware) = (&s.key, &s.key.group.hardware);
        let refused = match s.refused {
            0 => String::new(),
            n => format!(" but {n} on which one could not be loaded (GET /v1/agents has the reasons)"),
        };
        format!(
            "{missing} of {} replicas of {}/{} have no live {hardware} device{refused}",
            s.wanted, key.pipeline, key.group
        )
    };
    shortages.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// What became the target.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Its generation.
    pub generation: i64,
    /// Whether it is new; an unchanged target keeps its generation.
    pub changed: bool,
    /// What found no device, if that was allowed.
    pub shortages: Vec<Shortage>,
}

/// Makes and commits the target, and hands it to the streams of this process.
///
/// # Errors
/// If it is stale, does not fit together or finds no devices; then nothing has changed.
pub async fn apply(app: &App, proposal: &Proposal) -> Result<Applied, ApplyError> {
    apply_to(app, proposal, None).await
}

/// The same for these agents, whether they are live or not; `None`: for the live ones.
///
/// # Errors
/// As [`apply`]; also if there is nobody and the proposal may lack devices: a target that loses all agents helps nobody.
pub async fn apply_to(app: &App, proposal: &Proposal, members: Option<&BTreeSet<u64>>) -> Result<Applied, ApplyError> {
    let mut tx = app.pool.begin().await?;
    let applied = apply_in(&mut tx, proposal, members).await?;
    tx.commit().await?;
    if applied.changed {
        tracing::info!(generation = applied.generation, reason = proposal.reason, "new target");
        super::push::refresh(app).await?;
    }
    Ok(applied)
}

async fn apply_in(
    tx: &mut PgConnection,
    proposal: &Proposal,
    members: Option<&BTreeSet<u64>>,
) -> Result<Applied, ApplyError> {
    let current = store::target::get(&mut *tx).await?;
    if proposal.replaces.is_some_and(|g| g != current.generation) {
        return Err(ApplyError::Stale(current.generation));
    }
    let (ids, parts) = load_parts(tx, proposal).await?;
    let specs = load_specs(tx, proposal.specs, &current, &parts).await?;
    let facts = specs.iter().map(|(name, spec)| Ok((name.clone(), documents::facts(spec)?)));
    let facts: BTreeMap<String, PipelineFacts> = facts.collect::<Result<_, BadInput>>()?;
    if proposal.specs == Specs::Registered {
        // What is in force already stays, whatever earlier releases let through.
        facts.values().try_for_each(have_tensors)?;
    }
    let agents = store::agents::list(&mut *tx).await?;
    let fleet = match members {
        Some(members) => Fleet::of(agents, members),
        None => Fleet::new(agents),
    };
    let mut before: Placement = serde_json::from_value(current.placement.clone()).unwrap_or_else(|error| {
        tracing::error!(%error, "the stored placement cannot be read; everything is placed afresh");
        // Numbers must not be used again, and every one so far is below this: each target takes few.
        Placement { next_id: (current.generation as u64 + 1) << 32, ..Placement::default() }
    });
    match proposal.specs {
        Specs::InForce => before.refuse(&fleet.failed()),
        // Who applies plans gives everything another chance.
        Specs::Registered => before.refused.clear(),
    }
    let (placement, shortages) = reconcile(&before, &wanted(&parts, &facts)?, &fleet.devices());
    let is_emptied = fleet.is_empty() && !before.replicas.is_empty();
    if !shortages.is_empty() && (!proposal.partial || is_emptied) {
        return Err(ApplyError::Devices(shortages));
    }
    let fence =
        |generation: i64| Fence { incarnation: current.incarnation as u64, generation: Generation(generation as u64) };
    let compose_as = |generation| compose(fence(generation), fleet.peers(), &parts, &facts, &placement);
    let same = current.generation > 0 && compose_as(current.generation)?.encode_to_vec() == current.composed;
    if same && ids == current.plans {
        return Ok(Applied { generation: current.generation, changed: false, shortages });
    }
    let generation = current.generation + 1;
    let next = TargetRow {
        incarnation: current.incarnation,
        generation,
        plans: ids,
        placement: serde_json::to_value(&placement).expect("a placement is JSON"),
        specs: serde_json::to_value(&specs).expect("specs are JSON"),
        composed: compose_as(generation)?.encode_to_vec(),
        reason: proposal.reason.clone(),
        committed_at: Some(now()),
    };
    if !store::target::replace(tx, &next).await? {
        return Err(ApplyError::Stale(store::target::get(tx).await?.generation));
    }
    Ok(Applied { generation, changed: true, shortages })
}

/// Every task says what it takes and what it gives.
fn have_tensors(facts: &PipelineFacts) -> Result<(), ApplyError> {
    for (task, (inputs, outputs)) in facts.pipeline.tasks.iter().zip(&facts.tensors) {
        for (what, list) in [("inputs", inputs), ("outputs", outputs)] {
            if list.is_empty() {
                let (pipeline, task) = (facts.pipeline.name.clone(), task.name.clone());
                return Err(ApplyError::Tensors { pipeline, task, what });
            }
        }
    }
    Ok(())
}

/// The plans' parts, one for each pipeline, and the plans that contribute any.
async fn load_parts(tx: &mut PgConnection, proposal: &Proposal) -> Result<(Vec<Uuid>, Vec<PipelinePlan>), ApplyError> {
    let mut parts: Vec<(Uuid, PipelinePlan)> = Vec::new();
    for &id in &proposal.plans {
        for part in load_plan(tx, id).await? {
            if proposal.last_wins {
                parts.retain(|(_, earlier)| earlier.name != part.name);
            }
            parts.push((id, part));
        }
    }
    let mut ids = proposal.plans.clone();
    ids.retain(|id| parts.iter().any(|(of, _)| of == id));
    Ok((ids, parts.into_iter().map(|(_, part)| part).collect()))
}

/// The pipelines of one stored plan.
///
/// # Errors
/// If it is not there, has not succeeded or cannot be read.
pub async fn load_plan(db: &mut PgConnection, id: Uuid) -> Result<Vec<PipelinePlan>, ApplyError> {
    let unusable = |state: &str| ApplyError::Plan { plan: id, state: state.to_string() };
    let row = store::plans::get(db, id).await?.ok_or_else(|| unusable("there is no such plan"))?;
    match row.plan {
        Some(document) if row.state == "succeeded" => {
            Ok(apportion_wire::read_plan(&format!("plan {id}"), &document.to_string())?.pipelines)
        }
        _ => Err(unusable(&format!("it is {}, not succeeded", row.state))),
    }
}

async fn load_specs(
    tx: &mut PgConnection,
    source: Specs,
    current: &TargetRow,
    parts: &[PipelinePlan],
) -> Result<BTreeMap<String, PipelineSpec>, ApplyError> {
    let in_force: BTreeMap<String, PipelineSpec> = match source {
        Specs::InForce => serde_json::from_value(current.specs.clone()).unwrap_or_default(),
        Specs::Registered => BTreeMap::new(),
    };
    let mut specs = BTreeMap::new();
    for part in parts {
        let spec = match in_force.get(&part.name) {
            Some(spec) => spec.clone(),
            // Shared: nobody deletes it before the target that has it is committed.
            None => match store::pipelines::share(tx, &part.name).await? {
                Some(row) => documents::measured(&row)?,
                None => return Err(ComposeError::Pipeline(part.name.clone()).into()),
            },
        };
        specs.insert(part.name.clone(), spec);
    }
    Ok(specs)
}
