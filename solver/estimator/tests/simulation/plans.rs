//! Another plan comes into force during a run: scripts by hand, and what must hold whatever the plans are.

use crate::common::{
    Built, Fan, Stage, Times, arrivals, assignment, build_loading, finishes, rate, run_scenario, stage, with_faster,
};
use apportion_domain::{
    Assignment, Batching, Dropping, GroupName, Moment, Plan, Queueing, RoutingPolicy, Share, TaskIndex, TimeSpan,
};
use apportion_estimator::{
    ArrivalProcess, Controller, Observation, Replay, Scenario, ScenarioEvent, SimulateOptions, Workload, replay,
};
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;

fn ms(ms: f64) -> Moment {
    Moment::from_millis(ms)
}

fn at_ms(moments: &[u64]) -> Workload {
    arrivals(&moments.iter().map(|m| m * 1_000_000).collect::<Vec<_>>())
}

/// The plan with these assignments.
fn to(plan: &Plan, assignments: Vec<Assignment>) -> ScenarioEvent {
    let mut plan = plan.clone();
    plan.pipelines[0].assignments = assignments;
    ScenarioEvent::Plan { plan }
}

fn script(built: &Built, moments: &[u64], events: Vec<(Moment, ScenarioEvent)>) -> (Vec<u64>, Replay) {
    let replay = run_scenario(built, &at_ms(moments), Scenario { events, ..Scenario::default() });
    let ended = finishes(&replay.simulation);
    assert!(ended.iter().all(|f| f % 1_000_000 == 0), "whole milliseconds: {ended:?}");
    (ended.into_iter().map(|f| f / 1_000_000).collect(), replay)
}

/// One task of 20 ms (`w`: 10 ms), batch 1, 15 ms to load, on `count` devices at 2.0 per hour.
fn one(queueing: Queueing, replicas: u32, count: Option<u32>) -> Built {
    with_faster(build_loading(
        &[stage(0, replicas, 1, 20.0, 0.0)],
        queueing,
        Times { network_ms: 0.0, slo_ms: 1_000.0, load_ms: 15.0 },
        count,
    ))
}

/// The cost of this number of device-milliseconds.
fn device_ms(ms: f64) -> f64 {
    2.0 * ms / 3_600_000.0
}

const BOTH: [Queueing; 2] = [Queueing::PerReplica, Queueing::Central];

#[test]
fn new_replicas_load_beside_old_ones() {
    for queueing in BOTH {
        let built = one(queueing, 1, None);
        let events = vec![(ms(2.0), to(&built.plan, vec![assignment(0, "w", 1, 1)]))];
        // `w` serves from 17 ms on; what was sent to `v` until then stays there.
        let (ended, replay) = script(&built, &[0, 5, 10, 20, 30, 40], events);
        assert_eq!(ended, [20, 40, 60, 30, 40, 50], "{queueing}");
        let accuracies: Vec<f64> = replay.simulation.requests.iter().map(|r| r.accuracy).collect();
        assert_eq!(accuracies, [0.9, 0.9, 0.9, 0.45, 0.45, 0.45]);
        assert!((replay.cost - device_ms(60.0 + 58.0)).abs() < 1e-12, "both until 60 ms: {}", replay.cost);
        assert_eq!((replay.plans, replay.changes), (1, 2));
    }
}

#[test]
fn an_old_replica_leaves_after_its_last_query() {
    for queueing in BOTH {
        let built = one(queueing, 1, None);
        let events = vec![(ms(2.0), to(&built.plan, vec![assignment(0, "w", 1, 1)]))];
        let (ended, replay) = script(&built, &[0, 90], events);
        assert_eq!(ended, [20, 100], "{queueing}");
        assert!((replay.cost - device_ms(20.0 + 98.0)).abs() < 1e-12, "`v` until 20 ms: {}", replay.cost);
    }
}

