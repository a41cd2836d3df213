//! How does a variant run with the transforms of its task around it?
//!
//! Example: a query brings a photo. `before` makes the detector's input from it, the detector runs, and `crop` on the edge
//! makes the rows of the next task. For all others the variant takes photos and makes patches.

use super::batch::check_inputs;
use super::{Backend, BackendError, Signature};
use apportion_domain::transform::{GlueError, TaskGlue};
use apportion_node::tensor::{Tensor, TensorSignature};
use apportion_node::transforms::{run_after, run_before};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A variant with the transforms of its task.
pub struct GluedBackend {
    variant: Box<dyn Backend>,
    glue: Arc<TaskGlue>,
    /// Names of the tensors that the task hands out after `after`.
    answers: BTreeSet<String>,
    signature: Signature,
}

impl GluedBackend {
    /// Puts the transforms around a variant. `given` are the inputs that queries bring; none: those of the variant.
    ///
    /// # Errors
    /// [`GlueError`] if the transforms do not fit the tensors of the variant.
    pub fn new(variant: Box<dyn Backend>, glue: Arc<TaskGlue>, given: &[TensorSignature]) -> Result<Self, GlueError> {
        glue.check_settings()?;
        let made = &variant.signature().outputs;
        let taken = &variant.signature().inputs;
        let inputs = if given.is_empty() { taken.clone() } else { given.to_vec() };
        glue.check_inputs(&inputs, taken)?;
        let outputs = glue.outputs(&inputs, made)?;
        let answers = glue.answers(made.iter().map(|tensor| tensor.name.as_str()));
        Ok(Self { variant, glue, answers, signature: Signature { inputs, outputs } })
    }
}

impl Backend for GluedBackend {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        check_inputs(&self.signature.inputs, inputs)?;
        let taken = run_before(&self.glue, inputs, &self.variant.signature().inputs);
        let taken = taken.map_err(|fault| BackendError::Run(fault.to_string()))?;
        let made = self.variant.run(&taken)?;
        let outputs = run_after(&self.glue, &self.answers, inputs, made);
        outputs.map_err(|fault| BackendError::Run(fault.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_domain::transform::{EdgeGlue, NmsStep, PARENT, Transform, TransposeStep};
    use apportion_node::tensor::{Datatype, int64s};

    /// Makes its inputs the boxes, with a score of one half each.
    struct Echo(Signature);

    impl Backend for Echo {
        fn signature(&self) -> &Signature {
            &self.0
        }

        fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
            check_inputs(&self.0.inputs, inputs)?;
            let rows = inputs[0].rows();
            let scores = 0.5_f32.to_le_bytes().repeat(2 * rows).into();
            let boxes = Tensor { name: "boxes".into(), ..inputs[0].clone() };
            let scores = Tensor { name: "scores".into(), datatype: Datatype::Fp32, shape: vec![rows, 2], data: scores };
            Ok(vec![boxes, scores])
        }
    }

    fn spec(name: &str, shape: &[i64]) -> TensorSignature {
        TensorSignature { name: name.into(), datatype: Datatype::Fp32, shape: shape.to_vec() }
    }

    fn echo() -> Box<dyn Backend> {
        let outputs = vec![spec("boxes", &[-1, 2, 4]), spec("scores", &[-1, 2])];
        Box::new(Echo(Signature { inputs: vec![spec("x", &[-1, 2, 4])], outputs }))
    }

    fn glue() -> TaskGlue {
        let transpose = TransposeStep { of: "x".into(), to: "x".into(), axes: vec![2, 1] };
        let (boxes, scores, classes) = ("boxes".into(), "scores".into(), "classes".into());
        let nms = NmsStep { boxes, scores, classes, form: Default::default(), iou: 0.5, score_min: 0.1, keep_max: 9 };
        let edges = vec![EdgeGlue { to: "next".into(), steps: vec![Transform::Nms(nms)], outputs: vec!["boxes".into()] }];
        TaskGlue { before: vec![Transform::Transpose(transpose)], after: Vec::new(), edges }
    }

    fn floats(name: &str, shape: &[usize], values: &[f32]) -> Tensor {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor { name: name.into(), datatype: Datatype::Fp32, shape: shape.to_vec(), data: data.into() }
    }

    #[test]
    fn a_variant_looks_like_its_task() {
        let mut backend = GluedBackend::new(echo(), glue().into(), &[spec("x", &[-1, 4, 2])]).expect("fits");
        let outputs: Vec<_> = backend.signature().outputs.iter().map(|o| (o.name.as_str(), o.shape.len())).collect();
        assert_eq!(outputs, [("next.boxes", 2), (PARENT, 1)]);
        // Two boxes, the numbers of each in a column.
        let of_row = [0.0, 4.0, 0.0, 4.0, 2.0, 9.0, 2.0, 9.0];
        let made = backend.run(&[floats("x", &[2, 4, 2], &[of_row, of_row].concat())]).expect("a batch");
        assert_eq!(int64s(&made[1]), Some(vec![0, 0, 1, 1]));
        let corners = [[0.0, 0.0, 2.0, 2.0], [4.0, 4.0, 9.0, 9.0]].concat();
        assert_eq!(made[0], floats("next.boxes", &[4, 4], &[corners.clone(), corners].concat()));
        let refused = backend.run(&[floats("x", &[1, 4, 3], &[0.0; 12])]).expect_err("another shape");
        assert!(matches!(refused, BackendError::Input(_)), "{refused}");
    }

    #[test]
    fn transforms_that_do_not_fit_the_variant_are_refused() {
        let refused = GluedBackend::new(echo(), glue().into(), &[spec("x", &[-1, 5, 2])]).err().expect("five numbers");
        assert!(refused.to_string().contains("makes x as FP32 [rows, 2, 5]: expected FP32 [rows, 2, 4]"), "{refused}");
    }
}
