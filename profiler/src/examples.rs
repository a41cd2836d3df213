//! Which examples does a validation set have?

use crate::described::described;
use crate::error::ProfileError;
use crate::files::{MatchRule, ValidationFiles};
use crate::labels::{Label, is_table, read_labels};
use crate::npy::{NPY_BYTES_MAX, NpyError, numpy_type, read_npy};
use crate::samples::row_count;
use apportion_executor::backend::Signature;
use apportion_executor::tensor::{Tensor, TensorSignature};
use std::path::{Path, PathBuf};

/// Most array files of one input.
const ARRAY_FILES_MAX: usize = 4_096;

/// The first examples of a validation set.
pub(crate) struct ExampleSet {
    /// By array file, in the order of the examples: each input of the root, with a row for each example.
    pub examples: Vec<Vec<Tensor>>,
    /// The labels of each example.
    pub labels: Vec<Vec<Label>>,
}

/// Reads the first `examples_max` examples, with all inputs of the root.
pub(crate) fn read_examples(
    set: &ValidationFiles,
    root: &Signature,
    examples_max: usize,
) -> Result<ExampleSet, ProfileError> {
    let labels_file = || set.labels.as_ref().map_or_else(String::new, |file| file.display().to_string());
    let bad_labels = |detail: String| ProfileError::ExamplesMismatch { file: labels_file(), detail };
    let unreadable = |source| ProfileError::Labels { file: labels_file(), source };
    let labels = set.labels.as_deref().map(read_labels).transpose().map_err(unreadable)?;
    // A table ends with the last label, so the arrays count the examples.
    let has_table = set.labels.as_deref().is_some_and(is_table);
    let mut count = labels.as_ref().filter(|_| !has_table).map(Vec::len);
    let mut parts: Vec<Vec<Tensor>> = Vec::new();
    for input in &root.inputs {
        let Some(file) = set.inputs.get(&input.name) else {
            let name = &input.name;
            let detail = format!("the validation set lacks input {name} of the root: add `{name}: FILE.npy` to its inputs");
            return Err(ProfileError::Pipeline(detail));
        };
        let file_name = || file.display().to_string();
        let arrays = read_arrays(file, input)?;
        let rows: usize = arrays.iter().map(Tensor::rows).sum();
        let expected = *count.get_or_insert(rows);
        if rows != expected {
            return Err(match &labels {
                Some(_) if !has_table => {
                    bad_labels(format!("there are labels for {expected} examples and {rows} in {}", file_name()))
                }
                _ => {
                    let detail = format!("it has {rows} examples, and another input has {expected}");
                    ProfileError::ExamplesMismatch { file: file_name(), detail }
                }
            });
        }
        add_input(&mut parts, arrays)
            .map_err(|unlike| ProfileError::ExamplesMismatch { file: file_name(), detail: unlike.to_string() })?;
    }
    if let Some(unknown) = set.inputs.keys().find(|name| !root.inputs.iter().any(|i| i.name == **name)) {
        return Err(ProfileError::Pipeline(format!("the validation set has input {unknown}, which the root has not")));
    }
    let count = count.unwrap_or(0);
    if count == 0 {
        return Err(ProfileError::Pipeline("the validation set has no examples: expected one at least".to_owned()));
    }
    let mut labels = labels.unwrap_or_default();
    if labels.len() > count {
        let last = labels.len() - 1;
        return Err(bad_labels(format!("there are labels for example {last}: expected 0 to {}", count - 1)));
    }
    labels.resize(count, Vec::new());
    labels.truncate(examples_max);
    check_labels(&labels, &set.matching).map_err(|unfit| bad_labels(unfit.to_string()))?;
    Ok(ExampleSet { examples: first_examples(parts, examples_max), labels })
}

