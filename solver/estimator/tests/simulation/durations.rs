//! Times that are drawn: batches around the profile's median, and each query's own in `continuous` tasks.

use crate::common::{Built, arrivals, assignment, build, finishes, rate, stage};
use apportion_domain::{
    Dropping, MixtureTimes, Moment, Plan, Profile, Queueing, ShapeTimes, TaskKind, TimeSpan, mixture_quantile,
    mixture_times,
};
use apportion_estimator::analytic::mmc_wait;
use apportion_estimator::{
    ArrivalProcess, Replay, Scenario, ScenarioEvent, ServiceTimes, SimulateOptions, Simulation, Workload, replay, simulate,
};

/// One task, batches of up to 4 of `5 + size` ms, with this 99th percentile over the median.
fn spread(p99_over_median: Option<f64>) -> Built {
    let Built { problem, plan } = build(&[stage(0, 1, 4, 5.0, 1.0)], Queueing::Central, 0.0, 1_000.0);
    let pipeline = problem.pipelines[0].changed(&problem.hardware, |d| {
        let variant = &mut d.tasks[0].variants[0];
        let mut rows = variant.profile.rows().to_vec();
        rows.iter_mut().for_each(|r| r.p99_ms = p99_over_median.map(|factor| r.latency_ms * factor));
        variant.profile = Profile::new(rows);
    });
    let problem = problem.changed(|d| d.pipelines[0] = pipeline.expect("a valid pipeline")).expect("a valid problem");
    Built { problem, plan }
}

/// The same with a `continuous` task, whose replicas have this number of slots.
fn continuous(Built { problem, mut plan }: Built, slots: u32, replicas: u32) -> Built {
    let pipeline = problem.pipelines[0].changed(&problem.hardware, |d| d.tasks[0].kind = TaskKind::Continuous);
    let problem = problem.changed(|d| d.pipelines[0] = pipeline.expect("a valid pipeline")).expect("a valid problem");
    plan.pipelines[0].assignments = vec![assignment(0, "v", slots, replicas)];
    Built { problem, plan }
}

fn run(Built { problem, plan }: &Built, workload: &Workload, service: ServiceTimes) -> Simulation {
    let options = SimulateOptions { requests: true, service, ..SimulateOptions::default() };
    simulate(problem, plan, workload, &options).expect("a plan that can be simulated")
}

