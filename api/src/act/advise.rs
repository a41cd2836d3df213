//! What is advised for pipelines without agents?
//!
//! Their demand comes from a source ([`super::sources`]), and their devices are the registered ones with a `count_max`
//! and without a substrate. Nothing is deployed. While the demand is unknown, the last advice stays.

use super::apply::{ApplyError, fence};
use super::deployment::note_deployment;
use super::division::{DivisionInput, PipelineShare, divide_devices};
use super::lease::{ADVISOR, work_while_held};
use super::pipeline_plan::plan_pipeline;
use super::replan::{ReplanRound, Verdict, share_of, store_decision};
use super::replanned::{DemandOrigin, replanned_spec};
use super::sources::{FactSourceError, read_demand, source_of};
use super::teams::load_teams;
use crate::app::parts::ServicePart;
use crate::app::{App, now};
use crate::decide::correction::Measurements;
use crate::decide::projects::DeviceCounts;
use crate::decide::replan::{ReplanInput, may_improve_after, period};
use crate::store::{self, advice::AdviceRow, decisions::DecisionRow, leases::HeldLease};
use apportion_domain::PipelinePlan;
use apportion_planning::FleetMemory;
use apportion_wire::{DecisionKind, HardwareSpec, PipelineSpec};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Pause between two looks at the pipelines.
const TURN_EVERY: Duration = Duration::from_millis(500);
/// Most queries to Prometheus at a time.
const QUERIES_MAX: usize = 8;
/// Why a round begins.
const WHY: &str = "the period is over";

/// Advises whenever no other process does, until the service stops.
pub async fn run(app: App) {
    work_while_held(&app, ADVISOR, ServicePart::Advisor, |lease| advise(&app, lease)).await;
}

async fn advise(app: &App, lease: HeldLease) -> Result<(), ApplyError> {
    let mut advisor = Advisor { app: app.clone(), lease, watched: BTreeMap::new(), kept: None };
    loop {
        advisor.take_turn().await?;
        app.parts.note_alive(ServicePart::Advisor);
        tokio::time::sleep(TURN_EVERY).await;
    }
}

/// One pipeline between two rounds.
struct WatchedSource {
    version: i64,
    due_at: Instant,
    changed_at: Option<Instant>,
}

struct Advisor {
    app: App,
    lease: HeldLease,
    watched: BTreeMap<String, WatchedSource>,
    /// The pipelines with advice; `None` until the advice of all others was deleted.
    kept: Option<Vec<String>>,
}

/// One pipeline in a round.
struct Wish {
    spec: PipelineSpec,
    /// The demand now, or that of the last advice.
    qps: f64,
    is_known: bool,
    /// The last advice.
    last: Option<AdviceRow>,
}

impl Advisor {
    /// Makes a round if a pipeline is due. Every pipeline takes part, because they share the devices.
    async fn take_turn(&mut self) -> Result<(), ApplyError> {
        let at = Instant::now();
        let specs = self.read_pipelines(at).await?;
        if specs.is_empty() || !self.watched.values().any(|w| w.due_at <= at) {
            return Ok(());
        }
        for spec in &specs {
            let settings = spec.replan.clone().unwrap_or_default();
            if let Some(watched) = self.watched.get_mut(&spec.name) {
                watched.due_at = at + period(&settings);
            }
        }
        let wishes = self.read_demands(specs).await?;
        self.round(wishes).await
    }

    /// The pipelines that are only advised and have a profile.
    async fn read_pipelines(&mut self, at: Instant) -> Result<Vec<PipelineSpec>, ApplyError> {
        let rows = store::pipelines::with_replan(&mut *self.app.pool.acquire().await?).await?;
        let mut specs = Vec::new();
        for row in &rows {
            let Some(spec) = replanned_spec(row, DemandOrigin::Elsewhere) else { continue };
            let new = || WatchedSource { version: row.version, due_at: at, changed_at: None };
            let watched = self.watched.entry(row.name.clone()).or_insert_with(new);
            if watched.version != row.version {
                *watched = new();
            }
            specs.push(spec);
        }
        let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
        self.watched.retain(|name, _| names.contains(name));
        if self.kept.as_ref() != Some(&names) {
            let mut tx = self.app.pool.begin().await?;
            fence(&mut tx, self.lease).await?;
            store::advice::keep_only(&mut tx, &names).await?;
            tx.commit().await?;
            self.kept = Some(names);
        }
        Ok(specs)
    }

