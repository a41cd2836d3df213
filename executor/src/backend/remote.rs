//! How does another server run a variant, for example Triton?
//!
//! The server speaks the Open Inference Protocol over HTTP. This agent queues and batches, and the server runs the
//! batches. A variant's name in the plan is its name at the server. Tensors travel as bytes if the server has the binary
//! tensor extension, else as JSON.

mod connection;
mod error;
mod find;
mod metadata;
mod statistics;

pub use error::{RemoteVariantError, SignatureRefusal};
pub use statistics::RemoteStatistics;

use super::batch::{check_inputs, check_tensor};
use super::error::BatchError;
use super::{Backend, BackendError, ReplicaVariant, Signature};
use crate::open_inference::error::WriteError;
use crate::open_inference::numbers;
use apportion_node::tensor::{Datatype, Tensor, TensorSignature, elements};
use bytes::Bytes;
use connection::{GoodAnswer, HEADER_LENGTH, RequestBody, ServerConnection};
use error::{AnswerError, AnswerFailure, MetadataError, RemoteOutputError, TensorDirection};
use find::FoundVariant;
use metadata::{Described, Metadata, ServerMetadata};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The protocol's name of the extension for tensors as bytes.
const BINARY: &str = "binary_tensor_data";

/// A variant on another server.
pub struct RemoteBackend {
    connection: ServerConnection,
    /// Path of the variant there, without an end.
    path: String,
    signature: Signature,
    binary: bool,
    /// Most rows of a batch, if the server bounds them.
    batch_max: Option<u32>,
    has_statistics: bool,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    outputs: Vec<Output<'a>>,
}

#[derive(Deserialize)]
struct Output<'a> {
    name: String,
    datatype: String,
    shape: Vec<usize>,
    #[serde(default)]
    parameters: Parameters,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Parameters {
    #[serde(default)]
    binary_data_size: Option<usize>,
}

impl RemoteBackend {
    /// Finds the wanted variant on the server at `url` (`http://host:port`).
    ///
    /// # Errors
    /// [`BackendError::Runtime`] if there is no such server, [`BackendError::Load`] if it does not have the variant ready
    /// or its tensors are not those of the plan.
    pub fn connect(url: &str, wanted: &ReplicaVariant) -> Result<Self, BackendError> {
        let server = url.trim_end_matches('/');
        let broken = |e: String| BackendError::Runtime(format!("{server}: {e}"));
        let connection = ServerConnection::open(url).map_err(|e| broken(e.to_string()))?;
        let signature = Signature { inputs: wanted.task.inputs.clone(), outputs: wanted.task.outputs.clone() };
        let path = format!("/v2/models/{}", wanted.group.variant);
        let about = connection.get("/v2").map_err(|e| broken(e.to_string()))?;
        let about: ServerMetadata = serde_json::from_slice(&about)
            .map_err(|e| broken(format!("GET /v2: {e}: expected a server of the Open Inference Protocol")))?;
        let refuse = |detail: String| BackendError::Load { file: connection.url(&path), detail };
        connection.get(&format!("{path}/ready")).map_err(|e| refuse(format!("it is not ready: {e}")))?;
        let metadata = connection.get(&path).map_err(|e| refuse(e.to_string()))?;
        let metadata: Metadata = serde_json::from_slice(&metadata).map_err(|e| refuse(format!("its metadata: {e}")))?;
        let differs = |e: MetadataError| refuse(e.to_string());
        compare(TensorDirection::Input, &signature.inputs, &metadata.inputs).map_err(differs)?;
        compare(TensorDirection::Output, &signature.outputs, &metadata.outputs).map_err(differs)?;
        let binary = about.has(BINARY);
        let mut specs = signature.inputs.iter().chain(&signature.outputs);
        if let Some(s) = specs.find(|s| !binary && !numbers::in_json(s.datatype)) {
            let datatype = s.datatype.name();
            return Err(refuse(format!(
                "{} is {datatype}, which has no form in JSON, and the server has no {BINARY}",
                s.name
            )));
        }
        Ok(Self { connection, path, signature, binary, batch_max: None, has_statistics: false })
    }

    /// Finds a variant by its name on the server at `url` (`http://host:port`), and takes its tensors from the server.
    ///
    /// # Errors
    /// As [`RemoteVariantError`] lists.
    pub fn find(url: &str, variant: &str) -> Result<Self, RemoteVariantError> {
        let FoundVariant { connection, path, about, signature, batch_max } = FoundVariant::find(url, variant)?;
        let (binary, has_statistics) = (about.has(BINARY), about.has("statistics"));
        Ok(Self { connection, path, signature, binary, batch_max, has_statistics })
    }

    /// Most rows of a batch. `None` if the server does not bound them, or does not say.
    #[must_use]
    pub const fn batch_max(&self) -> Option<u32> {
        self.batch_max
    }

    /// What the server has counted of the variant so far. `None` if it does not count, or does not tell everybody, as
    /// pytriton's server does not.
    ///
    /// # Errors
    /// [`BackendError::Run`] if the server does not answer, or with something else.
    pub fn statistics(&self) -> Result<Option<RemoteStatistics>, BackendError> {
        if !self.has_statistics {
            return Ok(None);
        }
        let path = format!("{}/stats", self.path);
        let failed = |why: String| BackendError::Run(format!("{}: {why}", self.connection.url(&path)));
        let body = match self.connection.get(&path) {
            Err(AnswerFailure::Status { status, .. }) if status.is_client_error() => return Ok(None),
            answer => answer.map_err(|e| failed(e.to_string()))?,
        };
        RemoteStatistics::read(&body).map(Some).map_err(|e| failed(e.to_string()))
    }

