//! Stewards with the tuner: what agents do between two plans that have no ladder.

use crate::common::{Built, Times, assignment, build_loading, stage, with_faster};
use apportion_domain::{ArrivalTrace, Moment, Queueing};
use apportion_estimator::{ArrivalProcess, Replay, Scenario, ScenarioEvent, SimulateOptions, Workload, replay};

const BOTH: [Queueing; 2] = [Queueing::PerReplica, Queueing::Central];

/// One task of 10 ms (`w`: 5 ms), two replicas planned for 100 queries per second, four devices, loads in 1 s.
fn planned(queueing: Queueing) -> Built {
    let mut built = with_faster(build_loading(
        &[stage(0, 2, 1, 10.0, 0.0)],
        queueing,
        Times { network_ms: 0.0, slo_ms: 400.0, load_ms: 1_000.0 },
        Some(4),
    ));
    built.plan.pipelines[0].demand_qps = 100.0;
    built
}

/// The load triples for a while.
fn tripled(from: u64, to: u64, seconds: u64) -> Workload {
    let rate = |s| (s, if (from..to).contains(&s) { 300.0 } else { 80.0 });
    let trace = ArrivalTrace::rates((0..seconds).map(rate).collect()).expect("rates");
    Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: 3 }
}

fn run(built: &Built, workload: &Workload, scenario: Scenario<'_>) -> Replay {
    let options = SimulateOptions { requests: true, ..SimulateOptions::default() };
    replay(&built.problem, &built.plan, workload, &options, scenario).expect("a run")
}

/// Replicas that served in a second.
fn serving(replay: &Replay, second: usize) -> f64 {
    replay.windows[second].replicas
}

#[test]
fn a_tuner_uses_spare_devices_while_the_load_is_high() {
    for queueing in BOTH {
        let (built, workload) = (planned(queueing), tripled(20, 40, 140));
        let scenario = || Scenario { steward: true, ..Scenario::default() };
        let tuned = run(&built, &workload, Scenario { tuners: true, ..scenario() });
        assert_eq!((serving(&tuned, 15), serving(&tuned, 30)), (2.0, 4.0), "{queueing}: all devices and no more");
        assert_eq!(serving(&tuned, 135), 2.0, "{queueing}: what was added goes, the plan's stay");
        let as_planned = run(&built, &workload, scenario());
        assert_eq!(serving(&as_planned, 30), 2.0);
        let attained = |replay: &Replay| replay.simulation.total.attainment;
        assert!(attained(&tuned) > attained(&as_planned) + 0.3, "{}, {}", attained(&tuned), attained(&as_planned));
    }
}

#[test]
fn added_replicas_make_room_for_the_next_plan() {
    for queueing in BOTH {
        let (built, workload) = (planned(queueing), tripled(20, 60, 60));
        let next = |assignments| {
            let mut plan = built.plan.clone();
            plan.pipelines[0].assignments = assignments;
            plan.pipelines[0].demand_qps = 300.0;
            vec![(Moment::from_millis(30_000.0), ScenarioEvent::Plan { plan })]
        };
        let scenario = |events| Scenario { events, tuners: true, ..Scenario::default() };
        // No room is left: one of `v`, three of `w`.
        let full = next(vec![assignment(0, "v", 1, 1), assignment(0, "w", 1, 3)]);
        let full = run(&built, &workload, scenario(full));
        let late: Vec<f64> = full.simulation.requests.iter().rev().take(2_000).map(|r| r.accuracy).collect();
        let faster = late.iter().filter(|accuracy| **accuracy < 0.5).count();
        assert!(faster > 1_200, "{queueing}: {faster} of 2000 on the three replicas of `w`");
        assert_eq!(serving(&full, 50), 4.0);
        // The same group again, with one replica spare: what was added stays without a gap.
        let wider = next(vec![assignment(0, "v", 1, 3)]);
        let wider = run(&built, &workload, scenario(wider));
        assert!((26..60).all(|s| serving(&wider, s) == 4.0), "{queueing}");
    }
}
