use super::super::find_library;
use super::*;
use apportion_needs::{Need, need};
use apportion_node::tensor::Datatype;
use bytes::Bytes;

fn library() -> Option<PathBuf> {
    need(Need::Onnx, find_library(None))
}

fn digits(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/digits/models").join(file)
}

fn tensor(name: &str, datatype: Datatype, shape: &[usize], data: Bytes) -> Tensor {
    Tensor { name: name.to_owned(), datatype, shape: shape.to_vec(), data }
}

fn blank(spec: &TensorSignature, rows: usize) -> Tensor {
    let shape: Vec<usize> = std::iter::once(rows).chain(spec.shape.iter().skip(1).map(|&d| d as usize)).collect();
    let bytes = shape.iter().product::<usize>() * spec.datatype.size();
    tensor(&spec.name, spec.datatype, &shape, Bytes::from(vec![0; bytes]))
}

fn load(library: &Path, file: &str) -> OnnxBackend {
    OnnxBackend::load(library, &digits(file), ExecutionSettings::on_cpu(THREADS_DEFAULT)).expect("the example's file loads")
}

#[test]
fn the_signature_is_the_files() {
    let Some(library) = library() else { return };
    let find = load(&library, "find-s.onnx");
    let spec =
        |name: &str, datatype, shape: &[i64]| TensorSignature { name: name.to_owned(), datatype, shape: shape.to_vec() };
    assert_eq!(find.signature().inputs, [spec("image", Datatype::Uint8, &[-1, 64, 64])]);
    let outputs = [
        spec("crops", Datatype::Uint8, &[-1, 16, 16]),
        spec("centers", Datatype::Fp32, &[-1, 2]),
        spec("parent", Datatype::Int64, &[-1]),
    ];
    assert_eq!(find.signature().outputs, outputs);
}

#[test]
fn a_batch_is_its_rows_one_by_one() {
    let Some(library) = library() else { return };
    let mut read = load(&library, "read-s.onnx");
    let pixels: Vec<u8> = (0..3 * 256).map(|i| (i * 37 % 251) as u8).collect();
    let centers: Vec<u8> = [1.5_f32, 2.5, 3.5, 4.5, 5.5, 6.5].iter().flat_map(|c| c.to_le_bytes()).collect();
    let batch = [
        tensor("center", Datatype::Fp32, &[3, 2], Bytes::from(centers)),
        tensor("image", Datatype::Uint8, &[3, 16, 16], Bytes::from(pixels)),
    ];
    let whole = read.run(&batch).expect("three rows");
    assert_eq!(whole[0].rows(), 3);
    assert_eq!(whole[1].data, batch[0].data, "the position is the centre, unchanged");
    for row in 0..3 {
        let alone = read.run(&[batch[0].row(row), batch[1].row(row)]).expect("one row");
        assert_eq!(alone, [whole[0].row(row), whole[1].row(row)]);
    }
}

#[test]
fn misaligned_bytes_are_copied() {
    let Some(library) = library() else { return };
    let mut read = load(&library, "read-s.onnx");
    let mut bytes = vec![0_u8; 4 + 8];
    let start = (bytes.as_ptr() as usize).wrapping_neg() % 4 + 1; // one past a multiple of 4
    bytes[start..start + 8].copy_from_slice(&[1.5_f32.to_le_bytes(), 2.5_f32.to_le_bytes()].concat());
    let center = Bytes::from(bytes).slice(start..start + 8);
    assert_ne!(center.as_ptr() as usize % 4, 0, "the case in question");
    let image = tensor("image", Datatype::Uint8, &[1, 16, 16], Bytes::from(vec![0; 256]));
    let outputs = read.run(&[image, tensor("center", Datatype::Fp32, &[1, 2], center.clone())]).expect("a batch");
    assert_eq!(outputs[1].data, center);
}

#[test]
fn zero_rows_give_zero_rows() {
    let Some(library) = library() else { return };
    for file in ["find-s.onnx", "read-s.onnx"] {
        let mut backend = load(&library, file);
        let inputs: Vec<Tensor> = backend.signature().inputs.iter().map(|i| blank(i, 0)).collect();
        let outputs = backend.run(&inputs).expect("an empty batch is a batch");
        assert_eq!(outputs.len(), backend.signature().outputs.len());
        assert!(outputs.iter().all(|o| o.rows() == 0 && o.data.is_empty()), "{outputs:?}");
    }
}

#[test]
fn a_batch_runs_after_a_refused_one() {
    let Some(library) = library() else { return };
    let mut read = load(&library, "read-s.onnx");
    let image = || tensor("image", Datatype::Uint8, &[1, 16, 16], Bytes::from(vec![0; 256]));
    let center = |rows: usize| tensor("center", Datatype::Fp32, &[rows, 2], Bytes::from(vec![0; 8 * rows]));
    let wide = tensor("image", Datatype::Uint8, &[1, 16, 17], Bytes::from(vec![0; 272]));
    let short = tensor("center", Datatype::Fp32, &[1, 2], Bytes::from(vec![0; 7]));
    let huge = tensor("center", Datatype::Fp32, &[usize::MAX / 2, 2], Bytes::new());
    let double = tensor("center", Datatype::Fp64, &[1, 2], Bytes::from(vec![0; 16]));
    let other = Tensor { name: "colour".to_owned(), ..image() };
    let cases = [
        (vec![image()], "center is missing"),
        (vec![image(), image(), center(1)], "image comes twice"),
        (vec![other, center(1)], "no input colour; the inputs are image, center"),
        (vec![wide, center(1)], "has the shape [-1, 16, 16]"),
        (vec![image(), short], "it has 7 bytes: expected 8"),
        (vec![image(), huge], "too large"),
        (vec![image(), double], "is FP32, not FP64"),
        (vec![image(), center(2)], "center has 2 rows, image has 1"),
    ];
    for (inputs, said) in cases {
        let error = read.run(&inputs).expect_err(said);
        assert!(matches!(&error, BackendError::Input(e) if e.to_string().contains(said)), "{error} should say {said:?}");
    }
    assert_eq!(read.run(&[image(), center(1)]).expect("a good batch").len(), 2);
}

