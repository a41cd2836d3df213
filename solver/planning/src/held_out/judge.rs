//! What do fresh samples of a load say about a plan?
//!
//! A plan that was searched on one sample fits its chances. So each plan is judged on samples that no search has seen:
//! their seeds come from a stream with a name of its own. The plan holds if the lower end of the 95 % interval of its
//! attainment reaches the percentile. It misses if the upper end is below it. Between these, the number of samples doubles.
//!
//! Looking several times must not make wrong promises more probable, so the error of 5 % is divided among the looks
//! ([`error_of_look`]).

use crate::replay::{self, ReplayFailure};
use apportion_domain::{
    ArrivalTrace, JudgedLoad, JudgedOn, JudgedPipeline, JudgedVerdict, Pipeline, Plan, Problem, StopReason,
};
use apportion_estimator::interval::{RunCount, attainment_interval, error_of_look, independent_max};
use apportion_estimator::{
    FreshLoad, Sample, Samples, SimulateError, Simulation, Workload, expected_requests, expected_visits, first_seed,
    run_sample,
};
use apportion_mip::RunLimits;
use rayon::prelude::*;

/// Most samples at the first look. With fewer, Student's t makes the interval much wider than the requests do.
const FIRST_SAMPLES: u64 = 8;
/// Least samples at the first look. A long sample shows much by itself.
const FIRST_SAMPLES_MIN: u64 = 5;
/// Samples that sort out plans which will not hold, before the first look.
const TRIAL_SAMPLES: u64 = 2;
/// Samples of a judgement that ends at once.
const FEW_SAMPLES: u64 = 4;
/// Most samples. With them a load of one request per minute is decided.
const SAMPLES_MAX: u64 = 4096;
/// Samples that run at once: their results are in memory together.
const SAMPLES_AT_ONCE: u64 = 16;

/// When a judgement ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndWhen {
    /// When the plan holds or misses.
    Decided,
    /// As soon as fewer requests are in time than asked: more samples may still move the plan from undecided, but a search
    /// asks only for plans that hold.
    Doubtful,
    /// After a few samples, decided or not.
    AtOnce,
}

/// How much work a judgement may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JudgeEffort {
    /// Queries that all samples may serve together, over all tasks of a plan. The first two looks may exceed it.
    visits_max: f64,
    end: EndWhen,
}

impl JudgeEffort {
    /// For a plan: about a second of one core.
    pub const PLAN: Self = Self { visits_max: 6e6, end: EndWhen::Decided };
    /// For plans that are compared each second or so: four samples.
    pub const ROUND: Self = Self { visits_max: 0.0, end: EndWhen::AtOnce };
    /// For a plan of which nothing is asked.
    pub(crate) const ANSWER: Self = Self { visits_max: 4e5, end: EndWhen::Decided };
    /// For a plan among many of a search.
    pub(crate) const SEARCH: Self = Self { visits_max: 6e6, end: EndWhen::Doubtful };
    /// For a step of a ladder, of which there are many: two looks are usual.
    pub(crate) const STEP: Self = Self { visits_max: 2e5, end: EndWhen::Doubtful };

    /// Whether more samples are wanted after these results.
    fn asks_for_more(self, pipelines: &[JudgedPipeline]) -> bool {
        let is_open = verdict(pipelines) == JudgedVerdict::Undecided;
        match self.end {
            EndWhen::Decided => is_open,
            EndWhen::Doubtful => is_open && !pipelines.iter().any(is_doubtful),
            EndWhen::AtOnce => false,
        }
    }
}

/// Whether fewer requests than asked were in time.
fn is_doubtful(p: &JudgedPipeline) -> bool {
    p.verdict != JudgedVerdict::Holds && p.attainment < p.percentile / 100.0
}

/// Whether the samples leave a plan that may hold: none of its pipelines had fewer requests in time than asked.
pub(crate) fn may_hold(judged: &JudgedOn) -> bool {
    !judged.pipelines.iter().any(is_doubtful)
}

