//! How do workloads on Kubernetes follow the advice for pipelines without agents?
//!
//! Each second the process with the lease compares the plan of each such pipeline with what its watches show, and asks
//! [`apportion_kubernetes::next_turn`] for the next changes. What it does with a workload is written down first, so another
//! process, or this one after a restart, knows its own replicas from others'.

use super::apply::{ApplyError, check_holds, fence};
use super::lease::work_while_held;
use super::replanned::{DemandOrigin, replanned_spec};
use crate::app::parts::ServicePart;
use crate::app::{App, now};
use crate::decide::workloads::{WorkloadGroup, workload_goals, workload_name};
use crate::store::workloads::WorkloadRow;
use crate::store::{self, Time, advice::AdviceRow, decisions::DecisionRow, leases::HeldLease};
use apportion_kubernetes::{
    KubernetesClient, KubernetesError, RolloutLimits, ScaleChange, Watches, WorkloadGoal, WorkloadKind, WorkloadMemory,
    WorkloadName, WorkloadState, next_turn,
};
use apportion_wire::{DecisionKind, KubernetesSpec};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

/// The lease of the process that scales workloads.
const ACTUATOR: &str = "actuator";
/// The kind of its events.
pub const WORKLOAD_EVENT: &str = "workload";
/// Pause between two looks.
const TURN_EVERY: Duration = Duration::from_secs(1);

/// Scales workloads whenever no other process does, until the service stops.
pub async fn run(app: App, cluster: KubernetesClient) {
    work_while_held(&app, ACTUATOR, ServicePart::Actuator, |lease| actuate(&app, &cluster, lease)).await;
}

async fn actuate(app: &App, cluster: &KubernetesClient, lease: HeldLease) -> Result<(), ApplyError> {
    let (watches, told) = (Watches::new(cluster.clone()), BTreeMap::new());
    let mut actuator = Actuator { app: app.clone(), cluster: cluster.clone(), watches, lease, told };
    loop {
        actuator.take_turn().await?;
        tokio::time::sleep(TURN_EVERY).await;
    }
}

/// A pipeline whose workloads follow its advice.
struct ActingPipeline {
    name: String,
    version: i64,
    settings: KubernetesSpec,
    advice: AdviceRow,
}

/// The state of a pipeline's workloads, as it was told last.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WorkloadsState {
    /// Changes are under way.
    Moving,
    /// They follow the plan.
    Following,
    /// They do not, for this reason.
    Stopped(String),
    /// They would be changed so, but for the dry run.
    DryRun(String),
}

struct Actuator {
    app: App,
    cluster: KubernetesClient,
    watches: Watches,
    lease: HeldLease,
    told: BTreeMap<String, WorkloadsState>,
}

impl Actuator {
    async fn take_turn(&mut self) -> Result<(), ApplyError> {
        let pipelines = self.read_pipelines().await?;
        self.told.retain(|name, _| pipelines.iter().any(|pipeline| pipeline.name == *name));
        let names: Vec<_> = pipelines.iter().flat_map(|one| &one.settings.workloads).map(workload_name).collect();
        let followed = self.watches.follow(names.iter()).map_err(|error| error.to_string());
        for pipeline in &pipelines {
            let state = match &followed {
                Ok(()) => self.turn_of(pipeline).await?,
                Err(why) => Some(WorkloadsState::Stopped(why.clone())),
            };
            if let Some(state) = state {
                self.tell(pipeline, state).await?;
            }
            self.app.parts.note_alive(ServicePart::Actuator);
        }
        self.app.parts.note_alive(ServicePart::Actuator);
        Ok(())
    }

    /// The pipelines with workloads and advice.
    async fn read_pipelines(&self) -> Result<Vec<ActingPipeline>, ApplyError> {
        let mut db = self.app.pool.acquire().await?;
        let rows = store::pipelines::with_workloads(&mut db).await?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let advice = store::advice::list(&mut db).await?;
        let acting = rows.iter().filter_map(|row| {
            let settings = replanned_spec(row, DemandOrigin::Elsewhere)?.replan?.kubernetes?;
            let advice = advice.iter().find(|advice| advice.pipeline == row.name && advice.document.is_some())?.clone();
            Some(ActingPipeline { name: row.name.clone(), version: row.version, settings, advice })
        });
        Ok(acting.collect())
    }