    /// The body of a request with this batch.
    fn body(&self, inputs: &[Tensor]) -> Result<RequestBody, WriteError> {
        let mut body = b"{\"inputs\":[".to_vec();
        for (i, tensor) in inputs.iter().enumerate() {
            let mut about = json!({"name": tensor.name, "datatype": tensor.datatype.name(), "shape": tensor.shape});
            if self.binary {
                about["parameters"] = json!({"binary_data_size": tensor.data.len()});
            }
            if i > 0 {
                body.push(b',');
            }
            body.extend_from_slice(about.to_string().as_bytes());
            if !self.binary {
                body.pop(); // its last brace: the data go before it
                body.extend_from_slice(b",\"data\":");
                numbers::write(tensor, &mut body)?;
                body.push(b'}');
            }
        }
        let wanted = |s: &TensorSignature| json!({"name": s.name, "parameters": {"binary_data": self.binary}});
        let outputs: Value = self.signature.outputs.iter().map(wanted).collect();
        body.extend_from_slice(format!("],\"outputs\":{outputs}}}").as_bytes());
        if !self.binary {
            return Ok(RequestBody::Json(body));
        }
        let json_length = body.len();
        inputs.iter().for_each(|t| body.extend_from_slice(&t.data));
        Ok(RequestBody::Binary { body, json_length })
    }
}

impl Backend for RemoteBackend {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        check_inputs(&self.signature.inputs, inputs)?;
        let body = self.body(inputs).map_err(BatchError::Json)?;
        let path = format!("{}/infer", self.path);
        let url = self.connection.url(&path);
        let unanswered = |e: AnswerFailure| match e.is_away() {
            true => BackendError::Away(format!("{url}: {e}")),
            false => BackendError::Run(format!("{url}: {e}")),
        };
        let GoodAnswer { body, json_length } = self.connection.post(&path, body).map_err(unanswered)?;
        let made = outputs(&body, json_length.as_deref(), &self.signature.outputs);
        made.map_err(|e| BackendError::Run(format!("{url}: {e}")))
    }
}

/// Whether the server's tensors are those of the plan. The server may have more outputs than the plan, but no more
/// inputs, because each of them must be given.
fn compare(side: TensorDirection, planned: &[TensorSignature], there: &[Described]) -> Result<(), MetadataError> {
    for spec in planned {
        let name = spec.name.clone();
        let Some(found) = there.iter().find(|d| d.name == spec.name) else {
            return Err(MetadataError::Missing { side, name, found: there.iter().map(|d| d.name.clone()).collect() });
        };
        if spec.datatype.name() != found.datatype {
            let (found, planned) = (found.datatype.clone(), spec.datatype.name());
            return Err(MetadataError::Datatype { side, name, found, planned });
        }
        // The first dimension is the rows, whatever bound the server sets for them.
        let fits = |(a, b): (&i64, &i64)| a == b || *a == -1 || *b == -1;
        if spec.shape.len() != found.shape.len() || !spec.shape.iter().zip(&found.shape).skip(1).all(fits) {
            return Err(MetadataError::Shape { side, name, found: found.shape.clone(), planned: spec.shape.clone() });
        }
    }
    match there.iter().find(|d| side == TensorDirection::Input && planned.iter().all(|s| s.name != d.name)) {
        Some(more) => Err(MetadataError::Extra { side, name: more.name.clone() }),
        None => Ok(()),
    }
}

/// The outputs of an answer in the order of `specs`, checked against them.
fn outputs(body: &Bytes, length: Option<&str>, specs: &[TensorSignature]) -> Result<Vec<Tensor>, AnswerError> {
    let body_bytes = body.len();
    let split = match length {
        None => body_bytes,
        Some(text) => text.trim().parse().ok().filter(|n| *n <= body_bytes).ok_or_else(|| AnswerError::Length {
            header: HEADER_LENGTH,
            found: text.to_owned(),
            body_bytes,
        })?,
    };
    let parsed: Answer<'_> = serde_json::from_slice(&body[..split]).map_err(AnswerError::Json)?;
    let mut tail = body.slice(split..);
    let mut made = Vec::with_capacity(parsed.outputs.len());
    for output in parsed.outputs {
        let name = output.name.clone();
        made.push(tensor(output, &mut tail).map_err(|error| AnswerError::Output { name, error })?);
    }
    let find = |spec: &TensorSignature| {
        let at = made.iter().find(|t| t.name == spec.name);
        let tensor = at.ok_or_else(|| AnswerError::Missing(spec.name.clone()))?;
        let differs = |mismatch| AnswerError::Mismatch { name: spec.name.clone(), mismatch };
        check_tensor(spec, tensor).map_err(differs)?;
        Ok(tensor.clone())
    };
    specs.iter().map(find).collect()
}

fn tensor(output: Output<'_>, tail: &mut Bytes) -> Result<Tensor, RemoteOutputError> {
    let Output { name, datatype, shape, parameters, data } = output;
    let datatype = Datatype::from_name(&datatype).ok_or(RemoteOutputError::Datatype(datatype))?;
    let data = match (parameters.binary_data_size, data) {
        (Some(size), None) if size <= tail.len() => tail.split_to(size),
        (Some(size), None) => return Err(RemoteOutputError::Short { size, left: tail.len() }),
        (None, Some(data)) => {
            let count = elements(&shape, datatype).ok_or_else(|| RemoteOutputError::TooLarge(shape.clone()))?;
            numbers::read(data.get(), datatype, count)?.into()
        }
        _ => return Err(RemoteOutputError::Source),
    };
    Ok(Tensor { name, datatype, shape, data })
}

#[cfg(test)]
mod tests;
