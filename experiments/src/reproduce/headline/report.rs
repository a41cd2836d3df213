//! How much does the system cost at equal attainment, against HPA and Ray Serve's autoscaler for each task, on real traces?
//!
//! All start from the same plan, on the same devices, under the same serving policies. Our setting is chosen on an earlier
//! stretch of the trace. The settings of the others (target, least replicas) are the best in hindsight on the reported
//! load.

use super::contest::{Contest, ContestLoad, STEP_FACTOR};
use super::headline_claims::claims;
use super::headline_inputs::{HeadlinePipeline, read_pipelines, read_stretches};
use super::headline_trials::{
    ATTAINMENT, HPA_TARGETS, RAY_TARGETS, SYSTEM_HEADROOMS, StretchResult, run_settings, run_stretch,
};
use super::{overload, system};
use crate::reproduce::lab::Lab;
use crate::reproduce::report::{Report, TitledTable};
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, percent};

const HEADER: [&str; 12] = [
    "pipeline and trace",
    "who",
    "cheapest setting",
    "cost/h",
    "attainment",
    "of ours",
    "attainment at our cost",
    "utilisation",
    "set on the earlier stretch",
    "cost/h",
    "attainment",
    "if the load doubles",
];

fn method() -> String {
    format!(
        "Pipelines of the problem files with their most accurate variants alone, at the given prices, without a limit \
         on devices. Replicas load in 5 s, or in the file's time if it has one. The load is a stretch of a real Twitter \
         stream, with one factor on the rates for each pipeline. All contenders start from the same plan, for the \
         median rate of an earlier stretch with a burst in it. They keep its hardware and batch sizes. Queries are \
         served alike: batches close at start, and dropping is per task. Reports come 100 ms late, and commands take \
         100 ms. Ours is the whole system. Every 10 s it measures the load. If the load has reached another demand of a \
         grid (factor {}), it plans again, which takes {} s. The exact planner with its check loop and the greedy one \
         both plan, and the cheaper ladder at the demand wins. The new plan replaces the last if it saves more than ten \
         seconds of its own cost over the last minute, by the prices of their ladders. Each plan has a ladder of \
         replica counts, from its demand over {} to {} times it, found by the estimator. Stewards, the machines that \
         agents run, follow the ladder. They go up at once when arrivals are more than chance explains, and down after \
         half a minute, below the plan as well. Under a new plan a steward goes on from the load that it has measured. \
         The run begins with the replicas of the first plan's ladder for the first load. Ours has {} settings: the \
         divisors of the ladders' rates. The ladder alone has one plan for the whole run and no steward. HPA and Ray \
         Serve are the documented algorithms with {} targets and {} targets, with and without a floor on the replicas. \
         Every contender runs with every setting. The cheapest setting that reaches {} on the reported load is \
         compared, and beside it the setting that the earlier stretch chooses. The last column is the same load with {} \
         times the rates in its last third, under the cheapest setting; ours has that of the earlier stretch.",
        system::GRID,
        system::PLANNING.as_millis() / 1e3,
        system::UP_TO,
        system::UP_TO,
        SYSTEM_HEADROOMS.len(),
        HPA_TARGETS.len(),
        RAY_TARGETS.len(),
        percent(ATTAINMENT),
        STEP_FACTOR,
    )
}

/// Cost at equal attainment against HPA and Ray Serve.
pub fn report(lab: &Lab) -> Result<Report, Failure> {
    let stretches = read_stretches(lab)?;
    let mut all = Vec::new();
    let mut plans = TextTable::new(&["pipeline and trace", "the plan that all start from"]);
    for HeadlinePipeline { name: pipeline, problem, factor } in read_pipelines(lab)? {
        let scaled = |rates: &[f64]| rates.iter().map(|r| r * factor).collect::<Vec<_>>();
        lab.show_step(format!("headline: {pipeline}, the earlier stretch"));
        let seen = scaled(&stretches.seen);
        let Some(contest) = Contest::new(lab, pipeline.clone(), &problem, &seen)? else {
            plans.row(vec![pipeline, "none holds".into()]);
            continue;
        };
        let before = run_settings(lab, &contest, &ContestLoad::new(&seen, lab.seed))?;
        for stretch in &stretches.judged {
            let name = format!("{pipeline}, {}", stretch.name);
            lab.show_step(format!("headline: {name}"));
            all.push(run_stretch(lab, &contest, &before, name, &scaled(&stretch.rates))?);
        }
    }
    let mut table = TextTable::new(&HEADER);
    for tried in &all {
        tried.rows(&mut table);
        plans.row(vec![tried.name.clone(), tried.plan.clone()]);
    }
    let (beyond_table, beyond) = overload::compare(lab)?;
    Ok(Report {
        name: "headline",
        title: "Cost at equal attainment against HPA and Ray Serve",
        source: "our own aim",
        method: method(),
        claims: claims(&all).into_iter().chain([beyond]).collect(),
        plots: all.iter().map(StretchResult::plot).collect(),
        tables: vec![
            TitledTable { title: "The cheapest setting that reaches 99 %".into(), table },
            beyond_table,
            TitledTable { title: "Plans".into(), table: plans },
        ],
    })
}
