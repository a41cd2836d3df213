//! The search over whole replicas of single pipelines, against the exact search and against every choice of replicas.

use super::*;
use crate::bench::drawn::Draw;
use crate::exact::model::budgets;
use crate::exact::solution::choice::GroupChoice;
use crate::exact::solution::flows::{accuracy, flows};
use apportion_domain::{Deployed, HardwareIndex, LatencyRule, PipelineDraft, ProblemDraft, SLACK, TaskIndex, VariantIndex};

/// More boxes than any drawn pipeline needs, or few of them.
const BOXES: [usize; 2] = [6_000, 12];

/// How many searches had a bound near the best plan, and above that of parts of replicas.
#[derive(Debug, Default)]
struct SearchTally {
    searched: usize,
    closed: usize,
    raised: usize,
    improved: usize,
    /// Lanes that were split before the budgets were decided.
    early_splits: usize,
}

/// The goals of a stage with a question for one pipeline.
pub(super) fn joint_of<'a>(problem: &'a Problem, space: &'a Space, goal: Goal, limits: &'a RunLimits) -> JointProblem<'a> {
    JointProblem::new(problem, space, goal, None, GAP, limits).expect("a goal of stages")
}

/// Prices of devices, drawn.
pub(super) fn drawn_prices(joint: &JointProblem<'_>, seed: u64) -> Vec<f64> {
    let mut draw = Draw::new(seed);
    let scale = if joint.goal == Goal::Accuracy { 0.02 } else { 1.0 };
    joint.problem.hardware.iter().map(|_| scale * draw.between(0.5, 2.0)).collect()
}

/// The best plan of a pipeline at these prices, by the exact search; `None` if there is none.
pub(super) fn exact_plan(joint: &JointProblem<'_>, sub: &Subproblem, prices: &[f64]) -> Option<Column> {
    let room = sub.with_room(&vec![None; joint.problem.hardware.len()], None);
    let question = PricedQuestion {
        goal: joint.goal,
        worth: joint.goal,
        prices,
        accuracy_min: None,
        room: Some(&room),
        free: None,
        gap: 1e-6,
    };
    let PricedColumn { column, bound } = sub.solve(question, joint.limits);
    if let Some(column) = &column {
        let cost = column.cost_at(prices);
        assert!(cost - bound <= 1e-5 * cost.abs().max(0.1), "the exact search ends at {bound} for {cost}");
    }
    column
}

/// Compares the searches of every pipeline of a problem with the exact search.
fn compare_searches(problem: &Problem, goal: Goal, seed: u64, tally: &mut SearchTally) {
    let limits = unlimited();
    let Ok(space) = space_of(problem, &Tightening::none(problem), goal) else { return };
    let joint = joint_of(problem, &space, goal, &limits);
    let prices = drawn_prices(&joint, seed);
    for sub in joint.subs.iter().filter(|sub| sub.can_price_fast()) {
        let Some(exact) = exact_plan(&joint, sub, &prices) else { continue };
        let best = exact.cost_at(&prices);
        let slack = 1e-5 * best.abs().max(0.1);
        let PricedColumn { column, bound } = sub.price_fast(joint.goal, joint.goal, &prices, &limits);
        let known = column.map_or(f64::INFINITY, |c| c.cost_at(&prices));
        for boxes in BOXES {
            let mut search = sub.search_loads(joint.goal, &prices, known, 1e-6).expect("a pipeline with a plan");
            search.run(boxes, &limits);
            let found = search.take_column(&limits).map_or(known, |c| c.cost_at(&prices));
            assert!(search.bound() <= best + slack, "seed {seed}: bound {} above {best}", search.bound());
            assert!(search.bound() >= bound - slack, "seed {seed}: {} after {bound}", search.bound());
            assert!(found >= best - slack && found <= known + slack, "seed {seed}: {found}, {known}, {best}");
            tally.early_splits += search.early_splits();
            if boxes == BOXES[0] {
                tally.searched += 1;
                tally.closed += usize::from(search.bound() >= best - 1e-3 * best.abs());
                tally.raised += usize::from(search.bound() > bound + slack);
                tally.improved += usize::from(found < known - slack);
            }
        }
    }
}

/// Compares the searches over drawn problems, which are changed by a function.
fn compare_drawn(
    shape: &ProblemShape,
    goal: Goal,
    seeds: std::ops::Range<u64>,
    change: impl Fn(u64, &mut ProblemDraft),
) -> SearchTally {
    let mut tally = SearchTally::default();
    for seed in seeds {
        let problem = drawn::problem(seed, shape).changed(|draft| change(seed, draft)).expect("a valid problem");
        compare_searches(&problem, goal, seed, &mut tally);
    }
    tally
}

