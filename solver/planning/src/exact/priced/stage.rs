//! Which plan do the prices lead to in one stage?
//!
//! Candidates of points are tried in the order of their bounds at the prices. Each is a small programme over replicas and
//! flows, and only plans better than the best one count. The number of programmes is fixed, so no clock decides the
//! result.

use super::points::GroupPoints;
use super::prices::{PartCandidates, PricedBound, PricedGoal, PricedRelaxation, PricedStage, RankedCandidate};
use super::programme::{ActivePart, ActivePlan, BudgetProgramme, ProgrammeResult, TakenResources};
use crate::exact::model::space::PipelineSpace;
use crate::exact::model::tolerances::STAGE_GAP_SHARE;
use crate::exact::solution::choice::GroupChoice;
use apportion_domain::{LatencyRule, Problem, SLACK};
use apportion_mip::RunLimits;
use std::collections::{BTreeSet, BinaryHeap};

/// Most pipelines whose replicas are chosen in one programme.
const JOINT_MAX: usize = 2;
/// Most pipelines of one programme if no plan was found one by one.
const JOINT_LATE_MAX: usize = 4;
/// Most programmes of a stage once a plan is known, and before.
const TRIES_MAX: usize = 30;
const FIRST_TRIES_MAX: usize = 200;
/// Most programmes of one pipeline in a pass over many.
const PASS_TRIES_MAX: usize = 6;
/// Most passes over all pipelines.
const PASSES_MAX: usize = 4;
/// Most pipelines whose pairs are improved together.
const PAIRED_MAX: usize = 6;
/// Rule `path`: most rounds of moved points, programmes of a round, and programmes of all rounds before the last.
const POINT_ROUNDS_MAX: usize = 12;
const POINT_MOVES_MAX: usize = 24;
const POINT_TRIES_MAX: usize = 80;

/// Whether a step improved a plan.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Better,
    None,
}

/// A plan of all pipelines.
#[derive(Clone, Debug)]
pub(super) struct StagePlan {
    /// By pipeline and group.
    pub groups: Vec<Vec<GroupChoice>>,
    /// By the goal, to be minimised.
    pub cost: f64,
    /// Weighted accuracy by pipeline.
    pub accuracy: Vec<f64>,
    /// The points of all groups by pipeline, also of those without replicas.
    pub points: Vec<GroupPoints>,
}

/// Result of a stage.
pub(super) enum StageEnd {
    Found {
        plan: StagePlan,
        bound: f64,
    },
    /// It is proven that there is no plan.
    Infeasible,
    NotFound,
}

/// One stage of the search.
pub(super) struct StageSearch<'a> {
    pub problem: &'a Problem,
    pub stage: PricedStage,
    pub parts: &'a [PartCandidates<'a>],
    pub gap: f64,
    pub limits: &'a RunLimits,
}

/// One candidate for each pipeline, with the bound of their plans.
#[derive(PartialEq)]
struct Combination {
    bound: f64,
    /// Positions in the ranked lists.
    ranks: Vec<usize>,
}

impl Eq for Combination {}

impl Ord for Combination {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // the heap gives the largest first
        other.bound.total_cmp(&self.bound).then_with(|| other.ranks.cmp(&self.ranks))
    }
}

impl PartialOrd for Combination {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl StageSearch<'_> {
    /// Searches. With a known plan, only better ones count.
    pub fn solve(&self, priced: &PricedBound, known: Option<StagePlan>) -> StageEnd {
        let relaxation = self.relaxation();
        if priced.missing > 1e-6 && known.is_none() && relaxation.is_infeasible(self.limits) {
            return StageEnd::Infeasible;
        }
        let found = if self.parts.len() > JOINT_MAX {
            match self.solve_one_by_one(priced, known) {
                Some(plan) => StageEnd::Found { bound: priced.bound.min(plan.cost), plan },
                // the plans of fewest devices do not fit together, but others may
                None if self.parts.len() <= JOINT_LATE_MAX => self.solve_jointly(&relaxation, priced, None),
                None => StageEnd::NotFound,
            }
        } else {
            self.solve_jointly(&relaxation, priced, known)
        };
        match found {
            StageEnd::Found { mut plan, bound } if self.problem.objective.latency_rule == LatencyRule::Path => {
                self.improve_points(&mut plan, &relaxation, priced);
                StageEnd::Found { bound: bound.min(plan.cost), plan }
            }
            other => other,
        }
    }

