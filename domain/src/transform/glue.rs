//! Which transforms does one task have, and which tensors does it take and make with them?
//!
//! A query brings inputs. `before` makes the inputs of the variant from them. `after` changes the variant's outputs, and
//! may read the inputs that the query brought. The transforms of an edge continue from there, for its child alone.

use super::settings::STEPS_MAX;
use super::steps::Transform;
use super::types::{RowType, RowTypes, TransformError};
use crate::tensor::{Datatype, TensorSignature};
use std::collections::BTreeSet;

/// Name of the output that says from which row of the batch each output row comes.
pub const PARENT: &str = "parent";
/// Name of the output that says to which child each row goes, by position among the task's children.
pub const CHILD: &str = "child";

/// One edge out of a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EdgeGlue {
    /// Name of the child.
    pub to: String,
    /// Transforms for this child.
    pub steps: Vec<Transform>,
    /// Names of the tensors that the child's inputs are made from, after the transforms.
    pub outputs: Vec<String>,
}

impl EdgeGlue {
    /// The name under which the task hands out a tensor for this edge. Several edges may make different tensors of one
    /// name, so an edge with transforms puts the child's name before it.
    #[must_use]
    pub fn exported(&self, output: &str) -> String {
        match self.steps.is_empty() {
            true => output.to_owned(),
            false => format!("{}.{output}", self.to),
        }
    }

    fn place(&self) -> String {
        format!("edge to {}", self.to)
    }
}

/// The transforms of one task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskGlue {
    /// From the inputs of a query to the inputs of a variant.
    pub before: Vec<Transform>,
    /// From the outputs of a variant to those of the task.
    pub after: Vec<Transform>,
    /// All edges out of the task, with and without transforms.
    pub edges: Vec<EdgeGlue>,
}

/// Why the transforms of a task are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GlueError {
    /// A transform does not fit the tensors that it gets.
    #[error("{place}: transform {number} ({transform}): {cause}")]
    Step {
        /// `before`, `after`, or the edge.
        place: String,
        /// Its number in the list, counted from 1.
        number: usize,
        /// Its name.
        transform: &'static str,
        /// Why not.
        cause: Box<TransformError>,
    },
    /// A list is too long.
    #[error("{place}: {found} transforms: expected at most {STEPS_MAX}")]
    Steps {
        /// `before`, `after`, or the edge.
        place: String,
        /// How many there are.
        found: usize,
    },
    /// A transform makes rows where it cannot.
    #[error("{place}: transform {number} ({transform}) makes rows: expected {cure}")]
    Rows {
        /// `before`, or the edge.
        place: String,
        /// Its number in the list, counted from 1.
        number: usize,
        /// Its name.
        transform: &'static str,
        /// What would be right.
        cure: &'static str,
    },
    /// No tensor is for an input of the variant.
    #[error("`before` makes no {name}, which the variant takes: expected {name} as {expected} among {}", known.join(", "))]
    NoInput {
        /// Name of the input.
        name: String,
        /// Its type.
        expected: RowType,
        /// Names of the tensors that are there.
        known: Vec<String>,
    },
    /// The tensor for an input of the variant has another type.
    #[error("`before` makes {name} as {found}: expected {expected}, which the variant takes")]
    Input {
        /// Name of the input.
        name: String,
        /// Type of the tensor.
        found: RowType,
        /// Type of the input.
        expected: RowType,
    },
    /// The map of an edge names a tensor that is not there.
    #[error("{place}: its map names {name}: expected one of {}", known.join(", "))]
    NoOutput {
        /// The edge.
        place: String,
        /// Name of the missing tensor.
        name: String,
        /// Names of the tensors that are there.
        known: Vec<String>,
    },
}

/// Types by name of all tensors but the two that say where rows come from and go to.
fn types_of(tensors: &[TensorSignature]) -> impl Iterator<Item = (String, RowType)> + '_ {
    let is_plain = |tensor: &&TensorSignature| tensor.name != PARENT && tensor.name != CHILD;
    tensors.iter().filter(is_plain).map(|tensor| (tensor.name.clone(), RowType::from(tensor)))
}

