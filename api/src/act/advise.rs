//! What is advised for pipelines without agents?
//!
//! Their demand comes from a Prometheus ([`apportion_prometheus`]), and their devices are the registered ones with a
//! `count_max`. Nothing is deployed. While the demand is unknown, the last advice stays.

use super::apply::{ApplyError, load_plan};
use super::replan::{ReplanRound, Verdict, plan_pipeline, share_of, store_decision};
use crate::app::parts::ServicePart;
use crate::app::{App, now};
use crate::decide::replan::ReplanInput;
use crate::decide::shares::{PipelineSize, divide, least_work};
use crate::documents;
use crate::store::{self, advice::AdviceRow, decisions::DecisionRow};
use apportion_domain::PipelinePlan;
use apportion_prometheus::{PrometheusClient, PrometheusServer, QueryError, Reading, SampleAge, ServerError};
use apportion_wire::{DecisionKind, DemandSourceSpec, HardwareSpec, PipelineSpec, ReplanMode};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Key of the advisory lock of the process that advises.
const LOCK_KEY: i64 = 0x6170_706f_7275;
/// Pause between two looks at the pipelines.
const TURN_EVERY: Duration = Duration::from_millis(500);
/// Most queries to Prometheus at a time.
const QUERIES_MAX: usize = 8;
/// A plan this young is not improved, as in a round for agents.
const IMPROVE_AFTER: Duration = Duration::from_secs(15);
/// Why a round begins.
const WHY: &str = "the period is over";

