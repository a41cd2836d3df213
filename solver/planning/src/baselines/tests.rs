//! Rates, units and tasks of the baselines, against values worked out by hand.

use super::coarse::{PlannedRate, mean_rate, peak_rate, rate_of, units};
use super::common::{LargestPart, PART_PRECISION, largest_part};
use super::hardware_only::most_accurate_only;
use super::proteus::{longest_path, split_into_tasks};
use crate::fixtures::{chain, draft, problem, task, variant};
use apportion_domain::{ArrivalTrace, Mode, Moment, PathAccuracy, StopReason, TaskIndex, VariantIndex};
use apportion_estimator::{ArrivalProcess, Workload};

fn unlimited() -> apportion_mip::RunLimits {
    apportion_mip::RunLimits::new(std::sync::Arc::new(std::time::Duration::default))
}

#[test]
fn a_unit_has_the_largest_batch_that_meets_the_slo() {
    // (SLO, batch, queries per second): 2 x (30 + 14) = 88 ms at batch 4, 48 at batch 2, 30 at batch 1. Each query of a
    // makes two at b: 4000 / 30 against 4000 / 14 / 2, 2000 / 16 against 2000 / 8 / 2, 1000 / 10 against 1000 / 5 / 2.
    for (slo_ms, batch, qps) in [(88.0, 4, 4000.0 / 30.0), (87.9, 2, 125.0), (30.0, 1, 100.0)] {
        let problem = problem(chain(slo_ms));
        let found = units(&problem, &problem.pipelines[0]);
        assert_eq!(found.len(), 1, "a has no profile on the other hardware");
        assert!(found[0].groups.iter().all(|g| g.batch == batch && g.replicas == 1), "{slo_ms}: {found:?}");
        assert!((found[0].qps - qps).abs() < 1e-9, "{slo_ms}: {}", found[0].qps);
    }
    let too_fast = problem(chain(29.9));
    assert_eq!(units(&too_fast, &too_fast.pipelines[0]), []);
}

#[test]
fn an_unmeasured_batch_size_falls_back_to_the_next_smaller() {
    let mut draft = chain(88.0);
    draft.tasks[0].variants[1] = variant("a-l", 1.0, 2.0, &[(0, 1, 10.0), (0, 2, 16.0)]);
    let problem = problem(draft);
    let batches: Vec<u32> = units(&problem, &problem.pipelines[0])[0].groups.iter().map(|g| g.batch).collect();
    assert_eq!(batches, [2, 4]);
}

#[test]
fn mean_and_peak_of_a_trace() {
    let at = |ms: f64| Moment::from_millis(ms);
    // five within 40 ms, one exactly a window after the first, one much later
    let arrivals = [0.0, 10.0, 20.0, 30.0, 40.0, 100.0, 3000.0, 4000.0].map(at);
    assert!((peak_rate(arrivals.into_iter(), 100.0) - 50.0).abs() < 1e-9, "the sixth is outside the first window");
    assert!((peak_rate(arrivals.into_iter(), 100.1) - 6.0 / 0.1001).abs() < 1e-6);
    assert_eq!(peak_rate(std::iter::empty(), 100.0), 0.0);
    let trace = ArrivalTrace::arrivals(arrivals.to_vec()).expect("in order");
    assert!((mean_rate(&trace) - 2.0).abs() < 1e-12, "8 in 4 s");
    // seconds that are not listed have no queries
    let rates = ArrivalTrace::rates(vec![(0, 30.0), (1, 10.0), (3, 20.0)]).expect("increasing");
    assert!((mean_rate(&rates) - 15.0).abs() < 1e-12);
    let problem = problem(chain(100.0));
    let workload = Workload { traces: vec![rates], arrivals: ArrivalProcess::Uniform, seed: 1 };
    // evenly, 30 in the first second: 3 in each window of 100 ms
    assert!((rate_of(&workload, 0, &problem.pipelines[0], PlannedRate::Peak, &unlimited()) - 30.0).abs() < 1e-9);
    assert!((rate_of(&workload, 0, &problem.pipelines[0], PlannedRate::Mean, &unlimited()) - 15.0).abs() < 1e-12);
}

#[test]
fn each_task_alone_gets_an_even_share_of_the_slo() {
    let one = |name: &str| task(name, vec![variant("v", 1.0, 3.0, &[(0, 1, 1.0)])]);
    // r -> s -> u, and r -> v
    let tasks = vec![one("r"), one("s"), one("u"), one("v")];
    let problem = problem(draft(90.0, tasks, &[(0, 1), (1, 2), (0, 3)]));
    assert_eq!(longest_path(&problem.pipelines[0]), [3, 3, 3, 2]);
    let alone = split_into_tasks(&problem, &[vec![1.0, 3.0, 9.0, 3.0]]);
    let seen: Vec<_> = alone.pipelines.iter().map(|p| (p.name.as_str(), p.demand_qps, p.slo_ms, p.weight)).collect();
    let expected = [
        ("p/r", 300.0, 30.0, 300.0),
        ("p/s", 900.0, 30.0, 900.0),
        ("p/u", 2700.0, 30.0, 2700.0),
        ("p/v", 900.0, 45.0, 900.0),
    ];
    assert_eq!(seen, expected);
    assert_eq!(alone.objective.mode, Mode::MaxAccuracy);
}

#[test]
fn most_accurate_only_keeps_path_accuracies_of_kept_variants() {
    let mut draft = chain(88.0);
    let path = |v: usize| vec![(TaskIndex(0), VariantIndex(v)), (TaskIndex(1), VariantIndex(0))];
    let entry = |v: usize, accuracy: f64| PathAccuracy { path: path(v), accuracy };
    draft.path_accuracy = vec![entry(0, 0.7), entry(1, 0.95)];
    let restricted = most_accurate_only(&problem(draft));
    let pipeline = &restricted.pipelines[0];
    assert_eq!(pipeline.tasks[0].variants.len(), 1);
    assert_eq!(pipeline.tasks[0].variants[0].name, "a-l");
    assert_eq!(pipeline.path_accuracy, [entry(0, 0.95)], "its position is another now");
}

#[test]
fn the_largest_part_is_found_from_above_and_below() {
    let up_to = |most: f64| largest_part(PART_PRECISION, |part| Ok((part <= most).then_some(part)));
    assert_eq!(up_to(1.0), Ok(Some(LargestPart { part: 1.0, plan: 1.0 })));
    for most in [0.9, 0.31, 0.004] {
        let LargestPart { part, plan } = up_to(most).expect("an answer").expect("a part");
        assert!(part == plan && part <= most && part >= most * (1.0 - 2.0 * PART_PRECISION), "{most}: {part}");
    }
    assert_eq!(up_to(0.0), Ok(None));
    assert_eq!(largest_part::<f64>(PART_PRECISION, |_| Err(StopReason::TimeLimit)), Err(StopReason::TimeLimit));
}