#[test]
fn on_one_device_queries_wait_for_the_new_replica() {
    for queueing in BOTH {
        let built = one(queueing, 1, Some(1));
        let events = vec![(ms(2.0), to(&built.plan, vec![assignment(0, "w", 1, 1)]))];
        // `v` ends at 20 ms, `w` serves from 35 ms on.
        let (ended, replay) = script(&built, &[0, 5, 30, 50], events);
        assert_eq!(ended, [20, 45, 55, 65], "{queueing}");
        assert!((replay.cost - device_ms(65.0)).abs() < 1e-12, "one device at any time: {}", replay.cost);
    }
}

#[test]
fn a_full_cluster_swaps_replicas_one_by_one() {
    for queueing in BOTH {
        let built = one(queueing, 2, Some(2));
        let events = vec![(ms(5.0), to(&built.plan, vec![assignment(0, "w", 1, 2)]))];
        // One `v` goes at 20 ms, its `w` serves from 35 ms on; the other `v` has work until 60 ms, its `w` serves from 75
        // ms on.
        let (ended, replay) = script(&built, &[0, 0, 10, 25, 36, 40, 60, 60], events);
        assert_eq!(ended, [20, 20, 40, 60, 46, 56, 70, 80], "{queueing}");
        assert!((replay.cost - device_ms(160.0)).abs() < 1e-12, "two devices at any time: {}", replay.cost);
    }
}

#[test]
fn groups_in_both_plans_keep_their_replicas() {
    for queueing in BOTH {
        let stages = [stage(0, 1, 2, 10.0, 0.0)];
        let mut built =
            build_loading(&stages, queueing, Times { network_ms: 0.0, slo_ms: 1_000.0, load_ms: 1_000.0 }, Some(1));
        let pair = built.plan.pipelines[0].assignments.clone();
        built.plan.pipelines[0].assignments[0].batch = 1;
        let events = |at| vec![(ms(at), to(&built.plan, pair.clone()))];
        assert_eq!(script(&built, &[0, 1, 2, 3], events(5.0)).0, [10, 20, 20, 30], "{queueing}");
        assert_eq!(script(&built, &[0, 1, 2, 3], events(15.0)).0, [10, 20, 30, 30], "{queueing}");
    }
}

#[test]
fn a_smaller_batch_returns_queries_to_the_queue() {
    let stages = [stage(0, 1, 4, 10.0, 0.0)];
    let mut built =
        build_loading(&stages, Queueing::PerReplica, Times { network_ms: 0.0, slo_ms: 1_000.0, load_ms: 0.0 }, None);
    built.plan.pipelines[0].serving.batching = Batching::Forming;
    let mut smaller = built.plan.pipelines[0].assignments.clone();
    smaller[0].batch = 2;
    let events = vec![(ms(5.0), to(&built.plan, smaller))];
    assert_eq!(script(&built, &[0, 1, 2, 3, 4], events).0, [10, 20, 20, 30, 30]);
}

#[test]
fn tables_take_effect_as_replicas_become_ready() {
    // Half of the plan is `w`, twice as fast: two thirds of the queries. It loads for 15 ms.
    let built = one(Queueing::PerReplica, 1, None);
    let events = vec![(ms(1.0), to(&built.plan, vec![assignment(0, "v", 1, 1), assignment(0, "w", 1, 1)]))];
    let moments: Vec<u64> = (0..10).map(|i| i * 100).collect();
    let (_, replay) = script(&built, &moments, events);
    let fast = replay.simulation.requests.iter().filter(|r| r.accuracy == 0.45).count();
    assert_eq!(fast, 6, "two thirds of the nine after the first");
}

