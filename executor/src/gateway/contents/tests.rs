use super::super::inference::inputs;
use super::super::proto::model_infer_request::InferRequestedOutputTensor;
use super::super::refusal::GatewayRefusal;
use super::*;
use apportion_node::tensor::{TensorSignature, holds};
use proptest::prelude::*;
use prost::Message;

fn input(datatype: &str, shape: &[i64], contents: Option<InferTensorContents>) -> InferInputTensor {
    InferInputTensor {
        name: "x".into(),
        datatype: datatype.into(),
        shape: shape.to_vec(),
        contents,
        ..InferInputTensor::default()
    }
}

fn request(input: InferInputTensor, raw: &[&'static [u8]]) -> ModelInferRequest {
    let raw_input_contents = raw.iter().map(|r| Bytes::from_static(r)).collect();
    ModelInferRequest { inputs: vec![input], raw_input_contents, ..ModelInferRequest::default() }
}

fn tensors(message: ModelInferRequest, datatype: Datatype) -> Result<Vec<Tensor>, GatewayRefusal> {
    let spec = TensorSignature { name: "x".into(), datatype, shape: vec![-1] };
    Ok(inputs(read(message)?.inputs, &[spec])?)
}

/// The line that the client reads.
fn refused(message: ModelInferRequest) -> String {
    GatewayRefusal::from(read(message).err().expect("a refusal")).error
}

fn choice(value: ParameterChoice) -> InferParameter {
    InferParameter { parameter_choice: Some(value) }
}

#[test]
fn what_is_wrong_is_named_with_what_is_expected() {
    let ints = |all: &[i32]| Some(InferTensorContents { int_contents: all.to_vec(), ..Default::default() });
    let cases = [
        (request(input("INT8", &[1], ints(&[200])), &[]), Datatype::Int8, "200 does not fit INT8"),
        (request(input("INT32", &[2], ints(&[1])), &[]), Datatype::Int32, "1 elements: expected 2"),
        (request(input("FP32", &[1], ints(&[1])), &[]), Datatype::Fp32, "int_contents hold something: expected fp32"),
        (request(input("FP16", &[1], ints(&[1])), &[]), Datatype::Fp16, "raw_input_contents"),
        (request(input("INT32", &[1], None), &[]), Datatype::Int32, "0 elements: expected 1"),
        (request(input("INT32", &[1], ints(&[1])), &[&[1, 0, 0, 0]]), Datatype::Int32, "both"),
        (request(input("INT32", &[1], None), &[&[1], &[2]]), Datatype::Int32, "2 tensors: expected 1"),
        (request(input("INT32", &[1], None), &[&[1]]), Datatype::Int32, "1 bytes: expected 4"),
    ];
    for (message, datatype, expected) in cases {
        let error = tensors(message, datatype).expect_err(expected).error;
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let mut long = request(input("INT32", &[1], ints(&[1])), &[]);
    long.id = "i".repeat(ID_BYTES_MAX + 1);
    assert!(refused(long).contains("id: 1025"));
}

#[test]
fn parameters_and_outputs_are_read() {
    let mut message = request(input("UINT8", &[1], None), &[&[1]]);
    message.parameters.insert("timeout".into(), choice(ParameterChoice::Int64Param(7)));
    message.parameters.insert("priority".into(), choice(ParameterChoice::Uint64Param(1)));
    message.outputs.push(InferRequestedOutputTensor { name: "o".into(), ..Default::default() });
    let read_back = read(message.clone()).expect("valid");
    assert_eq!(
        read_back.settings,
        RequestParameters { timeout_ns: Some(7_000), priority: 1, ..RequestParameters::default() }
    );
    assert_eq!((read_back.outputs[0].name.as_str(), read_back.form), ("o", ElementForm::Raw));
    let mut wrong = message.clone();
    wrong.parameters.insert("timeout".into(), choice(ParameterChoice::StringParam("soon".into())));
    assert!(refused(wrong).contains("microseconds"));
    let mut wrong = message.clone();
    wrong.parameters.insert("mine".into(), InferParameter { parameter_choice: None });
    assert!(refused(wrong).contains("mine has no value"));
    let mut wrong = message.clone();
    wrong.outputs[0].parameters.insert("classification".into(), choice(ParameterChoice::Int64Param(3)));
    assert!(refused(wrong).contains("output o: parameter classification"));
    message.inputs[0].parameters.insert("shared_memory_region".into(), choice(ParameterChoice::StringParam("r".into())));
    assert!(refused(message).contains("input x: parameter shared_memory_region"));
}

proptest! {
    #[test]
    fn typed_contents_are_the_same_elements_as_raw_ones(data in proptest::collection::vec(any::<u8>(), 1..64)) {
        for datatype in Datatype::ALL {
            let count = data.len() / datatype.size();
            let mut data = data[..count * datatype.size()].to_vec();
            if datatype == Datatype::Bool {
                data.iter_mut().for_each(|b| *b &= 1);
            }
            if datatype == Datatype::Bytes {
                data = join(data.chunks(3)).expect("short");
            }
            let count = if datatype == Datatype::Bytes { apportion_node::tensor::texts(&data).count() } else { count };
            if count == 0 {
                continue;
            }
            prop_assert_eq!(holds(&data, &[count], datatype), Ok(()));
            let tensor = Tensor { name: "x".into(), datatype, shape: vec![count], data: data.into() };
            let Some(contents) = typed(&tensor) else {
                prop_assert!(matches!(datatype, Datatype::Fp16 | Datatype::Bf16));
                continue;
            };
            let message = request(input(datatype.name(), &[count as i64], Some(contents)), &[]);
            let decoded = ModelInferRequest::decode(&message.encode_to_vec()[..]).expect("a message");
            prop_assert_eq!(tensors(decoded, datatype), Ok(vec![tensor.clone()]));
            let (outputs, raws) = write(vec![tensor.clone()], ElementForm::Typed);
            prop_assert!(raws.is_empty() && outputs[0].contents.is_some());
            let (outputs, raws) = write(vec![tensor.clone()], ElementForm::Raw);
            prop_assert!(outputs[0].contents.is_none());
            prop_assert_eq!(&raws[0], &tensor.data);
        }
    }

    #[test]
    fn any_message_is_read_or_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(message) = ModelInferRequest::decode(&bytes[..]) {
            let _either = read(message);
        }
    }

    #[test]
    fn a_damaged_message_is_no_panic(at in 0usize..200, value in any::<u8>(), raw in any::<bool>()) {
        let contents = InferTensorContents { bytes_contents: vec![b"ab".to_vec(), vec![]], ..Default::default() };
        let mut message = request(input("BYTES", &[2], (!raw).then_some(contents)), if raw { &[b"\x01\0\0\0a\0\0\0\0"] } else { &[] });
        message.parameters.insert("timeout".into(), choice(ParameterChoice::Int64Param(7)));
        let mut bytes = message.encode_to_vec();
        let len = bytes.len();
        bytes[at % len] = value;
        if let Ok(message) = ModelInferRequest::decode(&bytes[..]) {
            let _either = tensors(message, Datatype::Bytes);
        }
    }
}
