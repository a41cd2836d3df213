//! Which plan is there when the time is up, or the formulation is too large? One variant for each task, by local search.
//!
//! A state is a variant and a time budget for each task. Everything else follows by arithmetic: the load of each task, its
//! replicas on the cheapest hardware within the counts, and the unserved load. Budgets start at the fastest point and grow
//! where a millisecond saves most. The search starts from the most accurate variants, and again from the cheapest ones. It
//! takes the best change of one task until none helps or the time is up. Checker and estimator see its plan as any other.

use crate::exact::model::bounds;
use crate::exact::model::groups::{FeasibleGroup, OperatingPoint, usable_groups};
use crate::exact::model::latency::{finish_times, optional_tasks};
use crate::exact::model::quotas::QuotaRow;
use crate::exact::model::space::Space;
use crate::exact::model::tightening::Tightening;
use crate::exact::solution::choice::{GroupChoice, PlanIntegers};
use crate::exact::solution::flows::flows;
use crate::exact::solution::found::BestFound;
use crate::exact::solution::trim::{replicas_for, trim};
use crate::exact::solution::worth::{devices_of_part, quota_excess, worth};
use apportion_domain::{
    LatencyRule, Mode, ObjectiveStep, Pipeline, PipelineIndex, Problem, SLACK, StopReason, TaskIndex, VariantIndex,
};
use apportion_mip::RunLimits;

/// Share of the demand that may stay unserved because of rounding.
const UNSERVED_MAX: f64 = 1e-9;

/// The variant of every task of every pipeline.
type Variants = Vec<Vec<VariantIndex>>;

/// Score of a state; less is better, in the order of the fields.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
struct Score {
    /// How far counts, floors, the budget and quotas are missed, relative.
    missed: f64,
    /// The objective, to be minimised.
    objective: f64,
    /// Breaks ties of the objective.
    second: f64,
}

/// Variants with their score.
struct ScoredVariants {
    variants: Variants,
    score: Score,
}

/// Another variant for one task.
#[derive(PartialEq, Eq)]
struct VariantMove {
    pipeline: usize,
    task: usize,
    variant: VariantIndex,
}

/// The replicas of all groups in one state.
struct PlacedReplicas {
    /// By pipeline and group.
    groups: Vec<Vec<GroupChoice>>,
    /// The unserved share of the demand, summed over the tasks.
    unserved: f64,
}

/// A group with one of its operating points, by position.
struct GroupPoint {
    group: usize,
    point: usize,
}

/// One possible time budget of a task.
#[derive(Clone, Copy)]
struct BudgetStep {
    charge_ms: f64,
    /// Price of the task's load within this budget.
    price: f64,
}

/// The needs of one task in one state of the search.
struct TaskNeeds {
    task: TaskIndex,
    variant: VariantIndex,
    load_qps: f64,
    min_replicas: u32,
    budget_ms: f64,
}

/// The local search over the variants of one problem.
struct LocalSearch<'a> {
    problem: &'a Problem,
    headroom: Vec<&'a [f64]>,
    groups: Vec<Vec<FeasibleGroup>>,
    quotas: Vec<QuotaRow>,
    limits: &'a RunLimits,
    finishing: RunLimits,
}

