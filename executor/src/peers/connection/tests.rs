use super::*;
use crate::peers::{LinkProtection, PeerLinks};
use apportion_node::greeting::{
    ANSWER_BYTES, GREETING, GreetingError, HELLO_BYTES, LINK_KEY_BYTES, LinkEnds, LinkKeyring, PROOF_BYTES,
};
use apportion_node::tensor::{Datatype, Tensor};
use apportion_node::wire::{Credit, CreditReturn, Message, PartEnd};
use apportion_protocol::v1;
use std::collections::BTreeMap;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

mod secure;

const LARGE: usize = 5_000_000;
const SMALL: usize = 4_096;
/// More than the kernel holds of a connection.
const LARGE_COUNT: u64 = 12;
const SMALL_COUNT: u64 = 50;

/// A part of request `request` with a tensor of so many bytes.
fn part(request: u64, bytes: usize) -> Message {
    let data = Bytes::from(vec![request as u8; bytes]);
    let output = Tensor { name: "y".into(), datatype: Datatype::Uint8, shape: vec![1, bytes], data };
    let end = PartEnd::Leaf { task: "t".into(), outputs: vec![output] };
    Message::Return(CreditReturn { request, row: 0, attempt: 0, credit: Credit::WHOLE, end })
}

/// Number and bytes of what came.
fn came(event: NodeEvent) -> (u64, usize) {
    let NodeEvent::Message(Message::Return(part)) = event else { panic!("a part was sent: {event:?}") };
    let PartEnd::Leaf { outputs, .. } = part.end else { panic!("a leaf was sent") };
    assert!(outputs[0].data.iter().all(|b| *b == part.request as u8), "the bytes of one tensor");
    (part.request, outputs[0].data.len())
}

/// The keys of agent `own` in a target of agents 1, 2 and 3. All pairs have the same key.
fn keyring(own: u64) -> LinkKeyring {
    let peer = |agent| v1::Peer { agent, link_keys: vec![vec![5; LINK_KEY_BYTES]], ..Default::default() };
    let target = v1::Target { agents: (1..=3).map(peer).collect(), ..Default::default() };
    LinkKeyring::of_target(&target, own)
}

fn link_keys(own: u64) -> LinkKeys {
    let keys = LinkKeys::default();
    keys.follow_target(LinkProtection::Plain, keyring(own));
    keys
}

/// The greeting of agent 1 that dials agent 2.
fn dialling(nonce: u8) -> Dialling {
    let keys = keyring(1).pair(2).expect("a key").clone();
    Dialling { ends: LinkEnds { from: 1, to: 2 }, keys, nonce: [nonce; 32] }
}

/// Agent 1 dials without TLS.
async fn dial_plain(address: &str) -> Result<TcpStream, TalkError> {
    match dial(address, &dialling(1), None).await? {
        DialledLink::Plain(stream) => Ok(stream),
        DialledLink::Secure(_) => panic!("there is no certificate"),
    }
}

/// Agent 2 accepts one connection. The result is how it ended.
fn accept_one(listener: TcpListener, events: mpsc::Sender<NodeEvent>) -> JoinHandle<Result<(), TalkError>> {
    accept_with(listener, link_keys(2), events)
}

/// An agent with these keys accepts one connection. The result is how it ended.
fn accept_with(
    listener: TcpListener,
    keys: LinkKeys,
    events: mpsc::Sender<NodeEvent>,
) -> JoinHandle<Result<(), TalkError>> {
    let incoming = Incoming { keys, claims: Arc::default(), warnings: Arc::default(), events };
    tokio::spawn(async move {
        let (stream, from) = listener.accept().await.expect("a connection");
        let greeting = ClientShares::new(8).take(from.ip(), 1).expect("it is the only one");
        receive_messages(stream, incoming, greeting).await
    })
}

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    (listener, address)
}

async fn until_up(events: &mut mpsc::Receiver<NodeEvent>) {
    assert!(matches!(events.recv().await, Some(NodeEvent::PeerUp(2))));
}

/// A way of agent 1 to agent 2, which is at this address.
fn way(address: String) -> (PeerLinks, mpsc::Receiver<NodeEvent>) {
    let (events, told) = mpsc::channel(16);
    let mut peers = PeerLinks::new(events, link_keys(1));
    peers.set(&BTreeMap::from([(2, address)]), 1);
    (peers, told)
}

