//! How is a `Pipeline` of Seldon Core 2 read (`mlops.seldon.io/v1alpha1`)?
//!
//! The keys are those of "Pipelines" in Seldon's documentation. A step has the name of its model. An input is
//! `STEP`, `STEP.outputs`, `STEP.outputs.TENSOR` or `STEP.inputs`; a step without inputs takes the pipeline's request.

use super::flow::{FlowEdge, FlowVariant, ForeignPipeline, ImportedPipeline};
use super::tree::ReadValue;
use apportion_wire::{BadInput, parse_tree};
use std::collections::BTreeMap;

/// A step before its edges are known.
struct Step<'a> {
    at: ReadValue<'a>,
    name: &'a str,
}

/// What an input names.
struct Source<'a> {
    step: &'a str,
    takes_inputs: bool,
    tensor: Option<&'a str>,
}

pub(super) fn read(file: &str, text: &str) -> Result<ImportedPipeline, BadInput> {
    let tree = parse_tree(file, text)?;
    let root = ReadValue::root(file, &tree);
    root.check_kind("Pipeline")?;
    let metadata = root.get("metadata");
    let name = metadata.as_ref().map(|m| m.text_of("name")).transpose()?.flatten().unwrap_or("main");
    let spec = root.need("spec", "the spec of the pipeline")?;
    if let Some(input) = spec.get("input") {
        return Err(input.refused("inputs from another pipeline", "a pipeline by itself, or both as one"));
    }
    let mut steps: Vec<Step<'_>> = Vec::new();
    for at in spec.need("steps", "the steps of the pipeline")?.items()? {
        let name = at.need("name", "the name of the step's model")?.text()?;
        if steps.iter().any(|step| step.name == name) {
            return Err(at.refused(format!("a second step {name:?}"), "one step for each name"));
        }
        steps.push(Step { at, name });
    }
    let mut flow = ForeignPipeline::new(file, name);
    for step in &steps {
        flow.add_task(step.name, vec![FlowVariant { name: step.name.to_owned(), model: None }]);
    }
    for to in 0..steps.len() {
        add_edges(&mut flow, &steps, to, name)?;
    }
    flow.finish()
}

fn add_edges(flow: &mut ForeignPipeline<'_>, steps: &[Step<'_>], to: usize, pipeline: &str) -> Result<(), BadInput> {
    let step = &steps[to];
    let renamed: BTreeMap<&str, &str> =
        step.at.get("tensorMap").map_or(Ok(Vec::new()), |map| map.texts())?.into_iter().collect();
    for key in ["inputs", "triggers"] {
        let sources = step.at.items_of(key)?;
        for input in &sources {
            let text = input.text()?;
            let source = source(text, input)?;
            if source.step == pipeline && steps.iter().all(|s| s.name != pipeline) {
                flow.remark(format!("{}: {} takes a tensor of the request as well", input.pointer, step.name));
                continue;
            }
            let Some(from) = steps.iter().position(|s| s.name == source.step) else {
                let names: Vec<&str> = steps.iter().map(|s| s.name).collect();
                return Err(input.refused(format!("{text:?}"), format!("a step of this pipeline: {}", names.join(", "))));
            };
            if source.takes_inputs {
                follow_inputs(flow, steps, from, to, input)?;
                continue;
            }
            let given = source.tensor.filter(|_| key == "inputs").map(|tensor| {
                let input = renamed.get(text).copied().unwrap_or(tensor);
                (input.to_owned(), tensor.to_owned())
            });
            let decide = (key == "triggers").then(|| "a trigger: it makes the step wait and brings it nothing".to_owned());
            flow.add_edge(FlowEdge { from, to, map: given.into_iter().collect(), decide, ..FlowEdge::default() });
        }
        let join = format!("{key}JoinType");
        if sources.len() > 1 && step.at.text_of(&join)?.is_some_and(|kind| kind != "inner") {
            flow.remark(format!(
                "{}: {} goes on without some of its {key}; a plan waits for all",
                step.at.pointer, step.name
            ));
        }
    }
    Ok(())
}

/// A step that takes the inputs of another one follows that step's parents.
fn follow_inputs(
    flow: &mut ForeignPipeline<'_>,
    steps: &[Step<'_>],
    other: usize,
    to: usize,
    at: &ReadValue<'_>,
) -> Result<(), BadInput> {
    for input in steps[other].at.items_of("inputs")? {
        let parent = source(input.text()?, &input)?;
        if let Some(from) = steps.iter().position(|s| s.name == parent.step && !parent.takes_inputs) {
            flow.add_edge(FlowEdge { from, to, ..FlowEdge::default() });
        }
    }
    flow.remark(format!("{}: {} takes the inputs of {}", at.pointer, steps[to].name, steps[other].name));
    Ok(())
}

/// `STEP`, `STEP.outputs`, `STEP.outputs.TENSOR`, `STEP.inputs` or `STEP.inputs.TENSOR`.
fn source<'a>(text: &'a str, at: &ReadValue<'_>) -> Result<Source<'a>, BadInput> {
    let mut parts = text.splitn(3, '.');
    let step = parts.next().unwrap_or_default();
    let takes_inputs = match parts.next() {
        None | Some("outputs") => false,
        Some("inputs") => true,
        Some(_) => return Err(at.refused(format!("{text:?}"), "STEP, STEP.outputs.TENSOR or STEP.inputs")),
    };
    Ok(Source { step, takes_inputs, tensor: parts.next() })
}
