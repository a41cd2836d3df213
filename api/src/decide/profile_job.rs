//! What does a profile job measure next, on which device, and which rows of the profile are its result?
//!
//! Example: a job measures `read-s` and `read-l` on `t4` and `cpu`. For each of the two hardware types one agent has a
//! device without replicas. It gets one order after the other: a variant and a batch size. When a variant is complete on a
//! hardware type, its rows replace those of the profile.

use super::batch_choice::{BatchLatency, next_batch, on_line};
use super::placement::{Device, DeviceSlot, Placement};
use apportion_domain::{Invalid, isotonic};
use apportion_wire::{MeasuredRow, PipelineSpec, RowMeasurement};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

/// Largest batch of a profile job.
pub const JOB_BATCH_MAX: u32 = 1_024;
/// Most profile jobs that wait or run at a time.
pub const PROFILE_JOBS_OPEN_MAX: i64 = 100;
/// Most batch sizes that a request may list.
pub const JOB_BATCHES_MAX: usize = 32;
/// Most variants, hardware types or shapes that a request may list.
pub const JOB_LIST_MAX: usize = 256;
/// Longest time of a job, in seconds.
pub const JOB_TIME_S_MAX: f64 = 86_400.0;
/// Longest time of one batch size, in seconds.
pub const POINT_TIME_S_MAX: f64 = 600.0;
/// Above this noise a measurement counts as noisy, as for the agents that measure it.
pub const NOISE_MAX: f64 = 0.10;
/// A drift must last this long before it starts a job, in seconds: a disturbance of some minutes is no other profile.
pub const DRIFT_LASTS_S: i64 = 120;
/// A figure that drifts is measured again at most once in this time, in seconds.
pub const MEASURE_AGAIN_S: i64 = 6 * 3_600;

/// A request for a profile job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileJobRequest {
    /// The registered pipeline.
    pub pipeline: String,
    /// The variants; default: all of the pipeline.
    #[serde(default)]
    pub variants: Vec<VariantChoice>,
    /// The hardware types; default: all of the live agents.
    #[serde(default)]
    pub hardware: Vec<String>,
    /// Batch sizes to measure, increasing. Default: powers of two up to `batch_max`, where the latency is least sure.
    #[serde(default)]
    pub batches: Vec<u32>,
    /// Largest batch size without `batches`; default 32.
    #[serde(default = "default_batch_max")]
    pub batch_max: u32,
    /// The job ends after this time, in seconds; default 3600.
    #[serde(default = "default_time_max_s")]
    pub time_max_s: f64,
    /// After this time no further run of a batch size begins, in seconds; default 5.
    #[serde(default = "default_point_time_max_s")]
    pub point_time_max_s: f64,
    /// Whether measurements of a noisy machine are refused; default false.
    #[serde(default)]
    pub strict: bool,
    /// By input, the sizes of its axes but the first, where the model file leaves one open.
    #[serde(default)]
    pub shapes: BTreeMap<String, Vec<u64>>,
}

/// A variant, or all of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VariantChoice {
    /// The task.
    pub task: String,
    /// The variant; default: all of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

fn default_batch_max() -> u32 {
    32
}

fn default_time_max_s() -> f64 {
    3_600.0
}

fn default_point_time_max_s() -> f64 {
    5.0
}

impl ProfileJobRequest {
    /// A request for one variant on one hardware type, with defaults.
    #[must_use]
    pub fn of_variant(pipeline: &str, task: &str, variant: &str, hardware: &str) -> Self {
        Self {
            pipeline: pipeline.to_owned(),
            variants: vec![VariantChoice { task: task.to_owned(), variant: Some(variant.to_owned()) }],
            hardware: vec![hardware.to_owned()],
            batches: Vec::new(),
            batch_max: default_batch_max(),
            time_max_s: default_time_max_s(),
            point_time_max_s: default_point_time_max_s(),
            strict: false,
            shapes: BTreeMap::new(),
        }
    }

