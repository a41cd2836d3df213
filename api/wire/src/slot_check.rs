//! What cannot run in the slots of a continuous task? Everything that needs whole batches.
//!
//! A pipeline file and a registered pipeline are refused alike, long before an agent would load the variant.

use crate::spec::{PipelineSpec, ProfileRowSpec, TaskSpec};
use apportion_domain::pipeline::OTHER_SERVER;
use apportion_domain::transform::{CHILD, PARENT};
use apportion_domain::{Invalid, VariantRuntime};

/// What is wrong with the continuous tasks of a pipeline.
pub(crate) fn check_slots(pipeline: &PipelineSpec) -> Vec<Invalid> {
    let tasks = || pipeline.tasks.iter().enumerate().filter(|(_, task)| task.is_continuous());
    let mut problems: Vec<Invalid> = tasks().flat_map(|(at, task)| of_task(task, &format!("/tasks/{at}"))).collect();
    for (at, edge) in pipeline.edges.iter().enumerate().filter(|(_, edge)| !edge.transform.is_empty()) {
        if let Some((_, task)) = tasks().find(|(_, task)| task.name == edge.from) {
            problems.push(transforms(task, edge.transform.len(), format!("/edges/{at}/transform")));
        }
    }
    problems
}

fn of_task(task: &TaskSpec, at: &str) -> Vec<Invalid> {
    let mut problems = Vec::new();
    for (key, list) in [("before", &task.before), ("after", &task.after)] {
        if !list.is_empty() {
            problems.push(transforms(task, list.len(), format!("{at}/{key}")));
        }
    }
    for (v, variant) in task.variants.iter().enumerate() {
        if variant.file_runtime() == VariantRuntime::Python {
            let key = if variant.python.is_some() { "python" } else { "runtime" };
            let found = variant.python.as_deref().unwrap_or(VariantRuntime::Python.name());
            let found = format!("{found:?} of the continuous task {:?}", task.name);
            let expected =
                "an ONNX file with state in `model`, because a stage in Python runs whole batches; or `kind: batch`";
            problems.push(Invalid::new(format!("{at}/variants/{v}/{key}"), found, expected));
        }
        if let Some(row) = variant.profile.iter().flatten().position(was_measured_elsewhere) {
            let found = format!("{OTHER_SERVER:?} of the continuous task {:?}", task.name);
            let expected = "latencies of slots, because another server forms its own batches; or `kind: batch`";
            let place = format!("{at}/variants/{v}/profile/{row}/measured/software");
            problems.push(Invalid::new(place, found, expected));
        }
    }
    for (o, output) in task.outputs.iter().flatten().enumerate() {
        if output.name == PARENT || output.name == CHILD {
            let found = format!("{:?} of the continuous task {:?}", output.name, task.name);
            let expected = "another name, because each query in a slot makes one row; or `kind: batch`";
            problems.push(Invalid::new(format!("{at}/outputs/{o}/name"), found, expected));
        }
    }
    problems
}

/// Whether a latency is that of a server with batches of its own.
fn was_measured_elsewhere(row: &ProfileRowSpec) -> bool {
    row.measured.as_ref().and_then(|measured| measured.software.as_deref()) == Some(OTHER_SERVER)
}

fn transforms(task: &TaskSpec, count: usize, at: String) -> Invalid {
    let found = format!("a list of {count} at the continuous task {:?}", task.name);
    let expected = "none, because transforms run on whole batches: put them at a batch task before or after it";
    Invalid::new(at, found, expected)
}
