//! Which transforms and Python stages does a pipeline have, and do they fit its tensors?

use crate::profile_set::{MeasuredTask, ProfileSet};
use crate::spec::{EdgeSpec, PipelineSpec, TaskSpec, TensorSpec, VariantSpec};
use crate::transform_spec::{
    CastSpec, CropSpec, DecodeTextSpec, KeepSpec, NmsSpec, NormaliseSpec, PadSpec, ResizeSpec, SliceSpec, TokeniseSpec,
    TransformSpec, TransposeSpec,
};
use apportion_domain::tensor::{Datatype, TensorSignature};
use apportion_domain::transform::{
    CastStep, CropStep, DecodeTextStep, EdgeGlue, GlueError, KeepStep, NmsStep, NormaliseStep, PadStep, PictureSize,
    ResizeStep, RowType, SliceStep, TaskGlue, TokeniseStep, Transform, TransformError, TransposeStep, Vocabulary,
};
use apportion_domain::{Invalid, Invalids, VariantRuntime};
use std::collections::BTreeMap;

/// A word of a setting. The files were checked, so an unknown one is the default.
fn word<T: Default>(given: Option<&String>, from_name: fn(&str) -> Option<T>) -> T {
    given.and_then(|name| from_name(name)).unwrap_or_default()
}

/// The tensor that a transform makes: the one that it reads unless it says another.
fn made(to: Option<&String>, of: &str) -> String {
    to.map_or_else(|| of.to_owned(), Clone::clone)
}

fn size(list: &[u32], at: impl FnOnce() -> String) -> Result<PictureSize, Invalid> {
    match *list {
        [height, width] => Ok(PictureSize { height, width }),
        _ => Err(Invalid::new(at(), format!("{list:?}"), "height and width")),
    }
}

fn crop(spec: &CropSpec, at: &str) -> Result<Transform, Invalid> {
    let boxes_in = spec.boxes_in.as_ref().map(|list| size(list, || format!("{at}/boxes_in"))).transpose()?;
    Ok(Transform::Crop(CropStep {
        boxes: spec.boxes.clone(),
        of: spec.of.clone(),
        to: made(spec.to.as_ref(), &spec.of),
        size: size(&spec.size, || format!("{at}/size"))?,
        boxes_in,
        fit: word(spec.fit.as_ref(), apportion_domain::transform::PictureFit::from_name),
        fill: spec.fill.unwrap_or(0.0),
        layout: word(spec.layout.as_ref(), apportion_domain::transform::PixelLayout::from_name),
    }))
}

fn resize(spec: &ResizeSpec, at: &str) -> Result<Transform, Invalid> {
    let (of, to) = (spec.of.clone(), made(spec.to.as_ref(), &spec.of));
    let fit = word(spec.fit.as_ref(), apportion_domain::transform::PictureFit::from_name);
    let layout = word(spec.layout.as_ref(), apportion_domain::transform::PixelLayout::from_name);
    let size = size(&spec.size, || format!("{at}/size"))?;
    Ok(Transform::Resize(ResizeStep { of, to, size, fit, fill: spec.fill.unwrap_or(0.0), layout }))
}

fn pad(spec: &PadSpec) -> Transform {
    let (of, to) = (spec.of.clone(), made(spec.to.as_ref(), &spec.of));
    let (axis, lengths, value) = (spec.axis, spec.lengths.clone(), spec.value.unwrap_or(0.0));
    Transform::Pad(PadStep { of, to, axis, lengths, value })
}

fn normalise(spec: &NormaliseSpec) -> Transform {
    let (of, to) = (spec.of.clone(), made(spec.to.as_ref(), &spec.of));
    let list = |given: &[f64], default: f64| if given.is_empty() { vec![default] } else { given.to_vec() };
    let (mean, std) = (list(&spec.mean, 0.0), list(&spec.std, 1.0));
    Transform::Normalise(NormaliseStep { of, to, scale: spec.scale.unwrap_or(1.0), mean, std, axis: spec.axis })
}

fn nms(spec: &NmsSpec) -> Transform {
    Transform::Nms(NmsStep {
        boxes: made(spec.boxes.as_ref(), "boxes"),
        scores: made(spec.scores.as_ref(), "scores"),
        classes: made(spec.classes.as_ref(), "classes"),
        form: word(spec.form.as_ref(), apportion_domain::transform::BoxForm::from_name),
        iou: spec.iou.unwrap_or(0.45),
        score_min: spec.score_min.unwrap_or(0.25),
        keep_max: spec.keep_max.unwrap_or(100),
    })
}

