//! What does the estimator say of the load that a demo played?

use super::in_force::PlanInForce;
use crate::live::estimate::{PlanStart, PlayedLoad, poisson_arrivals};
use crate::live::figures::Figures;
use crate::live::plans::fetch_plan;
use crate::live::service::Service;
use anyhow::{Context, Result};
use std::time::Duration;

/// Arrivals of a load that doubles for its middle third, Poisson within a second.
pub fn doubling_arrivals(base_qps: f64, seconds: u64, seed: u64) -> Result<Vec<Duration>> {
    let rate = |second: u64| if second * 3 >= seconds && second * 3 < 2 * seconds { 2.0 * base_qps } else { base_qps };
    poisson_arrivals((0..seconds).map(|s| (s, rate(s))).collect(), seed)
}

/// The way of the demo's requests and queries.
#[derive(Clone, Copy, Debug)]
pub struct DemoNetwork<'a> {
    /// Measured times of a hop in ms.
    pub hops_ms: &'a [f64],
    /// Ingresses that clients use in turn.
    pub ingresses: u32,
}

/// The estimator's runs of the load that was played, under the plans that were in force.
pub async fn estimate_demo(
    service: &Service,
    plans: &[PlanInForce],
    arrivals: &[Duration],
    steps: &[Duration],
    network: DemoNetwork<'_>,
    pipeline: &str,
) -> Result<Vec<Figures>> {
    let mut in_force = Vec::new();
    let mut problem = None;
    for plan in plans {
        let fetched = fetch_plan(service, &plan.id).await?;
        problem.get_or_insert(fetched.problem);
        in_force.push(PlanStart { at: Duration::from_secs_f64(plan.at_s), plan: fetched.plan });
    }
    let problem = problem.context("no plan was in force")?;
    let index = problem.pipeline_named(pipeline).context("the plan is of another pipeline")?;
    let DemoNetwork { hops_ms, ingresses } = network;
    PlayedLoad { problem: &problem, index, plans: &in_force, arrivals, steps, hops_ms, ingresses }.estimate_runs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::fixtures::{digits, plan_for};
    use crate::live::figures::ComparedFigure;
    use apportion_domain::Plan;

    #[test]
    fn the_estimate_follows_the_change_of_plans() {
        let problem = digits([35.7, 11.7, 3.6], [4.1, 0.48, 0.11]);
        let steps = [20, 40].map(Duration::from_secs);
        let arrivals = doubling_arrivals(75.0, 60, 1).expect("a load");
        let estimated = |plans: &[PlanStart]| {
            let index = problem.pipeline_named("digits").expect("it is there");
            let hops_ms = &[0.0, 2.0];
            let played =
                PlayedLoad { problem: &problem, index, plans, arrivals: &arrivals, steps: &steps, hops_ms, ingresses: 1 };
            let runs = played.estimate_runs().expect("the plans fit");
            assert_eq!(runs, played.estimate_runs().expect("the plans fit"), "the same again");
            ComparedFigure::new(0.0, runs.iter().map(|run| run.attainment).collect()).estimated
        };
        let (low, high) = (plan_for(&problem, 90.0), plan_for(&problem, 180.0));
        let from = |second: u64, plan: &Plan| PlanStart { at: Duration::from_secs(second), plan: plan.clone() };
        let changed = estimated(&[from(0, &low), from(23, &high), from(43, &low)]);
        let late = estimated(&[from(0, &low), from(33, &high), from(43, &low)]);
        let never = estimated(&[from(0, &low)]);
        assert!(changed > 0.8 && changed > late + 0.05 && late > never, "{changed}, {late}, {never}");
        let all = estimated(&[from(0, &high)]);
        assert!(all > 0.99, "{all} with cheaper variants all the time");
    }
}
