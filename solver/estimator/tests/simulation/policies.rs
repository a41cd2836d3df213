//! Another plan changes the policies that serve a pipeline while it runs.

use crate::common::{Built, Times, arrivals, assignment, build_loading, rate, stage, with_faster};
use apportion_domain::{ArrivalTrace, Batching, Dropping, Moment, Plan, Queueing, RoutingPolicy, ServingPolicy};
use apportion_estimator::{
    ArrivalProcess, Replay, RequestOutcome, Scenario, ScenarioEvent, SimulateOptions, Workload, replay,
};
use proptest::prelude::*;

const BATCHINGS: [Batching; 3] = [Batching::AtStart, Batching::Forming, Batching::WaitUntil];
const ROUTINGS: [RoutingPolicy; 3] = [RoutingPolicy::Stride, RoutingPolicy::Jsq, RoutingPolicy::MostAccurateFirst];
const DROPPINGS: [Dropping; 11] = [
    Dropping::Naive,
    Dropping::LastTask,
    Dropping::PerTask,
    Dropping::Reroute,
    Dropping::Nexus,
    Dropping::ClipperPlusPlus,
    Dropping::Pard,
    Dropping::PardOc,
    Dropping::PardSplit,
    Dropping::PardFcfs,
    Dropping::NexusSplit,
];

/// Policies by their positions in the lists above: batching, routing, dropping.
fn served(queueing: Queueing, (batching, routing, dropping): (usize, usize, usize)) -> ServingPolicy {
    let (batching, routing, dropping) = (BATCHINGS[batching], ROUTINGS[routing], DROPPINGS[dropping]);
    ServingPolicy { queueing, batching, routing, dropping }
}

/// Three tasks of two groups each; queries of the first make two.
fn built(serving: ServingPolicy) -> Built {
    let mut stages = [stage(0, 2, 4, 5.0, 2.0), stage(0, 3, 2, 4.0, 1.0), stage(0, 1, 4, 5.0, 1.0)];
    stages[1].fanout = crate::common::Fan::Mean(2.0);
    let mut built =
        with_faster(build_loading(&stages, serving.queueing, Times { network_ms: 1.0, slo_ms: 60.0, load_ms: 0.0 }, None));
    let part = &mut built.plan.pipelines[0];
    part.assignments.extend((0..3).map(|task| assignment(task, "w", 2, 2)));
    part.assignments.sort_by(|a, b| a.group.cmp(&b.group));
    part.demand_qps = 200.0;
    part.serving = serving;
    built
}

fn to(plan: &Plan, serving: ServingPolicy) -> ScenarioEvent {
    let mut plan = plan.clone();
    plan.pipelines[0].serving = serving;
    ScenarioEvent::Plan { plan }
}

fn run(built: &Built, workload: &Workload, events: Vec<(Moment, ScenarioEvent)>) -> Replay {
    run_in(built, workload, Scenario { events, ..Scenario::default() })
}

fn run_in(built: &Built, workload: &Workload, scenario: Scenario<'_>) -> Replay {
    let options = SimulateOptions { requests: true, ..SimulateOptions::default() };
    replay(&built.problem, &built.plan, workload, &options, scenario).expect("a run")
}

#[test]
fn the_new_policy_judges_waiting_queries_only() {
    for queueing in [Queueing::PerReplica, Queueing::Central] {
        // One replica, 20 ms, an SLO of 50 ms: of four queries two end in time.
        let built = build_loading(
            &[stage(0, 1, 1, 20.0, 0.0)],
            queueing,
            Times { network_ms: 0.0, slo_ms: 50.0, load_ms: 0.0 },
            None,
        );
        let other = ServingPolicy { dropping: Dropping::LastTask, ..built.plan.pipelines[0].serving };
        let at = |ms| vec![(Moment::from_millis(ms), to(&built.plan, other))];
        let outcomes = |events| {
            let replay = run(&built, &arrivals(&[0; 4]), events);
            replay.simulation.requests.iter().map(|r| r.outcome).collect::<Vec<_>>()
        };
        use RequestOutcome::{Dropped, Late, Ok};
        assert_eq!(outcomes(vec![]), [Ok, Ok, Late, Late], "{queueing}");
        assert_eq!(outcomes(at(5.0)), [Ok, Ok, Dropped, Dropped], "{queueing}");
        assert_eq!(outcomes(at(45.0)), [Ok, Ok, Late, Dropped], "{queueing}");
    }
}

#[test]
fn changing_policies_while_idle_equals_starting_with_them() {
    for queueing in [Queueing::PerReplica, Queueing::Central] {
        for (b, r, d) in (0..3).flat_map(|b| (0..3).flat_map(move |r| (0..11).map(move |d| (b, r, d)))) {
            let second = served(queueing, (b, r, d));
            // Nobody comes in the first second, and the change is in the middle of it.
            let mut workload = rate(230.0, 3, ArrivalProcess::Poisson, 5);
            workload.traces = vec![ArrivalTrace::rates(vec![(0, 0.0), (1, 230.0), (2, 230.0)]).expect("rates")];
            let from_start = run(&built(second), &workload, vec![]);
            let (other_b, other_r, other_d) = ((b + 1) % 3, (r + 1) % 3, (d + 1) % 11);
            for first in [(other_b, other_r, other_d), (other_b, r, d), (b, other_r, d), (b, r, other_d)] {
                let first = served(queueing, first);
                let change = (Moment::from_millis(500.0), to(&built(first).plan, second));
                let changed = run(&built(first), &workload, vec![change]);
                assert_eq!(changed.simulation.requests, from_start.simulation.requests, "{first:?} to {second:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    // Assertions of the machines (counts of open queries among them) hold whatever changes when, and no request is lost.
    #[test]
    fn every_request_has_one_outcome_under_changing_policies(
        is_central in any::<bool>(),
        steward in any::<bool>(),
        // at most 7 changes by 1,680 ms: the load of 2 s outlasts them, so each of them comes into force
        policies in prop::collection::vec(((0_usize..3, 0_usize..3, 0_usize..11), 20_u64..240), 2..8),
        seed in 0_u64..1_000,
    ) {
        let queueing = if is_central { Queueing::Central } else { Queueing::PerReplica };
        let (first, _) = policies[0];
        let built = built(served(queueing, first));
        let workload = rate(230.0, 2, ArrivalProcess::Poisson, seed);
        let mut at = 0;
        let events = policies[1..].iter().map(|(numbers, after)| {
            at += after;
            (Moment::from_millis(at as f64), to(&built.plan, served(queueing, *numbers)))
        });
        let replay = run_in(&built, &workload, Scenario { events: events.collect(), steward, ..Scenario::default() });
        let total = &replay.simulation.total;
        let plain = crate::common::run(&built, &workload).total.requests;
        prop_assert_eq!((total.requests, total.failed), (plain, 0));
        prop_assert_eq!(total.ok + total.late + total.dropped, plain);
        prop_assert_eq!(replay.plans, policies.len() as u64 - 1);
    }
}