    /// Asks for the demands, and notes them. A pipeline that never had one is left out while it is unknown.
    async fn read_demands(&self, specs: Vec<PipelineSpec>) -> Result<Vec<Wish>, ApplyError> {
        use futures::StreamExt;
        let ask = |spec: PipelineSpec| async move {
            let read = match source_of(&spec) {
                Some(source) => Some(read_demand(&self.app, &spec.name, source).await),
                None => None,
            };
            (spec, read)
        };
        let read: Vec<_> = futures::stream::iter(specs).map(ask).buffered(QUERIES_MAX).collect().await;
        let mut db = self.app.pool.begin().await?;
        fence(&mut db, self.lease).await?;
        let known = store::advice::list(&mut db).await?;
        let mut wishes = Vec::new();
        for (spec, read) in read {
            let last = known.iter().find(|row| row.pipeline == spec.name).cloned();
            match read {
                None => {}
                Some(Ok(seen)) => {
                    let age = chrono::Duration::milliseconds((seen.age_s * 1e3) as i64);
                    store::advice::note_demand(&mut db, &spec.name, seen.qps, now() - age).await?;
                    wishes.push(Wish { spec, qps: seen.qps, is_known: true, last });
                }
                Some(Err(error)) => {
                    self.note_unknown(&mut db, &spec.name, &error, last.as_ref()).await?;
                    let qps = last.as_ref().map(|row| row.demand_qps);
                    wishes.extend(qps.map(|qps| Wish { spec, qps, is_known: false, last }));
                }
            }
        }
        db.commit().await?;
        Ok(wishes)
    }

    /// Notes that the demand is unknown, with a decision when it was known until now.
    async fn note_unknown(
        &self,
        db: &mut store::PgConnection,
        pipeline: &str,
        error: &FactSourceError,
        last: Option<&AdviceRow>,
    ) -> Result<(), ApplyError> {
        let is_news = store::advice::note_unknown(db, pipeline, &error.to_string()).await?;
        if !is_news {
            return Ok(());
        }
        let reason = format!("the demand is unknown, so the last advice stays: {error}");
        tracing::warn!(pipeline, reason, "no new advice");
        let row = DecisionRow {
            id: Uuid::now_v7(),
            pipeline: pipeline.to_owned(),
            decision: DecisionKind::Kept,
            reason,
            demand_qps: last.map_or(0.0, |row| row.demand_qps),
            plan: None,
            costs: None,
            alternative: None,
            made_at: now(),
        };
        Ok(store::decisions::insert(db, &row).await?)
    }

