//! How much does planning by task save against planning the pipeline as one box (InferLine section 7.1, Fig. 5 and 9)?

use crate::reproduce::lab::{INFERLINE, JUDGED, Lab, constant, geometric_mean, judge_plans, with_pipeline};
use crate::reproduce::report::{Claim, ClaimVerdict, Plot, Report, Series, TitledTable};
use apportion_domain::{Dropping, Problem};
use apportion_estimator::ArrivalProcess;
use apportion_planning::Planner;
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, number, optional, percent};

const PLANNERS: [Planner; 3] = [Planner::Greedy, Planner::CgMean, Planner::CgPeak];

/// The claims count plans of which more than this share of the requests misses.
const MISSES_MAX: f64 = 0.01;

/// The paper's most that coarse-grained plans cost over the planner's.
const COST_FACTOR: f64 = 7.6;

/// One plan of the comparison and its result.
struct Row {
    pipeline: String,
    cv: f64,
    slo_ms: f64,
    planner: Planner,
    cost: Option<f64>,
    /// Its cost over the greedy plan's.
    ratio: Option<f64>,
    missed: Option<f64>,
}

/// Runs every planner on one pipeline at one burstiness and SLO.
fn compare_planners(lab: &Lab, problem: &Problem, cv: f64, seconds: usize) -> Result<Vec<Row>, Failure> {
    let p = &problem.pipelines[0];
    lab.show_step(format!("inferline-cost: {} CV {cv}, SLO {} ms", p.name, p.slo_ms));
    let load = constant(p.demand_qps, seconds, ArrivalProcess::Gamma(cv), lab.seed);
    let plans = PLANNERS.iter().map(|&planner| lab.plan(problem, planner, Some(load.clone()))).collect();
    let mut rows: Vec<Row> = Vec::new();
    for (planner, judged) in PLANNERS.into_iter().zip(judge_plans(problem, plans, &load, Some(Dropping::Naive))) {
        let missed = judged.as_ref().map(|of| of.missed);
        let cost = judged.map(|of| of.plan.cost_per_hour);
        let greedy = rows.first().map_or(cost, |r| r.cost);
        let ratio = cost.zip(greedy).map(|(c, g)| c / g);
        rows.push(Row { pipeline: p.name.clone(), cv, slo_ms: p.slo_ms, planner, cost, ratio, missed });
    }
    Ok(rows)
}

/// InferLine Fig. 5 and 9: cost and miss rate over burstiness and SLO.
pub fn cost(lab: &Lab) -> Result<Report, Failure> {
    let all = INFERLINE.problem()?;
    let seconds = lab.full_or_quick(30, 4);
    let pipelines = lab.full_or_quick(all.pipelines.len(), 1);
    let mut rows = Vec::new();
    for pipeline in 0..pipelines {
        for cv in lab.full_or_quick(vec![1.0, 4.0], vec![4.0]) {
            for slo_ms in lab.full_or_quick(vec![200.0, 300.0, 450.0, 600.0], vec![450.0]) {
                rows.extend(compare_planners(lab, &with_pipeline(&all, pipeline, |d| d.slo_ms = slo_ms)?, cv, seconds)?);
            }
        }
    }
    let mut table = TextTable::new(&["pipeline", "CV", "SLO ms", "planner", "cost/h", "of greedy", "missed"]);
    let mut costs: Vec<Series> = Vec::new();
    for r in &rows {
        add_point(&mut costs, &format!("{} {}, CV {}", r.pipeline, r.planner.name(), r.cv), r.slo_ms, r.cost);
        table.row(vec![
            r.pipeline.clone(),
            number(r.cv),
            number(r.slo_ms),
            r.planner.name().into(),
            optional(r.cost),
            r.ratio.map_or_else(|| "-".into(), |r| format!("{r:.2}")),
            r.missed.map_or_else(|| "-".into(), percent),
        ]);
    }
    Ok(Report {
        name: "inferline-cost",
        title: "Planning by stage against planning the pipeline as one box",
        source: "InferLine, Fig. 5 and 9",
        method: format!(
            "Two pipelines of invented profiles on a CPU and two GPUs, 150 queries/s, gamma gaps of coefficient of \
             variation CV, {seconds} s. {JUDGED} No dropping, no change during the run."
        ),
        claims: cost_claims(&rows),
        tables: vec![TitledTable { title: "Cost and missed requests".into(), table }],
        plots: all.pipelines[..pipelines].iter().map(|p| plot_of(&costs, &p.name)).collect(),
    })
}

