//! How does the page's tour know when a demo's load begins?
//!
//! The demo stores its load as a trace of the service, at the moment at which it begins to play it. The name of the trace
//! says the length and the pipeline. So the page can follow the minute, and replay it afterwards.

use crate::live::service::Service;
use anyhow::{Context, Result};
use apportion_domain::{ArrivalTrace, Moment};
use apportion_wire::write_trace;
use std::time::Duration;

/// The part of the page's address that begins its tour of a demo.
pub const TOUR_QUERY: &str = "?tour=demo";

/// The name of the trace of a demo's load. Example: `demo-60s-of-digits`.
#[must_use]
pub fn load_name(pipeline: &str, seconds: u64) -> String {
    format!("demo-{seconds}s-of-{pipeline}")
}

/// Stores the load of a demo that begins now.
///
/// # Errors
/// If the service cannot be reached, or refuses.
pub async fn publish_load(service: &Service, pipeline: &str, seconds: u64, arrivals: &[Duration]) -> Result<()> {
    let moments = arrivals.iter().map(|at| Moment::from_nanos(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX))).collect();
    let trace = ArrivalTrace::arrivals(moments).context("the arrivals of the demo")?;
    let mut csv = Vec::new();
    write_trace(&trace, &mut csv).context("writing a trace")?;
    service.post_trace(&load_name(pipeline, seconds), csv).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_says_length_and_pipeline() {
        assert_eq!(load_name("digits", 60), "demo-60s-of-digits");
    }
}
