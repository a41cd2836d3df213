//! Replicas follow the load: the ladder of a plan, and a replanner.

use crate::common::{Built, Times, build_loading, run_scenario, stage};
use apportion_domain::{ArrivalTrace, LadderStep, Moment, Queueing, TimeSpan};
use apportion_estimator::controllers::{OfferedLoad, Replanner, ReplannerConfig};
use apportion_estimator::{
    ArrivalProcess, Controller, Observation, Replay, RequestRecord, Scenario, ScenarioEvent, Workload,
};
use apportion_serving::headroom_controller::{HEADROOM_START, HeadroomController, PROMISE};
use apportion_serving::ladder::Headroom;
use std::cell::RefCell;
use std::rc::Rc;

fn ms(ms: f64) -> Moment {
    Moment::from_millis(ms)
}

/// One task of 10 ms in a central queue, loads in 1 s; the ladder: a replica for each 50 queries per second.
fn climbing(replicas: u32) -> Built {
    let mut built = build_loading(
        &[stage(0, replicas, 1, 10.0, 0.0)],
        Queueing::Central,
        Times { network_ms: 0.0, slo_ms: 5_000.0, load_ms: 1_000.0 },
        None,
    );
    let step = |n: u32| LadderStep { rate_qps: 50.0 * f64::from(n), replicas: vec![n] };
    built.plan.pipelines[0].ladder = (1..=6).map(step).collect();
    built
}

fn rates(of: impl Fn(u64) -> f64, seconds: u64) -> Workload {
    let trace = ArrivalTrace::rates((0..seconds).map(|s| (s, of(s))).collect()).expect("rates");
    Workload { traces: vec![trace], arrivals: ArrivalProcess::Uniform, seed: 1 }
}

/// Replicas that served in the window that begins at a second.
fn serving(replay: &Replay, second: usize) -> f64 {
    replay.windows[second].replicas
}

#[test]
fn a_ladder_removes_and_restores_planned_replicas() {
    let workload = rates(|s| if (50..55).contains(&s) { 190.0 } else { 40.0 }, 160);
    let replay = run_scenario(&climbing(4), &workload, Scenario { ladders: true, ..Scenario::default() });
    // Kept for 30 s unseen, one from then on; 190/s less 3 deviations over half a second are a leap, so their mean counts.
    // The last minute's mean is above 50 until the burst has left it.
    assert_eq!((serving(&replay, 20), serving(&replay, 40)), (4.0, 1.0));
    assert!(serving(&replay, 54) >= 3.0, "{}", serving(&replay, 54));
    assert_eq!((serving(&replay, 100), serving(&replay, 125)), (2.0, 1.0), "and given up again");
    assert_eq!(replay.simulation.total.ok, replay.simulation.total.requests, "nothing is lost");
    let cost: f64 = replay.windows.iter().map(|w| w.cost).sum();
    assert!((cost - replay.cost).abs() < 1e-9);
    let as_planned = run_scenario(&climbing(4), &workload, Scenario::default()).cost;
    assert!(replay.cost < 0.8 * as_planned, "{} of {as_planned}", replay.cost);
    // A ladder that begins at the plan gives nothing up.
    let mut kept = climbing(4);
    kept.plan.pipelines[0].ladder.retain(|s| s.replicas[0] >= 4);
    assert_eq!(serving(&run_scenario(&kept, &workload, Scenario { ladders: true, ..Scenario::default() }), 125), 4.0);
}

/// Notes the headrooms that it is told, each second.
struct HeadroomRecorder(Rc<RefCell<Vec<f64>>>);

