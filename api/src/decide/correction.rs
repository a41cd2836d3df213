//! What does a plan count with: the figures of a pipeline's file and profile, and the measurements of agents?
//!
//! Example: `read-s` on `t4` takes 1.30 times its profile in service. A plan counts 13 ms where the profile has 10 ms, and
//! its warnings say so.

use super::drift::{FigureKind, ProfileDrift, ProfileFigure};
use super::measured::{FleetTimes, fill_times};
use apportion_wire::{PipelineSpec, ProfileRowSpec, VariantSpec};

/// The measurements of agents with which plans are made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    /// Times of hops and loads.
    pub times: FleetTimes,
    /// The figures that differ from their profiles, of all pipelines.
    pub drifts: Vec<ProfileDrift>,
}

impl Measurements {
    /// Puts the measured times where the file has none, and corrects the profile by its drifts. Returns the sentences about
    /// both, and about values that differ.
    pub fn fill(&self, spec: &mut PipelineSpec) -> Vec<String> {
        let mut notes = fill_times(spec, &self.times);
        notes.extend(correct_profile(spec, &self.drifts));
        notes
    }
}

/// Whether plans of this pipeline count with the drifts of its profile.
#[must_use]
pub fn is_corrected(spec: &PipelineSpec) -> bool {
    spec.replan.as_ref().and_then(|replan| replan.correct_profiles).unwrap_or(true)
}

/// Multiplies the drifting figures of the pipeline's profile by their factors. Returns a sentence about each. Nothing
/// changes if its `replan` settings switch that off.
pub fn correct_profile(spec: &mut PipelineSpec, drifts: &[ProfileDrift]) -> Vec<String> {
    if !is_corrected(spec) {
        return Vec::new();
    }
    let (name, mut notes) = (spec.name.clone(), Vec::new());
    for drift in drifts.iter().filter(|drift| drift.pipeline == name) {
        let has_edge = spec.edges.iter().any(|edge| edge.from == drift.figure.task && edge.to == drift.figure.at);
        let is_changed = match (variant_of(spec, &drift.figure), drift.figure.kind) {
            (Some(variant), FigureKind::Latency) => correct_latencies(variant, drift),
            (Some(variant), FigureKind::Fanout) if has_edge => correct_fanout(variant, drift),
            _ => false,
        };
        if is_changed {
            notes.push(drift_warning(spec, drift));
        }
    }
    notes
}

/// The sentence about a drift of this pipeline, and about its effect on plans.
#[must_use]
pub fn drift_warning(spec: &PipelineSpec, drift: &ProfileDrift) -> String {
    let effect = if is_corrected(spec) { "plans count with this" } else { "plans count with the profile" };
    format!("pipeline {}: {}: {effect}", spec.name, drift.describe())
}

fn variant_of<'a>(spec: &'a mut PipelineSpec, figure: &ProfileFigure) -> Option<&'a mut VariantSpec> {
    let task = spec.tasks.iter_mut().find(|task| task.name == figure.task)?;
    task.variants.iter_mut().find(|variant| variant.name == figure.variant)
}

/// Whether the variant has latencies on the hardware type.
fn correct_latencies(variant: &mut VariantSpec, drift: &ProfileDrift) -> bool {
    let mut has_rows = false;
    for row in variant.profile.iter_mut().flatten().filter(|row| row.hardware == drift.figure.at) {
        row.latency_ms = rounded(row.latency_ms * drift.factor);
        row.p99_ms = row.p99_ms.map(|ms| rounded(ms * drift.factor));
        let measured = row.measured.get_or_insert_default();
        measured.drift = Some(drift.factor);
        for shape in &mut measured.by_shape {
            shape.latency_ms = rounded(shape.latency_ms * drift.factor);
            shape.p99_ms = shape.p99_ms.map(|ms| rounded(ms * drift.factor));
        }
        has_rows = true;
    }
    has_rows
}

/// The mean replaces a distribution, because only the mean is measured.
fn correct_fanout(variant: &mut VariantSpec, drift: &ProfileDrift) -> bool {
    let child = &drift.figure.at;
    variant.fanout_counts.remove(child);
    variant.fanout_to.insert(child.clone(), rounded(drift.profile * drift.factor));
    true
}

/// Without the digits that a product of decimal fractions adds.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Two latencies are equal if they differ by less than this part: a document may lose the last digit of a number.
const EQUAL_PART: f64 = 1e-9;

