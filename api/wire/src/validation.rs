//! With which labelled examples is the accuracy of a pipeline measured?

use crate::record::record;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

record! {
    /// Labelled examples for measuring accuracy, fan-out and path accuracy. Paths are relative to the file.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ValidationSpec {
        /// Array file (`.npy`) by input tensor of the root; the first dimension counts the examples.
        pub inputs: BTreeMap<String, String> => required,
        /// JSON file: for each example the list of its labels `{value, at}`. `value` is a number or a text.
        pub labels: String => required,
        /// The outputs that are compared with the labels.
        #[serde(rename = "match")]
        pub matching: MatchSpec => required.named("match"),
    }
}

record! {
    /// The output tensors of the sinks that are compared with the labels.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct MatchSpec {
        /// Output that must equal a label's `value`.
        pub value: String => required,
        /// Output that must be near a label's `at`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub at: Option<String> => optional.or_null(),
        /// The largest distance, in the unit of the positions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub within: Option<f64> => optional.or_null(),
    }
}
