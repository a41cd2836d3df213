//! How are measurements written as rows and tensors of a profile?

use apportion_domain::Share;
use apportion_profiler::{DeviceProvenance, NOISE_MAX, ProfilePoint, ShapePoints, TensorSignature, VERSION};
use apportion_support::exit::Failure;
use apportion_support::output::{self, TextTable, number};
use apportion_wire::{MeasuredRow, RowMeasurement, ShapeLatency, TensorSpec, utc_text};
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

/// The row of one batch size, measured now; with the latencies of each shape, if there are several.
pub fn measured_row(place: MeasuredPlace<'_>, point: &ProfilePoint, by_shape: &[ShapePoints]) -> MeasuredRow {
    let measured = RowMeasurement {
        by_shape: by_shape.iter().filter_map(|shape| shape_latency(shape, point.batch)).collect(),
        ..row_measurement(place.provenance, point)
    };
    MeasuredRow {
        task: place.task.to_owned(),
        variant: place.variant.to_owned(),
        hardware: place.hardware.to_owned(),
        share: place.share.value(),
        batch: point.batch,
        latency_ms: point.latency_ms,
        p99_ms: Some(point.p99_ms),
        measured: Some(measured),
    }
}

/// The latency of one shape at a batch size.
fn shape_latency(of: &ShapePoints, batch: u32) -> Option<ShapeLatency> {
    let point = of.points.iter().find(|point| point.batch == batch)?;
    let sizes = |sizes: &Vec<usize>| sizes.iter().map(|&size| u32::try_from(size).unwrap_or(u32::MAX)).collect();
    Some(ShapeLatency {
        shape: of.shape.iter().map(|(name, of_input)| (name.clone(), sizes(of_input))).collect(),
        share: of.share,
        latency_ms: point.latency_ms,
        p99_ms: Some(point.p99_ms),
    })
}

/// The latencies by shape, for people; empty if there are none. `share` is that of the queries. Rows of several shares of a
/// device have a column for these.
pub fn shapes_table(rows: &[MeasuredRow]) -> String {
    let has_devices = rows.iter().any(|row| row.share != 1.0);
    let device: &[&str] = if has_devices { &["device_share"] } else { &[] };
    let header = [&["task", "variant", "batch", "shape", "share", "latency_ms", "p99_ms"][..], device].concat();
    let mut table = TextTable::new(&header);
    let mut has_shapes = false;
    for row in rows {
        for of in row.measured.iter().flat_map(|measured| &measured.by_shape) {
            let sizes = |sizes: &Vec<u32>| sizes.iter().map(u32::to_string).collect::<Vec<_>>().join("x");
            let shape: Vec<String> =
                of.shape.iter().map(|(name, of_input)| format!("{name}={}", sizes(of_input))).collect();
            let names = [row.task.clone(), row.variant.clone(), row.batch.to_string(), shape.join(",")];
            let figures = [number(of.share), number(of.latency_ms), output::optional(of.p99_ms)];
            let device = has_devices.then(|| number(row.share));
            table.row(names.into_iter().chain(figures).chain(device).collect());
            has_shapes = true;
        }
    }
    if has_shapes { format!("\n{}", table.text("")) } else { String::new() }
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
        by_shape: Vec::new(),
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
    fn a_table_shows_latencies_by_shape() {
        let of = |tokens: u32, share: f64, latency_ms: f64| ShapeLatency {
            shape: [("ids".to_owned(), vec![tokens]), ("image".to_owned(), vec![3, 48])].into(),
            share,
            latency_ms,
            p99_ms: None,
        };
        let by_shape = vec![of(128, 0.9, 10.0), of(512, 0.1, 40.0)];
        let shaped =
            MeasuredRow { measured: Some(RowMeasurement { by_shape, ..RowMeasurement::default() }), ..row(2, 0.0) };
        let shown = shapes_table(&[row(1, 0.0), shaped.clone()]);
        let cells: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells[2][..4], ["t", "v", "2", "ids=128,image=3x48"], "{shown}");
        assert_eq!((cells[3][3], cells.len()), ("ids=512,image=3x48", 4), "{shown}");
        assert_eq!(shapes_table(&[row(1, 0.0)]), "");
        let half = MeasuredRow { share: 0.5, ..shaped.clone() };
        let shown = shapes_table(&[shaped, half]);
        let last: Vec<&str> = shown.lines().filter_map(|line| line.split_whitespace().last()).collect();
        assert_eq!(last, ["device_share", "1", "1", "0.5000", "0.5000"], "{shown}");
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
