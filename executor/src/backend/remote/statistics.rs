//! What has another server counted of a variant? The extension `statistics` of the protocol, as Triton has it.

use serde::Deserialize;

/// Counters of a variant at a server, since the server started it. Times are sums over requests: a batch of three requests
/// counts its time three times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteStatistics {
    /// Requests that were answered well.
    pub requests: u64,
    /// Rows of these requests.
    pub rows: u64,
    /// Batches that were run.
    pub batches: u64,
    /// Requests that the server answered from its cache, without a run.
    pub cached: u64,
    /// Time in the queue, in nanoseconds.
    pub queue_ns: u64,
    /// Time of reading inputs, running, and writing outputs, in nanoseconds.
    pub compute_ns: u64,
}

impl RemoteStatistics {
    /// Reads the answer at `/v2/models/NAME/stats`, over all versions of the variant.
    ///
    /// # Errors
    /// If the text is no such answer.
    pub(super) fn read(body: &[u8]) -> Result<Self, serde_json::Error> {
        let answer: Statistics = serde_json::from_slice(body)?;
        let mut sum = Self::default();
        for version in &answer.model_stats {
            let of = &version.inference_stats;
            sum.requests = sum.requests.saturating_add(of.success.count);
            sum.rows = sum.rows.saturating_add(version.inference_count);
            sum.batches = sum.batches.saturating_add(version.execution_count);
            sum.cached = sum.cached.saturating_add(of.cache_hit.count);
            sum.queue_ns = sum.queue_ns.saturating_add(of.queue.ns);
            let compute = [of.compute_input.ns, of.compute_infer.ns, of.compute_output.ns];
            sum.compute_ns = compute.into_iter().fold(sum.compute_ns, u64::saturating_add);
        }
        Ok(sum)
    }

    /// The counts since an earlier moment. A server that was started again meanwhile has less than before, which counts as
    /// nothing.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            rows: self.rows.saturating_sub(earlier.rows),
            batches: self.batches.saturating_sub(earlier.batches),
            cached: self.cached.saturating_sub(earlier.cached),
            queue_ns: self.queue_ns.saturating_sub(earlier.queue_ns),
            compute_ns: self.compute_ns.saturating_sub(earlier.compute_ns),
        }
    }

    /// Mean time of a request in the queue in milliseconds; `None` without requests.
    #[must_use]
    pub fn queue_ms(&self) -> Option<f64> {
        self.mean_ms(self.queue_ns)
    }

    /// Mean time of a request's batch in milliseconds; `None` without requests.
    #[must_use]
    pub fn compute_ms(&self) -> Option<f64> {
        self.mean_ms(self.compute_ns)
    }

    fn mean_ms(&self, sum_ns: u64) -> Option<f64> {
        (self.requests > 0).then(|| sum_ns as f64 / 1e6 / self.requests as f64)
    }
}

#[derive(Deserialize)]
struct Statistics {
    model_stats: Vec<VersionStatistics>,
}

#[derive(Deserialize)]
struct VersionStatistics {
    #[serde(default)]
    inference_count: u64,
    #[serde(default)]
    execution_count: u64,
    #[serde(default)]
    inference_stats: InferenceTimes,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct InferenceTimes {
    success: TimeSum,
    queue: TimeSum,
    compute_input: TimeSum,
    compute_infer: TimeSum,
    compute_output: TimeSum,
    cache_hit: TimeSum,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TimeSum {
    count: u64,
    ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of Triton 2.51 after 25 batches of four rows, without its other counters.
    const ANSWER: &str = r#"{"model_stats":[{"name":"large","version":"1","last_inference":1795591556761,
        "inference_count":100,"execution_count":25,"inference_stats":{"success":{"count":25,"ns":1783250000},
        "fail":{"count":0,"ns":0},"queue":{"count":25,"ns":5000000},"compute_input":{"count":25,"ns":1250000},
        "compute_infer":{"count":25,"ns":1770750000},"compute_output":{"count":25,"ns":6250000},
        "cache_hit":{"count":2,"ns":9}},"response_stats":{},"batch_stats":[],"memory_usage":[]}]}"#;

    #[test]
    fn times_are_means_over_requests() {
        let seen = RemoteStatistics::read(ANSWER.as_bytes()).expect("an answer");
        assert_eq!((seen.requests, seen.rows, seen.batches, seen.cached), (25, 100, 25, 2));
        assert_eq!((seen.queue_ms(), seen.compute_ms()), (Some(0.2), Some(71.13)));
        assert_eq!(RemoteStatistics::default().queue_ms(), None);
    }

    #[test]
    fn counts_are_differences_between_two_moments() {
        let seen = RemoteStatistics::read(ANSWER.as_bytes()).expect("an answer");
        let earlier =
            RemoteStatistics { requests: 5, rows: 20, batches: 5, queue_ns: 1_000_000, ..RemoteStatistics::default() };
        let since = seen.since(earlier);
        assert_eq!((since.requests, since.rows, since.batches), (20, 80, 20));
        assert_eq!(since.queue_ms(), Some(0.2));
        assert_eq!(earlier.since(seen), RemoteStatistics::default(), "the server was started again");
    }

    #[test]
    fn several_versions_are_added_up() {
        let version =
            r#"{"inference_count":2,"inference_stats":{"success":{"count":2,"ns":9},"queue":{"count":2,"ns":4}}}"#;
        let both = format!(r#"{{"model_stats":[{version},{version}]}}"#);
        let seen = RemoteStatistics::read(both.as_bytes()).expect("an answer");
        assert_eq!((seen.requests, seen.rows, seen.queue_ns), (4, 4, 8));
        assert!(RemoteStatistics::read(b"<html>").is_err());
        let most = version.replace(":2,", ":18446744073709551615,");
        let both = format!(r#"{{"model_stats":[{most},{most}]}}"#);
        assert_eq!(RemoteStatistics::read(both.as_bytes()).expect("an answer").rows, u64::MAX);
    }
}
