//! How is the draft of a pipeline written, with comments for its reader?

use super::edges::DraftEdge;
use super::sizes::kib_per_query;
use super::stages::DraftStage;
use crate::graph::GraphTensor;
use std::fmt::Write as _;

/// The objective of a draft, in milliseconds.
const SLO_MS: u32 = 500;

/// The pipeline file.
pub(super) fn write(name: &str, stages: &[DraftStage<'_>], edges: &[DraftEdge]) -> String {
    let mut text = String::from("# A draft by `apportion init`. Each \"decide\" is a choice that the files do not make.\n");
    let mut line = |indent: usize, content: String| {
        writeln!(text, "{:indent$}{content}", "", indent = indent).expect("text does not fail");
    };
    line(0, format!("name: {}", scalar(name)));
    line(0, format!("slo_ms: {SLO_MS}   # decide: within how many milliseconds a request must be answered"));
    line(0, "percentile: 99   # decide: how many percent of the requests".to_owned());
    let sizes: Vec<Option<f64>> = stages.iter().map(|stage| kib_per_query(&stage.inputs)).collect();
    if let Some(kib) = sizes.first().copied().flatten() {
        line(0, format!("ingress_kib_per_query: {kib}   # the inputs of one request"));
    }
    if sizes.iter().any(Option::is_some) {
        line(0, "# network_ms_per_mib: 8.4   # decide: time of the network for each MiB; 8.4 ms at 1 Gbit/s".to_owned());
    }
    line(0, "tasks:".to_owned());
    for stage in stages {
        line(2, format!("- name: {}", scalar(&stage.name)));
        if stage.is_continuous {
            line(4, "kind: continuous   # a query steps in a slot until `done`".to_owned());
        }
        line(4, format!("# in: {}", listed(&stage.inputs)));
        line(4, format!("# out: {}", listed(&stage.outputs)));
        line(4, "variants:".to_owned());
        for file in &stage.files {
            line(6, format!("- {{name: {}, model: {}}}", scalar(&file.variant()), scalar(&file.path)));
        }
    }
    if !edges.is_empty() {
        line(0, "edges:   # child input: parent output".to_owned());
    }
    for edge in edges {
        let (from, to) = (scalar(&stages[edge.from].name), scalar(&stages[edge.to].name));
        let pair =
            |(input, output): &(String, Option<String>)| Some(format!("{}: {}", scalar(input), scalar(output.as_ref()?)));
        let map: Vec<String> = edge.map.iter().filter_map(pair).collect();
        let size = sizes[edge.to].map_or_else(String::new, |kib| format!("kib_per_query: {kib}, "));
        line(2, format!("- {{from: {from}, to: {to}, {size}map: {{{}}}}}", map.join(", ")));
        for (input, _) in edge.map.iter().filter(|(_, output)| output.is_none()) {
            line(4, format!("# decide: which output of {from} is the input {}", comment(input)));
        }
    }
    line(0, "# decide: labelled examples, or an `accuracy` of each variant: 1 if all are equally good".to_owned());
    line(0, "# validation:".to_owned());
    let arrays = stages
        .first()
        .map_or(&[][..], |s| s.inputs.as_slice())
        .iter()
        .map(|i| format!("{}: {}.npy", scalar(&i.name), comment(&i.name)));
    line(
        0,
        format!("#   inputs: {{{}}}   # the first dimension counts the examples", arrays.collect::<Vec<_>>().join(", ")),
    );
    line(0, "#   labels: labels.json   # for each example its value, or a list of {\"value\": ..}".to_owned());
    let value = stages.last().and_then(|s| s.outputs.first()).map_or_else(String::new, |o| scalar(&o.name));
    line(0, format!("#   match: {{value: {value}}}   # the output that must equal a label's value"));
    text
}

fn listed(tensors: &[GraphTensor]) -> String {
    comment(&tensors.iter().map(GraphTensor::to_string).collect::<Vec<_>>().join("; "))
}

/// Text within one line of a comment.
pub(crate) fn comment(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}

/// Text as a scalar of YAML: as it is where it can only be read as text, else quoted.
pub fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || ['-', '_', '.', '/'].contains(&c))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_lowercase().as_str());
    if is_plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}
