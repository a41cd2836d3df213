//! Scaling actions of drawn pipelines against an enumeration of all replica counts, and by hand: replicas of the same
//! variant, another variant where room is short, fewer replicas after the load.

use super::{RescaleSettings, Rescaler, rescale, servable};
use crate::fixtures;
use crate::options::{Planner, PlanningOptions};
use crate::scaling::drawn::Draw;
use apportion_domain::{
    Assignment, Deployed, Hardware, HardwareIndex, JudgedVerdict, Mode, Pipeline, PipelineDraft, PipelineIndex, Plan,
    PlanOutcome, Problem, ProblemDraft, Share, StopReason, TaskIndex, VariantIndex,
};
use apportion_mip::RunLimits;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const LAMBDA: f64 = 0.1;

/// Replicas of each group, by variant and hardware.
type Counts = BTreeMap<(usize, usize), u32>;

fn limits() -> RunLimits {
    RunLimits::new(Arc::new(Duration::default))
}

fn options(planner: Planner) -> PlanningOptions {
    PlanningOptions { planner, ..PlanningOptions::new(Arc::new(Duration::default)) }
}

/// A problem of one pipeline on these devices: name, price, count.
fn problem_on(devices: &[(&str, f64, u32)], draft: PipelineDraft) -> Problem {
    let device = |&(name, price_per_hour, count): &(&str, f64, u32)| Hardware {
        name: name.into(),
        price_per_hour,
        count: Some(count),
        memory_mib: None,
    };
    let hardware: Vec<Hardware> = devices.iter().map(device).collect();
    let pipelines = vec![Pipeline::new(draft, &hardware, "/pipelines/0").expect("a valid pipeline")];
    let mut all = ProblemDraft { hardware, pipelines, ..ProblemDraft::default() };
    all.objective.mode = Mode::MinCost;
    Problem::new(all).expect("a valid problem")
}

/// The problem with these replicas of its first task, with the smallest batch.
fn running(problem: &Problem, counts: &Counts) -> Problem {
    let group = |(&(v, h), &replicas): (&(usize, usize), &u32)| {
        let profile = &problem.pipelines[0].tasks[0].variants[v].profile;
        Deployed {
            pipeline: PipelineIndex(0),
            task: TaskIndex(0),
            variant: VariantIndex(v),
            hardware: HardwareIndex(h),
            share: Share::WHOLE,
            batch: profile.on(HardwareIndex(h), Share::WHOLE)[0].batch,
            replicas,
        }
    };
    let deployed = counts.iter().filter(|(_, n)| **n > 0).map(group).collect();
    problem.changed(|d| d.deployed = deployed).expect("a valid problem")
}

/// One task of up to three variants on two hardware types, with some replicas.
fn drawn(seed: u64) -> (Problem, Counts) {
    let mut draw = Draw::new(seed);
    let (mut variants, mut counts) = (Vec::new(), Counts::new());
    for v in 0..=draw.below(3) as usize {
        let mut rows: Vec<(usize, u32, f64)> = Vec::new();
        let places: Vec<usize> = (0..2).filter(|h| *h == v % 2 || draw.below(2) == 0).collect();
        for hardware in places {
            let first = 5.0 * (1 + draw.below(8)) as f64;
            rows.extend([(hardware, 1, first), (hardware, 4, first * (1.5 + 0.5 * draw.below(4) as f64))]);
        }
        for row in rows.iter().filter(|row| row.1 == 1) {
            counts.insert((v, row.0), draw.below(3) as u32);
        }
        let mut variant = fixtures::variant(&format!("v{v}"), 0.7 + 0.1 * draw.below(4) as f64, 1.0, &rows);
        variant.load_ms = 1_000.0 * draw.below(20) as f64;
        variants.push(variant);
    }
    let mut draft = fixtures::draft(40.0 + 20.0 * draw.below(6) as f64, vec![fixtures::task("t", variants)], &[]);
    draft.demand_qps = 10.0 * (1 + draw.below(60)) as f64;
    draft.min_accuracy = (draw.below(2) == 0).then_some(0.8);
    let counts_of_devices = [2 + draw.below(3) as u32, 2 + draw.below(3) as u32];
    let devices = [("gpu", 3.0, counts_of_devices[0]), ("cpu", 0.5 + draw.below(3) as f64, counts_of_devices[1])];
    let problem = problem_on(&devices, draft);
    (running(&problem, &counts), counts)
}

