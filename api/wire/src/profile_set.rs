//! How are registered pipelines and their measurements read and merged?

use crate::bad_input::BadInput;
use crate::check::read;
use crate::convert::objective_of;
use crate::demand_source::check_sources;
use crate::on_demand::check_on_demand;
use crate::record::{FileKind, record};
use crate::row_measurement::RowMeasurement;
use crate::scaling_check::check_scaling;
use crate::slot_check::check_slots;
use crate::spec::{PipelineSpec, ProfileRowSpec, TensorSpec, VariantSpec};
use crate::tree::parse_tree;
use crate::validation::check_validation;
use crate::workload_check::check_workloads;
use apportion_domain::pipeline::NUMBER_MAX;
use apportion_domain::{Hardware, Invalid, Invalids, Pipeline};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

record! {
    /// The measurements of one pipeline.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ProfileSet {
        /// Latencies.
        pub rows: Vec<MeasuredRow> => required,
        /// Other figures, by variant.
        #[serde(default)]
        pub variants: Vec<MeasuredVariant> => optional,
        /// Measured accuracy of a path, by `task:variant>task:variant`.
        #[serde(default)]
        pub path_accuracy: BTreeMap<String, f64> => optional,
        /// Tensors of each task, from its model files.
        #[serde(default)]
        pub tasks: Vec<MeasuredTask> => optional,
    }
}

impl ProfileSet {
    /// Merges later measurements. Rows replace all rows of the same task, variant, hardware type and share. The other
    /// figures of a variant, the accuracy of a path and the tensors of a task are replaced one by one. Everything else
    /// stays.
    pub fn merge(&mut self, later: ProfileSet) {
        let place = |r: &MeasuredRow| (r.task.clone(), r.variant.clone(), r.hardware.clone(), r.share.to_bits());
        let measured: BTreeSet<_> = later.rows.iter().map(place).collect();
        self.rows.retain(|row| !measured.contains(&place(row)));
        self.rows.extend(later.rows);
        for new in later.variants {
            match self.variants.iter_mut().find(|old| (&old.task, &old.variant) == (&new.task, &new.variant)) {
                None => self.variants.push(MeasuredVariant { dominated_by: BTreeMap::new(), ..new }),
                Some(old) => {
                    old.accuracy = new.accuracy.or(old.accuracy);
                    old.load_ms = new.load_ms.or(old.load_ms);
                    old.memory_mib = new.memory_mib.or(old.memory_mib);
                    old.fanout_counts.extend(new.fanout_counts);
                }
            }
        }
        self.path_accuracy.extend(later.path_accuracy);
        for new in later.tasks {
            match self.tasks.iter_mut().find(|old| old.name == new.name) {
                None => self.tasks.push(new),
                Some(old) => *old = new,
            }
        }
    }
}

record! {
    /// Latency of one batch of one variant.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct MeasuredRow {
        /// Task.
        pub task: String => required,
        /// Variant.
        pub variant: String => required,
        /// Hardware type that it ran on.
        pub hardware: String => required,
        /// Fraction of a device; default 1.
        #[serde(default = "whole")]
        pub share: f64 => optional,
        /// Queries in the batch.
        pub batch: u32 => required,
        /// Median time of the batch.
        pub latency_ms: f64 => required,
        /// 99th percentile of the batch's time.
        #[serde(default)]
        pub p99_ms: Option<f64> => optional.or_null(),
        /// How it was measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub measured: Option<RowMeasurement> => optional.or_null(),
    }
}

