//! How is the fleet's target replaced? Plans, specs and fleet make a new target, and compare-and-set stores it.
//!
//! This is the only way to a new target.

use super::agent_facts::agent_facts;
use super::offer_facts::{add_registered_hardware, add_registered_settings, offers};
use super::teams::{breaches_of, limited_projects};
use crate::app::{App, now};
use crate::decide::fleet::Fleet;
use crate::decide::on_demand::{OnDemandChange, place_with_offers};
use crate::decide::placement::{Placement, PlacementOutcome, Shortage};
use crate::decide::projects::QuotaBreach;
use crate::decide::target::{ComposeError, PipelineFacts, compose, wanted_groups};
use crate::documents;
use crate::store::{self, PgConnection, holds::FLEET, holds::HoldRow, leases::HeldLease, target::TargetRow};
use apportion_domain::{Assignment, Fence, Generation, PipelinePlan};
use apportion_wire::{BadInput, PipelineSpec, PlanState};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Where the specs of the plans' pipelines come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecSource {
    /// As registered now.
    Registered,
    /// As they were when the target in force was made: only the fleet has changed.
    InForce,
}

/// What happens if two plans have the same pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicatePipelines {
    /// The later plan counts.
    LastWins,
    /// It is an error.
    Refused,
}

/// What happens if replicas find no device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingDevices {
    /// The target is made without them.
    Allowed,
    /// It is an error.
    Refused,
}

/// A proposal for a new target.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The plans.
    pub plans: Vec<Uuid>,
    /// What happens if two of them have the same pipeline.
    pub duplicates: DuplicatePipelines,
    /// The generation that it replaces; `None`: whichever is in force.
    pub replaces: Option<i64>,
    /// What happens if replicas find no device.
    pub missing_devices: MissingDevices,
    /// Where the specs come from.
    pub specs: SpecSource,
    /// The replicas that are loaded or unloaded for requests.
    pub on_demand: OnDemandChange,
    /// The reason in one sentence.
    pub reason: String,
    /// A hold that begins with the target.
    pub hold: Option<HoldRow>,
    /// Pipelines whose holds, and that of the fleet, forbid the target; none: holds do not matter.
    pub heeds_holds_of: Vec<String>,
    /// The lease under which it is made; `None`: by a person.
    pub lease: Option<HeldLease>,
}

