//! How do accuracy and misses change with the SLO (Loki Fig. 8)?

use super::traffic::traffic_problem;
use crate::reproduce::lab::{Lab, Records, day_ramp, drop_rate, load, rate_quantile, replay, scaled, with_pipeline};
use crate::reproduce::report::{Claim, ClaimVerdict, Plot, Report, Series, TitledTable};
use apportion_domain::Dropping;
use apportion_estimator::{ArrivalProcess, Workload};
use apportion_planning::Planner;
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, number, percent};

/// The shape of a day in a few minutes, from 50 to 425 queries per second.
fn day(lab: &Lab) -> Result<Vec<f64>, Failure> {
    let seconds = lab.full_or_quick(300, 8);
    if let Some(file) = lab.data_file("traces/anchor_ta300.csv") {
        return lab.rates(&file, None, seconds);
    }
    Ok(day_ramp(seconds))
}

/// Loki Fig. 8: tight and loose SLOs.
pub fn slo(lab: &Lab) -> Result<Report, Failure> {
    let problem = traffic_problem(lab)?;
    let shape = scaled(&day(lab)?, 1.0);
    let peak = rate_quantile(&shape, 0.95);
    // With this peak, the paper's SLO needs accuracy scaling on these profiles.
    let rates = scaled(&shape, 300.0 / peak);
    let rates: Vec<f64> = rates.into_iter().step_by(5).collect();
    let seen: Workload = load(&rates, ArrivalProcess::Poisson, lab.seed);
    let judged = load(&rates, ArrivalProcess::Poisson, lab.held_out_seed());
    let mut table = TextTable::new(&["SLO ms", "accuracy", "drop from best", "missed", "replicas"]);
    let (mut accuracy, mut missed) = (Vec::new(), Vec::new());
    for slo_ms in lab.full_or_quick(vec![150.0, 200.0, 250.0, 300.0, 350.0, 400.0], vec![250.0]) {
        lab.show_step(format!("loki-slo: {slo_ms} ms"));
        let asked = with_pipeline(&problem, 0, |d| {
            d.slo_ms = slo_ms;
            d.demand_qps = rate_quantile(&rates, 0.95);
            d.serving.dropping = Some(Dropping::Reroute);
        })?;
        let Some(plan) = lab.plan(&asked, Planner::Milp, Some(seen.clone())) else {
            table.row(vec![number(slo_ms), "-".into(), "-".into(), "no plan".into(), "-".into()]);
            continue;
        };
        let e = replay(&asked, &plan, &judged, Dropping::Reroute, Records::Skip)?.total;
        accuracy.push((slo_ms, e.accuracy));
        missed.push((slo_ms, 100.0 * drop_rate(&e)));
        table.row(vec![
            number(slo_ms),
            number(e.accuracy),
            percent(1.0 - e.accuracy),
            percent(drop_rate(&e)),
            plan.replicas().to_string(),
        ]);
    }
    let rises = accuracy.windows(2).filter(|w| w[1].1 >= w[0].1 - 0.005).count();
    let steps = accuracy.len().saturating_sub(1);
    let plot = |title: &str, y: &str, points| Plot {
        title: title.into(),
        x: "SLO (ms)".into(),
        y: y.into(),
        series: vec![Series { name: "two-step".into(), points }],
        places: vec![],
    };
    Ok(Report {
        name: "loki-slo",
        title: "Accuracy and misses under tight and loose SLOs",
        source: "Loki, Fig. 8",
        method: method(),
        claims: vec![Claim {
            claimed: "Accuracy rises with the SLO, sharply at first, then less and less (section 6.4)".into(),
            seen: format!("rises or stays at {rises} of {steps} steps"),
            verdict: ClaimVerdict::of(rises == steps),
            why: "Among plans that hold, the check loop may stop at one that is not the most accurate.".into(),
        }],
        tables: vec![TitledTable { title: "By SLO".into(), table }],
        plots: vec![
            plot("Accuracy by SLO", "accuracy", accuracy),
            plot("Missed root requests by SLO", "missed (%)", missed),
        ],
    })
}

/// The method, in words.
fn method() -> String {
    "The traffic pipeline on 20 devices with a day's shape whose 95th percentile is 300 queries/s. Each SLO has one \
     static two-step plan. The check loop makes it on one seed, the next seed judges it, and it is served with \
     rerouting."
        .into()
}
