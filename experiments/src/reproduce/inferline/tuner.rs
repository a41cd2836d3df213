//! How much does InferLine's tuner help on ramps and bursts that the plan was not made for (section 7.2)?

use super::tuner_claims::claims;
use super::tuner_runs::{LOAD_MS, PLANNED_QPS, SLO_MS, run_pipeline};
use crate::reproduce::lab::{INFERLINE, Lab, with_pipeline};
use crate::reproduce::report::{Report, TitledTable};
use apportion_support::exit::Failure;
use apportion_support::output::TextTable;

/// InferLine Fig. 6, 7, 10 to 12: the tuner on ramps and bursts.
pub fn tuner(lab: &Lab) -> Result<Report, Failure> {
    let all = INFERLINE.problem()?;
    let mut table = TextTable::new(&["pipeline", "load", "who", "missed", "cost/h", "plan/h", "changes"]);
    let (mut plots, mut seen) = (Vec::new(), Vec::new());
    for pipeline in 0..lab.full_or_quick(all.pipelines.len(), 1) {
        let problem = with_pipeline(&all, pipeline, |d| {
            (d.slo_ms, d.demand_qps) = (SLO_MS, PLANNED_QPS);
            d.tasks.iter_mut().flat_map(|t| &mut t.variants).for_each(|v| v.load_ms = LOAD_MS);
        })?;
        seen.extend(run_pipeline(lab, &problem, &mut table, &mut plots)?);
    }
    plots.truncate(5);
    Ok(Report {
        name: "inferline-tuner",
        title: "The tuner on loads that were not planned for",
        source: "InferLine, Fig. 6, 7, 10 to 12",
        method: format!(
            "The pipelines of inferline-cost, SLO {SLO_MS:.0} ms, planned for {PLANNED_QPS:.0} queries/s of Poisson \
             arrivals. Replicas load in 5 s. Then the load changes. The oracle plans on the judged load itself, and \
             keeps that plan. The coarse tuner scales whole pipelines once they are overloaded (section 6, after \
             AutoScale; the rule is our reading)."
        ),
        claims: claims(&seen),
        tables: vec![TitledTable { title: "Missed and paid".into(), table }],
        plots,
    })
}
