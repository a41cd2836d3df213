//! How does an agent play a profile back?
//!
//! Batches make zeros of the right shape. The slot holds the device for as long as the plan says. This serves capacity
//! tests on machines without the devices, and measurements of everything but the variants.

use super::batch::check_inputs;
use super::{Backend, BackendError, ReplicaVariant, Signature};
use apportion_node::node::split::{CHILD, PARENT};
use apportion_node::tensor::{Tensor, TensorSignature};
use apportion_serving::mix::SplitMix;

/// Size of a dimension that the specification leaves open.
const OPEN_DIMENSION: usize = 1;

/// Most children that one row makes at one task.
const CHILDREN_MAX: u32 = 65_536;

/// A stand-in for a variant.
pub struct EmulatedBackend {
    signature: Signature,
    /// How many children each row makes, if not one of each.
    draws: Option<Draws>,
}

/// Draws of children as the estimator makes them: the child first where a row goes to one of them, then how many.
struct Draws {
    /// Weight of each child under `one_of`.
    one_of: Option<Vec<f64>>,
    /// By child, numbers with their probabilities.
    counts: Vec<Vec<(u32, f64)>>,
    stream: SplitMix,
}

/// How many backends drew before, so that two of the same variant do not draw alike.
static DRAWING: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

impl Draws {
    fn of(wanted: &ReplicaVariant) -> Option<Self> {
        let of_child = |to: usize| wanted.group.fanout.iter().find(|f| f.to == to).map(|f| f.counts.clone());
        let counts = wanted.task.children.iter().map(|edge| of_child(edge.to).unwrap_or_else(|| vec![(1, 1.0)]));
        let counts: Vec<Vec<(u32, f64)>> = counts.collect();
        let ratios = || wanted.task.children.iter().map(|edge| edge.ratio).collect();
        let one_of = wanted.task.one_of.then(ratios);
        let is_plain = one_of.is_none() && counts.iter().all(|c| c.as_slice() == [(1, 1.0)]);
        let seed = DRAWING.fetch_add(1, std::sync::atomic::Ordering::Relaxed).wrapping_mul(0xd134_2543_de82_ef95);
        (!is_plain && !counts.is_empty()).then_some(Self { one_of, counts, stream: SplitMix(seed) })
    }

    /// The position among things with these weights.
    fn draw(stream: &mut SplitMix, weights: impl Iterator<Item = f64> + Clone) -> usize {
        let mut left = stream.unit() * weights.clone().sum::<f64>();
        let at = weights.clone().position(|weight| {
            left -= weight;
            left < 0.0
        });
        at.unwrap_or_else(|| weights.count().saturating_sub(1))
    }

    /// For each row that is made: the row of the batch, and the child.
    fn rows(&mut self, rows: usize) -> (Vec<i64>, Vec<i64>) {
        let (mut parents, mut children) = (Vec::new(), Vec::new());
        for row in 0..rows {
            let chosen = self.one_of.as_ref().map(|ratios| Self::draw(&mut self.stream, ratios.iter().copied()));
            for child in chosen.map_or(0..self.counts.len(), |at| at..at + 1) {
                let counts = &self.counts[child];
                let at = Self::draw(&mut self.stream, counts.iter().map(|(_, probability)| *probability));
                let made = counts.get(at).map_or(0, |(made, _)| (*made).min(CHILDREN_MAX)) as usize;
                parents.extend(std::iter::repeat_n(row as i64, made));
                children.extend(std::iter::repeat_n(child as i64, made));
            }
        }
        (parents, children)
    }
}

impl EmulatedBackend {
    /// A stand-in for the wanted variant, with the tensors that the plan gives its task.
    ///
    /// # Errors
    /// [`BackendError::Load`] if the plan has no latencies for it or says not enough about its tensors.
    pub fn new(wanted: &ReplicaVariant) -> Result<Self, BackendError> {
        let fail = |detail: &str| Err(BackendError::Load { file: "its profile".to_owned(), detail: detail.to_owned() });
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
        Ok(Self { signature, draws: Draws::of(wanted) })
    }
}

impl Backend for EmulatedBackend {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Each row makes one row of each output, or as many for each child as the profile says. The outputs `parent` and
    /// `child` name the row and the child of each.
    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        check_inputs(&self.signature.inputs, inputs)?;
        let rows = inputs.first().map_or(0, Tensor::rows);
        let outputs = match &mut self.draws {
            None => self.signature.outputs.iter().map(|spec| output(spec, rows)).collect(),
            Some(draws) => {
                let (parents, children) = draws.rows(rows);
                let named = |spec: &&TensorSignature| spec.name != PARENT && spec.name != CHILD;
                let made = self.signature.outputs.iter().filter(named).map(|spec| output(spec, parents.len()));
                made.chain([whole_numbers(PARENT, &parents), whole_numbers(CHILD, &children)]).collect()
            }
        };
        Ok(outputs)
    }
}

fn whole_numbers(name: &str, values: &[i64]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Tensor {
        name: name.into(),
        datatype: apportion_node::tensor::Datatype::Int64,
        shape: vec![values.len()],
        data: data.into(),
    }
}

