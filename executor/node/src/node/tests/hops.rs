//! The times of hops that agents measure.

use super::world::{MS, World, sums, target};
use super::*;
use apportion_protocol::v1;

/// Three agents with one replica each.
fn three() -> v1::Target {
    target(1, "a", &[], &[(1, 0, 1, 1, &[(1, 1), (2, 2), (3, 3)])])
}

fn hops(node: &Node) -> Vec<(u64, u64)> {
    node.hops().map(|hop| (hop.agent, hop.median_ns)).collect()
}

/// Agent 1 of a target with these other agents, all connected.
fn connected(others: std::ops::RangeInclusive<u64>) -> Node {
    let mut node = Node::new(1, 0);
    let peer = |agent| v1::Peer { agent, ..Default::default() };
    let target = v1::Target { agents: (1..=3.max(*others.end())).map(peer).collect(), ..three() };
    node.handle(0, NodeEvent::Target(Arc::new(lay_out(&target).expect("a valid target"))));
    others.for_each(|other| node.handle(0, NodeEvent::PeerUp(other)));
    node.flush();
    node
}

/// A tick at this time, and the pings that it sends: the agent and the number.
fn pings(node: &mut Node, now_ns: u64) -> Vec<(u64, u64)> {
    node.handle(now_ns, NodeEvent::Tick);
    let ping = |action| match action {
        Action::Send { agent, message: Message::Ping { number, .. } } => Some((agent, number)),
        _ => None,
    };
    node.flush().into_iter().filter_map(ping).collect()
}

fn nothing_ready(agent: u64) -> Message {
    let (replicas, coming, yielding) = (Vec::new(), Vec::new(), Vec::new());
    Message::Ready { agent, replicas, coming, yielding, loads: Vec::new(), failed: Vec::new() }
}

fn answer(node: &mut Node, now_ns: u64, (from, number): (u64, u64)) {
    node.handle(now_ns, NodeEvent::Message(Message::Pong { from, number }));
}

#[test]
fn a_delayed_link_shows_its_delay() {
    let mut world = World::new(3, sums);
    // The way to agent 3 takes 4 ms and the way back 2 ms.
    world.hop_ns = |from, to| match (from, to) {
        (_, 3) => 4 * MS,
        (3, _) => 2 * MS,
        _ => MS,
    };
    world.apply_target(&three());
    world.pass(4_000 * MS);
    assert_eq!(hops(&world.nodes[&1]), [(2, MS), (3, 3 * MS)]);
    assert_eq!(hops(&world.nodes[&3]), [(1, 3 * MS), (2, 3 * MS)]);
}

#[test]
fn a_few_slow_answers_change_no_median() {
    let mut node = connected(2..=2);
    for second in 1..=9 {
        let begun_ns = second * 1_000 * MS;
        let sent = pings(&mut node, begun_ns);
        let took_ns = if second % 3 == 0 { 800 * MS } else { 2 * MS };
        answer(&mut node, begun_ns + took_ns, sent[0]);
    }
    assert_eq!(hops(&node), [(2, MS)]);
    assert_eq!(node.hops().map(|hop| hop.samples).collect::<Vec<_>>(), [9]);
}

#[test]
fn the_oldest_times_make_room_for_new_ones() {
    let mut node = connected(2..=2);
    let mut play = |from: u64, count: u64, took_ns: u64| {
        for turn in from..from + count {
            let begun_ns = turn * 1_000 * MS;
            let sent = pings(&mut node, begun_ns);
            answer(&mut node, begun_ns + took_ns, sent[0]);
        }
        node.hops().map(|hop| (hop.median_ns, hop.samples)).collect::<Vec<_>>()
    };
    assert_eq!(play(1, 100, 2 * MS), [(MS, HOP_SAMPLES_MAX)]);
    assert_eq!(play(101, HOP_SAMPLES_MAX as u64, 6 * MS), [(3 * MS, HOP_SAMPLES_MAX)]);
}

#[test]
fn many_agents_get_no_more_pings_than_one() {
    for count in [2, 40] {
        let mut node = connected(2..=count);
        let mut sent = Vec::new();
        // Ten seconds, in which the others announce themselves as often as agents do.
        for tick in 1..=500 {
            let now_ns = tick * 20 * MS;
            for other in (2..=count).filter(|_| tick % 20 == 0) {
                node.handle(now_ns, NodeEvent::Message(nothing_ready(other)));
            }
            for ping in pings(&mut node, now_ns) {
                answer(&mut node, now_ns, ping);
                sent.push(ping.0);
            }
        }
        let pings_max = 10 * PINGS_PER_SECOND_MAX as usize;
        assert!((pings_max / 2..=pings_max).contains(&sent.len()), "{count} agents: {} pings", sent.len());
        let first: BTreeSet<u64> = sent.iter().take(8).copied().collect();
        assert_eq!(first.len() as u64, 8.min(count - 1), "the agents take turns: {sent:?}");
    }
}

#[test]
fn late_answers_and_wrong_numbers_do_not_count() {
    let mut node = connected(2..=2);
    let sent = pings(&mut node, 1_000 * MS);
    assert_eq!(pings(&mut node, 1_300 * MS), [], "an agent that has not answered gets no other ping");
    answer(&mut node, 1_001 * MS, (2, sent[0].1 + 1));
    answer(&mut node, 1_001 * MS, (7, sent[0].1));
    assert_eq!(hops(&node), []);
    answer(&mut node, 1_000 * MS + ANSWER_NS_MAX + 1, sent[0]);
    assert_eq!(hops(&node), []);
}

#[test]
fn a_lost_agent_and_its_times_are_forgotten() {
    let mut node = connected(2..=3);
    for turn in 1..=2 {
        let sent = pings(&mut node, turn * 200 * MS);
        answer(&mut node, turn * 200 * MS + MS, sent[0]);
    }
    assert_eq!(node.hops().count(), 2);
    node.handle(500 * MS, NodeEvent::PeerDown(3));
    pings(&mut node, 700 * MS);
    assert_eq!(hops(&node), [(2, MS / 2)]);
}

#[test]
fn a_ping_is_answered_at_once() {
    let mut node = connected(2..=2);
    node.handle(MS, NodeEvent::Message(Message::Ping { from: 2, number: 9 }));
    let answers = node.flush();
    assert!(answers.contains(&Action::Send { agent: 2, message: Message::Pong { from: 1, number: 9 } }), "{answers:?}");
}