#[test]
fn files_that_are_no_variants_are_refused() {
    let Some(library) = library() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let junk = folder.path().join("junk.onnx");
    std::fs::write(&junk, b"not a graph").expect("a file");
    for file in [junk, folder.path().join("absent.onnx"), folder.path().to_owned()] {
        let error = OnnxBackend::load(&library, &file, ExecutionSettings::on_cpu(1)).err().expect("no variant");
        assert!(matches!(&error, BackendError::Load { .. }), "{error}");
        assert!(error.to_string().contains(&file.display().to_string()), "{error}");
    }
    let copy = folder.path().join("libonnxruntime.so");
    std::fs::copy(&library, &copy).expect("a copy");
    load(&library, "read-s.onnx");
    let error =
        OnnxBackend::load(&copy, &digits("read-s.onnx"), ExecutionSettings::on_cpu(1)).err().expect("a second library");
    assert!(matches!(&error, BackendError::Runtime(m) if m.contains("already uses")), "{error}");
}

/// A field of a message in protobuf's wire format.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).expect("short")], bytes].concat()
}

/// An ONNX file that gives its input back; `element` is the number of the element type in ONNX.
fn identity(element: u8) -> Vec<u8> {
    let rows = field(1, &field(2, b"n"));
    let tensor_type = field(1, &[&[1 << 3, element][..], &field(2, &rows)].concat());
    let value = |name: &[u8]| [field(1, name), field(2, &tensor_type)].concat();
    let node = [field(1, b"x"), field(2, b"y"), field(4, b"Identity")].concat();
    let graph = [field(1, &node), field(2, b"g"), field(11, &value(b"x")), field(12, &value(b"y"))].concat();
    [&[1 << 3, 8][..], &field(7, &graph), &field(8, &[2 << 3, 16])].concat()
}

#[test]
fn texts_and_bf16_go_through_the_runtime_as_they_are() {
    let Some(library) = library() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    for (element, datatype, data) in [
        (8, Datatype::Bytes, &[2, 0, 0, 0, 0xc3, 0xa9, 0, 0, 0, 0][..]),
        (16, Datatype::Bf16, &[0x80, 0x3f, 0, 0xc0]),
        (10, Datatype::Fp16, &[0, 0x3c, 0, 0xc0]),
    ] {
        let file = folder.path().join(format!("{element}.onnx"));
        std::fs::write(&file, identity(element)).expect("writes");
        let mut backend = OnnxBackend::load(&library, &file, ExecutionSettings::on_cpu(1)).expect("loads");
        let input = tensor("x", datatype, &[2], Bytes::copy_from_slice(data));
        let outputs = backend.run(&[input]).expect("runs");
        assert_eq!((outputs[0].datatype, &outputs[0].data[..]), (datatype, data));
        assert_eq!(outputs[0].shape, [2]);
    }
    let mut backend =
        OnnxBackend::load(&library, &folder.path().join("8.onnx"), ExecutionSettings::on_cpu(1)).expect("loads");
    for data in [&[1, 0, 0, 0, 0xff][..], &[1, 0, 0, 0, 0]] {
        let error = backend.run(&[tensor("x", Datatype::Bytes, &[1], Bytes::copy_from_slice(data))]).expect_err("no text");
        assert!(error.to_string().contains("UTF-8 without a zero"), "{error}");
    }
}

#[test]
fn what_runs_on_the_cpu_says_so_node_by_node() {
    let Some(library) = library() else { return };
    for file in ["find-s.onnx", "read-s.onnx"] {
        let placed = load(&library, file).placed().clone();
        assert!(placed.nodes(Provider::Cpu.runtime_name()) > 0, "{file}: {placed:?}");
        assert_eq!(placed.elsewhere(Provider::Cpu), None, "{file}");
        assert!(placed.elsewhere(Provider::Cuda).is_some_and(|e| e.contains("on CPUExecutionProvider")), "{file}");
    }
}

/// With the CPU's library the provider is not there; with CUDA's, its own libraries or the device are not. Where all is
/// there, the nodes run on it.
#[test]
fn cuda_is_never_replaced_by_the_cpu() {
    let Some(library) = library() else { return };
    let running = ExecutionSettings { provider: Provider::Cuda, device: 0, threads: 1 };
    let file = digits("read-s.onnx");
    match OnnxBackend::load(&library, &file, running) {
        Ok(backend) => assert!(backend.placed().nodes(Provider::Cuda.runtime_name()) > 0, "{:?}", backend.placed()),
        Err(error) => {
            let text = error.to_string();
            let says =
                [&file.display().to_string(), "CUDAExecutionProvider on device 0", "built with: CPUExecutionProvider"];
            assert!(says.iter().all(|s| text.contains(s)), "{text}");
            assert!(text.contains("scripts/setup cuda") && text.contains("--provider cpu"), "{text}");
            assert!(matches!(error, BackendError::Provider { .. }));
        }
    }
}
