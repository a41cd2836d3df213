//! Which load do the replanned pipelines have, and which of them are due?

use super::fleet::{FleetWatch, Reports};
use crate::act::apply::{ApplyError, fence};
use crate::act::replanned::{DemandOrigin, replanned_spec};
use crate::app::{App, now};
use crate::decide::budget::{PipelineBudget, alert_name, alert_named, window_s};
use crate::decide::replan::{ReplanCause, ReplanInput, WatchedPipeline};
use crate::decide::seconds::ObservedSeconds;
use crate::store::{self, arrivals::ArrivalsRow, leases::HeldLease};
use apportion_serving::scaling::error_budget::OutcomeCount;
use apportion_wire::{PipelineSpec, ReplanSpec};
use serde_json::json;
use sqlx::Connection;
use std::collections::BTreeMap;
use std::time::Instant;

/// Arrivals of a second count this many milliseconds after it is over: agents report each second, and reports take a
/// moment.
const REPORTED_AFTER_MS: i64 = 1_150;
/// Most seconds that one turn observes.
const SECONDS_MAX: i64 = 60;

/// A registered pipeline that is replanned and has a profile.
pub(super) struct ReplannedPipeline {
    /// Its spec with its profile.
    spec: PipelineSpec,
    /// Its replan settings.
    settings: ReplanSpec,
}

/// The leader's view of the load.
pub(super) struct LoadWatch {
    app: App,
    lease: HeldLease,
    seconds: ObservedSeconds,
    watched: BTreeMap<String, WatchedPipeline>,
}

impl LoadWatch {
    pub(super) fn new(app: App, lease: HeldLease) -> Self {
        Self { app, lease, seconds: ObservedSeconds::default(), watched: BTreeMap::new() }
    }

    /// Makes every pipeline due at once.
    pub(super) fn make_all_due(&mut self) {
        self.watched.values_mut().for_each(WatchedPipeline::make_due);
    }

    /// Makes a pipeline due at once; returns whether it is replanned.
    pub(super) fn make_due(&mut self, pipeline: &str) -> bool {
        let watched = self.watched.get_mut(pipeline);
        watched.map(WatchedPipeline::make_due).is_some()
    }

    /// Whether a pipeline is due.
    pub(super) fn is_due(&self, at: Instant) -> bool {
        self.watched.values().any(|watched| watched.is_due(at))
    }

    /// Notes that these pipelines have other plans.
    pub(super) fn plans_changed(&mut self, pipelines: &[String], at: Instant) {
        for name in pipelines {
            if let Some(watched) = self.watched.get_mut(name) {
                watched.plan_changed(at);
            }
        }
    }

    /// The registered pipelines that are replanned and have a profile.
    pub(super) async fn read_pipelines(&mut self, fleet: &mut FleetWatch) -> Result<Vec<ReplannedPipeline>, ApplyError> {
        let rows = store::pipelines::with_replan(&mut *self.app.pool.acquire().await?).await?;
        let mut pipelines = Vec::new();
        for row in &rows {
            let Some(spec) = replanned_spec(row, DemandOrigin::Agents) else { continue };
            let spec = fleet.without_broken(spec);
            let settings = spec.replan.clone().unwrap_or_default();
            let watched = self.watched.entry(row.name.clone()).or_default();
            if watched.version != row.version {
                watched.version = row.version;
                watched.make_due();
                if fleet.take_inherited(&row.name) {
                    watched.inherit_plan(Instant::now(), &settings);
                }
            }
            pipelines.push(ReplannedPipeline { spec, settings });
        }
        self.watched.retain(|name, _| pipelines.iter().any(|p| &p.spec.name == name));
        Ok(pipelines)
    }

