//! Which files does `apportion profile` measure, and which accuracies does it need beside them?

use apportion_profiler::{
    BoxRule, CommandRule, EdgeFiles, MatchRule, PipelineFiles, TaskFiles, ValidationFiles, ValueRule, VariantFile,
};
use apportion_wire::glue::signatures;
use apportion_wire::spec::EdgeSpec;
use apportion_wire::{BadInput, BoxMatchSpec, MatchSpec, PipelineSpec};
use std::path::Path;
use std::time::Duration;

/// Smallest overlap of a box with a label, as intersection over union, if the file says none (PASCAL VOC).
const IOU: f64 = 0.5;
/// Longest time of a command in seconds, if the file says none.
const TIMEOUT_S: f64 = 60.0;

/// The input files of the profiler, with paths relative to `folder`, where the pipeline file is.
///
/// # Errors
/// If a variant names no file.
pub fn profiled_files(file: &str, spec: &PipelineSpec, folder: &Path) -> Result<PipelineFiles, BadInput> {
    let mut tasks = Vec::new();
    for (t, (task, glue)) in spec.tasks.iter().zip(spec.glue()).enumerate() {
        let mut variants = Vec::new();
        for (v, variant) in task.variants.iter().enumerate() {
            let missing = || {
                let at = format!("/tasks/{t}/variants/{v}/model");
                BadInput::one(file, at, "nothing", "the path of a model file, or `python`")
            };
            let path = variant.model.as_ref().or(variant.python.as_ref()).ok_or_else(missing)?;
            let runtime = variant.file_runtime();
            let (name, execution) = (variant.name.clone(), variant.execution());
            variants.push(VariantFile { name, file: folder.join(path), runtime, execution });
        }
        let inputs = task.inputs.as_deref().map(signatures).unwrap_or_default();
        // Inputs of a task without transforms are those of its variants, whatever the file says.
        let inputs = if glue.is_empty() { Vec::new() } else { inputs };
        tasks.push(TaskFiles { name: task.name.clone(), inputs, glue: glue.into(), variants });
    }
    let edge = |e: &EdgeSpec| EdgeFiles { from: e.from.clone(), to: e.to.clone(), map: spec.exported_map(e) };
    let validation = spec.validation.as_ref().map(|validation| ValidationFiles {
        inputs: validation.inputs.iter().map(|(name, file)| (name.clone(), folder.join(file))).collect(),
        labels: validation.labels.as_ref().map(|labels| folder.join(labels)),
        matching: match_rule(&validation.matching, folder),
    });
    Ok(PipelineFiles { tasks, edges: spec.edges.iter().map(edge).collect(), validation })
}

/// The rule of a checked file: exactly one is there.
fn match_rule(spec: &MatchSpec, folder: &Path) -> MatchRule {
    if let Some(BoxMatchSpec { boxes, scores, classes, iou }) = spec.mean_average_precision.clone() {
        return MatchRule::Boxes(BoxRule { boxes, scores, classes, iou: iou.unwrap_or(IOU) });
    }
    if let Some(output) = &spec.cosine {
        return MatchRule::Cosine(output.clone());
    }
    if !spec.command.is_empty() {
        let time_max = Duration::from_secs_f64(spec.timeout_s.unwrap_or(TIMEOUT_S));
        let (command, outputs, folder) = (spec.command.clone(), spec.outputs.clone(), folder.to_owned());
        return MatchRule::Command(CommandRule { command, outputs, folder, time_max });
    }
    let MatchSpec { value, at, within, top, .. } = spec.clone();
    MatchRule::Value(ValueRule { value: value.expect("a checked rule"), at, within, top })
}

/// Refuses variants without an accuracy where none is measured, before anything is measured: a service registers no
/// profile without accuracies.
///
/// # Errors
/// The first such variant.
pub fn check_accuracies(file: &str, spec: &PipelineSpec) -> Result<(), BadInput> {
    for (t, task) in spec.tasks.iter().enumerate() {
        if let Some(v) = task.variants.iter().position(|variant| variant.accuracy.is_none()) {
            let at = format!("/tasks/{t}/variants/{v}/accuracy");
            let expected =
                "a number from 0 to 1 for --register, because no accuracy is measured; 1 if all are equally good";
            return Err(BadInput::one(file, at, "nothing", expected));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_wire::read_pipeline_spec;

    const PIPELINE: &str = "name: p\nslo_ms: 100\ntasks:\n- {name: t, variants: [{name: v, model: m/v.onnx}]}\n";

    fn spec(text: &str) -> PipelineSpec {
        read_pipeline_spec("p.yaml", text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn paths_are_relative_to_the_pipeline_file() {
        let validation = "validation: {inputs: {x: x.npy}, labels: l.json, match: {value: y, within: 2}}\n";
        let text = format!("{PIPELINE}{validation}");
        let files = profiled_files("p.yaml", &spec(&text), Path::new("/f")).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(files.tasks[0].variants[0].file, Path::new("/f/m/v.onnx"));
        let set = files.validation.expect("a validation set");
        assert_eq!(set.inputs["x"], Path::new("/f/x.npy"));
        assert_eq!(set.labels.as_deref(), Some(Path::new("/f/l.json")));
        let rule = ValueRule { value: "y".to_owned(), within: Some(2.0), ..ValueRule::default() };
        assert_eq!(set.matching, MatchRule::Value(rule));
    }

    #[test]
    fn every_rule_is_read_with_its_defaults() {
        let rule = |matching: &str| {
            let text = format!("{PIPELINE}validation: {{inputs: {{x: x.npy}}, labels: l.json, match: {{{matching}}}}}\n");
            let files = profiled_files("p.yaml", &spec(&text), Path::new("/f")).unwrap_or_else(|e| panic!("{e}"));
            files.validation.expect("a validation set").matching
        };
        let boxes = BoxRule { boxes: "b".to_owned(), scores: "s".to_owned(), classes: None, iou: 0.5 };
        assert_eq!(rule("mean_average_precision: {boxes: b, scores: s}"), MatchRule::Boxes(boxes));
        assert_eq!(rule("cosine: y"), MatchRule::Cosine("y".to_owned()));
        let command = CommandRule {
            command: vec!["python3".to_owned(), "judge.py".to_owned()],
            outputs: vec!["y".to_owned()],
            folder: Path::new("/f").to_owned(),
            time_max: Duration::from_secs(60),
        };
        assert_eq!(rule("command: [python3, judge.py], outputs: [y]"), MatchRule::Command(command));
        let top = ValueRule { value: "y".to_owned(), top: Some(5), ..ValueRule::default() };
        assert_eq!(rule("value: y, top: 5"), MatchRule::Value(top));
    }

    #[test]
    fn a_validation_set_may_be_left_out() {
        let files = profiled_files("p.yaml", &spec(PIPELINE), Path::new(".")).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(files.validation, None);
        let none = PIPELINE.replace(", model: m/v.onnx", "");
        let refused = profiled_files("p.yaml", &spec(&none), Path::new(".")).expect_err("no file").to_string();
        assert_eq!(refused, "p.yaml: /tasks/0/variants/0/model: nothing: expected the path of a model file, or `python`");
    }
}