/// Whether two specs have the same latencies of a variant on a hardware type, in any order.
#[must_use]
pub fn same_latencies(a: &PipelineSpec, b: &PipelineSpec, figure: &ProfileFigure) -> bool {
    let (a, b) = (latency_rows(a, figure), latency_rows(b, figure));
    let are_equal = |a: f64, b: f64| (a - b).abs() <= EQUAL_PART * a.max(b);
    let is_same = |(a, b): (&&ProfileRowSpec, &&ProfileRowSpec)| {
        a.batch == b.batch && are_equal(share(a), share(b)) && are_equal(a.latency_ms, b.latency_ms)
    };
    a.len() == b.len() && a.iter().zip(&b).all(is_same)
}

/// Whether the spec has this figure: rows for a latency, an edge for a fan-out.
#[must_use]
pub fn has_figure(spec: &PipelineSpec, figure: &ProfileFigure) -> bool {
    match figure.kind {
        FigureKind::Latency => !latency_rows(spec, figure).is_empty(),
        FigureKind::Fanout => {
            let is_variant = |variant: &VariantSpec| variant.name == figure.variant;
            let mut of_task = spec.tasks.iter().filter(|task| task.name == figure.task);
            let has_edge = spec.edges.iter().any(|edge| edge.from == figure.task && edge.to == figure.at);
            has_edge && of_task.any(|task| task.variants.iter().any(is_variant))
        }
    }
}

/// The rows of a variant's profile on a hardware type, in the order of shares and batch sizes.
fn latency_rows<'a>(spec: &'a PipelineSpec, figure: &ProfileFigure) -> Vec<&'a ProfileRowSpec> {
    let task = spec.tasks.iter().find(|task| task.name == figure.task);
    let variant = task.and_then(|task| task.variants.iter().find(|variant| variant.name == figure.variant));
    let rows = variant.and_then(|variant| variant.profile.as_ref()).into_iter().flatten();
    let mut rows: Vec<&ProfileRowSpec> = rows.filter(|row| row.hardware == figure.at).collect();
    rows.sort_by(|a, b| share(a).total_cmp(&share(b)).then(a.batch.cmp(&b.batch)));
    rows
}