/// Changes every pipeline of a draft.
pub(super) fn change_pipelines(draft: &mut ProblemDraft, mut change: impl FnMut(&mut PipelineDraft)) {
    let hardware = draft.hardware.clone();
    for pipeline in &mut draft.pipelines {
        *pipeline = pipeline.changed(&hardware, &mut change).expect("a valid pipeline");
    }
}

/// The same problem, in which any accuracy is enough.
fn without_floors(problem: &Problem) -> Problem {
    let changed = problem.changed(|draft| change_pipelines(draft, |pipeline| pipeline.min_accuracy = None));
    changed.expect("a floor changes no validity")
}

/// Two types of devices.
pub(super) fn hardware() -> Vec<ShapeHardware> {
    vec![kind(1.0, Some(60), 1.0), kind(2.2, Some(50), 2.5)]
}

/// Most searches end at the best plan, and many bounds are above those of parts of replicas.
fn assert_closed(tally: &SearchTally) {
    let &SearchTally { searched, closed, raised, improved, .. } = tally;
    assert!(searched > 60 && 10 * closed > 8 * searched && 3 * raised > searched && improved > 0, "{tally:?}");
}

#[test]
fn searched_bounds_meet_the_best_plans_with_floors() {
    for (floor, halves) in [(0.9, false), (0.6, true), (0.97, true)] {
        let cost = ProblemShape { hardware: hardware(), min_accuracy: Some(floor), halves, ..shape(Mode::MinCost) };
        let tally = compare_drawn(&cost, Goal::CostAndSwitching, 50_000..50_030, |_, _| {});
        assert_closed(&tally);
    }
}

#[test]
fn searched_bounds_meet_the_most_accurate_plans() {
    let accuracy = ProblemShape { hardware: hardware(), halves: true, ..shape(Mode::MaxAccuracy) };
    let tally = compare_drawn(&accuracy, Goal::Accuracy, 50_100..50_130, |seed, draft| {
        // every second problem has a floor
        let floor = seed.is_multiple_of(2).then_some(0.93);
        change_pipelines(draft, |pipeline| pipeline.min_accuracy = floor);
    });
    assert_closed(&tally);
    // with a reward of accuracy the budgets are decided first
    assert_eq!(tally.early_splits, 0, "{tally:?}");
}

#[test]
fn searched_bounds_hold_with_switching_and_reserves() {
    let cost = ProblemShape { hardware: hardware(), min_accuracy: Some(0.9), ..shape(Mode::MinCost) };
    let deployed = |p: usize, replicas: u32| Deployed {
        pipeline: PipelineIndex(p),
        task: TaskIndex(0),
        variant: VariantIndex(1),
        hardware: HardwareIndex(0),
        share: Share::WHOLE,
        batch: 1,
        replicas,
    };
    let tally = compare_drawn(&cost, Goal::CostAndSwitching, 50_200..50_230, |seed, draft| {
        draft.deployed = (0..3).map(|p| deployed(p, 1 + (seed % 3) as u32)).collect();
        draft.switching_weight = 400.0;
        if seed.is_multiple_of(3) {
            change_pipelines(draft, |pipeline| pipeline.survive = 1);
        }
    });
    assert!(tally.searched > 60 && 3 * tally.raised > tally.searched, "{tally:?}");
}

#[test]
fn a_search_needs_budgets_of_tasks() {
    let objective = Objective { mode: Mode::MinCost, latency_rule: LatencyRule::Path, ..Objective::default() };
    let shape = ProblemShape { hardware: hardware(), objective, min_accuracy: Some(0.9), ..shape(Mode::MinCost) };
    let (limits, problem) = (unlimited(), drawn::problem(50_300, &shape));
    let space = Space::new(&problem, &Tightening::none(&problem), &limits).expect("a space");
    let joint = joint_of(&problem, &space, Goal::CostAndSwitching, &limits);
    assert!(joint.subs.iter().all(|sub| sub.search_loads(joint.goal, &[1.0, 1.0], f64::INFINITY, GAP).is_none()));
}

/// Whether some replicas that cost less than `price_max` carry a pipeline with its floor. All choices are tried.
fn is_carried_for(sub: &Subproblem, prices: &[f64], price_max: f64) -> bool {
    let (limits, part) = (unlimited(), sub.part());
    let pipeline = sub.problem.pipeline(PipelineIndex(0));
    let floor = pipeline.min_accuracy.unwrap_or(0.0);
    let price = |g: usize| part.groups[g].share.value() * prices[part.groups[g].hardware.get()];
    let vectors = budgets::list_at_most(4_000, pipeline, part, &limits).expect("few vectors");
    vectors.iter().any(|vector| {
        let point = |g: usize| part.groups[g].best_within(vector[part.groups[g].task.get()]);
        let usable: Vec<usize> = (0..part.groups.len()).filter(|&g| point(g).is_some()).collect();
        let mut counts = vec![0_u32; usable.len()];
        loop {
            let mut choice = vec![GroupChoice::default(); part.groups.len()];
            for (&g, &replicas) in usable.iter().zip(&counts) {
                choice[g] = GroupChoice { replicas, point: point(g).expect("usable") };
            }
            let choice = PlanIntegers { groups: vec![choice] };
            let carried = flows(&sub.problem, &sub.space, &choice, &limits).expect("unlimited");
            if carried.is_some_and(|flows| accuracy(part, &flows[0]) >= floor - SLACK) {
                return true;
            }
            // the next counts that cost less, the first group fastest
            let spent = |counts: &[u32]| counts.iter().zip(&usable).map(|(n, &g)| f64::from(*n) * price(g)).sum::<f64>();
            let mut at = 0;
            while let Some(count) = counts.get_mut(at) {
                *count += 1;
                if spent(&counts) < price_max {
                    break;
                }
                counts[at] = 0;
                at += 1;
            }
            if at == counts.len() {
                return false;
            }
        }
    })
}

