//! A photo in, texts out: a detector in Python, transforms on the edge, a reader of ONNX, and a decoded text.

use apportion_needs::{Need, clients, need};
use apportion_profiler::{Backend as _, Datatype, ExecutionSettings, OnnxBackend, Tensor, find_library};
use apportion_tests::backend::Backend;
use apportion_tests::cluster::{Cluster, HARDWARE};
use apportion_tests::{programs, root};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Pixels on a side of a digit, and of a cell of a photo.
const CELL: usize = 16;
/// Cells of a photo.
const ROWS: usize = 2;
const COLUMNS: usize = 3;
/// Pixels on a side of a validation canvas.
const CANVAS: usize = 64;

/// Finds the cells of a photo that are not black. A photo that begins with 255 ends the process.
const DETECTOR: &str = r#"
import os
import numpy as np

INPUTS = {"photo": ("UINT8", [-1, 32, 48])}
OUTPUTS = {"boxes": ("FP32", [-1, 4]), "parent": ("INT64", [-1])}


def run(inputs):
    photos = inputs["photo"]
    if (photos[:, 0, 0] == 255).any():
        os._exit(9)
    cells = photos.reshape(len(photos), 2, 16, 3, 16).max(axis=(2, 4))
    parent, row, column = np.nonzero(cells)
    corner = np.stack([column, row], axis=1) * 16
    boxes = np.concatenate([corner, corner + 16], axis=1).astype("f4")
    return {"boxes": boxes, "parent": parent.astype("i8")}
"#;

const PIPELINE: &str = r#"
name: signs
slo_ms: 4000
tasks:
  - name: find
    variants: [{name: cells, python: find.py}]
  - name: read
    after:
      - decode_text: {of: label, to: text, alphabet_file: digits.txt, decoding: argmax}
      - keep: {tensors: [text, position]}
    variants: [{name: read-l, model: MODELS/read-l.onnx}]
edges:
  - from: find
    to: read
    map: {image: patch, center: corner}
    transform:
      - crop: {boxes: boxes, of: photo, to: patch, size: [16, 16]}
      - slice: {of: boxes, to: corner, axis: 1, until: 2}
validation:
  inputs: {photo: photos.npy}
  labels: labels.json
  match: {value: text, at: position, within: 0.5}
"#;

/// Digits of the validation canvases: the pixels around labels that lie inside.
fn digits(count: usize) -> Vec<Vec<u8>> {
    let folder = root().join("examples/digits/validation");
    let bytes = std::fs::read(folder.join("image.npy")).expect("canvases");
    let canvases = &bytes[10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]))..];
    let labels: Value = serde_json::from_slice(&std::fs::read(folder.join("labels.json")).expect("labels")).expect("JSON");
    let mut found = Vec::new();
    for (canvas, labels) in canvases.chunks_exact(CANVAS * CANVAS).zip(labels.as_array().expect("a list")) {
        for label in labels.as_array().expect("a list") {
            let start = |axis: usize| label["at"][axis].as_f64().expect("a number") as usize;
            let (Some(left), Some(top)) = (start(0).checked_sub(7), start(1).checked_sub(7)) else { continue };
            if left + CELL <= CANVAS && top + CELL <= CANVAS {
                let row = |y: usize| canvas[(top + y) * CANVAS + left..][..CELL].to_vec();
                found.push((0..CELL).flat_map(row).collect());
            }
        }
    }
    found.truncate(count);
    found
}

/// A photo with these digits in these cells.
fn photo(digits: &[(usize, &Vec<u8>)]) -> Vec<u8> {
    let mut pixels = vec![0; ROWS * COLUMNS * CELL * CELL];
    for (cell, digit) in digits {
        let (top, left) = (cell / COLUMNS * CELL, cell % COLUMNS * CELL);
        for (y, row) in digit.chunks_exact(CELL).enumerate() {
            pixels[(top + y) * COLUMNS * CELL + left..][..CELL].copy_from_slice(row);
        }
    }
    pixels
}

/// What the reader says of these digits, asked directly.
fn read_directly(library: &Path, digits: &[Vec<u8>]) -> Vec<i64> {
    let file = root().join("examples/digits/models/read-l.onnx");
    let mut backend = OnnxBackend::load(library, &file, ExecutionSettings::on_cpu(1)).expect("it loads");
    let image = Tensor {
        name: "image".into(),
        datatype: Datatype::Uint8,
        shape: vec![digits.len(), CELL, CELL],
        data: digits.concat().into(),
    };
    let data = vec![0; 8 * digits.len()].into();
    let center = Tensor { name: "center".into(), datatype: Datatype::Fp32, shape: vec![digits.len(), 2], data };
    let outputs = backend.run(&[image, center]).expect("a batch");
    outputs[0].data.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect()
}

/// Writes all files of the pipeline: two photos, with four and two digits.
fn write_pipeline(folder: &Path, photos: &[Vec<u8>], labels: &Value) {
    let write = |name: &str, content: &[u8]| std::fs::write(folder.join(name), content).expect("written");
    let models = root().join("examples/digits/models").display().to_string();
    write("signs.yaml", PIPELINE.replace("MODELS", &models).as_bytes());
    write("find.py", DETECTOR.as_bytes());
    write("digits.txt", b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    write("labels.json", labels.to_string().as_bytes());
    let shape = format!("({}, {}, {})", photos.len(), ROWS * CELL, COLUMNS * CELL);
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}");
    let mut npy = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    npy.extend(format!("{header:<117}\n").bytes());
    npy.extend(photos.concat());
    write("photos.npy", &npy);
}

