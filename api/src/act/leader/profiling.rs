//! Which devices measure for profile jobs, when is a job over, and which drifts start one?

use crate::act::agent_facts::agent_facts;
use crate::act::apply::{ApplyError, fence};
use crate::act::drift;
use crate::act::lease::Chain;
use crate::act::measuring::{read_points, request_of};
use crate::app::{App, now};
use crate::decide::drift::{FigureKind, ProfileDrift};
use crate::decide::fleet::Fleet;
use crate::decide::placement::{Device, DeviceSlot, Placement};
use crate::decide::profile_job::{
    JobPoint, PROFILE_JOBS_OPEN_MAX, ProfileJobRequest, choose_device, is_measured_again, next_order, parts_on,
};
use crate::store::device_claims::{self as claims, ClaimRow, NewClaim};
use crate::store::profile_jobs::{self as jobs, NewProfileJob, ProfileJobRow};
use crate::store::{self, PgConnection, leases::HeldLease, pipelines};
use apportion_wire::{AgentState, PipelineSpec, ProfileJobState};
use serde_json::Value;
use sqlx::Connection;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Pause between two looks at the jobs.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Pause between two looks for drifts that last.
const LOOK_AT_DRIFTS_EVERY: Duration = Duration::from_secs(5);
/// A device that gave way to a replica is not asked again for this long.
const AVOID_FOR: Duration = Duration::from_secs(10);

/// What there is to measure with.
struct MeasuringFleet {
    devices: Vec<Device>,
    placement: Placement,
    /// Agents that measure.
    claimed: BTreeSet<u64>,
}

/// The leader's view of the profile jobs.
pub(super) struct ProfilingWatch {
    app: App,
    lease: HeldLease,
    looked_at: Option<Instant>,
    drifts_looked_at: Option<Instant>,
    /// Devices that gave way to a replica, and when.
    avoided: BTreeMap<DeviceSlot, Instant>,
}

impl ProfilingWatch {
    pub(super) fn new(app: App, lease: HeldLease) -> Self {
        Self { app, lease, looked_at: None, drifts_looked_at: None, avoided: BTreeMap::new() }
    }

    /// Claims devices for the open jobs, ends claims, and ends jobs.
    pub(super) async fn follow_jobs(&mut self) -> Result<(), ApplyError> {
        if self.looked_at.is_some_and(|last| last.elapsed() < LOOK_EVERY) {
            return Ok(());
        }
        self.looked_at = Some(Instant::now());
        let mut db = self.app.pool.acquire().await?;
        self.start_jobs_of_drifts(&mut db).await?;
        let (open, held) = (jobs::open(&mut db).await?, claims::list(&mut db).await?);
        if open.is_empty() && held.is_empty() {
            return Ok(());
        }
        let agents = store::agents::list(&mut db).await?;
        let live = agents.iter().filter(|agent| agent.state == AgentState::Live).map(|agent| agent.number);
        let live: BTreeSet<i64> = live.collect();
        let held = self.end_claims(&mut db, held, &live).await?;
        let target = store::target::get(&mut db).await?;
        let mut fleet = MeasuringFleet {
            devices: Fleet::live(agents.iter().map(agent_facts).collect()).devices(),
            placement: serde_json::from_value(target.placement).unwrap_or_default(),
            claimed: held.iter().map(|claim| claim.agent as u64).collect(),
        };
        for job in open {
            let of_job: Vec<&ClaimRow> = held.iter().filter(|claim| claim.job == job.id).collect();
            self.follow_job(&mut db, &job, &of_job, &mut fleet).await?;
        }
        Ok(())
    }