record! {
    /// The figures of one variant other than latency.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct MeasuredVariant {
        /// Task.
        pub task: String => required,
        /// Variant.
        pub variant: String => required,
        /// Accuracy from 0 to 1.
        #[serde(default)]
        pub accuracy: Option<f64> => optional.or_null(),
        /// Time to load it onto a device.
        #[serde(default)]
        pub load_ms: Option<f64> => optional.or_null(),
        /// Device memory while loaded.
        #[serde(default)]
        pub memory_mib: Option<f64> => optional.or_null(),
        /// Distribution of the queries made, by child task.
        #[serde(default)]
        #[schema(value_type = BTreeMap<String, BTreeMap<String, f64>>)]
        pub fanout_counts: BTreeMap<String, BTreeMap<u32, f64>> => optional,
        /// By hardware type, the variant that is nowhere worse than this one there. It is found again at each reading, so a
        /// given one has no effect.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub dominated_by: BTreeMap<String, String> => optional,
    }
}

record! {
    /// Tensors of one task.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct MeasuredTask {
        /// Task.
        pub name: String => required,
        /// Its inputs.
        pub inputs: Vec<TensorSpec> => required,
        /// Its outputs.
        pub outputs: Vec<TensorSpec> => required,
        /// The inputs of its variants, where `before` makes them from other ones.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub model_inputs: Option<Vec<TensorSpec>> => optional.or_null(),
        /// The outputs of its variants, where transforms make other ones from them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub model_outputs: Option<Vec<TensorSpec>> => optional.or_null(),
    }
}

fn whole() -> f64 {
    1.0
}

/// Reads a pipeline as it is registered with the service, JSON or YAML. Its graph is checked when it is planned with
/// hardware and profiles, and before that by [`PipelineSpec::check_graph`].
///
/// # Errors
/// Every refused key and value.
pub fn read_pipeline_spec(file: &str, text: &str) -> Result<PipelineSpec, BadInput> {
    pipeline_spec_from_tree(file, parse_tree(file, text)?)
}

/// Reads a registered pipeline from a tree.
///
/// # Errors
/// As [`read_pipeline_spec`].
pub fn pipeline_spec_from_tree(file: &str, tree: Value) -> Result<PipelineSpec, BadInput> {
    let spec: PipelineSpec = read(file, tree, FileKind::RegisteredPipeline, &PipelineSpec::RECORD)?;
    spec.check_graph().map_err(|e| BadInput::refused(file, e))?;
    Ok(spec)
}

/// Reads the measurements of a profiler.
///
/// # Errors
/// Every refused key and value.
pub fn read_profile_set(file: &str, text: &str) -> Result<ProfileSet, BadInput> {
    profile_set_from_tree(file, parse_tree(file, text)?)
}

/// Reads the measurements of a profiler from a tree.
///
/// # Errors
/// As [`read_profile_set`].
pub fn profile_set_from_tree(file: &str, tree: Value) -> Result<ProfileSet, BadInput> {
    read(file, tree, FileKind::ProfileSet, &ProfileSet::RECORD)
}

impl PipelineSpec {
    /// Checks the graph, the numbers, the names and the replan settings: everything that needs no measurement.
    ///
    /// # Errors
    /// Every refused value with its pointer; the pipeline is the root.
    pub fn check_graph(&self) -> Result<(), Invalids> {
        let mut problems = self.replan.as_ref().map_or_else(Vec::new, check_replan);
        problems.extend(self.replan.iter().flat_map(|replan| check_scaling(replan, self.survive)));
        problems.extend(self.validation.iter().flat_map(check_validation));
        problems.extend(check_workloads(self));
        problems.extend(self.glue_problems());
        problems.extend(check_slots(self));
        let hardware = self.hardware_named();
        let mut stand_in = self.clone();
        for variant in stand_in.tasks.iter_mut().flat_map(|t| &mut t.variants) {
            variant.accuracy.get_or_insert(1.0);
            let rows = variant.profile.get_or_insert_default();
            if rows.is_empty() {
                let hardware = hardware[0].name.clone();
                rows.push(ProfileRowSpec {
                    hardware,
                    batch: 1,
                    latency_ms: 1.0,
                    p99_ms: None,
                    share: None,
                    measured: None,
                });
            }
        }
        if let Err(e) = stand_in.to_domain(&hardware, "") {
            problems.extend(e.0);
        }
        if problems.is_empty() { Ok(()) } else { Err(Invalids(problems)) }
    }

