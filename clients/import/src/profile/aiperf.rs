//! How is a report of AIPerf read (`profile_export_aiperf.json`)?
//!
//! The keys are those of `docs/reference/json-export-schema.md` in AIPerf. Each metric states its unit. The report has no
//! batch size and no device. The latency is the one that the client saw.

use crate::gathered::{FilePlace, GatheredProfile, GivenNames, LatencyRow};
use apportion_wire::{BadInput, MeasuredRow, parse_tree};
use serde_json::Value;

/// Units of times, with the milliseconds in one.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-6),
    ("us", 1e-3),
    ("ms", 1.0),
    ("s", 1e3),
    ("nanoseconds", 1e-6),
    ("microseconds", 1e-3),
    ("milliseconds", 1.0),
    ("seconds", 1e3),
];
const METRIC: &str = "/request_latency";

/// Adds the latency of a report.
pub(super) fn add(profile: &mut GatheredProfile, file: &str, text: &str, names: &GivenNames) -> Result<(), BadInput> {
    let report = parse_tree(file, text)?;
    let refused = |at: &str, found: String, expected: &str| BadInput::one(file, at, found, expected);
    let metric = report.get("request_latency").filter(|m| m.is_object());
    let metric =
        metric.ok_or_else(|| refused("", "no key \"request_latency\"".to_owned(), "a profile_export_aiperf.json"))?;
    let unit = metric.get("unit").and_then(Value::as_str).unwrap_or_default();
    let (_, scale) = UNITS
        .into_iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| refused(&format!("{METRIC}/unit"), format!("{unit:?}"), "ns, us, ms or s"))?;
    let time = |key: &str| metric.get(key).and_then(Value::as_f64).filter(|t| *t > 0.0);
    let median = time("p50").or_else(|| time("avg"));
    let median = median.ok_or_else(|| refused(METRIC, "no p50 and no avg above 0".to_owned(), "a latency above 0"))?;
    let variant = names.variant.clone().or_else(|| model_of(&report));
    let variant = variant.ok_or_else(|| refused("", "no name of a model".to_owned(), "--variant NAME"))?;
    let hardware = names.hardware.clone();
    let hardware = hardware.ok_or_else(|| refused("", "no name of a device".to_owned(), "--hardware NAME"))?;
    let batch = names.batch.unwrap_or(1);
    if names.batch_max.is_some_and(|most| batch > most) {
        return Ok(());
    }
    profile.note(format!("{file}: latencies have the network and the client in them"));
    if let Some(load) = report.pointer("/input_config/loadgen/concurrency").and_then(Value::as_f64).filter(|c| *c > 1.0) {
        profile.note(format!("{file}: the concurrency is {load}: latencies have waiting in them"));
    }
    let p99_ms = time("p99").map(|t| t * scale);
    let measured = MeasuredRow {
        latency_ms: median * scale,
        p99_ms,
        measured: None,
        task: names.task.clone(),
        variant,
        hardware,
        share: 1.0,
        batch,
    };
    profile.add(FilePlace { file, at: METRIC }, LatencyRow { measured, accuracy: None, load_ms: None, memory_mib: None })
}

/// The only model that the run named.
fn model_of(report: &Value) -> Option<String> {
    let names = report.pointer("/input_config/endpoint/model_names")?.as_array()?;
    let [only] = &names[..] else { return None };
    // slashes stand in names of models, and colons separate names in paths
    only.as_str().map(|name| name.replace([':', '>'], "-"))
}