    /// Ends the claims of agents that are gone or gave way. Returns the others.
    async fn end_claims(
        &mut self,
        db: &mut PgConnection,
        held: Vec<ClaimRow>,
        live: &BTreeSet<i64>,
    ) -> Result<Vec<ClaimRow>, ApplyError> {
        self.avoided.retain(|_, since| since.elapsed() < AVOID_FOR);
        let (stay, end): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|claim| live.contains(&claim.agent) && claim.yielded.is_none());
        for claim in end {
            let why = claim.yielded.as_deref().unwrap_or("its agent is gone");
            tracing::info!(job = %claim.job, agent = claim.agent, device = claim.device, why, "a device measures no more");
            if claim.yielded.is_some() {
                let place = DeviceSlot { agent: claim.agent as u64, device: claim.device as u32 };
                self.avoided.insert(place, Instant::now());
            }
            let mut tx = db.begin().await?;
            fence(&mut tx, self.lease).await?;
            claims::end(&mut tx, claim.claim).await?;
            tx.commit().await?;
        }
        Ok(stay)
    }

    /// Ends a job that is complete or late. Else each hardware type that is not complete gets a device.
    async fn follow_job(
        &mut self,
        db: &mut PgConnection,
        job: &ProfileJobRow,
        held: &[&ClaimRow],
        fleet: &mut MeasuringFleet,
    ) -> Result<(), ApplyError> {
        let request = match request_of(job) {
            Ok(request) => request,
            Err(error) => {
                let why = Chain(&error).to_string();
                return self.finish(db, job.id, Some(why)).await;
            }
        };
        let points = read_points(db, job.id).await?;
        let is_open = |hardware: &&String| next_order(&request, hardware, &points).is_some();
        let waiting: Vec<&String> = request.hardware.iter().filter(is_open).collect();
        if waiting.is_empty() {
            return self.finish(db, job.id, failure(&request, &points)).await;
        }
        let age = (now() - job.created_at).to_std().unwrap_or_default();
        if age.as_secs_f64() > request.time_max_s {
            let measured = |hardware: &str| held.iter().any(|claim| claim.hardware == hardware);
            let without: Vec<&str> = waiting.iter().map(|h| h.as_str()).filter(|h| !measured(h)).collect();
            let why = late(&request, &waiting, &without);
            return self.finish(db, job.id, Some(why)).await;
        }
        for hardware in waiting.into_iter().filter(|hardware| held.iter().all(|claim| claim.hardware != **hardware)) {
            self.claim_device(db, job, hardware, fleet).await?;
        }
        Ok(())
    }

    /// Claims a device without replicas, if there is one.
    async fn claim_device(
        &mut self,
        db: &mut PgConnection,
        job: &ProfileJobRow,
        hardware: &str,
        fleet: &mut MeasuringFleet,
    ) -> Result<(), ApplyError> {
        let avoided = self.avoided.keys().copied().collect();
        let MeasuringFleet { devices, placement, claimed } = &*fleet;
        let Some(place) = choose_device(devices, hardware, placement, claimed, &avoided) else { return Ok(()) };
        let mut tx = db.begin().await?;
        fence(&mut tx, self.lease).await?;
        // A job that was cancelled meanwhile needs no device.
        let is_open = jobs::lock_job(&mut tx, job.id).await?.is_some_and(|job| job.state.is_open());
        let new = NewClaim { job: job.id, hardware, agent: place.agent as i64, device: place.device as i32, at: now() };
        if !is_open || !claims::take(&mut tx, new).await? {
            return Ok(());
        }
        jobs::start(&mut tx, job.id, now()).await?;
        tx.commit().await?;
        tracing::info!(job = %job.id, hardware, agent = place.agent, device = place.device, "a device measures");
        fleet.claimed.insert(place.agent);
        self.app.measurements.wake();
        Ok(())
    }

    /// Ends a job: done without an error, else failed.
    async fn finish(&self, db: &mut PgConnection, job: Uuid, error: Option<String>) -> Result<(), ApplyError> {
        let state = if error.is_none() { ProfileJobState::Done } else { ProfileJobState::Failed };
        let mut tx = db.begin().await?;
        fence(&mut tx, self.lease).await?;
        jobs::finish(&mut tx, job, state, error.as_deref(), now()).await?;
        tx.commit().await?;
        tracing::info!(%job, state = state.name(), error, "a profile job is over");
        self.app.measurements.wake();
        Ok(())
    }

    /// Starts a job for each latency that has drifted for long, where the pipeline's settings say so.
    async fn start_jobs_of_drifts(&mut self, db: &mut PgConnection) -> Result<(), ApplyError> {
        if self.drifts_looked_at.is_some_and(|last| last.elapsed() < LOOK_AT_DRIFTS_EVERY) {
            return Ok(());
        }
        self.drifts_looked_at = Some(Instant::now());
        let drifts = drift::read(db, None).await?;
        let of_latency: Vec<&ProfileDrift> = drifts.iter().filter(|d| d.figure.kind == FigureKind::Latency).collect();
        if of_latency.is_empty() {
            return Ok(());
        }
        let names: BTreeSet<&str> = of_latency.iter().map(|drift| drift.pipeline.as_str()).collect();
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let measured = measurable(pipelines::specs_measured_on_drift(db, &names).await?);
        for drift in of_latency {
            if measured.contains(&drift.pipeline) {
                self.start_job_of_drift(db, drift).await?;
            }
        }
        Ok(())
    }

    async fn start_job_of_drift(&self, db: &mut PgConnection, drift: &ProfileDrift) -> Result<(), ApplyError> {
        let reason = format!("drift of {}/{}", drift.figure.task, drift.figure);
        let newest = jobs::newest_for(db, &drift.pipeline, &reason).await?;
        if !is_measured_again(drift.since, newest, now()) {
            return Ok(());
        }
        let request =
            ProfileJobRequest::of_variant(&drift.pipeline, &drift.figure.task, &drift.figure.variant, &drift.figure.at);
        let mut tx = db.begin().await?;
        fence(&mut tx, self.lease).await?;
        jobs::lock(&mut tx).await?;
        if jobs::count_open(&mut tx).await? >= PROFILE_JOBS_OPEN_MAX {
            // The next look tries again.
            return Ok(());
        }
        let new = NewProfileJob {
            id: Uuid::now_v7(),
            pipeline: drift.pipeline.clone(),
            total: request.parts() as i32,
            request: serde_json::to_value(&request).expect("a request is JSON"),
            reason,
            created_at: now(),
        };
        jobs::insert(&mut tx, &new).await?;
        tx.commit().await?;
        tracing::info!(job = %new.id, pipeline = new.pipeline, reason = new.reason, "a drift starts a profile job");
        Ok(())
    }
}

