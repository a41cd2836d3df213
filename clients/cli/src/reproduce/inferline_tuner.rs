//! InferLine's tuner (section 7.2): ramps and bursts that the plan was not made for, with and without it.

use super::lab::{Lab, built_in_problem, in_parallel, load, with_pipeline};
use super::loki::mean;
use super::metrics::drop_rate;
use super::percent;
use super::plot::{Plot, Series};
use super::report::{Claim, Report, Titled, Verdict};
use crate::exit::Failure;
use crate::output::{Table, number};
use anyhow::anyhow;
use apportion_domain::{Plan, Problem};
use apportion_estimator::{ArrivalProcess, Controller, Replay, Scenario, SimulateOptions, Workload, controllers, replay};
use apportion_planning::Planner;

const PROBLEM: &str = include_str!("../../../../examples/reproduce/inferline.yaml");
/// Rate that everybody plans for.
const PLANNED_QPS: f64 = 150.0;
/// SLO: the middle of Fig. 5.
const SLO_MS: f64 = 300.0;
/// Replicas load in the paper in 5 s (section 5.1).
const LOAD_MS: f64 = 5000.0;
/// Who plans, and whether the tuner follows: the paper's three, and its own without the tuner.
const CONTENDERS: [(&str, Planner, bool); 4] = [
    ("greedy and tuner", Planner::Greedy, true),
    ("greedy alone", Planner::Greedy, false),
    ("cg-peak", Planner::CgPeak, false),
    ("cg-mean", Planner::CgMean, false),
];

/// A load that is not the one that was planned for.
struct Change {
    name: String,
    rates: Vec<f64>,
    arrivals: ArrivalProcess,
}

fn changes(lab: &Lab) -> Vec<Change> {
    let (calm, seconds) = lab.pick((30, 180), (4, 12));
    let ramp = |to: f64, over: usize| -> Vec<f64> {
        let at = |s: usize| PLANNED_QPS + (to - PLANNED_QPS) * (s.saturating_sub(calm) as f64 / over as f64).min(1.0);
        (0..seconds).map(at).collect()
    };
    let poisson = |name: String, rates| Change { name, rates, arrivals: ArrivalProcess::Poisson };
    let mut all = vec![poisson("as planned".into(), vec![PLANNED_QPS; seconds])];
    for (to, over) in [(250.0, 60), (250.0, 10), (400.0, 60)] {
        all.push(poisson(format!("to {to:.0} queries/s over {over} s"), ramp(to, over)));
    }
    all.push(poisson("down to 50 queries/s over 30 s".into(), ramp(50.0, 30)));
    all.push(Change {
        name: "CV 4 at the planned rate".into(),
        rates: vec![PLANNED_QPS; seconds],
        arrivals: ArrivalProcess::Gamma(4.0),
    });
    all.truncate(lab.pick(usize::MAX, 2));
    all
}

fn followed(
    lab: &Lab,
    problem: &Problem,
    plan: &Plan,
    change: &Change,
    sample: Option<&Workload>,
) -> Result<Replay, Failure> {
    let tuner = sample.map(|sample| controllers::tuner(problem, plan, sample)).transpose().map_err(|e| anyhow!("{e}"))?;
    let controllers: Vec<Box<dyn Controller>> = tuner.into_iter().collect();
    let workload = load(&change.rates, change.arrivals, lab.held_out());
    let scenario = Scenario { controllers, ..Scenario::default() };
    Ok(replay(problem, plan, &workload, &SimulateOptions::default(), scenario).map_err(anyhow::Error::new)?)
}

/// Missed by window of 5 s, in percent.
fn over_time(run: &Replay) -> Vec<(f64, f64)> {
    let joined = run.windows.chunks(5).map(|w| w[1..].iter().fold(w[0], |a, b| a.with(b)));
    joined.map(|w| (w.start.as_millis() / 1e3, 100.0 * (1.0 - w.attainment()))).collect()
}

