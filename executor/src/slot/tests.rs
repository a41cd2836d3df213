use super::*;
use crate::backend::{BackendError, DONE, Signature};
use apportion_domain::{Provider, VariantExecution};
use apportion_node::layout::{LayoutGroup, LayoutPipeline, LayoutTask, lay_out};
use apportion_node::tensor::{Datatype, TensorSignature};
use apportion_protocol::v1;
use std::sync::mpsc::Receiver;
use std::thread::ThreadId;

/// Says in which thread its batches run, and takes so long for each.
struct Telling {
    signature: Signature,
    threads: mpsc::Sender<ThreadId>,
    takes: Duration,
}

impl Backend for Telling {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        self.threads.send(std::thread::current().id()).expect("the test listens");
        wait_until(Instant::now() + self.takes);
        Ok(inputs.to_vec())
    }
}

/// A pipeline of one task without tensors and one group.
fn pipeline() -> Arc<LayoutPipeline> {
    let group = v1::GroupTarget {
        group: 1,
        batch: 4,
        service: vec![v1::ServicePoint { batch: 1, latency_ns: 10, ..Default::default() }],
        ..Default::default()
    };
    let task = v1::TaskTarget { name: "a".into(), ..Default::default() };
    let pipeline = v1::PipelineTarget {
        name: "p".into(),
        slo_ns: 1_000_000_000,
        tasks: vec![task],
        groups: vec![group],
        ..Default::default()
    };
    let fence = Some(v1::Fence { incarnation: 1, generation: 1 });
    lay_out(&v1::Target { fence, pipelines: vec![pipeline], ..Default::default() }).expect("valid").pipelines["p"].clone()
}

/// A slot whose batches take so long, the threads in which they run, and what it reports; it is ready and warm.
fn slot(takes: Duration) -> (Slot, Receiver<ThreadId>, Receiver<ReplicaEvent>) {
    let (threads, ran_in) = mpsc::channel();
    let loader = BackendLoader::files(move |_| {
        let signature = Signature { inputs: Vec::new(), outputs: Vec::new() };
        Ok(Box::new(Telling { signature, threads: threads.clone(), takes }))
    });
    let of = pipeline();
    let wanted =
        ReplicaVariant { file: Some("none".into()), task: of.tasks[0].clone(), group: of.groups[&1].clone(), device: 0 };
    let (reports, reported) = mpsc::channel();
    let report = move |happened| reports.send(happened).expect("the test listens");
    let slot = Slot::start("telling".into(), wanted, loader, report).expect("a thread");
    assert!(matches!(reported.recv(), Ok(ReplicaEvent::Ready)));
    ran_in.recv().expect("the warm-up ran");
    (slot, ran_in, reported)
}

fn given(expected: Duration, hold: Duration) -> GivenBatch {
    GivenBatch { server: 0, inputs: Vec::new(), expected, hold }
}

fn is_later(ran: Option<BatchRun>) -> bool {
    matches!(ran, Some(BatchRun::Later))
}

#[test]
fn only_quick_batches_run_on_the_callers_thread() {
    let (mut slot, ran_in, reported) = slot(Duration::ZERO);
    let here = std::thread::current().id();
    for (expected, is_here) in [(Duration::ZERO, true), (QUICK_MAX, true), (QUICK_MAX * 2, false), (QUICK_MAX, true)] {
        let hold = Duration::from_micros(5);
        match slot.run(given(expected, hold)).expect("it runs") {
            BatchRun::Now(ReplicaEvent::BatchEnded { result: Ok(_), took, .. }) => {
                assert!(is_here && took >= hold, "{expected:?}")
            }
            BatchRun::Later => {
                let is_held =
                    matches!(reported.recv(), Ok(ReplicaEvent::BatchEnded { result: Ok(_), took, .. }) if took >= hold);
                assert!(!is_here && is_held, "{expected:?}");
            }
            BatchRun::Now(other) => panic!("{other:?}"),
        }
        assert_eq!(ran_in.recv().expect("it ran") == here, is_here, "{expected:?}");
    }
    drop(slot);
    assert!(reported.recv().is_err(), "its thread has ended");
}

#[test]
fn a_held_device_is_busy_from_its_batchs_start() {
    let (mut slot, _ran_in, reported) = slot(Duration::ZERO);
    for hold in [2, 5].map(Duration::from_millis) {
        let begun = Instant::now();
        assert!(is_later(slot.run(given(QUICK_MAX * 2, hold))));
        let Ok(ReplicaEvent::BatchEnded { result: Ok(_), took, .. }) = reported.recv() else { panic!("no batch") };
        assert!(begun.elapsed() >= took && took >= hold, "{took:?} of {hold:?}");
    }
}