/// Samples at the first look: the fewest that show of a plan without a late request that it holds.
fn first_samples(problem: &Problem, workload: &Workload) -> u64 {
    let is_enough = |samples: &u64| {
        let pipelines = || problem.pipelines.iter().zip(&workload.traces);
        pipelines().all(|(p, trace)| {
            let run = RunCount { requests: expected_requests(trace) as u64, missed: 0 };
            let groups = groups_of(p, trace, *samples);
            attainment_interval(&vec![run; *samples as usize], groups, error_of_look(1)).low >= p.percentile / 100.0
        })
    };
    (FIRST_SAMPLES_MIN..FIRST_SAMPLES).find(is_enough).unwrap_or(FIRST_SAMPLES)
}

/// The largest number of independent requests in so many samples.
fn groups_of(p: &Pipeline, trace: &ArrivalTrace, samples: u64) -> f64 {
    independent_max(samples as f64 * seconds(trace) * 1e3 / p.slo_ms)
}

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
    let first = first_samples(problem, workload);
    let mut look = 1;
    // the trial promises nothing, so it spends no error
    let mut asked = match effort.end {
        EndWhen::Doubtful => TRIAL_SAMPLES,
        EndWhen::AtOnce => FEW_SAMPLES,
        EndWhen::Decided => first,
    };
    let mut all: Vec<Result<Evidence<'_>, ReplayFailure>> =
        plans.iter().map(|judged| draw.first_look(judged, asked, limits)).collect();
    loop {
        (look, asked) = if asked < first { (1, first) } else { (look + 1, asked * 2) };
        let is_too_much = asked > SAMPLES_MAX || (look > 2 && asked as f64 * visits > effort.visits_max);
        if is_too_much || !all.iter().flatten().any(|of| effort.asks_for_more(&of.pipelines)) {
            break;
        }
        let looked = all.iter().flatten().map(|of| draw.look(&of.judged, &of.samples, asked, limits));
        // if the time is up, the earlier looks count for every plan
        let Ok(looked) = looked.collect::<Result<Vec<Samples>, _>>() else { break };
        for (of, samples) in all.iter_mut().flatten().zip(looked) {
            of.pipelines = judge_pipelines(of.judged.problem, workload, &samples, error_of_look(look));
            of.samples = samples;
        }
    }
    all.into_iter().map(|evidence| evidence.map(|evidence| draw.simulation_of(evidence))).collect()
}

/// Where samples come from.
struct SampleDraw<'a> {
    load: FreshLoad<'a>,
    /// The seed of the first one.
    first: u64,
}

impl SampleDraw<'_> {
    fn first_look<'a>(
        &self,
        judged: &JudgedPlan<'a>,
        count: u64,
        limits: &RunLimits,
    ) -> Result<Evidence<'a>, ReplayFailure> {
        let looked = self.look(judged, &Samples::default(), count, limits);
        let samples = looked.map_err(|error| ReplayFailure::new(&error, limits))?;
        let pipelines = judge_pipelines(judged.problem, judged.workload, &samples, error_of_look(1));
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

/// Runs a plan on further samples, which no judgement has seen.
pub(crate) fn run_fresh(
    problem: &Problem,
    plan: &Plan,
    workload: &Workload,
    count: u64,
    limits: &RunLimits,
) -> Result<Simulation, SimulateError> {
    let purpose = "promise";
    let draw = SampleDraw { load: FreshLoad::new(workload), first: first_seed(workload.seed, purpose) };
    let judged = JudgedPlan { problem, plan, workload, purpose };
    let samples = draw.look(&judged, &Samples::default(), count.max(1), limits)?;
    Ok(samples.into_simulation(problem, plan, draw.first).expect("at least one sample"))
}