    pub fn relaxation(&self) -> PricedRelaxation<'_> {
        PricedRelaxation { problem: self.problem, stage: self.stage, parts: self.parts }
    }

    /// The cost below which a bound is worth a search.
    fn worth_searching_below(&self, best: Option<&StagePlan>) -> f64 {
        match best {
            Some(best) if self.stage.goal == PricedGoal::Replicas => best.cost - 1.0 + 1e-6,
            Some(best) => best.cost - (STAGE_GAP_SHARE * self.gap * best.cost.abs()).max(1e-9),
            None => f64::INFINITY,
        }
    }

    /// Tries combinations of candidates in the order of their bounds.
    fn solve_jointly(&self, relaxation: &PricedRelaxation<'_>, priced: &PricedBound, known: Option<StagePlan>) -> StageEnd {
        let worth = relaxation.worth_of_rows(&priced.prices);
        let ranked = &priced.ranked;
        let bound_of = |ranks: &[usize]| {
            ranks.iter().zip(ranked).map(|(&r, list): (&usize, &Vec<RankedCandidate>)| list[r].cost).sum::<f64>() - worth
        };
        let first = vec![0; ranked.len()];
        let mut open = BinaryHeap::from([Combination { bound: bound_of(&first), ranks: first.clone() }]);
        let mut seen = BTreeSet::from([first]);
        let mut best = known;
        let mut proven = f64::INFINITY;
        let mut tries = 0;
        while let Some(Combination { bound, ranks }) = open.pop() {
            let enough = if best.is_some() { TRIES_MAX } else { FIRST_TRIES_MAX };
            if bound >= self.worth_searching_below(best.as_ref()) || tries >= enough || self.limits.exceeded() {
                proven = proven.min(bound);
                break;
            }
            tries += 1;
            let chosen = ranks.iter().zip(ranked).map(|(&r, list)| list[r].candidate).collect::<Vec<_>>();
            let found = self.solve_candidates(&chosen, best.as_ref());
            proven = proven.min(found.bound.max(bound));
            if let Some(ActivePlan { groups, cost, accuracy }) = found.plan {
                let points = self.parts.iter().zip(&chosen).map(|(p, &c)| p.candidates[c].clone()).collect();
                best = Some(StagePlan { groups, cost, accuracy, points });
            }
            for p in 0..ranks.len() {
                let mut next = ranks.clone();
                next[p] += 1;
                if next[p] < ranked[p].len() && seen.insert(next.clone()) {
                    open.push(Combination { bound: bound_of(&next), ranks: next });
                }
            }
        }
        let is_complete = self.parts.iter().all(|p| p.is_complete);
        let bound = if is_complete { proven.max(priced.bound) } else { priced.bound };
        match best {
            Some(plan) => StageEnd::Found { bound: bound.min(plan.cost), plan },
            None if is_complete && proven == f64::INFINITY => StageEnd::Infeasible,
            None => StageEnd::NotFound,
        }
    }

    /// One programme over all pipelines, at one candidate each.
    fn solve_candidates(&self, chosen: &[usize], best: Option<&StagePlan>) -> ProgrammeResult {
        let active: Vec<ActivePart<'_>> = self
            .parts
            .iter()
            .zip(chosen)
            .map(|(p, &candidate)| ActivePart { part: p.part, points: &p.candidates[candidate] })
            .collect();
        let hardware = self.problem.hardware.len();
        let taken = TakenResources { eighths: vec![0; hardware], accuracy: 0.0 };
        let free = vec![0.0; hardware];
        let programme = BudgetProgramme {
            problem: self.problem,
            stage: self.stage,
            device_prices: &free,
            active: &active,
            taken: &taken,
        };
        programme.solve(self.gap, best.map_or(f64::INFINITY, |b| b.cost), self.limits)
    }

    /// Many pipelines: first the plans of fewest devices, then each pipeline at the prices, then one or two at a time on
    /// the devices that the others leave.
    fn solve_one_by_one(&self, priced: &PricedBound, known: Option<StagePlan>) -> Option<StagePlan> {
        let free = vec![0.0; self.problem.hardware.len()];
        let count = self.parts.len();
        let mut plan = match known {
            Some(plan) => plan,
            None => {
                let mut plan = self.fewest_devices()?;
                for p in 0..count {
                    self.improve(&mut plan, &[p], priced, priced.device_prices());
                }
                plan
            }
        };
        let pairs = |a: usize| (a + 1..count).map(move |b| vec![a, b]);
        let mut sets: Vec<Vec<usize>> = (0..count).map(|p| vec![p]).collect();
        if count <= PAIRED_MAX {
            sets.extend((0..count).flat_map(pairs));
        }
        for _ in 0..PASSES_MAX {
            let worth_trying = sets.iter().take_while(|_| !self.limits.exceeded());
            let improved = worth_trying.filter(|set| self.improve(&mut plan, set, priced, &free) == Change::Better).count();
            if improved == 0 || self.limits.exceeded() {
                break;
            }
        }
        plan.cost = self.cost_of(&plan);
        self.fits(&plan).then_some(plan)
    }

    /// Whether a plan keeps to the counts and the budget. The plans of fewest devices need not fit together.
    fn fits(&self, plan: &StagePlan) -> bool {
        let whole: Vec<u64> = self.taken_by_others(plan, &[]).eighths.iter().map(|e| e.div_ceil(8)).collect();
        let devices = || self.problem.hardware.iter().zip(&whole);
        let cost: f64 = devices().map(|(h, &n)| h.price_per_hour * n as f64).sum();
        let budget = self.problem.objective.budget_per_hour;
        devices().all(|(h, &n)| h.count.is_none_or(|count| n <= u64::from(count)))
            && budget.is_none_or(|b| cost <= b + SLACK * b.max(1.0))
    }

    /// A plan of each pipeline that takes few devices; `None` if they do not fit together.
    fn fewest_devices(&self) -> Option<StagePlan> {
        let stage = PricedStage { goal: PricedGoal::Nothing, accuracy_min: None };
        let hardware = &self.problem.hardware;
        let scarce: Vec<f64> =
            hardware.iter().map(|h| h.count.map_or(1e-6, |count| 1.0 / f64::from(count.max(1)))).collect();
        let nothing = TakenResources { eighths: vec![0; hardware.len()], accuracy: 0.0 };
        let few = StageSearch { stage, ..*self };
        let priced = few.relaxation().solve(self.limits)?;
        let mut plan = StagePlan { groups: Vec::new(), cost: 0.0, accuracy: Vec::new(), points: Vec::new() };
        for (p, part) in self.parts.iter().enumerate() {
            let mut best: Option<ActivePlan> = None;
            let mut points = part.candidates[0].clone();
            for ranked in priced.ranked[p].iter().take(PASS_TRIES_MAX) {
                let active = [ActivePart { part: part.part, points: &part.candidates[ranked.candidate] }];
                let programme = BudgetProgramme {
                    problem: self.problem,
                    stage,
                    device_prices: &scarce,
                    active: &active,
                    taken: &nothing,
                };
                let cutoff = best.as_ref().map_or(f64::INFINITY, |b| b.cost);
                if let Some(better) = programme.solve(self.gap, cutoff, self.limits).plan {
                    best = Some(better);
                    points = part.candidates[ranked.candidate].clone();
                }
            }
            let best = best?;
            plan.points.push(points);
            plan.groups.extend(best.groups);
            plan.accuracy.extend(best.accuracy);
        }
        Some(plan)
    }

    /// Gives some pipelines better plans on the devices that the others leave. With prices, any plan is taken.
    fn improve(&self, plan: &mut StagePlan, who: &[usize], priced: &PricedBound, device_prices: &[f64]) -> Change {
        let is_priced = device_prices.iter().any(|&price| price > 0.0);
        let mut cutoff = if is_priced { f64::INFINITY } else { self.cost_of_active(plan, who) };
        let mut change = Change::None;
        let lists: Vec<&[RankedCandidate]> =
            who.iter().map(|&p| &priced.ranked[p][..priced.ranked[p].len().min(PASS_TRIES_MAX)]).collect();
        let mut combinations: Vec<(f64, Vec<usize>)> = vec![(0.0, Vec::new())];
        for list in lists {
            let extended = combinations.iter().flat_map(|(cost, chosen)| {
                list.iter().map(move |r| (cost + r.cost, [chosen.as_slice(), &[r.candidate]].concat()))
            });
            combinations = extended.collect();
        }
        combinations.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, chosen) in combinations.into_iter().take(PASS_TRIES_MAX) {
            let points: Vec<GroupPoints> =
                who.iter().zip(&chosen).map(|(&p, &c)| self.parts[p].candidates[c].clone()).collect();
            if let Some(cost) = self.replace(plan, who, points, device_prices, cutoff) {
                cutoff = cost;
                change = Change::Better;
            }
        }
        change
    }

    /// Replaces the plans of some pipelines by their best ones at these points, if they cost less than `cutoff`. Returns
    /// their cost.
    fn replace(
        &self,
        plan: &mut StagePlan,
        who: &[usize],
        points: Vec<GroupPoints>,
        device_prices: &[f64],
        cutoff: f64,
    ) -> Option<f64> {
        let taken = self.taken_by_others(plan, who);
        let active: Vec<ActivePart<'_>> =
            who.iter().zip(&points).map(|(&p, points)| ActivePart { part: self.parts[p].part, points }).collect();
        let programme =
            BudgetProgramme { problem: self.problem, stage: self.stage, device_prices, active: &active, taken: &taken };
        let found = programme.solve(self.gap, cutoff, self.limits).plan?;
        for (i, (&p, points)) in who.iter().zip(points).enumerate() {
            plan.groups[p].clone_from(&found.groups[i]);
            plan.accuracy[p] = found.accuracy[i];
            plan.points[p] = points;
        }
        Some(found.cost)
    }

    /// Rule `path`: the points of a group need no budget that all groups of its task share. So single groups, and pairs of
    /// groups in opposite directions, move to other points while that improves the plan.
    fn improve_points(&self, plan: &mut StagePlan, relaxation: &PricedRelaxation<'_>, priced: &PricedBound) {
        let free = vec![0.0; self.problem.hardware.len()];
        let worth = relaxation.worth_of_rows(&priced.prices);
        let mut scratch = Vec::new();
        let mut tries = 0;
        for _ in 0..POINT_ROUNDS_MAX {
            let cutoff = self.worth_searching_below(Some(plan));
            let costs: Vec<f64> = (0..self.parts.len())
                .map(|p| relaxation.cost_of(p, &plan.points[p], &priced.prices, &mut scratch))
                .collect();
            let total: f64 = costs.iter().sum::<f64>() - worth;
            let mut moves: Vec<(f64, usize, GroupPoints)> = Vec::new();
            for (p, cost) in costs.iter().enumerate() {
                let pipeline = self.problem.pipeline(self.parts[p].part.index);
                for points in neighbours(self.parts[p].part, &plan.points[p].points) {
                    let points = GroupPoints::new(pipeline, self.parts[p].part, points);
                    let bound = total - cost + relaxation.cost_of(p, &points, &priced.prices, &mut scratch);
                    if bound < cutoff {
                        moves.push((bound, p, points));
                    }
                }
            }
            moves.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut change = Change::None;
            for (_, p, points) in moves.into_iter().take(POINT_MOVES_MAX) {
                tries += 1;
                let before = self.cost_of_active(plan, &[p]);
                if self.replace(plan, &[p], vec![points], &free, before).is_some() {
                    change = Change::Better;
                    break;
                }
            }
            plan.cost = self.cost_of(plan);
            if change == Change::None || tries > POINT_TRIES_MAX || self.limits.exceeded() {
                break;
            }
        }
    }

    /// The cost of some pipelines in a plan, as their programme counts it.
    fn cost_of_active(&self, plan: &StagePlan, who: &[usize]) -> f64 {
        let replicas = |p: usize| plan.groups[p].iter().map(|c| f64::from(c.replicas)).sum::<f64>();
        match self.stage.goal {
            PricedGoal::Replicas => who.iter().map(|&p| replicas(p)).sum(),
            PricedGoal::Accuracy => -who.iter().map(|&p| plan.accuracy[p]).sum::<f64>(),
            PricedGoal::Nothing => f64::INFINITY,
            PricedGoal::Cost => {
                let others = (0..self.parts.len()).filter(|p| !who.contains(p));
                self.cost_of(plan) - others.map(|p| self.switching(plan, p)).sum::<f64>()
            }
        }
    }

    /// Cost of loading the replicas of one pipeline, where the stage counts it.
    fn switching(&self, plan: &StagePlan, p: usize) -> f64 {
        if self.stage.accuracy_min.is_some() {
            return 0.0;
        }
        let groups = self.parts[p].part.groups.iter().zip(&plan.groups[p]);
        groups.map(|(g, c)| g.switch_cost * f64::from(c.replicas.saturating_sub(g.deployed))).sum()
    }

    /// What all pipelines but some take up.
    fn taken_by_others(&self, plan: &StagePlan, who: &[usize]) -> TakenResources {
        let mut taken = TakenResources { eighths: vec![0; self.problem.hardware.len()], accuracy: 0.0 };
        for other in (0..self.parts.len()).filter(|other| !who.contains(other)) {
            taken.accuracy += plan.accuracy[other];
            for (group, choice) in self.parts[other].part.groups.iter().zip(&plan.groups[other]) {
                taken.eighths[group.hardware.get()] += u64::from(choice.replicas) * u64::from(group.share.eighths());
            }
        }
        taken
    }

    /// A plan with its cost by this stage's goal.
    pub fn revalued(&self, plan: StagePlan) -> StagePlan {
        StagePlan { cost: self.cost_of(&plan), ..plan }
    }

    /// The goal's value of a plan.
    fn cost_of(&self, plan: &StagePlan) -> f64 {
        match self.stage.goal {
            PricedGoal::Replicas => plan.groups.iter().flatten().map(|c| f64::from(c.replicas)).sum(),
            PricedGoal::Accuracy => -plan.accuracy.iter().sum::<f64>(),
            PricedGoal::Nothing => 0.0,
            PricedGoal::Cost => {
                let taken = self.taken_by_others(plan, &[]);
                let devices = self.problem.hardware.iter().zip(&taken.eighths);
                let cost: f64 = devices.map(|(h, e)| h.price_per_hour * e.div_ceil(8) as f64).sum();
                cost + (0..self.parts.len()).map(|p| self.switching(plan, p)).sum::<f64>()
            }
        }
    }
}

/// The points of one group moved by a step, alone or with a step of another group in the other direction.
fn neighbours(part: &PipelineSpace, points: &[Option<usize>]) -> Vec<Vec<Option<usize>>> {
    let mut found = Vec::new();
    let step = |points: &[Option<usize>], g: usize, up: isize| {
        let at = points[g].map_or(-1, |b| b as isize) + up;
        ((0..part.groups[g].points.len() as isize).contains(&at)).then(|| {
            let mut moved = points.to_vec();
            moved[g] = Some(at as usize);
            moved
        })
    };
    for g in 0..points.len() {
        found.extend(step(points, g, -1));
        let Some(raised) = step(points, g, 1) else { continue };
        let others = (0..points.len()).filter(|&o| part.groups[o].task != part.groups[g].task);
        found.extend(others.filter_map(|o| step(&raised, o, -1)));
        found.push(raised);
    }
    found
}
