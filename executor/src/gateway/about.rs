//! What do metadata, configuration, statistics and the index of pipelines say? gRPC messages, and JSON made from them.

use super::inference::output_specs;
use super::proto::model_metadata_response::TensorMetadata;
use super::proto::repository_index_response::ModelIndex;
use super::proto::{
    DataType, InferBatchStatistics, InferStatistics, ModelConfig, ModelInput, ModelMetadataResponse, ModelOutput,
    ModelStatistics, StatisticDuration,
};
use super::refusal::GatewayRefusal;
use super::{Gateway, PLATFORM, find, version};
use crate::agent::NodeView;
use crate::backend::BackendKind;
use apportion_node::node::counts::{Batches, SizeCount};
use apportion_node::tensor::{Datatype, TensorSignature};
use serde_json::{Value, json};

/// What a pipeline takes and makes.
///
/// # Errors
/// [`GatewayRefusal`] if no pipeline has this name.
pub fn metadata(view: &NodeView, name: &str) -> Result<ModelMetadataResponse, GatewayRefusal> {
    let pipeline = find(view, name)?;
    let tensor = |name: &str, spec: &TensorSignature| {
        let datatype = spec.datatype.name().to_string();
        TensorMetadata { name: name.into(), datatype, shape: spec.shape.clone() }
    };
    Ok(ModelMetadataResponse {
        name: name.into(),
        versions: vec![version(view)],
        platform: platform(view),
        inputs: pipeline.tasks[pipeline.root].inputs.iter().map(|s| tensor(&s.name, s)).collect(),
        outputs: output_specs(pipeline).iter().map(|(name, s)| tensor(name, s)).collect(),
    })
}

/// [`metadata`] as JSON.
#[must_use]
pub fn metadata_json(m: &ModelMetadataResponse) -> Value {
    let tensor = |t: &TensorMetadata| json!({"name": t.name, "datatype": t.datatype, "shape": t.shape});
    let inputs: Vec<Value> = m.inputs.iter().map(tensor).collect();
    let outputs: Vec<Value> = m.outputs.iter().map(tensor).collect();
    json!({"name": m.name, "versions": m.versions, "platform": m.platform, "inputs": inputs, "outputs": outputs})
}

/// The name of a pipeline's platform; an agent with emulated batches says so.
fn platform(view: &NodeView) -> String {
    match view.backend {
        BackendKind::Emulated => format!("{PLATFORM}_{}", view.backend.name()),
        BackendKind::Local | BackendKind::Remote => PLATFORM.into(),
    }
}

fn data_type(datatype: Datatype) -> DataType {
    match datatype {
        Datatype::Bool => DataType::TypeBool,
        Datatype::Uint8 => DataType::TypeUint8,
        Datatype::Uint16 => DataType::TypeUint16,
        Datatype::Uint32 => DataType::TypeUint32,
        Datatype::Uint64 => DataType::TypeUint64,
        Datatype::Int8 => DataType::TypeInt8,
        Datatype::Int16 => DataType::TypeInt16,
        Datatype::Int32 => DataType::TypeInt32,
        Datatype::Int64 => DataType::TypeInt64,
        Datatype::Fp16 => DataType::TypeFp16,
        Datatype::Fp32 => DataType::TypeFp32,
        Datatype::Fp64 => DataType::TypeFp64,
        Datatype::Bf16 => DataType::TypeBf16,
        Datatype::Bytes => DataType::TypeString,
    }
}

/// A pipeline's configuration in Triton's terms. Its largest batch is 0, which means that shapes have the rows as their
/// first dimension. An answer may have another number of rows than its request.
///
/// # Errors
/// [`GatewayRefusal`] if no pipeline has this name.
pub fn config(view: &NodeView, name: &str) -> Result<ModelConfig, GatewayRefusal> {
    let pipeline = find(view, name)?;
    let input = |s: &TensorSignature| ModelInput {
        name: s.name.clone(),
        data_type: data_type(s.datatype).into(),
        dims: s.shape.clone(),
    };
    let output = |(name, s): &(String, TensorSignature)| ModelOutput {
        name: name.clone(),
        data_type: data_type(s.datatype).into(),
        dims: s.shape.clone(),
    };
    Ok(ModelConfig {
        name: name.into(),
        platform: platform(view),
        max_batch_size: 0,
        input: pipeline.tasks[pipeline.root].inputs.iter().map(input).collect(),
        output: output_specs(pipeline).iter().map(output).collect(),
        backend: format!("apportion_{}", view.backend.name()),
    })
}

/// [`config`] as JSON.
#[must_use]
pub fn config_json(c: &ModelConfig) -> Value {
    let input = |t: &ModelInput| json!({"name": t.name, "data_type": t.data_type().as_str_name(), "dims": t.dims});
    let output = |t: &ModelOutput| json!({"name": t.name, "data_type": t.data_type().as_str_name(), "dims": t.dims});
    let inputs: Vec<Value> = c.input.iter().map(input).collect();
    let outputs: Vec<Value> = c.output.iter().map(output).collect();
    json!({"name": c.name, "platform": c.platform, "backend": c.backend, "max_batch_size": c.max_batch_size,
           "input": inputs, "output": outputs})
}