    /// One turn of one pipeline: the state to be told, or none if there is no news.
    async fn turn_of(&self, pipeline: &ActingPipeline) -> Result<Option<WorkloadsState>, ApplyError> {
        let groups: Vec<_> = pipeline.advice.groups().map(planned_group).collect();
        let goals = match workload_goals(&pipeline.settings, &groups) {
            Ok(goals) => goals,
            Err(mismatch) => return Ok(Some(WorkloadsState::Stopped(mismatch.to_string()))),
        };
        let seen = match self.watches.observe(goals.iter().map(|goal| &goal.workload)) {
            Ok(seen) => seen.workloads,
            Err(KubernetesError::NotListed { .. }) => return Ok(None),
            Err(error) => return Ok(Some(WorkloadsState::Stopped(chain(&error)))),
        };
        let (known, limits) = self.read_memory(pipeline).await?;
        let turn = next_turn(&goals, &seen, &known, limits, since_epoch(now()));
        let obstacles: Vec<_> = turn.obstacles.iter().map(ToString::to_string).collect();
        if pipeline.settings.dry_run {
            return Ok(Some(WorkloadsState::DryRun(described_dry_run(&goals, &seen, &obstacles))));
        }
        self.store_notes(pipeline, &turn.notes).await?;
        for change in &turn.changes {
            if let Some(stopped) = self.carry_out(pipeline, change, &seen[&change.workload]).await? {
                return Ok(Some(stopped));
            }
        }
        Ok(match (obstacles.is_empty(), turn.is_done) {
            (false, _) => Some(WorkloadsState::Stopped(obstacles.join("; "))),
            (true, true) => Some(WorkloadsState::Following),
            (true, false) if turn.changes.is_empty() => None,
            (true, false) => Some(WorkloadsState::Moving),
        })
    }

    /// What was done in the pipeline, and what may be done now.
    async fn read_memory(
        &self,
        pipeline: &ActingPipeline,
    ) -> Result<(BTreeMap<WorkloadName, WorkloadMemory>, RolloutLimits), ApplyError> {
        let mut db = self.app.pool.acquire().await?;
        let rows = store::workloads::list(&mut db, &pipeline.name, pipeline.version).await?;
        let made = store::workloads::changes_since(&mut db, &pipeline.name, now() - chrono::Duration::hours(1)).await?;
        let settings = &pipeline.settings;
        let limits = RolloutLimits {
            at_a_time_max: settings.at_a_time_max,
            ready_within: Duration::from_secs_f64(settings.ready_within_s),
            changes_left: settings.changes_per_hour_max.saturating_sub(u32::try_from(made).unwrap_or(u32::MAX)),
        };
        Ok((rows.iter().map(read_row).collect(), limits))
    }

