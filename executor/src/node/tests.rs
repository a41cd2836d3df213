use super::*;
use crate::layout::{lay_out, tests::chain};
use crate::tensor::Datatype;

/// A node whose gateway sends to agent 1, one request of which is on its way: its hop and where its answer comes.
fn sending() -> (Node, u64, oneshot::Receiver<Answer>) {
    let mut node = Node::new(2, 0);
    node.handle(0, Event::Obey(Arc::new(lay_out(&chain()).expect("a valid target"))));
    node.handle(0, Event::PeerUp(1));
    let ready = Announced { replica: 1, group: 1, pipeline: "p".into(), task: "a".into(), accuracy_ppm: 0 };
    node.handle(
        0,
        Event::Message(Message::Ready {
            agent: 1,
            replicas: vec![ready],
            coming: vec![],
            yielding: vec![],
            loads: vec![],
            failed: vec![],
        }),
    );
    let input = Tensor { name: "x".into(), datatype: Datatype::Fp32, shape: vec![1, 2], data: vec![0; 8].into() };
    let (reply, answer) = oneshot::channel();
    node.handle(1, Event::Arrive { pipeline: "p".into(), inputs: vec![input], terms: Terms::default(), reply });
    let hops = node.flush().into_iter().filter_map(|action| match action {
        Action::Send(1, Message::Query { hop, .. }) => Some(hop),
        _ => None,
    });
    let hops: Vec<u64> = hops.collect();
    assert_eq!(hops.len(), 1, "one row is one query");
    (node, hops[0], answer)
}

#[test]
fn a_query_for_which_there_is_no_room_is_shed_once_and_its_client_hears_why() {
    let (mut node, hop, mut answer) = sending();
    let unsent = || Event::Unsent { hop, why: "too much waits for its agent".into() };
    node.handle(2, unsent());
    assert_eq!(answer.try_recv(), Ok(Answer::Dropped("task a: too much waits for its agent".into())));
    assert_eq!(node.unfinished(), 0, "nothing waits for it any more");
    // Said again, or said of a hop that is over, it changes nothing.
    node.handle(3, unsent());
    assert_eq!(node.take_counts().pipelines["p"].dropped, 1);
}

#[test]
fn each_request_is_given_up_at_its_own_time_whatever_came_before() {
    let (mut node, _, mut patient) = sending();
    let arrive = |node: &mut Node, now_ns: u64, timeout_ns: u64| {
        let input = Tensor { name: "x".into(), datatype: Datatype::Fp32, shape: vec![1, 2], data: vec![0; 8].into() };
        let (reply, answer) = oneshot::channel();
        let terms = Terms { timeout_ns: Some(timeout_ns), ..Terms::default() };
        node.handle(now_ns, Event::Arrive { pipeline: "p".into(), inputs: vec![input], terms, reply });
        answer
    };
    let mut long = arrive(&mut node, 10, 1_000);
    let mut short = arrive(&mut node, 20, 100);
    node.handle(119, Event::Tick);
    assert!(short.try_recv().is_err(), "its time has not come");
    node.handle(120, Event::Tick);
    assert_eq!(short.try_recv(), Ok(Answer::TimedOut));
    // One that comes when others have been looked at, and is due before them.
    let mut last = arrive(&mut node, 130, 50);
    node.handle(180, Event::Tick);
    assert_eq!(last.try_recv(), Ok(Answer::TimedOut));
    assert!(long.try_recv().is_err(), "its time has not come");
    node.handle(1_010, Event::Tick);
    assert_eq!(long.try_recv(), Ok(Answer::TimedOut));
    assert!(patient.try_recv().is_err(), "its time has not come");
    node.handle(u64::MAX / 2, Event::Tick);
    assert_eq!(patient.try_recv(), Ok(Answer::GivenUp));
}

mod alone;
mod joins;
mod moves;
mod offline;
mod policies;
mod renumber;
mod repair;
mod silence;
mod spans;
mod steer;
mod swap;
mod terms;
mod world;
