//! How does another server run a variant, for example Triton?
//!
//! The server speaks the Open Inference Protocol over HTTP. This agent queues and batches, and the server runs the
//! batches. A variant's name in the plan is its name at the server. Tensors travel as bytes if the server has the binary
//! tensor extension, else as JSON.

mod error;

use super::batch::{check_inputs, check_tensor};
use super::error::BatchError;
use super::{Backend, BackendError, ReplicaVariant, Signature};
use crate::causes::describe;
use crate::open_inference::error::WriteError;
use crate::open_inference::{BODY_BYTES_MAX, numbers};
use apportion_node::tensor::{Datatype, Tensor, TensorSignature, elements};
use bytes::{Bytes, BytesMut};
use error::{AnswerError, AnswerFailure, MetadataError, RemoteOutputError, TensorDirection};
use reqwest::header::CONTENT_TYPE;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::time::Duration;

/// The header that says how long the JSON is when bytes follow it.
const HEADER_LENGTH: &str = "Inference-Header-Content-Length";
/// The protocol's name of the extension.
const BINARY: &str = "binary_tensor_data";
/// How long the server may take to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long it may take for one answer: a batch that takes longer has failed.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Characters of a server's error that are passed on.
const ERROR_CHARS_MAX: usize = 500;

/// A variant on another server.
pub struct RemoteBackend {
    runtime: tokio::runtime::Runtime,
    client: reqwest::Client,
    /// Of the variant there, without an end.
    url: String,
    signature: Signature,
    binary: bool,
}

#[derive(Deserialize)]
struct ServerMetadata {
    #[serde(default)]
    extensions: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    inputs: Vec<Described>,
    outputs: Vec<Described>,
}

#[derive(Deserialize)]
struct Described {
    name: String,
    datatype: String,
    shape: Vec<i64>,
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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| broken(e.to_string()))?;
        let client = reqwest::Client::builder().connect_timeout(CONNECT_MAX).timeout(ANSWER_MAX).tcp_nodelay(true);
        let client = client.build().map_err(|e| broken(describe(&e)))?;
        let signature = Signature { inputs: wanted.task.inputs.clone(), outputs: wanted.task.outputs.clone() };
        let url = format!("{server}/v2/models/{}", wanted.group.variant);
        let mut this = Self { runtime, client, url, signature, binary: false };
        let about = this.get(&format!("{server}/v2")).map_err(|e| broken(e.to_string()))?;
        let about: ServerMetadata = serde_json::from_slice(&about)
            .map_err(|e| broken(format!("GET /v2: {e}: expected a server of the Open Inference Protocol")))?;
        this.binary = about.extensions.iter().any(|e| e == BINARY);
        let refuse = |detail: String| BackendError::Load { file: this.url.clone(), detail };
        this.get(&format!("{}/ready", this.url)).map_err(|e| refuse(format!("it is not ready: {e}")))?;
        let metadata = this.get(&this.url).map_err(|e| refuse(e.to_string()))?;
        let metadata: Metadata = serde_json::from_slice(&metadata).map_err(|e| refuse(format!("its metadata: {e}")))?;
        let differs = |e: MetadataError| refuse(e.to_string());
        compare(TensorDirection::Input, &this.signature.inputs, &metadata.inputs).map_err(differs)?;
        compare(TensorDirection::Output, &this.signature.outputs, &metadata.outputs).map_err(differs)?;
        let mut specs = this.signature.inputs.iter().chain(&this.signature.outputs);
        if let Some(s) = specs.find(|s| !this.binary && !numbers::in_json(s.datatype)) {
            let datatype = s.datatype.name();
            return Err(refuse(format!(
                "{} is {datatype}, which has no form in JSON, and the server has no {BINARY}",
                s.name
            )));
        }
        Ok(this)
    }

    fn get(&self, url: &str) -> Result<Bytes, AnswerFailure> {
        self.runtime.block_on(async { answer(self.client.get(url)).await.map(|(body, _)| body) })
    }

    /// The body of a request and the length of its JSON.
    fn body(&self, inputs: &[Tensor]) -> Result<(Vec<u8>, usize), WriteError> {
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
        let length = body.len();
        if self.binary {
            inputs.iter().for_each(|t| body.extend_from_slice(&t.data));
        }
        Ok((body, length))
    }
}

impl Backend for RemoteBackend {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        check_inputs(&self.signature.inputs, inputs)?;
        let (body, length) = self.body(inputs).map_err(BatchError::Json)?;
        let url = format!("{}/infer", self.url);
        let mut request = self.client.post(&url).body(body);
        request = match self.binary {
            true => request.header(CONTENT_TYPE, "application/octet-stream").header(HEADER_LENGTH, length),
            false => request.header(CONTENT_TYPE, "application/json"),
        };
        let unanswered = |e: AnswerFailure| match e.is_away() {
            true => BackendError::Away(format!("{url}: {e}")),
            false => BackendError::Run(format!("{url}: {e}")),
        };
        let (body, length) = self.runtime.block_on(answer(request)).map_err(unanswered)?;
        let made = outputs(&body, length.as_deref(), &self.signature.outputs);
        made.map_err(|e| BackendError::Run(format!("{url}: {e}")))
    }
}

/// The body of a good answer and where its JSON ends, if it says so.
async fn answer(request: reqwest::RequestBuilder) -> Result<(Bytes, Option<String>), AnswerFailure> {
    let mut response = request.send().await.map_err(AnswerFailure::Lost)?;
    let status = response.status();
    let length = response.headers().get(HEADER_LENGTH).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(AnswerFailure::Lost)? {
        body.extend_from_slice(&chunk);
        if body.len() > BODY_BYTES_MAX {
            return Err(AnswerFailure::TooLarge { bytes_max: BODY_BYTES_MAX });
        }
    }
    if status.is_success() {
        return Ok((body.freeze(), length));
    }
    let said = serde_json::from_slice::<Value>(&body).ok().and_then(|v| Some(v.get("error")?.as_str()?.to_owned()));
    let said = said.unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned());
    Err(AnswerFailure::Status { status, said: said.chars().take(ERROR_CHARS_MAX).collect() })
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
