use super::*;
use crate::gateway::proto::{InferTensorContents, ModelInferRequest};
use proptest::prelude::*;
use prost::Message;

fn input(name: &str, shape: Vec<i64>, contents: InferTensorContents) -> InferInputTensor {
    InferInputTensor { name: name.into(), shape, contents: Some(contents), ..Default::default() }
}

/// What a decoded request takes, counted the obvious way.
fn oracle(request: &ModelInferRequest) -> RequestSize {
    let names = |r: &InferInputTensor| r.name.len() + r.datatype.len() + 8 * r.shape.len();
    let elements = |c: &InferTensorContents| {
        let texts: usize = c.bytes_contents.iter().map(|t| t.len() + TEXT_BYTES).sum();
        let small = c.bool_contents.len() + 4 * (c.int_contents.len() + c.uint_contents.len() + c.fp32_contents.len());
        small + 8 * (c.int64_contents.len() + c.uint64_contents.len() + c.fp64_contents.len()) + texts
    };
    let inputs: usize = request.inputs.iter().map(|i| INPUT_BYTES + names(i)).sum();
    let raws = RAW_BYTES * request.raw_input_contents.len();
    let envelope = request.model_name.len() + request.id.len() + inputs + raws;
    RequestSize { envelope, typed: request.inputs.iter().filter_map(|i| i.contents.as_ref()).map(elements).sum() }
}

#[test]
fn thirty_million_empty_inputs_are_refused_after_a_few_thousand() {
    let bomb: Vec<u8> = [0x2a, 0x00].repeat(30_000_000);
    assert!(request(&bomb).expect_err("a bomb").to_string().contains("fewer inputs"));
}

#[test]
fn each_kind_of_bomb_is_refused() {
    let field = |number: u8, inside: &[u8]| {
        let mut all = vec![number << 3 | 2];
        prost::encoding::encode_varint(inside.len() as u64, &mut all);
        all.extend_from_slice(inside);
        all
    };
    let of_input = |inside: &[u8]| field(5, inside);
    let many = |inside: &[u8]| inside.repeat(4_000_000);
    let bombs = [
        ("texts", of_input(&field(5, &many(&[0x42, 0x00]))), "raw_input_contents"),
        ("packed numbers", of_input(&field(5, &field(3, &vec![0; 20_000_000]))), "raw_input_contents"),
        ("single numbers", of_input(&field(5, &[0x18, 0x00].repeat(10_000_000))), "raw_input_contents"),
        ("dimensions", of_input(&field(3, &vec![0; 1_000_000])), "fewer inputs"),
        ("parameters of an input", of_input(&many(&[0x22, 0x00])), "fewer inputs"),
        ("parameters", many(&[0x22, 0x00]), "fewer inputs"),
        ("outputs", many(&[0x32, 0x00]), "fewer inputs"),
        ("raw inputs", many(&[0x3a, 0x00]), "fewer inputs"),
        ("a long name", field(1, &vec![b'x'; 2_000_000]), "fewer inputs"),
        ("an unknown field", field(9, &vec![0; 2_000_000]), "fewer inputs"),
        ("a group", vec![0x2b, 0x2c], "malformed"),
        ("half a message", vec![0x2a, 0x05, 0x00], "malformed"),
    ];
    for (name, bytes, expected) in bombs {
        let error = request(&bytes).expect_err(name).to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
}

#[test]
fn a_large_raw_tensor_is_no_bomb() {
    let raw = vec![vec![7; BODY_BYTES_MAX].into()];
    let inputs = vec![input("x", vec![1, BODY_BYTES_MAX as i64], InferTensorContents::default())];
    let message = ModelInferRequest { inputs, raw_input_contents: raw, ..Default::default() };
    assert_eq!(request(&message.encode_to_vec()), Ok(oracle(&message)));
}

proptest! {
    #[test]
    fn what_is_counted_is_what_is_decoded(names in proptest::collection::vec("[a-z]{0,9}", 0..4),
                                          whole in proptest::collection::vec(any::<i64>(), 0..9),
                                          small in proptest::collection::vec(any::<i32>(), 0..9),
                                          reals in proptest::collection::vec(any::<f32>(), 0..9),
                                          texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..9)) {
        let contents = InferTensorContents {
            int64_contents: whole.clone(),
            int_contents: small,
            fp32_contents: reals,
            bytes_contents: texts.clone(),
            ..Default::default()
        };
        let inputs: Vec<_> = names.iter().map(|n| input(n, whole.clone(), contents.clone())).collect();
        let raws = texts.into_iter().map(Into::into).collect();
        let message = ModelInferRequest { model_name: "p".into(), inputs, raw_input_contents: raws, ..Default::default() };
        prop_assert_eq!(request(&message.encode_to_vec()), Ok(oracle(&message)));
    }

    #[test]
    fn whatever_is_accepted_decodes_to_what_was_counted(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let (Ok(taken), Ok(message)) = (request(&bytes), ModelInferRequest::decode(&bytes[..])) {
            let real = oracle(&message);
            prop_assert!(taken.typed >= real.typed && taken.envelope + 24 >= real.envelope, "{:?} {:?}", taken, real);
        }
    }
}