/// The arrays of an input: that of a file, or those of the `.npy` files in a folder, by their names. Arrays of a folder may
/// differ in their shapes.
fn read_arrays(path: &Path, input: &TensorSignature) -> Result<Vec<Tensor>, ProfileError> {
    let (mut arrays, mut bytes) = (Vec::new(), 0_u64);
    for file in array_files(path)? {
        let name = || file.display().to_string();
        let array = read_npy(&input.name, &file).map_err(|source| ProfileError::Array { file: name(), source })?;
        if let Some(detail) = array_misfit(&array, input) {
            return Err(ProfileError::ExamplesMismatch { file: name(), detail });
        }
        bytes += array.data.len() as u64;
        if bytes > NPY_BYTES_MAX {
            return Err(ProfileError::Array { file: path.display().to_string(), source: NpyError::TooLong });
        }
        arrays.push(array);
    }
    Ok(arrays)
}

/// The file, or the array files of the folder in the order of their names.
fn array_files(path: &Path) -> Result<Vec<PathBuf>, ProfileError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let shown = || path.display().to_string();
    let unreadable = |e: std::io::Error| ProfileError::Array { file: shown(), source: NpyError::Io(e) };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if file.extension().is_some_and(|extension| extension == "npy") {
            files.push(file);
        }
    }
    if files.is_empty() || files.len() > ARRAY_FILES_MAX {
        let detail = format!("it has {} files with the ending .npy: expected 1 to {ARRAY_FILES_MAX}", files.len());
        return Err(ProfileError::ExamplesMismatch { file: shown(), detail });
    }
    files.sort();
    Ok(files)
}

/// The files of an input have other numbers of examples than those of another input.
#[derive(Debug, thiserror::Error)]
#[error(
    "its array files have {found:?} examples, and those of another input have {expected:?}: expected the same numbers in \
     the order of the files' names"
)]
struct UnlikeFiles {
    found: Vec<usize>,
    expected: Vec<usize>,
}

/// Adds the arrays of an input to those of the inputs before it.
fn add_input(parts: &mut Vec<Vec<Tensor>>, arrays: Vec<Tensor>) -> Result<(), UnlikeFiles> {
    if parts.is_empty() {
        parts.extend(arrays.into_iter().map(|array| vec![array]));
        return Ok(());
    }
    let found: Vec<usize> = arrays.iter().map(Tensor::rows).collect();
    let expected: Vec<usize> = parts.iter().map(|part| row_count(part)).collect();
    if found != expected {
        return Err(UnlikeFiles { found, expected });
    }
    parts.iter_mut().zip(arrays).for_each(|(part, array)| part.push(array));
    Ok(())
}

/// The first `examples_max` rows over all files; one part without tensors if there are no inputs.
fn first_examples(parts: Vec<Vec<Tensor>>, examples_max: usize) -> Vec<Vec<Tensor>> {
    let (mut left, mut first) = (examples_max, Vec::new());
    for part in parts {
        let rows = row_count(&part).min(left);
        left -= rows;
        if rows > 0 {
            first.push(part.iter().map(|tensor| tensor.slice(0, rows)).collect());
        }
    }
    if first.is_empty() { vec![Vec::new()] } else { first }
}

/// Why an array does not fit the input that it is for; `None` if it does.
fn array_misfit(array: &Tensor, input: &TensorSignature) -> Option<String> {
    if array.datatype != input.datatype {
        let (name, found, wanted) = (&input.name, array.datatype.name(), input.datatype.name());
        let advice = numpy_type(input.datatype).map_or_else(String::new, |to| format!(": save it with `.astype({to:?})`"));
        return Some(format!("its elements are {found}, and those of the input {name} are {wanted}{advice}"));
    }
    let is_size = |(&have, &want): (&usize, &i64)| want == -1 || usize::try_from(want) == Ok(have);
    let fits = array.shape.len() == input.shape.len() && array.shape.iter().zip(&input.shape).skip(1).all(is_size);
    (!fits).then(|| format!("its shape is {:?}, and the input is {}", array.shape, described(input)))
}

