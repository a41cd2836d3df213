//! What do the agent and the process of a stage say to each other? Lines of JSON; the tensors are in shared memory.

use super::error::StageError;
use crate::backend::Signature;
use crate::backend::batch::check_tensor;
use apportion_node::tensor::{Datatype, Tensor, TensorSignature};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Most bytes of a batch's inputs, and of its outputs.
pub(super) const STAGE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Longest message to the process: the pipe takes it while the process is busy.
const MESSAGE_BYTES_MAX: usize = 32 * 1024;
/// Tensors begin at multiples of this.
const ALIGNMENT: usize = 64;

/// One tensor in shared memory.
#[derive(Debug, Serialize, Deserialize)]
struct SharedTensor {
    name: String,
    datatype: String,
    shape: Vec<usize>,
    offset: usize,
    bytes: usize,
}

/// A batch for the process.
#[derive(Serialize)]
struct BatchMessage {
    batch: u64,
    tensors: Vec<SharedTensor>,
}

/// What the process says to a batch.
#[derive(Deserialize)]
struct BatchAnswer {
    batch: u64,
    #[serde(default)]
    tensors: Vec<SharedTensor>,
    #[serde(default)]
    error: Option<String>,
}

/// A tensor as the stage declares it.
#[derive(Deserialize)]
struct DeclaredTensor {
    name: String,
    datatype: String,
    shape: Vec<i64>,
}

/// What the process says when it has started.
#[derive(Deserialize)]
struct Greeting {
    #[serde(default)]
    inputs: Vec<DeclaredTensor>,
    #[serde(default)]
    outputs: Vec<DeclaredTensor>,
    #[serde(default)]
    error: Option<String>,
}

fn read<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T, StageError> {
    serde_json::from_slice(line).map_err(|e| StageError::Answer(format!("{} bytes that are no message: {e}", line.len())))
}

fn signature(declared: DeclaredTensor) -> Result<TensorSignature, StageError> {
    const EXPECTED: &str = "a datatype of the Open Inference Protocol, and a shape with the rows first, as -1";
    let DeclaredTensor { name, datatype, shape } = declared;
    let known = Datatype::from_name(&datatype).filter(|_| shape.first() == Some(&-1));
    match known.filter(|_| shape.iter().all(|size| *size >= -1)) {
        Some(datatype) => Ok(TensorSignature { name, datatype, shape }),
        None => Err(StageError::Declared { name, found: format!("{datatype} {shape:?}"), expected: EXPECTED }),
    }
}

/// The tensors that the stage declares in its first message.
pub(super) fn read_greeting(line: &[u8]) -> Result<Signature, StageError> {
    let Greeting { inputs, outputs, error } = read(line)?;
    if let Some(error) = error {
        return Err(StageError::Raised(error));
    }
    let all = |list: Vec<DeclaredTensor>| list.into_iter().map(signature).collect::<Result<Vec<_>, _>>();
    Ok(Signature { inputs: all(inputs)?, outputs: all(outputs)? })
}

/// Puts a batch into shared memory. The message says where its tensors are.
pub(super) fn write_batch(batch: u64, inputs: &[Tensor], memory: &File) -> Result<Vec<u8>, StageError> {
    let found: usize = inputs.iter().map(|tensor| tensor.data.len().next_multiple_of(ALIGNMENT)).sum();
    if found > STAGE_BYTES_MAX {
        return Err(StageError::Size { what: "inputs", found, most: STAGE_BYTES_MAX });
    }
    let (mut tensors, mut offset) = (Vec::with_capacity(inputs.len()), 0);
    for tensor in inputs {
        memory.write_all_at(&tensor.data, offset as u64).map_err(StageError::Memory)?;
        tensors.push(SharedTensor {
            name: tensor.name.clone(),
            datatype: tensor.datatype.name().to_owned(),
            shape: tensor.shape.clone(),
            offset,
            bytes: tensor.data.len(),
        });
        offset += tensor.data.len().next_multiple_of(ALIGNMENT);
    }
    let mut message = serde_json::to_vec(&BatchMessage { batch, tensors }).expect("names and numbers are JSON");
    message.push(b'\n');
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(StageError::Size { what: "a message", found: message.len(), most: MESSAGE_BYTES_MAX });
    }
    Ok(message)
}

/// The outputs of a batch from shared memory, in the order of `specs`.
pub(super) fn read_answer(
    line: &[u8],
    batch: u64,
    specs: &[TensorSignature],
    memory: &File,
) -> Result<Vec<Tensor>, StageError> {
    let BatchAnswer { batch: answered, tensors, error } = read(line)?;
    if answered != batch {
        return Err(StageError::Answer(format!("batch {answered}, where {batch} was asked")));
    }
    if let Some(error) = error {
        return Err(StageError::Raised(error));
    }
    let sizes = tensors.iter().map(|tensor| tensor.bytes);
    let found = sizes.fold(0, usize::saturating_add);
    if found > STAGE_BYTES_MAX {
        return Err(StageError::Size { what: "outputs", found, most: STAGE_BYTES_MAX });
    }
    let output = |spec: &TensorSignature| {
        let missing = || StageError::Answer(format!("no output {}", spec.name));
        let shared = tensors.iter().find(|tensor| tensor.name == spec.name).ok_or_else(missing)?;
        let unknown = || StageError::Answer(format!("the datatype {}", shared.datatype));
        let datatype = Datatype::from_name(&shared.datatype).ok_or_else(unknown)?;
        let mut data = vec![0; shared.bytes];
        memory.read_exact_at(&mut data, shared.offset as u64).map_err(StageError::Memory)?;
        let made = Tensor { name: spec.name.clone(), datatype, shape: shared.shape.clone(), data: data.into() };
        check_tensor(spec, &made).map_err(|mismatch| StageError::Output { name: spec.name.clone(), mismatch })?;
        Ok(made)
    };
    specs.iter().map(output).collect()
}
