//! How does Ray Serve run the variants of a plan? A configuration for `serve deploy` (`ServeDeploySchema` of
//! `ray.serve.schema`), and an application that it starts.
//!
//! `app.py` is complete where the model files are known. With an application of one's own, `app:build` must make a
//! deployment for each name of the configuration.

use crate::agents::{note_lost, note_shares};
use crate::groups::ExportGroup;
use crate::names::{NameRule, SafeNames};
use crate::request::{Export, ExportContent, ExportRequest};
use crate::text::yaml;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Queries of a replica without an answer, in batches: one runs, and one waits.
const BATCHES_ONGOING: u32 = 2;

/// `serve.yaml`, `app.py`, and the known models.
pub(crate) fn write(request: &ExportRequest<'_>, groups: &[ExportGroup<'_>]) -> Export {
    let mut export = Export::default();
    let names = SafeNames::new(NameRule::Dns, groups.iter().map(ExportGroup::raw_name));
    let pipelines: BTreeSet<&str> = groups.iter().map(|group| group.pipeline.name.as_str()).collect();
    let raw = |name: &str| vec![name.to_owned()];
    let apps = SafeNames::new(NameRule::Dns, pipelines.iter().map(|name| raw(name)));
    let mut applications = Vec::new();
    for pipeline in pipelines {
        let app = apps.of(&raw(pipeline)).to_owned();
        let own: Vec<&ExportGroup<'_>> = groups.iter().filter(|group| group.pipeline.name == pipeline).collect();
        let mut arguments = Vec::new();
        for group in &own {
            arguments.push(variant(request, group, names.of(&group.raw_name()), &mut export));
        }
        let deployments = own.iter().map(|group| deployment(request, group, names.of(&group.raw_name())));
        let ingress = json!({"name": "tasks", "num_replicas": 1, "max_ongoing_requests": 1_000});
        let deployments: Vec<Value> = deployments.chain([ingress]).collect();
        applications.push(json!({
            "name": app, "route_prefix": format!("/{app}"), "import_path": "app:build",
            "args": {"variants": arguments}, "deployments": deployments,
        }));
    }
    let http = json!({"host": "0.0.0.0", "port": 8000});
    export.text(
        "serve.yaml",
        yaml(&[json!({"proxy_location": "EveryNode", "http_options": http, "applications": applications})]),
    );
    export.text("app.py", include_str!("app.py").to_owned());
    export.note(
        "Start it with `serve run serve.yaml` in this folder, or put the folder on each node and use `serve deploy`.",
    );
    export.note("POST /PIPELINE/TASK with {\"inputs\": {NAME: one row}} gives one row of each output.");
    note_lost(&mut export, groups);
    note_shares(&mut export, groups, "Ray counts its part of the GPU but bounds neither memory nor time.");
    export
}

/// What `app.py` must know of a group. The model file is added to the export.
fn variant(request: &ExportRequest<'_>, group: &ExportGroup<'_>, name: &str, export: &mut Export) -> Value {
    let assignment = group.assignment;
    let model = request.models.get(&group.model_key());
    let path = format!("models/{name}.onnx");
    match model.filter(|model| !model.is_python()) {
        Some(model) => _ = export.files.insert(path.clone(), ExportContent::CopyOf(model.path.clone())),
        None => {
            let variant = &assignment.group.variant;
            export.note(format!("{variant:?}: its model file in ONNX format is not known; put it at {path}."));
        }
    }
    json!({
        "name": name,
        "task": assignment.group.task,
        "model": path,
        "batch": assignment.batch,
        "wait_s": group.wait_ms / 1_000.0,
        "weight": if assignment.traffic_share > 0.0 { assignment.traffic_share } else { f64::from(assignment.replicas) },
        "gpu": request.settings.is_gpu(&assignment.group.hardware),
    })
}

fn deployment(request: &ExportRequest<'_>, group: &ExportGroup<'_>, name: &str) -> Value {
    let assignment = group.assignment;
    let hardware = &assignment.group.hardware;
    let device = request.settings.device(hardware);
    let share = assignment.group.share.value();
    let cpus = f64::from(device.cpus.unwrap_or(1)) * share;
    let mut options = match request.settings.is_gpu(hardware) {
        true => json!({"num_cpus": cpus, "num_gpus": share}),
        false => json!({"num_cpus": cpus}),
    };
    if let Some(accelerator) = device.accelerator_type {
        options["accelerator_type"] = json!(accelerator);
    }
    let mut deployment = json!({
        "name": name,
        "max_ongoing_requests": assignment.batch.saturating_mul(BATCHES_ONGOING),
        "ray_actor_options": options,
    });
    // The ladder says which replicas lower loads need; without one the number stays.
    if group.pipeline.ladder.is_empty() {
        deployment["num_replicas"] = json!(assignment.replicas);
    } else {
        deployment["autoscaling_config"] = json!({
            "min_replicas": group.replicas_min(), "initial_replicas": assignment.replicas,
            "max_replicas": assignment.replicas, "target_ongoing_requests": assignment.batch,
        });
    }
    deployment
}