/// Why labels do not fit the rule that they are compared by.
#[derive(Debug, thiserror::Error)]
enum UnfitLabels {
    #[error("the first {0} examples have no labels")]
    Missing(usize),
    #[error("the labels have no \"at\" to compare output {0} with")]
    NoPlace(String),
    #[error("the labels are at {0} numbers: expected four for boxes, which are left, top, right and bottom")]
    NoBoxes(usize),
}

fn check_labels(labels: &[Vec<Label>], rule: &MatchRule) -> Result<(), UnfitLabels> {
    let at = match rule {
        MatchRule::Cosine(_) | MatchRule::Command(_) => return Ok(()),
        MatchRule::Value(rule) => rule.at.as_ref(),
        MatchRule::Boxes(_) => None,
    };
    // All labels have positions of one length.
    let Some(first) = labels.iter().flatten().next() else { return Err(UnfitLabels::Missing(labels.len())) };
    match (rule, at) {
        (_, Some(output)) if first.at.is_empty() => Err(UnfitLabels::NoPlace(output.clone())),
        (MatchRule::Boxes(_), _) if first.at.len() != 4 => Err(UnfitLabels::NoBoxes(first.at.len())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{BoxRule, ValueRule};
    use crate::labels::LabelValue;
    use apportion_executor::tensor::Datatype;

    #[test]
    fn an_array_of_another_type_or_shape_is_told_the_right_one() {
        let array = |datatype, shape: &[usize]| Tensor {
            name: "x".into(),
            datatype,
            shape: shape.to_vec(),
            data: bytes::Bytes::new(),
        };
        let input = TensorSignature { name: "x".into(), datatype: Datatype::Fp32, shape: vec![-1, 3, -1] };
        assert_eq!(array_misfit(&array(Datatype::Fp32, &[9, 3, 48]), &input), None);
        let told = |datatype, shape: &[usize]| array_misfit(&array(datatype, shape), &input).expect("a misfit");
        let expected = "its elements are FP64, and those of the input x are FP32: save it with `.astype(\"f4\")`";
        assert_eq!(told(Datatype::Fp64, &[9, 3, 48]), expected);
        let expected = "its shape is [9, 48, 3], and the input is x (FP32 [rows, 3, any])";
        assert_eq!(told(Datatype::Fp32, &[9, 48, 3]), expected);
        assert!(told(Datatype::Fp32, &[9]).starts_with("its shape is [9]"));
    }

    #[test]
    fn labels_fit_their_rule() {
        let at = |numbers: &[f64]| vec![vec![], vec![Label { value: LabelValue::Number(1.0), at: numbers.to_vec() }]];
        let value = |at: Option<&str>| {
            let at = at.map(str::to_owned);
            MatchRule::Value(ValueRule { value: "y".to_owned(), at, ..ValueRule::default() })
        };
        let boxes = BoxRule { boxes: "b".to_owned(), scores: "s".to_owned(), classes: None, iou: 0.5 };
        let boxes = MatchRule::Boxes(boxes);
        let fits = |labels: &[Vec<Label>], rule: &MatchRule| check_labels(labels, rule).map_err(|unfit| unfit.to_string());
        let refused = |labels: &[Vec<Label>], rule: &MatchRule| fits(labels, rule).expect_err("refused");
        assert_eq!(fits(&at(&[]), &value(None)), Ok(()));
        assert_eq!(fits(&at(&[1.0, 2.0]), &value(Some("p"))), Ok(()));
        assert_eq!(fits(&at(&[0.0; 4]), &boxes), Ok(()));
        assert_eq!(fits(&[vec![]], &MatchRule::Cosine("y".to_owned())), Ok(()));
        assert!(refused(&at(&[]), &value(Some("p"))).contains("no \"at\" to compare output p with"));
        assert!(refused(&at(&[1.0, 2.0]), &boxes).contains("at 2 numbers: expected four"));
        assert!(refused(&[vec![], vec![]], &value(None)).contains("the first 2 examples have no labels"));
    }
}
