//! How does `apportion profile --backend remote=URL` measure variants on a server?

use super::backend::{InputShape, given_shapes};
use super::rows::{MeasuredPlace, measured_row, shapes_table, tensor_specs};
use apportion_domain::Share;
use apportion_profiler::{
    BackendLoader, DeviceProvenance, Doubts, MeasureOptions, PointRule, ServedError, ServedPoint, ServedVariant, Signature,
    profile_served,
};
use apportion_support::exit::Failure;
use apportion_support::output::{self, TextTable, number};
use apportion_support::progress::spinner;
use apportion_wire::{MeasuredRow, MeasuredTask, PipelineSpec, ProfileSet};
use std::time::Duration;

/// Fewest timed runs of a batch size: the messages vary more than a batch on this machine.
const REPEATS_MIN: u32 = 20;
/// Time after which no further run of a batch size begins. A 99th percentile needs 100 runs: batches below 30 ms get them.
const POINT_TIME_MAX: Duration = Duration::from_secs(3);

/// What is measured where.
pub struct ServerProfiling<'a> {
    /// The server, `http://host:port`.
    pub url: &'a str,
    /// Shapes of the queries, where the server leaves sizes open.
    pub shapes: &'a [InputShape],
    /// The server's hardware type.
    pub hardware: &'a str,
    /// Batch sizes, increasing.
    pub batches: Vec<u32>,
    /// Factor on the latencies.
    pub multiple: f64,
}

/// The measurements on a server.
pub struct ServedProfile {
    /// As files have them.
    pub set: ProfileSet,
    /// The table for people, with the times that the server counts.
    pub text: String,
}

/// Measures every variant of the pipeline. Doubts about the measurements go to stderr.
///
/// # Errors
/// If the server or a variant is not there, if a variant's inputs cannot be made, or if a batch fails.
pub fn measure(request: &ServerProfiling<'_>, spec: &PipelineSpec) -> Result<ServedProfile, Failure> {
    let options = MeasureOptions {
        batches: request.batches.clone(),
        multiple: request.multiple,
        shapes: given_shapes(request.shapes),
        point: PointRule { repeats_min: REPEATS_MIN, time_max: POINT_TIME_MAX, ..PointRule::default() },
        ..MeasureOptions::default()
    };
    let provenance = DeviceProvenance::of(&BackendLoader::Remote(request.url.to_owned()), 0);
    let header = ["task", "variant", "batch", "latency_ms", "p99_ms", "queries/s", "queue_ms", "compute_ms"];
    let (mut set, mut table) = (ProfileSet::default(), TextTable::new(&header));
    for task in &spec.tasks {
        let mut signatures = Vec::new();
        for variant in &task.variants {
            let bar = spinner(&format!("measuring {} on {}", variant.name, request.url));
            let served = profile_served(request.url, &variant.name, &options);
            bar.finish_and_clear();
            let served = served.map_err(failure)?;
            warn(&variant.name, &served, &request.batches);
            let place = MeasuredPlace {
                task: &task.name,
                variant: &variant.name,
                hardware: request.hardware,
                share: Share::WHOLE,
                provenance: &provenance,
            };
            for point in &served.points {
                let row = measured_row(place, &point.point, &served.by_shape);
                table.row(cells(&row, point));
                set.rows.push(row);
            }
            signatures.push(served.signature);
        }
        set.tasks.extend(tensors_of(&task.name, &signatures));
    }
    let text = format!("{}{}", table.text(""), shapes_table(&set.rows));
    Ok(ServedProfile { set, text })
}

/// Exit code 2 where other arguments help, and 1 where another server would.
fn failure(error: ServedError) -> Failure {
    let is_of_input = error.is_of_input();
    let error = anyhow::Error::from(error);
    if is_of_input { Failure::BadInput(format!("{error:#}")) } else { Failure::Broken(error) }
}

fn warn(variant: &str, served: &ServedVariant, wanted: &[u32]) {
    if let (Some(most), Some(last)) = (served.batch_max, wanted.last())
        && most < *last
    {
        eprintln!("{variant}: the server takes at most {most} rows in a batch (max_batch_size)");
    }
    if served.points.iter().all(|point| point.queue_ms.is_none()) {
        eprintln!("{variant}: the server tells no waiting times, so the latencies include them");
    }
    for ServedPoint { point, doubts, .. } in &served.points {
        let Doubts { is_unsteady, foreign_rows, cached } = *doubts;
        let batch = point.batch;
        if is_unsteady {
            eprintln!("warning: {variant} at batch {batch}: its times still changed when the warm-up ended");
        }
        if foreign_rows > 0 {
            eprintln!(
                "warning: {variant} at batch {batch}: other clients sent {foreign_rows} rows meanwhile; measure on a \
                 server without other load"
            );
        }
        if cached > 0 {
            eprintln!(
                "warning: {variant} at batch {batch}: {cached} answers came from the server's cache; measure with \
                 response_cache off"
            );
        }
    }
}

fn cells(row: &MeasuredRow, served: &ServedPoint) -> Vec<String> {
    let qps = 1000.0 * f64::from(row.batch) / row.latency_ms;
    let latencies = [number(row.latency_ms), output::optional(row.p99_ms), number(qps)];
    let counted = [output::optional(served.queue_ms), output::optional(served.compute_ms)];
    let names = [row.task.clone(), row.variant.clone(), row.batch.to_string()];
    names.into_iter().chain(latencies).chain(counted).collect()
}

/// The tensors of a task, if all its variants have the same.
fn tensors_of(task: &str, signatures: &[Signature]) -> Option<MeasuredTask> {
    let first = signatures.first().filter(|first| signatures.iter().all(|signature| signature == *first))?;
    let (inputs, outputs) = (tensor_specs(&first.inputs), tensor_specs(&first.outputs));
    let (model_inputs, model_outputs) = (None, None);
    Some(MeasuredTask { name: task.to_owned(), inputs, outputs, model_inputs, model_outputs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use apportion_profiler::{Datatype, TensorSignature};

    #[test]
    fn a_task_has_tensors_only_if_its_variants_agree() {
        let signature = |name: &str| {
            let tensor = TensorSignature { name: name.into(), datatype: Datatype::Fp32, shape: vec![-1, 4] };
            Signature { inputs: vec![tensor.clone()], outputs: vec![tensor] }
        };
        let task = tensors_of("t", &[signature("x"), signature("x")]).expect("they agree");
        assert_eq!(
            (task.name.as_str(), task.inputs[0].name.as_str(), task.outputs[0].shape.as_slice()),
            ("t", "x", &[-1, 4][..])
        );
        assert_eq!(tensors_of("t", &[signature("x"), signature("y")]), None);
    }
}
