//! Two clients at one replica: whatever one of them sends, the other loses nothing.

use super::world::*;
use super::*;
use crate::node::gateway::APART_NS;
use crate::replica_event::BatchFault;
use crate::tensor::Datatype;

/// One replica with batches of 8 in 20 ms, whose rows have any width.
fn wide() -> apportion_protocol::v1::Target {
    let mut target = target(1, "a", &[], &[(1, 0, 8, 20, &[(1, 1)])]);
    let task = &mut target.pipelines[0].tasks[0];
    task.inputs[0].shape = vec![-1, -1];
    target.pipelines[0].slo_ns = 500 * MS;
    target
}

fn world() -> World {
    let mut world = World::new(1, widths);
    world.apply_target(&wide());
    world.pass(100 * MS);
    world
}

/// Each row's output is its width.
fn widths(_: &str, inputs: &[Tensor]) -> Vec<Tensor> {
    vec![numbers("y", &vec![inputs[0].shape[1] as f32; inputs[0].rows()])]
}

/// One row of so many equal numbers.
fn row(width: usize, value: f32) -> Tensor {
    let data: Vec<u8> = std::iter::repeat_n(value.to_le_bytes(), width).flatten().collect();
    Tensor { name: "x".into(), datatype: Datatype::Fp32, shape: vec![1, width], data: data.into() }
}

/// A batch with a negative number fails as a whole.
fn negatives(inputs: &[Tensor]) -> Option<BatchFault> {
    values(&inputs[0]).iter().any(|v| *v < 0.0).then(|| BatchFault::of_batch("an index is out of range"))
}

fn of(sender: u64) -> RequestTerms {
    RequestTerms { sender, ..RequestTerms::default() }
}

/// Two clients for two seconds: the first sends 100 rows a second of width 3, the second as `other` says each 10 ms. How
/// many of the first's were not answered well, and what was said to the second.
fn beside(world: &mut World, other: impl Fn(u64) -> Option<Tensor>) -> (usize, Vec<Result<Vec<f32>, Missed>>) {
    let (mut good, mut others) = (Vec::new(), Vec::new());
    for n in 0..200 {
        good.push(world.ask_for(1, "p", row(3, 1.0), of(1)));
        others.extend(other(n).map(|input| world.ask_for(1, "p", input, of(2))));
        world.pass(10 * MS);
    }
    world.pass(2_000 * MS);
    let lost = good.iter().filter_map(|a| outcome(a).err()).count();
    assert_eq!(world.unfinished(), [0]);
    (lost, others.iter().map(outcome).collect())
}

#[test]
fn rows_of_two_widths_are_batched_apart_and_all_served() {
    let mut world = world();
    let (lost, others) = beside(&mut world, |_| Some(row(5, 1.0)));
    assert_eq!(lost, 0);
    assert!(others.iter().all(|o| *o == Ok(vec![5.0])), "{others:?}");
    let largest = world.batches.iter().map(|b| b.size).max();
    assert!(largest > Some(1), "those of one width share batches");
}

#[test]
fn one_clients_bad_rows_cost_its_neighbour_nothing() {
    let mut world = world();
    world.fails = negatives;
    let (lost, others) = beside(&mut world, |n| (n % 10 == 0).then(|| row(3, -1.0)));
    assert_eq!((lost, others.len()), (0, 20));
    let all_told =
        others.iter().all(|o| o.as_ref().is_err_and(|e| e.to_string().contains("task a: an index is out of range")));
    assert!(all_told, "{others:?}");
    let counts = world.nodes.get_mut(&1).expect("it lives").take_counts();
    let batches = &counts.groups[&("p".into(), 1)];
    // The first bad row breaks a batch; then its sender is known, and its rows run in batches of their own.
    assert!((2..=8).contains(&batches.alone) && batches.failed == 20, "{batches:?}");
}

#[test]
fn bad_rows_of_unknown_senders_cost_neighbours_nothing() {
    let mut world = world();
    world.fails = negatives;
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for n in 0..100 {
        good.push(world.ask_for(1, "p", row(3, 1.0), of(0)));
        if n % 10 == 0 {
            bad.push(world.ask_for(1, "p", row(3, -1.0), of(0)));
        }
        world.pass(20 * MS);
    }
    world.pass(2_000 * MS);
    assert_eq!(good.iter().filter_map(|a| outcome(a).err()).collect::<Vec<_>>(), []);
    assert!(bad.iter().all(|a| outcome(a).is_err()));
}

#[test]
fn a_suspect_shares_batches_again_after_a_while() {
    let mut world = world();
    world.fails = negatives;
    let pair = |world: &mut World, value: f32| {
        world.batches.clear();
        let inputs = [row(3, 1.0), row(3, value)];
        let answers: Vec<_> = (1..).zip(inputs).map(|(s, input)| world.ask_for(1, "p", input, of(s))).collect();
        world.pass(200 * MS);
        let fine: Vec<bool> = answers.iter().map(|a| outcome(a).is_ok()).collect();
        (fine, world.batches.iter().map(|b| b.size).collect::<Vec<_>>())
    };
    assert_eq!(pair(&mut world, 1.0), (vec![true, true], vec![2]));
    assert_eq!(pair(&mut world, -1.0), (vec![true, false], vec![2, 1, 1]));
    assert_eq!(pair(&mut world, 1.0), (vec![true, true], vec![1, 1]), "kept apart");
    world.pass(APART_NS);
    assert_eq!(pair(&mut world, 1.0), (vec![true, true], vec![2]), "forgiven");
}

#[test]
fn where_nothing_can_be_run_members_are_not_tried_alone() {
    let mut world = world();
    world.fails = |_| Some(BatchFault { why: "the server is away".into(), is_of_batch: false });
    let answers: Vec<_> = (0..4).map(|_| world.ask_for(1, "p", row(3, 1.0), of(1))).collect();
    world.pass(200 * MS);
    assert!(answers.iter().all(|a| outcome(a).is_err_and(|e| e.to_string().contains("the server is away"))));
    assert_eq!(world.batches.iter().map(|b| b.size).collect::<Vec<_>>(), [4]);
}

#[test]
fn a_variant_that_fails_on_every_input_makes_no_suspects() {
    let mut world = world();
    world.fails = |_| Some(BatchFault::of_batch("broken"));
    let _all_fail: Vec<_> = (1..=3).map(|sender| world.ask_for(1, "p", row(3, 1.0), of(sender))).collect();
    world.pass(200 * MS);
    world.fails = |_| None;
    world.batches.clear();
    let _served: Vec<_> = (1..=3).map(|sender| world.ask_for(1, "p", row(3, 1.0), of(sender))).collect();
    world.pass(200 * MS);
    assert_eq!(world.batches.iter().map(|b| b.size).collect::<Vec<_>>(), [3]);
}
