//! The headroom of a ladder follows the misses at all gateways.

use super::steer::{extras, offer, spare};
use super::world::*;
use super::*;
use apportion_protocol::v1;
use apportion_serving::headroom_controller::HEADROOM_START;

/// One replica at agent 1, spare devices at all three agents, and a ladder that may miss 1 % of the requests.
fn followed(generation: u64) -> v1::Target {
    let mut target = spare(generation);
    let step = |rate_qps, replicas| v1::LadderStep { rate_qps, replicas: vec![replicas] };
    let of = &mut target.pipelines[0];
    of.missed_share_max = 0.01;
    of.ladder = vec![step(80.0, 1), step(120.0, 2), step(240.0, 3), step(480.0, 5)];
    target
}

fn world() -> World {
    let mut world = World::new(3, sums);
    world.load_ns = 300 * MS;
    world.apply_target(&followed(1));
    world.pass(3_000 * MS);
    world
}

fn headroom(world: &World, host: u64) -> HostedHeadroom {
    world.nodes[&host].headrooms().next().expect("it hosts the steward").1
}

#[test]
fn misses_at_another_gateway_add_replicas_until_they_end() {
    let mut world = world();
    // The reserve for leaps holds the mean of all seconds: later the present load exceeds it.
    assert_eq!(offer(&mut world, 20, 60_000), 0);
    offer(&mut world, 60, 70_000);
    let calm = headroom(&world, 1);
    assert!(calm.headroom < HEADROOM_START, "all were in time: {calm:?}");
    assert_eq!(extras(&world), []);
    // A batch takes longer than the SLO.
    world.slowness = |_| 15.0;
    assert!(offer(&mut world, 60, 2_000) > 60);
    let strained = headroom(&world, 1);
    assert!(strained.headroom > calm.headroom + 0.3, "{calm:?} {strained:?}");
    assert!(strained.budget_left_ratio < calm.budget_left_ratio, "{calm:?} {strained:?}");
    assert_ne!(extras(&world), [], "the load is the same, the headroom is not");
    world.slowness = |_| 1.0;
    offer(&mut world, 60, 5_000);
    assert_eq!(offer(&mut world, 60, 40_000), 0);
    let after = headroom(&world, 1);
    assert!(after.headroom < strained.headroom - 0.3, "{strained:?} {after:?}");
    // Replicas go once headroom times load is less by a fifth. The load was 60 all the time, so a part comes from it.
    assert_eq!(offer(&mut world, 40, 70_000), 0);
    assert_eq!(extras(&world), [], "the headroom has fallen");
    assert_eq!(world.unfinished(), [0; 3]);
}

#[test]
fn the_next_target_keeps_the_budget_the_next_host_does_not() {
    let mut world = world();
    offer(&mut world, 60, 15_000);
    world.slowness = |_| 15.0;
    offer(&mut world, 60, 2_000);
    world.slowness = |_| 1.0;
    offer(&mut world, 60, 5_000);
    let before = headroom(&world, 1);
    assert!(before.budget_left_ratio < 0.0, "{before:?}");
    world.apply_target(&followed(2));
    world.pass(1_000 * MS);
    let next = headroom(&world, 1);
    assert!((next.budget_left_ratio - before.budget_left_ratio).abs() < 0.5, "{before:?} {next:?}");
    assert!((next.headroom - before.headroom).abs() < 0.2, "{before:?} {next:?}");
    world.lose(1);
    world.pass(6_000 * MS);
    let fresh = headroom(&world, 2);
    assert_eq!((fresh.budget_left_ratio, fresh.is_saturated), (1.0, false), "{fresh:?}");
}

/// The host of `followed(1)` by itself, and what agents 2 and 3 tell it.
struct Host {
    node: Node,
    now_ns: u64,
}

impl Host {
    fn new() -> Self {
        let mut host = Self { node: Node::new(1, 5), now_ns: 0 };
        host.node.handle(0, NodeEvent::Target(Arc::new(lay_out(&followed(1)).expect("a valid target"))));
        host.second(vec![]);
        host
    }

    /// A second passes after these measurements.
    fn second(&mut self, told: Vec<NodeEvent>) -> HostedHeadroom {
        told.into_iter().for_each(|event| self.node.handle(self.now_ns, event));
        for _ in 0..10 {
            self.now_ns += 100 * MS;
            self.node.handle(self.now_ns, NodeEvent::Tick);
            self.node.flush();
        }
        self.node.headrooms().next().expect("it hosts the steward").1
    }
}

/// What an agent tells; `ended` has the number of its life, and its requests in time and missed.
fn told(agent: u64, ended: Option<[u64; 3]>) -> NodeEvent {
    let ended = ended.map(|[session, in_time, missed]| v1::EndedRequests { session, in_time, missed });
    let fence = Some(v1::Fence { incarnation: 1, generation: 1 });
    NodeEvent::Message(Message::Measured(v1::Measured { agent, pipeline: "p".into(), fence, ended, ..Default::default() }))
}

#[test]
fn a_restarted_and_a_silent_agent_lose_no_request() {
    let mut host = Host::new();
    let first = host.second(vec![told(2, Some([7, 1_000, 90])), told(3, Some([9, 500, 0]))]);
    assert_eq!(first.budget_left_ratio, 1.0, "nobody knows when these requests ended");
    let mut expect = |told: Vec<NodeEvent>, missed: f64, permitted: f64| {
        let seen = host.second(told);
        assert!((seen.budget_left_ratio - (1.0 - missed / permitted)).abs() < 1e-9, "{seen:?}, {missed} of {permitted}");
    };
    expect(vec![told(2, Some([7, 1_090, 100]))], 10.0, 1.0);
    // Agent 2 restarts, and agent 3 is silent.
    expect(vec![told(2, Some([8, 100, 0]))], 10.0, 2.0);
    (0..4).for_each(|_| expect(vec![], 10.0, 2.0));
    expect(vec![told(3, Some([9, 1_300, 0]))], 10.0, 10.0);
    expect(vec![told(2, Some([8, 90, 0]))], 10.0, 10.0);
}

#[test]
fn agents_that_count_nothing_leave_the_headroom_as_it_begins() {
    let mut host = Host::new();
    for _ in 0..30 {
        let seen = host.second(vec![told(2, None), told(3, None)]);
        assert_eq!((seen.headroom, seen.budget_left_ratio), (HEADROOM_START, 1.0));
    }
}
