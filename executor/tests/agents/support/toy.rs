//! A backend whose "files" are a word: `split`, `sum` or `double`, and how many milliseconds a batch takes.

use apportion_executor::backend::{Backend, BackendError, Signature};
use apportion_executor::tensor::{Datatype, Tensor, TensorSignature};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::Duration;

/// The digest under which a word's file is found.
pub fn digest(word: &str) -> String {
    Sha256::digest(word.as_bytes()).iter().map(|b| format!("{b:02x}")).collect()
}

struct Toy {
    kind: String,
    takes: Duration,
    signature: Signature,
}

/// Loads a word like `sum` or `sum 5`.
pub fn load(file: &Path) -> Result<Box<dyn Backend>, BackendError> {
    let refuse = |detail: &str| BackendError::Load { file: file.display().to_string(), detail: detail.into() };
    let word = std::fs::read_to_string(file).map_err(|e| refuse(&e.to_string()))?;
    let (kind, takes) = word.split_once(' ').unwrap_or((&word, "0"));
    let takes = Duration::from_millis(takes.parse().map_err(|_| refuse("no number"))?);
    if !["split", "sum", "double"].contains(&kind) {
        return Err(refuse("no such word"));
    }
    let spec = TensorSignature { name: "x".into(), datatype: Datatype::Fp32, shape: vec![-1, 2] };
    let signature = Signature { inputs: vec![spec], outputs: vec![] };
    Ok(Box::new(Toy { kind: kind.to_string(), takes, signature }))
}

fn floats(name: &str, shape: Vec<usize>, values: &[f32]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Tensor { name: name.into(), datatype: Datatype::Fp32, shape, data: data.into() }
}

impl Backend for Toy {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        std::thread::sleep(self.takes);
        let number = |b: &[u8]| f32::from_le_bytes(b.try_into().expect("chunks of 4"));
        let values: Vec<f32> = inputs[0].data.chunks_exact(4).map(number).collect();
        let rows = values.chunks_exact(2);
        if self.kind != "split" {
            let factor = if self.kind == "double" { 2.0 } else { 1.0 };
            let sums: Vec<f32> = rows.map(|r| factor * (r[0] + r[1])).collect();
            return Ok(vec![floats("s", vec![sums.len()], &sums)]);
        }
        let (mut children, mut parents) = (Vec::new(), Vec::new());
        for (i, row) in rows.enumerate() {
            if row[0] < 0.0 {
                return Err(BackendError::Run("a negative number of children".into()));
            }
            for k in 0..row[0] as usize {
                children.extend([k as f32, row[1]]);
                parents.extend((i as i64).to_le_bytes());
            }
        }
        let count = parents.len() / 8;
        let parent = Tensor { name: "parent".into(), datatype: Datatype::Int64, shape: vec![count], data: parents.into() };
        Ok(vec![floats("y", vec![count, 2], &children), parent])
    }
}
