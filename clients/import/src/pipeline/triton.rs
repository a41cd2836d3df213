//! How is a model repository of Triton read?
//!
//! The keys are those of `ModelConfig` in Triton's `model_config.proto`. An ensemble names its steps, and tensors join
//! them: a step that takes the tensor that another one makes follows it.

use super::flow::{FlowEdge, FlowTensor, FlowTensors, FlowVariant, ForeignPipeline, ImportedPipeline};
use super::text_proto::{TextMessage, TextValue, read_text_proto};
use apportion_wire::BadInput;
use apportion_wire::spec::DATATYPES;
use std::collections::BTreeMap;

/// A model of a repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepositoryModel {
    /// The name of its folder.
    pub folder: String,
    /// The path and the text of its `config.pbtxt`, if it has one.
    pub config: Option<(String, String)>,
    /// The path of the model file of its newest version, if it is an ONNX file.
    pub onnx: Option<String>,
    /// The same, if it is a program of the Python backend.
    pub python: Option<String>,
}

/// A model with its parsed configuration.
struct ParsedModel<'a> {
    model: &'a RepositoryModel,
    config: TextMessage,
}

impl ParsedModel<'_> {
    fn name(&self) -> &str {
        self.config.text("name").unwrap_or(&self.model.folder)
    }

    fn file(&self) -> &str {
        self.model.config.as_ref().map_or(&self.model.folder, |(file, _)| file)
    }
}

pub(super) fn read(folder: &str, models: &[RepositoryModel], wanted: Option<&str>) -> Result<ImportedPipeline, BadInput> {
    let models = models.iter().map(parsed).collect::<Result<Vec<_>, _>>()?;
    let chosen = choose(folder, &models, wanted)?;
    let mut flow = ForeignPipeline::new(chosen.file(), chosen.name());
    match chosen.config.messages("ensemble_scheduling").next() {
        Some(ensemble) => add_steps(&mut flow, chosen, ensemble, &models)?,
        None => {
            add_model(&mut flow, chosen);
        }
    }
    flow.finish()
}

fn parsed(model: &RepositoryModel) -> Result<ParsedModel<'_>, BadInput> {
    let config = model.config.as_ref();
    let config = config.map_or(Ok(TextMessage::default()), |(file, text)| read_text_proto(file, text))?;
    Ok(ParsedModel { model, config })
}

/// The wanted model; else the only ensemble; else the only model.
fn choose<'m, 'a>(
    folder: &str,
    models: &'m [ParsedModel<'a>],
    wanted: Option<&str>,
) -> Result<&'m ParsedModel<'a>, BadInput> {
    let names = || models.iter().map(ParsedModel::name).collect::<Vec<_>>().join(", ");
    let refused = |found: String, expected: String| Err(BadInput::one(folder, "", found, expected));
    if let Some(wanted) = wanted {
        return match models.iter().find(|m| m.name() == wanted) {
            Some(model) => Ok(model),
            None => refused(format!("no model {wanted:?}"), format!("one of {}", names())),
        };
    }
    let ensembles: Vec<_> = models.iter().filter(|m| m.config.messages("ensemble_scheduling").next().is_some()).collect();
    match (&ensembles[..], models) {
        ([only], _) => Ok(only),
        ([], [only]) => Ok(only),
        ([], []) => refused(
            "no models".to_owned(),
            "a folder for each model, with a config.pbtxt or a version such as 1".to_owned(),
        ),
        _ => refused(
            format!("{} models and {} ensembles", models.len(), ensembles.len()),
            format!("--model with one of {}", names()),
        ),
    }
}

fn add_model(flow: &mut ForeignPipeline<'_>, model: &ParsedModel<'_>) -> usize {
    if model.config.messages("sequence_batching").next().is_some() {
        flow.remark(format!("{}: it keeps state between requests, which agents do not", model.name()));
    }
    let RepositoryModel { onnx, python, .. } = model.model;
    let file = onnx.as_ref().or(python.as_ref()).cloned();
    let task = flow.add_task(model.name(), vec![FlowVariant { name: model.name().to_owned(), model: file }]);
    if onnx.is_none() {
        flow.remark(format!("{}: no ONNX file in its folder; profile it through its server", model.name()));
        let listed = |key: &str| tensors(&model.config, key).unwrap_or_default();
        flow.tasks[task].tensors = FlowTensors { inputs: listed("input"), outputs: listed("output") };
    }
    task
}

