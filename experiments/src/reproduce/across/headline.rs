//! How much does the system cost at equal attainment, against HPA and Ray Serve's autoscaler for each task, on real traces?
//!
//! All start from the same plan, on the same devices, under the same serving policies. Our setting is chosen on an earlier
//! stretch of the trace. The settings of the others (target, least replicas) are the best in hindsight on the reported
//! load.

use super::contest::{Contest, Load, STEP_FACTOR};
use super::headline_claims::claims;
use super::headline_inputs::{read_pipelines, read_stretches};
use super::headline_trials::{
    ATTAINMENT, HPA_TARGETS, RAY_TARGETS, SYSTEM_HEADROOMS, StretchResult, run_settings, run_stretch,
};
use super::{overload, system};
use crate::reproduce::lab::Lab;
use crate::reproduce::report::{Report, TitledTable};
use apportion_support::exit::Failure;
use apportion_support::output::{Table, percent};

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
        "Pipelines of the problem files, the most accurate variants alone, prices as given, no limit of devices, replicas \
         that load in 5 s \
         (the file's time where it has one), on stretches of a real Twitter stream whose rates are multiplied by one \
         number for each \
         pipeline. All contenders start from the same plan, for the median rate of an earlier stretch with a burst in it, \
         and keep its \
         hardware and batch sizes; queries are served alike (batches at start, per-task dropping), reports come 100 ms \
         late and commands \
         take 100 ms. Ours is the whole system: every 10 s the load is looked at and, if it has reached another demand of \
         a grid \
         (factor {}), planned for again, which takes {} s: by the exact planner with its check loop and by the greedy \
         one, whichever has the cheaper \
         ladder at the demand. The new plan replaces the last where it would have been cheaper over the last minute, by \
         the prices of their \
         ladders, by more than ten seconds of it. Each plan has a ladder of \
         replica counts, from its demand over {} to {} times it, found by the estimator. Stewards, the machines that \
         agents run, climb it: up at once \
         when arrivals are more than chance explains, down after half a minute, below the plan as well; under a new plan \
         they go on \
         from what they have seen. It begins with the replicas of its first plan's ladder for the first load, and has {} \
         settings: what the rates \
         of ladders are divided by. The ladder alone has one plan for all of the run and no steward. HPA and Ray Serve \
         are the documented algorithms with \
         {} targets and {} targets, with and without a floor on the replicas. Each contender has every setting tried; the \
         cheapest that \
         reaches {} on the reported load is compared, and beside it what the earlier stretch would have chosen. The last \
         column is the same \
         load, but {} times as much in its last third, under the cheapest setting, and for ours under that of the earlier \
         stretch.",
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
    let mut plans = Table::new(&["pipeline and trace", "the plan that all start from"]);
    for (pipeline, problem, factor) in read_pipelines(lab)? {
        let scaled = |rates: &[f64]| rates.iter().map(|r| r * factor).collect::<Vec<_>>();
        lab.show_step(format!("headline: {pipeline}, the earlier stretch"));
        let seen = scaled(&stretches.seen);
        let Some(contest) = Contest::new(lab, pipeline.clone(), &problem, &seen)? else {
            plans.row(vec![pipeline, "none holds".into()]);
            continue;
        };
        let before = run_settings(lab, &contest, &Load::new(&seen, lab.seed))?;
        for (stretch, rates) in &stretches.judged {
            let name = format!("{pipeline}, {stretch}");
            lab.show_step(format!("headline: {name}"));
            all.push(run_stretch(lab, &contest, &before, name, &scaled(rates))?);
        }
    }
    let mut table = Table::new(&HEADER);
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
