//! What would change if one thing were different? The problem is planned again with one variation.
//!
//! A price is a finite difference and not a dual value. Replicas are whole, so the dual of a linear relaxation would state
//! only a fraction of the gain of one more device. All searches share one deadline and run in parallel.

use super::latency::task_and_variant;
use crate::answer::infeasible;
use crate::exact::search::attempt::{CheckedPlan, Provenance, SearchOutcome, attempt};
use crate::options::{ExplanationDepth, PlanningOptions};
use apportion_domain::{
    Alternative, AlternativeKind, Change, Consequence, Explanation, GroupName, HardwareIndex, Mode, ObjectiveStep,
    ObjectiveValue, PipelineIndex, Plan, Price, Problem, Profile, ProfileRow, Relaxation, TaskIndex, VariantIndex,
};
use apportion_mip::RunLimits;
use rayon::prelude::*;
use std::time::Duration;

/// Extra time of an SLO whose price is searched for, in milliseconds.
const MORE_MS: f64 = 10.0;
/// A latency that no SLO admits. It removes a profile row from a problem.
const NEVER_MS: f64 = 1e12;
/// Most alternatives and prices that are searched for. A plan of many pipelines has more than a reader needs.
const SEARCHES_MAX: usize = 256;

/// The change of one search.
#[derive(Clone, Copy, Debug)]
enum Variation {
    /// One more device.
    Count(HardwareIndex),
    /// 1 per hour more.
    Budget,
    /// [`MORE_MS`] more.
    Slo(PipelineIndex),
    /// All of a task on one other variant.
    Variant(PipelineIndex, TaskIndex, VariantIndex),
    /// All of a task on one other hardware type.
    Hardware(PipelineIndex, TaskIndex, HardwareIndex),
}

/// Result of one search.
enum VariationResult {
    Price(Price),
    Alternative(TaskAlternative),
    /// The change does not apply.
    NotApplicable,
    /// The time was up.
    NotSearched,
}

/// An alternative for one task.
struct TaskAlternative {
    pipeline: PipelineIndex,
    task: TaskIndex,
    alternative: Alternative,
}

/// The searches for variations of one plan.
struct Variations<'a> {
    problem: &'a Problem,
    plan: &'a Plan,
    objective: ObjectiveValue,
    provenance: &'a Provenance,
    gap: f64,
    limits: RunLimits,
}

/// Adds prices, and alternatives in other variants and hardware, if the full explanation is asked for and as far as time
/// allows.
pub(super) fn add_variations(
    problem: &Problem,
    plan: &Plan,
    objective: ObjectiveValue,
    provenance: Option<&Provenance>,
    options: &PlanningOptions,
    explanation: &mut Explanation,
) {
    let mut all = list_variations(problem, plan);
    let total = all.len();
    let (provenance, within) = match repetition(provenance, options.explain) {
        Repetition::Within(provenance, within) => (provenance, within),
        Repetition::LeftOut(why) => {
            explanation.left_out.extend((total > 0).then(|| left_out(total, &why)));
            return;
        }
    };
    all.truncate(SEARCHES_MAX);
    let now = (options.elapsed)();
    let until = options.time_limit.map_or(now + within, |limit| limit.min(now + within));
    let limits = options.limits().without_listener().ending_at(until);
    let searches = Variations { problem, plan, objective, provenance, gap: options.gap, limits };
    let answers: Vec<VariationResult> = all.into_par_iter().map(|variation| searches.search(variation)).collect();
    let found = answers.iter().filter(|a| !matches!(a, VariationResult::NotSearched)).count();
    if found < total {
        explanation.left_out.push(left_out(total - found, "time was up"));
    }
    searches.add_to_explanation(answers, explanation);
}

/// Whether the search for the plan is repeated with variations.
enum Repetition<'a> {
    /// So long at most.
    Within(&'a Provenance, Duration),
    /// Not at all, for this reason.
    LeftOut(String),
}