/// A valid plan without a proof, and a valid bound; `None` if the local search finds no plan.
pub(crate) fn plan_by_local_search(
    problem: &Problem,
    tightening: &Tightening,
    limits: &RunLimits,
    stopped: StopReason,
) -> Option<BestFound> {
    let indices = (0..problem.pipelines.len()).map(PipelineIndex);
    let groups: Vec<Vec<FeasibleGroup>> = indices.map(|p| usable_groups(problem, p, tightening, |_, _| true)).collect();
    let headroom = tightening.parts.iter().map(|p| p.headroom.as_slice()).collect();
    let (quotas, finishing) = (QuotaRow::all(problem), limits.for_finishing());
    let search = LocalSearch { problem, headroom, groups, quotas, limits, finishing };
    let rates = search.queries_per_price();
    let accuracy = |p: usize, t: TaskIndex, v: VariantIndex| problem.pipelines[p].variant(t, v).accuracy;
    let starts = [search.highest_ranked(accuracy), search.highest_ranked(|p, t, v| rates[p][t.get()][v.get()])];
    let mut best: Option<ScoredVariants> = None;
    for start in starts.into_iter().flatten() {
        if best.as_ref().is_some_and(|b| b.score.missed <= UNSERVED_MAX) && limits.exceeded() {
            break;
        }
        let found = search.improve_variants(start);
        if best.as_ref().is_none_or(|b| found.score < b.score) {
            best = Some(found);
        }
    }
    let best = best?;
    if best.score.missed > UNSERVED_MAX {
        return None;
    }
    search.to_solution(tightening, &best.variants, stopped)
}