impl Controller for HeadroomRecorder {
    fn period(&self) -> TimeSpan {
        TimeSpan::from_millis(1e3)
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(TimeSpan, ScenarioEvent)> {
        self.0.borrow_mut().push(seen.headrooms[0]);
        Vec::new()
    }
}

#[test]
fn misses_of_a_run_move_the_headroom() {
    let mut built = build_loading(
        &[stage(0, 4, 1, 10.0, 0.0)],
        Queueing::Central,
        Times { network_ms: 0.0, slo_ms: 100.0, load_ms: 1_000.0 },
        None,
    );
    built.plan.pipelines[0].ladder = climbing(4).plan.pipelines[0].ladder.clone();
    // All replicas are slow from 100 to 110 s; then a plan comes, whose ladder goes on from the same headroom.
    let slow = |replica| {
        let (pipeline, group) = ("p".to_owned(), built.plan.pipelines[0].assignments[0].group.clone());
        (ms(100_000.0), ScenarioEvent::Slow { pipeline, group, replica, factor: 50.0, until: ms(110_000.0) })
    };
    let told = |headroom: Headroom| {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let mut events: Vec<_> = (0..4).map(slow).collect();
        events.push((ms(130_000.0), ScenarioEvent::Plan { plan: built.plan.clone() }));
        let controllers: Vec<Box<dyn Controller>> = vec![Box::new(HeadroomRecorder(seen.clone()))];
        run_scenario(
            &built,
            &rates(|_| 100.0, 150),
            Scenario { events, controllers, ladders: true, headroom, ..Scenario::default() },
        );
        seen.take()
    };
    let feedback = told(Headroom::Feedback(Box::new(HeadroomController::new(PROMISE))));
    // 0.01 times one in a hundred of the load for each second.
    assert!((feedback[94] - (HEADROOM_START - 95.0 * 1e-4)).abs() < 2e-3, "{}", feedback[94]);
    // Some seconds of load miss, which a second plan's ladder remembers.
    assert!(feedback[128] > feedback[94] + 0.03, "{feedback:?}");
    assert!((feedback[140] - (feedback[128] - 12.0 * 1e-4)).abs() < 2e-3, "{feedback:?}");
    assert!(told(Headroom::Constant(1.5)).iter().all(|&headroom| headroom == 1.5));
}

#[test]
fn a_new_ladder_inherits_the_seen_load() {
    // 180/s from the start; at 40 s a plan for one replica comes, at 80 s one for six.
    let built = climbing(2);
    let plan = |replicas| {
        (ScenarioEvent::Plan { plan: climbing(replicas).plan }, ms(if replicas == 1 { 40_000.0 } else { 80_000.0 }))
    };
    let events = [plan(1), plan(6)].map(|(event, at)| (at, event)).to_vec();
    let scenario = Scenario { events, ladders: true, ..Scenario::default() };
    let replay = run_scenario(&built, &rates(|_| 180.0, 120), scenario);
    assert!(
        (35..120).all(|s| serving(&replay, s) >= 4.0),
        "{:?}",
        replay.windows.iter().map(|w| w.replicas).collect::<Vec<_>>()
    );
    assert!(serving(&replay, 85) <= 4.0, "replicas that the load does not need are not loaded");
    let waits = |r: &RequestRecord| r.finish.is_none_or(|finish| finish.since(r.arrival) > TimeSpan::from_millis(50.0));
    assert!(!replay.simulation.requests.iter().any(waits));
}

#[test]
fn a_replanner_follows_the_reported_load() {
    // One replica serves 100 queries per second; the load is 50, and 150 from 30 s on.
    let built = build_loading(
        &[stage(0, 1, 1, 10.0, 0.0)],
        Queueing::Central,
        Times { network_ms: 0.0, slo_ms: 100.0, load_ms: 0.0 },
        None,
    );
    let rows = (0..60).map(|s| (s, if s < 30 { 50.0 } else { 150.0 })).collect();
    let trace = ArrivalTrace::rates(rows).expect("rates");
    let workload = Workload { traces: vec![trace], arrivals: ArrivalProcess::Uniform, seed: 1 };
    let told = Rc::new(RefCell::new(Vec::new()));
    let config = ReplannerConfig { planning_delay: TimeSpan::from_millis(500.0), ..ReplannerConfig::default() };
    let plan = built.plan.clone();
    let planner = Replanner::new(config, {
        let told = told.clone();
        move |offered: &OfferedLoad| {
            let (qps, ewma_qps) = (offered.qps[0].round(), offered.ewma_qps[0].round());
            told.borrow_mut().push((offered.at.as_millis() / 1e3, qps, ewma_qps));
            let mut plan = plan.clone();
            plan.pipelines[0].assignments[0].replicas = (offered.qps[0] / 100.0).ceil() as u32;
            Some(plan)
        }
    });
    let replay = run_scenario(&built, &workload, Scenario { controllers: vec![Box::new(planner)], ..Scenario::default() });
    let expected = [(10.0, 50.0, 50.0), (20.0, 50.0, 50.0), (30.0, 50.0, 50.0), (40.0, 150.0, 100.0), (50.0, 150.0, 125.0)];
    assert_eq!(told.borrow()[..5], expected, "second, load, mean load");
    // The first plan changes nothing. That for the load from 40 s on: reported 0.1 s late, planned for 0.5 s, carried out
    // 0.1 s later.
    assert_eq!((replay.plans, replay.changes), (2, 1));
    let of_second = |s: usize| replay.windows[s].replicas;
    assert!((of_second(39) - 1.0).abs() < 1e-9 && (of_second(40) - 1.3).abs() < 1e-9, "{}", of_second(40));
    assert!((of_second(41) - 2.0).abs() < 1e-9);
}
