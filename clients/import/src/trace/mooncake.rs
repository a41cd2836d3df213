//! How is a trace of Mooncake read?
//!
//! The format is that of the traces of `kvcache-ai/Mooncake`, which AIPerf and Dynamo read too: one JSON object on each
//! line, with `timestamp` in milliseconds, `input_length`, `output_length` and `hash_ids`. `created_time` is another name
//! of the timestamp.

use super::moments::{arrivals, nanos_of};
use crate::table::quoted;
use apportion_domain::ArrivalTrace;
use apportion_wire::BadInput;
use serde::Deserialize;

/// A line. Other keys are the lengths and the blocks of the request.
#[derive(Deserialize)]
struct Line {
    #[serde(alias = "created_time")]
    timestamp: f64,
}

/// Reads a trace.
pub(super) fn read(file: &str, text: &str) -> Result<ArrivalTrace, BadInput> {
    const MILLI: u32 = 1_000_000;
    const EXPECTED: &str = "a JSON object with \"timestamp\" in milliseconds";
    let mut times = Vec::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let read: Line = serde_json::from_str(line).map_err(|e| {
            let place = format!("line {} column {}", i + 1, e.column());
            BadInput::one(file, place, quoted(line), EXPECTED)
        })?;
        let time = nanos_of(read.timestamp, MILLI).ok_or_else(|| {
            let place = format!("line {}, key \"timestamp\"", i + 1);
            BadInput::one(file, place, read.timestamp, "milliseconds of at least 0")
        })?;
        times.push(time);
    }
    if times.is_empty() { Err(BadInput::one(file, "line 1", "an empty file", EXPECTED)) } else { arrivals(file, times) }
}