/// Twelve tensors of 5 MB are on their way, and the receiver does not read; then fifty of 4 KiB are sent, and it reads on.
#[tokio::test]
async fn small_tensors_pass_large_ones_on_a_real_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (peers, mut told) = way(listener.local_addr().expect("an address").to_string());
    let (events, mut heard) = mpsc::channel(1_024);
    let (go, gone) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        // The greeting is answered here, so that the connection is up and yet nothing is read.
        assert_eq!(admit(&mut stream, &link_keys(2)).await.expect("a greeting"), 1);
        gone.await.expect("the test goes on");
        listen_on(stream, events).await;
    });
    until_up(&mut told).await;
    for request in 0..LARGE_COUNT {
        peers.send(2, &part(request, LARGE)).expect("it is queued");
    }
    // The sender has the large ones before it has the small ones: it blocks on the socket only after it took them all.
    tokio::task::yield_now().await;
    for request in LARGE_COUNT..LARGE_COUNT + SMALL_COUNT {
        peers.send(2, &part(request, SMALL)).expect("it is queued");
    }
    go.send(()).expect("the receiver waits");
    let mut order = Vec::new();
    for _ in 0..LARGE_COUNT + SMALL_COUNT {
        order.push(came(heard.recv().await.expect("all come")));
    }
    let large_before_small = order.iter().rposition(|(_, bytes)| *bytes == SMALL).expect("small ones came");
    let large_before_small = order[..large_before_small].iter().filter(|(_, bytes)| *bytes == LARGE).count();
    assert_eq!(large_before_small, 0, "no small tensor waited for a large one: {order:?}");
    let small: Vec<u64> = order.iter().filter(|(_, bytes)| *bytes == SMALL).map(|(request, _)| *request).collect();
    assert!(small.is_sorted(), "small ones keep their order");
}

/// [`receive_messages`], without the greeting.
async fn listen_on(stream: TcpStream, events: mpsc::Sender<NodeEvent>) {
    read_messages(stream, events, 1).await.expect("messages only");
}

#[tokio::test]
async fn other_versions_are_refused_and_both_ends_say_so() {
    // An agent of version 08 dials one of this version.
    let (listening, address) = listener().await;
    let (events, _heard) = mpsc::channel(1);
    let hearing = accept_one(listening, events);
    let mut old = TcpStream::connect(address).await.expect("a connection");
    old.write_all(b"apport08").await.expect("it greets");
    let mut answer = Vec::new();
    old.read_to_end(&mut answer).await.expect("an answer and the end");
    assert_eq!(answer, GREETING, "it hears which version is spoken here");
    let refused = hearing.await.expect("no panic").expect_err("it is refused").to_string();
    assert!(refused.contains("version 08") && refused.contains("version 10"), "{refused}");
    // One of this version dials one of version 08, one that hangs up at the greeting, and another program.
    for (theirs, said) in [(&b"apport08"[..], "version 08"), (b"", "hung up at the greeting"), (b"HTTP/1.1", "no agent")] {
        let (listening, address) = listener().await;
        tokio::spawn(async move {
            let (mut stream, _) = listening.accept().await.expect("a connection");
            stream.read_exact(&mut [0; GREETING.len() + HELLO_BYTES]).await.expect("a greeting");
            stream.write_all(theirs).await.expect("an answer");
        });
        let refused = dial_plain(&address).await.expect_err("it is refused").to_string();
        assert!(refused.contains(said), "{refused}: expected {said}");
    }
}

