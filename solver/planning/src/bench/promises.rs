//! How many promises are missed where nobody has looked?
//!
//! A plan whose judgement says `holds` is a promise. Each promise is tested on further fresh samples, which neither its
//! search nor its judgement has seen. It is missed if the attainment over these samples is below the percentile.

use super::drawn::{self, Draw, ProblemShape, ShapeHardware};
use crate::held_out::judge::{JudgedPlan, run_samples};
use crate::options::{Planner, PlanningOptions};
use crate::planners::plan;
use apportion_domain::{ArrivalTrace, JudgedVerdict, Mode, Objective, PlanOutcome, PlanningReport, Problem};
use apportion_estimator::{ArrivalProcess, Workload};
use apportion_mip::RunLimits;
use std::sync::Arc;
use std::time::Duration;

/// Percentiles that drawn pipelines ask for.
const PERCENTILES: [f64; 3] = [90.0, 95.0, 99.0];

/// Promises among which one may be missed.
const MADE_FOR_EACH_MISSED: usize = 20;

/// What plans a problem.
type PlanBy<'a> = &'a dyn Fn(&Problem, &PlanningOptions) -> (PlanOutcome, PlanningReport);

/// How promises are made and tested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PromiseSettings {
    /// Promises to make.
    pub promises: usize,
    /// Further samples that test each of them.
    pub samples: u64,
    /// Length of a sample in seconds.
    pub seconds: u64,
    /// Mean demand of the pipelines in queries per second.
    pub demand_qps: f64,
    /// Seed of pipelines and loads.
    pub seed: u64,
}

/// One plan that was to be promised.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanPromise {
    /// The seed of its pipeline and load.
    pub seed: u64,
    /// The planner.
    pub planner: Planner,
    /// The percentile, 0 to 1.
    pub asked: f64,
    /// The lower end of the judgement's interval.
    pub low: f64,
    /// The answer of the judgement. Only `holds` is a promise.
    pub verdict: JudgedVerdict,
    /// The attainment over the further samples.
    pub kept: f64,
}

impl PlanPromise {
    /// Whether it was promised and not kept.
    #[must_use]
    pub fn is_missed(&self) -> bool {
        self.verdict == JudgedVerdict::Holds && self.kept < self.asked
    }
}

/// Whether so few promises are missed as an error of 5 % allows: at most 2 of 40.
#[must_use]
pub fn are_kept(promises: &[PlanPromise]) -> bool {
    let made = promises.iter().filter(|p| p.verdict == JudgedVerdict::Holds).count();
    let missed = promises.iter().filter(|p| p.is_missed()).count();
    missed * MADE_FOR_EACH_MISSED <= made
}

/// Draws pipelines and loads and plans them in turn with the exact and the greedy planner, until there are enough promises.
/// Plans that are not promised are in the list too. `now` is the caller's monotonic clock.
#[must_use]
pub fn promises(settings: &PromiseSettings, now: &Arc<dyn Fn() -> Duration + Send + Sync>) -> Vec<PlanPromise> {
    promises_of(&plan, settings, now)
}

/// As [`promises`], of plans that come from `plan_by`.
fn promises_of(
    plan_by: PlanBy<'_>,
    settings: &PromiseSettings,
    now: &Arc<dyn Fn() -> Duration + Send + Sync>,
) -> Vec<PlanPromise> {
    let mut all = Vec::new();
    for seed in settings.seed.. {
        let planner = if seed % 2 == 0 { Planner::Milp } else { Planner::Greedy };
        all.extend(promise(plan_by, settings, (seed, planner), now));
        let made = all.iter().filter(|p: &&PlanPromise| p.verdict == JudgedVerdict::Holds).count();
        if made >= settings.promises || seed - settings.seed > 20 * settings.promises as u64 {
            break;
        }
    }
    all
}

fn promise(
    plan_by: PlanBy<'_>,
    settings: &PromiseSettings,
    (seed, planner): (u64, Planner),
    now: &Arc<dyn Fn() -> Duration + Send + Sync>,
) -> Option<PlanPromise> {
    let mut draw = Draw::new(seed ^ 0x5eed);
    let problem = drawn_problem(settings, seed, &mut draw);
    let workload = drawn_load(settings, seed, &problem, &mut draw);
    let trace = Some(workload.clone());
    let options = PlanningOptions { planner, trace, ..PlanningOptions::new(now.clone()) };
    let (outcome, report) = plan_by(&problem, &options);
    let judged = report.estimate?.judged_on?;
    let judged_again = JudgedPlan { problem: &problem, plan: outcome.plan()?, workload: &workload, purpose: "promise" };
    let further = run_samples(&judged_again, settings.samples, &RunLimits::new(now.clone())).ok()?;
    let asked = problem.pipelines[0].percentile / 100.0;
    let low = judged.pipelines[0].attainment_low;
    Some(PlanPromise { seed, planner, asked, low, verdict: judged.verdict, kept: further.total.attainment })
}