/// Why there is no new target.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The database's.
    #[error("the database did not answer")]
    Database(#[from] store::Error),
    /// Another target came first.
    #[error("the target's generation is {0} by now")]
    Stale(i64),
    /// A plan does not exist or has not succeeded.
    #[error("plan {plan}: {state}")]
    Plan {
        /// The plan.
        plan: Uuid,
        /// Its state, or that it is unknown.
        state: String,
    },
    /// The plans and the pipelines do not fit together.
    #[error(transparent)]
    Compose(#[from] ComposeError),
    /// A stored document cannot be used.
    #[error(transparent)]
    Document(#[from] BadInput),
    /// The inputs or outputs of a task are unknown, so no agent can serve it.
    #[error(
        "pipeline {pipeline}: task {task} has no {what}: expected them in the pipeline (`tasks[].{what}`), or in its \
         profile, which takes them from the model files"
    )]
    Tensors {
        /// The pipeline.
        pipeline: String,
        /// The task.
        task: String,
        /// `inputs` or `outputs`.
        what: &'static str,
    },
    /// Another process does this work by now.
    #[error("another process has the lease {0:?} by now")]
    LeaseLost(&'static str),
    /// A hold is in force.
    #[error("nothing is deployed for {0} now: a hold is in force")]
    Held(String),
    /// Quotas of projects would be exceeded.
    #[error("{}", describe_breaches(.0))]
    Quota(Vec<QuotaBreach>),
    /// There are not enough devices.
    #[error("{}", describe(.0))]
    Devices(Vec<Shortage>),
}

/// Refuses to go on unless the process still has the lease. Nobody else can take it before the transaction ends.
///
/// # Errors
/// Another process has the lease, or the database does not answer.
pub async fn fence(tx: &mut store::PgConnection, held: HeldLease) -> Result<(), ApplyError> {
    match store::leases::fence(tx, held).await? {
        true => Ok(()),
        false => Err(ApplyError::LeaseLost(held.name)),
    }
}

fn describe_breaches(breaches: &[QuotaBreach]) -> String {
    breaches.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Describes the missing devices.
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

/// The result of a proposal.
#[derive(Clone, Debug)]
pub struct ProposalResult {
    /// Its generation.
    pub generation: i64,
    /// Whether the target is new. An unchanged target keeps its generation.
    pub changed: bool,
    /// Groups for which devices are missing, if that is allowed.
    pub shortages: Vec<Shortage>,
}

/// Makes and commits a target for the live agents, and pushes it to the streams of this process.
///
/// # Errors
/// If the proposal is stale, does not fit together or finds no devices. Then nothing has changed.
pub async fn apply(app: &App, proposal: &Proposal) -> Result<ProposalResult, ApplyError> {
    apply_to(app, proposal, None).await
}

/// Makes and commits a target for these agents, live or not; `None`: for the live agents.
///
/// # Errors
/// As [`apply`]. Also if the target would lose all its agents: it would be useless.
pub async fn apply_to(
    app: &App,
    proposal: &Proposal,
    members: Option<&BTreeSet<u64>>,
) -> Result<ProposalResult, ApplyError> {
    let mut tx = app.pool.begin().await?;
    let applied = apply_in(&mut tx, proposal, members).await?;
    if let Some(hold) = &proposal.hold {
        store::holds::extend(&mut tx, hold).await?;
    }
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
) -> Result<ProposalResult, ApplyError> {
    if let Some(held) = proposal.lease {
        fence(tx, held).await?;
    }
    check_holds(tx, &proposal.heeds_holds_of).await?;
    let PreparedTarget { next, changed, shortages, .. } = prepare(tx, proposal, members).await?;
    if changed && !store::target::replace(tx, &next).await? {
        return Err(ApplyError::Stale(store::target::get(tx).await?.generation));
    }
    Ok(ProposalResult { generation: next.generation, changed, shortages })
}

/// Refuses a target for pipelines that are held. A hold that comes later waits for the end of the transaction.
pub(super) async fn check_holds(tx: &mut PgConnection, pipelines: &[String]) -> Result<(), ApplyError> {
    if pipelines.is_empty() {
        return Ok(());
    }
    store::holds::lock(tx).await?;
    let holds = store::holds::in_force(tx, now()).await?;
    let is_held = |name: &&String| holds.iter().any(|hold| hold.pipeline == FLEET || hold.pipeline == **name);
    pipelines.iter().find(is_held).map_or(Ok(()), |name| Err(ApplyError::Held(name.clone())))
}

/// A target that is not committed.
pub(super) struct PreparedTarget {
    /// The target in force.
    pub(super) current: TargetRow,
    /// The target of the proposal; the one in force if nothing changes.
    pub(super) next: TargetRow,
    /// Whether it differs from the one in force.
    pub(super) changed: bool,
    /// Its parts, one for each pipeline.
    pub(super) parts: Vec<PipelinePlan>,
    /// Its placement.
    pub(super) placement: Placement,
    /// The facts of its pipelines.
    pub(super) facts: BTreeMap<String, PipelineFacts>,
    /// Groups for which devices are missing.
    pub(super) shortages: Vec<Shortage>,
}

/// Makes the target of a proposal.
///
/// # Errors
/// As [`apply`].
pub(super) async fn prepare(
    tx: &mut PgConnection,
    proposal: &Proposal,
    members: Option<&BTreeSet<u64>>,
) -> Result<PreparedTarget, ApplyError> {
    let current = store::target::get(&mut *tx).await?;
    if proposal.replaces.is_some_and(|g| g != current.generation) {
        return Err(ApplyError::Stale(current.generation));
    }
    let PlanParts { plans, parts, with_feedback } = load_proposed(tx, proposal).await?;
    let specs = load_specs(tx, proposal.specs, &current, &parts).await?;
    check_quotas(tx, proposal.specs, &current, &parts, &specs).await?;
    let mut facts = load_facts(&specs, proposal.specs)?;
    facts.iter_mut().for_each(|(name, of)| of.has_feedback = with_feedback.contains(name));
    let memory = add_registered_hardware(tx, &mut facts).await?;
    let fleet = load_fleet(tx, members).await?;
    let (before, devices) = (placement_before(&current, proposal.specs, &fleet), fleet.devices());
    let on_offer = offers(&specs, &facts, &devices);
    let placed = place_with_offers(&before, &wanted_groups(&parts, &facts)?, &on_offer, &devices);
    let PlacementOutcome { mut placement, shortages } = placed;
    let in_force = with_loads(&parts, &placement);
    proposal.on_demand.carry_out(&mut placement, &devices, &memory);
    if matches!(proposal.on_demand, OnDemandChange::Load(_)) {
        let projects = limited_projects(tx).await?;
        let breaches = breaches_of(tx, &projects, &with_loads(&parts, &placement), &specs, &in_force).await?;
        if !breaches.is_empty() {
            return Err(ApplyError::Quota(breaches));
        }
    }
    let is_emptied = fleet.is_empty() && !before.replicas.is_empty();
    if !shortages.is_empty() && (proposal.missing_devices == MissingDevices::Refused || is_emptied) {
        return Err(ApplyError::Devices(shortages));
    }
    let fence =
        |generation: i64| Fence { incarnation: current.incarnation as u64, generation: Generation(generation as u64) };
    let compose_as = |generation| compose(fence(generation), fleet.peers(), &parts, &facts, &placement);
    let is_same = current.generation > 0 && compose_as(current.generation)?.encode_to_vec() == current.composed;
    if is_same && plans == current.plans {
        let next = current.clone();
        return Ok(PreparedTarget { current, next, changed: false, parts, placement, facts, shortages });
    }
    let generation = current.generation + 1;
    let next = TargetRow {
        incarnation: current.incarnation,
        generation,
        plans,
        placement: serde_json::to_value(&placement).expect("a placement is JSON"),
        specs: serde_json::to_value(&specs).expect("specs are JSON"),
        composed: compose_as(generation)?.encode_to_vec(),
        reason: proposal.reason.clone(),
        committed_at: Some(now()),
    };
    Ok(PreparedTarget { current, next, changed: true, parts, placement, facts, shortages })
}

/// Refuses parts that exceed the quota of a project. A target that only follows the fleet has the parts in force.
async fn check_quotas(
    tx: &mut PgConnection,
    source: SpecSource,
    current: &TargetRow,
    parts: &[PipelinePlan],
    specs: &BTreeMap<String, PipelineSpec>,
) -> Result<(), ApplyError> {
    if source == SpecSource::InForce {
        return Ok(());
    }
    let projects = limited_projects(tx).await?;
    if projects.is_empty() {
        return Ok(());
    }
    let in_force = load_parts(tx, &current.plans, DuplicatePipelines::LastWins).await?.parts;
    let breaches = breaches_of(tx, &projects, parts, specs, &in_force).await?;
    if breaches.is_empty() { Ok(()) } else { Err(ApplyError::Quota(breaches)) }
}

/// These parts with the replicas that requests have loaded.
fn with_loads(parts: &[PipelinePlan], placement: &Placement) -> Vec<PipelinePlan> {
    let mut all = parts.to_vec();
    for replica in &placement.replicas {
        let offered = placement.offered.iter().find(|group| group.id == replica.group);
        let Some((group, key)) = offered.and_then(|group| Some((group, group.key()?.group))) else { continue };
        let loaded =
            Assignment { group: key, batch: 1, replicas: 1, traffic_share: 0.0, latency_budget_ms: 0.0, utilisation: 0.0 };
        let of_pipeline = all.iter_mut().filter(|part| part.name == group.pipeline);
        of_pipeline.for_each(|part| part.assignments.push(loaded.clone()));
    }
    all
}

/// The facts of every pipeline. Registered specs must name the tensors of each task.
fn load_facts(
    specs: &BTreeMap<String, PipelineSpec>,
    source: SpecSource,
) -> Result<BTreeMap<String, PipelineFacts>, ApplyError> {
    let facts = specs.iter().map(|(name, spec)| Ok((name.clone(), documents::facts(spec)?)));
    let facts: BTreeMap<String, PipelineFacts> = facts.collect::<Result<_, BadInput>>()?;
    if source == SpecSource::Registered {
        // A target in force stays, even if an older release allowed it without tensors.
        facts.values().try_for_each(check_tensors)?;
    }
    Ok(facts)
}

/// The agents with these numbers; `None`: the live agents.
async fn load_fleet(tx: &mut PgConnection, members: Option<&BTreeSet<u64>>) -> store::Result<Fleet> {
    let agents = store::agents::list(tx).await?.iter().map(agent_facts).collect();
    Ok(match members {
        Some(members) => Fleet::members(agents, members),
        None => Fleet::live(agents),
    })
}

/// The placement in force, with the devices that replicas may not use.
fn placement_before(current: &TargetRow, specs: SpecSource, fleet: &Fleet) -> Placement {
    let mut placement: Placement = serde_json::from_value(current.placement.clone()).unwrap_or_else(|error| {
        tracing::error!(%error, "the stored placement cannot be read; all replicas are placed again");
        // Numbers must not be used again. Every number so far is below this one, because each target takes few.
        Placement { next_id: (current.generation as u64 + 1) << 32, ..Placement::default() }
    });
    match specs {
        SpecSource::InForce => placement.refuse_failed(&fleet.failed()),
        // New plans give every device another chance.
        SpecSource::Registered => placement.refused.clear(),
    }
    placement
}

/// Refuses a task without inputs or outputs.
fn check_tensors(facts: &PipelineFacts) -> Result<(), ApplyError> {
    for (task, tensors) in facts.pipeline.tasks.iter().zip(&facts.tensors) {
        for (what, list) in [("inputs", &tensors.inputs), ("outputs", &tensors.outputs)] {
            if list.is_empty() {
                let (pipeline, task) = (facts.pipeline.name.clone(), task.name.clone());
                return Err(ApplyError::Tensors { pipeline, task, what });
            }
        }
    }
    Ok(())
}

/// The part of a stored plan that serves one pipeline.
#[derive(Clone, Debug)]
pub struct PlanPart {
    /// The stored plan.
    pub plan: Uuid,
    /// Its part.
    pub part: PipelinePlan,
}

/// The parts of several plans.
struct PlanParts {
    /// The plans that contribute a part.
    plans: Vec<Uuid>,
    /// Their parts, one for each pipeline.
    parts: Vec<PipelinePlan>,
    /// The pipelines whose plans name no headroom of their ladders: the misses move it.
    with_feedback: BTreeSet<String>,
}

/// The parts of a proposal's plans. Nobody deletes these plans before the transaction ends.
async fn load_proposed(tx: &mut PgConnection, proposal: &Proposal) -> Result<PlanParts, ApplyError> {
    for &plan in &proposal.plans {
        store::plans::keep(&mut *tx, plan).await?;
    }
    load_parts(tx, &proposal.plans, proposal.duplicates).await
}

async fn load_parts(
    tx: &mut PgConnection,
    plans: &[Uuid],
    duplicates: DuplicatePipelines,
) -> Result<PlanParts, ApplyError> {
    let mut parts: Vec<PlanPart> = Vec::new();
    let mut constant = BTreeSet::new();
    for &plan in plans {
        let stored = load_stored(tx, plan).await?;
        constant.extend(stored.has_constant_headroom.then_some(plan));
        for part in stored.pipelines {
            if duplicates == DuplicatePipelines::LastWins {
                parts.retain(|earlier| earlier.part.name != part.name);
            }
            parts.push(PlanPart { plan, part });
        }
    }
    let mut plans = plans.to_vec();
    plans.retain(|plan| parts.iter().any(|p| p.plan == *plan));
    let followed = parts.iter().filter(|p| !constant.contains(&p.plan));
    let with_feedback = followed.map(|p| p.part.name.clone()).collect();
    Ok(PlanParts { plans, parts: parts.into_iter().map(|p| p.part).collect(), with_feedback })
}

/// The pipelines of one stored plan.
///
/// # Errors
/// If the plan does not exist, has not succeeded or cannot be read.
pub async fn load_plan(db: &mut PgConnection, id: Uuid) -> Result<Vec<PipelinePlan>, ApplyError> {
    Ok(load_stored(db, id).await?.pipelines)
}

/// A stored plan that has succeeded.
struct StoredPlan {
    pipelines: Vec<PipelinePlan>,
    /// Whether its options name the headroom of its ladders.
    has_constant_headroom: bool,
}

async fn load_stored(db: &mut PgConnection, id: Uuid) -> Result<StoredPlan, ApplyError> {
    let unusable = |state: &str| ApplyError::Plan { plan: id, state: state.to_string() };
    let row = store::plans::get(db, id).await?.ok_or_else(|| unusable("there is no such plan"))?;
    match row.plan {
        Some(document) if row.state == PlanState::Succeeded => {
            let pipelines = apportion_wire::read_plan(&format!("plan {id}"), &document.to_string())?.pipelines;
            Ok(StoredPlan { pipelines, has_constant_headroom: !row.options["ladder_headroom"].is_null() })
        }
        _ => Err(unusable(&format!("it is {}, not succeeded", row.state))),
    }
}

async fn load_specs(
    tx: &mut PgConnection,
    source: SpecSource,
    current: &TargetRow,
    parts: &[PipelinePlan],
) -> Result<BTreeMap<String, PipelineSpec>, ApplyError> {
    let mut specs: BTreeMap<String, PipelineSpec> = match source {
        SpecSource::InForce => serde_json::from_value(current.specs.clone()).unwrap_or_default(),
        SpecSource::Registered => BTreeMap::new(),
    };
    specs.retain(|name, _| parts.iter().any(|part| part.name == *name));
    add_registered_settings(tx, &mut specs).await?;
    for part in parts {
        if specs.contains_key(&part.name) {
            continue;
        }
        // The shared lock keeps the row until the target is committed.
        let row = store::pipelines::share(tx, &part.name).await?;
        let row = row.ok_or_else(|| ComposeError::Pipeline(part.name.clone()))?;
        specs.insert(part.name.clone(), documents::measured(&row)?);
    }
    Ok(specs)
}
