//! The digits example on one agent with the real runtime: a canvas in, the digits on it out.

use apportion_executor::agent::{self, AgentCommand, AgentOptions, ClientPresence, ClientRequest};
use apportion_executor::backend::{Backend, BackendLoader, ExecutionSettings, OnnxBackend, Provider, find_library};
use apportion_executor::files::{Files, Source};
use apportion_executor::node::request::{RequestAnswer, RequestTerms};
use apportion_executor::tensor::{Datatype, Tensor, TensorSignature};
use apportion_needs::{Need, need};
use apportion_protocol::v1;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// One variant of each task on agent 1; their files go to `cache`.
fn target(library: &Path, models: &Path, cache: &Path) -> v1::Target {
    let (mut tasks, mut groups, mut replicas) = (Vec::new(), Vec::new(), Vec::new());
    for (i, task) in ["find", "read"].iter().enumerate() {
        let file = models.join(format!("{task}-m.onnx"));
        let bytes = std::fs::read(&file).expect("the example's file");
        let digest: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
        std::fs::write(cache.join(format!("{digest}.onnx")), &bytes).expect("writes");
        let backend = OnnxBackend::load(library, &file, ExecutionSettings::on_cpu(1)).expect("loads");
        let told = |specs: &[TensorSignature]| specs.iter().map(v1::TensorSpec::from).collect();
        let (inputs, outputs) = (told(&backend.signature().inputs), told(&backend.signature().outputs));
        tasks.push(v1::TaskTarget { name: (*task).into(), inputs, outputs, ..Default::default() });
        let (group, task) = (i as u64 + 1, i as u32);
        groups.push(v1::GroupTarget { group, task, batch: 8, file_digest: digest, ..Default::default() });
        replicas.push(v1::ReplicaTarget { replica: group, group, agent: 1, device: 0 });
    }
    let map = [("image", "crops"), ("center", "centers")].map(|(i, o)| (i.to_string(), o.to_string()));
    let table = |from, to_task, group| v1::Table { from, to_task, entries: vec![v1::TableEntry { group, fraction: 1.0 }] };
    let pipeline = v1::PipelineTarget {
        name: "digits".into(),
        slo_ns: 20_000_000_000,
        tasks,
        groups,
        replicas,
        edges: vec![v1::EdgeTarget { from: 0, to: 1, map: map.into(), ..Default::default() }],
        tables: vec![table(None, 0, 1), table(Some(1), 1, 2)],
        ..Default::default()
    };
    let fence = Some(v1::Fence { incarnation: 1, generation: 1 });
    v1::Target { fence, pipelines: vec![pipeline], ..Default::default() }
}

#[tokio::test]
async fn the_digits_of_canvases_are_found_and_read() {
    let Some(library) = need(Need::Onnx, find_library(None)) else { return };
    let example = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/digits");
    let state = tempfile::tempdir().expect("a directory");
    let target = target(&library, &example.join("models"), state.path());
    let inputs = target.pipelines[0].tasks[0].inputs.clone();
    let loader = BackendLoader::Onnx { library, provider: Provider::Cpu, threads: 1, python: None };
    let files = Files::open(state.path()).expect("opens");
    let handle = agent::start(AgentOptions {
        loader,
        pace: false,
        slowness: 1.0,
        files,
        record: None,
        tracer: None,
        may_sleep: true,
    });
    handle.commands.send(AgentCommand::Welcome(1, Source::default())).await.expect("the loop runs");
    handle.commands.send(AgentCommand::Target(Box::new(target))).await.expect("the loop runs");
    let begun = Instant::now();
    while !handle.view.borrow().ready.contains("digits") {
        assert!(begun.elapsed() < Duration::from_secs(60), "the pipeline does not come up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let labels: Vec<Vec<serde_json::Value>> =
        serde_json::from_slice(&std::fs::read(example.join("validation/labels.json")).expect("labels")).expect("JSON");
    let rows = 16;
    let image = canvases(&example.join("validation/image.npy"), &inputs[0], rows);
    let (reply, answer) = oneshot::channel();
    let (terms, presence) = (RequestTerms::default(), ClientPresence::default());
    let request = ClientRequest { pipeline: "digits".into(), inputs: vec![image], terms, reply, presence };
    handle.requests.send(request).await.expect("the loop runs");
    let Ok(RequestAnswer::Done { pieces, .. }) = answer.await else { panic!("no answer") };
    let found = pieces.iter().filter(|p| p.task == "read").count();
    let expected: usize = labels[..rows].iter().map(Vec::len).sum();
    assert!(found * 10 >= expected * 8 && found * 10 <= expected * 12, "{found} digits found: expected about {expected}");
}

/// The first rows of a NumPy file.
fn canvases(file: &Path, spec: &v1::TensorSpec, rows: usize) -> Tensor {
    let bytes = std::fs::read(file).expect("the example's images");
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let datatype = Datatype::from_name(&spec.datatype).expect("a datatype");
    let mut shape: Vec<usize> = spec.shape.iter().map(|d| usize::try_from(*d).unwrap_or(rows)).collect();
    shape[0] = rows;
    let length = shape.iter().product::<usize>() * datatype.size();
    let data = bytes[header..header + length].to_vec().into();
    Tensor { name: spec.name.clone(), datatype, shape, data }
}
