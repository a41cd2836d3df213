//! Which plan do many pipelines get, one or two of them at a time?

use super::context::{ENTRIES_MAX, Improvement, StagePlan, StageSearch};
use super::points::GroupPoints;
use super::prices::{PricedBound, PricedGoal, PricedStage, RankedCandidate};
use super::programme::{ActivePart, ActivePlan, BudgetProgramme, TakenResources};

/// Most programmes of one pipeline in a pass over many.
const PASS_TRIES_MAX: usize = 6;
/// Most passes over all pipelines.
const PASSES_MAX: usize = 4;
/// Most pipelines whose pairs are improved together.
const PAIRED_MAX: usize = 6;

impl StageSearch<'_> {
    /// Many pipelines: first the plans of fewest devices, then each pipeline at the prices, then one or two at a time on
    /// the devices that the others leave.
    pub fn solve_one_by_one(&self, priced: &PricedBound, known: Option<StagePlan>) -> Option<StagePlan> {
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
            let improved =
                worth_trying.filter(|set| self.improve(&mut plan, set, priced, &free) == Improvement::Found).count();
            if improved == 0 || self.limits.exceeded() {
                break;
            }
        }
        plan.cost = self.cost_of(&plan);
        self.fits(&plan).then_some(plan)
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
                    entries_max: ENTRIES_MAX,
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
    fn improve(&self, plan: &mut StagePlan, who: &[usize], priced: &PricedBound, device_prices: &[f64]) -> Improvement {
        let is_priced = device_prices.iter().any(|&price| price > 0.0);
        let mut cutoff = if is_priced { f64::INFINITY } else { self.cost_of_active(plan, who) };
        let mut improvement = Improvement::None;
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
                improvement = Improvement::Found;
            }
        }
        improvement
    }
}