/// InferLine Fig. 6, 7, 10 to 12: the tuner on ramps and bursts.
pub fn tuner(lab: &Lab) -> Result<Report, Failure> {
    let all = built_in_problem("examples/reproduce/inferline.yaml", PROBLEM)?;
    let mut table = Table::new(&["pipeline", "load", "who", "missed", "cost/h", "changes"]);
    let (mut plots, mut tuned, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    let mut over_peak: Vec<f64> = Vec::new();
    for pipeline in 0..lab.pick(all.pipelines.len(), 1) {
        let problem = with_pipeline(&all, pipeline, |d| {
            (d.slo_ms, d.demand_qps) = (SLO_MS, PLANNED_QPS);
            d.tasks.iter_mut().flat_map(|t| &mut t.variants).for_each(|v| v.load_ms = LOAD_MS);
        })?;
        let name = problem.pipelines[0].name.clone();
        let sample = load(&vec![PLANNED_QPS; lab.pick(60, 4)], ArrivalProcess::Poisson, lab.seed);
        let plans = CONTENDERS.map(|(_, planner, _)| lab.plan(&problem, planner, Some(sample.clone())));
        for change in changes(lab) {
            lab.now(format!("inferline-tuner: {name}, {}", change.name));
            let runs = in_parallel(&[0, 1, 2, 3], |&i| match &plans[i] {
                Some(plan) => followed(lab, &problem, plan, &change, CONTENDERS[i].2.then_some(&sample)).map(Some),
                None => Ok(None),
            })?;
            let mut series = Vec::new();
            for ((who, ..), run) in CONTENDERS.iter().zip(&runs) {
                let Some(run) = run else { continue };
                let missed = percent(drop_rate(&run.simulation.total));
                table.row(vec![
                    name.clone(),
                    change.name.clone(),
                    (*who).into(),
                    missed,
                    number(run.cost_per_hour),
                    run.changes.to_string(),
                ]);
                series.push(Series { name: (*who).into(), points: over_time(run) });
            }
            if let [Some(with), Some(without), peak, _] = runs.as_slice() {
                tuned.push(drop_rate(&with.simulation.total));
                alone.push(drop_rate(&without.simulation.total));
                over_peak.extend(peak.as_ref().map(|p| p.cost_per_hour / with.cost_per_hour));
            }
            let title = format!("{name}, {}: missed over time", change.name);
            plots.push(Plot { title, x: "time (s)".into(), y: "missed (%)".into(), series, places: vec![] });
        }
    }
    plots.truncate(4);
    Ok(Report {
        name: "inferline-tuner",
        title: "The tuner on loads that were not planned for",
        source: "InferLine, Fig. 6, 7, 10 to 12",
        method: format!(
            "The pipelines of inferline-cost, SLO {SLO_MS:.0} ms, planned for {PLANNED_QPS:.0} queries/s of Poisson arrivals; replicas load in 5 s. \
             Then the load changes. Baselines keep their plan, as does the greedy plan alone."
        ),
        claims: claims(&tuned, &alone, &over_peak),
        tables: vec![Titled { title: "Missed and paid".into(), table }],
        plots,
    })
}

fn claims(tuned: &[f64], alone: &[f64], over_peak: &[f64]) -> Vec<Claim> {
    let most = over_peak.iter().copied().fold(0.0, f64::max);
    vec![
        Claim {
            claimed: "With the tuner few queries miss on ramps and bursts for which the plan alone fails (section 7.2)"
                .into(),
            seen: format!(
                "on the mean over the loads {} missed with the tuner, {} without",
                percent(mean(tuned)),
                percent(mean(alone))
            ),
            verdict: Verdict::of(mean(tuned) < 0.5 * mean(alone)),
            why: "What still misses is what arrives while replicas load.".into(),
        },
        Claim {
            claimed: "It costs less than coarse-grained plans provisioned for the peak (section 7.2)".into(),
            seen: format!("cg-peak costs up to {most:.1} times as much, on the load that it was planned for included"),
            verdict: Verdict::of(most > 1.0),
            why: "The tuner scales by its busiest short window, so that a rise costs more than the new rate needs.".into(),
        },
    ]
}
