//! Which model repository makes Triton run a plan? One for each hardware type, because a server has devices of one type.
//!
//! The keys are those of `ModelConfig` in Triton's `model_config.proto`. Replicas are packed on the devices of the type,
//! the largest shares first; shares divide each other, so this wastes nothing.

use crate::agents::{note_lost, note_shares};
use crate::groups::{ExportGroup, devices_of};
use crate::names::{NameRule, SafeNames};
use crate::request::{Export, ExportContent, ExportRequest, ModelFile};
use crate::text::proto_string;
use apportion_domain::Queueing;
use apportion_wire::TensorSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The groups of one variant on one hardware type.
type OfVariant<'g, 'a> = BTreeMap<Vec<String>, Vec<&'g ExportGroup<'a>>>;

/// Folders `HARDWARE/VARIANT` with `config.pbtxt` and `1/model.onnx` or `1/model.py`.
pub(crate) fn write(request: &ExportRequest<'_>, groups: &[ExportGroup<'_>]) -> Export {
    let mut export = Export::default();
    let devices = devices_of(groups);
    let folders = SafeNames::new(NameRule::File, devices.keys().map(|hardware| vec![hardware.clone()]));
    let names = model_names(groups);
    for (hardware, count) in &devices {
        let here: Vec<&ExportGroup<'_>> = groups.iter().filter(|g| g.assignment.group.hardware == *hardware).collect();
        let placed = packed(&here);
        let mut variants: OfVariant<'_, '_> = BTreeMap::new();
        for &group in &here {
            variants.entry(names.raw[&key(group)].clone()).or_default().push(group);
        }
        for (raw, of_variant) in variants {
            let name = names.safe.of(&raw);
            let folder = format!("{}/{name}", folders.of(std::slice::from_ref(hardware)));
            let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
            for (device, model) in &placed {
                *counts.entry(*device).or_default() += u64::from(of_variant.iter().any(|g| key(g) == *model));
            }
            let model = request.models.get(&of_variant[0].model_key());
            let on_gpu = request.settings.is_gpu(hardware);
            let of_triton = TritonModel { name, groups: &of_variant, replicas: &counts, on_gpu, file: model };
            export.text(format!("{folder}/config.pbtxt"), of_triton.config());
            add_model(&mut export, &folder, &of_variant, model);
        }
        export.note(format!("{hardware:?}: {count} devices, numbered from 0, are taken as those of one server."));
    }
    for (raw, name) in names.safe.iter().filter(|(raw, name)| raw.last().map(String::as_str) != Some(*name)) {
        export.note(format!(
            "{:?} is called {name}: the name that the plan has cannot be that of a folder, or is not unique.",
            raw
        ));
    }
    note_lost(&mut export, groups);
    note_queues(&mut export, groups);
    note_shares(&mut export, groups, "its replicas share a GPU without any bound on what each takes.");
    export
}

