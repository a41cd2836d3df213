//! What must hold between runs of which one is derived from the other.

use crate::common::{Built, Fan, Stage, arrivals, build, finishes, rate, run, stage, with_pipeline};
use apportion_domain::{Batching, Dropping, Moment, Queueing, RoutingPolicy};
use apportion_estimator::{ArrivalProcess, Scenario, SimulateOptions, Simulation, Workload, replay, simulate};
use proptest::prelude::*;

/// A problem and a plan whose times are all `factor` times as long.
fn stretched(stages: &[Stage], queueing: Queueing, network_ms: u32, slo_ms: u32, factor: u32) -> Built {
    let f = f64::from(factor);
    let stage = |s: &Stage| Stage { base_ms: s.base_ms * f, each_ms: s.each_ms * f, ..s.clone() };
    let stages: Vec<Stage> = stages.iter().map(stage).collect();
    build(&stages, queueing, f64::from(network_ms) * f, f64::from(slo_ms) * f)
}

prop_compose! {
    fn stages()(
        count in 1_usize..4,
        parents in prop::collection::vec(0_usize..4, 4),
        fanouts in prop::collection::vec(prop::sample::select(vec![0.5, 1.0, 1.7, 3.0]), 4),
        replicas in prop::collection::vec(1_u32..4, 4),
        batches in prop::collection::vec(1_u32..5, 4),
        base in prop::collection::vec(0_u8..5, 4),
    ) -> Vec<Stage> {
        let of = |t: usize| Stage {
            parent: if t == 0 { 0 } else { parents[t] % t },
            fanout: Fan::Mean(fanouts[t]),
            ..stage(0, replicas[t], batches[t], f64::from(base[t]), 1.0)
        };
        (0..count).map(of).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    // Policies whose periods are seconds whatever the times are (PARD's states) do not scale.
    #[test]
    fn scaling_all_times_scales_all_results(
        stages in stages(), central: bool, network_ms in 0_u32..3, slo_ms in 10_u32..120, factor in 2_u32..9,
        batching in 0_usize..3, dropping in 0_usize..7, jsq: bool,
        gaps_ms in prop::collection::vec(0_u64..6, 1..60),
    ) {
        let queueing = if central { Queueing::Central } else { Queueing::PerReplica };
        let outcome = |factor: u32| {
            let mut at = 0;
            let at: Vec<u64> =
                gaps_ms.iter().map(|gap| { at += gap * 1_000_000 * u64::from(factor); at }).collect();
            let mut built = stretched(&stages, queueing, network_ms, slo_ms, factor);
            let serving = &mut built.plan.pipelines[0].serving;
            serving.batching = [Batching::AtStart, Batching::Forming, Batching::WaitUntil][batching];
            serving.dropping = [
                Dropping::Naive, Dropping::LastTask, Dropping::PerTask, Dropping::Reroute, Dropping::Nexus,
                Dropping::ClipperPlusPlus, Dropping::NexusSplit,
            ][dropping];
            serving.routing = if jsq { RoutingPolicy::Jsq } else { RoutingPolicy::Stride };
            run(&built, &arrivals(&at)).requests
        };
        for (short, long) in outcome(1).into_iter().zip(outcome(factor)) {
            prop_assert_eq!((short.outcome, short.drop_task, short.reason), (long.outcome, long.drop_task, long.reason));
            let scaled = short.finish.map(|f| Moment::from_nanos(f.as_nanos() * u64::from(factor)));
            prop_assert_eq!(scaled, long.finish, "request {}", short.request);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    // Noise: one more replica may turn two full batches into three, which then meet differently at the next task. The cost
    // of this is less than a full batch of each task.
    #[test]
    fn more_replicas_never_raise_the_tail_under_a_central_queue(
        stages in stages(), qps in 20.0_f64..400.0, seed in 0_u64..1_000, at in 0_usize..4,
    ) {
        let workload = rate(qps, 40, ArrivalProcess::Poisson, seed);
        let p99_ms = |stages: &[Stage]| run(&build(stages, Queueing::Central, 0.0, 1e6), &workload).total.p99_ms;
        let mut more = stages.clone();
        let at = at % more.len();
        more[at].replicas += 1;
        let noise_ms: f64 = stages.iter().map(|s| s.base_ms + s.each_ms * f64::from(s.batch)).sum();
        let (few, many) = (p99_ms(&stages), p99_ms(&more));
        prop_assert!(many <= 1.02 * few + noise_ms, "{few} ms with {:?}, {many} ms with one more at task {at}", stages);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    // `t0`, then `t1` and `t2`, and requests that never meet: a request ends when the slower of its two ways ends.
    #[test]
    fn sizes_shift_lonely_requests_by_the_time_of_their_bytes(
        central: bool, network_ms in 0_u32..3, ingress_ms in 0_u32..4, per_mib_ms in 0_u32..5,
        kib in prop::collection::vec(0_u32..5, 3), times_ms in prop::collection::vec(1_u32..30, 3),
    ) {
        let queueing = if central { Queueing::Central } else { Queueing::PerReplica };
        let stages = times_ms.iter().map(|&ms| stage(0, 1, 1, f64::from(ms), 0.0)).collect::<Vec<_>>();
        let plain = build(&stages, queueing, f64::from(network_ms), 1_000.0);
        let sized = with_pipeline(&plain, |draft| {
            (draft.ingress_ms, draft.network_ms_per_mib) = (f64::from(ingress_ms), f64::from(per_mib_ms));
            draft.ingress_kib_per_query = 512.0 * f64::from(kib[0]);
            draft.edges.iter_mut().zip(&kib[1..]).for_each(|(e, &kib)| e.kib_per_query = 512.0 * f64::from(kib));
        });
        // In halves of a millisecond, so that everything is whole.
        let hop = |t: usize| 2 * network_ms + per_mib_ms * kib[t];
        let way = |t: usize| hop(t) + 2 * times_ms[t];
        let takes_ns = u64::from(2 * ingress_ms + way(0) + way(1).max(way(2))) * 500_000;
        let at: Vec<u64> = (0..5).map(|n| n * 1_000_000_000).collect();
        let expected: Vec<u64> = at.iter().map(|at| at + takes_ns).collect();
        prop_assert_eq!(finishes(&run(&sized, &arrivals(&at))), expected);
    }

    // A size without a time for it, and a time without a size.
    #[test]
    fn sizes_alone_and_times_alone_change_nothing(
        stages in stages(), central: bool, network_ms in 0_u32..3, qps in 20.0_f64..200.0, seed in 0_u64..1_000,
    ) {
        let queueing = if central { Queueing::Central } else { Queueing::PerReplica };
        let plain = build(&stages, queueing, f64::from(network_ms), 100.0);
        let sized = with_pipeline(&plain, |draft| {
            draft.ingress_kib_per_query = 300.0;
            draft.edges.iter_mut().for_each(|edge| edge.kib_per_query = 6_000.0);
        });
        let timed = with_pipeline(&plain, |draft| draft.network_ms_per_mib = 8.0);
        let workload = rate(qps, 2, ArrivalProcess::Poisson, seed);
        let [plain, sized, timed] = [plain, sized, timed].map(|built| run(&built, &workload));
        prop_assert_eq!((&plain.requests, &plain.total), (&sized.requests, &sized.total));
        prop_assert_eq!((&plain.requests, &plain.total), (&timed.requests, &timed.total));
    }

    // In a pipeline of one task, one hop and the ingress are the same.
    #[test]
    fn the_ingress_of_a_single_task_is_as_a_hop(
        replicas in 1_u32..4, batch in 1_u32..5, ms in 1_u32..5, qps in 20.0_f64..400.0, seed in 0_u64..1_000,
    ) {
        let stages = [stage(0, replicas, batch, 5.0, 1.0)];
        let hop = build(&stages, Queueing::PerReplica, f64::from(ms), 100.0);
        let plain = build(&stages, Queueing::PerReplica, 0.0, 100.0);
        let ingress = with_pipeline(&plain, |draft| draft.ingress_ms = f64::from(ms));
        let workload = rate(qps, 2, ArrivalProcess::Poisson, seed);
        let [hop, ingress] = [hop, ingress].map(|built| run(&built, &workload));
        prop_assert_eq!((&hop.requests, &hop.total), (&ingress.requests, &ingress.total));
    }
}

#[test]
fn runs_are_the_same_in_any_number_of_threads() {
    let stages = [stage(0, 2, 4, 5.0, 2.0), Stage { fanout: Fan::Mean(1.7), ..stage(0, 3, 4, 4.0, 1.0) }];
    let job = |n: u64| -> (Built, Workload) {
        let queueing = if n.is_multiple_of(2) { Queueing::Central } else { Queueing::PerReplica };
        let Built { problem, mut plan } = build(&stages, queueing, 1.0, 80.0);
        let serving = &mut plan.pipelines[0].serving;
        (serving.batching, serving.dropping) = (Batching::Forming, Dropping::Pard);
        (Built { problem, plan }, rate(180.0, 10, ArrivalProcess::Gamma(2.0), n / 2))
    };
    let go = |n: u64| -> Simulation {
        let (Built { problem, plan }, workload) = job(n);
        let options = SimulateOptions { requests: true, ..SimulateOptions::default() };
        if n.is_multiple_of(3) {
            let scenario = Scenario { steward: true, ..Scenario::default() };
            return replay(&problem, &plan, &workload, &options, scenario).expect("a run").simulation;
        }
        simulate(&problem, &plan, &workload, &options).expect("a run")
    };
    let alone: Vec<Simulation> = (0..12).map(go).collect();
    for threads in [2_u64, 4, 12] {
        let mut together: Vec<(u64, Simulation)> = std::thread::scope(|scope| {
            let of = |thread| scope.spawn(move || (0..12).filter(|n| n % threads == thread).map(|n| (n, go(n))).collect());
            let handles: Vec<std::thread::ScopedJoinHandle<'_, Vec<_>>> = (0..threads).map(of).collect();
            handles.into_iter().flat_map(|h| h.join().expect("it ends")).collect()
        });
        together.sort_by_key(|&(n, _)| n);
        for (one, (_, other)) in alone.iter().zip(&together) {
            assert_eq!(one.total, other.total, "{threads} threads");
            assert_eq!(one.requests, other.requests, "{threads} threads");
        }
    }
}