/// The refusal of a list that is still in a file, or is not there.
fn no_list(at: &str, key: &str, file_key: &str, file: Option<&String>) -> Invalid {
    match file {
        Some(file) => {
            let expected = format!("{key}, which `apportion profile --register` reads from the file");
            Invalid::new(format!("{at}/{file_key}"), format!("{file:?}"), expected)
        }
        None => Invalid::new(format!("{at}/{key}"), "missing", format!("a list, or {file_key}")),
    }
}

fn decode_text(spec: &DecodeTextSpec, at: &str) -> Result<Transform, Invalid> {
    let texts = match (&spec.alphabet, &spec.classes) {
        (Some(_), Some(_)) => return Err(Invalid::new(format!("{at}/classes"), "a second list", "alphabet or classes")),
        (Some(characters), None) => characters.chars().map(String::from).collect(),
        (None, Some(classes)) => classes.clone(),
        (None, None) => return Err(no_list(at, "alphabet", "alphabet_file", spec.alphabet_file.as_ref())),
    };
    Ok(Transform::DecodeText(DecodeTextStep {
        of: spec.of.clone(),
        to: made(spec.to.as_ref(), &spec.of),
        alphabet: Vocabulary::new(texts),
        decoding: word(spec.decoding.as_ref(), apportion_domain::transform::TextDecoding::from_name),
        blank: spec.blank.unwrap_or(0),
    }))
}

fn tokenise(spec: &TokeniseSpec, at: &str) -> Result<Transform, Invalid> {
    let missing = || no_list(at, "vocabulary", "vocabulary_file", spec.vocabulary_file.as_ref());
    let vocabulary = spec.vocabulary.clone().ok_or_else(missing)?;
    Ok(Transform::Tokenise(TokeniseStep {
        of: spec.of.clone(),
        to: made(spec.to.as_ref(), &spec.of),
        mask: spec.mask.clone(),
        types: spec.types.clone(),
        vocabulary: Vocabulary::new(vocabulary),
        split: word(spec.split.as_ref(), apportion_domain::transform::WordSplit::from_name),
        letters: word(spec.letters.as_ref(), apportion_domain::transform::LetterCase::from_name),
        unknown: made(spec.unknown.as_ref(), "[UNK]"),
        start: spec.start.clone(),
        end: spec.end.clone(),
        padding: made(spec.padding.as_ref(), "[PAD]"),
        length: spec.length,
    }))
}

fn transpose(spec: &TransposeSpec) -> Transform {
    let (of, to, axes) = (spec.of.clone(), made(spec.to.as_ref(), &spec.of), spec.axes.clone());
    Transform::Transpose(TransposeStep { of, to, axes })
}

fn cast(spec: &CastSpec, at: &str) -> Result<Transform, Invalid> {
    let (of, to) = (spec.of.clone(), made(spec.to.as_ref(), &spec.of));
    let unknown = || Invalid::new(format!("{at}/datatype"), &spec.datatype, "a datatype of numbers");
    Ok(Transform::Cast(CastStep { of, to, datatype: Datatype::from_name(&spec.datatype).ok_or_else(unknown)? }))
}

fn slice(spec: &SliceSpec) -> Transform {
    let (of, to) = (spec.of.clone(), made(spec.to.as_ref(), &spec.of));
    Transform::Slice(SliceStep { of, to, axis: spec.axis, from: spec.from.unwrap_or(0), until: spec.until })
}

fn keep(spec: &KeepSpec) -> Transform {
    Transform::Keep(KeepStep { tensors: spec.tensors.clone() })
}

impl TransformSpec {
    /// The refusal of a list that is still in a file of its own.
    fn unread_list(&self, at: &str) -> Option<Invalid> {
        if let Some(spec) = self.decode_text.as_ref().filter(|spec| spec.alphabet.is_none() && spec.classes.is_none()) {
            let file = spec.alphabet_file.as_ref()?;
            return Some(no_list(&format!("{at}/decode_text"), "alphabet", "alphabet_file", Some(file)));
        }
        let spec = self.tokenise.as_ref().filter(|spec| spec.vocabulary.is_none())?;
        let file = spec.vocabulary_file.as_ref()?;
        Some(no_list(&format!("{at}/tokenise"), "vocabulary", "vocabulary_file", Some(file)))
    }

