use super::*;

fn spec(name: &str, datatype: Datatype, shape: &[i64]) -> TensorSignature {
    TensorSignature { name: name.into(), datatype, shape: shape.to_vec() }
}

fn floats(name: &str, values: &[f32]) -> Tensor {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Tensor { name: name.into(), datatype: Datatype::Fp32, shape: vec![values.len(), 1], data: data.into() }
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Counts to `x`, one each step, and is done then; below zero it fails.
struct Counter(Signature);

impl Counter {
    fn signed() -> Signature {
        Signature {
            inputs: vec![spec("x", Datatype::Fp32, &[-1, 1]), spec("past.count", Datatype::Fp32, &[-1, 1])],
            outputs: vec![
                spec("answer", Datatype::Fp32, &[-1, 1]),
                spec("present.count", Datatype::Fp32, &[-1, 1]),
                spec("done", Datatype::Bool, &[-1, 1]),
            ],
        }
    }
}

impl Backend for Counter {
    fn signature(&self) -> &Signature {
        &self.0
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let [goals, counts] = [values(&inputs[0]), values(&inputs[1])];
        if goals.iter().any(|goal| *goal < 0.0) {
            return Err(BackendError::Run("below zero".to_owned()));
        }
        let counts: Vec<f32> = counts.iter().map(|count| count + 1.0).collect();
        let done: Vec<u8> = goals.iter().zip(&counts).map(|(goal, count)| u8::from(count >= goal)).collect();
        let done = Tensor { name: DONE.into(), datatype: Datatype::Bool, shape: vec![done.len(), 1], data: done.into() };
        Ok(vec![floats("answer", &counts), floats("present.count", &counts), done])
    }
}

fn counter() -> SteppedBackend {
    SteppedBackend::new(Box::new(Counter(Counter::signed()))).expect("it has state")
}

/// What ended at a step: slots with their answers, none if they failed.
fn ended(backend: &mut SteppedBackend, running: &mut Vec<SteppedQuery>) -> Vec<(u32, Option<f32>)> {
    let answer = |end: EndedQuery| (end.slot, end.result.ok().map(|outputs| values(&outputs[0])[0]));
    backend.step(running).into_iter().map(answer).collect()
}

#[test]
fn queries_join_and_leave_between_steps() {
    let mut backend = counter();
    let mut running = vec![backend.begin(0, &[floats("x", &[3.0])]).expect("a query")];
    assert_eq!(ended(&mut backend, &mut running), []);
    running.push(backend.begin(1, &[floats("x", &[1.0])]).expect("a query"));
    assert_eq!(ended(&mut backend, &mut running), [(1, Some(1.0))], "the later query leaves first");
    running.push(backend.begin(1, &[floats("x", &[2.0])]).expect("its slot is free"));
    assert_eq!(ended(&mut backend, &mut running), [(0, Some(3.0))]);
    assert_eq!(ended(&mut backend, &mut running), [(1, Some(2.0))]);
    assert!(running.is_empty());
}

#[test]
fn a_query_that_fails_harms_no_other() {
    let mut backend = counter();
    let begin = |slot, x| counter().begin(slot, &[floats("x", &[x])]).expect("a query");
    let mut running = vec![begin(0, 1.0), begin(1, -1.0), begin(2, 1.0)];
    assert_eq!(ended(&mut backend, &mut running), [(0, Some(1.0)), (1, None), (2, Some(1.0))]);
}

#[test]
fn a_query_without_an_end_fails_at_the_limit() {
    let mut backend = counter();
    let mut running = vec![backend.begin(0, &[floats("x", &[f32::INFINITY])]).expect("a query")];
    for step in 1..STEPS_MAX {
        assert_eq!(ended(&mut backend, &mut running), [], "step {step}");
    }
    let last = backend.step(&mut running).pop().expect("the limit");
    let why = last.result.expect_err("no end").to_string();
    assert!(why.contains("no end after 4096 steps"), "{why}");
    assert!(running.is_empty());
}

#[test]
fn a_whole_batch_is_its_queries() {
    let outputs = counter().run(&[floats("x", &[3.0, 1.0, 2.0])]).expect("a batch");
    assert_eq!(outputs, [floats("answer", &[3.0, 1.0, 2.0])]);
    assert_eq!(counter().run(&[floats("x", &[])]).expect("no rows")[0].rows(), 0);
}

/// What is wrong with a signature.
type SignatureChange = fn(&mut Signature);

#[test]
fn models_that_cannot_be_stepped_are_refused_with_the_cure() {
    let refused = |change: SignatureChange| {
        let mut signature = Counter::signed();
        change(&mut signature);
        SteppedBackend::new(Box::new(Counter(signature))).err().expect("a refusal")
    };
    let count = || SteppingError::State { name: "count".into() };
    let cases: [(SignatureChange, SteppingError); 7] = [
        (|s| s.outputs[1].shape = vec![-1, 2], count()),
        (|s| drop(s.outputs.remove(1)), count()),
        (|s| drop(s.inputs.remove(1)), count()),
        (|s| (s.inputs[1].name, s.outputs[1].name) = ("a".into(), "b".into()), SteppingError::NoState),
        (|s| s.outputs[2].datatype = Datatype::Fp32, SteppingError::Done),
        (|s| drop(s.inputs.remove(0)), SteppingError::Empty),
        (|s| s.outputs[0].name = PARENT.into(), SteppingError::Rows(PARENT.into())),
    ];
    for (change, expected) in cases {
        assert_eq!(refused(change), expected);
    }
}