#[test]
fn queries_wait_for_a_tasks_first_replica() {
    for queueing in BOTH {
        let mut leaf = stage(0, 0, 1, 4.0, 0.0);
        leaf.fanout = Fan::Mean(0.0);
        let Built { problem, plan } = with_faster(build_loading(
            &[stage(0, 1, 1, 20.0, 0.0), leaf],
            queueing,
            Times { network_ms: 0.0, slo_ms: 1_000.0, load_ms: 15.0 },
            None,
        ));
        // `w` asks the second task, which takes 50 ms to load.
        let pipeline = problem.pipelines[0].changed(&problem.hardware, |draft| {
            draft.tasks[0].variants[1].fanout_to = [(TaskIndex(1), 1.0)].into();
            draft.tasks[1].variants[0].load_ms = 50.0;
        });
        let pipeline = pipeline.expect("a valid pipeline");
        let problem = problem.changed(|draft| draft.pipelines[0] = pipeline).expect("a valid problem");
        let next = vec![assignment(0, "w", 1, 1), assignment(1, "v", 1, 1)];
        let events = vec![(ms(2.0), to(&plan, next))];
        // `w` serves from 17 ms on, the second task from 52 ms on.
        let (ended, replay) = script(&Built { problem, plan }, &[0, 20, 60], events);
        assert_eq!(ended, [20, 56, 74], "{queueing}");
        let accuracies: Vec<f64> = replay.simulation.requests.iter().map(|r| r.accuracy).collect();
        assert!(accuracies.iter().zip([0.9, 0.45 * 0.9, 0.45 * 0.9]).all(|(a, b)| (a - b).abs() < 1e-9), "{accuracies:?}");
    }
}

#[test]
fn a_plan_that_does_not_fit_ends_the_run() {
    let built = one(Queueing::Central, 1, None);
    let fails = |event: ScenarioEvent| {
        let scenario = Scenario { events: vec![(ms(1.0), event)], ..Scenario::default() };
        let error = replay(&built.problem, &built.plan, &at_ms(&[0, 10]), &SimulateOptions::default(), scenario);
        error.expect_err("a plan that does not fit").to_string()
    };
    assert!(fails(to(&built.plan, vec![])).contains("\"t0\" has no replicas"));
    assert!(fails(to(&built.plan, vec![assignment(0, "x", 1, 1)])).contains("no such variant"));
    assert!(fails(to(&built.plan, vec![assignment(0, "v", 1, 1); 2])).contains("twice"));
    let mut other = built.plan.clone();
    other.pipelines[0].serving.queueing = Queueing::PerReplica;
    assert!(fails(ScenarioEvent::Plan { plan: other }).contains("queueing"));
    let mut other = built.plan.clone();
    other.pipelines[0].name = "q".into();
    assert!(fails(ScenarioEvent::Plan { plan: other }).contains("no pipeline \"q\""));
}

fn stages() -> [Stage; 3] {
    [stage(0, 2, 4, 5.0, 2.0), stage(0, 3, 2, 4.0, 1.0), stage(0, 1, 4, 5.0, 1.0)]
}

const DROPPINGS: [Dropping; 5] =
    [Dropping::Naive, Dropping::PerTask, Dropping::Reroute, Dropping::Pard, Dropping::ClipperPlusPlus];
const BATCHINGS: [Batching; 3] = [Batching::AtStart, Batching::Forming, Batching::WaitUntil];

#[test]
fn the_same_plan_again_changes_nothing() {
    for queueing in BOTH {
        for dropping in DROPPINGS {
            for routing in [RoutingPolicy::Stride, RoutingPolicy::Jsq, RoutingPolicy::MostAccurateFirst] {
                let mut built = with_faster(build_loading(
                    &stages(),
                    queueing,
                    Times { network_ms: 1.0, slo_ms: 60.0, load_ms: 100.0 },
                    Some(20),
                ));
                let part = &mut built.plan.pipelines[0];
                part.assignments.extend((0..3).map(|task| assignment(task, "w", 2, 2)));
                part.assignments.sort_by(|a, b| a.group.cmp(&b.group));
                part.demand_qps = 200.0;
                part.serving.dropping = dropping;
                part.serving.routing = routing;
                let workload = rate(230.0, 4, ArrivalProcess::Poisson, 5);
                let again = || {
                    (1..9).map(|n| (ms(400.0 * f64::from(n)), ScenarioEvent::Plan { plan: built.plan.clone() })).collect()
                };
                let replay = run_scenario(&built, &workload, Scenario { events: again(), ..Scenario::default() });
                let plain = crate::common::run(&built, &workload);
                assert_eq!(replay.simulation.requests, plain.requests, "{queueing} {dropping:?} {routing:?}");
                assert_eq!((replay.plans, replay.changes), (8, 0));
            }
        }
    }
}

