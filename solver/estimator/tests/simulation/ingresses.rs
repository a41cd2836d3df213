//! Several ingresses choose replicas independently of each other.

use crate::common::{Built, arrivals, build, finishes, rate, stage};
use apportion_domain::Queueing;
use apportion_estimator::{
    ArrivalProcess, INGRESSES_MAX, IngressChoice, IngressSettings, SimulateError, SimulateOptions, Simulation, Workload,
    simulate,
};
use std::collections::BTreeSet;
use std::num::NonZeroU32;

const MS: u64 = 1_000_000;

/// Replicas of one task, which serve single queries in 6 ms.
fn replicas(count: u32) -> Built {
    build(&[stage(0, count, 1, 5.0, 1.0)], Queueing::PerReplica, 0.0, 1_000.0)
}

fn at_random(count: u32) -> IngressSettings {
    IngressSettings { count: NonZeroU32::new(count).expect("above 0"), choice: IngressChoice::AtRandom }
}

fn sticky(count: u32) -> IngressSettings {
    IngressSettings { choice: IngressChoice::Sticky, ..at_random(count) }
}

fn run(Built { problem, plan }: &Built, workload: &Workload, ingresses: IngressSettings) -> Simulation {
    let options = SimulateOptions { requests: true, ingresses, ..SimulateOptions::default() };
    simulate(problem, plan, workload, &options).expect("a plan that can be simulated")
}

#[test]
fn ingresses_in_turn_choose_replicas_independently() {
    let ends = |seed: u64, ingresses| {
        let workload = Workload { seed, ..arrivals(&[0, 5 * MS, 6 * MS, 11 * MS]) };
        finishes(&run(&replicas(2), &workload, ingresses)).into_iter().map(|ns| ns / MS).collect::<Vec<_>>()
    };
    assert_eq!(ends(1, IngressSettings::default()), [6, 11, 12, 17]);
    assert_eq!(ends(1, IngressSettings::in_turn(1)), [6, 11, 12, 17]);
    let seen: BTreeSet<Vec<u64>> = (0..40).map(|seed| ends(seed, IngressSettings::in_turn(2))).collect();
    // The ingresses begin at different replicas: the third request waits for the second one until 11 ms, while the other
    // replica is idle. Or they begin at the same one: the second request waits for the first until 6 ms.
    assert_eq!(seen, [vec![6, 11, 17, 17], vec![6, 12, 12, 18]].into());
}

#[test]
fn more_ingresses_make_queries_wait_longer() {
    let mean_ms = |ingresses| {
        let of_seed = |seed| {
            let workload = rate(300.0, 20, ArrivalProcess::Poisson, seed);
            run(&replicas(4), &workload, ingresses).pipelines[0].waiting[0].mean_ms
        };
        (1..=20).map(of_seed).sum::<f64>() / 20.0
    };
    let [one, three, random, kept] =
        [IngressSettings::default(), IngressSettings::in_turn(3), at_random(3), sticky(3)].map(mean_ms);
    assert!(one < three && one < random && one < kept, "{one}, {three}, {random}, {kept}");
}

#[test]
fn drawn_ingresses_follow_the_seed() {
    let ends = |seed: u64, ingresses| {
        let workload = Workload { seed, ..arrivals(&(0..200).map(|at| at * MS).collect::<Vec<_>>()) };
        finishes(&run(&replicas(8), &workload, ingresses))
    };
    assert_eq!(ends(1, at_random(3)), ends(1, at_random(3)));
    assert_ne!(ends(1, at_random(3)), ends(2, at_random(3)));
    assert_ne!(ends(1, at_random(3)), ends(1, IngressSettings::in_turn(3)));
    assert_eq!(ends(1, at_random(1)), ends(1, IngressSettings::default()), "chance has nothing to choose");
    assert_eq!(ends(1, sticky(3)), ends(1, sticky(3)));
    assert_ne!(ends(1, sticky(3)), ends(2, sticky(3)));
    assert_ne!(ends(1, sticky(3)), ends(1, at_random(3)));
    assert_eq!(ends(1, sticky(1)), ends(1, IngressSettings::default()));
}

#[test]
fn too_many_ingresses_are_refused() {
    let Built { problem, plan } = replicas(1);
    let result = |count: u32| {
        let options = SimulateOptions { ingresses: IngressSettings::in_turn(count), ..SimulateOptions::default() };
        simulate(&problem, &plan, &arrivals(&[0]), &options)
    };
    assert!(result(INGRESSES_MAX).is_ok());
    let error = result(INGRESSES_MAX + 1).expect_err("too many");
    assert!(matches!(error, SimulateError::TooLarge { what: "ingresses", .. }), "{error}");
}
