//! Frontiers: every point is what planning for it alone gives, and no point is worse than a harder one.

use apportion_domain::{HardwareIndex, Mode, PipelineIndex, PlanStatus, Problem};
use apportion_planning::frontier::{FrontierPoint, NoRange, PointOrigin, Sweep, default_range, frontier, values};
use apportion_planning::{PlanningOptions, plan};
use apportion_wire::problem::{ProblemFile, read_problem};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const P: PipelineIndex = PipelineIndex(0);
const GPU: HardwareIndex = HardwareIndex(0);

fn options() -> PlanningOptions {
    PlanningOptions { ..PlanningOptions::new(Arc::new(|| Duration::ZERO)) }
}

fn example(name: &str) -> Problem {
    let file = apportion_tests::root().join("examples").join(name);
    let text = std::fs::read_to_string(&file).expect("an example");
    match read_problem(name, &text).unwrap_or_else(|e| panic!("{e}")) {
        ProblemFile::Allocation(problem) => problem,
        ProblemFile::Scaling(_) => panic!("not a scaling problem"),
    }
}

fn mode(problem: &Problem, mode: Mode) -> Problem {
    problem.changed(|d| d.objective.mode = mode).expect("valid")
}

fn swept(problem: &Problem, sweep: Sweep, points: usize) -> Vec<FrontierPoint> {
    let range = default_range(problem, sweep, &options()).unwrap_or_else(|e| panic!("{}: {e}", sweep.name()));
    let values = values(sweep, range, points);
    let known = AtomicUsize::new(0);
    let count = |_: &FrontierPoint| {
        known.fetch_add(1, Ordering::Relaxed);
    };
    let found = frontier(problem, sweep, &values, &options(), &count).expect("values of a default range are valid");
    assert_eq!(known.into_inner(), values.len(), "each point is announced once");
    assert_eq!(found.iter().map(|p| p.value).collect::<Vec<_>>(), values);
    found
}

/// Planning each point alone, which is slow and obvious, gives the same status and value; every plan is clean.
fn agrees_with_planning_alone(problem: &Problem, sweep: Sweep, points: &[FrontierPoint]) {
    for point in points {
        let at = sweep.problem_at(problem, point.value).expect("a valid value");
        let (alone, report) = plan(&at, &options());
        let place = format!("{} {}", sweep.name(), point.value);
        assert_eq!(point.status, alone.status(), "{place}");
        assert_eq!(point.objective.step, report.objective.step, "{place}");
        if let (Some(here), Some(there)) = (point.objective.value, report.objective.value) {
            assert!((here - there).abs() <= 2e-4 * there.abs(), "{place}: {here} against {there}");
        }
        if let Some(plan) = &point.plan {
            assert_eq!(apportion_checker::check(&at, plan), [], "{place}");
            let weights = at.pipelines.iter().zip(&plan.pipelines);
            assert!(weights.into_iter().all(|(p, part)| p.demand_qps == part.demand_qps), "{place}");
        }
    }
}

/// From the easiest to the hardest point the score never rises.
fn never_better_where_harder(sweep: Sweep, points: &[FrontierPoint], score: impl Fn(&FrontierPoint) -> f64) {
    let mut order: Vec<&FrontierPoint> = points.iter().collect();
    if !sweep.more_is_harder() {
        order.reverse();
    }
    for pair in order.windows(2) {
        let (easy, hard) = (pair[0], pair[1]);
        assert!(easy.plan.is_some() || hard.plan.is_none(), "{}: {} but not {}", sweep.name(), hard.value, easy.value);
        if hard.plan.is_some() {
            assert!(score(hard) <= score(easy) + 1e-5, "{}: {} beats {}", sweep.name(), hard.value, easy.value);
        }
    }
}

#[test]
fn a_point_equals_the_plan_for_it_alone() {
    let traffic = example("traffic.yaml");
    let chain = example("chain.json");
    for (problem, sweep) in [
        (&traffic, Sweep::Demand(Some(P))),
        (&traffic, Sweep::Slo(P)),
        (&traffic, Sweep::Count(GPU)),
        (&mode(&traffic, Mode::MaxAccuracy), Sweep::Budget),
        (&chain, Sweep::Demand(None)),
        (&chain, Sweep::Slo(P)),
        (&chain, Sweep::Budget),
        (&chain, Sweep::Count(HardwareIndex(1))),
    ] {
        let points = swept(problem, sweep, 9);
        agrees_with_planning_alone(problem, sweep, &points);
    }
}