/// Notes the fewest replicas that serve each task, every millisecond.
struct Watcher(Rc<RefCell<Vec<u32>>>);

impl Controller for Watcher {
    fn period(&self) -> TimeSpan {
        TimeSpan::from_millis(1.0)
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(TimeSpan, ScenarioEvent)> {
        for (task, least) in self.0.borrow_mut().iter_mut().enumerate() {
            let of_task = seen.groups.iter().filter(|g| g.group.task == format!("t{task}"));
            *least = (*least).min(of_task.map(|g| g.ready).sum());
        }
        Vec::new()
    }
}

/// A plan for three tasks by numbers: each has one or both variants.
fn drawn(numbers: &[(u32, u32, u32)]) -> Vec<Assignment> {
    let of_task = |(task, &(v, w, batch)): (usize, &(u32, u32, u32))| {
        let (v, batch) = (if v + w == 0 { 1 } else { v }, 1 + batch % 4);
        [assignment(task, "v", batch, v), assignment(task, "w", batch, w)].into_iter().filter(|a| a.replicas > 0)
    };
    numbers.iter().enumerate().flat_map(of_task).collect()
}

/// `v` serves 50 queries per second and `w` 100; the plan was made for 30, which go to `v` alone.
fn for_thirty() -> Built {
    let mut built = one(Queueing::PerReplica, 1, None);
    let part = &mut built.plan.pipelines[0];
    part.assignments = vec![assignment(0, "v", 1, 1), assignment(0, "w", 1, 1)];
    part.serving.routing = RoutingPolicy::MostAccurateFirst;
    part.demand_qps = 30.0;
    built
}

#[test]
fn steward_tables_follow_the_reported_load() {
    let workload = rate(120.0, 4, ArrivalProcess::Uniform, 1);
    let steered = run_scenario(&for_thirty(), &workload, Scenario { steward: true, ..Scenario::default() });
    // The first second is reported at 1.1 s, and the answer arrives at 1.2 s. A third of 120 goes to `v`, by capacity, as
    // the plan fills both to a fifth.
    let (before, after): (Vec<_>, Vec<_>) = steered.simulation.requests.iter().partition(|r| r.arrival <= ms(1_200.0));
    assert!(before.iter().all(|r| r.accuracy == 0.9));
    let fast = after.iter().filter(|r| r.accuracy == 0.45).count() as f64;
    assert!((fast - after.len() as f64 * 2.0 / 3.0).abs() <= 3.0, "{fast} of {}", after.len());
    assert!(steered.steerings >= 1);
    let alone = run_scenario(&for_thirty(), &workload, Scenario::default());
    assert!(alone.simulation.requests.iter().all(|r| r.accuracy == 0.9), "all to `v`, which is overloaded");
    assert!(alone.simulation.total.p99_ms > 2.0 * steered.simulation.total.p99_ms);
}

#[test]
fn steward_tables_wait_while_old_replicas_stand_in() {
    // From 500 ms on `w` alone is wanted, and loads for two seconds: until then `v` serves all that comes.
    let mut built = for_thirty();
    built.plan.pipelines[0].assignments.truncate(1);
    let slow = built.problem.pipelines[0].changed(&built.problem.hardware, |d| d.tasks[0].variants[1].load_ms = 2_000.0);
    built.problem = built.problem.changed(|d| d.pipelines[0] = slow.expect("a valid pipeline")).expect("a valid problem");
    let events = vec![(ms(500.0), to(&built.plan, vec![assignment(0, "w", 1, 1)]))];
    let scenario = Scenario { events, steward: true, ..Scenario::default() };
    let replay = run_scenario(&built, &rate(40.0, 6, ArrivalProcess::Uniform, 1), scenario);
    for r in &replay.simulation.requests {
        assert_eq!(r.accuracy == 0.9, r.arrival <= ms(2_500.0), "the request of {}", r.arrival);
    }
}

#[test]
fn module_states_of_stewards_perform_like_the_estimators_own() {
    let pipeline = [stage(0, 1, 4, 6.0, 2.0), stage(0, 1, 4, 4.0, 2.0), stage(0, 1, 4, 5.0, 2.0)];
    let mut built =
        build_loading(&pipeline, Queueing::PerReplica, Times { network_ms: 1.0, slo_ms: 150.0, load_ms: 0.0 }, None);
    let serving = &mut built.plan.pipelines[0].serving;
    (serving.batching, serving.dropping) = (Batching::Forming, Dropping::Pard);
    built.plan.pipelines[0].demand_qps = 250.0;
    let rows = (0..40).map(|s| (s, if s % 4 < 2 { 150.0 } else { 450.0 })).collect();
    let trace = apportion_domain::ArrivalTrace::rates(rows).expect("rates");
    let workload = Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: 3 };
    let own = run_scenario(&built, &workload, Scenario::default()).simulation.total;
    let steered = run_scenario(&built, &workload, Scenario { steward: true, ..Scenario::default() }).simulation.total;
    assert!((own.attainment - steered.attainment).abs() < 0.03, "{} and {}", own.attainment, steered.attainment);
    assert!(own.requests == steered.requests && own.ok != steered.ok, "later, so not the same");
}

