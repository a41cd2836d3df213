//! What do agents measure of the figures of profiles?

use crate::app::now;
use crate::decide::drift::{
    FigureKind, HISTORY_PERIODS_MAX, MeasuredPart, MeasuredWindow, PERIOD_S, PeriodSums, ProfileFigure, last_measured,
};
use crate::decide::drift_watch::FigureKey;
use crate::documents;
use crate::store::{self, PgConnection, drifts as rows};
use apportion_domain::{Pipeline, Route, TaskIndex, VariantIndex};
use apportion_wire::PipelineSpec;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Reports of a period have come this many milliseconds after it is over: agents report each second, and the records of all
/// agents take a moment.
const REPORTED_AFTER_MS: i64 = 2_000;

/// What was measured of each figure, by period.
pub(super) type Histories = BTreeMap<FigureKey, Vec<PeriodSums>>;

/// The first period whose reports may be missing.
pub(super) fn complete_until() -> i64 {
    (now().timestamp_millis() - REPORTED_AFTER_MS).div_euclid(1_000 * PERIOD_S)
}

/// The histories of all figures of these pipelines before the period `until`.
///
/// # Errors
/// The database's.
pub(super) async fn histories(db: &mut PgConnection, until: i64, specs: &[PipelineSpec]) -> store::Result<Histories> {
    let mut histories = latencies(db, None, until).await?;
    histories.extend(fanouts(db, None, until, specs).await?);
    Ok(histories)
}

/// A figure with what agents measured of it in its last windows.
#[derive(Clone, Debug)]
pub struct MeasuredFigure {
    /// The pipeline.
    pub pipeline: String,
    /// The figure.
    pub figure: ProfileFigure,
    /// The measurement.
    pub window: MeasuredWindow,
}

/// The measured latencies and fan-outs of a pipeline. Figures with too few batches or queries in the last windows are left
/// out.
///
/// # Errors
/// The database's.
pub async fn measured_figures(db: &mut PgConnection, spec: &PipelineSpec) -> store::Result<Vec<MeasuredFigure>> {
    let until = complete_until();
    let mut histories = latencies(db, Some(&spec.name), until).await?;
    histories.extend(fanouts(db, Some(&spec.name), until, std::slice::from_ref(spec)).await?);
    Ok(measured(histories, until))
}

/// The measured latencies of all pipelines.
///
/// # Errors
/// The database's.
pub async fn measured_latencies(db: &mut PgConnection) -> store::Result<Vec<MeasuredFigure>> {
    let until = complete_until();
    Ok(measured(latencies(db, None, until).await?, until))
}

fn measured(histories: Histories, until: i64) -> Vec<MeasuredFigure> {
    let of = |(key, periods): (FigureKey, Vec<PeriodSums>)| {
        let window = last_measured(key.figure.kind, &periods, until)?;
        Some(MeasuredFigure { pipeline: key.pipeline, figure: key.figure, window })
    };
    histories.into_iter().filter_map(of).collect()
}

/// Adds a measurement to the last period of a history, or begins the next period.
fn push(periods: &mut Vec<PeriodSums>, period: i64, part: MeasuredPart) {
    match periods.last_mut() {
        Some(last) if last.period == period => last.parts.push(part),
        _ => periods.push(PeriodSums { period, parts: vec![part] }),
    }
}

async fn latencies(db: &mut PgConnection, pipeline: Option<&str>, until: i64) -> store::Result<Histories> {
    let mut histories = Histories::new();
    for row in rows::batch_times(db, pipeline, until - HISTORY_PERIODS_MAX, until).await? {
        let figure = ProfileFigure { kind: FigureKind::Latency, task: row.task, variant: row.variant, at: row.hardware };
        let part = MeasuredPart {
            session: row.session,
            count: row.batches.unsigned_abs(),
            measured: row.took_ms,
            expected: row.expected_ms,
        };
        push(histories.entry(FigureKey { pipeline: row.pipeline, figure }).or_default(), row.period, part);
    }
    Ok(histories)
}

/// The fan-outs of these pipelines. A disturbed machine makes no more queries, so agents are not told apart.
async fn fanouts(
    db: &mut PgConnection,
    pipeline: Option<&str>,
    until: i64,
    specs: &[PipelineSpec],
) -> store::Result<Histories> {
    let counted = rows::children(db, pipeline, until - HISTORY_PERIODS_MAX, until).await?;
    let mut means: BTreeMap<FigureKey, f64> = BTreeMap::new();
    for spec in specs.iter().filter(|spec| counted.iter().any(|row| row.pipeline == spec.name)) {
        // A spec without a complete profile has no fan-outs to compare with.
        let Ok(facts) = documents::facts(spec) else { continue };
        let of = |(figure, mean)| (FigureKey { pipeline: spec.name.clone(), figure }, mean);
        means.extend(profiled_fanouts(&facts.pipeline).into_iter().map(of));
    }
    let mut histories = Histories::new();
    for row in counted {
        let figure = ProfileFigure { kind: FigureKind::Fanout, task: row.task, variant: row.variant, at: row.child };
        let key = FigureKey { pipeline: row.pipeline, figure };
        let Some(mean) = means.get(&key) else { continue };
        let part = MeasuredPart {
            session: Uuid::nil(),
            count: row.queries.unsigned_abs(),
            measured: row.children as f64,
            expected: row.queries as f64 * mean,
        };
        push(histories.entry(key).or_default(), row.period, part);
    }
    Ok(histories)
}

/// The mean queries of each variant at each child by the profile. Left out are edges on which an agent counts something
/// else: those into joins, where several parents make one query, and those of `one_of` with a distribution, which is that
/// of the chosen child. An edge without queries has no ratio.
fn profiled_fanouts(pipeline: &Pipeline) -> BTreeMap<ProfileFigure, f64> {
    let mut means = BTreeMap::new();
    for at in pipeline.order() {
        let task = pipeline.task(*at);
        for edge in pipeline.children(*at).filter(|edge| !pipeline.is_join(edge.to)) {
            for (position, variant) in task.variants.iter().enumerate() {
                let is_conditional = task.route == Route::OneOf && variant.fanout_counts.contains_key(&edge.to);
                let mean = pipeline.fanout(edge, VariantIndex(position));
                if !is_conditional && mean > 0.0 {
                    let name = |task: TaskIndex| pipeline.task(task).name.clone();
                    let (kind, variant) = (FigureKind::Fanout, variant.name.clone());
                    means.insert(ProfileFigure { kind, task: name(*at), variant, at: name(edge.to) }, mean);
                }
            }
        }
    }
    means
}
