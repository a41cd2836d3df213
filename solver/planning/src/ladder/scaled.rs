//! How many replicas does a rate need, without a search? As many as the plan at its demand, scaled.

use super::room::fits;
use apportion_domain::{Assignment, PipelinePlan, Plan, Problem};
use apportion_serving::ladder::LadderStep;

/// The replicas of each group at a rate, by those of a plan that holds at its demand.
///
/// Above the demand they grow in proportion: larger groups are no slower at equal utilisation. Below it, the busy replicas
/// shrink in proportion and the spare ones with the square root. This is square-root staffing (Halfin and Whitt, Operations
/// Research 29(3), 1981): the share of queries that wait stays the same. Each part is rounded up by itself, because the
/// rule is one of large groups.
#[must_use]
pub(super) fn scaled_replicas(part: &PipelinePlan, rate_qps: f64) -> Vec<u32> {
    let ratio = rate_qps / part.demand_qps;
    let one = |a: &Assignment| {
        let all = f64::from(a.replicas);
        if ratio >= 1.0 {
            return (all * ratio - 1e-9).ceil() as u32;
        }
        let busy = (a.utilisation * all).min(all);
        let (busy, spare) = (busy * ratio, (all - busy) * ratio.sqrt());
        ((busy - 1e-9).ceil() + (spare - 1e-9).ceil()).clamp(1.0, all.max(1.0)) as u32
    };
    part.assignments.iter().map(one).collect()
}

/// Adds steps for the rates above the last step, scaled from the plan. They end before the first that needs too many
/// devices.
pub(super) fn add_scaled_steps(
    problem: &Problem,
    plan: &Plan,
    rates_qps: &[f64],
    least: &[u32],
    steps: &mut Vec<LadderStep>,
) {
    let searched = steps.last().map_or(0.0, |last| last.rate_qps);
    for &rate_qps in rates_qps.iter().filter(|&&rate| rate > searched) {
        let floor = steps.last().map_or(least, |last| &last.replicas);
        let scaled = scaled_replicas(&plan.pipelines[0], rate_qps);
        let replicas: Vec<u32> = scaled.iter().zip(floor).map(|(n, least)| *n.max(least)).collect();
        let mut at_rate = plan.clone();
        at_rate.pipelines[0].assignments.iter_mut().zip(&replicas).for_each(|(a, &n)| a.replicas = n);
        if !fits(problem, &at_rate) {
            break;
        }
        steps.push(LadderStep { rate_qps, replicas });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{chain, problem};
    use crate::ladder::with_ladders;
    use crate::options::{Planner, PlanningOptions};
    use apportion_domain::ArrivalTrace;
    use apportion_estimator::{ArrivalProcess, SimulateOptions, Workload, simulate};
    use apportion_mip::RunLimits;
    use std::sync::Arc;
    use std::time::Duration;

    fn steady(qps: f64) -> Workload {
        let trace = ArrivalTrace::Rates((0..60).map(|s| (s, qps)).collect());
        Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: 11 }
    }

    fn planned() -> (Problem, Plan) {
        let problem = problem(chain(120.0));
        let options = PlanningOptions {
            planner: Planner::Greedy,
            trace: Some(steady(problem.pipelines[0].demand_qps)),
            ..PlanningOptions::new(Arc::new(Duration::default))
        };
        let plan = crate::plan(&problem, &options).0.plan().expect("a plan").clone();
        (problem, plan)
    }

    #[test]
    fn scaled_replicas_hold_their_rates() {
        let (problem, plan) = planned();
        for ratio in [0.05, 0.1, 0.25, 0.5, 0.99, 1.0, 1.5, 2.5, 4.0] {
            let rate_qps = ratio * plan.pipelines[0].demand_qps;
            let mut scaled = plan.clone();
            let replicas = scaled_replicas(&plan.pipelines[0], rate_qps);
            scaled.pipelines[0].assignments.iter_mut().zip(&replicas).for_each(|(a, &n)| a.replicas = n);
            let run = simulate(&problem, &scaled, &steady(rate_qps), &SimulateOptions::default()).expect("a run");
            let asked = problem.pipelines[0].percentile / 100.0;
            assert!(run.total.attainment >= asked, "{rate_qps}/s with {replicas:?}: {}", run.total.attainment);
        }
    }

    #[test]
    fn without_time_a_ladder_is_scaled_and_says_so() {
        let (problem, plan) = planned();
        let limits = RunLimits::new(Arc::new(|| Duration::from_secs(2))).ending_at(Duration::from_secs(1));
        let made = with_ladders(&problem, plan.clone(), 4.0, None, &limits);
        let steps = &made.plan.pipelines[0].ladder;
        let (first, last) = (steps.first().expect("a step").rate_qps, steps.last().expect("a step").rate_qps);
        let demand_qps = plan.pipelines[0].demand_qps;
        assert!(first <= demand_qps / 4.0 + 1e-9 && last >= 4.0 * demand_qps - 1e-9, "{first} to {last}");
        assert!(
            steps.windows(2).all(|pair| pair[0].replicas.iter().zip(&pair[1].replicas).all(|(a, b)| a <= b)),
            "{steps:?}"
        );
        let of_plan: Vec<u32> = plan.pipelines[0].assignments.iter().map(|a| a.replicas).collect();
        let at_demand = steps.iter().find(|step| step.rate_qps >= demand_qps - 1e-9).expect("the demand's");
        assert_eq!(at_demand.replicas, of_plan);
        assert!(made.left_out[0].contains("queries/s on is scaled from the plan"), "{:?}", made.left_out);
    }
}