/// Replicas of `v` and of `w` and their batch, by task.
type Numbers = [(u32, u32, u32); 3];

/// A plan in the words of [`drawn`], and when it comes into force.
#[derive(Clone, Debug)]
struct DrawnPlan {
    at_ms: u64,
    tasks: Numbers,
}

/// The death of a replica.
#[derive(Clone, Debug)]
struct Death {
    at_ms: u64,
    task: usize,
    variant: &'static str,
    replica: u32,
}

/// A drawn run.
#[derive(Debug)]
struct Case {
    plans: Vec<DrawnPlan>,
    fails: Vec<Death>,
    central: bool,
    routing: usize,
    batching: usize,
    dropping: usize,
    spare: bool,
    steward: bool,
    seed: u64,
}

impl Case {
    fn check(&self) -> Result<(), TestCaseError> {
        let queueing = if self.central { Queueing::Central } else { Queueing::PerReplica };
        // Plans need at most twelve devices.
        let count = if self.spare { 13 } else { 12 };
        let stages = stages().map(|s| Stage { batch: 4, ..s });
        let mut built = with_faster(build_loading(
            &stages,
            queueing,
            Times { network_ms: 1.0, slo_ms: 120.0, load_ms: 150.0 },
            Some(count),
        ));
        let part = &mut built.plan.pipelines[0];
        part.assignments = drawn(&self.plans[0].tasks);
        part.demand_qps = 150.0;
        part.serving.routing = [RoutingPolicy::Stride, RoutingPolicy::Jsq, RoutingPolicy::MostAccurateFirst][self.routing];
        part.serving.batching = BATCHINGS[self.batching];
        part.serving.dropping = DROPPINGS[self.dropping];
        let least = Rc::new(RefCell::new(vec![u32::MAX; 3]));
        let scenario = || Scenario {
            events: self.events(&built.plan),
            detection: TimeSpan::from_millis(100.0),
            window: TimeSpan::from_millis(1.0),
            steward: self.steward,
            controllers: vec![Box::new(Watcher(least.clone())) as Box<dyn Controller>],
            ..Scenario::default()
        };
        let workload = rate(120.0, 5, ArrivalProcess::Poisson, self.seed);
        let replay = run_scenario(&built, &workload, scenario());
        let total = &replay.simulation.total;
        prop_assert_eq!(total.ok + total.late + total.dropped + total.failed, total.requests);
        prop_assert_eq!(total.failed, 0);
        prop_assert_eq!(replay.simulation.requests.len() as u64, total.requests);
        if self.dropping == 0 {
            prop_assert_eq!(total.dropped, 0);
        }
        for w in &replay.windows {
            let most = f64::from(count) * device_ms(w.length.as_millis());
            prop_assert!(w.cost <= most + 1e-12, "{} devices at {}", w.cost / most * f64::from(count), w.start);
        }
        if self.spare && self.fails.is_empty() {
            prop_assert!(least.borrow().iter().all(|&n| n > 0), "a task without a replica: {:?}", least.borrow());
        }
        let again = run_scenario(&built, &workload, scenario());
        prop_assert_eq!(&again.simulation.requests, &replay.simulation.requests);
        Ok(())
    }