/// Latencies in milliseconds, sorted.
fn latencies(simulation: &Simulation) -> Vec<f64> {
    let latency = |r: &apportion_estimator::RequestRecord| r.finish.expect("answered").since(r.arrival).as_millis();
    let mut all: Vec<f64> = simulation.requests.iter().map(latency).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// Far enough apart that nothing waits.
fn sparse() -> Workload {
    arrivals(&(0..40_000).map(|i| i * 500_000_000).collect::<Vec<_>>())
}

#[test]
fn median_and_99th_percentile_are_the_profiles() {
    for built in [spread(Some(2.5)), continuous(spread(Some(2.5)), 1, 1)] {
        let times = latencies(&run(&built, &sparse(), ServiceTimes::P99Matched));
        let at = |p: f64| times[(p * times.len() as f64) as usize];
        assert!((at(0.5) / 6.0 - 1.0).abs() < 0.02, "median {}", at(0.5));
        assert!((at(0.99) / 15.0 - 1.0).abs() < 0.04, "99th percentile {}", at(0.99));
    }
}

/// The same with two shapes: 80 % of the batches take about 4 ms, and 20 % about 20 ms.
fn shaped() -> (Built, Vec<ShapeTimes>) {
    let times = |share, median, p99| ShapeTimes { share, median, p99 };
    let shapes = vec![times(0.8, 4.0, 6.0), times(0.2, 20.0, 30.0)];
    let Built { problem, plan } = build(&[stage(0, 1, 4, 5.0, 1.0)], Queueing::Central, 0.0, 1_000.0);
    let pipeline = problem.pipelines[0].changed(&problem.hardware, |d| {
        let variant = &mut d.tasks[0].variants[0];
        let mut rows = variant.profile.rows().to_vec();
        for row in &mut rows {
            let mixture = mixture_times(&shapes);
            let part = |t: &ShapeTimes| times(t.share, t.median / mixture.latency, t.p99 / mixture.latency);
            (row.latency_ms, row.p99_ms) = (mixture.latency, Some(mixture.p99));
            row.by_shape = shapes.iter().map(part).collect();
        }
        variant.profile = Profile::new(rows);
    });
    let problem = problem.changed(|d| d.pipelines[0] = pipeline.expect("a valid pipeline")).expect("a valid problem");
    (Built { problem, plan }, shapes)
}

#[test]
fn batches_have_the_times_of_their_shapes() {
    let (built, shapes) = shaped();
    for built in [continuous(shaped().0, 1, 1), built] {
        let times = latencies(&run(&built, &sparse(), ServiceTimes::P99Matched));
        let at = |p: f64| times[(p * times.len() as f64) as usize];
        for quantile in [0.1, 0.5, 0.9, 0.99] {
            let expected = mixture_quantile(&shapes, quantile);
            assert!((at(quantile) / expected - 1.0).abs() < 0.04, "{quantile}: {}, expected {expected}", at(quantile));
        }
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let MixtureTimes { latency, .. } = mixture_times(&shapes);
        assert!((mean / latency - 1.0).abs() < 0.03, "a device is busy for {mean} ms, expected {latency}");
    }
}

#[test]
fn times_without_a_percentile_are_the_median() {
    let workload = rate(300.0, 20, ArrivalProcess::Poisson, 4);
    let plain = run(&spread(None), &workload, ServiceTimes::Median);
    for (built, service) in [(spread(Some(2.5)), ServiceTimes::Median), (spread(None), ServiceTimes::P99Matched)] {
        assert_eq!(finishes(&run(&built, &workload, service)), finishes(&plain), "{service:?}");
    }
    let drawn = run(&spread(Some(2.5)), &workload, ServiceTimes::P99Matched);
    assert_eq!(finishes(&drawn), finishes(&run(&spread(Some(2.5)), &workload, ServiceTimes::P99Matched)));
    assert!(drawn.total.p99_ms > 1.2 * plain.total.p99_ms, "{} after {}", drawn.total.p99_ms, plain.total.p99_ms);
    assert!(drawn.requests.iter().zip(&plain.requests).all(|(a, b)| a.arrival == b.arrival), "the same arrivals");
}

#[test]
fn a_continuous_task_waits_as_m_m_c_does() {
    // Exponential times of 9 ms on average (what four slots take), c = replicas * 4, one queue: Erlang's C.
    for (replicas, qps) in [(1, 350.0), (2, 780.0), (3, 1_200.0)] {
        let built = continuous(spread(None), 4, replicas);
        let simulation = run(&built, &rate(qps, 900, ArrivalProcess::Poisson, 7), ServiceTimes::Median);
        let of_task = &simulation.total.waiting[0];
        let expected = mmc_wait(4 * replicas, qps / 1e3, 9.0);
        assert!((of_task.service_ms / 9.0 - 1.0).abs() < 0.01, "mean time {}", of_task.service_ms);
        assert!((of_task.mean_ms / expected - 1.0).abs() < 0.06, "{} ms, expected {expected} ms", of_task.mean_ms);
        assert_eq!((of_task.batch, of_task.batch_wait_ms), (1.0, 0.0));
    }
}

#[test]
fn each_slot_starts_and_ends_on_its_own() {
    // Two replicas of two slots with a queue each: four of five start at once, whatever they take.
    for queueing in [Queueing::PerReplica, Queueing::Central] {
        let mut built = continuous(spread(Some(2.0)), 2, 2);
        built.plan.pipelines[0].serving.queueing = queueing;
        let simulation = run(&built, &arrivals(&[0; 5]), ServiceTimes::Median);
        let ends = latencies(&simulation);
        assert!(ends[..4].windows(2).all(|w| w[0] < w[1]), "{queueing}: {ends:?}");
        let of_task = &simulation.total.waiting[0];
        assert!(of_task.mean_ms > 0.0 && of_task.queries == 5, "the fifth waits: {}", of_task.mean_ms);
        // A dropping policy that looks ahead reckons with a slot's expected time, 7 ms, of 1,000.
        built.plan.pipelines[0].serving.dropping = Dropping::PardSf;
        assert_eq!(run(&built, &arrivals(&[0; 5]), ServiceTimes::Median).total.dropped, 0);
    }
}

/// A `continuous` task of 7 ms for each query, on replicas of two slots.
fn pairs(queueing: Queueing, replicas: u32) -> Built {
    // As good as no spread: without any, times would be exponential.
    let Built { problem, mut plan } = continuous(spread(Some(1.0 + 1e-6)), 2, replicas);
    plan.pipelines[0].serving.queueing = queueing;
    Built { problem, plan }
}

/// A run with one event. Returns when each query ends, in ms in ascending order, and the run.
fn run_with(built: &Built, moments_ms: &[u64], (at_ms, event): (f64, ScenarioEvent)) -> (Vec<u64>, Replay) {
    let workload = arrivals(&moments_ms.iter().map(|m| m * 1_000_000).collect::<Vec<_>>());
    let events = vec![(Moment::from_millis(at_ms), event)];
    let scenario = Scenario { events, detection: TimeSpan::from_millis(3.0), ..Scenario::default() };
    let options = SimulateOptions { requests: true, ..SimulateOptions::default() };
    let replay = replay(&built.problem, &built.plan, &workload, &options, scenario).expect("a run");
    let mut ends: Vec<u64> = finishes(&replay.simulation).into_iter().map(|f| (f + 500_000) / 1_000_000).collect();
    ends.sort_unstable();
    (ends, replay)
}

/// Events that change the number of replicas: a command, and a plan.
fn to_have(Built { plan, .. }: &Built, replicas: u32) -> [ScenarioEvent; 2] {
    let group = plan.pipelines[0].assignments[0].group.clone();
    let mut other = plan.clone();
    other.pipelines[0].assignments[0].replicas = replicas;
    [ScenarioEvent::Replicas { pipeline: "p".into(), group, replicas }, ScenarioEvent::Plan { plan: other }]
}

#[test]
fn continuous_replicas_follow_commands_slot_by_slot() {
    let (one, two) = (pairs(Queueing::Central, 1), pairs(Queueing::Central, 2));
    for event in to_have(&one, 2) {
        assert_eq!(run_with(&one, &[0; 6], (1.0, event)).0, [7, 7, 8, 8, 14, 14]);
    }
    for event in to_have(&two, 1) {
        let (ends, replay) = run_with(&two, &[0; 8], (1.0, event));
        assert_eq!(ends, [7, 7, 7, 7, 14, 14, 21, 21]);
        let expected = 2.0 * (2.0 * 7.0 + 14.0) / 3_600_000.0;
        assert!((replay.cost / expected - 1.0).abs() < 1e-4, "both until 7 ms: {}", replay.cost);
    }
    let (one, two) = (pairs(Queueing::PerReplica, 1), pairs(Queueing::PerReplica, 2));
    for event in to_have(&one, 2) {
        assert_eq!(run_with(&one, &[0, 0, 0, 0, 2, 2, 2, 2], (1.0, event)).0, [7, 7, 9, 9, 14, 14, 21, 21]);
    }
    for event in to_have(&two, 1) {
        // What was sent to the one that goes stays there; what comes after goes to the other.
        assert_eq!(run_with(&two, &[0, 0, 0, 0, 0, 0, 2], (1.0, event)).0, [7, 7, 7, 7, 14, 14, 14]);
    }
}

#[test]
fn a_continuous_replica_fails_with_all_its_slots() {
    for queueing in [Queueing::Central, Queueing::PerReplica] {
        let two = pairs(queueing, 2);
        let (pipeline, group) = ("p".to_owned(), two.plan.pipelines[0].assignments[0].group.clone());
        let fail = ScenarioEvent::Fail { pipeline: pipeline.clone(), group: group.clone(), replica: 1 };
        // Noticed at 4 ms, when a replacement serves at once; with queues of their own the lost ones are with the other by
        // then.
        let ends = run_with(&two, &[0; 4], (1.0, fail)).0;
        let expected = if queueing == Queueing::Central { [7, 7, 11, 11] } else { [7, 7, 14, 14] };
        assert_eq!(ends, expected, "{queueing}");
        let slow = ScenarioEvent::Slow { pipeline, group, replica: 0, factor: 3.0, until: Moment::from_millis(5.0) };
        assert_eq!(run_with(&two, &[1; 4], (0.0, slow)).0, [8, 8, 22, 22], "{queueing}");
    }
}

#[test]
fn other_slots_of_a_continuous_task_are_refused() {
    let Built { problem, plan } = continuous(spread(None), 4, 2);
    let workload = rate(300.0, 5, ArrivalProcess::Poisson, 1);
    let options = SimulateOptions { requests: true, ..SimulateOptions::default() };
    let go = |next: Plan| {
        let events = vec![(Moment::from_millis(100.0), ScenarioEvent::Plan { plan: next })];
        replay(&problem, &plan, &workload, &options, Scenario { events, ..Scenario::default() })
    };
    let plain = simulate(&problem, &plan, &workload, &options).expect("a run");
    let replayed = go(plan.clone()).expect("the same plan");
    assert_eq!(replayed.simulation.requests, plain.requests);
    assert!((replayed.cost_per_hour - 4.0).abs() < 1e-9, "two devices, not eight: {}", replayed.cost_per_hour);
    let mut wider = plan.clone();
    wider.pipelines[0].assignments[0].batch = 3;
    let refused = go(wider).expect_err("replicas keep their slots").to_string();
    assert!(refused.contains("slots of the continuous task \"t0\" from 4 to 3"), "{refused}");
}
