//! How does another server run a variant, for example Triton?
//!
//! The server speaks the Open Inference Protocol over HTTP. This agent queues and batches, and the server runs the
//! batches. A variant's name in the plan is its name at the server. Tensors travel as bytes if the server has the binary
//! tensor extension, else as JSON.

use super::batch::{check_inputs, check_tensor};
use super::{Backend, BackendError, Signature, Wanted};
use crate::causes::describe;
use crate::open_inference::{BODY_BYTES_MAX, numbers};
use apportion_node::tensor::{Datatype, Tensor, TensorSpec, elements};
use bytes::{Bytes, BytesMut};
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
    pub fn connect(url: &str, wanted: &Wanted) -> Result<Self, BackendError> {
        let server = url.trim_end_matches('/');
        let broken = |e: String| BackendError::Runtime(format!("{server}: {e}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| broken(e.to_string()))?;
        let client = reqwest::Client::builder().connect_timeout(CONNECT_MAX).timeout(ANSWER_MAX).tcp_nodelay(true);
        let client = client.build().map_err(|e| broken(describe(&e)))?;
        let signature = Signature { inputs: wanted.task.inputs.clone(), outputs: wanted.task.outputs.clone() };
        let url = format!("{server}/v2/models/{}", wanted.group.variant);
        let mut this = Self { runtime, client, url, signature, binary: false };
        let about = this.get(&format!("{server}/v2")).map_err(broken)?;
        let about: ServerMetadata = serde_json::from_slice(&about)
            .map_err(|e| broken(format!("GET /v2: {e}: expected a server of the Open Inference Protocol")))?;
        this.binary = about.extensions.iter().any(|e| e == BINARY);
        let refuse = |detail: String| BackendError::Load { file: this.url.clone(), detail };
        this.get(&format!("{}/ready", this.url)).map_err(|e| refuse(format!("it is not ready: {e}")))?;
        let metadata = this.get(&this.url).map_err(refuse)?;
        let metadata: Metadata = serde_json::from_slice(&metadata).map_err(|e| refuse(format!("its metadata: {e}")))?;
        compare("input", &this.signature.inputs, &metadata.inputs, true).map_err(refuse)?;
        compare("output", &this.signature.outputs, &metadata.outputs, false).map_err(refuse)?;
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

    fn get(&self, url: &str) -> Result<Bytes, String> {
        self.runtime.block_on(async { answer(self.client.get(url)).await.map(|(body, _)| body).map_err(|e| e.why) })
    }

    /// The body of a request and the length of its JSON.
    fn body(&self, inputs: &[Tensor]) -> Result<(Vec<u8>, usize), String> {
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
        let wanted = |s: &TensorSpec| json!({"name": s.name, "parameters": {"binary_data": self.binary}});
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
        check_inputs(&self.signature.inputs, inputs).map_err(BackendError::Input)?;
        let (body, length) = self.body(inputs).map_err(BackendError::Input)?;
        let url = format!("{}/infer", self.url);
        let mut request = self.client.post(&url).body(body);
        request = match self.binary {
            true => request.header(CONTENT_TYPE, "application/octet-stream").header(HEADER_LENGTH, length),
            false => request.header(CONTENT_TYPE, "application/json"),
        };
        let fail = |e: String| BackendError::Run(format!("{url}: {e}"));
        let unanswered = |e: Unanswered| match e.is_away {
            true => BackendError::Away(format!("{url}: {}", e.why)),
            false => fail(e.why),
        };
        let (body, length) = self.runtime.block_on(answer(request)).map_err(unanswered)?;
        outputs(&body, length.as_deref(), &self.signature.outputs).map_err(fail)
    }
}

/// Why there is no good answer.
struct Unanswered {
    why: String,
    /// Whether any other request would have fared alike.
    is_away: bool,
}

/// The body of a good answer and where its JSON ends, if it says so.
async fn answer(request: reqwest::RequestBuilder) -> Result<(Bytes, Option<String>), Unanswered> {
    let lost = |e: reqwest::Error| Unanswered { why: describe(&e), is_away: true };
    let mut response = request.send().await.map_err(lost)?;
    let status = response.status();
    let length = response.headers().get(HEADER_LENGTH).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(lost)? {
        body.extend_from_slice(&chunk);
        if body.len() > BODY_BYTES_MAX {
            let why = format!("its answer is too large: expected at most {BODY_BYTES_MAX} bytes");
            return Err(Unanswered { why, is_away: false });
        }
    }
    if status.is_success() {
        return Ok((body.freeze(), length));
    }
    let said = serde_json::from_slice::<Value>(&body).ok().and_then(|v| Some(v.get("error")?.as_str()?.to_owned()));
    let said = said.unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned());
    let why = format!("it answered {status}: {}", said.chars().take(ERROR_CHARS_MAX).collect::<String>());
    // It is overloaded, or something before it cannot reach it.
    Err(Unanswered { why, is_away: matches!(status.as_u16(), 429 | 502..=504) })
}

/// Whether the server's tensors are those of the plan; all of them, if each must be given.
fn compare(what: &str, planned: &[TensorSpec], there: &[Described], all: bool) -> Result<(), String> {
    for spec in planned {
        let Some(found) = there.iter().find(|d| d.name == spec.name) else {
            let names: Vec<&str> = there.iter().map(|d| d.name.as_str()).collect();
            return Err(format!("it has no {what} {}: it has {}", spec.name, names.join(", ")));
        };
        let (want, have) = (spec.datatype.name(), &found.datatype);
        if want != have {
            return Err(format!("its {what} {} is {have}: the plan has {want}", spec.name));
        }
        // The first dimension is the rows, whatever bound the server sets for them.
        let fits = |(a, b): (&i64, &i64)| a == b || *a == -1 || *b == -1;
        if spec.shape.len() != found.shape.len() || !spec.shape.iter().zip(&found.shape).skip(1).all(fits) {
            let (want, have) = (&spec.shape, &found.shape);
            return Err(format!("its {what} {} has the shape {have:?}: the plan has {want:?}", spec.name));
        }
    }
    match there.iter().find(|d| all && planned.iter().all(|s| s.name != d.name)) {
        Some(more) => Err(format!("it needs the {what} {}, which the plan does not have", more.name)),
        None => Ok(()),
    }
}

/// The outputs of an answer in the order of `specs`, checked against them.
fn outputs(body: &Bytes, length: Option<&str>, specs: &[TensorSpec]) -> Result<Vec<Tensor>, String> {
    let split = match length {
        None => body.len(),
        Some(text) => text.trim().parse().ok().filter(|n| *n <= body.len()).ok_or_else(|| {
            format!("{HEADER_LENGTH}: {text}: expected the length of the JSON, at most the body's {} bytes", body.len())
        })?,
    };
    let parsed: Answer<'_> = serde_json::from_slice(&body[..split]).map_err(|e| format!("its answer: {e}"))?;
    let mut tail = body.slice(split..);
    let mut made = Vec::with_capacity(parsed.outputs.len());
    for output in parsed.outputs {
        let name = output.name.clone();
        made.push(tensor(output, &mut tail).map_err(|e| format!("its output {name}: {e}"))?);
    }
    let find = |spec: &TensorSpec| {
        let at = made.iter().find(|t| t.name == spec.name);
        let tensor = at.ok_or_else(|| format!("its answer has no output {}", spec.name))?;
        check_tensor(spec, tensor).map_err(|e| format!("its output {} {e}", spec.name))?;
        Ok(tensor.clone())
    };
    specs.iter().map(find).collect()
}

fn tensor(output: Output<'_>, tail: &mut Bytes) -> Result<Tensor, String> {
    let Output { name, datatype, shape, parameters, data } = output;
    let datatype = Datatype::from_name(&datatype).ok_or_else(|| format!("{datatype} is no datatype"))?;
    let data = match (parameters.binary_data_size, data) {
        (Some(size), None) if size <= tail.len() => tail.split_to(size),
        (Some(size), None) => return Err(format!("binary_data_size is {size}: {} bytes are left", tail.len())),
        (None, Some(data)) => {
            let count = elements(&shape, datatype).ok_or_else(|| format!("shape {shape:?} is too large"))?;
            numbers::read(data.get(), datatype, count)?.into()
        }
        _ => return Err("expected either data or binary_data_size".into()),
    };
    Ok(Tensor { name, datatype, shape, data })
}

#[cfg(test)]
mod tests;
