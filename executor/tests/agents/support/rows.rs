//! One agent with two pipelines for tests of neighbours.
//!
//! `rows` takes rows of any width and gives their sums. Its batch fails as a whole if it holds a negative number, as it
//! would with an index out of range. `words` gives texts back. A batch takes some milliseconds, so that requests meet in
//! batches.

use super::agents::Agent;
use super::control::{Control, TOKEN};
use super::toy;
use apportion_executor::backend::{Backend, BackendError, BackendLoader, Signature};
use apportion_executor::tensor::{Datatype, Tensor, TensorSignature};
use apportion_protocol::v1;
use std::path::Path;
use std::time::Duration;

/// Largest batch.
pub const BATCH: u32 = 8;
/// How long one takes.
const TAKES: Duration = Duration::from_millis(15);

struct Rows(Signature);

impl Backend for Rows {
    fn signature(&self) -> &Signature {
        &self.0
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        std::thread::sleep(TAKES);
        let input = &inputs[0];
        if input.datatype == Datatype::Bytes {
            return Ok(vec![Tensor { name: "y".into(), ..input.clone() }]);
        }
        let values: Vec<f32> = input.data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        if values.iter().any(|v| *v < 0.0) {
            return Err(BackendError::Run("an index is out of range".into()));
        }
        let sums = values.chunks(input.shape[1]).map(|row| row.iter().sum::<f32>());
        let data: Vec<u8> = sums.flat_map(f32::to_le_bytes).collect();
        Ok(vec![Tensor { name: "y".into(), datatype: Datatype::Fp32, shape: vec![input.rows()], data: data.into() }])
    }
}

fn load(file: &Path) -> Result<Box<dyn Backend>, BackendError> {
    let word = std::fs::read_to_string(file).unwrap_or_default();
    let datatype = if word == "words" { Datatype::Bytes } else { Datatype::Fp32 };
    let spec = TensorSignature { name: "x".into(), datatype, shape: vec![-1, -1] };
    Ok(Box::new(Rows(Signature { inputs: vec![spec], outputs: vec![] })))
}

/// The pipeline of this name as group `id`.
pub fn pipeline(id: u64, name: &str, datatype: &str, output: &[i64], latency: Duration) -> v1::PipelineTarget {
    let spec =
        |name: &str, shape: &[i64]| v1::TensorSpec { name: name.into(), datatype: datatype.into(), shape: shape.into() };
    let group = v1::GroupTarget {
        group: id,
        variant: name.into(),
        hardware: "cpu".into(),
        batch: BATCH,
        file_digest: toy::digest(name),
        service: vec![v1::ServicePoint { batch: 1, latency_ns: latency.as_nanos() as u64, ..Default::default() }],
        ..Default::default()
    };
    let task = v1::TaskTarget {
        name: name.into(),
        inputs: vec![spec("x", &[-1, -1])],
        outputs: vec![spec("y", output)],
        ..Default::default()
    };
    v1::PipelineTarget {
        name: name.into(),
        slo_ns: 30_000_000_000,
        tasks: vec![task],
        groups: vec![group],
        replicas: vec![v1::ReplicaTarget { replica: 100 * id, group: id, agent: 1, device: 0 }],
        tables: vec![v1::Table { from: None, to_task: 0, entries: vec![v1::TableEntry { group: id, fraction: 1.0 }] }],
        ..Default::default()
    }
}

/// A target with these pipelines, all at agent 1.
pub fn target(data_address: &str, pipelines: Vec<v1::PipelineTarget>) -> v1::Target {
    let agents = vec![v1::Peer { agent: 1, data_address: data_address.into(), ..Default::default() }];
    v1::Target { fence: Some(v1::Fence { incarnation: 1, generation: 1 }), agents, pipelines, ..Default::default() }
}

/// Starts it; the control plane goes with it.
pub async fn start(folder: &Path) -> (Control, Agent) {
    let control = Control::start(&["rows", "words"]).await;
    let agent = Agent::start_with("a1", &control.url, TOKEN, folder, BackendLoader::files(load));
    let pipelines = vec![pipeline(1, "rows", "FP32", &[-1], TAKES), pipeline(2, "words", "BYTES", &[-1, -1], TAKES)];
    control.send(target(&agent.data, pipelines));
    for pipeline in ["rows", "words"] {
        agent.ready(pipeline).await;
    }
    (control, agent)
}
