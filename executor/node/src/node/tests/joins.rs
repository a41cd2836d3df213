//! Queries that wait for others, at several agents.

use super::world::*;
use super::*;
use apportion_serving::mix::{STEP, mix};
use proptest::prelude::*;

/// `a` makes `b` and `c`, `b` makes `d`, which waits for `c`: each task at an agent of its own, `d` at two.
const DIAMOND: [(bool, u32, u32); 4] = [(true, 0, 1), (true, 0, 2), (true, 1, 3), (false, 2, 3)];

fn diamond(b_ms: u64, c_ms: u64) -> World {
    let crews: &[Crew<'_>] =
        &[(1, 0, 4, 1, &[(1, 1)]), (2, 1, 4, b_ms, &[(2, 2)]), (3, 2, 4, c_ms, &[(3, 3)]), (4, 3, 4, 1, &[(4, 2), (5, 4)])];
    let mut world = World::new(4, |task, inputs| {
        let factor = match task {
            "b" => 10.0,
            "c" => 100.0,
            _ => 1.0,
        };
        let sums = values(&sums(task, inputs)[0]);
        vec![numbers("y", &sums.iter().map(|v| v * factor).collect::<Vec<_>>())]
    });
    world.apply_target(&target(1, "abcd", &DIAMOND, crews));
    world.pass(5 * MS);
    world
}

#[test]
fn a_join_has_the_results_of_both_branches() {
    for (b_ms, c_ms) in [(2, 20), (20, 2)] {
        let mut world = diamond(b_ms, c_ms);
        let begun = world.now_ns;
        let answer = world.ask(1, "p", &[1.0, 2.0, 3.0]);
        world.pass(60 * MS);
        assert_eq!(outcome(&answer), Ok(vec![110.0, 220.0, 330.0]), "b takes {b_ms} ms, c {c_ms}");
        assert_eq!(world.unfinished(), [0; 4]);
        let joined = world.batches.iter().find(|b| b.replica > 3).expect("a batch of the join").begun_ns - begun;
        assert!(joined >= 21 * MS, "not before both have ended: {joined}");
    }
}

#[test]
fn an_ancestors_outputs_come_along() {
    // `c` takes the outputs of `b`, which makes its queries, and of `a`.
    let edges = [(true, 0, 1), (true, 1, 2), (false, 0, 2)];
    let crews: &[Crew<'_>] = &[(1, 0, 4, 1, &[(1, 1)]), (2, 1, 4, 1, &[(2, 2)]), (3, 2, 4, 1, &[(3, 3)])];
    let mut world = World::new(3, |task, inputs| {
        let sums = sums(task, inputs);
        if task == "b" { vec![numbers("y", &values(&sums[0]).iter().map(|v| v * 10.0).collect::<Vec<_>>())] } else { sums }
    });
    world.apply_target(&target(1, "abc", &edges, crews));
    world.pass(5 * MS);
    let answer = world.ask(1, "p", &[1.0, 2.0]);
    world.pass(60 * MS);
    assert_eq!((outcome(&answer), world.unfinished()), (Ok(vec![11.0, 22.0]), vec![0; 3]));
}

#[test]
fn a_meeting_at_a_lost_agent_happens_again_elsewhere() {
    let mut world = diamond(20, 2);
    let answers: Vec<_> = (0..8).map(|n| world.ask(1, "p", &[n as f32])).collect();
    world.pass(10 * MS);
    // Every second request was to meet there; what `c` has brought is lost with it.
    world.lose(4);
    world.pass(3_000 * MS);
    for (n, answer) in answers.iter().enumerate() {
        let n = n as f32;
        let done = answer.try_recv().expect("an answer");
        let RequestAnswer::Done { pieces, .. } = done else { panic!("{done:?}") };
        assert_eq!(values(&pieces[0].outputs[0]), [110.0 * n]);
    }
    assert_eq!(world.unfinished(), [0; 3]);
}

#[test]
fn an_unfinished_meeting_is_forgotten_with_its_request() {
    let mut world = diamond(2, 20);
    let answer = world.ask(1, "p", &[1.0]);
    world.pass(10 * MS);
    // The agent of `c` is gone with its query, and there is no other: the gateway's runs all fail to end.
    world.lose(3);
    world.pass(4_000 * MS);
    let done = answer.try_recv().expect("an answer");
    assert!(matches!(done, RequestAnswer::NotReady(_) | RequestAnswer::GivenUp), "{done:?}");
    assert_eq!(world.unfinished(), [0; 3]);
}

/// A cheap and even mixture of numbers.
fn mixed(seed: u64, n: u64) -> u64 {
    mix(seed.wrapping_add(n.wrapping_mul(STEP)))
}

/// As many children of each row as its fraction says, in tenths: 0, 1 or 2.
fn varies(task: &str, inputs: &[Tensor]) -> Vec<Tensor> {
    let sums = values(&sums(task, inputs)[0]);
    let (mut rows, mut parents) = (Vec::new(), Vec::new());
    for (parent, value) in sums.into_iter().enumerate() {
        let count = (value * 7.0 + task.len() as f32) as usize % 3;
        (0..count).for_each(|k| rows.push(value + k as f32 + 1.0));
        parents.extend(std::iter::repeat_n((parent as i64).to_le_bytes(), count).flatten());
    }
    let shape = vec![rows.len()];
    let datatype = crate::tensor::Datatype::Int64;
    vec![numbers("y", &rows), Tensor { name: "parent".into(), datatype, shape, data: parents.into() }]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    /// Nested joins, any fan-out, drops, partial answers or not, an agent lost now and then: one answer each, and no trace.
    #[test]
    fn every_request_has_one_answer_and_no_meeting_is_left(
        seed in any::<u64>(), partial in any::<bool>(), dropping in 0usize..3, lost in proptest::option::of(2u64..5),
    ) {
        // a -> {b -> {d, e}, c}; e -> g waits for d (fork b) and c (fork a); f waits for b's outputs.
        let edges = [
            (true, 0, 1), (true, 0, 2), (true, 1, 3), (true, 1, 4), (true, 4, 5), (false, 3, 5), (false, 2, 5),
        ];
        let crews: &[Crew<'_>] = &[
            (1, 0, 4, 1, &[(1, 1)]),
            (2, 1, 2, 5, &[(2, 2), (12, 3)]),
            (3, 2, 2, 9, &[(3, 3), (13, 4)]),
            (4, 3, 2, 7, &[(4, 4), (14, 2)]),
            (5, 4, 2, 3, &[(5, 2), (15, 4)]),
            (6, 5, 2, 4, &[(6, 3), (16, 2)]),
        ];
        let dropping = ["naive", "per_task", "pard"][dropping];
        let mut target = served(target(1, "abcdeg", &edges, crews), "forming", dropping);
        target.pipelines[0].partial = partial;
        let mut world = World::new(4, varies);
        world.apply_target(&target);
        world.pass(5 * MS);
        let mut answers = Vec::new();
        for n in 0..30 {
            answers.push(world.ask(1, "p", &[(mixed(seed, n) % 9) as f32, (mixed(seed, n + 100) % 9) as f32]));
            world.pass(mixed(seed, n + 200) % (4 * MS));
            if n == 15 && let Some(agent) = lost {
                world.lose(agent);
            }
        }
        world.pass(9_000 * MS);
        for answer in &mut answers {
            prop_assert!(answer.try_recv().is_ok(), "an answer for each");
        }
        let left = world.unfinished();
        prop_assert!(left.iter().all(|n| *n == 0), "{left:?}");
    }
}