#[tokio::test]
async fn a_stranger_gets_no_answer() {
    let mut wrong = dialling(1).hello();
    wrong[HELLO_BYTES - 1] ^= 1;
    wrong[HELLO_BYTES - PROOF_BYTES - 1] ^= 1;
    for first in [&b"GET / HTTP/1.1\r\n"[..8], &[&GREETING[..], &wrong].concat()] {
        let (listening, address) = listener().await;
        let (events, _heard) = mpsc::channel(1);
        let hearing = accept_one(listening, events);
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(first).await.expect("it is sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("the end");
        assert!(answer.is_empty(), "{answer:?}");
        assert!(matches!(hearing.await.expect("no panic"), Err(TalkError::Handshake(HandshakeError::Greeting(_)))));
    }
}

/// Sends a greeting and a last proof. Returns the answer to the greeting, and how the other agent sees the end.
async fn replay(
    hello: [u8; HELLO_BYTES],
    last: impl FnOnce(&[u8; ANSWER_BYTES]) -> [u8; PROOF_BYTES],
) -> Result<(), TalkError> {
    let (listening, address) = listener().await;
    let (events, _heard) = mpsc::channel(1);
    let hearing = accept_one(listening, events);
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(&[&GREETING[..], &hello].concat()).await.expect("it is sent");
    let (mut greeting, mut answer) = ([0; GREETING.len()], [0; ANSWER_BYTES]);
    stream.read_exact(&mut greeting).await.expect("a greeting");
    stream.read_exact(&mut answer).await.expect("an answer");
    stream.write_all(&last(&answer)).await.expect("it is sent");
    stream.shutdown().await.expect("it ends");
    hearing.await.expect("no panic")
}

#[tokio::test]
async fn a_recorded_greeting_opens_no_second_connection() {
    let dialled = dialling(1);
    let mut recorded = [0; PROOF_BYTES];
    let first = replay(dialled.hello(), |answer| {
        recorded = dialled.confirm(answer).expect("the answer is right");
        recorded
    });
    assert!(first.await.is_ok());
    let again = replay(dialled.hello(), |_| recorded).await;
    let is_proof = matches!(again, Err(TalkError::Handshake(HandshakeError::Greeting(GreetingError::Proof))));
    assert!(is_proof, "{again:?}");
}

#[tokio::test]
async fn a_hello_waits_for_the_target_that_names_it() {
    let (listening, address) = listener().await;
    let keys = LinkKeys::default();
    let late = keys.clone();
    let accepting = tokio::spawn(async move {
        let (mut stream, _) = listening.accept().await.expect("a connection");
        admit(&mut stream, &keys).await
    });
    let dialled = tokio::spawn(async move { dial_plain(&address).await });
    // Its own target comes after the hello.
    tokio::time::sleep(Duration::from_millis(50)).await;
    late.follow_target(LinkProtection::Plain, keyring(2));
    assert_eq!(accepting.await.expect("no panic").expect("it is admitted"), 1);
    assert!(dialled.await.expect("no panic").is_ok());
}

#[tokio::test]
async fn a_message_of_another_agent_ends_the_connection() {
    let (listening, address) = listener().await;
    let (events, mut heard) = mpsc::channel(4);
    let hearing = accept_one(listening, events);
    let stream = dial_plain(&address).await.expect("it is admitted");
    let (outbound, mut inbound) = crate::peers::outbox::outbox();
    outbound.send(&Message::Cancel { origin: 1, request: 7 }).expect("it is queued");
    outbound.send(&Message::Cancel { origin: 3, request: 7 }).expect("it is queued");
    let sending =
        tokio::spawn(async move { send_messages(DialledLink::Plain(stream), &mut inbound, std::future::pending()).await });
    let end = hearing.await.expect("no panic");
    assert!(matches!(end, Err(TalkError::Forged { proven: 1, said: 3 })), "{end:?}");
    assert!(matches!(heard.recv().await, Some(NodeEvent::Message(Message::Cancel { origin: 1, .. }))));
    assert!(heard.recv().await.is_none(), "the forged one never comes to the node");
    drop(outbound);
    let _ended = sending.await.expect("no panic");
}

#[tokio::test]
async fn malformed_messages_end_the_connection_with_a_reason() {
    for (bytes, said) in [
        (&b"\0\0\0\0\0\0\0\x09\0\0\0\x09\x03"[..], "within a message"),
        (b"\0\0\0\0\0\0\0\x01\0\0\0\x01\x63", "message type"),
        (b"\0\0\0\0\0\0\0\x01\0\0\0\x02\x63", "a chunk of 2 bytes"),
        (b"\0\0\0\0\0\0\0\x0d\0\0\0\x0d\x0b\0\0\0\0\0\0\0\x01\0\0\0\0", "batch is not valid"),
    ] {
        let (listening, address) = listener().await;
        let (events, _heard) = mpsc::channel(1);
        let hearing = accept_one(listening, events);
        let mut stream = dial_plain(&address).await.expect("it is admitted");
        stream.write_all(bytes).await.expect("it speaks");
        stream.shutdown().await.expect("it ends");
        let error = hearing.await.expect("no panic").expect_err("an error").to_string();
        assert!(error.contains(said), "{error}: expected {said}");
    }
}