    /// The values that are out of their bounds.
    #[must_use]
    pub fn refused(&self) -> Vec<Invalid> {
        let mut refused = Vec::new();
        let lists = [
            ("/variants", self.variants.len(), JOB_LIST_MAX),
            ("/hardware", self.hardware.len(), JOB_LIST_MAX),
            ("/shapes", self.shapes.len(), JOB_LIST_MAX),
            ("/batches", self.batches.len(), JOB_BATCHES_MAX),
        ];
        for (at, found, most) in lists.into_iter().filter(|(_, found, most)| found > most) {
            refused.push(Invalid::new(at, format!("{found} entries"), format!("at most {most}")));
        }
        let is_batch = |batch: &u32| (1..=JOB_BATCH_MAX).contains(batch);
        if !self.batches.is_sorted_by(|a, b| a < b) || !self.batches.iter().all(is_batch) {
            let found = format!("{:?}", self.batches);
            refused.push(Invalid::new("/batches", found, format!("increasing numbers from 1 to {JOB_BATCH_MAX}")));
        }
        if !is_batch(&self.batch_max) {
            let expected = format!("a number from 1 to {JOB_BATCH_MAX}");
            refused.push(Invalid::new("/batch_max", self.batch_max, expected));
        }
        for (at, value, most) in [
            ("/time_max_s", self.time_max_s, JOB_TIME_S_MAX),
            ("/point_time_max_s", self.point_time_max_s, POINT_TIME_S_MAX),
        ] {
            if !(value > 0.0 && value <= most) {
                refused.push(Invalid::new(at, value, format!("a number above 0, at most {most}")));
            }
        }
        if let Some((input, sizes)) = self.shapes.iter().find(|(_, sizes)| sizes.is_empty() || sizes.contains(&0)) {
            let expected = "sizes above 0 of all axes but the first";
            refused.push(Invalid::new("/shapes", format!("{input}: {sizes:?}"), expected));
        }
        refused
    }

    /// Names each variant, in the order of the pipeline.
    ///
    /// # Errors
    /// The first choice that the pipeline does not have, or a pipeline with transforms on edges: an agent measures a task
    /// by itself.
    pub fn resolve_variants(&mut self, spec: &PipelineSpec) -> Result<(), Invalid> {
        if spec.has_edge_transforms() {
            let expected = "a pipeline without transforms on edges; `apportion profile` without --server measures them";
            return Err(Invalid::new("/pipeline", spec.name.clone(), expected));
        }
        let all = spec.tasks.iter().flat_map(|task| task.variants.iter().map(|variant| (&task.name, &variant.name)));
        let all: Vec<(&String, &String)> = all.collect();
        let is_of = |choice: &VariantChoice, (task, variant): (&String, &String)| {
            choice.task == *task && choice.variant.as_ref().is_none_or(|name| name == variant)
        };
        for (i, choice) in self.variants.iter().enumerate() {
            if !all.iter().any(|known| is_of(choice, *known)) {
                let found = format!("{}/{}", choice.task, choice.variant.as_deref().unwrap_or("any"));
                let expected = format!("a task or a variant of pipeline {}", spec.name);
                return Err(Invalid::new(format!("/variants/{i}"), found, expected));
            }
        }
        let is_chosen =
            |known: &(&String, &String)| self.variants.is_empty() || self.variants.iter().any(|c| is_of(c, *known));
        let chosen = all.into_iter().filter(is_chosen);
        self.variants =
            chosen.map(|(task, variant)| VariantChoice { task: task.clone(), variant: Some(variant.clone()) }).collect();
        Ok(())
    }

    /// Refuses variants without an accuracy: a profile that plans can use takes no rows of them. `measured` is the pipeline
    /// with such a profile, and the variants of this request are resolved.
    ///
    /// # Errors
    /// The first such variant.
    pub fn check_accuracies(&self, measured: &PipelineSpec) -> Result<(), Invalid> {
        for task in &measured.tasks {
            let is_chosen = |name: &String| {
                self.variants.iter().any(|choice| choice.task == task.name && choice.variant.as_ref() == Some(name))
            };
            let unknown = task.variants.iter().find(|variant| variant.accuracy.is_none() && is_chosen(&variant.name));
            if let Some(variant) = unknown {
                let found = format!("{}/{} has no accuracy", task.name, variant.name);
                let expected = "`accuracy` of the variant in the pipeline, from 0 to 1, or a measured one; 1 for each \
                                variant if all are equally good";
                return Err(Invalid::new("/pipeline", found, expected));
            }
        }
        Ok(())
    }

