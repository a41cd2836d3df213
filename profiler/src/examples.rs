//! Which examples does a validation set have?

use crate::error::ProfileError;
use crate::files::ValidationFiles;
use crate::labels::{Label, read_labels};
use crate::npy::read_npy;
use apportion_executor::backend::Signature;
use apportion_executor::tensor::Tensor;

/// The first examples of a validation set.
pub(crate) struct ExampleSet {
    /// Each input of the root, with a row for each example.
    pub examples: Vec<Tensor>,
    /// The labels of each example.
    pub labels: Vec<Vec<Label>>,
}

/// Reads the first `examples_max` examples, with all inputs of the root.
pub(crate) fn read_examples(
    set: &ValidationFiles,
    root: &Signature,
    examples_max: usize,
) -> Result<ExampleSet, ProfileError> {
    let file = || set.labels.display().to_string();
    let bad_labels = |detail: String| ProfileError::LabelsMismatch { file: file(), detail };
    let unreadable = |source| ProfileError::Labels { file: file(), source };
    let mut labels = read_labels(&set.labels).map_err(unreadable)?;
    let mut examples = Vec::new();
    for input in &root.inputs {
        let Some(file) = set.inputs.get(&input.name) else {
            return Err(ProfileError::Pipeline(format!("the validation set lacks input {} of the root", input.name)));
        };
        let bad_array = |source| ProfileError::Array { file: file.display().to_string(), source };
        let array = read_npy(&input.name, file).map_err(bad_array)?;
        if array.rows() != labels.len() {
            return Err(bad_labels(format!(
                "there are labels for {} examples and {} in {}",
                labels.len(),
                array.rows(),
                file.display()
            )));
        }
        examples.push(array.slice(0, array.rows().min(examples_max)));
    }
    if let Some(unknown) = set.inputs.keys().find(|name| !root.inputs.iter().any(|i| i.name == **name)) {
        return Err(ProfileError::Pipeline(format!("the validation set has input {unknown}, which the root has not")));
    }
    labels.truncate(examples_max);
    if labels.iter().all(Vec::is_empty) {
        return Err(bad_labels(format!("the first {examples_max} examples have no labels")));
    }
    if let Some(at) = set.matching.at.as_ref().filter(|_| labels.iter().flatten().any(|l| l.at.is_empty())) {
        return Err(bad_labels(format!("the labels have no \"at\" to compare output {at} with")));
    }
    Ok(ExampleSet { examples, labels })
}
