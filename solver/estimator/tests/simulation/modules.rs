//! What PARD's modules measure, kept query by query, against the sums of the same run.

use crate::common::{Built, arrivals, build, stage};
use apportion_domain::{Batching, Dropping, Queueing};
use apportion_estimator::{Replay, Scenario, SimulateOptions, Workload, replay};

/// A run that keeps measurements, if `modules` says so.
fn run(workload: &Workload, modules: bool) -> Replay {
    let stages = [stage(0, 1, 4, 10.0, 2.0), stage(0, 2, 4, 8.0, 1.0)];
    let Built { problem, mut plan } = build(&stages, Queueing::PerReplica, 1.0, 200.0);
    let serving = &mut plan.pipelines[0].serving;
    (serving.batching, serving.dropping) = (Batching::Forming, Dropping::Pard);
    let options = SimulateOptions { requests: true, ..SimulateOptions::default() };
    replay(&problem, &plan, workload, &options, Scenario { modules, ..Scenario::default() }).expect("a run")
}

#[test]
fn kept_measurements_add_up_to_the_estimate() {
    const MS: u64 = 1_000_000;
    // 333 requests/s for 3 s are more than the first task serves; one at 10 s, so that all periods before it have ended.
    let moments: Vec<u64> = (0..1_000).map(|i| 3 * i * MS).chain([10_000 * MS]).collect();
    let workload = arrivals(&moments);
    let kept = run(&workload, true);
    let plain = run(&workload, false);
    assert_eq!((&kept.simulation.total, &kept.simulation.requests), (&plain.simulation.total, &plain.simulation.requests));
    assert!(plain.modules.is_empty() && kept.simulation.total.dropped > 0);
    assert_eq!(kept.modules.len(), 2 * 10, "two modules, ten periods");
    for (task, waiting) in kept.simulation.total.waiting.iter().enumerate() {
        let of_task = || kept.modules.iter().filter(move |p| p.task.get() == task);
        let entries: Vec<_> = of_task().flat_map(|p| &p.queries.entries).collect();
        let millis =
            |spans: &mut dyn Iterator<Item = apportion_domain::TimeSpan>| spans.map(|s| s.as_millis()).sum::<f64>();
        // the last request's period never ends; it enters and starts at once, alone
        let last_ms = [12.0, 9.0][task];
        let queries = waiting.queries as f64;
        assert_eq!(entries.len() as u64 + 1, waiting.queries);
        let queued = millis(&mut entries.iter().map(|e| e.queued)) / queries;
        let waited = millis(&mut of_task().flat_map(|p| p.queries.waits.iter().copied())) / queries;
        let ran = (millis(&mut of_task().flat_map(|p| p.queries.executions.iter().copied())) + last_ms) / queries;
        // the estimate's waits come from a histogram
        let near = |a: f64, b: f64, slack: f64| assert!((a - b).abs() <= slack, "task {task}: {a} and {b}");
        near(queued, waiting.queueing_ms, 0.02 * waiting.mean_ms);
        near(waited, waiting.batch_wait_ms, 1e-6);
        near(ran, waiting.service_ms, 1e-6);
        let in_time = |e: &&apportion_estimator::BatchEntry| (e.left + e.queued).as_millis() <= 200.0;
        assert!(entries.iter().all(in_time), "nothing has more left than the SLO");
        assert!(of_task().map(|p| p.arrived).sum::<u64>() >= entries.len() as u64);
    }
}