/// Statistics of one pipeline or of all since this agent's start. They count requests at this gateway, and batches of this
/// agent's replicas with the queries of any gateway.
///
/// # Errors
/// [`GatewayRefusal`] if no pipeline has this name.
pub fn statistics(gateway: &Gateway, one: Option<&str>) -> Result<Vec<ModelStatistics>, GatewayRefusal> {
    let view = gateway.view();
    if let Some(name) = one {
        find(&view, name)?;
    }
    let entries = gateway.ledger.entries();
    let of = |name: &String| {
        let entry = entries.get(name).cloned().unwrap_or_default();
        let mut batches = Batches::default();
        view.batches.iter().filter(|(l, _)| l.pipeline == *name).for_each(|(_, b)| batches.add(b));
        let duration = |count, ns| Some(StatisticDuration { count, ns });
        // Triton's sums are over requests: all queries of a batch take as long as it does.
        let ended = batches.sizes.iter().map(|(size, c)| (*size as u64 * c.batches, *size as u64 * c.busy_ns));
        let (queries, compute_ns) = ended.fold((0, 0), |(counts, times), (count, ns)| (counts + count, times + ns));
        let stats = InferStatistics {
            success: duration(entry.served.count, entry.served.ns),
            fail: duration(entry.failed.count, entry.failed.ns),
            queue: duration(batches.queries, batches.waited_ns),
            compute_input: duration(queries, 0),
            compute_infer: duration(queries, compute_ns),
            compute_output: duration(queries, 0),
            cache_hit: duration(0, 0),
            cache_miss: duration(0, 0),
        };
        let size = |(size, count): (&usize, &SizeCount)| InferBatchStatistics {
            batch_size: *size as u64,
            compute_input: duration(count.batches, 0),
            compute_infer: duration(count.batches, count.busy_ns),
            compute_output: duration(count.batches, 0),
        };
        ModelStatistics {
            name: name.clone(),
            version: version(&view),
            last_inference: entry.last_ms,
            inference_count: entry.rows,
            execution_count: batches.batches,
            inference_stats: Some(stats),
            batch_stats: batches.sizes.iter().map(size).collect(),
        }
    };
    let names = view.layout.pipelines.keys().filter(|name| one.is_none_or(|one| one == *name));
    Ok(names.map(of).collect())
}

/// [`statistics`] as JSON.
#[must_use]
pub fn statistics_json(all: &[ModelStatistics]) -> Value {
    let duration = |d: Option<StatisticDuration>| {
        let d = d.unwrap_or_default();
        json!({"count": d.count, "ns": d.ns})
    };
    let batch = |b: &InferBatchStatistics| {
        json!({"batch_size": b.batch_size, "compute_input": duration(b.compute_input),
               "compute_infer": duration(b.compute_infer), "compute_output": duration(b.compute_output)})
    };
    let one = |m: &ModelStatistics| {
        let s = m.inference_stats.unwrap_or_default();
        let stats = json!({
            "success": duration(s.success), "fail": duration(s.fail), "queue": duration(s.queue),
            "compute_input": duration(s.compute_input), "compute_infer": duration(s.compute_infer),
            "compute_output": duration(s.compute_output), "cache_hit": duration(s.cache_hit),
            "cache_miss": duration(s.cache_miss),
        });
        let batches: Vec<Value> = m.batch_stats.iter().map(batch).collect();
        json!({"name": m.name, "version": m.version, "last_inference": m.last_inference,
               "inference_count": m.inference_count, "execution_count": m.execution_count,
               "inference_stats": stats, "batch_stats": batches})
    };
    json!({"model_stats": all.iter().map(one).collect::<Vec<_>>()})
}

/// All pipelines and whether they are ready; with `ready`, only the ready ones.
#[must_use]
pub fn index(view: &NodeView, ready: bool) -> Vec<ModelIndex> {
    let one = |name: &String| {
        let up = view.ready.contains(name);
        let state = if up { "READY" } else { "UNAVAILABLE" };
        let reason = if up { "" } else { "a task has no replica that is ready" };
        ModelIndex { name: name.clone(), version: version(view), state: state.into(), reason: reason.into() }
    };
    view.layout.pipelines.keys().filter(|name| !ready || view.ready.contains(*name)).map(one).collect()
}

/// [`index`] as JSON.
#[must_use]
pub fn index_json(all: &[ModelIndex]) -> Value {
    let one = |m: &ModelIndex| json!({"name": m.name, "version": m.version, "state": m.state, "reason": m.reason});
    all.iter().map(one).collect()
}