/// The cost of changes, by the paper's objective written out.
fn cost(problem: &Problem, before: &Counts, after: &Counts) -> f64 {
    let of = |(&(v, h), &n): (&(usize, usize), &u32)| {
        let delta = f64::from(n) - f64::from(before.get(&(v, h)).copied().unwrap_or(0));
        let load_s = problem.pipelines[0].tasks[0].variants[v].load_ms / 1_000.0;
        problem.hardware[h].price_per_hour * (delta + LAMBDA * load_s * delta.max(0.0))
    };
    after.iter().map(of).sum()
}

/// The cheapest cost of all replica counts that serve the demand, by enumeration; `None` if none does.
fn cheapest(problem: &Problem, before: &Counts) -> Option<f64> {
    let pipeline = &problem.pipelines[0];
    let mut groups: Vec<((usize, usize), f64)> = Vec::new();
    for (v, variant) in pipeline.tasks[0].variants.iter().enumerate() {
        for h in (0..2).filter(|_| pipeline.min_accuracy.is_none_or(|floor| variant.accuracy >= floor - 1e-6)) {
            let rows = variant.profile.on(HardwareIndex(h), Share::WHOLE);
            let in_time = rows.iter().filter(|r| pipeline.queue_factor * r.latency_ms <= pipeline.slo_ms + 1e-6);
            let best = in_time.map(|r| 1_000.0 * f64::from(r.batch) / r.latency_ms).max_by(f64::total_cmp);
            groups.extend(best.map(|qps| ((v, h), qps)));
        }
    }
    let mut all: Vec<Vec<u32>> = vec![Vec::new()];
    for &((_, h), _) in &groups {
        let most = problem.hardware[h].count.expect("a count");
        all = all.iter().flat_map(|n| (0..=most).map(move |next| [n.as_slice(), &[next]].concat())).collect();
    }
    let serves = |n: &&Vec<u32>| {
        let each = || groups.iter().zip(n.iter());
        let used = |hardware: usize| each().filter(|(g, _)| g.0.1 == hardware).map(|(_, n)| *n).sum::<u32>();
        let fits = (0..2).all(|h| used(h) <= problem.hardware[h].count.expect("a count"));
        fits && each().map(|(g, n)| g.1 * f64::from(*n)).sum::<f64>() >= pipeline.demand_qps - 1e-6
    };
    let costs = all.iter().filter(serves).map(|n| {
        let after: Counts = groups.iter().zip(n).map(|(group, &n)| (group.0, n)).collect();
        cost(problem, before, &after)
    });
    costs.min_by(f64::total_cmp)
}

/// The replicas of a plan, also of the groups that it unloads.
fn counts_of(problem: &Problem, before: &Counts, plan: &Plan) -> Counts {
    let pipeline = &problem.pipelines[0];
    let floor = pipeline.min_accuracy.unwrap_or(0.0) - 1e-6;
    let variant = |v: usize| &pipeline.tasks[0].variants[v];
    let in_time = |&(v, h): &(usize, usize)| {
        let rows = variant(v).profile.on(HardwareIndex(h), Share::WHOLE);
        rows.iter().any(|r| pipeline.queue_factor * r.latency_ms <= pipeline.slo_ms + 1e-6)
    };
    // a group that no plan may have costs the same in all plans
    let may_run = |place: &&(usize, usize)| variant(place.0).accuracy >= floor && in_time(place);
    let mut counts: Counts = before.keys().filter(may_run).map(|&place| (place, 0)).collect();
    for a in &plan.pipelines[0].assignments {
        let v = pipeline.tasks[0].variants.iter().position(|v| v.name == a.group.variant).expect("a variant");
        let h = problem.hardware_named(&a.group.hardware).expect("hardware").get();
        counts.insert((v, h), a.replicas);
    }
    counts
}

