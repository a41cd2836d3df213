//! Ladders: the fewest replicas, their prices, and where ladders end.

use super::price::replica_price;
use super::*;
use crate::fixtures::{chain, problem};
use crate::options::{Planner, PlanningOptions};
use apportion_domain::Mode;
use apportion_estimator::ArrivalProcess;

fn unlimited() -> RunLimits {
    RunLimits::new(Arc::new(Duration::default))
}

fn steady(qps: f64) -> Workload {
    let trace = ArrivalTrace::Rates((0..10).map(|s| (s, qps)).collect());
    Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: 3 }
}

#[test]
fn every_step_holds_its_rate_with_the_fewest_replicas() {
    let problem = problem(chain(120.0));
    let options = PlanningOptions { planner: Planner::Greedy, ..PlanningOptions::new(Arc::new(Duration::default)) };
    let (outcome, _) = crate::plan(&problem, &options);
    let plan = outcome.plan().expect("a plan");
    let rates = [50.0, 100.0, 200.0, 400.0, 800.0];
    let steps = steps(&problem, plan, rates, &[1, 1], steady);
    assert_eq!(steps.iter().map(|s| s.rate_qps).collect::<Vec<_>>(), rates);
    let mut before = vec![1; plan.pipelines[0].assignments.len()];
    for step in &steps {
        let limits = unlimited();
        let search = StepSearch::new(&problem, plan, step.rate_qps, steady(step.rate_qps), &limits).expect("few requests");
        assert!(search.holds(&step.replicas).expect("a verdict"), "{step:?}");
        assert!(step.replicas.iter().zip(&before).all(|(now, before)| now >= before), "{steps:?}");
        let fewest = search.find_fewest_replicas(&before, &[u32::MAX; 2]).expect("a verdict").expect("replicas");
        let is_fewest = fewest == step.replicas;
        assert!(is_fewest || !search.holds_fresh(&fewest).expect("a verdict"), "{step:?}: {fewest:?} would do");
        for i in (0..step.replicas.len()).filter(|&i| is_fewest && step.replicas[i] > before[i]) {
            let mut fewer = step.replicas.clone();
            fewer[i] -= 1;
            let load = plan.pipelines[0].assignments[i].utilisation * f64::from(plan.pipelines[0].assignments[i].replicas);
            let is_bare = f64::from(fewer[i]) < load * step.rate_qps / problem.pipelines[0].demand_qps;
            assert!(
                is_bare || !search.holds(&fewer).expect("a verdict"),
                "{step:?} can do with a replica less of group {i}"
            );
        }
        assert!(search.holds_fresh(&step.replicas).expect("a verdict"), "{step:?}");
        before.clone_from(&step.replicas);
    }
    assert!(steps[4].replicas.iter().sum::<u32>() > steps[0].replicas.iter().sum(), "{steps:?}");
}

#[test]
fn a_rate_that_nothing_holds_ends_the_ladder() {
    // batches take 10 ms and then 5 ms at least, which no number of replicas fits into 14 ms
    let problem = problem(chain(120.0));
    let options = PlanningOptions { planner: Planner::Greedy, ..PlanningOptions::new(Arc::new(Duration::default)) };
    let (outcome, _) = crate::plan(&problem, &options);
    let tight = crate::fixtures::problem(chain(14.0));
    assert_eq!(steps(&tight, outcome.plan().expect("a plan"), [50.0, 100.0], &[1, 1], steady), []);
    let made = with_ladders(&tight, outcome.plan().expect("a plan").clone(), 2.0, None, &unlimited());
    assert_eq!(made.plan.pipelines[0].ladder, []);
    assert!(made.left_out[0].contains("no number of replicas holds") && !made.hold_demands, "{:?}", made.left_out);
}

/// Samples that show that a plan holds.
fn held() -> JudgedOn {
    JudgedOn::default()
}

/// A problem with just as many devices as a plan has.
fn with_the_devices_of(problem: &Problem, plan: &Plan) -> Problem {
    let devices = plan.devices();
    let counted = problem.changed(|d| {
        for hardware in &mut d.hardware {
            hardware.count = Some(devices.get(hardware.name.as_str()).map_or(0, |&n| n as u32));
        }
    });
    counted.expect("counts")
}