#[test]
fn no_replicas_are_cheaper_than_a_searched_bound() {
    let cost = ProblemShape {
        hardware: vec![kind(1.0, Some(60), 1.0)],
        min_accuracy: Some(0.93),
        demand_qps: 45.0,
        batches: 2,
        ..shape(Mode::MinCost)
    };
    let (limits, mut tried) = (unlimited(), 0);
    for seed in 50_400..50_440 {
        let problem = drawn::problem(seed, &cost);
        let Ok(space) = space_of(&problem, &Tightening::none(&problem), Goal::CostAndSwitching) else { continue };
        let joint = joint_of(&problem, &space, Goal::CostAndSwitching, &limits);
        for sub in &joint.subs {
            let Some(mut search) = sub.search_loads(joint.goal, &[1.0], f64::INFINITY, 1e-9) else { continue };
            search.run(3_000, &limits);
            let Some(column) = search.take_column(&limits) else { continue };
            let (value, bound) = (column.cost_at(&[1.0]), search.bound());
            assert!(bound <= value + 1e-9, "seed {seed}: {bound} for {value}");
            if value <= 5.0 {
                assert!(!is_carried_for(sub, &[1.0], bound - 1e-6), "seed {seed}: replicas for less than {bound}");
                assert!(is_carried_for(sub, &[1.0], value + 1e-6), "seed {seed}: no replicas for {value}");
                tried += 1;
            }
        }
    }
    assert!(tried > 30, "{tried} pipelines");
}

#[test]
fn lanes_are_split_before_budgets_are_decided() {
    let cost = ProblemShape {
        hardware: hardware(),
        tasks_max: 3,
        batches: 4,
        min_accuracy: Some(0.93),
        demand_qps: 60.0,
        ..shape(Mode::MinCost)
    };
    let tally = compare_drawn(&cost, Goal::CostAndSwitching, 50_500..50_512, |_, _| {});
    assert!(tally.searched > 24 && tally.early_splits > 20 && 3 * tally.raised > tally.searched, "{tally:?}");
}

/// A search of a price ends where a step by a factor of 1.25 gains at most 1 %. Its bound is concave in the price, so the
/// price 0 gains at most four times as much. The other search is exact to 1 %.
const LOST_MAX: f64 = 0.05;

#[test]
fn a_known_price_of_accuracy_loses_little_of_the_bound() {
    let cost = ProblemShape { hardware: hardware(), min_accuracy: Some(0.93), halves: true, ..shape(Mode::MinCost) };
    let limits = unlimited();
    let (mut compared, mut binding) = (0, 0);
    for seed in 50_600..50_630 {
        let problem = drawn::problem(seed, &cost);
        let Ok(space) = space_of(&problem, &Tightening::none(&problem), Goal::CostAndSwitching) else { continue };
        // one knows nothing, the other one knows the price of accuracy at other prices of devices
        let [fresh, used] = [0, 1].map(|_| joint_of(&problem, &space, Goal::CostAndSwitching, &limits));
        let (prices, others) = (drawn_prices(&fresh, seed), drawn_prices(&fresh, seed + 1_000));
        let free = without_floors(&problem);
        let free = joint_of(&free, &space, Goal::CostAndSwitching, &limits);
        for (p, (fresh, used)) in fresh.subs.iter().zip(&used.subs).enumerate() {
            let bound =
                |sub: &Subproblem, prices: &[f64]| sub.price_fast(Goal::Switching, Goal::Switching, prices, &limits).bound;
            bound(used, &others);
            let (cold, warm) = (bound(fresh, &prices), bound(used, &prices));
            assert!((cold - warm).abs() <= LOST_MAX * cold.abs(), "seed {seed}: {warm} after {cold}");
            compared += 1;
            binding += usize::from(cold > 1.01 * bound(&free.subs[p], &prices));
        }
    }
    assert!(compared > 60 && 5 * binding > compared, "{binding} floors of {compared}");
}
