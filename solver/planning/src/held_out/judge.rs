//! What do fresh samples of a load say about a plan?
//!
//! A plan that was searched on one sample fits its chances. So each plan is judged on samples that no search has seen:
//! their seeds come from a stream with a name of its own. The plan holds if the lower end of the 95 % interval of its
//! attainment reaches the percentile. It misses if the upper end is below it. Between these, the number of samples doubles.
//!
//! Looking several times must not make wrong promises more probable, so the error of 5 % is divided among the looks
//! ([`error_of_look`](apportion_estimator::interval::error_of_look)).

use super::effort::{Found, JudgeEffort, JudgeStop, LookSchedule, groups_of};
use super::verdict::verdict;
use crate::replay::{self, ReplayFailure};
use apportion_domain::{ArrivalTrace, JudgedLoad, JudgedOn, JudgedPipeline, JudgedVerdict, Pipeline, Plan, Problem};
use apportion_estimator::interval::attainment_interval;
use apportion_estimator::{
    FreshLoad, Sample, Samples, SimulateError, Simulation, Workload, expected_requests, expected_visits, first_seed,
    run_sample,
};
use apportion_mip::RunLimits;
use rayon::prelude::*;

/// Samples that run at once: their results are in memory together.
const SAMPLES_AT_ONCE: u64 = 16;

/// Which plan is judged, and on which samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JudgedPlan<'a> {
    pub problem: &'a Problem,
    pub plan: &'a Plan,
    /// The load of which fresh samples are drawn. Its own sample is not among them.
    pub workload: &'a Workload,
    /// Names the samples under the workload's seed. Two searches that follow each other have different purposes.
    pub purpose: &'a str,
}

/// The samples of one plan, and what they show.
struct Evidence<'a> {
    judged: JudgedPlan<'a>,
    samples: Samples,
    pipelines: Vec<JudgedPipeline>,
}

impl Evidence<'_> {
    fn found(&self) -> Found<'_> {
        let JudgedPlan { problem, workload, .. } = self.judged;
        Found { problem, workload, counts: self.samples.counts(), pipelines: &self.pipelines }
    }
}

/// Judges a plan. The estimates are over all samples, and the total's `judged_on` says what they show.
///
/// # Errors
/// If the limits ended the first look, or the estimator refuses the plan.
pub(crate) fn judge(judged: &JudgedPlan<'_>, effort: JudgeEffort, limits: &RunLimits) -> Result<Simulation, ReplayFailure> {
    judge_all(&[*judged], effort, limits).pop().expect("one answer for each plan")
}

/// Judges several plans of one load and one purpose on the same samples. Samples are added until each plan is decided. The
/// answers have the order of the plans.
///
/// Each answer is an error if the limits ended the plan's first look, or if the estimator refuses the plan.
pub(crate) fn judge_all(
    plans: &[JudgedPlan<'_>],
    effort: JudgeEffort,
    limits: &RunLimits,
) -> Vec<Result<Simulation, ReplayFailure>> {
    let Some(&JudgedPlan { problem, workload, purpose, .. }) = plans.first() else { return Vec::new() };
    let draw = SampleDraw { load: FreshLoad::new(workload), first: first_seed(workload.seed, purpose) };
    let visits_of = |of: &JudgedPlan<'_>| expected_visits(of.problem, of.plan, &workload.traces).max(1.0);
    let visits = plans.iter().map(visits_of).fold(1.0, f64::max);
    let schedule = LookSchedule::new(problem, workload, effort, visits);
    let mut stop = schedule.start();
    let mut all: Vec<Result<Evidence<'_>, ReplayFailure>> =
        plans.iter().map(|judged| draw.first_stop(judged, stop, limits)).collect();
    while all.iter().flatten().any(|of| schedule.asks_for_more(stop, &of.found())) {
        let Some(next) = schedule.after(stop) else { break };
        let looked = all.iter().flatten().map(|of| draw.look(&of.judged, &of.samples, next.samples, limits));
        // if the time is up, the earlier looks count for every plan
        let Ok(looked) = looked.collect::<Result<Vec<Samples>, _>>() else { break };
        for (of, samples) in all.iter_mut().flatten().zip(looked) {
            of.pipelines = judge_pipelines(of.judged.problem, workload, &samples, next.error());
            of.samples = samples;
        }
        stop = next;
    }
    all.into_iter().map(|evidence| evidence.map(|evidence| draw.simulation_of(evidence))).collect()
}

/// The least attainments of a plan's pipelines that a judgement could show to be enough.
pub(crate) fn least_attainments(judged: &JudgedPlan<'_>, effort: JudgeEffort) -> Vec<f64> {
    let JudgedPlan { problem, plan, workload, .. } = *judged;
    let visits = expected_visits(problem, plan, &workload.traces).max(1.0);
    LookSchedule::new(problem, workload, effort, visits).into_aims()
}

/// Where samples come from.
struct SampleDraw<'a> {
    load: FreshLoad<'a>,
    /// The seed of the first one.
    first: u64,
}

