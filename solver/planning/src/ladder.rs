//! How many replicas a plan's groups need at other rates: the ladder that a pipeline is steered on between plans.
//!
//! Groups, batches and policies stay those of the plan; the fewest replicas that hold a rate are searched as the greedy planner
//! does (InferLine, Algorithms 1 and 2): added at the busiest group until the estimator meets the percentile, then taken away
//! where they save most.

use crate::replay;
use apportion_domain::{Pipeline, Plan, Problem};
use apportion_estimator::{SimulateOptions, Workload, simulate};
use apportion_serving::ladder::Step;

/// Most replicas that a step adds to what the bare rate needs, over that: more is not a matter of noise.
const REPLICAS_OVER_MAX: u32 = 8;

struct Search<'a> {
    problem: &'a Problem,
    pipeline: &'a Pipeline,
    plan: &'a Plan,
    workload: Workload,
}

/// A step for each of these rising rates, for a problem of one pipeline and its plan; `workload` makes a rate's load. Replicas never
/// fall from one step to the next. The ladder ends before the first rate that no number of replicas holds.
#[must_use]
pub fn steps(problem: &Problem, plan: &Plan, rates_qps: &[f64], workload: impl Fn(f64) -> Workload) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let Some(pipeline) = problem.pipelines.first().filter(|_| plan.pipelines.len() == 1) else { return steps };
    for &rate_qps in rates_qps {
        let search = Search { problem, pipeline, plan, workload: workload(rate_qps) };
        let least = steps.last().map(|s| s.replicas.clone());
        let Some(replicas) = search.fewest(rate_qps, least) else { break };
        steps.push(Step { rate_qps, replicas });
    }
    steps
}

impl Search<'_> {
    fn fewest(&self, rate_qps: f64, least: Option<Vec<u32>>) -> Option<Vec<u32>> {
        let assignments = &self.plan.pipelines[0].assignments;
        let busy = |replicas: &[u32]| -> Vec<f64> {
            let one = |(a, &n): (&apportion_domain::Assignment, &u32)| {
                a.utilisation * f64::from(a.replicas) * rate_qps / (self.pipeline.demand_qps * f64::from(n))
            };
            assignments.iter().zip(replicas).map(one).collect()
        };
        let bare: Vec<u32> =
            busy(&vec![1; assignments.len()]).iter().map(|load| (load - 1e-9).ceil().max(1.0) as u32).collect();
        let floor = least.unwrap_or_else(|| vec![1; bare.len()]);
        let mut replicas: Vec<u32> = bare.iter().zip(&floor).map(|(a, b)| *a.max(b)).collect();
        while !self.holds(&replicas) {
            let busy = busy(&replicas);
            let busiest = (0..busy.len()).max_by(|&a, &b| busy[a].total_cmp(&busy[b]))?;
            replicas[busiest] += 1;
            if replicas[busiest] > REPLICAS_OVER_MAX * bare[busiest].max(floor[busiest]) {
                return None;
            }
        }
        let price = |i: usize| {
            let group = &assignments[i].group;
            self.problem
                .hardware
                .iter()
                .find(|h| h.name == group.hardware)
                .map_or(0.0, |h| h.price_per_hour * f64::from(group.share.eighths()))
        };
        let mut dearest: Vec<usize> = (0..replicas.len()).collect();
        dearest.sort_by(|&a, &b| price(b).total_cmp(&price(a)).then(a.cmp(&b)));
        for i in dearest {
            while replicas[i] > floor[i].max(bare[i]) {
                replicas[i] -= 1;
                if !self.holds(&replicas) {
                    replicas[i] += 1;
                    break;
                }
            }
        }
        Some(replicas)
    }

    fn holds(&self, replicas: &[u32]) -> bool {
        let mut plan = self.plan.clone();
        plan.pipelines[0].assignments.iter_mut().zip(replicas).for_each(|(a, &n)| a.replicas = n);
        let run = simulate(self.problem, &plan, &self.workload, &SimulateOptions::default());
        run.is_ok_and(|s| replay::misses(self.problem, &s.pipelines).iter().all(|&miss| miss <= 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{chain, problem};
    use crate::{PlanOptions, Planner};
    use apportion_domain::Trace;
    use apportion_estimator::ArrivalProcess;
    use std::sync::Arc;
    use std::time::Duration;

    fn steady(qps: f64) -> Workload {
        let trace = Trace::Rates((0..10).map(|s| (s, qps)).collect());
        Workload { traces: vec![trace], arrivals: ArrivalProcess::Poisson, seed: 3 }
    }

    #[test]
    fn every_step_holds_its_rate_and_no_replica_is_to_spare() {
        let problem = problem(chain(120.0));
        let options = PlanOptions { planner: Planner::Greedy, ..PlanOptions::new(Arc::new(Duration::default)) };
        let (outcome, _) = crate::plan(&problem, &options);
        let plan = outcome.plan().expect("a plan");
        let rates = [50.0, 100.0, 200.0, 400.0, 800.0];
        let steps = steps(&problem, plan, &rates, steady);
        assert_eq!(steps.iter().map(|s| s.rate_qps).collect::<Vec<_>>(), rates);
        let mut before = vec![1; plan.pipelines[0].assignments.len()];
        for step in &steps {
            let search =
                Search { problem: &problem, pipeline: &problem.pipelines[0], plan, workload: steady(step.rate_qps) };
            assert!(search.holds(&step.replicas), "{step:?}");
            assert!(step.replicas.iter().zip(&before).all(|(now, before)| now >= before), "{steps:?}");
            for i in (0..step.replicas.len()).filter(|&i| step.replicas[i] > before[i]) {
                let mut fewer = step.replicas.clone();
                fewer[i] -= 1;
                let load =
                    plan.pipelines[0].assignments[i].utilisation * f64::from(plan.pipelines[0].assignments[i].replicas);
                let is_bare = f64::from(fewer[i]) < load * step.rate_qps / problem.pipelines[0].demand_qps;
                assert!(is_bare || !search.holds(&fewer), "{step:?} can do with a replica less of group {i}");
            }
            before.clone_from(&step.replicas);
        }
        assert!(steps[4].replicas.iter().sum::<u32>() > steps[0].replicas.iter().sum(), "{steps:?}");
    }

    #[test]
    fn a_rate_that_nothing_holds_ends_the_ladder() {
        // batches take 10 ms and then 5 ms at least, which no number of replicas fits into 14 ms
        let problem = problem(chain(120.0));
        let options = PlanOptions { planner: Planner::Greedy, ..PlanOptions::new(Arc::new(Duration::default)) };
        let (outcome, _) = crate::plan(&problem, &options);
        let tight = crate::fixtures::problem(chain(14.0));
        assert_eq!(steps(&tight, outcome.plan().expect("a plan"), &[50.0, 100.0], steady), []);
    }
}