/// Follows a list of transforms.
fn follow(place: &str, steps: &[Transform], types: &mut RowTypes) -> Result<(), GlueError> {
    for (at, step) in steps.iter().enumerate() {
        step.check_types(types).map_err(|cause| GlueError::Step {
            place: place.to_owned(),
            number: at + 1,
            transform: step.name(),
            cause: Box::new(cause),
        })?;
    }
    Ok(())
}

fn names(types: &RowTypes) -> Vec<String> {
    types.keys().cloned().collect()
}

impl TaskGlue {
    /// Whether the task has no transforms at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty() && self.edges.iter().all(|edge| edge.steps.is_empty())
    }

    /// Checks the settings of all transforms, and that rows are made where they can be.
    ///
    /// # Errors
    /// [`GlueError`], the first refusal.
    pub fn check_settings(&self) -> Result<(), GlueError> {
        let of_edges = self.edges.iter().map(|edge| (edge.place(), &edge.steps));
        let own = [("`before`".to_owned(), &self.before), ("`after`".to_owned(), &self.after)];
        for (place, steps) in own.into_iter().chain(of_edges) {
            if steps.len() > STEPS_MAX {
                return Err(GlueError::Steps { place, found: steps.len() });
            }
            for (at, step) in steps.iter().enumerate() {
                step.check_settings().map_err(|cause| GlueError::Step {
                    place: place.clone(),
                    number: at + 1,
                    transform: step.name(),
                    cause: Box::new(cause),
                })?;
            }
        }
        self.check_rows()
    }

    /// Rows are made after the variant, and for all edges alike.
    fn check_rows(&self) -> Result<(), GlueError> {
        let refusal = |place: String, steps: &[Transform], cure| {
            let maker = steps.iter().enumerate().find(|(_, step)| step.makes_rows());
            maker.map(|(at, step)| GlueError::Rows { place, number: at + 1, transform: step.name(), cure })
        };
        const BEFORE: &str = "it in `after` of the parent or on its edge, because a query is one row";
        let mut refusals: Vec<GlueError> = refusal("`before`".to_owned(), &self.before, BEFORE).into_iter().collect();
        if self.edges.len() > 1 {
            const EDGE: &str = "it in `after` of the parent, because the edges of a task share its rows";
            refusals.extend(self.edges.iter().filter_map(|edge| refusal(edge.place(), &edge.steps, EDGE)));
        }
        refusals.into_iter().next().map_or(Ok(()), Err)
    }

    /// Checks that the inputs of a query, `given`, become those of the variant, `taken`.
    ///
    /// # Errors
    /// [`GlueError`], the first refusal.
    pub fn check_inputs(&self, given: &[TensorSignature], taken: &[TensorSignature]) -> Result<(), GlueError> {
        let mut types: RowTypes = types_of(given).collect();
        follow("`before`", &self.before, &mut types)?;
        for input in taken {
            let (name, expected) = (input.name.clone(), RowType::from(input));
            match types.get(&name) {
                Some(found) if found.fits(&expected) => {}
                Some(found) => return Err(GlueError::Input { name, found: found.clone(), expected }),
                None => return Err(GlueError::NoInput { name, expected, known: names(&types) }),
            }
        }
        Ok(())
    }

    /// Names of the tensors that the task hands out after `after`, by the names of the variant's outputs: all at a sink,
    /// else those that edges without transforms use.
    #[must_use]
    pub fn answers<'n>(&'n self, made: impl Iterator<Item = &'n str>) -> BTreeSet<String> {
        if !self.edges.is_empty() {
            let plain = self.edges.iter().filter(|edge| edge.steps.is_empty());
            return plain.flat_map(|edge| edge.outputs.iter().cloned()).collect();
        }
        let mut names: BTreeSet<&str> = made.filter(|name| *name != PARENT && *name != CHILD).collect();
        for step in &self.after {
            match step {
                Transform::Keep(keep) => names = keep.tensors.iter().map(String::as_str).collect(),
                step => names.extend(step.writes()),
            }
        }
        names.into_iter().map(str::to_owned).collect()
    }

    /// The outputs of the task, where queries bring `given` and the variant makes `made`.
    ///
    /// # Errors
    /// [`GlueError`], the first refusal.
    pub fn outputs(&self, given: &[TensorSignature], made: &[TensorSignature]) -> Result<Vec<TensorSignature>, GlueError> {
        let mut types: RowTypes = types_of(given).collect();
        types.extend(types_of(made));
        follow("`after`", &self.after, &mut types)?;
        let answers = self.answers(made.iter().map(|tensor| tensor.name.as_str()));
        let mut outputs: Vec<TensorSignature> =
            answers.iter().filter_map(|name| Some(types.get(name)?.named(name))).collect();
        for edge in &self.edges {
            let mut of_edge = types.clone();
            follow(&edge.place(), &edge.steps, &mut of_edge)?;
            for name in &edge.outputs {
                let missing = || GlueError::NoOutput { place: edge.place(), name: name.clone(), known: names(&of_edge) };
                let found = of_edge.get(name).ok_or_else(missing)?;
                if !edge.steps.is_empty() {
                    outputs.push(found.named(&edge.exported(name)));
                }
            }
        }
        let makes_rows = self.after.iter().chain(self.edges.iter().flat_map(|e| &e.steps)).any(Transform::makes_rows);
        for name in [PARENT, CHILD] {
            let is_made = made.iter().any(|tensor| tensor.name == name);
            if is_made || (makes_rows && name == PARENT) {
                outputs.push(RowType { datatype: Datatype::Int64, inner: Vec::new() }.named(name));
            }
        }
        Ok(outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::{
        BoxForm, CastStep, CropStep, KeepStep, NmsStep, NormaliseStep, PictureFit, PictureSize, PixelLayout, ResizeStep,
    };
    use super::*;

    fn tensor(name: &str, datatype: Datatype, shape: &[i64]) -> TensorSignature {
        TensorSignature { name: name.into(), datatype, shape: shape.to_vec() }
    }

    fn resize(of: &str, to: &str) -> Transform {
        let size = PictureSize { height: 32, width: 48 };
        let (fit, layout) = (PictureFit::Stretch, PixelLayout::ChannelsLast);
        Transform::Resize(ResizeStep { of: of.into(), to: to.into(), size, fit, fill: 0.0, layout })
    }

    fn crop() -> Transform {
        Transform::Crop(CropStep {
            boxes: "boxes".into(),
            of: "photo".into(),
            to: "patch".into(),
            size: PictureSize { height: 48, width: 320 },
            boxes_in: None,
            fit: PictureFit::Contain,
            fill: 0.0,
            layout: PixelLayout::ChannelsLast,
        })
    }

    fn nms() -> Transform {
        let (boxes, scores, classes) = ("boxes".into(), "scores".into(), "classes".into());
        let (iou, score_min, keep_max) = (0.5, 0.1, 10);
        Transform::Nms(NmsStep { boxes, scores, classes, form: BoxForm::Corners, iou, score_min, keep_max })
    }

    fn normalise(of: &str, to: &str) -> Transform {
        let (mean, std) = (vec![0.5], vec![0.5]);
        Transform::Normalise(NormaliseStep { of: of.into(), to: to.into(), scale: 1.0, mean, std, axis: None })
    }

    fn photo() -> TensorSignature {
        tensor("photo", Datatype::Uint8, &[-1, -1, -1, 3])
    }

    fn detected() -> [TensorSignature; 2] {
        [tensor("boxes", Datatype::Fp32, &[-1, -1, 4]), tensor("scores", Datatype::Fp32, &[-1, -1, 80])]
    }

    fn detector(steps: Vec<Transform>, outputs: &[&str]) -> TaskGlue {
        let outputs = outputs.iter().map(|name| (*name).to_owned()).collect();
        let edges = vec![EdgeGlue { to: "read".into(), steps, outputs }];
        TaskGlue { before: vec![resize("photo", "image")], after: vec![nms()], edges }
    }

    #[test]
    fn a_detectors_edge_hands_out_patches_and_their_boxes() {
        let glue = detector(vec![crop(), normalise("patch", "patch")], &["patch", "boxes"]);
        assert_eq!(glue.check_settings(), Ok(()));
        let image = |datatype| [tensor("image", datatype, &[-1, 32, 48, 3])];
        assert_eq!(glue.check_inputs(&[photo()], &image(Datatype::Uint8)), Ok(()));
        let refused = glue.check_inputs(&[photo()], &image(Datatype::Fp32)).expect_err("no cast").to_string();
        assert!(refused.contains("UINT8 [rows, 32, 48, 3]: expected FP32 [rows, 32, 48, 3]"), "{refused}");
        let outputs = glue.outputs(&[photo()], &detected()).expect("they fit");
        let expected = [
            tensor("read.patch", Datatype::Fp32, &[-1, 48, 320, 3]),
            tensor("read.boxes", Datatype::Fp32, &[-1, 4]),
            tensor(PARENT, Datatype::Int64, &[-1]),
        ];
        assert_eq!(outputs, expected);
    }

    #[test]
    fn a_refusal_names_edge_step_found_and_expected() {
        let glue = detector(vec![normalise("photo", "photo"), crop()], &["patch"]);
        let flat = [tensor("boxes", Datatype::Fp32, &[-1, 5]), tensor("scores", Datatype::Fp32, &[-1, 5])];
        let no_nms = TaskGlue { after: Vec::new(), ..glue };
        let refused = no_nms.outputs(&[photo()], &flat).expect_err("five numbers").to_string();
        let expected =
            "edge to read: transform 2 (crop): boxes is FP32 [rows, 5]: expected FP32 [rows, 4] or [rows, boxes, 4]";
        assert_eq!(refused, expected);
        let unmapped = detector(vec![crop()], &["patches"]).outputs(&[photo()], &detected()).expect_err("no such");
        assert!(unmapped.to_string().contains("edge to read: its map names patches: expected one of boxes"), "{unmapped}");
    }

    #[test]
    fn rows_are_made_after_the_variant_for_all_edges() {
        let mut glue = detector(vec![crop()], &["patch"]);
        glue.edges.push(EdgeGlue { to: "count".into(), steps: Vec::new(), outputs: vec!["boxes".into()] });
        let refused = glue.check_settings().expect_err("two edges").to_string();
        assert!(refused.contains("edge to read: transform 1 (crop) makes rows"), "{refused}");
        glue.after.push(crop());
        glue.edges[0].steps.clear();
        assert_eq!(glue.check_settings(), Ok(()));
        glue.before = vec![nms()];
        assert!(matches!(glue.check_settings(), Err(GlueError::Rows { number: 1, .. })));
        glue.before = vec![resize("photo", "photo"); STEPS_MAX + 1];
        assert!(matches!(glue.check_settings(), Err(GlueError::Steps { found: 17, .. })));
    }

    #[test]
    fn a_sink_answers_with_what_is_kept() {
        let cast = Transform::Cast(CastStep { of: "scores".into(), to: "whole".into(), datatype: Datatype::Int32 });
        let mut glue = TaskGlue { after: vec![cast], ..TaskGlue::default() };
        let names = |glue: &TaskGlue| {
            let outputs = glue.outputs(&[photo()], &detected()).expect("fits");
            outputs.into_iter().map(|tensor| tensor.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&glue), ["boxes", "scores", "whole"], "the photo is no answer");
        glue.after.push(Transform::Keep(KeepStep { tensors: vec!["whole".into(), "photo".into()] }));
        assert_eq!(names(&glue), ["photo", "whole"]);
        assert!(!glue.is_empty() && TaskGlue::default().is_empty());
    }
}