    /// The transform; `at` is its pointer.
    ///
    /// # Errors
    /// The first refused value: none or several keys, or a setting that is refused whatever tensors it gets.
    pub fn to_domain(&self, at: &str) -> Result<Transform, Invalid> {
        let mut found = [
            self.crop.as_ref().map(|spec| crop(spec, &format!("{at}/crop"))),
            self.resize.as_ref().map(|spec| resize(spec, &format!("{at}/resize"))),
            self.pad.as_ref().map(|spec| Ok(pad(spec))),
            self.normalise.as_ref().map(|spec| Ok(normalise(spec))),
            self.nms.as_ref().map(|spec| Ok(nms(spec))),
            self.decode_text.as_ref().map(|spec| decode_text(spec, &format!("{at}/decode_text"))),
            self.tokenise.as_ref().map(|spec| tokenise(spec, &format!("{at}/tokenise"))),
            self.transpose.as_ref().map(|spec| Ok(transpose(spec))),
            self.cast.as_ref().map(|spec| cast(spec, &format!("{at}/cast"))),
            self.slice.as_ref().map(|spec| Ok(slice(spec))),
            self.keep.as_ref().map(|spec| Ok(keep(spec))),
        ]
        .into_iter()
        .flatten();
        let (first, more) = (found.next(), found.count());
        let (Some(transform), 0) = (first, more) else {
            let expected = "one key, which names the transform; another transform is another member of the list";
            let count = if more == 0 { 0 } else { more + 1 };
            return Err(Invalid::new(at, format!("an object of {count} keys"), expected));
        };
        let transform = transform?;
        match transform.check_settings() {
            Err(TransformError::Setting { setting, found, expected }) => {
                Err(Invalid::new(format!("{at}/{}/{setting}", transform.name()), found, expected))
            }
            Err(error) => Err(Invalid::new(at, error, "another transform")),
            Ok(()) => Ok(transform),
        }
    }
}

/// The transforms of a list; those that are refused go to `problems`.
fn transforms(specs: &[TransformSpec], at: &str, problems: &mut Vec<Invalid>) -> Vec<Transform> {
    let mut found = Vec::with_capacity(specs.len());
    for (i, spec) in specs.iter().enumerate() {
        if spec.unread_list(at).is_some() {
            continue;
        }
        match spec.to_domain(&format!("{at}/{i}")) {
            Ok(transform) => found.push(transform),
            Err(problem) => problems.push(problem),
        }
    }
    found
}

/// Tensors in the words of the domain.
#[must_use]
pub fn signatures(tensors: &[TensorSpec]) -> Vec<TensorSignature> {
    let signature = |spec: &TensorSpec| {
        let datatype = Datatype::from_name(&spec.datatype)?;
        Some(TensorSignature { name: spec.name.clone(), datatype, shape: spec.shape.clone() })
    };
    tensors.iter().filter_map(signature).collect()
}

impl EdgeSpec {
    fn glue(&self, at: &str, problems: &mut Vec<Invalid>) -> EdgeGlue {
        let mut outputs: Vec<String> = self.map.values().cloned().collect();
        outputs.sort_unstable();
        outputs.dedup();
        let steps = transforms(&self.transform, &format!("{at}/transform"), problems);
        EdgeGlue { to: self.to.clone(), steps, outputs }
    }
}

impl VariantSpec {
    /// What runs its file.
    #[must_use]
    pub fn file_runtime(&self) -> VariantRuntime {
        match (&self.python, self.runtime.as_deref().and_then(VariantRuntime::from_name)) {
            (Some(_), _) => VariantRuntime::Python,
            (None, runtime) => runtime.unwrap_or_default(),
        }
    }

    fn runtime_problem(&self, at: &str) -> Option<Invalid> {
        let python = self.python.as_ref()?;
        if self.model.is_some() {
            return Some(Invalid::new(format!("{at}/python"), format!("{python:?}"), "model or python, not both"));
        }
        let runtime = self.runtime.as_ref().filter(|runtime| *runtime != VariantRuntime::Python.name())?;
        Some(Invalid::new(format!("{at}/runtime"), format!("{runtime:?}"), "python, as the file is"))
    }
}

