//! Which of several plans for one load serves it better?

use super::effort::JudgeEffort;
use super::judge::{JudgedPlan, judge_all};
use apportion_domain::{Plan, Problem};
use apportion_estimator::{Simulation, Workload};
use apportion_mip::RunLimits;
use std::sync::Arc;
use std::time::Duration;

/// Names the samples of a comparison. No search and no judgement of a single plan has seen them.
const PURPOSE: &str = "side by side";

/// Judges plans by one rule on the same fresh samples of a load. Samples are added until each plan is decided, or until the
/// effort or the time is spent. `clock` is the caller's monotonic clock, and `deadline` a time of it.
///
/// The answers have the order of the plans. An answer is `None` if the estimator refuses the plan or had no time for it;
/// the reason is logged. The total's `judged_on` names the samples, which are the same for every answer.
#[must_use]
pub fn judge_side_by_side(
    problem: &Problem,
    plans: &[&Plan],
    workload: &Workload,
    effort: JudgeEffort,
    clock: &Arc<dyn Fn() -> Duration + Send + Sync>,
    deadline: Option<Duration>,
) -> Vec<Option<Simulation>> {
    let limits = RunLimits::new(clock.clone());
    let limits = deadline.map_or(limits.clone(), |deadline| limits.ending_at(deadline));
    judge_side_by_side_within(problem, plans, workload, effort, &limits)
}

/// As [`judge_side_by_side`], within the limits of a run, which may be cancelled.
pub(crate) fn judge_side_by_side_within(
    problem: &Problem,
    plans: &[&Plan],
    workload: &Workload,
    effort: JudgeEffort,
    limits: &RunLimits,
) -> Vec<Option<Simulation>> {
    let judged: Vec<JudgedPlan<'_>> =
        plans.iter().map(|plan| JudgedPlan { problem, plan, workload, purpose: PURPOSE }).collect();
    judge_all(&judged, effort, limits).into_iter().map(Result::ok).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{chain, problem};
    use crate::options::{Planner, PlanningOptions};
    use apportion_domain::{ArrivalTrace, JudgedOn, JudgedVerdict};
    use apportion_estimator::ArrivalProcess;

    fn clock(at: Duration) -> Arc<dyn Fn() -> Duration + Send + Sync> {
        Arc::new(move || at)
    }

    fn steady(qps: f64) -> Workload {
        let trace = ArrivalTrace::Rates((0..20).map(|s| (s, qps)).collect());
        Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: 3 }
    }

    /// A plan for 300/s, and the same with one replica of each group.
    fn plans() -> (Problem, [Plan; 2]) {
        let problem = problem(chain(120.0));
        let trace = Some(steady(300.0));
        let options = PlanningOptions { planner: Planner::Greedy, trace, ..PlanningOptions::new(clock(Duration::ZERO)) };
        let planned = crate::plan(&problem, &options).0.plan().expect("a plan").clone();
        let mut thin = planned.clone();
        thin.pipelines[0].assignments.iter_mut().for_each(|a| a.replicas = 1);
        (problem, [planned, thin])
    }

    fn judged(problem: &Problem, plans: &[&Plan], qps: f64) -> Vec<JudgedOn> {
        let runs =
            judge_side_by_side(problem, plans, &steady(qps), JudgeEffort::PLAN, &clock(Duration::ZERO), None).into_iter();
        runs.map(|run| run.expect("a run").total.judged_on.expect("samples")).collect()
    }

    #[test]
    fn plans_side_by_side_see_the_same_samples() {
        let (problem, [planned, thin]) = plans();
        let both = judged(&problem, &[&planned, &thin], 300.0);
        let seen = |of: &JudgedOn| (of.first_seed, of.samples, of.pipelines[0].requests);
        assert_eq!(seen(&both[0]), seen(&both[1]));
        assert_eq!([both[0].verdict, both[1].verdict], [JudgedVerdict::Holds, JudgedVerdict::Misses]);
        assert!(both[0].first_seed != 3 && both[0].samples >= 8, "{:?}", both[0]);
        assert_eq!(
            judged(&problem, &[&thin, &planned], 300.0),
            [both[1].clone(), both[0].clone()],
            "the order is no matter"
        );
    }

    #[test]
    fn a_decided_plan_gets_the_samples_of_an_open_one() {
        let (problem, [planned, thin]) = plans();
        // The thin plan misses at the first look, and at some load the other one takes more looks.
        let alone = |qps: f64| judged(&problem, &[&planned], qps).remove(0);
        let first = judged(&problem, &[&thin], 300.0)[0].samples;
        let hard = (300..420).step_by(5).map(f64::from).find(|&qps| alone(qps).samples > first).expect("a hard load");
        let both = judged(&problem, &[&planned, &thin], hard);
        assert_eq!(both[0], alone(hard));
        assert_eq!(both[1].samples, both[0].samples);
    }

    #[test]
    fn without_time_there_is_no_answer() {
        let (problem, [planned, thin]) = plans();
        let late = clock(Duration::from_secs(1));
        let plans = [&planned, &thin];
        let runs = judge_side_by_side(
            &problem,
            &plans,
            &steady(300.0),
            JudgeEffort::PLAN,
            &late,
            Some(Duration::from_millis(500)),
        );
        assert!(runs.iter().all(Option::is_none), "{runs:?}");
        assert!(judge_side_by_side(&problem, &[], &steady(300.0), JudgeEffort::PLAN, &late, None).is_empty());
    }
}
