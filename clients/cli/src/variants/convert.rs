//! How is a file of another precision made? A Python of the user runs the converters of ONNX Runtime's own package.

use super::choice::Precision;
use apportion_import::{GraphHeader, GraphTensor, read_graph};
use apportion_support::exit::Failure;
use apportion_support::input;
use apportion_wire::BadInput;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program that the Python runs.
const CONVERTER: &str = include_str!("convert.py");
/// Its exit status where the Python lacks a package.
const LACKS_PACKAGE: i32 = 3;
/// The packages that it imports.
const PACKAGES: &str = "onnx onnxruntime";

/// A model file whose precision is changed.
#[derive(Clone, Copy, Debug)]
pub struct ConvertedModel<'a> {
    /// Its path.
    pub file: &'a str,
    /// Its tensors.
    pub header: &'a GraphHeader,
}

/// Writes the model in this precision to `out`, where no file is. The file appears there when it is complete.
///
/// # Errors
/// If there is a file, or if the Python cannot be run or lacks the packages. Or if it cannot convert the model, or the new
/// file has other tensors.
pub fn convert(python: &Path, model: ConvertedModel<'_>, precision: Precision, out: &Path) -> Result<(), Failure> {
    let shown = out.display().to_string();
    if out.exists() {
        return Err(BadInput::one(&shown, "", "a file is there", "no file, or another folder with --out").into());
    }
    let partial = PartialFile(out.with_extension(format!("{}.part.onnx", std::process::id())));
    let made = partial.0.display().to_string();
    run(python, model.file, precision, &made)?;
    let header = read_graph(&made, &input::read_bytes(&made)?)?;
    if let Some(change) = changed_tensor(model.header, &header) {
        let found = format!("its {} form has other tensors: {change}", precision.name());
        return Err(BadInput::one(model.file, "", found, "a model whose tensors stay as they are").into());
    }
    std::fs::rename(&partial.0, out).map_err(|e| anyhow::Error::new(e).context(format!("writing {shown}")))?;
    Ok(())
}

/// A file that is not complete. It is removed if it does not get its name.
struct PartialFile(PathBuf);

impl Drop for PartialFile {
    fn drop(&mut self) {
        // A file that has got its name is not there any more.
        let _gone = std::fs::remove_file(&self.0);
    }
}

fn run(python: &Path, file: &str, precision: Precision, out: &str) -> Result<(), Failure> {
    let program = python.display().to_string();
    let lacks = |found: String| {
        let expected =
            format!("a Python 3 with the packages {PACKAGES}: `{program} -m pip install {PACKAGES}`, or another --python");
        Failure::from(BadInput::one("--python", "", found, expected))
    };
    let mut command = Command::new(python);
    command.arg("-c").arg(CONVERTER).args([file, precision.name(), out]).stdin(Stdio::null());
    // Without the folder of the caller, whose files could have the names of packages.
    command.env("PYTHONSAFEPATH", "1");
    let ended = command.output().map_err(|e| lacks(format!("{program} cannot be run: {e}")))?;
    let said = String::from_utf8_lossy(&ended.stderr);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("no word about the reason");
    match ended.status.code() {
        Some(0) => Ok(()),
        Some(LACKS_PACKAGE) => Err(lacks(format!("{program}: {last}"))),
        _ => {
            let expected = format!("a model that ONNX Runtime's converter to {} can read", precision.name());
            Err(BadInput::one(file, "", last, expected).into())
        }
    }
}

/// The first difference between the tensors of two graphs. Names of sizes do not count.
fn changed_tensor(old: &GraphHeader, new: &GraphHeader) -> Option<String> {
    let sides = [("input", &old.inputs, &new.inputs), ("output", &old.outputs, &new.outputs)];
    sides.into_iter().find_map(|(side, old, new)| {
        let apart = old.iter().zip(new).find(|(old, new)| !is_same(old, new));
        match apart {
            Some((old, new)) => Some(format!("{side} {old} becomes {new}")),
            None if old.len() != new.len() => Some(format!("{} {side}s become {}", old.len(), new.len())),
            None => None,
        }
    })
}

fn is_same(old: &GraphTensor, new: &GraphTensor) -> bool {
    let has_same_shape = old.sizes().zip(new.sizes()).is_none_or(|(old, new)| old == new);
    old.name == new.name && old.datatype == new.datatype && has_same_shape
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_import::graph::{Dimension, WeightPlace};

    fn tensor(name: &str, datatype: &'static str, shape: &[Dimension]) -> GraphTensor {
        GraphTensor { name: name.to_owned(), datatype: Some(datatype), shape: Some(shape.to_vec()) }
    }

    fn graph(input: GraphTensor, outputs: Vec<GraphTensor>) -> GraphHeader {
        GraphHeader { inputs: vec![input], outputs, weights: WeightPlace::Inside }
    }

    #[test]
    fn tensors_change_by_name_type_and_fixed_size() {
        let rows = || Dimension::Named("rows".to_owned());
        let x = || tensor("x", "FP32", &[rows(), Dimension::Fixed(4)]);
        let y = || tensor("y", "FP32", &[Dimension::Any]);
        let old = graph(x(), vec![y()]);
        let named =
            graph(tensor("x", "FP32", &[Dimension::Any, Dimension::Fixed(4)]), vec![tensor("y", "FP32", &[rows()])]);
        assert_eq!(changed_tensor(&old, &named), None, "names of sizes do not count");
        let cases = [
            (
                graph(tensor("x", "FP16", &[rows(), Dimension::Fixed(4)]), vec![y()]),
                "input x FP32 [rows, 4] becomes x FP16",
            ),
            (graph(tensor("x", "FP32", &[rows(), Dimension::Fixed(5)]), vec![y()]), "[rows, 4] becomes x FP32 [rows, 5]"),
            (graph(tensor("z", "FP32", &[rows(), Dimension::Fixed(4)]), vec![y()]), "becomes z FP32"),
            (graph(x(), vec![y(), y()]), "1 outputs become 2"),
            (graph(x(), vec![tensor("y", "FP32", &[Dimension::Any, Dimension::Any])]), "output y FP32 [?] becomes"),
        ];
        for (new, expected) in cases {
            let said = changed_tensor(&old, &new).unwrap_or_default();
            assert!(said.contains(expected), "{said} should say {expected}");
        }
    }
}