    /// Plans each pipeline with a known demand on its part of the devices.
    async fn round(&mut self, wishes: Vec<Wish>) -> Result<(), ApplyError> {
        let hardware = self.registered_hardware().await?;
        let cancel = Arc::new(AtomicBool::new(false));
        // Agents measure nothing of a fleet that they do not serve.
        let measured = Measurements::default();
        // Nothing is known of the zones of devices without agents.
        let (lease, memory) = (self.lease, FleetMemory::default());
        let round = ReplanRound { why: WHY.to_owned(), cancel, lease, measured, devices: Vec::new(), memory };
        let all: DeviceCounts = hardware.iter().filter_map(|h| Some((h.name.clone(), h.count?))).collect();
        let shares = self.shares(&wishes, &hardware, &round).await?;
        for (wish, share) in wishes.into_iter().zip(shares).filter(|(wish, _)| wish.is_known) {
            let name = wish.spec.name.clone();
            let current = last_advice(wish.last.as_ref())?;
            let at = Instant::now();
            let changed_at = self.watched.get(&name).and_then(|w| w.changed_at);
            let may_improve = may_improve_after(changed_at, at);
            let input = ReplanInput { may_improve, ..ReplanInput::for_seen_demand(wish.spec.clone(), wish.qps) };
            let planned = plan_pipeline(&input, share_of(&hardware, &share.devices), current.as_ref(), &round).await;
            let verdict = planned.unwrap_or_else(|error| Verdict::Fail(error.to_string())).noted(&share.describe(&all));
            store_decision(&self.app, &input, &verdict, &round).await?;
            if let Verdict::Replace(made) = &verdict {
                let mut tx = self.app.pool.begin().await?;
                fence(&mut tx, self.lease).await?;
                store::advice::note_plan(&mut tx, &name, made.row.id).await?;
                tx.commit().await?;
                if let Some(watched) = self.watched.get_mut(&name) {
                    watched.changed_at = Some(at);
                }
            }
            let advised = match verdict {
                Verdict::Replace(made) => Some(made.part),
                Verdict::Keep { .. } | Verdict::Fail(_) => current,
            };
            note_deployment(&self.app, self.lease, wish.spec, wish.qps, advised).await?;
            self.app.parts.note_alive(ServicePart::Advisor);
        }
        Ok(())
    }

    /// The devices of each pipeline. One whose demand is unknown keeps its part, by its last demand.
    async fn shares(
        &self,
        wishes: &[Wish],
        hardware: &[HardwareSpec],
        round: &ReplanRound,
    ) -> Result<Vec<PipelineShare>, ApplyError> {
        let inputs: Vec<ReplanInput> =
            wishes.iter().map(|wish| ReplanInput::for_seen_demand(wish.spec.clone(), wish.qps)).collect();
        let advised = wishes.iter().map(|wish| last_advice(wish.last.as_ref())).collect::<Result<Vec<_>, _>>()?;
        let in_force = advised.iter().flatten().collect();
        let wishes: Vec<&ReplanInput> = inputs.iter().collect();
        // Machines without agents are not those of the fleet. The quotas hold for the pipelines with advice by themselves.
        let teams = load_teams(&mut *self.app.pool.acquire().await?, &[], &wishes).await?;
        let live: DeviceCounts = hardware.iter().filter_map(|h| Some((h.name.clone(), h.count?))).collect();
        let (teams, live, measured, cancel) = (&teams, &live, &round.measured, &round.cancel);
        let (devices, begun) = (round.devices.as_slice(), Instant::now());
        let memory = None;
        let input = DivisionInput { wishes, hardware, in_force, teams, live, measured, cancel, devices, begun, memory };
        Ok(divide_devices(&input).await)
    }

    /// The registered hardware types that pipelines without agents may have.
    async fn registered_hardware(&self) -> Result<Vec<HardwareSpec>, ApplyError> {
        let rows = store::hardware::list(&mut *self.app.pool.acquire().await?).await?;
        let spec = |row: store::hardware::HardwareRow| {
            // The machines of a substrate serve pipelines with agents.
            let is_free = row.substrate.is_none();
            let count = u32::try_from(row.count_max?).ok().filter(|count| *count > 0 && is_free)?;
            let (price_per_hour, memory_mib) = (row.price_per_hour, row.memory_mib);
            Some(HardwareSpec { name: row.name, price_per_hour, count: Some(count), memory_mib })
        };
        Ok(rows.into_iter().filter_map(spec).collect())
    }
}

/// The pipeline's part of its last advice.
fn last_advice(row: Option<&AdviceRow>) -> Result<Option<PipelinePlan>, ApplyError> {
    let Some((row, document)) = row.and_then(|row| Some((row, row.document.as_ref()?))) else { return Ok(None) };
    let parts = apportion_wire::read_plan(&format!("the advice for {}", row.pipeline), &document.to_string())?.pipelines;
    Ok(parts.into_iter().find(|part| part.name == row.pipeline))
}