fn repetition(provenance: Option<&Provenance>, depth: ExplanationDepth) -> Repetition<'_> {
    let left_out = |why: &str| Repetition::LeftOut(why.to_owned());
    let Some(provenance) = provenance else { return left_out("this planner does not search") };
    let ExplanationDepth::Full { within } = depth else { return left_out("only a full explanation has them") };
    if !provenance.complete {
        return left_out("the search for the plan itself was cut short");
    }
    if provenance.took * 2 > within {
        let (took, within) = (provenance.took.as_secs_f64(), within.as_secs_f64());
        return Repetition::LeftOut(format!("one search takes {took:.1} s, and all may take {within:.1} s"));
    }
    Repetition::Within(provenance, within)
}

/// The sentence about searches that were left out.
fn left_out(count: usize, why: &str) -> String {
    format!("{count} alternatives and prices that take a search each: {why}")
}

/// All variations. The prices are one more device of each counted type, 1 per hour more budget, and [`MORE_MS`] more for
/// each pipeline. The alternatives are every other variant and hardware type for each task of the plan.
fn list_variations(problem: &Problem, plan: &Plan) -> Vec<Variation> {
    let counted = (0..problem.hardware.len()).map(HardwareIndex).filter(|&h| problem.hardware_at(h).count.is_some());
    let mut all: Vec<Variation> = counted.map(Variation::Count).collect();
    all.extend(problem.objective.budget_per_hour.map(|_| Variation::Budget));
    all.extend((0..problem.pipelines.len()).map(|p| Variation::Slo(PipelineIndex(p))));
    for (p, (pipeline, part)) in problem.pipelines.iter().zip(&plan.pipelines).enumerate() {
        for (t, task) in pipeline.tasks.iter().enumerate() {
            let running = || part.assignments.iter().filter(|a| a.group.task == task.name && a.traffic_share > 0.0);
            if running().next().is_none() {
                continue;
            }
            let (p, t) = (PipelineIndex(p), TaskIndex(t));
            let others = task.variants.iter().enumerate().filter(|(_, v)| running().any(|a| a.group.variant != v.name));
            all.extend(others.map(|(v, _)| Variation::Variant(p, t, VariantIndex(v))));
            let others = problem.hardware.iter().enumerate().filter(|(_, h)| running().any(|a| a.group.hardware != h.name));
            all.extend(others.map(|(h, _)| Variation::Hardware(p, t, HardwareIndex(h))));
        }
    }
    all
}

/// The varied problem; `None` if a task has nothing to run then. It is made just before its search, because many copies
/// of a large problem take much memory.
fn changed(problem: &Problem, variation: Variation) -> Option<Problem> {
    match variation {
        Variation::Count(h) => {
            problem.changed(|d| d.hardware[h.get()].count = d.hardware[h.get()].count.map(more_devices)).ok()
        }
        Variation::Budget => {
            problem.changed(|d| d.objective.budget_per_hour = d.objective.budget_per_hour.map(|b| b + 1.0)).ok()
        }
        Variation::Slo(p) => {
            let relaxed = problem.pipeline(p).changed(&problem.hardware, |d| d.slo_ms += MORE_MS).ok()?;
            problem.changed(|d| d.pipelines[p.get()] = relaxed).ok()
        }
        Variation::Variant(p, t, v) => restricted(problem, p, t, &|other, _| other == v),
        Variation::Hardware(p, t, h) => restricted(problem, p, t, &|_, other| other == h),
    }
}

fn more_devices(count: u32) -> u32 {
    count.saturating_add(1)
}

/// One more unit of a resource.
struct OneMore {
    /// Hardware type, `budget`, or pipeline.
    place: String,
    unit: String,
    change: Relaxation,
}

/// The unit of a price; `None` if the variation is not a price.
fn one_more(problem: &Problem, variation: Variation) -> Option<OneMore> {
    let change = |pointer: String, from: f64, to: f64| Relaxation { pointer, from, to };
    match variation {
        Variation::Count(h) => {
            let hardware = problem.hardware_at(h);
            let count = hardware.count?;
            let change = change(format!("/hardware/{}/count", h.get()), f64::from(count), f64::from(more_devices(count)));
            Some(OneMore { place: hardware.name.clone(), unit: "1 device".into(), change })
        }
        Variation::Budget => {
            let budget = problem.objective.budget_per_hour?;
            let change = change("/objective/budget_per_hour".into(), budget, budget + 1.0);
            Some(OneMore { place: "budget".into(), unit: "1 per hour".into(), change })
        }
        Variation::Slo(p) => {
            let slo_ms = problem.pipeline(p).slo_ms;
            let change = change(format!("/pipelines/{}/slo_ms", p.get()), slo_ms, slo_ms + MORE_MS);
            Some(OneMore { place: problem.pipeline(p).name.clone(), unit: format!("{MORE_MS} ms"), change })
        }
        Variation::Variant(..) | Variation::Hardware(..) => None,
    }
}

