//! Which figures of profiles have begun to drift, and which drifts are over?
//!
//! The leader judges each figure once in a period ([`crate::decide::drift`]). A drift is a row, so that every process plans
//! with it and shows it. Each change of a drift is an event in the transaction that changes the row.

use super::apply::{ApplyError, fence};
use super::figures::{MeasuredSums, complete_until};
use super::times;
use crate::app::App;
use crate::decide::correction::{Measurements, has_figure, is_corrected, same_latencies};
use crate::decide::drift::{DriftChange, DriftNumbers, FigureKind, PERIOD_S, ProfileDrift, ProfileFigure};
use crate::decide::drift_watch::{DriftJudge, FigureKey, ProfileMatch};
use crate::documents;
use crate::store::{self, PgConnection, Time, drifts as rows, drifts::DriftRow, leases::HeldLease};
use apportion_wire::PipelineSpec;
use serde_json::{Value, json};
use sqlx::Connection;
use std::collections::BTreeMap;

/// The kind of an event about a drift.
pub const DRIFT_EVENT: &str = "drift";

/// The drifts, of one pipeline if it is named. A row of another release that this one does not know is left out.
///
/// # Errors
/// The database's.
pub async fn read(db: &mut PgConnection, pipeline: Option<&str>) -> store::Result<Vec<ProfileDrift>> {
    let drift = |row: DriftRow| {
        let DriftRow { pipeline, kind, task, variant, place, factor, profile, measured, since } = row;
        let figure = ProfileFigure { kind: FigureKind::named(&kind)?, task, variant, at: place };
        Some(ProfileDrift { pipeline, figure, factor, profile, measured, since })
    };
    Ok(rows::list(db, pipeline).await?.into_iter().filter_map(drift).collect())
}

/// All measurements that plans use.
///
/// # Errors
/// The database's.
pub async fn measurements(db: &mut PgConnection) -> store::Result<Measurements> {
    Ok(Measurements { times: times::read(db).await?, drifts: read(db, None).await? })
}

fn row(drift: &ProfileDrift) -> DriftRow {
    let ProfileDrift { pipeline, figure, factor, profile, measured, since } = drift.clone();
    let ProfileFigure { kind, task, variant, at } = figure;
    let kind = kind.name().to_owned();
    DriftRow { pipeline, kind, task, variant, place: at, factor, profile, measured, since }
}

/// The begin of a period.
fn begin_of(period: i64) -> Time {
    Time::from_timestamp(period * PERIOD_S, 0).unwrap_or_default()
}

/// News for the plans of a pipeline.
pub(super) struct DriftNews {
    /// The pipeline.
    pub(super) pipeline: String,
    /// What has changed, in words.
    pub(super) why: String,
}

/// Whether agents compare a figure with the registered profile. `in_force` is the spec of the target; a fan-out is compared
/// by the service itself.
fn profile_match(registered: &PipelineSpec, in_force: Option<&PipelineSpec>, figure: &ProfileFigure) -> ProfileMatch {
    let is_other = figure.kind == FigureKind::Latency
        && in_force.is_some_and(|in_force| !same_latencies(registered, in_force, figure));
    match has_figure(registered, figure) {
        false => ProfileMatch::Missing,
        true if is_other => ProfileMatch::Other,
        true => ProfileMatch::Same,
    }
}

/// The leader's view of the figures of profiles.
pub(super) struct DriftWatch {
    app: App,
    lease: HeldLease,
    /// All periods before this one were judged.
    judged_until: i64,
    judge: DriftJudge,
}

impl DriftWatch {
    pub(super) fn new(app: App, lease: HeldLease) -> Self {
        Self { app, lease, judged_until: 0, judge: DriftJudge::default() }
    }