/// Runs `apportion` in a folder; its stdout.
async fn apportion(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(programs().join("apportion"));
    command.args(arguments).current_dir(folder);
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("it ends").expect("it runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// The answer to these photos, with its status.
async fn ask(cluster: &Cluster, photos: &[Vec<u8>]) -> (u16, Value) {
    let shape = [photos.len(), ROWS * CELL, COLUMNS * CELL];
    let input = json!({"name": "photo", "datatype": "UINT8", "shape": shape, "data": photos.concat()});
    let url = format!("{}/v2/models/signs/infer", cluster.ingress(0));
    let answer = cluster.client().post(url).json(&json!({"inputs": [input]})).send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

/// The texts of an answer with their places, in the order of places.
fn texts(answer: &Value) -> Vec<(i64, i64, String)> {
    let output = |name: &str| {
        let outputs = answer["outputs"].as_array().expect("outputs");
        let found = outputs.iter().find(|output| output["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {answer}"))["data"].as_array().expect("data").clone()
    };
    let (texts, places) = (output("text"), output("position"));
    let number = |value: &Value| value.as_f64().expect("a number") as i64;
    let row = |(text, at): (&Value, &[Value])| (number(&at[1]), number(&at[0]), text.as_str().expect("a text").to_owned());
    let mut rows: Vec<_> = texts.iter().zip(places.chunks_exact(2)).map(row).collect();
    rows.sort_unstable();
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_photo_becomes_the_texts_on_it() {
    let (Some(python), Some(library)) = (clients(), need(Need::Onnx, find_library(None))) else { return };
    let digits = digits(6);
    assert_eq!(digits.len(), 6);
    let known = read_directly(&library, &digits);
    let cells = [0, 2, 3, 5, 1, 4];
    let photos = [
        photo(&[(cells[0], &digits[0]), (cells[1], &digits[1]), (cells[2], &digits[2]), (cells[3], &digits[3])]),
        photo(&[(cells[4], &digits[4]), (cells[5], &digits[5])]),
    ];
    assert!(photos.iter().all(|photo| photo[0] != 255), "no photo ends the process by itself");
    let place = |cell: usize| (cell / COLUMNS * CELL, cell % COLUMNS * CELL);
    let label = |i: usize| json!({"value": known[i], "at": [place(cells[i]).1, place(cells[i]).0]});
    let labels = json!([[label(0), label(1), label(2), label(3)], [label(4), label(5)]]);
    let folder = tempfile::tempdir().expect("a folder");
    write_pipeline(folder.path(), &photos, &labels);
    let expected = |of: std::ops::Range<usize>| {
        let row = |i: usize| (place(cells[i]).0 as i64, place(cells[i]).1 as i64, known[i].to_string());
        let mut rows: Vec<_> = of.map(row).collect();
        rows.sort_unstable();
        rows
    };

    let cluster = Cluster::start_with(1, 2, Backend::Onnx).await;
    let (url, python) = (cluster.service(), python.display().to_string());
    let arguments = ["profile", "signs.yaml", "--hardware", HARDWARE, "--batch-max", "2", "--register", &url];
    let more = ["--python", &python, "--format", "json", "--out", "problem.json"];
    let out = apportion(folder.path(), &[&arguments[..], &more].concat()).await;
    let profile: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(profile["path_accuracy"]["find:cells>read:read-l"], json!(1.0), "{profile:#}");
    let names = |list: &Value| {
        list.as_array().into_iter().flatten().map(|t| t["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&profile["tasks"][0]["outputs"]), ["read.corner", "read.patch", "parent"]);
    assert_eq!(names(&profile["tasks"][0]["model_outputs"]), ["boxes", "parent"]);
    assert_eq!(names(&profile["tasks"][1]["outputs"]), ["position", "text"]);
    let registered = cluster.get("/v1/pipelines/signs").await;
    let variant = &registered["tasks"][0]["variants"][0];
    assert_eq!((&variant["runtime"], variant["python"].is_null()), (&json!("python"), true), "{registered:#}");
    apportion(folder.path(), &["plan", "problem.json", "--demand", "signs=2"]).await;

    apportion(folder.path(), &["deploy", "signs", "--qps", "2", "--server", &url]).await;
    cluster.ready("signs").await;
    let (status, answer) = ask(&cluster, &photos[..1]).await;
    assert_eq!((status, texts(&answer)), (200, expected(0..4)), "{answer}");
    let (status, answer) = ask(&cluster, &photos).await;
    let mut all = [expected(0..4), expected(4..6)].concat();
    all.sort_unstable();
    assert_eq!((status, texts(&answer)), (200, all), "{answer}");

    // A request that ends the process fails alone: the process is started again for the next one.
    let mut deadly = photos[1].clone();
    deadly[0] = 255;
    let (status, answer) = ask(&cluster, &[deadly]).await;
    assert!(status >= 500 && answer.to_string().contains("its process has ended"), "{status}: {answer}");
    let (status, answer) = ask(&cluster, &photos[1..]).await;
    assert_eq!((status, texts(&answer)), (200, expected(4..6)), "{answer}");
}
