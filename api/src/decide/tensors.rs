//! Which tensors and transforms does a target give to tasks and edges?

use apportion_domain::transform::TaskGlue;
use apportion_domain::{Edge, Pipeline, Provider, Route, Task, TaskKind, VariantRuntime};
use apportion_protocol::v1;

/// The tensors of one task, with its transforms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskTensors {
    /// Its inputs.
    pub inputs: Vec<v1::TensorSpec>,
    /// Its outputs.
    pub outputs: Vec<v1::TensorSpec>,
    /// The transforms between these and the tensors of its variants.
    pub glue: TaskGlue,
}

impl TaskTensors {
    /// A task without a name that has these tensors and transforms.
    #[must_use]
    pub fn target(&self) -> v1::TaskTarget {
        v1::TaskTarget {
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            before: self.glue.before.iter().map(v1::Transform::from).collect(),
            after: self.glue.after.iter().map(v1::Transform::from).collect(),
            ..Default::default()
        }
    }
}

/// A task with its tensors and transforms.
pub(super) fn task_target(task: &Task, tensors: &TaskTensors) -> v1::TaskTarget {
    v1::TaskTarget {
        name: task.name.clone(),
        one_of: task.route == Route::OneOf,
        continuous: task.kind == TaskKind::Continuous,
        ..tensors.target()
    }
}

/// The runtime of a variant as agents read it. ONNX has no name there, so targets without Python are as older agents know
/// them.
#[must_use]
pub fn runtime_target(runtime: VariantRuntime) -> String {
    if runtime == VariantRuntime::default() { String::new() } else { runtime.name().to_owned() }
}

/// The provider of a variant as agents read it; empty where it asks for none.
#[must_use]
pub fn provider_target(provider: Option<Provider>) -> String {
    provider.map_or_else(String::new, |provider| provider.name().to_owned())
}

/// The edge with its transforms. Its map names the tensors as the parent hands them out.
pub(super) fn edge_target(edge: &Edge, pipeline: &Pipeline, tensors: &[TaskTensors]) -> v1::EdgeTarget {
    let child = &pipeline.task(edge.to).name;
    let glue = tensors.get(edge.from.0).and_then(|tensors| tensors.glue.edges.iter().find(|e| e.to == *child));
    let glue = glue.filter(|glue| !glue.steps.is_empty());
    let exported = |output: &String| glue.map_or_else(|| output.clone(), |glue| glue.exported(output));
    v1::EdgeTarget {
        from: edge.from.0 as u32,
        to: edge.to.0 as u32,
        map: edge.map.iter().map(|(input, output)| (input.clone(), exported(output))).collect(),
        delays: !edge.primary,
        ratio: edge.ratio,
        transform: glue.iter().flat_map(|glue| &glue.steps).map(v1::Transform::from).collect(),
        outputs: glue.map_or_else(Vec::new, |glue| glue.outputs.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_domain::transform::{EdgeGlue, KeepStep, Transform};
    use apportion_domain::{Hardware, HardwareIndex, PipelineDraft, Profile, ProfileRow, Share, TaskIndex, Variant};
    use std::collections::BTreeMap;

    fn pipeline() -> Pipeline {
        let row = ProfileRow::of_median(HardwareIndex(0), Share::WHOLE, 1, 1.0);
        let (fanout_to, fanout_counts) = (BTreeMap::new(), BTreeMap::new());
        let (accuracy, fanout, load_ms, memory_mib) = (1.0, 1.0, 0.0, None);
        let profile = Profile::new(vec![row]);
        let name = "v".to_owned();
        let variant = Variant { name, accuracy, fanout, fanout_to, fanout_counts, load_ms, memory_mib, profile };
        let task = |name: &str| Task {
            variants: vec![variant.clone()],
            min_replicas: 1,
            kind: TaskKind::Batch,
            route: Route::All,
            name: name.into(),
        };
        let edge = |to| Edge {
            from: TaskIndex(0),
            to: TaskIndex(to),
            ratio: 1.0,
            primary: true,
            kib_per_query: 0.0,
            map: [("x".to_string(), "y".to_string())].into(),
        };
        let draft = PipelineDraft {
            name: "p".into(),
            slo_ms: 100.0,
            tasks: vec![task("a"), task("b"), task("c")],
            edges: vec![edge(1), edge(2)],
            ..PipelineDraft::default()
        };
        let hardware = [Hardware { name: "h".into(), price_per_hour: 1.0, count: None, memory_mib: None }];
        Pipeline::new(draft, &hardware, "").expect("a valid pipeline")
    }

    #[test]
    fn an_edge_with_transforms_names_what_its_parent_hands_out() {
        let pipeline = pipeline();
        let keep = || Transform::Keep(KeepStep { tensors: vec!["y".into()] });
        let edge = |to: &str, steps| EdgeGlue { to: to.into(), steps, outputs: vec!["y".into()] };
        let edges = vec![edge("b", vec![keep()]), edge("c", Vec::new())];
        let glue = TaskGlue { before: vec![keep()], after: Vec::new(), edges };
        let tensors = [TaskTensors { glue, ..TaskTensors::default() }];
        let [first, second] = [0, 1].map(|at| edge_target(&pipeline.edges[at], &pipeline, &tensors));
        assert_eq!((first.map["x"].as_str(), second.map["x"].as_str()), ("b.y", "y"));
        assert_eq!((first.outputs.as_slice(), second.outputs.len()), (["y".to_string()].as_slice(), 0));
        assert_eq!(first.transform, [v1::Transform::from(&keep())]);
        assert!(second.transform.is_empty() && !second.delays);
        let task = task_target(&pipeline.tasks[0], &tensors[0]);
        assert_eq!((task.before.len(), task.after.len()), (1, 0));
        let unknown = edge_target(&pipeline.edges[0], &pipeline, &[]);
        assert_eq!(unknown.map["x"], "y", "nothing is known of its transforms");
    }
}
