//! How much does a hop add to a pipeline of real variants?
//!
//! The example `digits` runs twice: with both tasks at the gateway's agent, and with the second task at the other agent.

use super::figure::micros;
use super::hop::{OUTSTANDING, TURNS, at_rate, most};
use super::pair::{Pair, Setup};
use super::{BenchError, BenchOptions, Figure};
use crate::backend::{Backend, BackendLoader, ExecutionSettings, OnnxBackend, Provider, find_library};
use crate::files::hex_digest;
use apportion_node::tensor::{Datatype, Tensor, TensorSignature};
use apportion_protocol::v1;
use std::path::Path;

const NEAR: &str = "digits-near";
const FAR: &str = "digits-far";
/// Its tasks, with the variants that are run.
const TASKS: [(&str, &str); 2] = [("find", "find-m"), ("read", "read-m")];
/// Inputs of the second task, and the outputs of the first that they are.
const MAP: [(&str, &str); 2] = [("image", "crops"), ("center", "centers")];
/// Largest batches.
const BATCH: u32 = 8;
/// Bytes of a NumPy file of version 1 before its header, which the last two of them say the length of.
const NUMPY_PREFIX: usize = 10;

/// Median and p99 of both at half of what the second carries, and their differences.
pub(super) fn measure(folder: &Path, options: &BenchOptions) -> Result<Vec<Figure>, BenchError> {
    let library = find_library(None).map_err(|e| BenchError::Digits(e.to_string()))?;
    let (mut models, mut tasks) = (Vec::new(), Vec::new());
    for (task, variant) in TASKS {
        let file = folder.join(format!("models/{variant}.onnx"));
        models.push(read(&file)?);
        let loaded = OnnxBackend::load(&library, &file, ExecutionSettings::on_cpu(1));
        let loaded = loaded.map_err(|e| BenchError::Digits(format!("{}: {e}", file.display())))?;
        let told = |specs: &[TensorSignature]| specs.iter().map(v1::TensorSpec::from).collect::<Vec<_>>();
        let (inputs, outputs) = (told(&loaded.signature().inputs), told(&loaded.signature().outputs));
        tasks.push(v1::TaskTarget { name: task.into(), inputs, outputs, ..Default::default() });
    }
    let inputs = [canvas(&folder.join("validation/image.npy"), &tasks[0].inputs[0])?];
    let pipelines = vec![pipeline(NEAR, 1, [1, 1], &tasks, &models), pipeline(FAR, 3, [1, 2], &tasks, &models)];
    let loader = BackendLoader::Onnx { library, provider: Provider::Cpu, threads: 1, python: None };
    let BenchOptions { may_sleep, links, .. } = *options;
    let pair = Pair::with(&Setup { loader, models: &models, pipelines, may_sleep, links })?;
    let rate = most(&pair, FAR, &inputs, OUTSTANDING, options.each)? / 2.0;
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        near.extend(at_rate(&pair, NEAR, &inputs, rate, options.each / TURNS)?);
        far.extend(at_rate(&pair, FAR, &inputs, rate, options.each / TURNS)?);
    }
    near.sort_unstable();
    far.sort_unstable();
    let figure = |(name, part)| {
        let what = format!("digits over two agents at {rate:.0} canvases/s (half of what they carry), {name}");
        let what = format!("{what} (plain: both tasks at the gateway's agent)");
        Figure { what, unit: "us", agents: micros(&far, part), plain: Some(micros(&near, part)), aim: "-" }
    };
    Ok([("median", 0.5), ("p99", 0.99)].map(figure).into())
}

fn read(file: &Path) -> Result<Vec<u8>, BenchError> {
    std::fs::read(file).map_err(|e| BenchError::Digits(format!("{}: {e}", file.display())))
}

/// The first canvas of the validation set.
fn canvas(file: &Path, spec: &v1::TensorSpec) -> Result<Tensor, BenchError> {
    let bytes = read(file)?;
    let wrong = || BenchError::Digits(format!("{}: expected a NumPy file (version 1) of rows of {spec:?}", file.display()));
    let header = bytes.get(NUMPY_PREFIX - 2..NUMPY_PREFIX).map(|b| usize::from(b[0]) | usize::from(b[1]) << 8);
    let begin = NUMPY_PREFIX + header.filter(|_| bytes.starts_with(b"\x93NUMPY\x01")).ok_or_else(wrong)?;
    let datatype = Datatype::from_name(&spec.datatype).ok_or_else(wrong)?;
    let mut shape: Vec<usize> = spec.shape.iter().map(|d| usize::try_from(*d).unwrap_or(1)).collect();
    *shape.first_mut().ok_or_else(wrong)? = 1;
    let length = shape.iter().product::<usize>() * datatype.size();
    let data = bytes.get(begin..begin + length).ok_or_else(wrong)?.to_vec().into();
    Ok(Tensor { name: spec.name.clone(), datatype, shape, data })
}

/// The example with one replica of each task, on these agents; groups and replicas have the numbers from `first`.
fn pipeline(name: &str, first: u64, agents: [u64; 2], tasks: &[v1::TaskTarget], models: &[Vec<u8>]) -> v1::PipelineTarget {
    let group = |(task, model): (u32, &Vec<u8>)| v1::GroupTarget {
        group: first + u64::from(task),
        task,
        batch: BATCH,
        file_digest: hex_digest(model),
        ..Default::default()
    };
    let replica = |(id, agent)| v1::ReplicaTarget { replica: id, group: id, agent, device: 0 };
    let table = |from, to_task, group| {
        let entries = vec![v1::TableEntry { group, fraction: 1.0 }];
        v1::Table { from, to_task, entries }
    };
    let map = MAP.map(|(input, output)| (input.to_owned(), output.to_owned())).into();
    v1::PipelineTarget {
        name: name.into(),
        slo_ns: 60_000_000_000,
        tasks: tasks.to_vec(),
        groups: (0..).zip(models).map(group).collect(),
        replicas: (first..).zip(agents).map(replica).collect(),
        edges: vec![v1::EdgeTarget { from: 0, to: 1, map, ..Default::default() }],
        tables: vec![table(None, 0, first), table(Some(first), 1, first + 1)],
        ..Default::default()
    }
}
