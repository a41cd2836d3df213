//! Connections to the agents' port from processes that are no agents, and from agents that lie.

use crate::support::agents::{Agent, output};
use crate::support::control::Control;
use crate::support::{Group, link_key, target, until};
use apportion_domain::nearest_rank;
use apportion_executor::frames::{Cutter, Pieces};
use apportion_executor::greeting::{ANSWER_BYTES, Dialling, GREETING, LINK_KEY_BYTES, LinkEnds, NONCE_BYTES, PairKeys};
use apportion_executor::peers::HALF_OPEN_MAX;
use apportion_executor::refused::ReachedLimit;
use apportion_executor::wire::{Message, encode};
use apportion_protocol::v1;
use bytes::Buf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A member of the target that this test plays. Nothing listens at its address.
const LIAR: u64 = 3;

/// The first agent has the root, the second one all else.
struct Fleet {
    control: Control,
    agents: Vec<Agent>,
    numbers: Vec<u64>,
    target: v1::Target,
    _folder: TempDir,
}

async fn fleet() -> Fleet {
    let folder = tempfile::tempdir().expect("a folder");
    let control = Control::start(&["split", "sum"]).await;
    let names = ["a1", "a2"];
    let agents: Vec<Agent> = names.iter().map(|name| Agent::start(name, &control.url, folder.path())).collect();
    for name in names {
        until("it registers", || (!control.heard(name).registers.is_empty()).then_some(())).await;
    }
    let numbers: Vec<u64> = names.iter().map(|name| control.heard(name).number).collect();
    let mut addresses: Vec<(u64, String)> = numbers.iter().copied().zip(agents.iter().map(|a| a.data.clone())).collect();
    addresses.push((LIAR, "127.0.0.1:1".into()));
    let (first, second) = ([numbers[0]], [numbers[1]]);
    let groups = [
        Group { id: 1, task: 0, variant: "split", agents: &first },
        Group { id: 2, task: 1, variant: "sum", agents: &second },
    ];
    let target = target(1, &addresses, &groups);
    control.send(target.clone());
    agents[0].ready("toy").await;
    agents[1].ready("toy").await;
    Fleet { control, agents, numbers, target, _folder: folder }
}