#[test]
fn a_wrong_profile_is_believed_a_few_times_only() {
    let (mut slot, ran_in, reported) = slot(SLOW_MIN);
    let later: Vec<bool> =
        (0..SLOW_RUNS_MAX + 2).map(|_| is_later(slot.run(given(Duration::ZERO, Duration::ZERO)))).collect();
    assert_eq!(later, [vec![false; SLOW_RUNS_MAX as usize], vec![true; 2]].concat());
    assert_eq!(reported.iter().take(2).count(), 2);
    assert_eq!(ran_in.iter().take(later.len()).filter(|thread| *thread != std::thread::current().id()).count(), 2);
}

/// A slot of a continuous task that reports, ready and warm.
fn continuous(inputs: Vec<TensorSignature>, loader: BackendLoader) -> (Slot, Receiver<ReplicaEvent>) {
    let of = pipeline();
    let task = LayoutTask { is_continuous: true, inputs, ..of.tasks[0].clone() };
    let wanted = ReplicaVariant { file: Some("none".into()), task, group: of.groups[&1].clone(), device: 0 };
    let (reports, reported) = mpsc::channel();
    let report = move |happened| reports.send(happened).expect("the test listens");
    let slot = Slot::start("continuous".into(), wanted, loader, report).expect("a thread");
    assert!(matches!(reported.recv(), Ok(ReplicaEvent::Ready)));
    (slot, reported)
}

fn number(value: u8) -> Vec<Tensor> {
    vec![Tensor { name: "x".into(), datatype: Datatype::Uint8, shape: vec![1], data: vec![value].into() }]
}