    /// All hardware types of its own profile rows, or one stand-in.
    fn hardware_named(&self) -> Vec<Hardware> {
        let rows = self.tasks.iter().flat_map(|t| &t.variants).flat_map(|v| v.profile.iter().flatten());
        let mut names: Vec<String> = rows.map(|r| r.hardware.clone()).collect();
        names.sort();
        names.dedup();
        if names.is_empty() {
            names.push("any".to_owned());
        }
        let hardware = |name| Hardware { name, price_per_hour: 1.0, count: None, memory_mib: None };
        names.into_iter().map(hardware).collect()
    }

    /// The pipeline with its measurements. Rows and fan-out of measured variants replace its own, and the path table is
    /// merged. Accuracy, load time, memory and tensors are filled in if the pipeline does not have them.
    #[must_use]
    pub fn with_profiles(&self, profiles: &ProfileSet) -> PipelineSpec {
        let measured = by_variant(profiles);
        let mut merged = self.clone();
        for (task, own) in merged.tasks.iter_mut().zip(&self.tasks) {
            for (variant, named) in task.variants.iter_mut().zip(&own.variants) {
                if let Some(measurements) = measured.get(&(own.name.as_str(), named.name.as_str())) {
                    measurements.add_to(variant);
                }
            }
            if let Some(measured) = profiles.tasks.iter().find(|m| m.name == task.name) {
                task.inputs.get_or_insert_with(|| measured.inputs.clone());
                task.outputs.get_or_insert_with(|| measured.outputs.clone());
            }
        }
        for (key, &accuracy) in &profiles.path_accuracy {
            merged.path_accuracy.entry(key.clone()).or_insert(accuracy);
        }
        merged
    }

    /// The pipeline ready to be planned on `hardware`: with measurements, and without rows for other hardware.
    ///
    /// # Errors
    /// As [`PipelineSpec::to_domain`]. A variant without measurements on this hardware is refused at its profile.
    pub fn planned_on(&self, profiles: &ProfileSet, hardware: &[Hardware], at: &str) -> Result<Pipeline, Invalids> {
        let mut merged = self.with_profiles(profiles);
        for rows in merged.tasks.iter_mut().flat_map(|t| &mut t.variants).filter_map(|v| v.profile.as_mut()) {
            rows.retain(|row| hardware.iter().any(|h| h.name == row.hardware));
        }
        merged.to_domain(hardware, at)
    }
}

/// What was measured of one variant.
#[derive(Default)]
struct VariantMeasurements<'a> {
    rows: Vec<&'a MeasuredRow>,
    figures: Option<&'a MeasuredVariant>,
}

/// All measurements, by task and variant. A large profile has tens of thousands of both, and is read for each client.
fn by_variant(profiles: &ProfileSet) -> BTreeMap<(&str, &str), VariantMeasurements<'_>> {
    let mut found: BTreeMap<(&str, &str), VariantMeasurements<'_>> = BTreeMap::new();
    for row in &profiles.rows {
        found.entry((row.task.as_str(), row.variant.as_str())).or_default().rows.push(row);
    }
    for variant in &profiles.variants {
        let place = (variant.task.as_str(), variant.variant.as_str());
        found.entry(place).or_default().figures.get_or_insert(variant);
    }
    found
}

impl VariantMeasurements<'_> {
    fn add_to(&self, variant: &mut VariantSpec) {
        let row = |r: &&MeasuredRow| ProfileRowSpec {
            hardware: r.hardware.clone(),
            batch: r.batch,
            latency_ms: r.latency_ms,
            p99_ms: r.p99_ms,
            share: (r.share != 1.0).then_some(r.share),
            measured: r.measured.clone(),
        };
        if !self.rows.is_empty() {
            variant.profile = Some(self.rows.iter().map(row).collect());
        }
        if let Some(measured) = self.figures {
            variant.accuracy = variant.accuracy.or(measured.accuracy);
            variant.load_ms = variant.load_ms.or(measured.load_ms);
            variant.memory_mib = variant.memory_mib.or(measured.memory_mib);
            variant.fanout_counts.extend(measured.fanout_counts.clone());
        }
    }
}

