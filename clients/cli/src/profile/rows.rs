//! How are measurements written as rows and tensors of a profile?

use apportion_profiler::{ProfilePoint, TensorSignature};
use apportion_wire::{MeasuredRow, TensorSpec};

/// The place of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredPlace<'a> {
    /// The task.
    pub task: &'a str,
    /// The variant.
    pub variant: &'a str,
    /// The hardware type.
    pub hardware: &'a str,
}

/// The row of one batch size on whole devices.
pub fn measured_row(place: MeasuredPlace<'_>, point: &ProfilePoint) -> MeasuredRow {
    MeasuredRow {
        task: place.task.to_owned(),
        variant: place.variant.to_owned(),
        hardware: place.hardware.to_owned(),
        share: 1.0,
        batch: point.batch,
        latency_ms: point.latency_ms,
        p99_ms: Some(point.p99_ms),
    }
}

/// Tensors in the words of files.
pub fn tensor_specs(tensors: &[TensorSignature]) -> Vec<TensorSpec> {
    let spec = |t: &TensorSignature| TensorSpec {
        name: t.name.clone(),
        datatype: t.datatype.name().to_owned(),
        shape: t.shape.clone(),
    };
    tensors.iter().map(spec).collect()
}