/// The inputs or outputs of a configuration; none if one of them has no fixed kind, or no rows of any number first.
fn tensors(config: &TextMessage, key: &str) -> Option<Vec<FlowTensor>> {
    let has_rows = config.text("max_batch_size").and_then(|size| size.parse::<u32>().ok()).is_some_and(|size| size > 0);
    let tensor = |message: &TextMessage| {
        let kind = message.text("data_type")?.strip_prefix("TYPE_")?;
        let kind = if kind == "STRING" { "BYTES" } else { kind };
        let datatype = DATATYPES.iter().find(|known| **known == kind).copied()?;
        let size = |value: &TextValue| match value {
            TextValue::Word(size) => size.parse::<i64>().ok().filter(|size| *size == -1 || *size > 0),
            TextValue::Text(_) | TextValue::Message(_) => None,
        };
        let sizes: Vec<i64> = message.all("dims").map(size).collect::<Option<_>>()?;
        let shape: Vec<i64> = has_rows.then_some(-1).into_iter().chain(sizes).collect();
        let name = message.text("name")?.to_owned();
        (shape.first() == Some(&-1)).then_some(FlowTensor { name, datatype, shape })
    };
    config.messages(key).map(tensor).collect()
}

fn add_steps(
    flow: &mut ForeignPipeline<'_>,
    ensemble: &ParsedModel<'_>,
    scheduling: &TextMessage,
    models: &[ParsedModel<'_>],
) -> Result<(), BadInput> {
    let steps: Vec<&TextMessage> = scheduling.messages("step").collect();
    let mut makers: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for step in &steps {
        let name = step.text("model_name").unwrap_or_default();
        let Some(model) = models.iter().find(|m| m.name() == name) else {
            let known = models.iter().map(ParsedModel::name).collect::<Vec<_>>().join(", ");
            return Err(BadInput::one(ensemble.file(), "step", format!("model_name {name:?}"), format!("one of {known}")));
        };
        if model.config.messages("ensemble_scheduling").next().is_some() {
            let expected = "a step that is no ensemble; write its steps here";
            return Err(BadInput::one(ensemble.file(), "step", format!("the ensemble {name:?}"), expected));
        }
        let task = add_model(flow, model);
        for (output, tensor) in pairs(step, "output_map") {
            if let Some((other, _)) = makers.insert(tensor.clone(), (task, output)) {
                let found = format!("the tensor {tensor:?} of two steps, {} and {name}", flow.tasks[other].name);
                return Err(BadInput::one(ensemble.file(), "output_map", found, "one step for each tensor"));
            }
        }
    }
    let from_request: Vec<&str> = ensemble.config.messages("input").filter_map(|i| i.text("name")).collect();
    for (to, step) in steps.iter().enumerate() {
        let inputs = pairs(step, "input_map");
        let is_first = inputs.iter().all(|(_, tensor)| !makers.contains_key(tensor));
        for (input, tensor) in inputs {
            match makers.get(&tensor) {
                Some((from, output)) => {
                    let map = [(input, output.clone())].into();
                    flow.add_edge(FlowEdge { from: *from, to, map, ..FlowEdge::default() });
                }
                None if from_request.contains(&tensor.as_str()) && is_first => {}
                None if from_request.contains(&tensor.as_str()) => {
                    let name = flow.tasks[to].name.clone();
                    flow.remark(format!(
                        "{name}: its input {input:?} comes from the request, which only the first task sees"
                    ));
                }
                None => {
                    let found = format!("the tensor {tensor:?} of {}", flow.tasks[to].name);
                    return Err(BadInput::one(
                        ensemble.file(),
                        "input_map",
                        found,
                        "an input of the ensemble, or an output of a step",
                    ));
                }
            }
        }
    }
    Ok(())
}

/// The entries of a map: key, value.
fn pairs(step: &TextMessage, name: &str) -> Vec<(String, String)> {
    let text = |entry: &TextMessage, key: &str| entry.text(key).unwrap_or_default().to_owned();
    step.messages(name).map(|entry| (text(entry, "key"), text(entry, "value"))).collect()
}