#[test]
fn queries_in_slots_leave_when_their_own_time_is_over() {
    let input = TensorSignature { name: "x".into(), datatype: Datatype::Uint8, shape: vec![-1] };
    let (mut slot, reported) = continuous(vec![input], BackendLoader::Emulated);
    let holds = [200, 5, 100].map(Duration::from_millis);
    for (server, hold) in (0..).zip(holds) {
        // However quick it is: other slots would wait for the caller's thread.
        let batch = GivenBatch { server, inputs: number(0), ..given(Duration::ZERO, hold) };
        assert!(is_later(slot.run(batch)));
    }
    let left: Vec<u32> = (0..holds.len())
        .map(|_| match reported.recv() {
            Ok(ReplicaEvent::BatchEnded { server, result: Ok(_), took }) if took >= holds[server as usize] => server,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(left, [1, 2, 0]);
}

#[test]
fn a_query_that_is_asked_to_leaves_its_slot_at_once() {
    let input = TensorSignature { name: "x".into(), datatype: Datatype::Uint8, shape: vec![-1] };
    let (mut slot, reported) = continuous(vec![input], BackendLoader::Emulated);
    let held = |server, hold| GivenBatch { server, inputs: number(0), ..given(Duration::ZERO, hold) };
    let (for_ever, short) = (Duration::from_secs(86_400), Duration::from_millis(5));
    assert!(is_later(slot.run(held(0, for_ever))));
    assert!(is_later(slot.run(held(1, for_ever))));
    slot.leave(1);
    // Nothing is in this one.
    slot.leave(2);
    assert!(matches!(reported.recv(), Ok(ReplicaEvent::Left { server: 1, .. })));
    assert!(is_later(slot.run(held(1, short))));
    assert!(matches!(reported.recv(), Ok(ReplicaEvent::BatchEnded { server: 1, result: Ok(_), .. })));
}

/// Counts the steps of each query, whose input says how many it makes.
struct Decoder(Signature);

impl Backend for Decoder {
    fn signature(&self) -> &Signature {
        &self.0
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        let counted: Vec<u8> = inputs[1].data.iter().map(|steps| steps + 1).collect();
        let done: Vec<u8> = counted.iter().zip(&inputs[0].data).map(|(steps, wanted)| u8::from(steps >= wanted)).collect();
        let tensor = |name: &str, datatype, data: &[u8]| Tensor {
            name: name.into(),
            datatype,
            shape: vec![data.len()],
            data: data.to_vec().into(),
        };
        let made = |name: &str| tensor(name, Datatype::Uint8, &counted);
        Ok(vec![made("y"), made("present.steps"), tensor(DONE, Datatype::Bool, &done)])
    }
}

fn decoder_signature() -> Signature {
    let spec = |name: &str, datatype| TensorSignature { name: name.into(), datatype, shape: vec![-1] };
    let inputs = vec![spec("x", Datatype::Uint8), spec("past.steps", Datatype::Uint8)];
    let made = ["y", "present.steps"].map(|name| spec(name, Datatype::Uint8));
    let outputs = made.into_iter().chain([spec(DONE, Datatype::Bool)]).collect();
    Signature { inputs, outputs }
}

fn decoder() -> BackendLoader {
    BackendLoader::files(|_| Ok(Box::new(Decoder(decoder_signature()))))
}

/// A decoder that waits for a token before each step.
struct Gated {
    decoder: Decoder,
    tokens: Arc<Mutex<Receiver<()>>>,
}

impl Backend for Gated {
    fn signature(&self) -> &Signature {
        self.decoder.signature()
    }

    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, BackendError> {
        self.tokens.lock().expect("one step at a time").recv().expect("the test gives tokens");
        self.decoder.run(inputs)
    }
}

#[test]
fn queries_of_a_stepped_model_leave_after_their_own_steps() {
    let (mut slot, reported) = continuous(Vec::new(), decoder());
    let wanted_steps = [200_u8, 3, 90];
    for (server, steps) in (0..).zip(wanted_steps) {
        let batch = GivenBatch { server, inputs: number(steps), ..given(Duration::ZERO, Duration::ZERO) };
        assert!(is_later(slot.run(batch)));
    }
    // An input that does not fit fails its query alone.
    assert!(is_later(slot.run(GivenBatch { server: 3, ..given(Duration::ZERO, Duration::ZERO) })));
    for _ in 0..=wanted_steps.len() {
        let Ok(ReplicaEvent::BatchEnded { server, result, .. }) = reported.recv() else { panic!("no end") };
        match (wanted_steps.get(server as usize), result) {
            (Some(steps), Ok(outputs)) => assert_eq!(outputs[0].data[..], [*steps]),
            (None, Err(fault)) => assert!(fault.why.contains("input x is missing"), "{fault:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_query_leaves_a_stepped_model_between_two_steps() {
    let (token, tokens) = mpsc::channel();
    let tokens = Arc::new(Mutex::new(tokens));
    let loader = BackendLoader::files(move |_| {
        Ok(Box::new(Gated { decoder: Decoder(decoder_signature()), tokens: tokens.clone() }))
    });
    let give = |count| (0..count).for_each(|_| token.send(()).expect("a thread takes them"));
    // The warm-up is one step.
    give(1);
    let (mut slot, reported) = continuous(Vec::new(), loader);
    let stepped = |server, steps| GivenBatch { server, inputs: number(steps), ..given(Duration::ZERO, Duration::ZERO) };
    assert!(is_later(slot.run(stepped(0, 200))));
    assert!(is_later(slot.run(stepped(1, 3))));
    slot.leave(0);
    // Far fewer than the query of slot 0 needs.
    give(8);
    let ended = || match reported.recv() {
        Ok(ReplicaEvent::BatchEnded { server, result: Ok(outputs), .. }) => (server, outputs[0].data.to_vec()),
        other => panic!("{other:?}"),
    };
    assert!(matches!(reported.recv(), Ok(ReplicaEvent::Left { server: 0, .. })));
    assert_eq!(ended(), (1, vec![3]), "the other query goes on");
    assert!(is_later(slot.run(stepped(0, 2))));
    assert_eq!(ended(), (0, vec![2]), "the slot's next query begins without the state of the last one");
}

#[test]
fn a_continuous_task_needs_a_model_with_state() {
    let of = pipeline();
    let task = LayoutTask { is_continuous: true, ..of.tasks[0].clone() };
    let wanted = |group| ReplicaVariant { file: Some("none".into()), task: task.clone(), group, device: 0 };
    let group = || of.groups[&1].clone();
    let refused = |loader: BackendLoader, group| describe(&loader.load(&wanted(group)).err().expect("a refusal"));
    let (threads, _ran_in) = mpsc::channel();
    let plain = BackendLoader::files(move |_| {
        let signature = Signature { inputs: Vec::new(), outputs: Vec::new() };
        Ok(Box::new(Telling { signature, threads: threads.clone(), takes: Duration::ZERO }))
    });
    let why = refused(plain, group());
    assert!(why.contains("it has no state: expected an input past.NAME"), "{why}");
    let python = LayoutGroup { runtime: VariantRuntime::Python, ..group() };
    let why = refused(decoder(), python);
    assert!(why.contains("a stage in Python runs whole batches: expected an ONNX file"), "{why}");
}

#[test]
fn a_stage_in_python_has_no_more_threads_than_its_device() {
    let of = pipeline();
    let loader = BackendLoader::Onnx { library: "none".into(), provider: Provider::Cpu, threads: 1, python: None };
    let refused = |threads: u32| {
        let execution = VariantExecution { threads: Some(threads), provider: None };
        let group = LayoutGroup { runtime: VariantRuntime::Python, execution, ..of.groups[&1].clone() };
        let wanted = ReplicaVariant { file: Some("none".into()), task: of.tasks[0].clone(), group, device: 0 };
        describe(&loader.load(&wanted).err().expect("a refusal"))
    };
    let why = refused(2);
    assert!(why.contains("it asks for 2 threads, and a device here has 1"), "{why}");
    let why = refused(1);
    assert!(why.contains("this agent runs none: expected apportion-agent --python PROGRAM"), "{why}");
}