fn plan_by(problem: &Problem, planner: Planner) -> Option<Plan> {
    let (settings, limits) = (RescaleSettings { lambda: LAMBDA }, limits());
    Rescaler { problem, planner, settings: &settings, limits: &limits }.plan_at(1.0, 1.0)
}

#[test]
fn the_programme_finds_the_cheapest_of_all_actions() {
    let (mut plans, mut without, mut worse, mut missed) = (0, 0, 0, 0);
    for seed in 0..300 {
        let (problem, before) = drawn(seed);
        let best = cheapest(&problem, &before);
        let plan = plan_by(&problem, Planner::Milp);
        assert_eq!(plan.is_some(), best.is_some(), "seed {seed}: {plan:?}");
        let (Some(best), Some(plan)) = (best, plan) else {
            without += 1;
            assert_eq!(plan_by(&problem, Planner::Greedy), None, "seed {seed}");
            continue;
        };
        plans += 1;
        let value = |plan: &Plan| cost(&problem, &before, &counts_of(&problem, &before, plan));
        assert!((value(&plan) - best).abs() < 1e-9, "seed {seed}: {} instead of {best}: {plan:?}", value(&plan));
        assert_eq!(apportion_checker::check(&problem, &plan), [], "seed {seed}");
        match plan_by(&problem, Planner::Greedy) {
            Some(heuristic) => {
                assert_eq!(apportion_checker::check(&problem, &heuristic), [], "seed {seed}");
                assert!(value(&heuristic) > best - 1e-9, "seed {seed}");
                worse += u32::from(value(&heuristic) > best + 1e-9);
            }
            None => missed += 1,
        }
    }
    assert!(plans > 100 && without > 30, "{plans} plans, {without} without");
    assert!(worse > 0 && missed < plans / 2, "{worse} worse, {missed} missed");
}

#[test]
fn actions_after_a_plan_change_nothing() {
    let mut plans = 0;
    for seed in 0..100 {
        let (problem, before) = drawn(seed);
        let Some(plan) = plan_by(&problem, Planner::Milp) else { continue };
        let after = counts_of(&problem, &before, &plan);
        let again = plan_by(&running(&problem, &after), Planner::Milp).expect("a plan again");
        assert_eq!(counts_of(&problem, &before, &again), after, "seed {seed}");
        plans += 1;
    }
    assert!(plans > 30, "{plans} plans");
}

/// `large` serves 50 queries per second of a device, and `small` 200.
fn large_and_small(demand_qps: f64, devices: u32) -> Problem {
    let mut variants =
        vec![fixtures::variant("large", 0.9, 1.0, &[(0, 1, 20.0)]), fixtures::variant("small", 0.8, 1.0, &[(0, 1, 5.0)])];
    variants.iter_mut().for_each(|v| v.load_ms = 30_000.0);
    let mut draft = fixtures::draft(100.0, vec![fixtures::task("t", variants)], &[]);
    draft.demand_qps = demand_qps;
    problem_on(&[("gpu", 1.0, devices)], draft)
}

fn assignments(plan: &Plan) -> Vec<(&str, u32)> {
    plan.pipelines[0].assignments.iter().map(|a: &Assignment| (a.group.variant.as_str(), a.replicas)).collect()
}