/// Largest priority, above and below 0.
pub const PRIORITY_MAX: i64 = 1_000;
/// Most characters of the name of a project.
const PROJECT_CHARS_MAX: usize = 128;

fn check_project(replan: &crate::spec::ReplanSpec) -> Vec<Invalid> {
    let mut problems = Vec::new();
    let is_name =
        |name: &str| (1..=PROJECT_CHARS_MAX).contains(&name.chars().count()) && !name.chars().any(char::is_control);
    if let Some(project) = replan.project.as_ref().filter(|project| !is_name(project)) {
        let expected = format!("a name of 1 to {PROJECT_CHARS_MAX} characters without control characters");
        problems.push(Invalid::new("/replan/project", format!("{project:?}"), expected));
    }
    if let Some(priority) = replan.priority.filter(|priority| !(-PRIORITY_MAX..=PRIORITY_MAX).contains(priority)) {
        let expected = format!("a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}");
        problems.push(Invalid::new("/replan/priority", priority, expected));
    }
    problems
}

fn check_replan(replan: &crate::spec::ReplanSpec) -> Vec<Invalid> {
    const PERIOD_S_MIN: f64 = 0.1;
    const PERIOD_S_MAX: f64 = 86_400.0;
    let mut problems = Vec::new();
    if !(PERIOD_S_MIN..=PERIOD_S_MAX).contains(&replan.period_s) {
        problems.push(Invalid::new("/replan/period_s", replan.period_s, "a number from 0.1 to 86400"));
    }
    if !(1.0..=100.0).contains(&replan.headroom) {
        problems.push(Invalid::new("/replan/headroom", replan.headroom, "a factor from 1 to 100"));
    }
    if !(replan.min_qps > 0.0 && replan.min_qps <= 1e12) {
        problems.push(Invalid::new("/replan/min_qps", replan.min_qps, "a number above 0"));
    }
    if let Some(ladder) = replan.ladder.filter(|ladder| !(1.0..=100.0).contains(ladder)) {
        problems.push(Invalid::new("/replan/ladder", ladder, "a factor from 1 to 100"));
    }
    if let Some(headroom) = replan.ladder_headroom {
        const AT: &str = "/replan/ladder_headroom";
        match replan.ladder {
            // It is refused beside `scaling`, with or without a ladder.
            None if replan.scaling.is_some() => {}
            None => problems.push(Invalid::new(AT, headroom, "`ladder` beside it, or no such member")),
            // A ladder must reach the plan's own demand.
            Some(ladder) if !(0.1..=ladder.min(10.0)).contains(&headroom) => {
                let expected = format!("a factor from 0.1 to {}, the smaller of `ladder` and 10", ladder.min(10.0));
                problems.push(Invalid::new(AT, headroom, expected));
            }
            Some(_) => {}
        }
    }
    problems.extend(check_sources(&replan.mode, replan.demand.as_ref(), replan.deployed.as_ref()));
    problems.extend(check_project(replan));
    problems.extend(replan.on_demand.iter().flat_map(|on_demand| check_on_demand(&replan.mode, on_demand)));
    if let Some(objective) = &replan.objective {
        problems.extend(objective_of(objective, "/replan/objective").err().map(|e| e.0).unwrap_or_default());
        if let Some(budget) = objective.budget_per_hour.filter(|budget| !(0.0..=NUMBER_MAX).contains(budget)) {
            let at = "/replan/objective/budget_per_hour";
            problems.push(Invalid::new(at, budget, "a number of at least 0, or null"));
        }
    }
    problems
}