/// A pipeline of up to three tasks for the least cost.
fn drawn_problem(settings: &PromiseSettings, seed: u64, draw: &mut Draw) -> Problem {
    let hardware = |price_per_hour, speed| ShapeHardware { price_per_hour, count: None, speed };
    let shape = ProblemShape {
        pipelines: 1,
        tasks_max: 3,
        variants_max: 3,
        batches: 4,
        hardware: vec![hardware(1.0, 1.0), hardware(1.8, 2.2)],
        halves: false,
        demand_qps: settings.demand_qps,
        min_accuracy: Some(0.8),
        objective: Objective { mode: Mode::MinCost, ..Objective::default() },
    };
    let percentile = PERCENTILES[draw.below(PERCENTILES.len())];
    let change = |d: &mut apportion_domain::ProblemDraft| {
        let changed = d.pipelines[0].changed(&d.hardware, |p| p.percentile = percentile);
        d.pipelines[0] = changed.expect("a percentile changes no validity");
    };
    drawn::problem(seed, &shape).changed(change).expect("a percentile changes no validity")
}

/// A steady load, a ramp, a step, or a load with bursts, around the demand.
fn drawn_load(settings: &PromiseSettings, seed: u64, problem: &Problem, draw: &mut Draw) -> Workload {
    let (demand_qps, seconds) = (problem.pipelines[0].demand_qps, settings.seconds);
    let shape = draw.below(4);
    let high = draw.between(1.1, 1.6);
    let factor = |second: u64| match shape {
        0 => 1.0,
        1 => 0.6 + (high - 0.6) * second as f64 / seconds as f64,
        2 if (seconds / 3..2 * seconds / 3).contains(&second) => high,
        _ => 0.9,
    };
    let arrivals = if shape == 3 { ArrivalProcess::Gamma(draw.between(1.2, 2.0)) } else { ArrivalProcess::Poisson };
    let trace = ArrivalTrace::Rates((0..seconds).map(|second| (second, demand_qps * factor(second))).collect());
    Workload { traces: vec![trace], arrivals, seed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held_out::effort::JudgeEffort;
    use crate::replay::{self, ReplayFailure};
    use crate::trace_check::check_loop::plan_judged_by;
    use apportion_domain::{JudgedOn, JudgedPipeline};
    use apportion_estimator::Simulation;

    const SETTINGS: PromiseSettings =
        PromiseSettings { promises: 16, samples: 32, seconds: 30, demand_qps: 25.0, seed: 1_000 };

    fn clock() -> Arc<dyn Fn() -> Duration + Send + Sync> {
        Arc::new(Duration::default)
    }

    /// The number of promises, and the missed ones.
    fn counted(all: &[PlanPromise]) -> (usize, Vec<&PlanPromise>) {
        let made = all.iter().filter(|p| p.verdict == JudgedVerdict::Holds).count();
        let missed: Vec<&PlanPromise> = all.iter().filter(|p| p.is_missed()).collect();
        eprintln!("{made} promises of {} plans, {} missed: {missed:?}", all.len(), missed.len());
        (made, missed)
    }

    #[test]
    fn at_most_one_of_sixteen_promises_is_missed() {
        let all = promises(&SETTINGS, &clock());
        let (made, missed) = counted(&all);
        assert_eq!(made, SETTINGS.promises);
        assert!(missed.len() <= 1, "{missed:?}");
    }

    /// A broken judge: it promises what holds on the sample that the search has tightened on.
    fn judge_where_searched(
        judged: &JudgedPlan<'_>,
        _: JudgeEffort,
        limits: &RunLimits,
    ) -> Result<Simulation, ReplayFailure> {
        let JudgedPlan { problem, plan, workload, .. } = *judged;
        let mut run = replay::replay(problem, plan, workload, limits)?;
        let (attainment, percentile) = (run.pipelines[0].attainment, problem.pipelines[0].percentile);
        let verdict = if attainment >= percentile / 100.0 { JudgedVerdict::Holds } else { JudgedVerdict::Misses };
        let pipeline = JudgedPipeline { percentile, attainment, attainment_low: attainment, verdict, ..Default::default() };
        run.total.judged_on = Some(JudgedOn { verdict, samples: 1, pipelines: vec![pipeline], ..Default::default() });
        Ok(run)
    }

    #[test]
    fn a_judge_that_judges_where_it_searched_is_caught() {
        let broken = |problem: &Problem, options: &PlanningOptions| {
            plan_judged_by(judge_where_searched, problem, options, options.trace.as_ref().expect("a load"))
        };
        // Short samples leave much to chance.
        let short = PromiseSettings { seconds: 10, demand_qps: 60.0, ..SETTINGS };
        let of_broken = promises_of(&broken, &short, &clock());
        let (made, missed) = counted(&of_broken);
        assert!(made == short.promises && missed.len() > 1 && !are_kept(&of_broken), "{missed:?}");
        let of_ours = promises(&short, &clock());
        let (made, missed) = counted(&of_ours);
        assert!(made == short.promises && missed.len() <= 1, "{missed:?}");
    }
}
