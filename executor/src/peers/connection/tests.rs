use super::*;
use crate::peers::PeerLinks;
use apportion_node::tensor::{Datatype, Tensor};
use apportion_node::wire::{Credit, CreditReturn, Message, PartEnd};
use std::collections::BTreeMap;
use tokio::sync::oneshot;

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

async fn until_up(events: &mut mpsc::Receiver<NodeEvent>) {
    assert!(matches!(events.recv().await, Some(NodeEvent::PeerUp(2))));
}

/// A way of agent 1 to agent 2, which is at this address.
fn way(address: String) -> (PeerLinks, mpsc::Receiver<NodeEvent>) {
    let (events, told) = mpsc::channel(16);
    let mut peers = PeerLinks::new(events);
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
        let mut greeting = [0; GREETING.len()];
        // The greeting is answered here, so that the connection is up and yet nothing is read.
        stream.read_exact(&mut greeting).await.expect("a greeting");
        stream.write_all(&GREETING).await.expect("an answer");
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

/// [`receive_messages`], without the exchange of versions.
async fn listen_on(stream: TcpStream, events: mpsc::Sender<NodeEvent>) {
    read_messages(stream, events, Arc::<AgentClaims>::default().open()).await.expect("messages only");
}

#[tokio::test]
async fn other_versions_are_refused_and_both_ends_say_so() {
    // An agent of version 02 dials one of today.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (events, _heard) = mpsc::channel(1);
    let hearing = tokio::spawn(async move {
        receive_messages(listener.accept().await.expect("a connection").0, events, Arc::<AgentClaims>::default().open())
            .await
    });
    let mut old = TcpStream::connect(address).await.expect("a connection");
    old.write_all(b"apport02").await.expect("it greets");
    let mut answer = Vec::new();
    old.read_to_end(&mut answer).await.expect("an answer and the end");
    assert_eq!(answer, GREETING, "it hears what is spoken here");
    let refused = hearing.await.expect("no panic").expect_err("it is refused").to_string();
    assert!(refused.contains("version 02") && refused.contains("version 08"), "{refused}");
    // One of today dials one of version 09, one that hangs up at the greeting as 02 does, and something else.
    for (theirs, said) in [(&b"apport09"[..], "version 09"), (b"", "it may be older"), (b"HTTP/1.1", "no agent")] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            stream.read_exact(&mut [0; GREETING.len()]).await.expect("a greeting");
            stream.write_all(theirs).await.expect("an answer");
        });
        let refused = dial(&address).await.expect_err("it is refused").to_string();
        assert!(refused.contains(said), "{refused}: expected {said}");
    }
}

#[tokio::test]
async fn malformed_messages_end_the_connection_with_a_reason() {
    for (bytes, said) in [
        (&b"\0\0\0\0\0\0\0\x09\0\0\0\x09\x03"[..], "within a message"),
        (b"\0\0\0\0\0\0\0\x01\0\0\0\x01\x63", "message type"),
        (b"\0\0\0\0\0\0\0\x01\0\0\0\x02\x63", "a chunk of 2 bytes"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (events, _heard) = mpsc::channel(1);
        let hearing = tokio::spawn(async move {
            receive_messages(listener.accept().await.expect("a connection").0, events, Arc::<AgentClaims>::default().open())
                .await
        });
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(&GREETING).await.expect("it greets");
        stream.write_all(bytes).await.expect("it speaks");
        stream.shutdown().await.expect("it ends");
        let error = hearing.await.expect("no panic").expect_err("an error").to_string();
        assert!(error.contains(said), "{error}: expected {said}");
    }
}
