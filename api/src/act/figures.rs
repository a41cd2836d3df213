//! What do agents measure of the figures of profiles?

use crate::app::now;
use crate::decide::drift::{
    FigureKind, HISTORY_PERIODS_MAX, MeasuredPart, MeasuredWindow, PERIOD_S, PeriodSums, ProfileFigure, last_measured,
};
use crate::decide::drift_watch::FigureKey;
use crate::documents;
use crate::store::{self, PgConnection, drifts as rows, drifts::ChildrenRow};
use apportion_domain::{Edge, Pipeline, Route, TaskIndex, VariantIndex};
use apportion_wire::PipelineSpec;
use std::collections::{BTreeMap, BTreeSet};
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

/// What agents measured, before fan-outs are compared with profiles.
pub(super) struct MeasuredSums {
    latencies: Histories,
    children: Vec<ChildrenRow>,
}

impl MeasuredSums {
    /// What they measured before the period `until`; of one pipeline if it is named.
    ///
    /// # Errors
    /// The database's.
    pub(super) async fn read(db: &mut PgConnection, pipeline: Option<&str>, until: i64) -> store::Result<Self> {
        let latencies = latencies(db, pipeline, until).await?;
        let children = rows::children(db, pipeline, until - HISTORY_PERIODS_MAX, until).await?;
        Ok(Self { latencies, children })
    }

    /// The pipelines of which they measured something.
    pub(super) fn pipelines(&self) -> BTreeSet<String> {
        let latencies = self.latencies.keys().map(|key| &key.pipeline);
        latencies.chain(self.children.iter().map(|row| &row.pipeline)).cloned().collect()
    }

    /// The histories of all latencies, and of the fan-outs of these pipelines.
    pub(super) fn histories(self, specs: &[PipelineSpec]) -> Histories {
        let mut histories = self.latencies;
        histories.extend(fanouts(self.children, specs));
        histories
    }
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
    let sums = MeasuredSums::read(db, Some(&spec.name), until).await?;
    Ok(measured(sums.histories(std::slice::from_ref(spec)), until))
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
            variance: 0.0,
        };
        push(histories.entry(FigureKey { pipeline: row.pipeline, figure }).or_default(), row.period, part);
    }
    Ok(histories)
}

/// The fan-outs of these pipelines. A disturbed machine makes no more queries, so agents are not told apart.
fn fanouts(counted: Vec<ChildrenRow>, specs: &[PipelineSpec]) -> Histories {
    let mut profiled: BTreeMap<FigureKey, ProfiledFanout> = BTreeMap::new();
    for spec in specs.iter().filter(|spec| counted.iter().any(|row| row.pipeline == spec.name)) {
        // A spec without a complete profile has no fan-outs to compare with.
        let Ok(facts) = documents::facts(spec) else { continue };
        let of = |(figure, fanout)| (FigureKey { pipeline: spec.name.clone(), figure }, fanout);
        profiled.extend(profiled_fanouts(&facts.pipeline).into_iter().map(of));
    }
    let mut histories = Histories::new();
    for row in counted {
        let figure = ProfileFigure { kind: FigureKind::Fanout, task: row.task, variant: row.variant, at: row.child };
        let key = FigureKey { pipeline: row.pipeline, figure };
        let Some(fanout) = profiled.get(&key) else { continue };
        let queries = row.queries as f64;
        let part = MeasuredPart {
            session: Uuid::nil(),
            count: row.queries.unsigned_abs(),
            measured: row.children as f64,
            expected: queries * fanout.mean,
            variance: queries * fanout.variance,
        };
        push(histories.entry(key).or_default(), row.period, part);
    }
    histories
}

/// Queries that one query makes at a child by the profile.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ProfiledFanout {
    mean: f64,
    /// That of the distribution, else that of a Poisson count.
    variance: f64,
}

impl ProfiledFanout {
    fn of(pipeline: &Pipeline, edge: &Edge, variant: VariantIndex) -> Self {
        let mean = pipeline.fanout(edge, variant);
        let counts = pipeline.variant(edge.from, variant).fanout_counts.get(&edge.to);
        let square = |(count, probability): &(u32, f64)| probability * (f64::from(*count) - mean).powi(2);
        Self { mean, variance: counts.map_or(mean, |counts| counts.0.iter().map(square).sum()) }
    }
}