    /// Takes the seconds into account that are complete by now; returns the cause, if a pipeline is due at once.
    pub(super) async fn observe(
        &mut self,
        pipelines: &[ReplannedPipeline],
        reports: Reports,
    ) -> Result<Option<ReplanCause>, ApplyError> {
        let complete = (now().timestamp_millis() - REPORTED_AFTER_MS).div_euclid(1_000);
        let is_known = self.seconds.observe(Instant::now(), complete);
        if reports == Reports::MayBeMissing || !is_known {
            // Missing reports do not mean a load of zero.
            self.watched.values_mut().for_each(|w| w.observed_until = complete);
            return Ok(None);
        }
        let first = self.watched.values().map(|w| w.observed_until).min().unwrap_or(complete).max(complete - SECONDS_MAX);
        if first >= complete {
            return Ok(None);
        }
        let mut db = self.app.pool.acquire().await?;
        let rows = store::arrivals::between(&mut db, None, first, complete).await?;
        let mut cause = None;
        for ReplannedPipeline { spec, settings } in pipelines {
            let Some(watched) = self.watched.get_mut(&spec.name) else { continue };
            let rows: Vec<&ArrivalsRow> = rows.iter().filter(|r| r.pipeline == spec.name).collect();
            if watched.observed_until == 0 {
                // Seconds before the first report do not mean a load of zero.
                watched.observed_until = rows.first().map_or(complete, |r| r.second);
            }
            let from = watched.observed_until.max(first);
            if watched.budget.is_none() {
                let past = store::arrivals::between(&mut db, Some(&spec.name), complete - window_s(), from).await?;
                let budget = watched.budget_for(spec.percentile);
                past.iter().for_each(|row| budget.count(row.second, ended(row)));
                let last = store::events::last(&mut db, "budget", &spec.name).await?;
                budget.resume(alert_named(last.as_ref().and_then(|facts| facts["alert"].as_str()).unwrap_or_default()));
            }
            for second in from..complete {
                let row = rows.iter().find(|r| r.second == second);
                watched.budget_for(spec.percentile).count(second, row.map_or(OutcomeCount::default(), |r| ended(r)));
                let offered = row.map_or(0, |r| r.offered.max(0) as u64);
                let planned = watched.planned_qps();
                if watched.observe(Instant::now(), offered, settings) {
                    let rate = watched.demand.rate_qps();
                    tracing::info!(pipeline = spec.name, rate, planned, "large change of the load");
                    cause = Some(ReplanCause::Change);
                }
            }
            watched.observed_until = complete;
            if watched.react_to_misses(Instant::now()) {
                cause = cause.or(Some(ReplanCause::Misses));
            }
            if let Some(budget) = &mut watched.budget {
                note_alert(&mut db, self.lease, &spec.name, budget, complete).await?;
            }
        }
        Ok(cause)
    }

    /// The wishes of all pipelines for a round that begins now.
    pub(super) fn begin_round(
        &mut self,
        at: Instant,
        pipelines: Vec<ReplannedPipeline>,
        cause: ReplanCause,
    ) -> Vec<ReplanInput> {
        let wish = |ReplannedPipeline { spec, settings }: ReplannedPipeline| {
            let watched = self.watched.get_mut(&spec.name)?;
            Some(watched.begin_round(at, spec, &settings, cause))
        };
        pipelines.into_iter().filter_map(wish).collect()
    }
}

/// The requests that ended in a second, as reported.
fn ended(row: &ArrivalsRow) -> OutcomeCount {
    let [in_time, late, dropped, failed] = [row.ok, row.late, row.dropped, row.failed].map(|count| count.max(0) as u64);
    OutcomeCount { in_time, missed: late + dropped + failed }
}

/// Makes an event of another alert.
async fn note_alert(
    db: &mut store::PgConnection,
    lease: HeldLease,
    pipeline: &str,
    budget: &mut PipelineBudget,
    second: i64,
) -> Result<(), ApplyError> {
    let Some(change) = budget.take_alert_change(second) else { return Ok(()) };
    let alert = alert_name(change.alert);
    tracing::info!(pipeline, alert, left_ratio = change.left_ratio, "the error budget has another alert");
    let rates = change.burn_rates;
    let detail = json!({
        "alert": alert, "left_ratio": change.left_ratio, "fast_burn_rate": rates.fast, "slow_burn_rate": rates.slow,
    });
    let mut tx = db.begin().await?;
    fence(&mut tx, lease).await?;
    store::events::insert(&mut tx, "budget", pipeline, &detail).await?;
    Ok(tx.commit().await?)
}
