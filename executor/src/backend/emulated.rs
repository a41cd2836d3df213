//! A profile played back: batches take as long as the plan says that they do, and make zeros of the right shape. For
//! capacity tests on machines without the devices, and to measure everything but the variants themselves.

use super::batch::check_inputs;
use super::{Backend, BackendError, Signature, Wanted};
use crate::layout::Group;
use crate::node::split::PARENT;
use crate::tensor::{Tensor, TensorSpec};
use std::time::{Duration, Instant};

/// Size of a dimension that the specification leaves open.
const OPEN_DIMENSION: usize = 1;

/// A variant that is not there.
pub struct EmulatedBackend {
    signature: Signature,
    group: Group,
}

impl EmulatedBackend {
    /// A stand-in for the wanted variant, with the tensors that the plan gives its task.
    ///
    /// # Errors
    /// [`BackendError::Load`] if the plan has no latencies for it or says not enough about its tensors.
    pub fn new(wanted: &Wanted) -> Result<Self, BackendError> {
        let fail = |detail: &str| {
            let file = format!("variant {} of task {}", wanted.group.variant, wanted.task.name);
            Err(BackendError::Load { file, detail: detail.to_owned() })
        };
        if wanted.group.service.is_empty() {
            return fail(
                "the plan has no latencies for it: expected at least one batch size with its latency to play back",
            );
        }
        let signature = Signature { inputs: wanted.task.inputs.clone(), outputs: wanted.task.outputs.clone() };
        if signature.inputs.is_empty() {
            return fail(
                "the plan names no inputs: expected at least one, because the rows of a batch are those of its inputs",
            );
        }
        if let Some(bad) = signature.outputs.iter().find(|o| o.shape.first() != Some(&-1)) {
            let (name, shape) = (&bad.name, &bad.shape);
            return fail(&format!("output {name} has the shape {shape:?}: expected the rows first, as -1"));
        }
        Ok(Self { signature, group: wanted.group.clone() })
    }
}

impl Backend for EmulatedBackend {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Each row makes one row of each output; an output `parent` says so.
    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let start = Instant::now();
        check_inputs(&self.signature.inputs, inputs).map_err(BackendError::Input)?;
        let rows = inputs.first().map_or(0, Tensor::rows);
        let outputs = self.signature.outputs.iter().map(|spec| output(spec, rows)).collect();
        let takes = Duration::from_nanos(self.group.latency_ns(rows));
        let left = takes.saturating_sub(start.elapsed());
        if !left.is_zero() {
            std::thread::sleep(left);
        }
        Ok(outputs)
    }
}

fn output(spec: &TensorSpec, rows: usize) -> Tensor {
    if spec.name == PARENT && spec.datatype == crate::tensor::Datatype::Int64 {
        let data: Vec<u8> = (0..rows as i64).flat_map(i64::to_le_bytes).collect();
        return Tensor { name: spec.name.clone(), datatype: spec.datatype, shape: vec![rows], data: data.into() };
    }
    let rest = spec.shape.iter().skip(1).map(|d| usize::try_from(*d).unwrap_or(OPEN_DIMENSION));
    let shape: Vec<usize> = std::iter::once(rows).chain(rest).collect();
    // Zero bytes are a zero of every datatype, and an empty text.
    let data = vec![0; shape.iter().product::<usize>() * spec.datatype.size()].into();
    Tensor { name: spec.name.clone(), datatype: spec.datatype, shape, data }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Task;
    use crate::tensor::Datatype;

    fn spec(name: &str, datatype: Datatype, shape: &[i64]) -> TensorSpec {
        TensorSpec { name: name.into(), datatype, shape: shape.into() }
    }

    fn wanted(service: &[(u32, u64)]) -> Wanted {
        let outputs = vec![
            spec("y", Datatype::Fp16, &[-1, 3, -1]),
            spec("text", Datatype::Bytes, &[-1]),
            spec(PARENT, Datatype::Int64, &[-1]),
        ];
        let inputs = vec![spec("x", Datatype::Fp32, &[-1, 2])];
        let task = Task { name: "t".into(), inputs, outputs, children: Vec::new(), delays: Vec::new(), one_of: false };
        let group = Group {
            task: 0,
            variant: "v".into(),
            hardware: "cpu".into(),
            batch: 8,
            accuracy: 1.0,
            digest: String::new(),
            service: service.into(),
            share: 1.0,
            memory_mib: None,
            fanout: Vec::new(),
        };
        Wanted { file: None, task, group }
    }

    fn batch(rows: usize) -> Tensor {
        Tensor { name: "x".into(), datatype: Datatype::Fp32, shape: vec![rows, 2], data: vec![0; rows * 8].into() }
    }

    #[test]
    fn outputs_have_the_shapes_of_the_plan_and_one_row_for_each_row() {
        let mut backend = EmulatedBackend::new(&wanted(&[(1, 0)])).expect("a stand-in");
        let outputs = backend.run(&[batch(3)]).expect("a run");
        let shapes: Vec<_> = outputs.iter().map(|t| t.shape.clone()).collect();
        assert_eq!(shapes, [vec![3, 3, 1], vec![3], vec![3]]);
        for (tensor, spec) in outputs.iter().zip(&backend.signature.outputs) {
            super::super::batch::check_tensor(spec, tensor).expect("it is what the plan says");
        }
        assert_eq!(crate::slot::int64s(&outputs[2]), Some(vec![0, 1, 2]));
    }

    #[test]
    fn a_batch_takes_at_least_the_latency_of_its_size() {
        let mut backend = EmulatedBackend::new(&wanted(&[(1, 2_000_000), (3, 6_000_000)])).expect("a stand-in");
        for (rows, takes_ms) in [(1, 2), (2, 4), (3, 6)] {
            let start = Instant::now();
            backend.run(&[batch(rows)]).expect("a run");
            assert!(start.elapsed() >= Duration::from_millis(takes_ms), "{rows} rows");
        }
    }

    #[test]
    fn what_cannot_be_played_back_is_refused_and_says_why() {
        let refused = |w: &Wanted| EmulatedBackend::new(w).err().expect("a refusal").to_string();
        assert!(refused(&wanted(&[])).contains("variant v of task t: the plan has no latencies"));
        let mut odd = wanted(&[(1, 0)]);
        odd.task.outputs[0].shape = vec![4];
        assert!(refused(&odd).contains("output y has the shape [4]"));
        let mut backend = EmulatedBackend::new(&wanted(&[(1, 0)])).expect("a stand-in");
        let wrong = Tensor { name: "z".into(), ..batch(1) };
        assert!(matches!(backend.run(&[wrong]), Err(BackendError::Input(e)) if e.contains("the inputs are x")));
    }
}