/// The queries of each variant at each child by the profile. Left out are edges on which an agent counts something
/// else: those into joins, where several parents make one query, and those of `one_of` with a distribution, which is that
/// of the chosen child. An edge without queries has no ratio.
fn profiled_fanouts(pipeline: &Pipeline) -> BTreeMap<ProfileFigure, ProfiledFanout> {
    let mut fanouts = BTreeMap::new();
    for at in pipeline.order() {
        let task = pipeline.task(*at);
        for edge in pipeline.children(*at).filter(|edge| !pipeline.is_join(edge.to)) {
            for (position, variant) in task.variants.iter().enumerate() {
                let is_conditional = task.route == Route::OneOf && variant.fanout_counts.contains_key(&edge.to);
                let fanout = ProfiledFanout::of(pipeline, edge, VariantIndex(position));
                if !is_conditional && fanout.mean > 0.0 {
                    let name = |task: TaskIndex| pipeline.task(task).name.clone();
                    let (kind, variant) = (FigureKind::Fanout, variant.name.clone());
                    fanouts.insert(ProfileFigure { kind, task: name(*at), variant, at: name(edge.to) }, fanout);
                }
            }
        }
    }
    fanouts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The fan-outs of the profile by `variant>child`: mean and variance.
    fn fanouts_of(spec: serde_json::Value) -> Vec<(String, [f64; 2])> {
        let spec: PipelineSpec = serde_json::from_value(spec).expect("a spec");
        let facts = documents::facts(&spec).expect("a complete profile");
        let named = |(figure, of): (ProfileFigure, ProfiledFanout)| {
            (format!("{}>{}", figure.variant, figure.at), [of.mean, of.variance])
        };
        profiled_fanouts(&facts.pipeline).into_iter().map(named).collect()
    }

    fn task(name: &str, variant: serde_json::Value) -> serde_json::Value {
        let mut variant = variant;
        variant["accuracy"] = json!(0.9);
        variant["profile"] = json!([{"hardware": "t4", "batch": 1, "latency_ms": 5.0}]);
        json!({"name": name, "variants": [variant]})
    }

    #[test]
    fn each_edge_out_of_a_variant_has_a_profiled_mean() {
        let found = fanouts_of(json!({
            "name": "p", "slo_ms": 200.0,
            "tasks": [
                task("find", json!({"name": "find-s", "fanout": 2.0, "fanout_counts": {"read": {"2": 0.5, "4": 0.5}}})),
                task("read", json!({"name": "read-s"})), task("sort", json!({"name": "sort-s"}))
            ],
            "edges": [{"from": "find", "to": "read"}, {"from": "find", "to": "sort", "ratio": 0.25}]
        }));
        assert_eq!(found, [("find-s>read".to_owned(), [3.0, 1.0]), ("find-s>sort".to_owned(), [0.5, 0.5])]);
    }

    #[test]
    fn edges_into_joins_are_left_out() {
        let edges = json!([
            {"from": "a", "to": "b"}, {"from": "a", "to": "c"},
            {"from": "b", "to": "d", "primary": true}, {"from": "c", "to": "d", "primary": false}
        ]);
        let tasks: Vec<_> = ["a", "b", "c", "d"].map(|name| task(name, json!({"name": name}))).into();
        let found = fanouts_of(json!({"name": "p", "slo_ms": 200.0, "tasks": tasks, "edges": edges}));
        assert_eq!(found, [("a>b".to_owned(), [1.0; 2]), ("a>c".to_owned(), [1.0; 2])]);
    }

    #[test]
    fn measurements_of_a_period_stand_together() {
        let part = |count| MeasuredPart { session: Uuid::nil(), count, measured: 1.0, expected: 1.0, variance: 0.0 };
        let mut periods = Vec::new();
        for (period, count) in [(7, 1), (7, 2), (9, 3)] {
            push(&mut periods, period, part(count));
        }
        let counts: Vec<(i64, usize)> = periods.iter().map(|of: &PeriodSums| (of.period, of.parts.len())).collect();
        assert_eq!(counts, [(7, 2), (9, 1)]);
    }
}
