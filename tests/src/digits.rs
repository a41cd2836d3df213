//! Pipelines of one task, `read`, whose variants are files of examples/digits.

use crate::cluster::HARDWARE;
use serde_json::{Value, json};

/// Pixels on a side of the images that `read` takes.
pub const CROP: usize = 16;

/// A variant's name, the digest of its file and its accuracy.
pub type Variant<'a> = (&'a str, &'a str, f64);

/// A model file of the digits example.
///
/// # Panics
/// If there is none of this name.
#[must_use]
pub fn model(file: &str) -> Vec<u8> {
    let path = crate::machine::root().join("examples/digits/models").join(file);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A pipeline whose task has these variants; the fields of `more` are added to it.
#[must_use]
pub fn pipeline(name: &str, variants: &[Variant<'_>], more: &Value) -> Value {
    let tensor = |name: &str, datatype: &str, rest: &[i64]| {
        let shape = [&[-1], rest].concat();
        json!({"name": name, "datatype": datatype, "shape": shape})
    };
    let crop = CROP as i64;
    let variant = |(name, digest, _): &Variant<'_>| json!({"name": name, "model_digest": digest, "load_ms": 100.0});
    let task = json!({
        "name": "read",
        "inputs": [tensor("image", "UINT8", &[crop, crop]), tensor("center", "FP32", &[2])],
        "outputs": [tensor("label", "INT64", &[]), tensor("position", "FP32", &[2])],
        "variants": variants.iter().map(variant).collect::<Vec<_>>(),
    });
    let mut pipeline = json!({"name": name, "slo_ms": 2_000.0, "tasks": [task]});
    for (key, value) in more.as_object().into_iter().flatten() {
        pipeline[key] = value.clone();
    }
    pipeline
}

/// The profile (CSV) of such a pipeline.
#[must_use]
pub fn profile(pipeline: &str, variants: &[Variant<'_>]) -> String {
    let mut csv = "pipeline,task,variant,hardware,batch_size,latency_ms,accuracy\n".to_owned();
    for (name, _, accuracy) in variants {
        for (batch, latency_ms) in [(1, 5.0), (4, 8.0)] {
            csv += &format!("{pipeline},read,{name},{HARDWARE},{batch},{latency_ms},{accuracy}\n");
        }
    }
    csv
}

/// The `inputs` of a request of one image.
#[must_use]
pub fn inputs() -> Value {
    json!([
        {"name": "image", "datatype": "UINT8", "shape": [1, CROP, CROP], "data": vec![0; CROP * CROP]},
        {"name": "center", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]},
    ])
}