/// Says which plans were made for other queues than Triton's.
fn note_queues(export: &mut Export, groups: &[ExportGroup<'_>]) {
    for group in groups.iter().filter(|g| g.assignment.replicas > 1 && g.pipeline.serving.queueing != Queueing::Central) {
        export.note(format!(
            "{}: a model of Triton has one queue for all its replicas. With `serving: {{queueing: central}}` in the problem, \
             the plan is made and estimated so.",
            group.pipeline.name
        ));
    }
}

/// The key of a variant without its pipeline's group: pipeline, task, variant.
fn key(group: &ExportGroup<'_>) -> (String, String, String) {
    group.model_key()
}

/// The names of models.
struct ModelNames {
    raw: BTreeMap<(String, String, String), Vec<String>>,
    safe: SafeNames,
}

/// A variant's own name, for agents ask by it. Where two have one name, pipeline and task stand before it.
fn model_names(groups: &[ExportGroup<'_>]) -> ModelNames {
    let keys: BTreeSet<(String, String, String)> = groups.iter().map(key).collect();
    let is_twice = |name: &str| keys.iter().filter(|(_, _, variant)| variant == name).count() > 1;
    let raw_of = |(pipeline, task, variant): &(String, String, String)| match is_twice(variant) {
        true => vec![pipeline.clone(), task.clone(), variant.clone()],
        false => vec![variant.clone()],
    };
    let raw: BTreeMap<_, _> = keys.iter().map(|key| (key.clone(), raw_of(key))).collect();
    let safe = SafeNames::new(NameRule::File, raw.values().cloned());
    ModelNames { raw, safe }
}

/// For each replica its device and its variant: the largest shares first, each on the first device with room.
fn packed(groups: &[&ExportGroup<'_>]) -> Vec<(u64, (String, String, String))> {
    let mut sorted = groups.to_vec();
    sorted.sort_by_key(|group| std::cmp::Reverse(group.assignment.group.share));
    let (mut used, mut placed) = (0_u64, Vec::new());
    for group in sorted {
        for _ in 0..group.assignment.replicas {
            placed.push((used / 8, key(group)));
            used += u64::from(group.assignment.group.share.eighths());
        }
    }
    placed
}

/// A variant on the devices of one hardware type, as Triton's `ModelConfig` has it.
struct TritonModel<'m, 'g, 'a> {
    name: &'m str,
    groups: &'m [&'g ExportGroup<'a>],
    /// Replicas by device.
    replicas: &'m BTreeMap<u64, u64>,
    on_gpu: bool,
    file: Option<&'m ModelFile>,
}

impl TritonModel<'_, '_, '_> {
    /// The text of `config.pbtxt`.
    fn config(&self) -> String {
        let batches: BTreeSet<u32> = self.groups.iter().map(|group| group.assignment.batch).collect();
        let wait_ms = self.groups.iter().map(|group| group.wait_ms).fold(f64::INFINITY, f64::min);
        let largest = batches.last().copied().unwrap_or(1);
        let backend = if self.file.is_some_and(ModelFile::is_python) { "python" } else { "onnxruntime" };
        let mut text = format!("name: {}\nbackend: \"{backend}\"\n", proto_string(self.name));
        let mut line = |content: String| writeln!(text, "{content}").expect("text does not fail");
        line(format!("max_batch_size: {}", if self.is_batched() { largest } else { 0 }));
        for (kind, tensors) in [("input", self.file.map(|m| &m.inputs)), ("output", self.file.map(|m| &m.outputs))] {
            tensors.into_iter().flatten().for_each(|tensor| line(self.tensor(kind, tensor)));
        }
        line(self.placement());
        if self.is_batched() && largest > 1 {
            let preferred: Vec<String> = batches.iter().map(u32::to_string).collect();
            let delay_us = (wait_ms * 1_000.0).floor() as u64;
            line(format!(
                "dynamic_batching {{\n  preferred_batch_size: [ {} ]\n  max_queue_delay_microseconds: {delay_us}\n}}",
                preferred.join(", ")
            ));
        }
        text
    }

    /// Whether Triton may make batches. It may if the file is not known, because then the graph is read later.
    fn is_batched(&self) -> bool {
        self.file.is_none_or(has_batches)
    }

    fn tensor(&self, kind: &str, tensor: &TensorSpec) -> String {
        let datatype = if tensor.datatype == "BYTES" { "STRING" } else { &tensor.datatype };
        let dims = if self.is_batched() { tensor.shape.get(1..) } else { tensor.shape.get(..) }.unwrap_or_default();
        // A row that is one number has the shape [1] for Triton, and the graph's own shape is the other one.
        let (dims, reshape) = if dims.is_empty() { (&[1][..], "\n  reshape { shape: [ ] }") } else { (dims, "") };
        let dims: Vec<String> = dims.iter().map(i64::to_string).collect();
        let name = proto_string(&tensor.name);
        format!("{kind} {{\n  name: {name}\n  data_type: TYPE_{datatype}\n  dims: [ {} ]{reshape}\n}}", dims.join(", "))
    }

    /// Devices with equal numbers of replicas share an entry `instance_group`.
    fn placement(&self) -> String {
        if !self.on_gpu {
            let count: u64 = self.replicas.values().sum();
            return format!("instance_group {{\n  count: {count}\n  kind: KIND_CPU\n}}");
        }
        let mut by_count: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for (device, count) in self.replicas.iter().filter(|(_, count)| **count > 0) {
            by_count.entry(*count).or_default().push(device.to_string());
        }
        let entry = |(count, gpus): (u64, Vec<String>)| {
            format!("instance_group {{\n  count: {count}\n  kind: KIND_GPU\n  gpus: [ {} ]\n}}", gpus.join(", "))
        };
        by_count.into_iter().map(entry).collect::<Vec<_>>().join("\n")
    }
}

/// Whether rows of several requests can be one batch: the first axis of each tensor has any size.
fn has_batches(model: &ModelFile) -> bool {
    model.inputs.iter().chain(&model.outputs).all(|tensor| tensor.shape.first() == Some(&-1))
}

fn add_model(export: &mut Export, folder: &str, groups: &[&ExportGroup<'_>], model: Option<&ModelFile>) {
    let name = &groups[0].assignment.group.variant;
    match model {
        Some(model) => {
            let file = if model.is_python() { "model.py" } else { "model.onnx" };
            export.files.insert(format!("{folder}/1/{file}"), ExportContent::CopyOf(model.path.clone()));
            if !has_batches(model) {
                export.note(format!(
                    "{name:?}: an axis for rows has a fixed size or is missing, so Triton makes no batches."
                ));
            }
        }
        None => export.note(format!("{name:?}: its model file is not known; put it at {folder}/1/model.onnx.")),
    }
    let batches: BTreeSet<u32> = groups.iter().map(|group| group.assignment.batch).collect();
    if batches.len() > 1 {
        export.note(format!(
            "{name:?}: the plan has groups with the batches {batches:?}; Triton's replicas share one queue."
        ));
    }
}