fn output(spec: &TensorSignature, rows: usize) -> Tensor {
    if spec.name == PARENT && spec.datatype == apportion_node::tensor::Datatype::Int64 {
        return whole_numbers(PARENT, &(0..rows as i64).collect::<Vec<_>>());
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
    use crate::backend::BackendLoader;
    use crate::causes::describe;
    use apportion_node::layout::{LayoutFanout, LayoutGroup, LayoutPoint, LayoutTask};
    use apportion_node::tensor::Datatype;

    fn spec(name: &str, datatype: Datatype, shape: &[i64]) -> TensorSignature {
        TensorSignature { name: name.into(), datatype, shape: shape.into() }
    }

    fn wanted(service: &[(u32, u64)]) -> ReplicaVariant {
        let outputs = vec![
            spec("y", Datatype::Fp16, &[-1, 3, -1]),
            spec("text", Datatype::Bytes, &[-1]),
            spec(PARENT, Datatype::Int64, &[-1]),
        ];
        let inputs = vec![spec("x", Datatype::Fp32, &[-1, 2])];
        let task = LayoutTask {
            name: "t".into(),
            inputs,
            outputs,
            children: Vec::new(),
            delays: Vec::new(),
            one_of: false,
            is_continuous: false,
            glue: Default::default(),
        };
        let group = LayoutGroup {
            task: 0,
            variant: "v".into(),
            hardware: "cpu".into(),
            batch: 8,
            accuracy: 1.0,
            digest: String::new(),
            runtime: Default::default(),
            execution: Default::default(),
            service: service.iter().map(|&(batch, latency_ns)| LayoutPoint { batch, latency_ns, p99_ns: 0 }).collect(),
            share: 1.0,
            interference: 1.0,
            memory_mib: None,
            price_per_hour: 0.0,
            fanout: Vec::new(),
            is_offered: false,
            load_ns: 0,
            slot_p99_ns: 0,
        };
        ReplicaVariant { file: None, task, group, device: 0 }
    }

    fn batch(rows: usize) -> Tensor {
        Tensor { name: "x".into(), datatype: Datatype::Fp32, shape: vec![rows, 2], data: vec![0; rows * 8].into() }
    }

    #[test]
    fn emulated_outputs_have_the_planned_shapes() {
        let mut backend = EmulatedBackend::new(&wanted(&[(1, 0)])).expect("a stand-in");
        let outputs = backend.run(&[batch(3)]).expect("a run");
        let shapes: Vec<_> = outputs.iter().map(|t| t.shape.clone()).collect();
        assert_eq!(shapes, [vec![3, 3, 1], vec![3], vec![3]]);
        for (tensor, spec) in outputs.iter().zip(&backend.signature.outputs) {
            super::super::batch::check_tensor(spec, tensor).expect("it is what the plan says");
        }
        assert_eq!(apportion_node::tensor::int64s(&outputs[2]), Some(vec![0, 1, 2]));
    }

    #[test]
    fn children_are_drawn_as_the_profile_has_them() {
        let edge = |to: usize, ratio| apportion_node::layout::LayoutEdge { to, map: Vec::new(), ratio };
        let made = |one_of: bool| {
            let mut wanted = wanted(&[(1, 0)]);
            wanted.task.children = vec![edge(1, 0.25), edge(2, 0.75)];
            wanted.task.one_of = one_of;
            wanted.group.fanout = vec![
                LayoutFanout { to: 1, counts: vec![(0, 0.5), (4, 0.5)] },
                LayoutFanout { to: 2, counts: vec![(1, 1.0)] },
            ];
            let mut backend = EmulatedBackend::new(&wanted).expect("a stand-in");
            let outputs = backend.run(&[batch(4_000)]).expect("a run");
            let of = |name: &str| {
                outputs.iter().find(|t| t.name == name).and_then(apportion_node::tensor::int64s).expect("there")
            };
            let (parents, children) = (of(PARENT), of(CHILD));
            assert!(parents.is_sorted() && outputs.iter().all(|t| t.rows() == parents.len()));
            [0, 1].map(|child| children.iter().filter(|c| **c == child).count() as f64 / 4_000.0)
        };
        let near = |seen: [f64; 2], expected: [f64; 2]| {
            assert!(seen.iter().zip(expected).all(|(s, e)| (s - e).abs() < 0.15), "{seen:?}: expected {expected:?}");
        };
        near(made(false), [2.0, 1.0]);
        near(made(true), [0.5, 0.75]);
    }

    #[test]
    fn a_row_that_no_message_carries_is_refused() {
        for size in [i64::MAX, 1 << 40, 64 * 1024 * 1024 + 1] {
            let mut wanted = wanted(&[(1, 0)]);
            wanted.task.inputs[0].shape = vec![-1, size];
            let refused = describe(&BackendLoader::Emulated.load(&wanted).err().expect("too large"));
            assert!(refused.contains("x: a row of its shape"), "{refused}");
        }
    }

    #[test]
    fn what_cannot_be_played_back_is_refused_and_says_why() {
        let refused = |w: &ReplicaVariant| EmulatedBackend::new(w).err().expect("a refusal").to_string();
        assert!(refused(&wanted(&[])).contains("the plan has no latencies"));
        let mut odd = wanted(&[(1, 0)]);
        odd.task.outputs[0].shape = vec![4];
        assert!(refused(&odd).contains("output y has the shape [4]"));
        let mut backend = EmulatedBackend::new(&wanted(&[(1, 0)])).expect("a stand-in");
        let wrong = Tensor { name: "z".into(), ..batch(1) };
        assert!(matches!(backend.run(&[wrong]), Err(BackendError::Input(e)) if e.to_string().contains("the inputs are x")));
    }
}