    /// The batch sizes that may be measured.
    fn sizes(&self) -> Vec<u32> {
        if !self.batches.is_empty() {
            return self.batches.clone();
        }
        (0..=10).map(|power| 1 << power).filter(|size| *size <= self.batch_max).collect()
    }

    /// Variants to measure, each on one hardware type.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.variants.len() * self.hardware.len()
    }
}

/// What was measured of one batch size.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPoint {
    /// The hardware type.
    pub hardware: String,
    /// The task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The batch size.
    pub batch: u32,
    /// The row of the profile, or why there is none.
    pub outcome: Result<MeasuredRow, PointFailure>,
}

/// Why a batch size could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PointFailure(pub String);

/// What is measured next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointOrder {
    /// The task.
    pub task: String,
    /// The variant.
    pub variant: String,
    /// The batch size.
    pub batch: u32,
}

/// A part of a job: a variant on a hardware type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobPart<'a> {
    /// The hardware type.
    pub hardware: &'a str,
    /// The task.
    pub task: &'a str,
    /// The variant.
    pub variant: &'a str,
}

impl JobPart<'_> {
    /// Whether a point was measured for this part.
    #[must_use]
    pub fn has(&self, point: &JobPoint) -> bool {
        (point.hardware.as_str(), point.task.as_str(), point.variant.as_str()) == (self.hardware, self.task, self.variant)
    }

    /// The points of this part with a row, by batch size.
    fn rows<'p>(&self, points: &'p [JobPoint]) -> Vec<&'p MeasuredRow> {
        let of_part = points.iter().filter(|point| self.has(point));
        let mut rows: Vec<&MeasuredRow> = of_part.filter_map(|point| point.outcome.as_ref().ok()).collect();
        rows.sort_by_key(|row| row.batch);
        rows
    }

    /// The sizes that can be measured: all below the smallest one that failed.
    fn open_sizes(&self, request: &ProfileJobRequest, points: &[JobPoint]) -> Vec<u32> {
        let failed = points.iter().filter(|point| self.has(point) && point.outcome.is_err()).map(|point| point.batch);
        let limit = failed.min().unwrap_or(u32::MAX);
        request.sizes().into_iter().filter(|size| *size < limit).collect()
    }

    /// The next batch size of this part; `None` if it is complete.
    #[must_use]
    pub fn next_size(&self, request: &ProfileJobRequest, points: &[JobPoint]) -> Option<u32> {
        let sizes = self.open_sizes(request, points);
        let rows = self.rows(points);
        if request.batches.is_empty() {
            let is_open = |row: &&&MeasuredRow| sizes.contains(&row.batch);
            let batch = |row: &&MeasuredRow| BatchLatency { batch: row.batch, latency_ms: row.latency_ms };
            let measured: Vec<BatchLatency> = rows.iter().filter(is_open).map(batch).collect();
            return next_batch(&sizes, &measured);
        }
        sizes.into_iter().find(|size| rows.iter().all(|row| row.batch != *size))
    }

    /// The rows of the profile: latencies never fall with the batch size, and sizes that were left out are on the lines
    /// between their neighbours.
    #[must_use]
    pub fn profile_rows(&self, request: &ProfileJobRequest, points: &[JobPoint]) -> Vec<MeasuredRow> {
        let mut rows: Vec<MeasuredRow> = self.rows(points).into_iter().cloned().collect();
        let medians = isotonic(&rows.iter().map(|row| row.latency_ms).collect::<Vec<_>>());
        let tails = isotonic(&rows.iter().map(|row| row.p99_ms.unwrap_or(row.latency_ms)).collect::<Vec<_>>());
        for (row, (median, tail)) in rows.iter_mut().zip(medians.into_iter().zip(tails)) {
            (row.latency_ms, row.p99_ms) = (median, Some(tail.max(median)));
        }
        let between = |pair: &[MeasuredRow]| {
            let inside = request.sizes().into_iter().filter(|size| pair[0].batch < *size && *size < pair[1].batch);
            inside.map(|size| interpolated(&pair[0], &pair[1], size)).collect::<Vec<_>>()
        };
        let added: Vec<MeasuredRow> = rows.windows(2).flat_map(between).collect();
        rows.extend(added);
        rows.sort_by_key(|row| row.batch);
        rows
    }
}