#[test]
fn where_devices_do_not_hold_the_demand_its_step_has_all_of_them() {
    let problem = problem(chain(120.0));
    let options = PlanningOptions {
        planner: Planner::Greedy,
        trace: Some(steady(problem.pipelines[0].demand_qps)),
        ..PlanningOptions::new(Arc::new(Duration::default))
    };
    let mut plan = crate::plan(&problem, &options).0.plan().expect("a plan").clone();
    let ladder = |problem: &Problem, plan: &Plan| with_ladders(problem, plan.clone(), 2.0, None, &unlimited());
    assert!(ladder(&problem, &plan).left_out.is_empty());
    // A replica less does not hold, and there is no device for another one.
    let busiest = plan.pipelines[0].assignments.iter_mut().max_by_key(|a| a.replicas).expect("a group");
    assert!(busiest.replicas > 1, "{busiest:?}");
    busiest.replicas -= 1;
    let made = ladder(&with_the_devices_of(&problem, &plan), &plan);
    let part = &made.plan.pipelines[0];
    let at_demand = part.ladder.last().expect("a step");
    let of_plan: Vec<u32> = part.assignments.iter().map(|a| a.replicas).collect();
    assert!((at_demand.rate_qps - part.demand_qps).abs() < 1e-6 && at_demand.replicas == of_plan, "{:?}", part.ladder);
    assert!(made.left_out[0].contains("has all devices in its step of"), "{:?}", made.left_out);
    assert!(!made.hold_demands);
    assert!(part.ladder.len() > 1, "lower rates hold: {:?}", part.ladder);
    // More samples than those of a step may show that the plan holds.
    let shown = with_ladders(&with_the_devices_of(&problem, &plan), plan.clone(), 2.0, Some(&held()), &unlimited());
    assert_eq!((&shown.plan.pipelines[0].ladder, shown.left_out.len()), (&part.ladder, 0));
    assert!(shown.hold_demands && ladder(&problem, &plan).hold_demands, "more devices hold it too");
}

#[test]
fn steps_below_the_demand_leave_the_plan_its_devices() {
    // Groups share the devices of one type. A step that took another group's devices would leave none for the demand.
    let problem = problem(chain(120.0));
    let options = PlanningOptions {
        planner: Planner::Greedy,
        trace: Some(steady(problem.pipelines[0].demand_qps)),
        ..PlanningOptions::new(Arc::new(Duration::default))
    };
    let plan = crate::plan(&problem, &options).0.plan().expect("a plan").clone();
    let counted = with_the_devices_of(&problem, &plan);
    let made = with_ladders(&counted, plan.clone(), 4.0, None, &unlimited());
    let part = &made.plan.pipelines[0];
    let planned: Vec<u32> = plan.pipelines[0].assignments.iter().map(|a| a.replicas).collect();
    let last = part.ladder.last().expect("a step");
    assert!(last.rate_qps >= part.demand_qps && last.replicas == planned, "{:?} of {planned:?}", part.ladder);
    assert!(part.ladder.iter().all(|s| s.replicas.iter().zip(&planned).all(|(n, most)| n <= most)), "{:?}", part.ladder);
}

#[test]
fn the_plan_with_the_cheaper_ladder_is_chosen() {
    let problem = problem(chain(60.0))
        .changed(|d| {
            d.objective.mode = Mode::MinCost;
            d.pipelines[0] = d.pipelines[0].changed(&d.hardware, |p| p.demand_qps = 90.0).expect("valid");
        })
        .expect("valid");
    let options = |planner, ladder| {
        let elapsed = Arc::new(Duration::default);
        PlanningOptions { planner, ladder, trace: Some(steady(90.0)), ..PlanningOptions::new(elapsed) }
    };
    let price = |plan: &Plan| price_per_hour(&problem, &plan.pipelines[0], 90.0).expect("a ladder");
    let alone = [Planner::Milp, Planner::Greedy].map(|planner| {
        let (outcome, _) = crate::plan(&problem, &options(planner, None));
        price(&with_ladders(&problem, outcome.plan().expect("a plan").clone(), 2.0, None, &unlimited()).plan)
    });
    let (outcome, _) = crate::plan(&problem, &options(Planner::Milp, Some(2.0)));
    assert_eq!(price(outcome.plan().expect("a plan")), alone[0].min(alone[1]), "{alone:?}");
}