fn add_point(series: &mut Vec<Series>, name: &str, x: f64, y: Option<f64>) {
    let Some(y) = y else { return };
    match series.iter_mut().find(|s| s.name == name) {
        Some(line) => line.points.push((x, y)),
        None => series.push(Series { name: name.into(), points: vec![(x, y)] }),
    }
}

fn plot_of(costs: &[Series], pipeline: &str) -> Plot {
    let own = costs.iter().filter_map(|s| {
        let name = s.name.strip_prefix(pipeline)?.trim().to_owned();
        Some(Series { name, points: s.points.clone() })
    });
    Plot {
        title: format!("{pipeline}: cost by SLO"),
        x: "SLO (ms)".into(),
        y: "cost per hour".into(),
        series: own.collect(),
        places: vec![],
    }
}

fn cost_claims(rows: &[Row]) -> Vec<Claim> {
    let rows_of = |planner: Planner| rows.iter().filter(move |r| r.planner == planner);
    let missed_by = |planner| rows_of(planner).filter_map(|r| r.missed).collect::<Vec<f64>>();
    let (greedy_missed, mean_missed) = (&missed_by(Planner::Greedy), &missed_by(Planner::CgMean));
    let peak_ratios = || rows_of(Planner::CgPeak).filter(|r| r.ratio.is_some());
    let of_cv = |cv: f64| peak_ratios().filter(|r| r.cv == cv).filter_map(|r| r.ratio).collect::<Vec<_>>();
    let most = peak_ratios().filter_map(|r| r.ratio).fold(0.0, f64::max);
    let mean = |cv| optional(geometric_mean(&of_cv(cv)));
    let is_more_on_bursts = geometric_mean(&of_cv(4.0)) > geometric_mean(&of_cv(1.0));
    let missing = |missed: &[f64]| missed.iter().filter(|m| **m > MISSES_MAX).count();
    let worst = |missed: &[f64]| percent(missed.iter().copied().fold(0.0, f64::max));
    vec![
        Claim {
            claimed: "The planner costs up to 7.6 times less than coarse-grained plans (section 7.1), more so on bursts"
                .into(),
            seen: format!(
                "cg-peak costs up to {most:.2} times as much; on the mean {} at CV 1, {} at CV 4",
                mean(1.0),
                mean(4.0)
            ),
            verdict: ClaimVerdict::of_parts(&[most > 1.0, most >= COST_FACTOR, is_more_on_bursts]),
            why: "The factor depends on profiles and prices: it grows with the differences between the stages' use of \
                  hardware. One batch size for all stages on the fastest hardware costs most where one stage is cheap \
                  on a CPU."
                .into(),
        },
        Claim {
            claimed: "The planner's plans meet the SLO on load of the same kind as they were planned on (section 7.1)"
                .into(),
            seen: format!(
                "more than 1 % missed in {} of {} cases, at worst {}",
                missing(greedy_missed),
                greedy_missed.len(),
                worst(greedy_missed)
            ),
            verdict: ClaimVerdict::of(missing(greedy_missed) == 0),
            why: "A plan that its planner's judgement leaves undecided, or for which 5 s were too few, may miss on these \
                  samples: the percentile of short bursty samples is itself uncertain."
                .into(),
        },
        Claim {
            claimed: "CG-Mean misses under bursts (section 7.1)".into(),
            seen: format!(
                "more than 1 % missed in {} of {} cases, at worst {}",
                missing(mean_missed),
                mean_missed.len(),
                worst(mean_missed)
            ),
            verdict: ClaimVerdict::of(missing(mean_missed) > 0),
            why: String::new(),
        },
    ]
}