    async fn store_notes(
        &self,
        pipeline: &ActingPipeline,
        notes: &[(WorkloadName, WorkloadMemory)],
    ) -> Result<(), ApplyError> {
        if notes.is_empty() {
            return Ok(());
        }
        let mut tx = self.app.pool.begin().await?;
        fence(&mut tx, self.lease).await?;
        for (workload, memory) in notes {
            store::workloads::put(&mut tx, &row_of(pipeline, workload, memory)).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Makes one change, unless a hold is in force or the workload is not as the watch shows it.
    async fn carry_out(
        &self,
        pipeline: &ActingPipeline,
        change: &ScaleChange,
        seen: &WorkloadState,
    ) -> Result<Option<WorkloadsState>, ApplyError> {
        let stopped = |error: &KubernetesError| Ok(Some(WorkloadsState::Stopped(chain(error))));
        match self.cluster.read(&change.workload).await {
            Ok(now) if now.version == seen.version => {}
            // The watch shows it soon.
            Ok(_) => return Ok(None),
            Err(error) => return stopped(&error),
        }
        let mut tx = self.app.pool.begin().await?;
        match check_holds(&mut tx, std::slice::from_ref(&pipeline.name)).await {
            Err(ApplyError::Held(_)) => {
                return Ok(Some(WorkloadsState::Stopped(format!("a hold is in force: {change} waits for its end"))));
            }
            other => other?,
        }
        fence(&mut tx, self.lease).await?;
        store::workloads::put(&mut tx, &row_of(pipeline, &change.workload, &change.memory)).await?;
        tx.commit().await?;
        match self.cluster.scale(&change.workload, seen, change.to).await {
            Ok(()) => {}
            Err(KubernetesError::Stale(_)) => return Ok(None),
            Err(error) => return stopped(&error),
        }
        tracing::info!(pipeline = pipeline.name, %change, why = change.why.name(), "a workload is scaled");
        let detail = json!({
            "workload": change.workload.to_string(), "from": change.from, "to": change.to, "why": change.why.name(),
        });
        let mut tx = self.app.pool.begin().await?;
        let hour_ago = now() - chrono::Duration::hours(1);
        store::workloads::count_change(&mut tx, &pipeline.name, now(), hour_ago).await?;
        store::events::insert(&mut tx, WORKLOAD_EVENT, &pipeline.name, &detail).await?;
        tx.commit().await?;
        Ok(None)
    }

    /// Says a new state in a decision and an event.
    async fn tell(&mut self, pipeline: &ActingPipeline, state: WorkloadsState) -> Result<(), ApplyError> {
        let old = self.told.insert(pipeline.name.clone(), state.clone());
        if old.as_ref() == Some(&state) {
            return Ok(());
        }
        let (decision, reason) = match state {
            WorkloadsState::Moving => return Ok(()),
            // A process that has just begun to look has nothing new to say.
            WorkloadsState::Following if old.is_none() => return Ok(()),
            WorkloadsState::Following => (DecisionKind::Applied, "the workloads follow the plan".to_owned()),
            WorkloadsState::Stopped(why) => (DecisionKind::Kept, format!("the workloads do not follow the plan: {why}")),
            WorkloadsState::DryRun(would) => (DecisionKind::Advised, format!("dry run: {would}")),
        };
        tracing::info!(pipeline = pipeline.name, decision = decision.name(), reason, "workloads");
        let mut tx = self.app.pool.begin().await?;
        fence(&mut tx, self.lease).await?;
        let row = DecisionRow {
            id: Uuid::now_v7(),
            pipeline: pipeline.name.clone(),
            decision,
            reason: reason.clone(),
            demand_qps: pipeline.advice.demand_qps,
            plan: pipeline.advice.plan,
            costs: None,
            alternative: None,
            made_at: now(),
        };
        store::decisions::insert(&mut tx, &row).await?;
        let detail = json!({"decision": decision.name(), "reason": reason});
        store::events::insert(&mut tx, WORKLOAD_EVENT, &pipeline.name, &detail).await?;
        Ok(tx.commit().await?)
    }
}

/// A group of a plan file. The service wrote the file, so every key is there.
fn planned_group(group: &Value) -> WorkloadGroup {
    let text = |key: &str| group[key].as_str().unwrap_or_default().to_owned();
    let count = |key: &str| group[key].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or_default();
    WorkloadGroup {
        task: text("task"),
        variant: text("variant"),
        hardware: text("hardware"),
        batch: count("batch"),
        replicas: count("replicas"),
    }
}

/// All differences between the plan and the cluster.
fn described_dry_run(goals: &[WorkloadGoal], seen: &BTreeMap<WorkloadName, WorkloadState>, obstacles: &[String]) -> String {
    let differs = |goal: &WorkloadGoal| {
        let found = seen.get(&goal.workload)?.replicas;
        (found != goal.replicas).then(|| format!("{} from {found} to {}", goal.workload, goal.replicas))
    };
    let changes: Vec<_> = goals.iter().filter_map(differs).collect();
    let changes = if changes.is_empty() { "nothing would be scaled".to_owned() } else { changes.join(", ") };
    let obstacles = obstacles.iter().map(|obstacle| format!("; {obstacle}"));
    format!("{changes}{}", obstacles.collect::<String>())
}

fn chain(error: &KubernetesError) -> String {
    super::lease::Chain(error).to_string()
}

fn since_epoch(time: Time) -> Duration {
    Duration::from_millis(u64::try_from(time.timestamp_millis()).unwrap_or_default())
}

fn row_of(pipeline: &ActingPipeline, workload: &WorkloadName, memory: &WorkloadMemory) -> WorkloadRow {
    let millis = i64::try_from(memory.applied_at.as_millis()).unwrap_or(i64::MAX);
    WorkloadRow {
        pipeline: pipeline.name.clone(),
        version: pipeline.version,
        kind: workload.kind.name().to_owned(),
        namespace: workload.namespace.clone(),
        name: workload.name.clone(),
        applied: memory.applied.into(),
        before: memory.before.map(Into::into),
        applied_at: Time::from_timestamp_millis(millis).unwrap_or_default(),
        ready: memory.ready.into(),
        failed: memory.failed.map(Into::into),
    }
}

fn read_row(row: &WorkloadRow) -> (WorkloadName, WorkloadMemory) {
    let count = |number: i64| u32::try_from(number).unwrap_or_default();
    let name = WorkloadName {
        namespace: row.namespace.clone(),
        kind: WorkloadKind::parse(&row.kind).unwrap_or(WorkloadKind::Deployment),
        name: row.name.clone(),
    };
    let memory = WorkloadMemory {
        applied: count(row.applied),
        before: row.before.map(count),
        applied_at: since_epoch(row.applied_at),
        ready: count(row.ready),
        failed: row.failed.map(count),
    };
    (name, memory)
}
