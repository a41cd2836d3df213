//! How are measurements written as rows and tensors of a profile?

use apportion_domain::Share;
use apportion_profiler::{DeviceProvenance, NOISE_MAX, ProfilePoint, TensorSignature, VERSION};
use apportion_support::exit::Failure;
use apportion_wire::{MeasuredRow, RowMeasurement, TensorSpec, utc_text};
use std::time::{SystemTime, UNIX_EPOCH};

/// The place of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredPlace<'a> {
    /// The task.
    pub task: &'a str,
    /// The variant.
    pub variant: &'a str,
    /// The hardware type.
    pub hardware: &'a str,
    /// The part of a device.
    pub share: Share,
    /// The device and its programs.
    pub provenance: &'a DeviceProvenance,
}

/// The row of one batch size, measured now.
pub fn measured_row(place: MeasuredPlace<'_>, point: &ProfilePoint) -> MeasuredRow {
    MeasuredRow {
        task: place.task.to_owned(),
        variant: place.variant.to_owned(),
        hardware: place.hardware.to_owned(),
        share: place.share.value(),
        batch: point.batch,
        latency_ms: point.latency_ms,
        p99_ms: Some(point.p99_ms),
        measured: Some(row_measurement(place.provenance, point)),
    }
}

fn row_measurement(DeviceProvenance { device, software }: &DeviceProvenance, point: &ProfilePoint) -> RowMeasurement {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let known = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    RowMeasurement {
        at: Some(utc_text(i64::try_from(now_s).unwrap_or(i64::MAX))),
        runs: Some(point.repeats),
        warm_up_runs: Some(point.conditions.warm_up_runs),
        steady: Some(point.conditions.is_steady),
        noise: Some(point.conditions.noise),
        interference: point.interference,
        p95_ms: Some(point.p95_ms),
        median_low_ms: point.median.low,
        median_high_ms: point.median.high,
        p99_low_ms: point.tail.low,
        p99_high_ms: point.tail.high,
        agent: None,
        device: known(device),
        software: known(software),
        version: Some(VERSION.to_owned()),
        drift: None,
    }
}

/// What happens to measurements of a noisy machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseRule {
    /// A warning says so.
    Warn,
    /// They are refused.
    Refuse,
}

/// Says which rows were measured on a noisy machine.
///
/// # Errors
/// If the rule refuses them.
pub fn check_noise(rows: &[MeasuredRow], rule: NoiseRule) -> Result<(), Failure> {
    let noise = |row: &MeasuredRow| row.measured.as_ref().and_then(|measured| measured.noise).unwrap_or(0.0);
    let noisy: Vec<&MeasuredRow> = rows.iter().filter(|row| noise(row) > NOISE_MAX).collect();
    let Some(worst) = noisy.iter().max_by(|a, b| noise(a).total_cmp(&noise(b))) else { return Ok(()) };
    let said = format!(
        "{} of {} latencies were measured on a noisy machine, the worst being {} at batch {}: noise {:.2}, expected at \
         most {NOISE_MAX}; end other work on it and measure again",
        noisy.len(),
        rows.len(),
        worst.variant,
        worst.batch,
        noise(worst)
    );
    if rule == NoiseRule::Refuse {
        return Err(Failure::Broken(anyhow::anyhow!("--strict: {said}")));
    }
    eprintln!("warning: {said}");
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(batch: u32, noise: f64) -> MeasuredRow {
        MeasuredRow {
            task: "t".into(),
            variant: "v".into(),
            hardware: "h".into(),
            share: 1.0,
            batch,
            latency_ms: 1.0,
            p99_ms: None,
            measured: Some(RowMeasurement { noise: Some(noise), ..RowMeasurement::default() }),
        }
    }

    #[test]
    fn noise_is_refused_only_if_asked() {
        let noisy = [row(1, 0.0), row(2, 0.3), row(4, 0.2)];
        assert!(check_noise(&noisy, NoiseRule::Warn).is_ok());
        let refused = check_noise(&noisy, NoiseRule::Refuse).expect_err("two rows are noisy").to_string();
        assert!(refused.contains("2 of 3 latencies") && refused.contains("v at batch 2: noise 0.30"), "{refused}");
        assert!(check_noise(&noisy[..1], NoiseRule::Refuse).is_ok());
    }
}
