//! What is counted to be compared with the profile.

use super::world::*;
use crate::layout::ProfiledTime;
use crate::node::counts::EndedWell;
use crate::replica_event::BatchFault;

#[test]
fn only_batches_that_end_well_are_compared() {
    let mut world = World::new(1, sums);
    world.slowness = |_| 1.3;
    world.fails = |inputs| values(&inputs[0]).iter().any(|v| *v < 0.0).then(|| BatchFault::of_batch("negative"));
    let crews: [Crew<'_>; 2] = [(1, 0, 1, 10, &[(1, 1)]), (2, 1, 1, 20, &[(2, 1)])];
    world.apply_target(&target(1, "ab", &[(true, 0, 1)], &crews));
    world.pass(5 * MS);
    for value in [1.0, 1.0, -1.0] {
        let _client_goes = world.ask(1, "p", &[value]);
        world.pass(100 * MS);
    }
    let counts = world.nodes.get_mut(&1).expect("it lives").take_counts();
    let [first, second] = [1, 2].map(|group| &counts.groups[&("p".to_owned(), group)]);
    assert_eq!(
        first.ended_well,
        EndedWell { batches: 2, took_ns: 26 * MS, expected: ProfiledTime::certain(20 * MS), queries: 2 }
    );
    assert_eq!((first.batches, first.failed, first.children["b"]), (3, 1, 2));
    assert_eq!(
        second.ended_well,
        EndedWell { batches: 2, took_ns: 52 * MS, expected: ProfiledTime::certain(40 * MS), queries: 2 }
    );
}

/// The factor on a batch's time, by its number.
type Slowness = fn(usize) -> f64;

#[test]
fn a_share_without_its_neighbour_is_as_profiled() {
    // By the profile a batch takes 10 ms beside a neighbour, and so 5 ms alone.
    let cases: [(Slowness, f64); 5] = [(|_| 0.25, 0.5), (|_| 0.5, 1.0), (|_| 0.75, 1.0), (|_| 1.0, 1.0), (|_| 1.5, 1.5)];
    for (slowness, ratio) in cases {
        let mut world = World::new(1, sums);
        world.slowness = slowness;
        let crews: [Crew<'_>; 1] = [(1, 0, 1, 10, &[(1, 1)])];
        let mut half = target(1, "a", &[], &crews);
        half.pipelines[0].groups.iter_mut().for_each(|group| (group.share, group.interference) = (0.5, 2.0));
        world.apply_target(&half);
        world.pass(5 * MS);
        let _client_goes = world.ask(1, "p", &[1.0]);
        world.pass(100 * MS);
        let counts = world.nodes.get_mut(&1).expect("it lives").take_counts();
        let ended = counts.groups[&("p".to_owned(), 1)].ended_well;
        assert_eq!(ended.expected, ProfiledTime { alone_ns: 5 * MS, beside_ns: 10 * MS });
        assert_eq!(ended.took_ns as f64 / ended.compared_ns() as f64, ratio, "{ended:?}");
    }
}
