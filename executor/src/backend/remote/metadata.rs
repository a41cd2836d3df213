//! What does another server say about itself and its variants?

use super::error::SignatureRefusal;
use crate::backend::interface::Signature;
use apportion_node::tensor::{Datatype, TensorSignature};
use serde::Deserialize;

/// The answer at `/v2`.
#[derive(Deserialize)]
pub(super) struct ServerMetadata {
    #[serde(default)]
    pub extensions: Vec<String>,
}

impl ServerMetadata {
    /// Whether the server has this extension of the protocol.
    pub(super) fn has(&self, extension: &str) -> bool {
        self.extensions.iter().any(|e| e == extension)
    }
}

/// The answer at `/v2/models/NAME`.
#[derive(Deserialize)]
pub(super) struct Metadata {
    pub inputs: Vec<Described>,
    pub outputs: Vec<Described>,
}

/// One tensor.
#[derive(Deserialize)]
pub(super) struct Described {
    pub name: String,
    pub datatype: String,
    pub shape: Vec<i64>,
}

impl Metadata {
    /// The tensors, where each of them has rows.
    pub(super) fn signature(&self) -> Result<Signature, SignatureRefusal> {
        let all = |list: &[Described]| list.iter().map(Described::tensor).collect::<Result<Vec<_>, _>>();
        let (inputs, outputs) = (all(&self.inputs)?, all(&self.outputs)?);
        match inputs.is_empty() || outputs.is_empty() {
            true => Err(SignatureRefusal::Empty),
            false => Ok(Signature { inputs, outputs }),
        }
    }
}

impl Described {
    fn tensor(&self) -> Result<TensorSignature, SignatureRefusal> {
        let name = self.name.clone();
        let Some(datatype) = Datatype::from_name(&self.datatype) else {
            return Err(SignatureRefusal::Datatype { name, found: self.datatype.clone() });
        };
        if self.shape.first() != Some(&-1) {
            return Err(SignatureRefusal::FixedRows { name, found: self.shape.clone() });
        }
        Ok(TensorSignature { name, datatype, shape: self.shape.clone() })
    }
}

/// The part of the answer at `/v2/models/NAME/config` that bounds batches.
#[derive(Default, Deserialize)]
pub(super) struct Configuration {
    /// 0: the rows are a dimension of the tensors, and the server knows no bound.
    #[serde(default)]
    pub max_batch_size: u32,
}

/// One row of the answer at `/v2/repository/index`.
#[derive(Deserialize)]
pub(super) struct IndexEntry {
    pub name: String,
    #[serde(default)]
    pub state: String,
    #[serde(default)]
    pub reason: String,
}