impl PipelineSpec {
    /// The transforms of each task, in the order of tasks, with what is wrong with them.
    fn glue_and_problems(&self) -> (Vec<TaskGlue>, Vec<Invalid>) {
        let mut problems = Vec::new();
        let mut glues = Vec::with_capacity(self.tasks.len());
        for (t, task) in self.tasks.iter().enumerate() {
            let at = format!("/tasks/{t}");
            let had = problems.len();
            let edges = self.edges.iter().enumerate().filter(|(_, edge)| edge.from == task.name);
            let edges = edges.map(|(e, edge)| edge.glue(&format!("/edges/{e}"), &mut problems)).collect();
            let before = transforms(&task.before, &format!("{at}/before"), &mut problems);
            let after = transforms(&task.after, &format!("{at}/after"), &mut problems);
            let glue = TaskGlue { before, after, edges };
            if let (Err(error), true) = (glue.check_settings(), had == problems.len()) {
                problems.push(refusal_of(&error, &at));
            }
            glues.push(glue);
        }
        (glues, problems)
    }

    /// Checks that all lists of transforms are here: a service cannot read the files that a pipeline file names.
    ///
    /// # Errors
    /// Every list that is still in a file.
    pub fn check_lists(&self) -> Result<(), Invalids> {
        let of_list = |specs: &[TransformSpec], at: String| {
            let unread = specs.iter().enumerate().filter_map(|(i, spec)| spec.unread_list(&format!("{at}/{i}")));
            unread.collect::<Vec<_>>()
        };
        let mut problems = Vec::new();
        for (t, task) in self.tasks.iter().enumerate() {
            problems.extend(of_list(&task.before, format!("/tasks/{t}/before")));
            problems.extend(of_list(&task.after, format!("/tasks/{t}/after")));
        }
        for (e, edge) in self.edges.iter().enumerate() {
            problems.extend(of_list(&edge.transform, format!("/edges/{e}/transform")));
        }
        if problems.is_empty() { Ok(()) } else { Err(Invalids(problems)) }
    }

    /// The pipeline without the keys of the service and of files: as a problem has it.
    #[must_use]
    pub fn without_registered_keys(mut self) -> Self {
        (self.validation, self.replan) = (None, None);
        for task in &mut self.tasks {
            (task.inputs, task.outputs) = (None, None);
            (task.before, task.after) = (Vec::new(), Vec::new());
            for variant in &mut task.variants {
                (variant.model, variant.model_digest) = (None, None);
                (variant.python, variant.runtime) = (None, None);
                (variant.threads, variant.provider) = (None, None);
            }
        }
        self.edges.iter_mut().for_each(|edge| edge.transform.clear());
        self
    }

    /// What is wrong with transforms and Python stages, whatever the tensors are. Transforms whose lists are in files are
    /// left out.
    pub(crate) fn glue_problems(&self) -> Vec<Invalid> {
        let (_, mut problems) = self.glue_and_problems();
        for (t, task) in self.tasks.iter().enumerate() {
            if !task.before.is_empty() && task.inputs.as_ref().is_none_or(Vec::is_empty) {
                let expected = "the tensors that queries bring, because `before` makes other ones from them";
                problems.push(Invalid::new(format!("/tasks/{t}/inputs"), "missing", expected));
            }
            let of = |(v, variant): (usize, &VariantSpec)| variant.runtime_problem(&format!("/tasks/{t}/variants/{v}"));
            problems.extend(task.variants.iter().enumerate().filter_map(of));
            for (v, variant) in task.variants.iter().enumerate() {
                problems.extend(variant.execution_problems(&format!("/tasks/{t}/variants/{v}")));
            }
        }
        problems
    }

    /// Whether an edge has transforms.
    #[must_use]
    pub fn has_edge_transforms(&self) -> bool {
        self.edges.iter().any(|edge| !edge.transform.is_empty())
    }

    /// The transforms of each task, in the order of tasks. The pipeline was read from a file or a body, so they are valid.
    #[must_use]
    pub fn glue(&self) -> Vec<TaskGlue> {
        self.glue_and_problems().0
    }

    /// For each edge, the child's input names with the names under which the parent hands their tensors out.
    #[must_use]
    pub fn exported_map(&self, edge: &EdgeSpec) -> BTreeMap<String, String> {
        let of_edge = EdgeGlue { to: edge.to.clone(), steps: Vec::new(), outputs: Vec::new() };
        let steps = transforms(&edge.transform, "", &mut Vec::new());
        let glue = EdgeGlue { steps, ..of_edge };
        edge.map.iter().map(|(input, output)| (input.clone(), glue.exported(output))).collect()
    }