/// The names of the registered pipelines that a job can measure: those without transforms on edges.
fn measurable(specs: Vec<Value>) -> BTreeSet<String> {
    let specs = specs.into_iter().filter_map(|spec| serde_json::from_value::<PipelineSpec>(spec).ok());
    specs.filter(|spec| !spec.has_edge_transforms()).map(|spec| spec.name).collect()
}

/// Why a complete job has failed: a variant without a single latency. `None` if each has one.
fn failure(request: &ProfileJobRequest, points: &[JobPoint]) -> Option<String> {
    let parts = request.hardware.iter().flat_map(|hardware| parts_on(request, hardware));
    let failed: Vec<_> = parts.filter(|part| part.profile_rows(request, points).is_empty()).collect();
    let first = failed.first()?;
    let why = points.iter().filter(|point| first.has(point)).find_map(|point| point.outcome.as_ref().err());
    let why = why.map_or_else(|| "it has no batch size".to_owned(), ToString::to_string);
    let (count, all) = (failed.len(), request.parts());
    Some(format!("{count} of {all} could not be measured, the first being {} on {}: {why}", first.variant, first.hardware))
}

/// Why a job that was not complete in time has failed.
fn late(request: &ProfileJobRequest, waiting: &[&String], without: &[&str]) -> String {
    let names = waiting.iter().map(|hardware| hardware.as_str()).collect::<Vec<_>>().join(", ");
    let device = match without {
        [] => String::new(),
        types => format!("; no live agent had a device without replicas of {}", types.join(", ")),
    };
    format!("the time of {} s is over and {names} is not complete{device}", request.time_max_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::profile_job::PointFailure;
    use serde_json::json;

    #[test]
    fn a_drift_starts_no_job_for_transforms_on_edges() {
        let spec = |name: &str, transform: Value| {
            let edges = json!([{"from": "a", "to": "b", "transform": transform}]);
            json!({"name": name, "slo_ms": 100.0, "tasks": [], "edges": edges})
        };
        let specs = vec![spec("plain", json!([])), spec("glued", json!([{"keep": {"tensors": ["x"]}}])), json!({})];
        assert_eq!(measurable(specs), BTreeSet::from(["plain".to_owned()]));
    }

    #[test]
    fn a_failure_names_its_first_variant_and_reason() {
        let request = ProfileJobRequest::of_variant("p", "t", "v", "h");
        let (hardware, task, variant) = ("h".to_owned(), "t".to_owned(), "v".to_owned());
        let outcome = Err(PointFailure("no room".into()));
        let points = [JobPoint { hardware, task, variant, batch: 1, outcome }];
        let said = failure(&request, &points).expect("it failed");
        assert_eq!(said, "1 of 1 could not be measured, the first being v on h: no room");
    }

    #[test]
    fn a_late_job_says_what_it_waited_for() {
        let request = ProfileJobRequest::of_variant("p", "t", "v", "h");
        let type_name = "h".to_owned();
        let said = late(&request, &[&type_name], &["h"]);
        assert!(said.contains("3600 s is over and h is not complete; no live agent had a device"), "{said}");
        assert!(late(&request, &[&type_name], &[]).ends_with("h is not complete"));
    }
}