impl SampleDraw<'_> {
    fn first_stop<'a>(
        &self,
        judged: &JudgedPlan<'a>,
        stop: JudgeStop,
        limits: &RunLimits,
    ) -> Result<Evidence<'a>, ReplayFailure> {
        let looked = self.look(judged, &Samples::default(), stop.samples, limits);
        let samples = looked.map_err(|error| ReplayFailure::new(&error, limits))?;
        let pipelines = judge_pipelines(judged.problem, judged.workload, &samples, stop.error());
        Ok(Evidence { judged: *judged, samples, pipelines })
    }

    /// The samples so far, and further ones until there are `asked` of them.
    fn look(
        &self,
        judged: &JudgedPlan<'_>,
        so_far: &Samples,
        asked: u64,
        limits: &RunLimits,
    ) -> Result<Samples, SimulateError> {
        let options = replay::replay_options(limits);
        let mut samples = so_far.clone();
        let mut from = samples.len() as u64;
        while from < asked {
            let to = asked.min(from + SAMPLES_AT_ONCE);
            let run = |i| run_sample(judged.problem, judged.plan, &self.load, self.first + i, &options);
            let done: Vec<Sample> = (from..to).into_par_iter().map(run).collect::<Result<_, _>>()?;
            done.into_iter().for_each(|sample| samples.add(sample));
            from = to;
        }
        Ok(samples)
    }

    fn simulation_of(&self, evidence: Evidence<'_>) -> Simulation {
        let Evidence { judged, samples, pipelines } = evidence;
        let load = if self.load.has_recordings() { JudgedLoad::FromRecording } else { JudgedLoad::Redrawn };
        let (verdict, count) = (verdict(&pipelines), samples.len() as u64);
        let simulation = samples.into_simulation(judged.problem, judged.plan, self.first);
        let mut simulation = simulation.expect("the first look has samples");
        simulation.total.judged_on = Some(JudgedOn { verdict, load, samples: count, first_seed: self.first, pipelines });
        simulation
    }
}

/// Runs a plan on the first samples of a purpose, without a judgement.
pub(crate) fn run_samples(judged: &JudgedPlan<'_>, count: u64, limits: &RunLimits) -> Result<Simulation, ReplayFailure> {
    let JudgedPlan { problem, plan, workload, purpose } = *judged;
    let draw = SampleDraw { load: FreshLoad::new(workload), first: first_seed(workload.seed, purpose) };
    let samples = draw.look(judged, &Samples::default(), count.max(1), limits);
    let samples = samples.map_err(|error| ReplayFailure::new(&error, limits))?;
    Ok(samples.into_simulation(problem, plan, draw.first).expect("at least one sample"))
}

fn judge_pipelines(problem: &Problem, workload: &Workload, samples: &Samples, error: f64) -> Vec<JudgedPipeline> {
    let of_pipeline = |(i, (p, trace)): (usize, (&Pipeline, &ArrivalTrace))| {
        let interval = attainment_interval(&samples.counts()[i], groups_of(p, trace, samples.len() as u64), error);
        let asked = p.percentile / 100.0;
        JudgedPipeline {
            pipeline: p.name.clone(),
            percentile: p.percentile,
            requests: samples.counts()[i].iter().map(|run| run.requests).sum(),
            attainment: interval.attainment,
            attainment_low: interval.low,
            attainment_high: interval.high,
            verdict: match () {
                // without requests nothing is promised
                () if interval.low >= asked || expected_requests(trace) <= 0.0 => JudgedVerdict::Holds,
                () if interval.high < asked => JudgedVerdict::Misses,
                () => JudgedVerdict::Undecided,
            },
        }
    };
    problem.pipelines.iter().zip(&workload.traces).enumerate().map(of_pipeline).collect()
}

#[cfg(test)]
mod tests {
    use super::super::verdict::may_hold;
    use super::*;
    use crate::fixtures::{chain, problem};
    use crate::options::PlanningOptions;
    use apportion_estimator::ArrivalProcess;
    use std::sync::Arc;
    use std::time::Duration;

    fn steady(qps: f64, seconds: u64) -> Workload {
        let trace = ArrivalTrace::Rates((0..seconds).map(|s| (s, qps)).collect());
        Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: 3 }
    }

    #[test]
    fn a_search_ends_a_doubtful_judgement_early() {
        let problem = problem(chain(120.0));
        let limits = RunLimits::new(Arc::new(Duration::default));
        let (outcome, _) = crate::plan(&problem, &PlanningOptions::new(Arc::new(Duration::default)));
        let plan = outcome.plan().expect("a plan");
        let judged_at = |qps: f64, effort| {
            let workload = steady(qps, 20);
            let judged = JudgedPlan { problem: &problem, plan, workload: &workload, purpose: "test" };
            judge(&judged, effort, &limits).expect("a run").total.judged_on.expect("samples")
        };
        let rates = || (150..400).step_by(10).map(f64::from);
        let doubtful =
            rates().map(|qps| (qps, judged_at(qps, JudgeEffort::SEARCH))).find(|(_, j)| !may_hold(j) && j.samples <= 8);
        let (qps, early) = doubtful.expect("a load that is too high");
        assert!(early.verdict != JudgedVerdict::Holds, "{early:?}");
        assert!(judged_at(qps, JudgeEffort::PLAN).samples > early.samples, "{qps}");
        // Where it holds, both take the same samples.
        let held =
            rates().find(|&qps| judged_at(qps, JudgeEffort::PLAN).verdict == JudgedVerdict::Holds).expect("a low load");
        assert_eq!(judged_at(held, JudgeEffort::SEARCH).verdict, JudgedVerdict::Holds);
    }
}
