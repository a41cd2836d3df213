//! Changes of plan where devices have room for one replica only.

use super::world::*;
use super::*;
use apportion_protocol::v1;
use proptest::prelude::*;

/// A replica takes all the memory of its device.
fn full(mut target: v1::Target) -> v1::Target {
    for group in &mut target.pipelines[0].groups {
        (group.memory_mib, group.device_memory_mib) = (600.0, 1_000.0);
    }
    target
}

/// One task, with these replicas (number, agent) of one group.
fn plan(generation: u64, group: u64, replicas: &[(u64, u64)]) -> v1::Target {
    full(target(generation, "a", &[], &[(group, 0, 4, 1, replicas)]))
}

/// Asks every millisecond for so long; the answers that were not in time, and the fewest replicas that were up at any time.
fn load(world: &mut World, ms: u64) -> (Vec<Missed>, usize) {
    let mut answers = Vec::new();
    let mut fewest = usize::MAX;
    for n in 0..ms {
        answers.push(world.ask(1, "p", &[n as f32]));
        world.pass(MS);
        let ready = world.nodes.values().flat_map(Node::replicas).filter(|r| r.takes_queries()).count();
        fewest = fewest.min(ready);
        for loaded in world.loaded.values() {
            assert!(loaded.len() <= 1, "a device has room for one: {loaded:?}");
        }
    }
    world.pass(2_000 * MS);
    (answers.iter().filter_map(|a| outcome(a).err()).collect(), fewest)
}

#[test]
fn full_devices_swap_one_replica_at_a_time() {
    let mut world = World::new(3, sums);
    world.load_ns = 200 * MS;
    world.apply_target(&plan(1, 1, &[(1, 1), (2, 2), (3, 3)]));
    world.pass(500 * MS);
    world.apply_target(&plan(2, 2, &[(4, 1), (5, 2), (6, 3)]));
    let (failures, fewest) = load(&mut world, 4_000);
    assert_eq!((failures, fewest), (vec![], 2));
    let loaded: Vec<u64> = world.loaded.values().flatten().copied().collect();
    assert_eq!(loaded, [4, 5, 6]);
    assert_eq!(world.unfinished(), [0; 3]);
}

#[test]
fn on_a_single_device_requests_wait_for_the_new_replica() {
    let mut world = World::new(1, sums);
    world.load_ns = 50 * MS;
    let slow = |mut target: v1::Target| {
        target.pipelines[0].slo_ns = 2_000 * MS;
        target
    };
    world.apply_target(&slow(plan(1, 1, &[(1, 1)])));
    world.pass(100 * MS);
    world.apply_target(&slow(plan(2, 2, &[(2, 1)])));
    let (failures, fewest) = load(&mut world, 1_500);
    assert_eq!((failures, fewest), (vec![], 0));
    assert!(world.nodes[&1].ready("p") && world.unfinished() == [0]);
}

#[test]
fn with_room_a_new_replica_loads_beside_the_old() {
    let mut world = World::new(1, sums);
    let roomy = |mut target: v1::Target| {
        target.pipelines[0].groups[0].memory_mib = 500.0;
        target
    };
    world.apply_target(&roomy(plan(1, 1, &[(1, 1)])));
    world.pass(100 * MS);
    world.apply_target(&roomy(plan(2, 2, &[(2, 1)])));
    world.pass(MS / 2);
    assert_eq!(world.loaded[&1], [1, 2].into());
    world.pass(1_000 * MS);
    assert_eq!(world.loaded[&1], [2].into());
}

#[test]
fn tasks_that_exchange_devices_do_not_deadlock() {
    let edges = [(true, 0, 1)];
    let place = |generation, first: u64, agents: [u64; 4]| {
        let [a, b, c, d] = agents;
        let one = [(first, a), (first + 1, b)];
        let two = [(first + 2, c), (first + 3, d)];
        full(target(generation, "ab", &edges, &[(first, 0, 4, 1, &one), (first + 10, 1, 4, 1, &two)]))
    };
    let mut world = World::new(4, sums);
    world.load_ns = 100 * MS;
    world.apply_target(&place(1, 100, [1, 2, 3, 4]));
    world.pass(500 * MS);
    world.apply_target(&place(2, 200, [3, 4, 1, 2]));
    let (failures, fewest) = load(&mut world, 4_000);
    assert!(failures.is_empty() && fewest >= 2, "{fewest} {failures:?}");
    let loaded: BTreeSet<u64> = world.loaded.values().flatten().copied().collect();
    assert_eq!(loaded, [200, 201, 202, 203].into());
}

#[test]
fn requests_before_the_first_ready_replica_are_refused() {
    let mut world = World::new(1, sums);
    world.load_ns = 100 * MS;
    world.apply_target(&plan(1, 1, &[(1, 1)]));
    world.pass(MS);
    let early = world.ask(1, "p", &[1.0]);
    world.pass(MS);
    assert!(outcome(&early).expect_err("refused").to_string().contains("NotReady"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// Any plans come one after the other to four full devices, each before or after the last is complete. No request
    /// fails, no device holds two, and in the end the last plan is there.
    #[test]
    fn no_sequence_of_plans_fails_a_request(
        plans in proptest::collection::vec((Just(vec![1_u64, 2, 3, 4]).prop_shuffle(), 1_usize..4, 200_u64..3_000), 2..6),
    ) {
        let edges = [(true, 0, 1)];
        let place = |generation: u64, agents: &[u64], of_first: usize| {
            let numbered = (1_u64..).zip(agents).map(|(n, agent)| (100 * generation + n, *agent));
            let numbered: Vec<(u64, u64)> = numbered.collect();
            let (one, two) = numbered.split_at(of_first);
            let crews = [(10 * generation, 0, 4, 1, one), (10 * generation + 1, 1, 4, 1, two)];
            let mut plan = full(target(generation, "ab", &edges, &crews));
            plan.pipelines[0].slo_ns = 1_000 * MS;
            plan
        };
        let mut world = World::new(4, sums);
        world.load_ns = 150 * MS;
        world.apply_target(&place(1, &[1, 2, 3, 4], 2));
        world.pass(500 * MS);
        let mut answers = Vec::new();
        let mut last = BTreeSet::new();
        for (generation, (agents, of_first, ms)) in (2..).zip(&plans) {
            world.apply_target(&place(generation, agents, *of_first));
            last = (1..=4).map(|n| 100 * generation + n).collect();
            for _ in 0..ms / 10 {
                answers.push(world.ask(1 + ms % 4, "p", &[1.0]));
                world.pass(10 * MS);
                prop_assert!(world.loaded.values().all(|loaded| loaded.len() <= 1), "{:?}", world.loaded);
            }
        }
        world.pass(15_000 * MS);
        for answer in &mut answers {
            let answer = answer.try_recv().expect("an answer");
            prop_assert!(matches!(answer, RequestAnswer::Done { .. }), "{answer:?}");
        }
        prop_assert_eq!(world.loaded.values().flatten().copied().collect::<BTreeSet<u64>>(), last);
        prop_assert_eq!(world.unfinished(), [0; 4]);
    }
}