#[test]
fn a_ladder_is_priced_by_its_step() {
    let problem = problem(chain(120.0));
    let options = PlanningOptions { planner: Planner::Greedy, ..PlanningOptions::new(Arc::new(Duration::default)) };
    let (outcome, _) = crate::plan(&problem, &options);
    let mut plan = outcome.plan().expect("a plan").clone();
    assert_eq!(price_per_hour(&problem, &plan.pipelines[0], 10.0), None);
    assert!((price_at_demand(&problem, &plan) - plan.cost_per_hour).abs() < 1e-9, "as planned");
    let part = &mut plan.pipelines[0];
    let one = |a: &Assignment| replica_price(&problem, a);
    let (first, second) = (one(&part.assignments[0]), one(&part.assignments[1]));
    part.ladder =
        vec![LadderStep { rate_qps: 10.0, replicas: vec![1, 2] }, LadderStep { rate_qps: 20.0, replicas: vec![3, 2] }];
    let asked = [1.0, 10.0, 15.0, 20.0, 40.0].map(|rate| price_per_hour(&problem, part, rate).expect("a ladder"));
    let (low, high) = (first + 2.0 * second, 3.0 * first + 2.0 * second);
    assert!(
        first > 0.0 && asked.iter().zip([low, low, high, high, 2.0 * high]).all(|(a, b)| (a - b).abs() < 1e-9),
        "{asked:?}"
    );
    let earlier = with_headroom(plan.clone(), 2.0);
    let rates = |plan: &Plan| plan.pipelines[0].ladder.iter().map(|s| s.rate_qps).collect::<Vec<_>>();
    assert_eq!((rates(&plan), rates(&earlier)), (vec![10.0, 20.0], vec![5.0, 10.0]));
    let prices = |rate: f64| [&plan, &earlier].map(|plan| price_at(&problem, &plan.pipelines[0], rate));
    assert!(prices(8.0)[0] < prices(8.0)[1], "{:?}", prices(8.0));
    let replicas = |rate: f64| at_rate(&plan.pipelines[0], rate).assignments.iter().map(|a| a.replicas).collect::<Vec<_>>();
    assert_eq!([1.0, 10.0, 15.0, 40.0].map(replicas), [[1, 2], [1, 2], [3, 2], [3, 2]]);
}

#[test]
fn a_ladder_ends_where_the_devices_end() {
    let problem = problem(chain(120.0))
        .changed(|d| d.pipelines[0] = d.pipelines[0].changed(&d.hardware, |p| p.demand_qps = 30.0).expect("valid"))
        .expect("valid");
    let options = PlanningOptions {
        planner: Planner::Greedy,
        ladder: Some(8.0),
        ..PlanningOptions::new(Arc::new(Duration::default))
    };
    let ladder = |problem: &Problem| {
        let (outcome, _) = crate::plan(problem, &options);
        let part = outcome.plan().expect("a plan").pipelines[0].clone();
        let planned: Vec<u32> = part.assignments.iter().map(|a| a.replicas).collect();
        (part.demand_qps, planned, part.ladder)
    };
    let (demand_qps, _, steps) = ladder(&problem);
    assert!(steps[0].rate_qps <= demand_qps / 8.0, "{steps:?}");
    assert!(steps[steps.len() - 1].rate_qps >= 8.0 * demand_qps, "{steps:?}");
    assert_eq!(steps[0].replicas, [1, 1], "an eighth of 30 queries/s");
    // What is spare so that losses are survived is not given up.
    let careful = problem
        .changed(|d| d.pipelines[0] = d.pipelines[0].changed(&d.hardware, |p| p.survive = 1).expect("valid"))
        .expect("valid");
    let (_, planned_spare, kept) = ladder(&careful);
    assert_eq!(kept[0].rate_qps, demand_qps);
    assert!(kept.iter().all(|s| s.replicas.iter().zip(&planned_spare).all(|(n, planned)| n >= planned)), "{kept:?}");
    let at_demand = steps.iter().find(|s| s.rate_qps >= demand_qps).expect("the demand's");
    let count: u32 = at_demand.replicas.iter().sum();
    let few = problem.changed(|d| d.hardware.iter_mut().for_each(|h| h.count = Some(count))).expect("valid");
    let (_, _, short) = ladder(&few);
    assert!(!short.is_empty() && short.len() < steps.len(), "{} of {}", short.len(), steps.len());
    assert!(short.iter().all(|s| s.replicas.iter().sum::<u32>() <= count * few.hardware.len() as u32));
}