    /// Checks the whole chain of transforms against the tensors that were measured: those of variants, tasks and edges.
    /// Pipelines without transforms pass, and so do tasks whose variants' tensors are not known.
    ///
    /// # Errors
    /// Every refusal, with the task or the edge as its pointer.
    pub fn check_glue(&self, profiles: &ProfileSet) -> Result<(), Invalids> {
        let (glues, mut problems) = self.glue_and_problems();
        if glues.iter().all(TaskGlue::is_empty) {
            return Ok(());
        }
        let measured = |task: &TaskSpec| profiles.tasks.iter().find(|measured| measured.name == task.name);
        let tasks = || self.tasks.iter().zip(&glues).enumerate();
        for (t, (task, glue)) in tasks().filter(|(_, (_, glue))| !glue.is_empty()) {
            if let Some(measured) = measured(task) {
                problems.extend(check_task(task, glue, measured, &format!("/tasks/{t}")));
            }
        }
        let list = |spec: &Option<Vec<TensorSpec>>, measured: Option<&Vec<TensorSpec>>| {
            spec.as_ref().or(measured).map(|tensors| signatures(tensors)).unwrap_or_default()
        };
        let named = |name: &str| self.tasks.iter().find(|task| task.name == name);
        for (e, edge) in self.edges.iter().enumerate() {
            let (Some(from), Some(to)) = (named(&edge.from), named(&edge.to)) else { continue };
            let outputs = list(&from.outputs, measured(from).map(|m| &m.outputs));
            let inputs = list(&to.inputs, measured(to).map(|m| &m.inputs));
            if !outputs.is_empty() && !inputs.is_empty() {
                problems.extend(check_edge(&self.exported_map(edge), &outputs, &inputs, &format!("/edges/{e}/map")));
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Invalids(problems)) }
    }
}

/// What is wrong with the tensors of one task with transforms.
fn check_task(task: &TaskSpec, glue: &TaskGlue, measured: &MeasuredTask, at: &str) -> Option<Invalid> {
    let given = signatures(task.inputs.as_ref().unwrap_or(&measured.inputs));
    let refused = |error: GlueError| Some(refusal_of(&error, at));
    if let Some(taken) = &measured.model_inputs
        && let Err(error) = glue.check_inputs(&given, &signatures(taken))
    {
        return refused(error);
    }
    let made = measured.model_outputs.as_ref()?;
    let outputs = match glue.outputs(&given, &signatures(made)) {
        Ok(outputs) => outputs,
        Err(error) => return refused(error),
    };
    let declared = signatures(task.outputs.as_ref().unwrap_or(&measured.outputs));
    let lacks = |tensor: &&TensorSignature| {
        let same = |made: &TensorSignature| made.name == tensor.name && RowType::from(made).fits(&RowType::from(*tensor));
        !outputs.iter().any(same)
    };
    let wrong = declared.iter().find(lacks)?;
    let known: Vec<String> = outputs.iter().map(|o| format!("{} as {}", o.name, RowType::from(o))).collect();
    let expected = format!("one of {}; profile the pipeline again where its transforms have changed", known.join(", "));
    Some(Invalid::new(format!("{at}/outputs"), format!("{} as {}", wrong.name, RowType::from(wrong)), expected))
}

/// What is wrong with the map of one edge.
fn check_edge(
    map: &BTreeMap<String, String>,
    outputs: &[TensorSignature],
    inputs: &[TensorSignature],
    at: &str,
) -> Vec<Invalid> {
    let named = |tensors: &[TensorSignature], name: &str| tensors.iter().find(|t| t.name == name).map(RowType::from);
    let check = |(input, output): (&String, &String)| {
        let place = format!("{at}/{}", apportion_domain::pipeline::escape(input));
        let Some(found) = named(outputs, output) else {
            let known: Vec<&str> = outputs.iter().map(|tensor| tensor.name.as_str()).collect();
            return Some(Invalid::new(place, format!("{output:?}"), format!("one of {}", known.join(", "))));
        };
        let Some(expected) = named(inputs, input) else {
            let known: Vec<&str> = inputs.iter().map(|tensor| tensor.name.as_str()).collect();
            return Some(Invalid::new(place, format!("{input:?}"), format!("one of {}", known.join(", "))));
        };
        let misfit = || Invalid::new(place, format!("{output} as {found}"), expected.to_string());
        (!found.fits(&expected)).then(misfit)
    };
    map.iter().filter_map(check).collect()
}

/// A refusal of the domain at the pointer of its task.
fn refusal_of(error: &GlueError, at: &str) -> Invalid {
    match error {
        GlueError::Rows { place, number, transform, cure } => {
            Invalid::new(at, format!("{place}: transform {number} ({transform}) makes rows"), *cure)
        }
        other => Invalid::new(at, other, "transforms that fit each other and the tensors"),
    }
}