/// The row on the line between two others.
fn interpolated(left: &MeasuredRow, right: &MeasuredRow, batch: u32) -> MeasuredRow {
    let line = |of: &dyn Fn(&MeasuredRow) -> Option<f64>| {
        let end = |row: &MeasuredRow| Some(BatchLatency { batch: row.batch, latency_ms: of(row)? });
        Some(on_line(end(left)?, end(right)?, batch))
    };
    let known = |of: fn(&RowMeasurement) -> Option<f64>| line(&move |row: &MeasuredRow| row.measured.as_ref().and_then(of));
    let measured = right.measured.clone().map(|newest| RowMeasurement {
        runs: Some(0),
        warm_up_runs: None,
        p95_ms: known(|m| m.p95_ms),
        median_low_ms: known(|m| m.median_low_ms),
        median_high_ms: known(|m| m.median_high_ms),
        p99_low_ms: known(|m| m.p99_low_ms),
        p99_high_ms: known(|m| m.p99_high_ms),
        ..newest
    });
    let latency_ms = line(&|row: &MeasuredRow| Some(row.latency_ms)).unwrap_or(right.latency_ms);
    MeasuredRow { batch, latency_ms, p99_ms: line(&|row: &MeasuredRow| row.p99_ms), measured, ..right.clone() }
}

/// The parts of a job on one hardware type.
pub fn parts_on<'a>(request: &'a ProfileJobRequest, hardware: &'a str) -> impl Iterator<Item = JobPart<'a>> {
    let part = move |choice: &'a VariantChoice| JobPart {
        hardware,
        task: &choice.task,
        variant: choice.variant.as_deref().unwrap_or_default(),
    };
    request.variants.iter().map(part)
}

/// What a hardware type measures next; `None` if it is complete.
#[must_use]
pub fn next_order(request: &ProfileJobRequest, hardware: &str, points: &[JobPoint]) -> Option<PointOrder> {
    parts_on(request, hardware).find_map(|part| {
        let batch = part.next_size(request, points)?;
        Some(PointOrder { task: part.task.to_owned(), variant: part.variant.to_owned(), batch })
    })
}

/// How many parts of a job are complete.
#[must_use]
pub fn ready_parts(request: &ProfileJobRequest, points: &[JobPoint]) -> usize {
    let parts = request.hardware.iter().flat_map(|hardware| parts_on(request, hardware));
    parts.filter(|part| part.next_size(request, points).is_none()).count()
}

/// The device that measures on a hardware type: one without replicas, of the agent with the fewest. `claimed` are agents
/// that measure already, and `avoided` the devices that gave way to a replica lately.
#[must_use]
pub fn choose_device(
    devices: &[Device],
    hardware: &str,
    placement: &Placement,
    claimed: &BTreeSet<u64>,
    avoided: &BTreeSet<DeviceSlot>,
) -> Option<DeviceSlot> {
    let on_agent = |agent: u64| placement.replicas.iter().filter(|r| r.agent == agent).count();
    let is_free = |slot: &DeviceSlot| {
        let has_replica = placement.replicas.iter().any(|r| r.slot() == *slot);
        !has_replica && !claimed.contains(&slot.agent) && !avoided.contains(slot)
    };
    let slots = devices.iter().filter(|device| device.hardware == hardware).map(Device::slot);
    slots.filter(is_free).min_by_key(|slot| (on_agent(slot.agent), *slot))
}

/// Whether a drift starts a job. `newest` is when the last job of this drift was asked for.
#[must_use]
pub fn is_measured_again(since: DateTime<Utc>, newest: Option<DateTime<Utc>>, now: DateTime<Utc>) -> bool {
    let is_lasting = now - since >= TimeDelta::seconds(DRIFT_LASTS_S);
    is_lasting && newest.is_none_or(|newest| now - newest >= TimeDelta::seconds(MEASURE_AGAIN_S))
}

#[cfg(test)]
mod tests;
