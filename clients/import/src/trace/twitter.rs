//! How is the trace of Twitter read?
//!
//! The format is that of `load_tester` in the repository of IPA (Ghafouri et al., 2024), which INFaaS and Loki use too: the
//! number of requests of each second, separated by spaces or on lines of their own.

use crate::table::quoted;
use apportion_domain::ArrivalTrace;
use apportion_wire::BadInput;

/// Most requests of one second.
const COUNT_MAX: f64 = 1e12;

/// Reads a trace.
pub(super) fn read(file: &str, text: &str) -> Result<ArrivalTrace, BadInput> {
    let mut rates: Vec<(u64, f64)> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        for word in line.split_whitespace() {
            let count = word.parse::<f64>().ok().filter(|n| (0.0..=COUNT_MAX).contains(n));
            let count = count.ok_or_else(|| {
                let column = line.find(word).unwrap_or_default() + 1;
                let place = format!("line {} column {column}", i + 1);
                BadInput::one(file, place, quoted(word), "the number of requests of a second")
            })?;
            rates.push((rates.len() as u64, count));
        }
    }
    ArrivalTrace::rates(rates).map_err(|e| BadInput::one(file, "", e.value, e.expected))
}