#[test]
fn frontiers_are_monotonic_in_demand_and_slo() {
    let traffic = example("traffic.yaml");
    let points = swept(&traffic, Sweep::Demand(Some(P)), 24);
    never_better_where_harder(Sweep::Demand(Some(P)), &points, |p| p.accuracy.expect("of a plan"));
    let statuses: Vec<PlanStatus> = points.iter().map(|p| p.status).collect();
    assert_eq!((statuses[0], statuses[23]), (PlanStatus::Optimal, PlanStatus::Infeasible), "10 % and 115 % of the largest");
    let infeasible: Vec<usize> = (0..24).filter(|&i| statuses[i] == PlanStatus::Infeasible).collect();
    assert!(!points[infeasible[0]].shortfalls.is_empty(), "the easiest of them says why");
    assert!(infeasible[1..].iter().all(|&i| points[i].shortfalls.is_empty()));
    let limits: Vec<&str> = points[infeasible[0] - 1].binding.iter().map(|b| b.place.as_str()).collect();
    assert!(limits.contains(&"gpu"), "{limits:?}");
    let chain = example("chain.json");
    let cost = |p: &FrontierPoint| -p.cost_per_hour().expect("of a plan");
    never_better_where_harder(Sweep::Slo(P), &swept(&chain, Sweep::Slo(P), 16), cost);
    never_better_where_harder(Sweep::Demand(None), &swept(&chain, Sweep::Demand(None), 16), cost);
    let rich = mode(&traffic, Mode::MaxAccuracy);
    let busy = rich.changed(|d| d.pipelines = vec![d.pipelines[0].with_demand(500.0)]).expect("valid");
    never_better_where_harder(Sweep::Budget, &swept(&busy, Sweep::Budget, 12), |p| p.accuracy.expect("of a plan"));
    never_better_where_harder(Sweep::Count(GPU), &swept(&busy, Sweep::Count(GPU), 12), |p| p.accuracy.expect("of a plan"));
}

#[test]
fn points_share_plans_and_proofs() {
    let traffic = example("traffic.yaml");
    // between two SLOs at which three replicas are enough there is nothing to search for
    let values: Vec<f64> = (0..33).map(|i| 100.0 + f64::from(i)).collect();
    let points = frontier(&traffic, Sweep::Slo(P), &values, &options(), &|_| ()).expect("valid");
    let solved = points.iter().filter(|p| p.origin == PointOrigin::Solved).count();
    assert_eq!(solved, 2, "both ends");
    assert!(points.iter().all(|p| p.status == PlanStatus::Optimal && p.replicas() == Some(3)));
    agrees_with_planning_alone(&traffic, Sweep::Slo(P), &points[14..18]);
    // nothing can be served at ten times what can: two searches say so
    let values: Vec<f64> = (0..33).map(|i| 20_000.0 + f64::from(i)).collect();
    let points = frontier(&traffic, Sweep::Demand(Some(P)), &values, &options(), &|_| ()).expect("valid");
    assert_eq!(points.iter().filter(|p| p.origin == PointOrigin::Implied).count(), 31);
    assert!(points.iter().all(|p| p.status == PlanStatus::Infeasible));
}

#[test]
fn all_demands_together_keep_their_proportions() {
    let chain = example("chain.json");
    let mut second = apportion_domain::PipelineDraft::clone(&chain.pipelines[0]);
    second.name = "second".into();
    second.demand_qps = 20.0;
    let second = apportion_domain::Pipeline::new(second, &chain.hardware, "/pipelines/1").expect("valid");
    let both = chain.changed(|d| d.pipelines.push(second)).expect("valid");
    let at = Sweep::Demand(None).problem_at(&both, 160.0).expect("valid");
    let demands: Vec<f64> = at.pipelines.iter().map(|p| p.demand_qps).collect();
    assert_eq!(demands, [120.0, 40.0]);
    assert_eq!(Sweep::Demand(None).present(&both), Some(80.0));
    let points = frontier(&both, Sweep::Demand(None), &[80.0, 160.0], &options(), &|_| ()).expect("valid");
    agrees_with_planning_alone(&both, Sweep::Demand(None), &points);
}

#[test]
fn values_out_of_range_are_refused_with_their_pointer() {
    let chain = example("chain.json");
    let refused = |sweep: Sweep, value: f64| {
        let error = frontier(&chain, sweep, &[value], &options(), &|_| ()).expect_err("out of range");
        error.0[0].pointer.clone()
    };
    assert_eq!(refused(Sweep::Slo(P), 0.0), "/pipelines/0/slo_ms");
    assert_eq!(refused(Sweep::Demand(Some(P)), -1.0), "/pipelines/0/demand_qps");
    assert_eq!(refused(Sweep::Count(GPU), 1.5), "/hardware/0/count");
    assert_eq!(refused(Sweep::Budget, f64::NAN), "/objective/budget_per_hour");
}

#[test]
fn a_problem_that_no_value_helps_has_no_range() {
    let chain = example("chain.json");
    let fast = chain.pipelines[0].changed(&chain.hardware, |d| d.slo_ms = 5.0).expect("valid");
    let hopeless = chain.changed(|d| d.pipelines = vec![fast]).expect("valid");
    for sweep in [Sweep::Demand(None), Sweep::Budget, Sweep::Count(HardwareIndex(1))] {
        match default_range(&hopeless, sweep, &options()) {
            Err(NoRange::Infeasible(shortfalls)) => assert!(!shortfalls.is_empty(), "{}", sweep.name()),
            other => panic!("{}: {other:?}", sweep.name()),
        }
    }
    let range = default_range(&hopeless, Sweep::Slo(P), &options()).expect("a larger SLO helps");
    assert_eq!(range.from, 14.0, "2 x (4 + 3) ms");
}