fn judge_pipelines(problem: &Problem, workload: &Workload, samples: &Samples, error: f64) -> Vec<JudgedPipeline> {
    let of_pipeline = |(i, (p, trace)): (usize, (&Pipeline, &ArrivalTrace))| {
        let interval = attainment_interval(samples.counts(i), groups_of(p, trace, samples.len() as u64), error);
        let asked = p.percentile / 100.0;
        JudgedPipeline {
            pipeline: p.name.clone(),
            percentile: p.percentile,
            requests: samples.counts(i).iter().map(|run| run.requests).sum(),
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

/// The seconds of a trace in which requests may come.
fn seconds(trace: &ArrivalTrace) -> f64 {
    match trace {
        ArrivalTrace::Rates(rows) => rows.iter().filter(|&&(_, qps)| qps > 0.0).count() as f64,
        ArrivalTrace::Arrivals(moments) => match (moments.first(), moments.last()) {
            (Some(&first), Some(last)) => (last.since(first).as_millis() / 1e3).max(1.0),
            _ => 0.0,
        },
    }
}

/// The answer for all pipelines together.
fn verdict(pipelines: &[JudgedPipeline]) -> JudgedVerdict {
    let has = |verdict| pipelines.iter().any(|p| p.verdict == verdict);
    match () {
        () if has(JudgedVerdict::Misses) => JudgedVerdict::Misses,
        () if has(JudgedVerdict::Undecided) => JudgedVerdict::Undecided,
        () => JudgedVerdict::Holds,
    }
}

/// Whether a search ends with this plan: it holds, or no sample shows a reason to tighten further.
pub(crate) fn is_accepted(judged: &JudgedOn) -> bool {
    let is_clean = |p: &JudgedPipeline| match p.verdict {
        JudgedVerdict::Holds => true,
        JudgedVerdict::Undecided => p.attainment >= 1.0,
        JudgedVerdict::Misses => false,
    };
    judged.pipelines.iter().all(is_clean)
}

/// By how much each pipeline misses the percentile, or else the lower end of its interval: 0 where the pipeline holds.
pub(crate) fn interval_misses(judged: &JudgedOn) -> Vec<f64> {
    let miss = |p: &JudgedPipeline| match p.verdict {
        JudgedVerdict::Holds => 0.0,
        _ if is_doubtful(p) => p.percentile / 100.0 - p.attainment,
        JudgedVerdict::Misses | JudgedVerdict::Undecided => (p.percentile / 100.0 - p.attainment_low).max(0.0),
    };
    judged.pipelines.iter().map(miss).collect()
}

/// Why a plan that is not accepted is no better.
pub(crate) fn stop_reason(judged: &JudgedOn) -> StopReason {
    match judged.verdict {
        JudgedVerdict::Undecided => StopReason::TraceUndecided,
        JudgedVerdict::Holds | JudgedVerdict::Misses => StopReason::TraceNotMet,
    }
}

#[cfg(test)]
mod tests {
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
    fn the_first_look_can_decide_a_clean_plan() {
        let problem = problem(chain(120.0));
        assert_eq!(first_samples(&problem, &steady(300.0, 2)), FIRST_SAMPLES);
        assert_eq!(first_samples(&problem, &steady(300.0, 1200)), FIRST_SAMPLES_MIN);
        let clean = |seconds: u64, samples: u64| {
            let run = RunCount { requests: 300 * seconds, missed: 0 };
            let groups = independent_max(samples as f64 * seconds as f64 * 1e3 / 120.0);
            attainment_interval(&vec![run; samples as usize], groups, error_of_look(1)).low
        };
        let seconds = (30..1200).find(|&s| first_samples(&problem, &steady(300.0, s)) == 6).expect("a middle length");
        assert!(clean(seconds, 6) >= 0.99 && clean(seconds, 5) < 0.99, "{seconds}");
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
        let doubtful = rates().map(|qps| (qps, judged_at(qps, JudgeEffort::SEARCH))).find(|(_, j)| !may_hold(j));
        let (qps, early) = doubtful.expect("a load that is too high");
        assert!(early.samples <= FIRST_SAMPLES && early.verdict != JudgedVerdict::Holds, "{early:?}");
        assert!(judged_at(qps, JudgeEffort::PLAN).samples > early.samples, "{qps}");
        // Where it holds, both take the same samples.
        let held =
            rates().find(|&qps| judged_at(qps, JudgeEffort::PLAN).verdict == JudgedVerdict::Holds).expect("a low load");
        assert_eq!(judged_at(held, JudgeEffort::SEARCH).verdict, JudgedVerdict::Holds);
    }
}
