//! Which schedules are due, and what comes of their firings?
//!
//! The row of a firing is committed with the schedule's next due time, under the leader's lease. So each due time fires
//! once. A hold begins in the same transaction. A firing that replans stays `pending` until its round has ended: if this
//! process dies meanwhile, the next leader makes the round.

use super::fleet::FleetWatch;
use crate::act::apply::{ApplyError, fence};
use crate::act::replanned::{DemandOrigin, replanned_spec, scheduled_spec};
use crate::act::round::RoundSummary;
use crate::app::{App, now};
use crate::decide::replan::ReplanInput;
use crate::decide::schedule::{PassedDues, ScheduleSpec, ScheduledHold, ScheduledReplan, mean_qps, scheduled_input};
use crate::store::{self, holds::FLEET, holds::HoldRow, leases::HeldLease, schedules::FiringRow, schedules::ScheduleRow};
use apportion_wire::{FiringState, PipelineSpec};
use chrono::Duration;
use std::collections::BTreeMap;

/// Most schedules that fire in one turn. The others fire in the next one.
const FIRED_MAX: i64 = 100;
/// Longest wait of a firing for a complete fleet and its turn.
const PENDING_S_MAX: i64 = 600;
/// Seconds over which the load is averaged.
const LOAD_S: i64 = 60;
/// Arrivals of a second are complete this many seconds after it began.
const REPORTED_AFTER_S: i64 = 2;

/// The round of a firing.
pub(super) struct ScheduledRound {
    /// The firing.
    pub(super) firing: FiringRow,
    /// Its wishes.
    pub(super) wishes: Vec<ReplanInput>,
}

/// Why a firing has no round.
#[derive(Debug, thiserror::Error)]
enum FiringError {
    #[error("the schedule cannot be read: {0}")]
    Spec(#[from] serde_json::Error),
    #[error("the fleet was not complete, or other rounds ran, for {PENDING_S_MAX} s")]
    Waited,
    #[error("pipeline {0} is not registered, has no profile, or takes its demand from elsewhere")]
    Pipeline(String),
    #[error("no pipeline is replanned for its load")]
    NoPipeline,
    #[error("the load of {0} is unknown: no agent has reported arrivals in the last {LOAD_S} s")]
    Load(String),
}

/// The leader's view of the schedules.
pub(super) struct ScheduleWatch {
    app: App,
    lease: HeldLease,
}

impl ScheduleWatch {
    pub(super) fn new(app: App, lease: HeldLease) -> Self {
        Self { app, lease }
    }

    /// Fires the schedules that are due.
    pub(super) async fn fire_due(&self) -> Result<(), ApplyError> {
        let rows = store::schedules::due(&mut *self.app.pool.acquire().await?, now(), FIRED_MAX).await?;
        for row in rows {
            self.fire(&row).await?;
        }
        Ok(())
    }

    async fn fire(&self, row: &ScheduleRow) -> Result<(), ApplyError> {
        let Some(due) = row.next_at else { return Ok(()) };
        let at = now();
        let spec: Option<ScheduleSpec> = serde_json::from_value(row.spec.clone()).ok();
        let timing = spec.as_ref().and_then(|spec| spec.timing(row.updated_at).ok());
        // An unreadable schedule was written by another release. It fires once and says so.
        let unreadable = PassedDues { latest: due, skipped: 0, next: None };
        let passed = timing.map_or(unreadable, |timing| timing.passed(due, at));
        let mut firing = FiringRow {
            schedule: row.name.clone(),
            due_at: passed.latest,
            spec: row.spec.clone(),
            fired_at: at,
            skipped: passed.skipped as i32,
            state: FiringState::Pending,
            detail: String::new(),
        };
        let mut tx = self.app.pool.begin().await?;
        fence(&mut tx, self.lease).await?;
        if !store::schedules::claim(&mut tx, row, passed.next).await? {
            return Ok(());
        }
        let window = match spec {
            Some(ScheduleSpec { pipeline, hold: Some(hold), .. }) => Some(window(&firing, pipeline.as_deref(), hold)),
            _ => None,
        };
        if let Some(window) = &window {
            (firing.state, firing.detail) = describe_window(window, at);
        }
        let is_new = store::schedules::insert_firing(&mut tx, &firing).await?;
        if let Some(window) = window.filter(|_| is_new && firing.state == FiringState::Done) {
            store::holds::extend(&mut tx, &window).await?;
        }
        tx.commit().await?;
        let FiringRow { schedule, due_at, skipped, state, .. } = &firing;
        tracing::info!(schedule, %due_at, skipped, state = state.name(), "a schedule fires");
        Ok(())
    }

    /// The round of the oldest firing that waits. A firing without a possible round is ended.
    pub(super) async fn next_round(&self, fleet: &mut FleetWatch) -> Result<Option<ScheduledRound>, ApplyError> {
        let Some(firing) = store::schedules::oldest_pending(&mut *self.app.pool.acquire().await?).await? else {
            return Ok(None);
        };
        if now() - firing.fired_at > Duration::seconds(PENDING_S_MAX) {
            self.settle(&firing, FiringState::Missed, &FiringError::Waited.to_string()).await?;
            return Ok(None);
        }
        if !fleet.is_complete() {
            return Ok(None);
        }
        match self.wishes(&firing, fleet).await? {
            Ok(wishes) => Ok(Some(ScheduledRound { firing, wishes })),
            Err(error) => {
                self.settle(&firing, FiringState::Failed, &error.to_string()).await?;
                Ok(None)
            }
        }
    }