impl LocalSearch<'_> {
    /// For each task, the variant that `worth` ranks highest. Only variants that can run are ranked.
    fn highest_ranked(&self, worth: impl Fn(usize, TaskIndex, VariantIndex) -> f64) -> Option<Variants> {
        let of_task = |p: usize, t: TaskIndex| {
            let pipeline = &self.problem.pipelines[p];
            let usable = self.groups[p].iter().filter(|g| g.task == t).map(|g| g.variant);
            let best = usable.max_by(|&a, &b| worth(p, t, a).total_cmp(&worth(p, t, b)));
            best.or_else(|| optional_tasks(pipeline)[t.get()].then_some(VariantIndex(0)))
        };
        let of_pipeline = |p: usize| (0..self.problem.pipelines[p].tasks.len()).map(|t| of_task(p, TaskIndex(t))).collect();
        (0..self.problem.pipelines.len()).map(of_pipeline).collect()
    }

    /// By pipeline, task and variant: queries per second that its best replica serves for each unit of price.
    fn queries_per_price(&self) -> Vec<Vec<Vec<f64>>> {
        let of_pipeline = |(p, groups): (&Pipeline, &Vec<FeasibleGroup>)| {
            let mut rates: Vec<Vec<f64>> = p.tasks.iter().map(|t| vec![0.0; t.variants.len()]).collect();
            for g in groups {
                let best = &mut rates[g.task.get()][g.variant.get()];
                *best = g.points.iter().map(|point| point.qps / self.replica_price(g)).fold(*best, f64::max);
            }
            rates
        };
        self.problem.pipelines.iter().zip(&self.groups).map(of_pipeline).collect()
    }

    /// Price of one replica of a group where cost matters, else the devices that it takes.
    fn replica_price(&self, group: &FeasibleGroup) -> f64 {
        let price = self.problem.hardware_at(group.hardware).price_per_hour;
        let by_price = self.problem.objective.mode == Mode::MinCost || self.problem.objective.budget_per_hour.is_some();
        group.share.value() * if by_price { price.max(1e-9) } else { 1.0 }
    }

    /// Takes the best change of one task's variant until none helps. When the time is up, it takes the first change that
    /// helps, until the plan is valid or the time for finishing is up.
    fn improve_variants(&self, mut variants: Variants) -> ScoredVariants {
        let mut score = self.score(&variants);
        loop {
            let mut best: Option<ScoredVariants> = None;
            for VariantMove { pipeline: p, task: t, variant: v } in self.variant_moves() {
                if v == variants[p][t] {
                    continue;
                }
                let is_late = self.limits.exceeded();
                let is_over = is_late && self.finishing.exceeded();
                if is_over || is_late && (score.missed <= UNSERVED_MAX || best.is_some()) {
                    break;
                }
                let mut changed = variants.clone();
                changed[p][t] = v;
                let new = self.score(&changed);
                if new < score && best.as_ref().is_none_or(|b| new < b.score) {
                    best = Some(ScoredVariants { variants: changed, score: new });
                }
            }
            match best {
                Some(better) => ScoredVariants { variants, score } = better,
                None => return ScoredVariants { variants, score },
            }
        }
    }

    /// Every variant that any task could run.
    fn variant_moves(&self) -> Vec<VariantMove> {
        let mut moves: Vec<VariantMove> = Vec::new();
        for (pipeline, groups) in self.groups.iter().enumerate() {
            moves.extend(groups.iter().map(|g| VariantMove { pipeline, task: g.task.get(), variant: g.variant }));
        }
        moves.dedup();
        moves
    }

    /// The score of a state.
    fn score(&self, variants: &Variants) -> Score {
        let placed = self.place_all(variants);
        let mut accuracy = 0.0;
        let mut missed = placed.unserved;
        let total: f64 = self.problem.pipelines.iter().map(|p| p.weight).sum();
        for (pipeline, variants) in self.problem.pipelines.iter().zip(variants) {
            let own = pipeline.accuracy_of(variants);
            missed += (pipeline.min_accuracy.unwrap_or(0.0) - own - SLACK).max(0.0);
            accuracy += own * if total > 0.0 { pipeline.weight / total } else { 1.0 };
        }
        let mut eighths = vec![0_u64; self.problem.hardware.len()];
        let (mut switching, mut replicas) = (0.0, 0.0);
        for (groups, chosen) in self.groups.iter().zip(&placed.groups) {
            for (group, c) in groups.iter().zip(chosen) {
                eighths[group.hardware.get()] += u64::from(c.replicas) * u64::from(group.share.eighths());
                switching += group.switch_cost * f64::from(c.replicas.saturating_sub(group.deployed));
                replicas += f64::from(c.replicas);
            }
        }
        let devices = self.problem.hardware.iter().zip(eighths);
        let cost: f64 = devices.map(|(h, e)| h.price_per_hour * e.div_ceil(8) as f64).sum();
        if let Some(budget) = self.problem.objective.budget_per_hour {
            missed += (cost / budget.max(SLACK) - 1.0 - SLACK).max(0.0);
        }
        if !self.quotas.is_empty() {
            let each = self.groups.iter().zip(&placed.groups).map(|(of, own)| devices_of_part(self.problem, of, own));
            missed += quota_excess(&self.quotas, &each.collect::<Vec<_>>());
        }
        let (objective, second) = match self.problem.objective.mode {
            Mode::MinCost => (cost + switching, -accuracy),
            Mode::MaxAccuracy => (-accuracy, cost),
            Mode::HardwareThenAccuracy => (-accuracy, replicas),
        };
        Score { missed, objective, second }
    }

    /// Places the replicas of all tasks on the devices, one task after the other.
    fn place_all(&self, variants: &Variants) -> PlacedReplicas {
        // devices that are left
        let mut left: Vec<f64> = self.problem.hardware.iter().map(|h| h.count.map_or(f64::INFINITY, f64::from)).collect();
        let mut unserved = 0.0;
        let mut all = Vec::with_capacity(variants.len());
        for (p, variants) in variants.iter().enumerate() {
            let pipeline = &self.problem.pipelines[p];
            let mut chosen = vec![GroupChoice::default(); self.groups[p].len()];
            let loads = task_loads(pipeline, variants, self.headroom[p]);
            match self.budgets(p, variants, &loads) {
                Some(budgets) => {
                    for t in (0..pipeline.tasks.len()).map(TaskIndex) {
                        let needs = TaskNeeds {
                            task: t,
                            variant: variants[t.get()],
                            load_qps: loads[t.get()],
                            min_replicas: pipeline.task(t).min_replicas,
                            budget_ms: budgets[t.get()],
                        };
                        unserved += self.place_replicas(p, needs, &mut left, &mut chosen);
                    }
                }
                None => unserved += 1.0,
            }
            all.push(chosen);
        }
        PlacedReplicas { groups: all, unserved }
    }

    /// Places one task's replicas on the devices that are left. Returns the share of its load that found no device, plus
    /// the replicas that it lacks.
    fn place_replicas(&self, p: usize, needs: TaskNeeds, left: &mut [f64], chosen: &mut [GroupChoice]) -> f64 {
        let TaskNeeds { task, variant, load_qps: load, min_replicas, budget_ms } = needs;
        let groups = &self.groups[p];
        let here = groups.iter().enumerate().filter(|(_, g)| g.task == task && g.variant == variant);
        let point = |(group, g): (usize, &FeasibleGroup)| Some(GroupPoint { group, point: g.best_within(budget_ms)? });
        let mut here: Vec<GroupPoint> = here.filter_map(point).collect();
        let price = |p: &GroupPoint| {
            let group = &groups[p.group];
            self.replica_price(group) * f64::from(replicas_for(load, group.points[p.point].qps))
        };
        here.sort_by(|a, b| price(a).total_cmp(&price(b)));
        let survive = self.problem.pipelines[p].survive;
        let (mut rest, mut missing) = (load, min_replicas);
        for &GroupPoint { group: i, point } in &here {
            if (load > 0.0 && rest <= load * UNSERVED_MAX || load <= 0.0) && missing == 0 {
                break;
            }
            let group = &groups[i];
            let qps = group.points[point].qps;
            let spare = left[group.hardware.get()] / group.share.value();
            let room = if spare.is_finite() { (spare + SLACK).floor().min(f64::from(u32::MAX)) as u32 } else { u32::MAX };
            let for_load = if rest > 0.0 { replicas_for(rest, qps).saturating_add(survive) } else { 0 };
            let replicas = for_load.max(missing).min(room);
            if replicas == 0 || (rest > 0.0 && replicas <= survive) {
                continue;
            }
            left[group.hardware.get()] -= f64::from(replicas) * group.share.value();
            chosen[i] = GroupChoice { replicas, point };
            rest = (rest - f64::from(replicas - survive.min(replicas)) * qps).max(0.0);
            missing = missing.saturating_sub(replicas);
        }
        let load_missed = if load > 0.0 { rest / load } else { 0.0 };
        load_missed + f64::from(missing)
    }

    /// The budgets of a task that runs one variant, from fast to slow and from expensive to cheap. Idle groups have none.
    fn budget_steps(&self, p: usize, t: usize, variant: VariantIndex, load_qps: f64) -> Vec<BudgetStep> {
        let groups = self.groups[p].iter().filter(|g| g.task.get() == t && g.variant == variant && !g.is_idle);
        let step = |g: &FeasibleGroup, b: &OperatingPoint| BudgetStep {
            charge_ms: b.charge_ms,
            price: self.replica_price(g) / b.qps,
        };
        let mut points: Vec<BudgetStep> = groups.flat_map(|g| g.points.iter().map(move |b| step(g, b))).collect();
        points.sort_by(|a, b| a.charge_ms.total_cmp(&b.charge_ms).then(a.price.total_cmp(&b.price)));
        let mut steps: Vec<BudgetStep> = Vec::new();
        for point in points {
            if steps.last().is_none_or(|last| point.price < last.price) {
                steps.push(point);
            }
        }
        steps.into_iter().map(|s| BudgetStep { price: s.price * load_qps, ..s }).collect()
    }

    /// A budget for each task: the fastest, then longer ones where a millisecond saves most; `None` if even the fastest are
    /// too slow.
    fn budgets(&self, p: usize, variants: &[VariantIndex], loads: &[f64]) -> Option<Vec<f64>> {
        let pipeline = &self.problem.pipelines[p];
        let tasks = 0..pipeline.tasks.len();
        let ladders: Vec<Vec<BudgetStep>> = tasks.map(|t| self.budget_steps(p, t, variants[t], loads[t])).collect();
        if (0..ladders.len()).any(|t| ladders[t].is_empty() && loads[t] > 0.0) {
            return None;
        }
        let slo = pipeline.slo_ms + SLACK * pipeline.slo_ms.max(1.0);
        let in_time = |at: &[usize]| {
            let charge = |(t, &step): (usize, &usize)| if loads[t] > 0.0 { ladders[t][step].charge_ms } else { 0.0 };
            let charges: Vec<f64> = at.iter().enumerate().map(charge).collect();
            finish_times(pipeline, LatencyRule::TaskBudget, &charges).iter().all(|&f| f <= slo)
        };
        let mut at = vec![0; ladders.len()];
        if !in_time(&at) {
            return None;
        }
        // every state on the way is a plan, but one that needs more devices
        while !self.finishing.exceeded() {
            let saving_per_ms = |t: usize, to: usize| {
                let (now, then) = (ladders[t][at[t]], ladders[t][to]);
                (now.price - then.price) / (then.charge_ms - now.charge_ms).max(1e-12)
            };
            let further = |t: usize| (at[t] + 1..ladders[t].len()).map(move |to| (t, to));
            // (task, its next step)
            let mut moves: Vec<(usize, usize)> = (0..ladders.len()).filter(|&t| loads[t] > 0.0).flat_map(further).collect();
            moves.sort_by(|&(t, to), &(u, other)| saving_per_ms(u, other).total_cmp(&saving_per_ms(t, to)));
            let fits = moves.into_iter().find(|&(t, to)| {
                let mut next = at.clone();
                next[t] = to;
                in_time(&next)
            });
            match fits {
                Some((t, to)) => at[t] = to,
                None => break,
            }
        }
        Some((0..ladders.len()).map(|t| ladders[t].get(at[t]).map_or(0.0, |s| s.charge_ms)).collect())
    }

    /// The solution of a state; `None` if its groups cannot carry the demand, or if the time for finishing is up.
    fn to_solution(&self, tightening: &Tightening, variants: &Variants, stopped: StopReason) -> Option<BestFound> {
        let placed = self.place_all(variants);
        let kept = |p: usize| {
            let all = self.groups[p].iter().zip(&placed.groups[p]);
            let wanted = all.filter(|(g, _)| g.variant == variants[p][g.task.get()]);
            wanted.map(|(g, &c)| (g.clone(), c)).unzip()
        };
        let (groups, choice): (Vec<Vec<FeasibleGroup>>, Vec<_>) = (0..variants.len()).map(kept).unzip();
        let finishing = &self.finishing;
        let space = Space::of_groups(self.problem, tightening, groups, finishing).ok()?;
        let choice = PlanIntegers { groups: choice };
        let flows = flows(self.problem, &space, &choice, finishing).ok()??;
        let choice = trim(self.problem, &space, choice, &flows);
        let best = |p: usize, t: usize| self.problem.pipelines[p].most_accurate(TaskIndex(t)).any(|v| v == variants[p][t]);
        let step = (self.problem.objective.mode == Mode::HardwareThenAccuracy).then(|| {
            let all_best = (0..variants.len()).all(|p| (0..variants[p].len()).all(|t| best(p, t)));
            if all_best { ObjectiveStep::Hardware } else { ObjectiveStep::Accuracy }
        });
        let value = worth(self.problem, &space, &choice, &flows, step);
        let bound = bounds::bound(self.problem, tightening, step);
        let bound = if bounds::is_maximised(self.problem, step) { bound.max(value) } else { bound.min(value) };
        Some(BestFound { space, choice, flows, step, value, bound, stopped: Some(stopped) })
    }
}

/// Queries per second at each task with these variants.
fn task_loads(pipeline: &Pipeline, variants: &[VariantIndex], headroom: &[f64]) -> Vec<f64> {
    let mut loads = vec![0.0; pipeline.tasks.len()];
    for &t in pipeline.order() {
        loads[t.get()] = match pipeline.primary_parent(t) {
            None => pipeline.demand_qps,
            Some(edge) => loads[edge.from.get()] * pipeline.fanout(edge, variants[edge.from.get()]),
        };
    }
    loads.iter().zip(headroom).map(|(load, headroom)| load * headroom).collect()
}