/// A connection to an agent that says it is agent `ends.from`; none if it is refused.
async fn greet(agent: &Agent, ends: LinkEnds, key: Vec<u8>) -> Option<TcpStream> {
    let keys = PairKeys::read(&[key]).expect("a key");
    let dialling = Dialling { ends, keys, nonce: [1; NONCE_BYTES] };
    let mut stream = TcpStream::connect(&agent.data).await.expect("connects");
    stream.write_all(&[&GREETING[..], &dialling.hello()].concat()).await.expect("a greeting");
    let (mut greeting, mut answer) = ([0; GREETING.len()], [0; ANSWER_BYTES]);
    stream.read_exact(&mut greeting).await.ok()?;
    stream.read_exact(&mut answer).await.ok()?;
    stream.write_all(&dialling.confirm(&answer).expect("a right answer")).await.expect("a proof");
    Some(stream)
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

/// Prints median and p99 of the latencies without forged greetings and beside `said` of them.
fn print_latencies(alone: &[Duration], beside: &[Duration], said: u64) {
    let row = |latencies: &[Duration]| [0.5, 0.99].map(|part| nearest_rank(latencies, part).expect("latencies"));
    let (count, alone, beside) = (alone.len(), row(alone), row(beside));
    eprintln!("{count} requests, median and p99: {alone:.1?}; beside {said} forged greetings: {beside:.1?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_greetings_are_refused_and_cost_no_request() {
    let fleet = fleet().await;
    let (agents, numbers) = (&fleet.agents, &fleet.numbers);
    let before = ReachedLimit::PeerProof.counted();
    let alone = client(&agents[0]).await;
    // Four say that they are the second agent and have nothing ready, each again as soon as it was cut off.
    let is_over = AtomicBool::new(false);
    let ends = LinkEnds { from: numbers[1], to: numbers[0] };
    let impostor = async || {
        let mut said: u64 = 0;
        while !is_over.load(Relaxed) {
            let guess = Dialling {
                ends,
                keys: PairKeys::read(&[vec![said as u8; LINK_KEY_BYTES]]).expect("a key"),
                nonce: [2; NONCE_BYTES],
            };
            let mut stream = TcpStream::connect(&agents[0].data).await.expect("connects");
            let all = [&GREETING[..], &guess.hello(), &bytes(encode(&nothing_ready(numbers[1])))].concat();
            let _refused = stream.write_all(&all).await;
            assert!(is_hung_up(&mut stream).await, "without a key there is no answer");
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
    let counted = ReachedLimit::PeerProof.counted() - before;
    assert!(said >= 20 && counted >= said, "{said} were said, {counted} counted");
    print_latencies(&alone, &beside, said);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_speaks_for_itself_alone() {
    let fleet = fleet().await;
    let (agents, numbers) = (&fleet.agents, &fleet.numbers);
    let (ends, key) = (LinkEnds { from: LIAR, to: numbers[0] }, link_key(LIAR, numbers[0]));
    let member = async || greet(&agents[0], ends, key.clone()).await.expect("a member is admitted");
    let limits = [ReachedLimit::PeerClaim, ReachedLimit::PeerSteering, ReachedLimit::PeerMessage];
    let before = limits.map(ReachedLimit::counted);
    // It says that the second agent has nothing ready.
    let mut stream = member().await;
    stream.write_all(&bytes(encode(&nothing_ready(numbers[1])))).await.expect("it is sent");
    assert!(is_hung_up(&mut stream).await);
    assert!(ReachedLimit::PeerClaim.counted() > before[0]);
    // It steers for ever.
    let mut stream = member().await;
    let fence = Some(v1::Fence { incarnation: 1, generation: 1 });
    let steering = v1::Steering { host: numbers[1], fence, epoch: u64::MAX, pipeline: "toy".into(), ..Default::default() };
    stream.write_all(&bytes(encode(&Message::Steering(steering)))).await.expect("it is sent");
    until("the steering is refused", || (ReachedLimit::PeerSteering.counted() > before[1]).then_some(())).await;
    // A message without tensors is too large for one.
    let large = v1::Measured { agent: LIAR, made: vec![v1::MadeCount::default(); 2_000_000], ..Default::default() };
    let _cut_off = stream.write_all(&bytes(encode(&Message::Measured(large)))).await;
    assert!(is_hung_up(&mut stream).await);
    assert!(ReachedLimit::PeerMessage.counted() > before[2]);
    assert_eq!(agents[0].infer(&[[1.0, 1.0]]).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_numbers_are_refused_and_counted() {
    let fleet = fleet().await;
    let (agents, numbers) = (&fleet.agents, &fleet.numbers);
    let before = ReachedLimit::PeerNumber.counted();
    let key = link_key(LIAR, numbers[0]);
    for ends in [LinkEnds { from: 77, to: numbers[0] }, LinkEnds { from: LIAR, to: numbers[1] }] {
        assert!(greet(&agents[0], ends, key.clone()).await.is_none(), "{ends:?}");
    }
    assert!(ReachedLimit::PeerNumber.counted() >= before + 2);
    assert!(greet(&agents[0], LinkEnds { from: LIAR, to: numbers[0] }, key).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_replaces_the_one_before_the_last() {
    let fleet = fleet().await;
    let (agents, numbers) = (&fleet.agents, &fleet.numbers);
    let ends = LinkEnds { from: LIAR, to: numbers[0] };
    let admits = async |key: &Vec<u8>| greet(&agents[0], ends, key.clone()).await.is_some();
    let keys = [link_key(LIAR, numbers[0]), vec![8; LINK_KEY_BYTES], vec![9; LINK_KEY_BYTES]];
    assert!(admits(&keys[0]).await && !admits(&keys[1]).await);
    // The same target comes with a new key: both count. It comes once more: the first key is of no use any more.
    for newest in [1, 2] {
        let mut again = fleet.target.clone();
        let liar = again.agents.iter_mut().find(|peer| peer.agent == LIAR).expect("it is in the target");
        liar.link_keys = vec![keys[newest].clone(), keys[newest - 1].clone()];
        fleet.control.send(again);
        let begun = Instant::now();
        while !admits(&keys[newest]).await {
            assert!(begun.elapsed() < crate::support::PATIENCE, "key {newest} never counts");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(admits(&keys[newest - 1]).await, "the key before {newest}");
    }
    assert!(!admits(&keys[0]).await, "a key of an old fleet");
    assert_eq!(agents[0].infer(&[[1.0, 1.0]]).await.0, 200, "connections that are up have stayed up");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_greetings_are_cut_off_while_requests_are_served() {
    let fleet = fleet().await;
    let (agents, numbers) = (&fleet.agents, &fleet.numbers);
    let before = ReachedLimit::PeerGreeting.counted();
    let keys = PairKeys::read(&[link_key(LIAR, numbers[0])]).expect("a key");
    let dialling = Dialling { ends: LinkEnds { from: LIAR, to: numbers[0] }, keys, nonce: [3; NONCE_BYTES] };
    let hello = [&GREETING[..], &dialling.hello()].concat();
    // One byte each 200 ms: the whole greeting would take longer than a connection has.
    let slow = async || {
        let mut stream = TcpStream::connect(&agents[0].data).await.expect("connects");
        for byte in &hello {
            if stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            let heard = tokio::time::timeout(Duration::from_millis(200), stream.read(&mut [0; 1])).await;
            match heard {
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(_)) => panic!("a greeting that took so long is answered"),
                Err(_) => {}
            }
        }
        panic!("a greeting of {} bytes was never cut off", hello.len());
    };
    let (latencies, (), (), ()) = tokio::join!(client(&agents[0]), slow(), slow(), slow());
    assert_eq!(latencies.len(), 200);
    assert!(ReachedLimit::PeerGreeting.counted() >= before + 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_greeting_are_bounded() {
    let fleet = fleet().await;
    let agents = &fleet.agents;
    let before = ReachedLimit::PeerHalfOpen.counted();
    let mut silent = Vec::new();
    // One address may have seven eighths of them.
    for _ in 0..HALF_OPEN_MAX - HALF_OPEN_MAX / 8 {
        silent.push(TcpStream::connect(&agents[0].data).await.expect("connects"));
    }
    let mut further = TcpStream::connect(&agents[0].data).await.expect("connects");
    assert!(is_hung_up(&mut further).await);
    assert!(ReachedLimit::PeerHalfOpen.counted() > before);
    assert_eq!(agents[0].infer(&[[1.0, 1.0]]).await.0, 200, "connections that have greeted are served");
    // They are cut off in time, and others may greet again.
    assert!(is_hung_up(&mut silent[0]).await);
    let (ends, key) = (LinkEnds { from: LIAR, to: fleet.numbers[0] }, link_key(LIAR, fleet.numbers[0]));
    let begun = Instant::now();
    while greet(&agents[0], ends, key.clone()).await.is_none() {
        assert!(begun.elapsed() < crate::support::PATIENCE, "nobody may greet");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