    async fn wishes(
        &self,
        firing: &FiringRow,
        fleet: &mut FleetWatch,
    ) -> Result<Result<Vec<ReplanInput>, FiringError>, ApplyError> {
        let spec: ScheduleSpec = match serde_json::from_value(firing.spec.clone()) {
            Ok(spec) => spec,
            Err(error) => return Ok(Err(error.into())),
        };
        let replan = spec.replan.unwrap_or_default();
        let mut db = self.app.pool.acquire().await?;
        let specs = match specs(&mut db, spec.pipeline.as_deref()).await? {
            Ok(specs) => specs,
            Err(error) => return Ok(Err(error)),
        };
        let loads = loads(&mut db).await?;
        let wish = |spec: PipelineSpec| {
            let name = spec.name.clone();
            let input = scheduled_input(fleet.without_broken(spec), &replan, loads.get(&name).copied());
            input.ok_or(FiringError::Load(name))
        };
        Ok(specs.into_iter().map(wish).collect())
    }

    /// Ends a firing after its round.
    pub(super) async fn end_round(&self, firing: &FiringRow, summary: &RoundSummary) -> Result<(), ApplyError> {
        let RoundSummary { replaced, failed, held } = summary;
        let (state, detail) = if !failed.is_empty() {
            (FiringState::Failed, format!("no plan for {}: GET /v1/decisions has the reason", failed.join(", ")))
        } else if !held.is_empty() {
            (FiringState::Failed, format!("a hold was in force for {}: nothing was deployed for it", held.join(", ")))
        } else if replaced.is_empty() {
            (FiringState::Done, "no other plan was deployed: GET /v1/decisions has the reason".to_owned())
        } else {
            (FiringState::Done, format!("another plan was deployed for {}", replaced.join(", ")))
        };
        self.settle(firing, state, &detail).await
    }

    /// Ends a firing that waits. A round that was done brings the hold of its schedule.
    pub(super) async fn settle(&self, firing: &FiringRow, state: FiringState, detail: &str) -> Result<(), ApplyError> {
        let mut tx = self.app.pool.begin().await?;
        fence(&mut tx, self.lease).await?;
        let waited = store::schedules::settle(&mut tx, firing, state, detail).await?;
        let spec: ScheduleSpec = serde_json::from_value(firing.spec.clone()).unwrap_or_default();
        let hold_s = spec.replan.map_or(0, |ScheduledReplan { hold_s, .. }| hold_s);
        if waited && state == FiringState::Done && hold_s > 0 {
            let reason = format!("the plan of schedule {} stays", firing.schedule);
            let window = window(firing, spec.pipeline.as_deref(), ScheduledHold { for_s: hold_s, reason });
            if window.until > Some(now()) {
                store::holds::extend(&mut tx, &window).await?;
            }
        }
        tx.commit().await?;
        tracing::info!(schedule = firing.schedule, state = state.name(), detail, "the firing of a schedule has ended");
        Ok(())
    }
}

/// The hold of a firing.
fn window(firing: &FiringRow, pipeline: Option<&str>, hold: ScheduledHold) -> HoldRow {
    HoldRow {
        pipeline: pipeline.unwrap_or(FLEET).to_owned(),
        reason: hold.reason,
        until: Some(firing.due_at + Duration::seconds(i64::from(hold.for_s))),
        made_by: format!("schedule {}", firing.schedule),
        made_at: firing.fired_at,
    }
}

fn describe_window(window: &HoldRow, at: store::Time) -> (FiringState, String) {
    let until = window.until.map_or_else(String::new, |until| until.to_rfc3339());
    match window.until > Some(at) {
        true => (FiringState::Done, format!("held until {until}")),
        false => (FiringState::Missed, format!("its window was over at {until}")),
    }
}

/// The specs of a firing's pipelines.
async fn specs(
    db: &mut store::PgConnection,
    pipeline: Option<&str>,
) -> Result<Result<Vec<PipelineSpec>, FiringError>, ApplyError> {
    let Some(name) = pipeline else {
        let rows = store::pipelines::list(db).await?;
        let specs: Vec<_> = rows.iter().filter_map(|row| replanned_spec(row, DemandOrigin::Agents)).collect();
        return Ok(if specs.is_empty() { Err(FiringError::NoPipeline) } else { Ok(specs) });
    };
    let row = store::pipelines::get(db, name).await?;
    let spec = row.as_ref().and_then(scheduled_spec);
    Ok(spec.map(|spec| vec![spec]).ok_or_else(|| FiringError::Pipeline(name.to_owned())))
}

/// The mean loads of the last minute, by pipeline.
async fn loads(db: &mut store::PgConnection) -> Result<BTreeMap<String, f64>, ApplyError> {
    let to = now().timestamp() - REPORTED_AFTER_S;
    let mut seconds: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
    for row in store::arrivals::between(db, None, to - LOAD_S, to).await? {
        seconds.entry(row.pipeline).or_default().push((row.second, row.offered));
    }
    Ok(seconds.into_iter().filter_map(|(name, rows)| Some((name, mean_qps(&rows, to)?))).collect())
}
