//! Connections to the agents' port from processes that are no agents.

use crate::support::agents::{Agent, output};
use crate::support::control::Control;
use crate::support::{Group, target, until};
use apportion_domain::nearest_rank;
use apportion_executor::frames::{Cutter, Pieces};
use apportion_executor::refused::ReachedLimit;
use apportion_executor::wire::{Message, encode};
use apportion_protocol::v1;
use bytes::Buf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What agents of this version greet with.
const GREETING: &[u8; 8] = b"apport08";

/// A connection to an agent that greets as one.
async fn greet(agent: &Agent) -> TcpStream {
    let mut stream = TcpStream::connect(&agent.data).await.expect("connects");
    stream.write_all(GREETING).await.expect("a greeting");
    let mut answer = [0; GREETING.len()];
    stream.read_exact(&mut answer).await.expect("its greeting");
    assert_eq!(&answer, GREETING);
    stream
}

fn bytes(pieces: Pieces) -> Vec<u8> {
    let mut cutter = Cutter::default();
    cutter.take(pieces);
    let mut all = Vec::new();
    while !cutter.is_empty() {
        let mut burst = cutter.burst();
        all.extend_from_slice(&burst.copy_to_bytes(burst.remaining()));
    }
    all
}

fn nothing_ready(agent: u64) -> Message {
    let (replicas, coming, yielding) = (Vec::new(), Vec::new(), Vec::new());
    Message::Ready { agent, replicas, coming, yielding, loads: Vec::new(), failed: Vec::new() }
}

/// Whether the other end hangs up soon.
async fn is_hung_up(stream: &mut TcpStream) -> bool {
    let read = tokio::time::timeout(crate::support::PATIENCE, stream.read(&mut [0; 1])).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

/// Latencies of requests one after the other, sorted; each is answered as it should be.
async fn client(agent: &Agent) -> Vec<Duration> {
    let mut latencies = Vec::new();
    for _ in 0..200 {
        let begun = Instant::now();
        let (status, body) = agent.infer(&[[2.0, 5.0]]).await;
        latencies.push(begun.elapsed());
        assert_eq!(status, 200, "{body}");
        assert_eq!(output(&body, "s").1, &serde_json::json!([5.0, 6.0]));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    latencies.sort_unstable();
    latencies
}

/// Prints median and p99 of the latencies without forged frames and beside `said` of them.
fn print_latencies(alone: &[Duration], beside: &[Duration], said: u64) {
    let row = |latencies: &[Duration]| [0.5, 0.99].map(|part| nearest_rank(latencies, part).expect("latencies"));
    let (count, alone, beside) = (alone.len(), row(alone), row(beside));
    eprintln!("{count} requests, median and p99: {alone:.1?}; beside {said} forged frames: {beside:.1?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_frames_are_refused_and_cost_no_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let control = Control::start(&["split", "sum"]).await;
    let names = ["a1", "a2"];
    let agents: Vec<Agent> = names.iter().map(|name| Agent::start(name, &control.url, folder.path())).collect();
    for name in names {
        until("it registers", || (!control.heard(name).registers.is_empty()).then_some(())).await;
    }
    let numbers: Vec<u64> = names.iter().map(|name| control.heard(name).number).collect();
    let addresses: Vec<(u64, String)> = numbers.iter().copied().zip(agents.iter().map(|a| a.data.clone())).collect();
    // The root at the first agent, all else at the second.
    let (first, second) = ([numbers[0]], [numbers[1]]);
    let groups = [
        Group { id: 1, task: 0, variant: "split", agents: &first },
        Group { id: 2, task: 1, variant: "sum", agents: &second },
    ];
    control.send(target(1, &addresses, &groups));
    agents[0].ready("toy").await;
    agents[1].ready("toy").await;

    let counted = || [ReachedLimit::PeerClaim.counted(), ReachedLimit::PeerMessage.counted()];
    let before = counted();
    let alone = client(&agents[0]).await;
    // Four say that the second agent has nothing ready, each again as soon as it was cut off.
    let is_over = AtomicBool::new(false);
    let impostor = async || {
        let mut said = 0;
        while !is_over.load(Relaxed) {
            let mut stream = greet(&agents[0]).await;
            let frame = bytes(encode(&nothing_ready(numbers[1])));
            let _refused = stream.write_all(&frame).await;
            assert!(is_hung_up(&mut stream).await, "whoever speaks for another is cut off");
            said += 1;
        }
        said
    };
    let beside = async {
        let latencies = client(&agents[0]).await;
        is_over.store(true, Relaxed);
        latencies
    };
    let (a, b, c, d, beside) = tokio::join!(impostor(), impostor(), impostor(), impostor(), beside);
    let said: u64 = [a, b, c, d].into_iter().sum();
    assert!(said >= 20 && counted()[0] >= before[0] + said, "{said} were said, {:?} counted", counted());
    print_latencies(&alone, &beside, said);

    // A steering of nobody, and a message without tensors that is too large for one.
    let mut stream = greet(&agents[0]).await;
    let steering = v1::Steering { host: numbers[1], epoch: u64::MAX, pipeline: "toy".into(), ..Default::default() };
    stream.write_all(&bytes(encode(&Message::Steering(steering)))).await.expect("it is sent");
    until("the steering is refused", || (ReachedLimit::PeerClaim.counted() > before[0] + said).then_some(())).await;
    let large = v1::Measured { made: vec![v1::MadeCount::default(); 2_000_000], ..Default::default() };
    let _cut_off = stream.write_all(&bytes(encode(&Message::Measured(large)))).await;
    assert!(is_hung_up(&mut stream).await);
    assert!(counted()[1] > before[1]);
    assert_eq!(agents[0].infer(&[[1.0, 1.0]]).await.0, 200);
}