#[test]
fn the_floor_decides_between_replicas_and_another_variant() {
    // two replicas of `large` run; by hand, in devices: one more is 1 + 30 lambda, one `small` for both is 30 lambda - 1
    let before = Counts::from([((0, 0), 2)]);
    let free = running(&large_and_small(140.0, 8), &before);
    let accurate = free.changed(|d| {
        let raised = d.pipelines[0].changed(&d.hardware, |p| p.min_accuracy = Some(0.9));
        d.pipelines[0] = raised.expect("a valid pipeline");
    });
    let accurate = accurate.expect("a valid problem");
    let fallen = accurate.changed(|d| d.pipelines[0] = d.pipelines[0].with_demand(40.0)).expect("a valid problem");
    for (problem, after) in [(&free, ("small", 1)), (&accurate, ("large", 3)), (&fallen, ("large", 1))] {
        for planner in [Planner::Milp, Planner::Greedy] {
            assert_eq!(assignments(&plan_by(problem, planner).expect("a plan")), [after], "{planner:?}");
        }
    }
}

#[test]
fn short_room_loads_a_variant_of_higher_throughput() {
    for planner in [Planner::Milp, Planner::Greedy] {
        let enough = running(&large_and_small(90.0, 2), &Counts::from([((0, 0), 2)]));
        assert_eq!(assignments(&plan_by(&enough, planner).expect("a plan")), [("large", 2)], "{planner:?}");
        let short = running(&large_and_small(180.0, 2), &Counts::from([((0, 0), 2)]));
        let plan = plan_by(&short, planner).expect("a plan");
        assert!(assignments(&plan).contains(&("small", 1)), "{planner:?}: {plan:?}");
    }
}

#[test]
fn a_demand_above_the_devices_is_lowered_to_what_they_serve() {
    let settings = RescaleSettings { lambda: LAMBDA };
    let problem = large_and_small(900.0, 2);
    let (outcome, report) = rescale(&problem, &options(Planner::Milp), &settings);
    assert_eq!(outcome, PlanOutcome::Unknown { stopped: StopReason::DemandNotMet });
    let relax = report.explanation.shortfalls.iter().find_map(|s| s.relax.as_ref()).expect("a lower demand");
    assert!(relax.pointer == "/pipelines/0/demand_qps" && (relax.to - 400.0).abs() < 1.0, "{relax:?}");
    let served = servable(&problem, &options(Planner::Milp), &settings);
    assert!((served.pipelines[0].demand_qps - 400.0).abs() < 1.0, "{}", served.pipelines[0].demand_qps);
    let (outcome, _) = rescale(&served, &options(Planner::Milp), &settings);
    assert_eq!(assignments(outcome.plan().expect("a plan")), [("small", 2)]);
}

#[test]
fn a_chain_keeps_its_slo_its_floor_and_its_fanout() {
    let settings = RescaleSettings { lambda: LAMBDA };
    let mut floors = 0;
    for (slo_ms, floor) in [(120.0, None), (120.0, Some(0.9)), (60.0, None), (60.0, Some(0.9))] {
        let mut draft = fixtures::chain(slo_ms);
        draft.min_accuracy = floor;
        let problem = fixtures::problem(draft);
        for planner in [Planner::Milp, Planner::Greedy] {
            let (outcome, report) = rescale(&problem, &options(planner), &settings);
            let plan = outcome.plan().expect("a plan");
            assert_eq!(apportion_checker::check(&problem, plan), [], "{slo_ms} {floor:?} {planner:?}");
            let of_a = |a: &&Assignment| a.group.task == "a";
            let variants = || plan.pipelines[0].assignments.iter().filter(of_a).map(|a| a.group.variant.as_str());
            if floor.is_some() {
                assert!(variants().all(|v| v == "a-l"), "{plan:?}");
                floors += 1;
            }
            assert_eq!(report.explanation.decisions[0].what, "scaling");
            let judged = report.estimate.expect("an estimate").judged_on.expect("fresh samples");
            let says_so = matches!(outcome.stopped(), Some(StopReason::TraceNotMet | StopReason::TraceUndecided));
            let holds = judged.verdict == JudgedVerdict::Holds || judged.pipelines.iter().all(|p| p.attainment >= 1.0);
            assert!(holds || says_so, "{slo_ms} {floor:?} {planner:?}: {judged:?}");
        }
    }
    assert_eq!(floors, 4);
}
