//! Which axes beside the rows may have any size, and how do they get one?
//!
//! Example: `images` FP32 `[batch, 3, height, width]` has two such axes. The note says how a file fixes `height` and
//! `width`, and that `--shape images=3,SIZE,SIZE` measures it with one size.

use super::remark::GraphRemark;
use super::stages::GraphFile;
use crate::graph::{Dimension, GraphTensor};

/// Inputs of a graph with the same open axes.
struct OpenInputs<'a> {
    /// Position and kind of each open axis.
    axes: Vec<(usize, &'a Dimension)>,
    inputs: Vec<&'a GraphTensor>,
}

/// The notes about these inputs of a file: one for all inputs with the same open axes.
pub(super) fn notes_of(file: &GraphFile, inputs: &[&GraphTensor]) -> Vec<GraphRemark> {
    let mut open: Vec<OpenInputs<'_>> = Vec::new();
    for &input in inputs {
        let axes = open_axes(input);
        if axes.is_empty() {
            continue;
        }
        match open.iter_mut().find(|known| known.axes == axes) {
            Some(known) => known.inputs.push(input),
            None => open.push(OpenInputs { axes, inputs: vec![input] }),
        }
    }
    open.iter().map(|inputs| inputs.note(file)).collect()
}

fn open_axes(input: &GraphTensor) -> Vec<(usize, &Dimension)> {
    let inner = input.shape.iter().flatten().enumerate().skip(1);
    inner.filter(|(_, dimension)| dimension.fixed().is_none()).collect()
}

impl OpenInputs<'_> {
    fn note(&self, file: &GraphFile) -> GraphRemark {
        let listed: Vec<String> = self.inputs.iter().map(|input| format!("{input}")).collect();
        let kind = if self.inputs.len() == 1 { "input" } else { "inputs" };
        let axes: Vec<String> = self.axes.iter().map(axis).collect();
        let shapes: Vec<String> = self.inputs.iter().map(|input| shape_option(input)).collect();
        let cure = format!(
            "Make one size of it by `resize`, `crop`, `pad` or `tokenise`, in `before` of the task or `transform` of an \
             edge{}; else profile with examples of the sizes that you expect, or with `{}`",
            self.fixing(file),
            shapes.join(" ")
        );
        GraphRemark {
            place: format!("{}, {kind} {}", file.path, listed.join(", ")),
            found: format!("{} may have any size; only rows of one shape are one batch", axes.join(" and ")),
            cure,
            works: true,
        }
    }

    /// How the sizes are fixed in the file. The tool finds an axis by its name, so axes without names have no such way.
    fn fixing(&self, file: &GraphFile) -> String {
        let mut names: Vec<&str> = Vec::new();
        for (_, dimension) in &self.axes {
            match dimension {
                Dimension::Named(name) if names.contains(&name.as_str()) => {}
                Dimension::Named(name) => names.push(name),
                Dimension::Any | Dimension::Fixed(_) => return String::new(),
            }
        }
        let Some((first, others)) = names.split_first() else { return String::new() };
        let again: Vec<String> = others.iter().map(|name| format!(", then {name}")).collect();
        format!(
            ", or fix it in the file with `python -m onnxruntime.tools.make_dynamic_shape_fixed --dim_param {first} \
             --dim_value SIZE {} fixed.onnx`{}",
            file.path,
            again.concat()
        )
    }
}

fn axis((at, dimension): &(usize, &Dimension)) -> String {
    match dimension {
        Dimension::Named(name) => format!("axis {at} ({name})"),
        Dimension::Any | Dimension::Fixed(_) => format!("axis {at}"),
    }
}

/// The option of `apportion profile` that says the sizes of an input.
fn shape_option(input: &GraphTensor) -> String {
    let inner = input.shape.iter().flatten().skip(1);
    let sizes: Vec<String> = inner.map(|d| d.fixed().map_or_else(|| "SIZE".to_owned(), |size| size.to_string())).collect();
    format!("--shape {}={}", input.name, sizes.join(","))
}
