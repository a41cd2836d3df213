//! Which transforms does a target give to each task?

use super::error::PipelineError;
use apportion_domain::transform::{EdgeGlue, TaskGlue, Transform};
use apportion_protocol::v1;

/// The transforms of all tasks, in their order. The positions in the edges were checked.
pub(super) fn glues(from: &v1::PipelineTarget) -> Result<Vec<TaskGlue>, PipelineError> {
    let mut glues = Vec::with_capacity(from.tasks.len());
    for (at, task) in from.tasks.iter().enumerate() {
        let edges = from.edges.iter().filter(|edge| edge.from as usize == at);
        let edge_of = |edge: &v1::EdgeTarget| {
            let mut outputs: Vec<String> = match edge.transform.is_empty() {
                true => edge.map.values().cloned().collect(),
                false => edge.outputs.clone(),
            };
            // The message's map has no order.
            outputs.sort_unstable();
            outputs.dedup();
            let to = from.tasks[edge.to as usize].name.clone();
            Ok(EdgeGlue { to, steps: steps(&task.name, &edge.transform)?, outputs })
        };
        let glue = TaskGlue {
            before: steps(&task.name, &task.before)?,
            after: steps(&task.name, &task.after)?,
            edges: edges.map(edge_of).collect::<Result<_, PipelineError>>()?,
        };
        let refusal = |cause| PipelineError::Glue { task: task.name.clone(), cause: Box::new(cause) };
        glue.check_settings().map_err(refusal)?;
        glues.push(glue);
    }
    Ok(glues)
}

fn steps(task: &str, from: &[v1::Transform]) -> Result<Vec<Transform>, PipelineError> {
    let refusal = |cause| PipelineError::Transform { task: task.to_owned(), cause };
    from.iter().map(|step| Transform::try_from(step.clone()).map_err(refusal)).collect()
}

#[cfg(test)]
mod tests {
    use crate::layout::lay_out;
    use crate::layout::tests::chain;
    use apportion_domain::tensor::Datatype;
    use apportion_domain::transform::{CastStep, SliceStep, Transform};
    use apportion_domain::{Provider, VariantExecution, VariantRuntime};
    use apportion_protocol::v1;

    fn cast() -> Transform {
        Transform::Cast(CastStep { of: "y".into(), to: "z".into(), datatype: Datatype::Int32 })
    }

    #[test]
    fn transforms_and_runtimes_are_laid_out_by_task() {
        let mut target = chain();
        let pipeline = &mut target.pipelines[0];
        pipeline.tasks[1].after = vec![v1::Transform::from(&cast())];
        pipeline.edges[0].transform = vec![v1::Transform::from(&cast())];
        pipeline.edges[0].outputs = vec!["z".into()];
        pipeline.groups[1].runtime = "python".into();
        (pipeline.groups[0].threads, pipeline.groups[0].provider) = (2, "cuda".into());
        let laid = lay_out(&target).expect("valid").pipelines["p"].clone();
        let (a, b) = (&laid.tasks[0].glue, &laid.tasks[1].glue);
        assert_eq!((a.edges[0].to.as_str(), a.edges[0].exported("z").as_str()), ("b", "b.z"));
        assert_eq!((&a.edges[0].steps, &a.edges[0].outputs), (&vec![cast()], &vec!["z".to_owned()]));
        assert_eq!((&b.after, b.edges.len()), (&vec![cast()], 0));
        assert_eq!(laid.groups[&2].runtime, VariantRuntime::Python);
        let asked = VariantExecution { threads: Some(2), provider: Some(Provider::Cuda) };
        assert_eq!((laid.groups[&1].execution, laid.groups[&2].execution), (asked, VariantExecution::default()));
        let plain = lay_out(&chain()).expect("valid").pipelines["p"].clone();
        assert!(plain.tasks.iter().all(|task| task.glue.is_empty()));
        assert_eq!(plain.tasks[0].glue.edges[0].outputs, ["y"]);
        assert_eq!(plain.groups[&2].runtime, VariantRuntime::Onnx);
    }

    #[test]
    fn refused_transforms_and_runtimes_are_named() {
        let refused = |change: &dyn Fn(&mut v1::PipelineTarget)| {
            let mut target = chain();
            change(&mut target.pipelines[0]);
            lay_out(&target).expect_err("refused").to_string()
        };
        let said = refused(&|p| p.tasks[0].before = vec![v1::Transform { step: None }]);
        assert!(said.contains("task a: a transform that this agent does not know"), "{said}");
        let slice = Transform::Slice(SliceStep { of: "y".into(), to: "y".into(), axis: 0, from: 0, until: 1 });
        let said = refused(&|p| p.edges[0].transform = vec![v1::Transform::from(&slice)]);
        assert!(said.contains("task a: edge to b: transform 1 (slice): axis is 0"), "{said}");
        let said = refused(&|p| p.groups[0].runtime = "perl".into());
        assert!(said.contains("group 1: runtime perl: expected one of onnx, python"), "{said}");
        let said = refused(&|p| p.groups[0].provider = "rocm".into());
        assert!(said.contains("group 1: provider rocm: expected one of cpu, cuda, tensorrt"), "{said}");
    }
}
