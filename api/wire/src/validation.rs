//! With which examples is the accuracy of a pipeline measured, and how are answers judged?

use crate::record::record;
use apportion_domain::Invalid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Most classes that `top` may name.
pub const TOP_MAX: u32 = 1_000;
/// Longest time of a command, in seconds: a day.
pub const COMMAND_SECONDS_MAX: f64 = 86_400.0;

record! {
    /// Examples for measuring accuracy, fan-out and path accuracy. Paths are relative to the file.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ValidationSpec {
        /// By input tensor of the root, an array file (`.npy`), whose first dimension counts the examples; or a folder with
        /// array files in the order of their names, for examples of several shapes.
        pub inputs: BTreeMap<String, String> => required,
        /// JSON file: for each example a number or text, or the list of its labels `{value, at}`. Or a CSV file with a line
        /// for each label: `example,value`, then its position. Needed for `value` and `mean_average_precision`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub labels: Option<String> => optional.or_null(),
        /// How answers are judged.
        #[serde(rename = "match")]
        pub matching: MatchSpec => required.named("match"),
    }
}

record! {
    /// How the outputs of the sinks are judged: by one of `value`, `mean_average_precision`, `cosine` and `command`.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct MatchSpec {
        /// Output that must equal a label's `value`. If it has floats of the shape [rows, classes], the class with the
        /// highest one counts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub value: Option<String> => optional.or_null(),
        /// Output that must be near a label's `at`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub at: Option<String> => optional.or_null(),
        /// The largest distance, in the unit of the positions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub within: Option<f64> => optional.or_null(),
        /// The label may be any of so many classes with the highest numbers; default 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub top: Option<u32> => optional.or_null(),
        /// Boxes, which are compared with those of the labels.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub mean_average_precision: Option<BoxMatchSpec> => optional.or_null(),
        /// Output that is compared with that of the largest variants, by the cosine of the angle between its rows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cosine: Option<String> => optional.or_null(),
        /// Program with its arguments that reads `outputs` as lines of JSON and prints the accuracy.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub command: Vec<String> => optional,
        /// Outputs for the command.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub outputs: Vec<String> => optional,
        /// Longest time of the command for one combination of variants; default 60.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub timeout_s: Option<f64> => optional.or_null(),
    }
}

record! {
    /// The output tensors of the sinks that are boxes.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct BoxMatchSpec {
        /// Output with the corners: left, top, right, bottom.
        pub boxes: String => required,
        /// Output with one score for each box.
        pub scores: String => required,
        /// Output with one class for each box, which must equal a label's `value`. Without it all boxes are of one class.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub classes: Option<String> => optional.or_null(),
        /// Smallest overlap with a label, as intersection over union; default 0.5.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub iou: Option<f64> => optional.or_null(),
    }
}

/// What is wrong with a validation set, whatever its files have. The pipeline is the root of the pointers.
pub(crate) fn check_validation(spec: &ValidationSpec) -> Vec<Invalid> {
    const RULES: &str = "one of value, mean_average_precision, cosine and command";
    let MatchSpec { value, at, within, top, mean_average_precision: boxes, cosine, command, outputs, timeout_s } =
        &spec.matching;
    let mut problems = Vec::new();
    let mut refuse = |key: &str, found: String, expected: &str| {
        problems.push(Invalid::new(format!("/validation/{key}"), found, expected));
    };
    let rules = [
        ("value", value.is_some()),
        ("mean_average_precision", boxes.is_some()),
        ("cosine", cosine.is_some()),
        ("command", !command.is_empty()),
    ];
    let given: Vec<&str> = rules.iter().filter(|(_, is_given)| *is_given).map(|(rule, _)| *rule).collect();
    match given[..] {
        [] => refuse("match", "no rule".to_owned(), RULES),
        [_] => {}
        _ => refuse("match", given.join(", "), RULES),
    }
    let beside = [
        ("at", at.is_some(), "value"),
        ("within", within.is_some(), "value"),
        ("top", top.is_some(), "value"),
        ("outputs", !outputs.is_empty(), "command"),
        ("timeout_s", timeout_s.is_some(), "command"),
    ];
    for (key, _, rule) in beside.iter().filter(|(_, is_given, rule)| *is_given && !given.contains(rule)) {
        refuse(&format!("match/{key}"), "given".to_owned(), &format!("this key beside {rule} only"));
    }
    if let Some(within) = within.filter(|within| *within < 0.0) {
        refuse("match/within", within.to_string(), "a number of at least 0");
    }
    if let Some(top) = top.filter(|top| !(1..=TOP_MAX).contains(top)) {
        refuse("match/top", top.to_string(), &format!("a whole number from 1 to {TOP_MAX}"));
    }
    if let Some(iou) = boxes.as_ref().and_then(|boxes| boxes.iou).filter(|iou| *iou <= 0.0 || *iou > 1.0) {
        refuse("match/mean_average_precision/iou", iou.to_string(), "a number above 0, at most 1");
    }
    if let Some(time) = timeout_s.filter(|time| *time <= 0.0 || *time > COMMAND_SECONDS_MAX) {
        refuse("match/timeout_s", time.to_string(), &format!("a number above 0, at most {COMMAND_SECONDS_MAX}"));
    }
    if !command.is_empty() && outputs.is_empty() {
        refuse("match/outputs", "missing".to_owned(), "the names of the outputs that the command gets");
    }
    if spec.labels.is_none() && (value.is_some() || boxes.is_some()) {
        refuse("labels", "missing".to_owned(), "a JSON or CSV file with the labels of the examples");
    }
    problems
}