    /// The plans after the first, and deaths in groups that some plan has.
    fn events(&self, first: &Plan) -> Vec<(Moment, ScenarioEvent)> {
        let of_plan = |plan: &DrawnPlan| (ms(plan.at_ms as f64), to(first, drawn(&plan.tasks)));
        let of_fail = |death: &Death| {
            let (task, variant) = (format!("t{}", death.task), death.variant.to_owned());
            let group = GroupName { task, variant, hardware: "h".into(), share: Share::WHOLE };
            (ms(death.at_ms as f64), ScenarioEvent::Fail { pipeline: "p".into(), group, replica: death.replica })
        };
        let known = |(_, event): &(Moment, ScenarioEvent)| {
            let named = |g: &GroupName| self.plans.iter().any(|p| drawn(&p.tasks).iter().any(|a| a.group == *g));
            event.group().is_none_or(|(_, g)| named(g))
        };
        self.plans[1..].iter().map(of_plan).chain(self.fails.iter().map(of_fail)).filter(known).collect()
    }
}

/// Cases that failed before a repair.
#[test]
fn former_counterexamples_give_each_request_one_outcome() {
    let stuck = Case {
        plans: vec![
            DrawnPlan { at_ms: 1430, tasks: [(2, 0, 1), (1, 2, 2), (1, 2, 2)] },
            DrawnPlan { at_ms: 791, tasks: [(1, 0, 3), (0, 1, 0), (2, 1, 2)] },
            DrawnPlan { at_ms: 3910, tasks: [(0, 2, 0), (0, 0, 2), (0, 0, 1)] },
        ],
        fails: vec![Death { at_ms: 3746, task: 2, variant: "w", replica: 0 }],
        central: true,
        routing: 2,
        batching: 1,
        dropping: 1,
        spare: true,
        steward: true,
        seed: 228,
    };
    // A plan and the end of a steward's period at one moment.
    let at_once = Case {
        plans: vec![
            DrawnPlan { at_ms: 0, tasks: [(0, 0, 0); 3] },
            DrawnPlan { at_ms: 1000, tasks: [(0, 0, 0), (0, 1, 0), (0, 0, 0)] },
        ],
        fails: Vec::new(),
        routing: 0,
        batching: 0,
        dropping: 0,
        spare: false,
        seed: 0,
        ..stuck
    };
    for case in [stuck, at_once] {
        case.check().unwrap_or_else(|e| panic!("{e}: {case:?}"));
    }
}

prop_compose! {
    fn plan()(
        at_ms in 0_u64..4_000, tasks in prop::array::uniform3((0_u32..3, 0_u32..3, 0_u32..4)),
    ) -> DrawnPlan {
        DrawnPlan { at_ms, tasks }
    }
}

prop_compose! {
    fn death()(
        at_ms in 0_u64..4_000, task in 0_usize..3, is_fast in any::<bool>(), replica in 0_u32..3,
    ) -> Death {
        Death { at_ms, task, variant: if is_fast { "w" } else { "v" }, replica }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn every_request_has_one_outcome_under_any_plans(
        plans in prop::collection::vec(plan(), 1..12),
        fails in prop::collection::vec(death(), 0..4),
        central: bool, routing in 0_usize..3, batching in 0_usize..3, dropping in 0_usize..5, spare: bool, steward: bool,
        seed in 0_u64..1_000,
    ) {
        Case { plans, fails, central, routing, batching, dropping, spare, steward, seed }.check()?;
    }
}