    /// Judges all figures, if another period is complete. Returns the changes for pipelines whose plans count with them.
    pub(super) async fn follow_changes(&mut self) -> Result<Vec<DriftNews>, ApplyError> {
        let until = complete_until();
        if until <= self.judged_until {
            return Ok(Vec::new());
        }
        let mut db = self.app.pool.acquire().await?;
        let target = store::target::get(&mut db).await?;
        let in_force: BTreeMap<String, PipelineSpec> = serde_json::from_value(target.specs).unwrap_or_default();
        let known = read(&mut db, None).await?;
        let sums = MeasuredSums::read(&mut db, None, until).await?;
        let mut names = sums.pipelines();
        names.extend(known.iter().map(|drift| drift.pipeline.clone()));
        let names: Vec<String> = names.into_iter().collect();
        let specs = documents::measured_fitting(store::pipelines::named(&mut db, &names).await?).await;
        let mut known: BTreeMap<FigureKey, ProfileDrift> = known.into_iter().map(|drift| (key_of(&drift), drift)).collect();
        let mut measured = sums.histories(&specs);
        for key in known.keys() {
            measured.entry(key.clone()).or_default();
        }
        let mut news = Vec::new();
        self.judge.forget_old(until);
        let specs: BTreeMap<&str, &PipelineSpec> = specs.iter().map(|spec| (spec.name.as_str(), spec)).collect();
        for (key, periods) in measured {
            let Some(&registered) = specs.get(key.pipeline.as_str()) else { continue };
            let profile = profile_match(registered, in_force.get(&key.pipeline), &key.figure);
            let drift = known.remove(&key);
            let factor = drift.as_ref().map(|drift| drift.factor);
            let Some(change) = self.judge.judge(&key, &periods, until, profile, factor) else { continue };
            let why = self.note_change(&mut db, &key, change, drift).await?.filter(|_| is_corrected(registered));
            news.extend(why.map(|why| DriftNews { pipeline: key.pipeline, why }));
        }
        self.judged_until = until;
        Ok(news)
    }

    /// Writes a change of a drift with its event. Returns the change in words, unless its pipeline is gone.
    async fn note_change(
        &self,
        db: &mut PgConnection,
        key: &FigureKey,
        change: DriftChange,
        known: Option<ProfileDrift>,
    ) -> Result<Option<String>, ApplyError> {
        let since = known.as_ref().map(|drift| drift.since);
        let made = |DriftNumbers { factor, profile, measured, begin }: DriftNumbers| {
            let (pipeline, figure) = (key.pipeline.clone(), key.figure.clone());
            ProfileDrift { pipeline, figure, factor, profile, measured, since: since.unwrap_or_else(|| begin_of(begin)) }
        };
        let noted = match change {
            DriftChange::Begun(numbers) => NotedChange::new("begun", made(numbers)),
            DriftChange::Changed(numbers) => NotedChange::new("changed", made(numbers)),
            DriftChange::Over(end) => {
                let Some(drift) = known else { return Ok(None) };
                NotedChange { stage: "over", why: end.describe(&drift.figure), drift }
            }
        };
        let mut tx = db.begin().await?;
        fence(&mut tx, self.lease).await?;
        let is_stored = match noted.stage {
            "over" => rows::delete(&mut tx, &row(&noted.drift)).await?,
            _ => rows::put(&mut tx, &row(&noted.drift)).await?,
        };
        if !is_stored {
            return Ok(None);
        }
        store::events::insert(&mut tx, DRIFT_EVENT, &key.pipeline, &noted.facts()).await?;
        tx.commit().await?;
        let NotedChange { stage, why, .. } = noted;
        tracing::info!(pipeline = key.pipeline, stage, why, "the drift of a profile has changed");
        Ok(Some(why))
    }
}

/// The key of a drift.
fn key_of(drift: &ProfileDrift) -> FigureKey {
    FigureKey { pipeline: drift.pipeline.clone(), figure: drift.figure.clone() }
}

/// A change of a drift, as its event tells it.
struct NotedChange {
    stage: &'static str,
    why: String,
    drift: ProfileDrift,
}

impl NotedChange {
    fn new(stage: &'static str, drift: ProfileDrift) -> Self {
        Self { stage, why: drift.describe(), drift }
    }

    fn facts(&self) -> Value {
        let Self { stage, why, drift } = self;
        let ProfileFigure { kind, task, variant, at } = &drift.figure;
        let place = match kind {
            FigureKind::Latency => "hardware",
            FigureKind::Fanout => "child",
        };
        json!({
            "stage": stage, "kind": kind.name(), "task": task, "variant": variant, place: at,
            "profile": drift.profile, "measured": drift.measured, "factor": drift.factor, "since": drift.since, "why": why,
        })
    }
}
