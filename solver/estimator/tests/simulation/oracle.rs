//! A second simulator, slow and obvious, agrees with the first on small random cases. The simulators agree on the end of
//! every request, or on where and why it was dropped. They also agree on queueing, batch wait and execution at each task.

use crate::common::{Built, Fan, Stage, arrivals, build, run};
use crate::slow::{Case, Fate, Oracle, Spent};
use apportion_domain::{Batching, Dropping, Partial, Queueing, TaskIndex, TaskWaiting};
use apportion_estimator::{RequestOutcome, Scenario, SimulateOptions, replay};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

prop_compose! {
    fn stages()(
        count in 1_usize..5,
        parents in prop::collection::vec(0_usize..4, 5),
        fanouts in prop::collection::vec(0_u8..4, 5),
        replicas in prop::collection::vec(1_u32..4, 5),
        batches in prop::collection::vec(1_u32..5, 5),
        base in prop::collection::vec(0_u8..4, 5),
        each in prop::collection::vec(1_u8..4, 5),
    ) -> Vec<Stage> {
        let stage = |t: usize| Stage {
            parent: if t == 0 { 0 } else { parents[t] % t },
            fanout: Fan::Mean(f64::from(fanouts[t])),
            replicas: replicas[t],
            batch: batches[t],
            base_ms: f64::from(base[t]),
            each_ms: f64::from(each[t]),
            accuracy: 0.9,
        };
        (0..count).map(stage).collect()
    }
}

prop_compose! {
    fn case()(
        stages in stages(),
        central: bool,
        network_ms in 0_u8..3,
        slo_ms in prop::sample::select(vec![8_u32, 15, 25, 50, 150]),
        batching in prop::sample::select(vec![Batching::AtStart, Batching::Forming, Batching::WaitUntil]),
        // What PARD's states say changes after a second; within the SLO nothing lasts that long.
        dropping in prop::sample::select(vec![
            Dropping::Naive, Dropping::LastTask, Dropping::PerTask, Dropping::Reroute, Dropping::ClipperPlusPlus,
            Dropping::Nexus, Dropping::NexusSplit, Dropping::PardSf, Dropping::PardFcfs, Dropping::PardBack,
        ]),
        partial: bool,
        joins in prop::collection::vec((0_usize..5, 0_usize..5), 0..3),
        ingress_ms in 0_u64..2,
        mib in prop::collection::vec(prop::sample::select(vec![0_u64, 0, 1, 3]), 5),
    ) -> Case {
        let tasks = stages.len();
        let is_new = |&(from, to): &(usize, usize)| from < to && to < tasks && stages[to].parent != from;
        let mut delays: Vec<_> = joins.into_iter().filter(is_new).collect();
        delays.sort_unstable();
        delays.dedup();
        let (network_ms, slo_ms) = (u64::from(network_ms), u64::from(slo_ms));
        let patience = None;
        Case { stages, central, network_ms, ingress_ms, mib, slo_ms, batching, dropping, partial, delays, patience }
    }
}

prop_compose! {
    /// Batches take 40 times as long, so that requests wait for seconds, and gateways give them up. A run lasts longer than
    /// a second, so PARD's states would change.
    fn slow_case()(case in case(), gives_up in prop::bool::weighted(0.9)) -> Case {
        let slower = |stage: Stage| Stage { base_ms: 40.0 * stage.base_ms, each_ms: 40.0 * stage.each_ms, ..stage };
        let patience_ms = (10 * case.slo_ms).max(2_000);
        let patience = gives_up.then_some(patience_ms * MS);
        let dropping = match case.dropping {
            Dropping::PardSf | Dropping::PardFcfs | Dropping::PardBack => Dropping::Naive,
            other => other,
        };
        Case { dropping, stages: case.stages.iter().cloned().map(slower).collect(), patience, ..case }
    }
}

/// The fate of each request (its end, or where and why it was dropped), and the time that was spent at each task.
fn fast(case: &Case, at: &[u64]) -> (Vec<Fate>, Vec<Spent>) {
    let queueing = if case.central { Queueing::Central } else { Queueing::PerReplica };
    let Built { problem, mut plan } = build(&case.stages, queueing, case.network_ms as f64, case.slo_ms as f64);
    let pipeline = problem.pipelines[0].changed(&problem.hardware, |d| {
        d.partial = if case.partial { Partial::Allow } else { Partial::Deny };
        let kib = |mib: u64| 1024.0 * mib as f64;
        (d.network_ms_per_mib, d.ingress_ms) = (1.0, case.ingress_ms as f64);
        d.ingress_kib_per_query = kib(case.mib[0]);
        d.edges.iter_mut().for_each(|edge| edge.kib_per_query = kib(case.mib[edge.to.get()]));
        for &(from, to) in &case.delays {
            let mut edge = d.edges[0].clone();
            (edge.from, edge.to, edge.primary) = (TaskIndex(from), TaskIndex(to), false);
            edge.kib_per_query = kib(case.delayed_mib(from));
            d.edges.push(edge);
        }
    });
    let problem = problem.changed(|d| d.pipelines[0] = pipeline.expect("a valid pipeline")).expect("a valid problem");
    let serving = &mut plan.pipelines[0].serving;
    (serving.batching, serving.dropping) = (case.batching, case.dropping);
    let of = |r: &apportion_estimator::RequestRecord| match r.outcome {
        RequestOutcome::Dropped => Err((r.drop_task.expect("a task").get(), r.reason.expect("a reason").name())),
        _ => Ok(r.finish.expect("answered").as_nanos()),
    };
    let simulation = match case.patience {
        None => run(&Built { problem, plan }, &arrivals(at)),
        Some(_) => {
            let options = SimulateOptions { requests: true, ..SimulateOptions::default() };
            let scenario = Scenario { gives_up: true, ..Scenario::default() };
            replay(&problem, &plan, &arrivals(at), &options, scenario).expect("a plan that can be replayed").simulation
        }
    };
    let spent = |w: &TaskWaiting| {
        let sum = |mean_ms: f64| (mean_ms * w.queries as f64 * 1e6).round() as u64;
        let (queueing, batch_wait, execution) = (sum(w.queueing_ms), sum(w.batch_wait_ms), sum(w.service_ms));
        Spent { queries: w.queries, queueing, batch_wait, execution }
    };
    (simulation.requests.iter().map(of).collect(), simulation.total.waiting.iter().map(spent).collect())
}

/// When requests arrive, in ns, by the times between them.
fn moments(gaps_ms: &[u64]) -> Vec<u64> {
    let sum = |at: &mut u64, gap: &u64| {
        *at += gap * MS;
        Some(*at)
    };
    gaps_ms.iter().scan(0, sum).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    // Whole milliseconds everywhere, so that many events fall into one instant and their order matters.
    #[test]
    fn both_simulators_agree_on_every_request_to_the_nanosecond(
        case in case(),
        gaps_ms in prop::collection::vec(0_u64..6, 1..30),
    ) {
        let at = moments(&gaps_ms);
        let (outcomes, spent) = fast(&case, &at);
        prop_assert!(case.batching == Batching::Forming || spent.iter().all(|s| s.batch_wait == 0));
        prop_assert_eq!((outcomes, spent), Oracle::new(&case).play(&at));
    }

    #[test]
    fn both_simulators_give_up_the_same_requests(
        case in slow_case(),
        gaps_ms in prop::collection::vec(0_u64..200, 1..30),
    ) {
        let at = moments(&gaps_ms);
        prop_assert_eq!(fast(&case, &at), Oracle::new(&case).play(&at));
    }
}
