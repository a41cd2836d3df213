//! A run whose accounts a second thread keeps has the results of a run with one thread, to the last bit.

use crate::common::{Built, Fan, Stage, build, rate, stage, with_pipeline};
use apportion_domain::{AccuracyModel, Batching, Dropping, Partial, Queueing, RoutingPolicy, ServingPolicy};
use apportion_estimator::{
    Accounting, ArrivalProcess, IngressChoice, IngressSettings, SimulateOptions, Workload, expected_visits,
    keeps_accounts_apart, simulate,
};
use proptest::prelude::*;
use std::num::NonZeroU32;

prop_compose! {
    fn stages()(
        count in 1_usize..5,
        parents in prop::collection::vec(0_usize..4, 5),
        fanouts in prop::collection::vec(0_usize..6, 5),
        replicas in prop::collection::vec(1_u32..9, 5),
        batches in prop::collection::vec(1_u32..9, 5),
        base in prop::collection::vec(0_u8..4, 5),
    ) -> Vec<Stage> {
        let fans = [
            Fan::Mean(0.0), Fan::Mean(0.6), Fan::Mean(1.0), Fan::Mean(2.7), Fan::Mean(9.3),
            Fan::Counts(vec![(0, 0.3), (1, 0.5), (7, 0.2)]),
        ];
        let of = |t: usize| Stage {
            parent: if t == 0 { 0 } else { parents[t] % t },
            fanout: fans[fanouts[t]].clone(),
            accuracy: 0.7 + 0.05 * t as f64,
            ..stage(0, replicas[t], batches[t], f64::from(base[t]), 0.7)
        };
        (0..count).map(of).collect()
    }
}

/// As the test compares runs: every figure with all its digits, or the error.
fn results(built: &Built, workload: &Workload, options: &SimulateOptions) -> String {
    match simulate(&built.problem, &built.plan, workload, options) {
        Ok(run) => format!("{:?}", (run.pipelines, run.total, run.visits)),
        Err(error) => format!("{error:?}"),
    }
}

/// A minute in which this many visits are expected.
fn minute(built: &Built, visits: f64, process: ArrivalProcess, seed: u64) -> Workload {
    let each = |qps: f64| {
        let one = rate(qps, 60, process, seed);
        Workload { traces: vec![one.traces[0].clone(); built.problem.pipelines.len()], ..one }
    };
    each(visits / expected_visits(&built.problem, &built.plan, &each(1.0).traces))
}

/// The same with a second pipeline that is equal to the first.
fn twice(built: &Built) -> Built {
    let Built { problem, mut plan } = built.clone();
    let second = problem.pipelines[0].changed(&problem.hardware, |draft| draft.name = "q".into());
    let problem = problem.changed(|draft| draft.pipelines.push(second.expect("a valid pipeline")));
    let mut part = plan.pipelines[0].clone();
    part.name = "q".into();
    plan.pipelines.push(part);
    Built { problem: problem.expect("a valid problem"), plan }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_second_thread_changes_no_figure(
        stages in stages(), central: bool, jsq: bool, partial: bool, by_task: bool, is_twice: bool,
        network_ms in prop::sample::select(vec![0.0, 0.3]), slo_ms in prop::sample::select(vec![5.0, 20.0, 80.0]),
        batching in prop::sample::select(vec![Batching::AtStart, Batching::Forming, Batching::WaitUntil]),
        dropping in prop::sample::select(vec![Dropping::Naive, Dropping::Naive, Dropping::Naive, Dropping::PerTask]),
        process in prop::sample::select(vec![
            ArrivalProcess::Poisson, ArrivalProcess::Uniform, ArrivalProcess::Gamma(2.0),
        ]),
        ingresses in 1_u32..4, seed in 0_u64..1_000,
    ) {
        let queueing = if central { Queueing::Central } else { Queueing::PerReplica };
        let mut built = with_pipeline(&build(&stages, queueing, network_ms, slo_ms), |draft| {
            draft.partial = if partial { Partial::Allow } else { Partial::Deny };
            draft.accuracy_model = if by_task { AccuracyModel::TaskMean } else { AccuracyModel::Product };
        });
        let routing = if jsq { RoutingPolicy::Jsq } else { RoutingPolicy::Stride };
        built.plan.pipelines[0].serving = ServingPolicy { queueing, batching, routing, dropping };
        let built = if is_twice { twice(&built) } else { built };
        // Just enough for a second thread. Some of these loads are far above the capacity.
        let workload = minute(&built, 60_000.0, process, seed);
        let choice = IngressChoice::AtRandom;
        let ingresses = IngressSettings { count: NonZeroU32::new(ingresses).expect("above 0"), choice };
        let alone = SimulateOptions { ingresses, ..SimulateOptions::default() };
        let apart = SimulateOptions { accounting: Accounting::SecondThread, ..alone.clone() };
        let is_apart = |options| keeps_accounts_apart(&built.problem, &built.plan, &workload, options);
        prop_assert_eq!((is_apart(&alone), is_apart(&apart)), (false, dropping == Dropping::Naive));
        prop_assert_eq!(results(&built, &workload, &apart), results(&built, &workload, &alone));
    }
}

#[test]
fn a_run_that_meets_its_bound_ends_with_the_same_reason() {
    let fork = [stage(0, 4, 4, 1.0, 1.0), Stage { fanout: Fan::Mean(2.7), ..stage(0, 8, 8, 1.0, 1.0) }];
    let built = build(&fork, Queueing::PerReplica, 0.0, 60.0);
    // Bursts so large that some traces have many more requests than are expected.
    let visits_max = Some(60_001);
    let cut = |seed: &u64| {
        let workload = minute(&built, 60_000.0, ArrivalProcess::Gamma(40.0), *seed);
        let alone = SimulateOptions { visits_max, ..SimulateOptions::default() };
        let apart = SimulateOptions { accounting: Accounting::SecondThread, ..alone.clone() };
        assert!(keeps_accounts_apart(&built.problem, &built.plan, &workload, &apart));
        let result = results(&built, &workload, &apart);
        assert_eq!(result, results(&built, &workload, &alone), "seed {seed}");
        result.contains("Visits")
    };
    let cuts = (0..12).filter(cut).count();
    assert!((1..12).contains(&cuts), "{cuts} of 12");
}

#[test]
fn a_second_thread_needs_work_and_sums_alone() {
    let built = build(&[stage(0, 2, 4, 1.0, 1.0)], Queueing::PerReplica, 0.0, 20.0);
    let apart = SimulateOptions { accounting: Accounting::SecondThread, ..SimulateOptions::default() };
    let is_apart = |visits: f64, options: &SimulateOptions| {
        let workload = minute(&built, visits, ArrivalProcess::Poisson, 1);
        keeps_accounts_apart(&built.problem, &built.plan, &workload, options)
    };
    assert!(is_apart(100_000.0, &apart));
    assert!(!is_apart(10_000.0, &apart), "a short run");
    assert!(!is_apart(100_000.0, &SimulateOptions { requests: true, ..apart.clone() }), "records");
    assert!(!is_apart(100_000.0, &SimulateOptions { misses_max: Some(1 << 40), ..apart.clone() }), "a bound of misses");
    let dropping = Some(ServingPolicy { dropping: Dropping::LastTask, ..ServingPolicy::default() });
    assert!(!is_apart(100_000.0, &SimulateOptions { serving: dropping, ..apart }), "a dropping policy");
}