/// The part of a device that a row is for.
fn share(row: &ProfileRowSpec) -> f64 {
    row.share.unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::DateTime;
    use serde_json::json;

    fn spec() -> PipelineSpec {
        serde_json::from_value(json!({
            "name": "p", "slo_ms": 100.0, "edges": [{"from": "find", "to": "read"}],
            "tasks": [
                {"name": "find", "variants": [{"name": "find-s", "fanout_counts": {"read": {"2": 0.5, "4": 0.5}}, "profile": [
                    {"hardware": "t4", "batch": 1, "latency_ms": 10.0, "p99_ms": 12.0},
                    {"hardware": "cpu", "batch": 1, "latency_ms": 70.0}
                ]}]},
                {"name": "read", "variants": [{"name": "read-s", "profile": []}]}
            ]
        }))
        .expect("a spec")
    }

    fn drift(kind: FigureKind, at: &str, factor: f64) -> ProfileDrift {
        let figure = ProfileFigure { kind, task: "find".into(), variant: "find-s".into(), at: at.into() };
        let (profile, measured) = (3.0, 3.0 * factor);
        ProfileDrift { pipeline: "p".into(), figure, factor, profile, measured, since: DateTime::UNIX_EPOCH }
    }

    /// Latency and 99th percentile of `find-s` on this hardware type.
    fn latency(spec: &PipelineSpec, hardware: &str) -> (f64, Option<f64>) {
        let rows = spec.tasks[0].variants[0].profile.as_ref().expect("a profile");
        let row = rows.iter().find(|row| row.hardware == hardware).expect("a row");
        (row.latency_ms, row.p99_ms)
    }

    #[test]
    fn a_drifting_latency_is_multiplied_on_its_hardware_alone() {
        let mut corrected = spec();
        let notes = correct_profile(&mut corrected, &[drift(FigureKind::Latency, "t4", 1.3)]);
        assert_eq!(latency(&corrected, "t4"), (13.0, Some(15.6)));
        assert_eq!(latency(&corrected, "cpu"), (70.0, None));
        assert_eq!(notes, ["pipeline p: find-s on t4 takes 1.30 times its profile: plans count with this"]);
    }

    #[test]
    fn a_drift_multiplies_the_latencies_of_each_shape() {
        let shape =
            |tokens: u32, share: f64, ms: f64| json!({"shape": {"ids": [tokens]}, "share": share, "latency_ms": ms});
        let by_shape = |factor: f64| json!([shape(128, 0.9, 10.0 * factor), shape(512, 0.1, 40.0 * factor)]);
        let mut corrected = spec();
        let row = &mut corrected.tasks[0].variants[0].profile.as_mut().expect("a profile")[0];
        (row.latency_ms, row.p99_ms) = (13.0, Some(40.0));
        row.measured = Some(serde_json::from_value(json!({"by_shape": by_shape(1.0)})).expect("a measurement"));
        correct_profile(&mut corrected, &[drift(FigureKind::Latency, "t4", 1.5)]);
        let row = &corrected.tasks[0].variants[0].profile.as_ref().expect("a profile")[0];
        let measured = serde_json::to_value(&row.measured).expect("JSON");
        assert_eq!((row.latency_ms, &measured["by_shape"]), (19.5, &by_shape(1.5)));
    }

    #[test]
    fn a_drifting_fanout_replaces_its_distribution_by_the_mean() {
        let mut corrected = spec();
        let notes = correct_profile(&mut corrected, &[drift(FigureKind::Fanout, "read", 1.25)]);
        let variant = &corrected.tasks[0].variants[0];
        assert_eq!((variant.fanout_to["read"], variant.fanout_counts.len()), (3.75, 0));
        assert_eq!(
            notes,
            ["pipeline p: find-s makes 1.25 times the queries of its profile at read: plans count with this"]
        );
    }

    #[test]
    fn drifts_of_others_change_nothing() {
        let other = ProfileDrift { pipeline: "q".into(), ..drift(FigureKind::Latency, "t4", 1.3) };
        let absent = drift(FigureKind::Latency, "a100", 1.3);
        let no_edge = drift(FigureKind::Fanout, "track", 1.3);
        let mut corrected = spec();
        assert_eq!(correct_profile(&mut corrected, &[other, absent, no_edge]), Vec::<String>::new());
        assert_eq!(corrected, spec());
    }

    #[test]
    fn the_setting_switches_the_correction_off() {
        let mut spec = spec();
        spec.replan = Some(serde_json::from_value(json!({"correct_profiles": false})).expect("settings"));
        let before = spec.clone();
        assert_eq!(correct_profile(&mut spec, &[drift(FigureKind::Latency, "t4", 1.3)]), Vec::<String>::new());
        assert_eq!(spec, before);
        let warning = drift_warning(&spec, &drift(FigureKind::Latency, "t4", 1.3));
        assert_eq!(warning, "pipeline p: find-s on t4 takes 1.30 times its profile: plans count with the profile");
    }

    #[test]
    fn equal_rows_in_another_order_are_the_same_latencies() {
        let figure = drift(FigureKind::Latency, "t4", 1.0).figure;
        let row = |batch, latency_ms| ProfileRowSpec {
            hardware: "t4".into(),
            batch,
            latency_ms,
            p99_ms: None,
            share: None,
            measured: None,
        };
        let with = |rows: Vec<ProfileRowSpec>| {
            let mut spec = spec();
            spec.tasks[0].variants[0].profile = Some(rows);
            spec
        };
        let (one, other) = (with(vec![row(1, 10.0), row(4, 20.0)]), with(vec![row(4, 20.0), row(1, 10.0)]));
        assert!(same_latencies(&one, &other, &figure));
        for changed in [vec![row(1, 10.0)], vec![row(1, 10.1), row(4, 20.0)], vec![row(2, 10.0), row(4, 20.0)]] {
            assert!(!same_latencies(&one, &with(changed.clone()), &figure), "{changed:?}");
        }
        let elsewhere = ProfileFigure { at: "cpu".into(), ..figure };
        assert!(same_latencies(&one, &with(vec![row(1, 99.0)]), &elsewhere), "neither has rows there");
    }

    #[test]
    fn figures_are_those_of_rows_and_edges() {
        let figure = |kind, at: &str| drift(kind, at, 1.0).figure;
        let known = [(FigureKind::Latency, "t4", true), (FigureKind::Latency, "a100", false)];
        for (kind, at, expected) in
            known.into_iter().chain([(FigureKind::Fanout, "read", true), (FigureKind::Fanout, "t4", false)])
        {
            assert_eq!(has_figure(&spec(), &figure(kind, at)), expected, "{kind:?} {at}");
        }
        let unknown = ProfileFigure { variant: "find-l".into(), ..figure(FigureKind::Fanout, "read") };
        assert!(!has_figure(&spec(), &unknown));
    }
}
