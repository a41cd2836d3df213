use super::fleet::REPAIR_NS;
use super::replica::LocalReplica;
use super::request::{RequestAnswer, RequestTerms};
use super::*;
use crate::layout::{lay_out, tests::chain};
use crate::replica_event::ReplicaEvent;
use crate::tensor::{Datatype, Tensor};
use crate::trace::TraceSpan;
use crate::wire::{Announced, Credit, Message, PartEnd, RoutedQuery};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A node whose gateway sends to agent 1, one request of which is on its way: and its hop. Its client has number 1.
fn sending() -> (Node, u64) {
    let mut node = Node::new(2, 0);
    node.handle(0, NodeEvent::Target(Arc::new(lay_out(&chain()).expect("a valid target"))));
    node.handle(0, NodeEvent::PeerUp(1));
    let ready = Announced { replica: 1, group: 1, pipeline: "p".into(), task: "a".into(), accuracy_ppm: 0 };
    node.handle(
        0,
        NodeEvent::Message(Message::Ready {
            agent: 1,
            replicas: vec![ready],
            coming: vec![],
            yielding: vec![],
            loads: vec![],
            failed: vec![],
        }),
    );
    let input = Tensor { name: "x".into(), datatype: Datatype::Fp32, shape: vec![1, 2], data: vec![0; 8].into() };
    node.handle(
        1,
        NodeEvent::Arrive { pipeline: "p".into(), inputs: vec![input], terms: RequestTerms::default(), caller: 1 },
    );
    let hops = node.flush().into_iter().filter_map(|action| match action {
        Action::Send { agent: 1, message: Message::Query { hop, .. } } => Some(hop),
        _ => None,
    });
    let hops: Vec<u64> = hops.collect();
    assert_eq!(hops.len(), 1, "one row is one query");
    (node, hops[0])
}

/// The answers that the node has given since it was last asked, with the numbers of their clients.
fn answers(node: &mut Node) -> Vec<(u64, RequestAnswer)> {
    let answer = |action| if let Action::Answer { caller, answer } = action { Some((caller, answer)) } else { None };
    node.flush().into_iter().filter_map(answer).collect()
}

#[test]
fn a_query_without_room_on_its_way_is_dropped_once() {
    let (mut node, hop) = sending();
    let unsent = || NodeEvent::Unsent { hop, why: "too much waits for its agent".into() };
    node.handle(2, unsent());
    assert_eq!(answers(&mut node), [(1, RequestAnswer::Dropped("task a: too much waits for its agent".into()))]);
    assert_eq!(node.unfinished(), 0, "nothing waits for it any more");
    // Said again, or said of a hop that is over, it changes nothing.
    node.handle(3, unsent());
    assert_eq!(node.take_counts().pipelines["p"].dropped, 1);
}

#[test]
fn a_query_that_claims_many_hops_fails() {
    let (mut node, _) = sending();
    let query = RoutedQuery {
        pipeline: "p".into(),
        task: "a".into(),
        replica: 99,
        origin: 1,
        request: 7,
        row: 0,
        credit: Credit::WHOLE,
        budget_ns: 0,
        hops: u8::MAX,
        attempt: 0,
        group: 0,
        behind_ns: 0,
        level: 0,
        apart: 0,
        pins: Vec::new(),
        trace: None,
        scopes: Vec::new(),
        inputs: Vec::new(),
    };
    node.handle(2, NodeEvent::Message(Message::Query { from: 1, hop: 5, query }));
    let end = node.flush().into_iter().find_map(|action| match action {
        Action::Send { agent: 1, message: Message::Return(part) } => Some(part.end),
        _ => None,
    });
    assert!(matches!(end, Some(PartEnd::Failed(_))), "{end:?}");
}

#[test]
fn each_request_expires_at_its_own_time() {
    let (mut node, _) = sending();
    let arrive = |node: &mut Node, now_ns: u64, caller: u64, timeout_ns: u64| {
        let input = Tensor { name: "x".into(), datatype: Datatype::Fp32, shape: vec![1, 2], data: vec![0; 8].into() };
        let terms = RequestTerms { timeout_ns: Some(timeout_ns), ..RequestTerms::default() };
        node.handle(now_ns, NodeEvent::Arrive { pipeline: "p".into(), inputs: vec![input], terms, caller });
    };
    let answered_by = |node: &mut Node, now_ns: u64| {
        node.handle(now_ns, NodeEvent::Tick);
        answers(node)
    };
    arrive(&mut node, 10, 2, 1_000);
    arrive(&mut node, 20, 3, 100);
    assert_eq!(answered_by(&mut node, 119), []);
    assert_eq!(answered_by(&mut node, 120), [(3, RequestAnswer::TimedOut)]);
    // A request that comes after the node has looked at the others, and is due before them.
    arrive(&mut node, 130, 4, 50);
    assert_eq!(answered_by(&mut node, 180), [(4, RequestAnswer::TimedOut)]);
    assert_eq!(answered_by(&mut node, 1_010), [(2, RequestAnswer::TimedOut)]);
    assert_eq!(answered_by(&mut node, u64::MAX / 2), [(1, RequestAnswer::GivenUp)]);
}

mod alone;
mod central;
mod continuous;
mod ended_well;
mod feedback;
mod hops;
mod joins;
mod moves;
mod offline;
mod on_demand;
mod policies;
mod renumber;
mod repair;
mod silence;
mod spans;
mod steer;
mod swap;
mod terms;
mod world;
