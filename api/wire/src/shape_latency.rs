//! Which keys has the latency of one shape of the queries?

use crate::record::record;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

record! {
    /// Latency of one batch whose queries have one shape.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ShapeLatency {
        /// By input, the sizes of all its axes but the first.
        pub shape: BTreeMap<String, Vec<u32>> => required,
        /// Share of the queries that have this shape. The shares of a row sum to 1.
        pub share: f64 => required,
        /// Median time of the batch.
        pub latency_ms: f64 => required,
        /// 99th percentile of the batch's time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub p99_ms: Option<f64> => optional.or_null(),
    }
}
