//! What does the check loop know of a plan?

use crate::exact::model::tightening::Tightening;
use crate::exact::search::attempt::CheckedPlan;
use crate::held_out::verdict::{interval_misses, is_accepted, may_hold};
use apportion_domain::{CheckRound, JudgedOn, Mode, ObjectiveStep, Problem};
use apportion_estimator::Simulation;
use std::cmp::Ordering;

/// A plan with its runs.
pub(super) struct TestedPlan {
    pub candidate: CheckedPlan,
    /// The tightening under which it was found first.
    pub tightening: Tightening,
    /// Its run on the sample that all rounds search on.
    pub own: Simulation,
    /// Its run on the samples that showed of earlier plans that they miss.
    pub seen: Option<Simulation>,
    /// Its runs on fresh samples.
    pub judged: Option<Simulation>,
    /// Names these samples.
    pub purpose: String,
}

impl TestedPlan {
    /// What the fresh samples say.
    pub fn judged_on(&self) -> Option<&JudgedOn> {
        self.judged.as_ref().and_then(|judged| judged.total.judged_on.as_ref())
    }

    /// Whether fresh samples show that it holds, or show no reason to search further.
    pub fn is_accepted(&self) -> bool {
        self.judged_on().is_some_and(is_accepted)
    }

    /// Whether it is worth a judgement: it attains the aims where the search may look, and was not refused.
    pub fn passes(&self, aims: &[f64]) -> bool {
        self.searched_misses(aims).iter().all(|&miss| miss <= 0.0) && !self.is_refused()
    }

    /// Whether it was judged and not accepted.
    pub fn is_refused(&self) -> bool {
        self.judged.is_some() && !self.is_accepted()
    }

    /// The run that says most: that on fresh samples, or else the one that misses more.
    pub fn best_known(&self, aims: &[f64]) -> &Simulation {
        let miss = |of: &Simulation| misses_of(of, aims).iter().sum::<f64>();
        let searched = self.seen.as_ref().filter(|seen| miss(seen) > miss(&self.own)).unwrap_or(&self.own);
        self.judged.as_ref().unwrap_or(searched)
    }

    /// By how much each pipeline misses its aim or, on fresh samples, its percentile: 0 where it holds.
    pub fn misses(&self, aims: &[f64]) -> Vec<f64> {
        self.judged_on().map_or_else(|| self.searched_misses(aims), interval_misses)
    }

    /// The same on the samples of the search: the largest miss of any run.
    fn searched_misses(&self, aims: &[f64]) -> Vec<f64> {
        let own = misses_of(&self.own, aims);
        match &self.seen {
            Some(seen) => own.into_iter().zip(misses_of(seen, aims)).map(|(a, b)| a.max(b)).collect(),
            None => own,
        }
    }

    /// How far it is from holding: a plan that may hold is closer than one that misses.
    pub fn distance(&self, aims: &[f64]) -> (bool, f64) {
        (!self.judged_on().is_some_and(may_hold), self.misses(aims).into_iter().fold(0.0, f64::max))
    }

    /// The report of a round that found it under this tightening.
    pub fn round(&self, problem: &Problem, round: u32, tightening: &Tightening) -> CheckRound {
        let mut headroom = Vec::new();
        let mut charge_ms = Vec::new();
        for (pipeline, part) in problem.pipelines.iter().zip(&tightening.parts) {
            for (t, task) in pipeline.tasks.iter().enumerate() {
                let name = format!("{}/{}", pipeline.name, task.name);
                headroom.push((name.clone(), part.headroom[t]));
                charge_ms.push((name, part.charge_ms[t]));
            }
        }
        CheckRound {
            round,
            headroom,
            charge_ms,
            objective: self.candidate.objective,
            replicas: self.candidate.plan.replicas(),
            attainment: self.own.total.attainment,
            p99_ms: self.own.total.p99_ms,
            judged_on: self.judged_on().cloned(),
        }
    }
}

/// By how much each pipeline misses its aim: 0 where it attains it.
fn misses_of(run: &Simulation, aims: &[f64]) -> Vec<f64> {
    run.pipelines.iter().zip(aims).map(|(estimate, aim)| (aim - estimate.attainment).max(0.0)).collect()
}

/// Compares two plans that both hold: the greater one is kept. It is more accurate or cheaper, or has fewer replicas.
pub(super) fn compare_worth(problem: &Problem, a: &CheckedPlan, b: &CheckedPlan) -> Ordering {
    let value = |c: &CheckedPlan| c.objective.value.unwrap_or(f64::NEG_INFINITY);
    let is_hardware_step = |c: &CheckedPlan| {
        problem.objective.mode == Mode::HardwareThenAccuracy && c.objective.step == Some(ObjectiveStep::Hardware)
    };
    // more is better: accuracy, or else minus the replicas or minus the cost
    let worth = |c: &CheckedPlan| match problem.objective.mode {
        Mode::HardwareThenAccuracy if is_hardware_step(c) => -value(c),
        Mode::HardwareThenAccuracy | Mode::MaxAccuracy => value(c),
        Mode::MinCost => -value(c),
    };
    let by_step = is_hardware_step(a).cmp(&is_hardware_step(b));
    let by_worth = worth(a).total_cmp(&worth(b));
    by_step.then(by_worth).then(b.plan.replicas().cmp(&a.plan.replicas()))
}