/// The variant or hardware that a task runs instead.
struct Replacement {
    pipeline: PipelineIndex,
    task: TaskIndex,
    kind: AlternativeKind,
    /// Name of the variant or of the hardware type.
    to: String,
}

/// The replacement of a variation; `None` if the variation is a price.
fn replacement(problem: &Problem, variation: Variation) -> Option<Replacement> {
    match variation {
        Variation::Variant(p, t, v) => {
            let to = problem.pipeline(p).variant(t, v).name.clone();
            Some(Replacement { pipeline: p, task: t, kind: AlternativeKind::Variant, to })
        }
        Variation::Hardware(p, t, h) => {
            let to = problem.hardware_at(h).name.clone();
            Some(Replacement { pipeline: p, task: t, kind: AlternativeKind::Hardware, to })
        }
        Variation::Count(_) | Variation::Budget | Variation::Slo(_) => None,
    }
}

/// The problem in which a task may run only the variants and hardware of `keeps`; `None` if none is left.
fn restricted(
    problem: &Problem,
    p: PipelineIndex,
    t: TaskIndex,
    keeps: &dyn Fn(VariantIndex, HardwareIndex) -> bool,
) -> Option<Problem> {
    let pipeline = problem.pipeline(p);
    let variants = pipeline.task(t).variants.iter().enumerate();
    let any = variants.flat_map(|(v, variant)| variant.profile.rows().iter().map(move |r| (VariantIndex(v), r.hardware)));
    if !any.into_iter().any(|(v, h)| keeps(v, h)) {
        return None;
    }
    let row = |v: usize, r: &ProfileRow| match keeps(VariantIndex(v), r.hardware) {
        true => r.clone(),
        false => ProfileRow { latency_ms: NEVER_MS, p99_ms: None, ..r.clone() },
    };
    let changed = pipeline.changed(&problem.hardware, |d| {
        for (v, variant) in d.tasks[t.get()].variants.iter_mut().enumerate() {
            variant.profile = Profile::new(variant.profile.rows().iter().map(|r| row(v, r)).collect());
        }
    });
    problem.changed(|d| d.pipelines[p.get()] = changed.expect("slower rows are valid")).ok()
}

/// The gain of a looser problem.
struct Gain {
    /// The improvement of the objective; `None` if the objectives cannot be compared.
    value: Option<f64>,
    buys: Change,
}

/// The task of one decision.
struct DecisionPlace<'a> {
    pipeline: PipelineIndex,
    /// `None` if the group has no traffic.
    task: Option<TaskIndex>,
    group: &'a GroupName,
}