/// Why a source of demand gives none.
#[derive(Debug, thiserror::Error)]
pub enum DemandError {
    /// The server cannot be asked.
    #[error("{0}")]
    Server(#[from] ServerError),
    /// The query has no usable answer.
    #[error("{0}")]
    Query(#[from] QueryError),
}

impl DemandError {
    /// Whether the same query may have an answer later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Query(error) if error.failure.is_temporary())
    }
}

/// A demand as it was seen.
#[derive(Clone, Copy, Debug)]
pub struct DemandReading {
    /// Queries per second at the root.
    pub qps: f64,
    /// Age of the samples behind it.
    pub age_s: f64,
}

/// Asks a source for the demand.
///
/// # Errors
/// If it gives none.
pub async fn read_demand(source: &DemandSourceSpec) -> Result<DemandReading, DemandError> {
    let of = &source.prometheus;
    let timeout = Duration::from_secs_f64(of.timeout_s.clamp(0.1, 10.0));
    let server = PrometheusServer { url: of.url.clone(), token: None, authorities: None, timeout };
    let Reading { samples, age_s } =
        PrometheusClient::new(server)?.read_one(&of.query, SampleAge::AtMostSeconds(of.age_max_s)).await?;
    Ok(DemandReading { qps: samples.value, age_s: age_s.unwrap_or(0.0) })
}

/// The source of demand of a pipeline that is only advised.
#[must_use]
pub fn source_of(spec: &PipelineSpec) -> Option<&DemandSourceSpec> {
    let settings = spec.replan.as_ref().filter(|settings| settings.mode == ReplanMode::Advisory.name());
    settings.and_then(|settings| settings.demand.as_ref())
}

/// Advises whenever no other process does, until the service stops.
pub async fn run(app: App) {
    while !app.is_stopping() {
        let result = tokio::select! {
            () = app.stopped() => return,
            result = advise(&app) => result,
        };
        if let Err(error) = result {
            tracing::error!(%error, "the advice for pipelines without agents failed; it starts again");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn advise(app: &App) -> Result<(), ApplyError> {
    // The lock lives as long as this connection, which goes back to no pool.
    let mut lock = app.pool.acquire().await?.detach();
    let is_mine = "select pg_try_advisory_lock($1)";
    while !sqlx::query_scalar::<_, bool>(is_mine).bind(LOCK_KEY).fetch_one(&mut lock).await? {
        app.parts.note_alive(ServicePart::Advisor);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let mut advisor = Advisor { app: app.clone(), watched: BTreeMap::new() };
    loop {
        advisor.take_turn().await?;
        app.parts.note_alive(ServicePart::Advisor);
        // The lock is lost with its connection.
        sqlx::query("select 1").execute(&mut lock).await?;
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
    watched: BTreeMap<String, WatchedSource>,
}

/// One pipeline in a round.
struct Wish {
    spec: PipelineSpec,
    /// The demand now, or that of the last advice.
    qps: f64,
    is_known: bool,
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
            let period_s = spec.replan.as_ref().map_or(10.0, |settings| settings.period_s);
            if let Some(watched) = self.watched.get_mut(&spec.name) {
                watched.due_at = at + Duration::from_secs_f64(period_s.clamp(0.5, 86_400.0));
            }
        }
        let wishes = self.read_demands(specs).await?;
        self.round(wishes).await
    }

    /// The pipelines that are only advised and have a profile.
    async fn read_pipelines(&mut self, at: Instant) -> Result<Vec<PipelineSpec>, ApplyError> {
        let mut db = self.app.pool.acquire().await?;
        let rows = store::pipelines::list(&mut db).await?;
        let mut specs = Vec::new();
        for row in rows.iter().filter(|row| !row.spec["replan"]["demand"].is_null()) {
            let spec = match documents::measured(row) {
                Ok(spec) => spec,
                Err(error) => {
                    tracing::warn!(pipeline = row.name, %error, "no advice: spec and profile do not fit");
                    continue;
                }
            };
            let is_measured = |task: &apportion_wire::TaskSpec| {
                task.variants.iter().any(|v| v.profile.as_ref().is_some_and(|rows| !rows.is_empty()))
            };
            if source_of(&spec).is_none() || !spec.tasks.iter().all(is_measured) {
                continue;
            }
            let new = || WatchedSource { version: row.version, due_at: at, changed_at: None };
            let watched = self.watched.entry(row.name.clone()).or_insert_with(new);
            if watched.version != row.version {
                *watched = new();
            }
            specs.push(spec);
        }
        let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
        self.watched.retain(|name, _| names.contains(name));
        store::advice::keep_only(&mut db, &names).await?;
        Ok(specs)
    }

    /// Asks for the demands, and notes them. A pipeline that never had one is left out while it is unknown.
    async fn read_demands(&self, specs: Vec<PipelineSpec>) -> Result<Vec<Wish>, ApplyError> {
        use futures::StreamExt;
        let ask = |spec: PipelineSpec| async move {
            let read = match source_of(&spec) {
                Some(source) => Some(read_demand(source).await),
                None => None,
            };
            (spec, read)
        };
        let read: Vec<_> = futures::stream::iter(specs).map(ask).buffered(QUERIES_MAX).collect().await;
        let mut db = self.app.pool.acquire().await?;
        let known = store::advice::list(&mut db).await?;
        let mut wishes = Vec::new();
        for (spec, read) in read {
            match read {
                None => {}
                Some(Ok(seen)) => {
                    let age = chrono::Duration::milliseconds((seen.age_s * 1e3) as i64);
                    store::advice::note_demand(&mut db, &spec.name, seen.qps, now() - age).await?;
                    wishes.push(Wish { spec, qps: seen.qps, is_known: true });
                }
                Some(Err(error)) => {
                    let last = known.iter().find(|row| row.pipeline == spec.name);
                    self.note_unknown(&mut db, &spec.name, &error, last).await?;
                    wishes.extend(last.map(|row| Wish { spec, qps: row.demand_qps, is_known: false }));
                }
            }
        }
        Ok(wishes)
    }

    /// Notes that the demand is unknown, with a decision when it was known until now.
    async fn note_unknown(
        &self,
        db: &mut store::PgConnection,
        pipeline: &str,
        error: &DemandError,
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
            made_at: now(),
        };
        Ok(store::decisions::insert(db, &row).await?)
    }

    /// Plans each pipeline with a known demand on its part of the devices.
    async fn round(&mut self, wishes: Vec<Wish>) -> Result<(), ApplyError> {
        let hardware = self.registered_hardware().await?;
        let counts: BTreeMap<String, u32> = hardware.iter().filter_map(|h| Some((h.name.clone(), h.count?))).collect();
        let size = |w: &Wish| PipelineSize { least_work: least_work(&w.spec, w.qps), tasks: w.spec.tasks.len() as u32 };
        let sizes: Vec<_> = wishes.iter().map(size).collect();
        let round = ReplanRound { why: WHY.to_owned(), cancel: Arc::new(AtomicBool::new(false)) };
        for (wish, devices) in wishes.into_iter().zip(divide(&counts, &sizes)).filter(|(wish, _)| wish.is_known) {
            let name = wish.spec.name.clone();
            let current = self.last_advice(&name).await?;
            let at = Instant::now();
            let changed_at = self.watched.get(&name).and_then(|w| w.changed_at);
            let is_old = changed_at.is_none_or(|changed| at.saturating_duration_since(changed) >= IMPROVE_AFTER);
            let input = ReplanInput { may_improve: is_old, ..ReplanInput::for_seen_demand(wish.spec, wish.qps) };
            let planned = plan_pipeline(&input, share_of(&hardware, &devices), current.as_ref(), &round).await;
            let verdict = planned.unwrap_or_else(|error| Verdict::Fail(error.to_string()));
            store_decision(&self.app, &input, &verdict, &round).await?;
            if let Verdict::Replace(made) = &verdict {
                store::advice::note_plan(&mut *self.app.pool.acquire().await?, &name, made.row.id).await?;
                if let Some(watched) = self.watched.get_mut(&name) {
                    watched.changed_at = Some(at);
                }
            }
            self.app.parts.note_alive(ServicePart::Advisor);
        }
        Ok(())
    }

    /// The registered hardware types that pipelines without agents may have.
    async fn registered_hardware(&self) -> Result<Vec<HardwareSpec>, ApplyError> {
        let rows = store::hardware::list(&mut *self.app.pool.acquire().await?).await?;
        let spec = |row: store::hardware::HardwareRow| {
            let count = u32::try_from(row.count_max?).ok().filter(|count| *count > 0)?;
            let (price_per_hour, memory_mib) = (row.price_per_hour, row.memory_mib);
            Some(HardwareSpec { name: row.name, price_per_hour, count: Some(count), memory_mib })
        };
        Ok(rows.into_iter().filter_map(spec).collect())
    }

    /// The part of the last advice for a pipeline.
    async fn last_advice(&self, pipeline: &str) -> Result<Option<PipelinePlan>, ApplyError> {
        let mut db = self.app.pool.acquire().await?;
        let rows = store::advice::list(&mut db).await?;
        let Some(plan) = rows.iter().find(|row| row.pipeline == pipeline).and_then(|row| row.plan) else {
            return Ok(None);
        };
        let parts = load_plan(&mut db, plan).await?;
        Ok(parts.into_iter().find(|part| part.name == pipeline))
    }
}