impl Variations<'_> {
    /// Plans the problem with one variation.
    fn search(&self, variation: Variation) -> VariationResult {
        if self.limits.exceeded() {
            return VariationResult::NotSearched;
        }
        let Some(changed) = changed(self.problem, variation) else { return VariationResult::NotApplicable };
        let attempted = attempt(&changed, &self.provenance.tightening, self.gap, &self.limits);
        match (attempted, one_more(self.problem, variation), replacement(self.problem, variation)) {
            (SearchOutcome::Unknown(_), ..) => VariationResult::NotSearched,
            (SearchOutcome::Plan(candidate), ..) if candidate.stopped.is_some_and(|s| s.is_limit()) => {
                VariationResult::NotSearched
            }
            (SearchOutcome::Plan(candidate), Some(OneMore { place, unit, change }), _) => {
                let Gain { value, buys } = self.gain(&candidate);
                VariationResult::Price(Price { place, unit, change, gain: value, buys })
            }
            (attempt, _, Some(Replacement { pipeline, task, kind, to })) => {
                let consequence = match attempt {
                    SearchOutcome::Plan(candidate) => Consequence::Plan(self.difference(&candidate.plan)),
                    _ => match infeasible::misses_by(&changed, pipeline) {
                        // only a removed row is this slow: the remaining rows do not fit into memory
                        Some(by_ms) if by_ms >= 0.5 * NEVER_MS => Consequence::TooLittleMemory,
                        Some(by_ms) => Consequence::MissesSlo { by_ms },
                        None => Consequence::NoPlan,
                    },
                };
                let alternative = Alternative { kind, to, consequence };
                VariationResult::Alternative(TaskAlternative { pipeline, task, alternative })
            }
            // more of a resource cannot make the problem infeasible, so this result of a solver is ignored
            (SearchOutcome::Infeasible, ..) => VariationResult::NotSearched,
            (SearchOutcome::Plan(_), None, None) => VariationResult::NotApplicable,
        }
    }

    /// Gain of a looser problem's plan over ours. Our plan is valid there too, so a difference within the gap is no gain.
    fn gain(&self, other: &CheckedPlan) -> Gain {
        let change = self.difference(&other.plan);
        let (Some(ours), Some(theirs)) = (self.objective.value, other.objective.value) else {
            return Gain { value: None, buys: change };
        };
        if self.objective.step != other.objective.step {
            return Gain { value: None, buys: change };
        }
        let mode = self.problem.objective.mode;
        let by_accuracy = mode == Mode::MaxAccuracy || self.objective.step == Some(ObjectiveStep::Accuracy);
        let gain = if by_accuracy { theirs - ours } else { ours - theirs };
        if gain > Change::NOISE.max(self.gap * ours.abs()) {
            return Gain { value: Some(gain), buys: change };
        }
        // the objective is equal, so only a better tie break is a gain
        let tie = match mode {
            Mode::MaxAccuracy => change.cost_per_hour < -Change::NOISE,
            Mode::HardwareThenAccuracy => by_accuracy && change.replicas < 0,
            Mode::MinCost => false,
        };
        Gain { value: Some(0.0), buys: if tie { Change { accuracy: 0.0, ..change } } else { Change::default() } }
    }

    /// The difference of another plan from ours.
    fn difference(&self, other: &Plan) -> Change {
        let weights: f64 = self.problem.pipelines.iter().map(|p| p.weight).sum();
        let weight = |w: f64| if weights > 0.0 { w / weights } else { 1.0 / self.problem.pipelines.len() as f64 };
        let accuracy = |plan: &Plan| -> f64 {
            self.problem.pipelines.iter().zip(&plan.pipelines).map(|(p, part)| weight(p.weight) * part.accuracy).sum()
        };
        Change {
            replicas: other.replicas() as i64 - self.plan.replicas() as i64,
            cost_per_hour: other.cost_per_hour - self.plan.cost_per_hour,
            accuracy: accuracy(other) - accuracy(self.plan),
        }
    }

    /// Puts prices into their list and alternatives beside the decisions on the groups of their task.
    fn add_to_explanation(&self, answers: Vec<VariationResult>, explanation: &mut Explanation) {
        let mut places = Vec::new();
        for (p, part) in self.plan.pipelines.iter().enumerate() {
            let pipeline = self.problem.pipeline(PipelineIndex(p));
            places.extend(part.assignments.iter().map(|a| {
                let task = task_and_variant(pipeline, &a.group).map(|(t, _)| t).filter(|_| a.traffic_share > 0.0);
                DecisionPlace { pipeline: PipelineIndex(p), task, group: &a.group }
            }));
        }
        for answer in answers {
            match answer {
                VariationResult::Price(price) => explanation.prices.push(price),
                VariationResult::Alternative(TaskAlternative { pipeline, task, alternative }) => {
                    for (decision, place) in explanation.decisions.iter_mut().zip(&places) {
                        let own = match alternative.kind {
                            AlternativeKind::Variant => &place.group.variant,
                            AlternativeKind::Hardware | AlternativeKind::Batch => &place.group.hardware,
                        };
                        let is_of_task = place.pipeline == pipeline && place.task == Some(task);
                        if is_of_task && *own != alternative.to {
                            decision.alternatives.push(alternative.clone());
                        }
                    }
                }
                VariationResult::NotApplicable | VariationResult::NotSearched => {}
            }
        }
    }
}
