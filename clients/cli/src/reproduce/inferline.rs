//! InferLine's comparison of planners (section 7.1, Fig. 5 and 9), and the greedy planner against the exact one.

use super::lab::{Lab, built_in_problem, constant, replay, with_pipeline};
use super::metrics::{drop_rate, geometric_mean};
use super::percent;
use super::plot::{Plot, Series};
use super::report::{Claim, Report, Titled, Verdict};
use crate::exit::Failure;
use crate::input;
use crate::output::{Table, number, optional};
use anyhow::anyhow;
use apportion_domain::{Dropping, Mode, Plan, Problem, TaskIndex};
use apportion_estimator::ArrivalProcess;
use apportion_planning::Planner;
use apportion_wire::ProblemFile;
use std::path::PathBuf;

const PROBLEM: &str = include_str!("../../../../examples/reproduce/inferline.yaml");
const TRAFFIC: &str = include_str!("../../../../examples/traffic.yaml");
const CHAIN: &str = include_str!("../../../../examples/chain.json");
const PLANNERS: [Planner; 3] = [Planner::Greedy, Planner::CgMean, Planner::CgPeak];
/// A plan holds if no more than this share of the held-out requests misses.
const MISSES_MAX: f64 = 0.01;

/// InferLine Fig. 5 and 9: cost and miss rate over burstiness and SLO.
pub fn cost(lab: &Lab) -> Result<Report, Failure> {
    let all = built_in_problem("examples/reproduce/inferline.yaml", PROBLEM)?;
    let mut table = Table::new(&["pipeline", "CV", "SLO ms", "planner", "cost/h", "of greedy", "missed"]);
    let mut costs: Vec<Series> = Vec::new();
    let (mut peak_over, mut greedy_missed, mut mean_missed) = (Vec::new(), Vec::new(), Vec::new());
    let seconds = lab.pick(30, 4);
    for pipeline in 0..lab.pick(all.pipelines.len(), 1) {
        for cv in lab.pick(vec![1.0, 4.0], vec![4.0]) {
            for slo_ms in lab.pick(vec![200.0, 300.0, 450.0, 600.0], vec![450.0]) {
                let problem = with_pipeline(&all, pipeline, |d| d.slo_ms = slo_ms)?;
                let p = &problem.pipelines[0];
                lab.now(format!("inferline-cost: {} CV {cv}, SLO {slo_ms} ms", p.name));
                let load = |seed| constant(p.demand_qps, seconds, ArrivalProcess::Gamma(cv), seed);
                let mut greedy = None;
                for planner in PLANNERS {
                    let plan = lab.plan(&problem, planner, Some(load(lab.seed)));
                    let missed = match &plan {
                        Some(plan) => {
                            Some(drop_rate(&replay(&problem, plan, &load(lab.held_out()), Dropping::Naive, false)?.total))
                        }
                        None => None,
                    };
                    let cost = plan.map(|p| p.cost_per_hour);
                    greedy = greedy.or(cost.filter(|_| planner == Planner::Greedy));
                    let ratio = cost.zip(greedy).map(|(c, g)| c / g);
                    match planner {
                        Planner::Greedy => greedy_missed.extend(missed),
                        Planner::CgMean => mean_missed.extend(missed),
                        _ => peak_over.extend(ratio.map(|r| (cv, r))),
                    }
                    add(&mut costs, &format!("{} {}, CV {cv}", p.name, planner.name()), slo_ms, cost);
                    table.row(vec![
                        p.name.clone(),
                        number(cv),
                        number(slo_ms),
                        planner.name().into(),
                        optional(cost),
                        ratio.map_or_else(|| "-".into(), |r| format!("{r:.2}")),
                        missed.map_or_else(|| "-".into(), percent),
                    ]);
                }
            }
        }
    }
    let plots = lab.pick(all.pipelines.iter().map(|p| p.name.clone()).collect(), vec![all.pipelines[0].name.clone()]);
    Ok(Report {
        name: "inferline-cost",
        title: "Planning by stage against planning the pipeline as one box",
        source: "InferLine, Fig. 5 and 9",
        method: format!(
            "Two pipelines of invented profiles on a CPU and two GPUs, 150 queries/s, gamma gaps of coefficient of variation CV, \
             {seconds} s; planned on one seed, missed is of the next. No dropping, no change during the run."
        ),
        claims: cost_claims(&peak_over, &greedy_missed, &mean_missed),
        tables: vec![Titled { title: "Cost and missed requests".into(), table }],
        plots: plots.into_iter().map(|name| plot_of(&costs, &name)).collect(),
    })
}

fn add(series: &mut Vec<Series>, name: &str, x: f64, y: Option<f64>) {
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

fn cost_claims(peak_over: &[(f64, f64)], greedy_missed: &[f64], mean_missed: &[f64]) -> Vec<Claim> {
    let of_cv = |cv: f64| peak_over.iter().filter(|p| p.0 == cv).map(|p| p.1).collect::<Vec<_>>();
    let most = peak_over.iter().map(|p| p.1).fold(0.0, f64::max);
    let mean = |cv| optional(geometric_mean(&of_cv(cv)));
    let missing = |missed: &[f64]| missed.iter().filter(|m| **m > MISSES_MAX).count();
    let worst = |missed: &[f64]| percent(missed.iter().copied().fold(0.0, f64::max));
    vec![
        Claim {
            claimed: "The planner costs up to 7.6 times less than coarse-grained plans (section 7.1), more so on bursts".into(),
            seen: format!("cg-peak costs up to {most:.2} times as much; on the mean {} at CV 1, {} at CV 4", mean(1.0), mean(4.0)),
            verdict: Verdict::of(most >= 2.0),
            why: "The factor is one of profiles and prices: it grows with how differently the stages use the hardware. A batch of \
                  one size for all stages and the fastest hardware for each cost most where one stage is cheap on a CPU."
                .into(),
        },
        Claim {
            claimed: "The planner's plans meet the SLO on load of the same kind as they were planned on (section 7.1)".into(),
            seen: format!("more than 1 % missed in {} of {} cases, at worst {}", missing(greedy_missed), greedy_missed.len(), worst(greedy_missed)),
            verdict: Verdict::of(missing(greedy_missed) == 0),
            why: "Planned to just hold on one sample of half a minute, a plan may just miss on the next: the percentile of a short \
                  bursty sample is itself uncertain. A longer sample narrows it."
                .into(),
        },
        Claim {
            claimed: "CG-Mean misses under bursts (section 7.1)".into(),
            seen: format!("more than 1 % missed in {} of {} cases, at worst {}", missing(mean_missed), mean_missed.len(), worst(mean_missed)),
            verdict: Verdict::of(missing(mean_missed) > 0),
            why: String::new(),
        },
    ]
}

/// The problems on which the greedy planner meets the exact one: the most accurate variant of each task, least cost, no counts.
fn samples(lab: &Lab) -> Result<Vec<(String, Problem)>, Failure> {
    let mut found = Vec::new();
    if let Some(folder) = lab.data_file("problems") {
        let entries = std::fs::read_dir(&folder).map_err(|e| anyhow!("{}: {e}", folder.display()))?;
        let mut files: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
        files.retain(|f| f.extension().is_some_and(|e| e == "json"));
        files.sort();
        for file in files {
            if let ProblemFile::Allocation(problem) = input::any_problem(&file.display().to_string())? {
                let name = file.file_stem().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
                found.push((name, problem));
            }
        }
    } else {
        found.push(("traffic".into(), built_in_problem("examples/traffic.yaml", TRAFFIC)?));
        found.push(("chain".into(), built_in_problem("examples/chain.json", CHAIN)?));
        let all = built_in_problem("examples/reproduce/inferline.yaml", PROBLEM)?;
        for (i, p) in all.pipelines.iter().enumerate() {
            found.push((p.name.clone(), with_pipeline(&all, i, |_| ())?));
        }
    }
    found.retain(|(_, p)| p.pipelines.len() == 1);
    found.truncate(lab.pick(usize::MAX, 1));
    found.into_iter().map(|(name, p)| Ok((name, most_accurate(&p)?))).collect()
}

/// The same pipeline with one variant for each task, for least cost on as many devices as it takes.
pub fn most_accurate(problem: &Problem) -> Result<Problem, Failure> {
    let p = &problem.pipelines[0];
    let kept: Vec<usize> = (0..p.tasks.len()).filter_map(|t| p.most_accurate(TaskIndex(t)).next().map(|v| v.0)).collect();
    let reduced = with_pipeline(problem, 0, |d| {
        for (task, &v) in d.tasks.iter_mut().zip(&kept) {
            task.variants = vec![task.variants.swap_remove(v)];
        }
        d.path_accuracy.clear();
        d.min_accuracy = None;
    })?;
    let changed = reduced.changed(|d| {
        d.objective.mode = Mode::MinCost;
        d.objective.budget_per_hour = None;
        d.hardware.iter_mut().for_each(|h| h.count = None);
    });
    Ok(changed.map_err(|e| anyhow!("{e:?}"))?)
}

/// A plan with what it costs and misses on load that it has not seen.
struct Checked {
    plan: Plan,
    missed: f64,
}

fn checked(lab: &Lab, problem: &Problem, planner: Planner) -> Result<Option<Checked>, Failure> {
    // some thousand requests: of a few hundred, one percent is a matter of chance
    let seconds = lab.pick((6000.0 / problem.pipelines[0].demand_qps).clamp(15.0, 120.0) as usize, 3);
    let load = |seed| constant(problem.pipelines[0].demand_qps, seconds, ArrivalProcess::Poisson, seed);
    let Some(plan) = lab.plan(problem, planner, Some(load(lab.seed))) else { return Ok(None) };
    let own = plan.pipelines[0].serving.dropping;
    let missed = drop_rate(&replay(problem, &plan, &load(lab.held_out()), own, false)?.total);
    Ok(Some(Checked { plan, missed }))
}

/// Why two plans cost what they do, by what differs between them.
fn difference(greedy: &Plan, exact: &Plan) -> String {
    let sum = |plan: &Plan, of: fn(&apportion_domain::Assignment) -> f64| -> f64 {
        plan.pipelines[0].assignments.iter().map(of).sum::<f64>() / plan.pipelines[0].assignments.len().max(1) as f64
    };
    let hardware = |plan: &Plan| -> Vec<String> {
        let mut names: Vec<String> =
            plan.pipelines[0].assignments.iter().map(|a| format!("{}/{}", a.group.task, a.group.hardware)).collect();
        names.sort();
        names
    };
    let batch = |plan: &Plan| sum(plan, |a| f64::from(a.batch));
    match () {
        () if hardware(greedy) != hardware(exact) => "other hardware".into(),
        () if batch(greedy) > batch(exact) => {
            format!("larger batches ({} to {})", number(batch(greedy)), number(batch(exact)))
        }
        () if batch(greedy) < batch(exact) => {
            format!("smaller batches ({} to {})", number(batch(greedy)), number(batch(exact)))
        }
        () if greedy.replicas() != exact.replicas() => {
            format!("same batches, {} to {} replicas", greedy.replicas(), exact.replicas())
        }
        () => "the same".into(),
    }
}

/// The greedy planner against the exact one after the same check, and where the gap comes from.
pub fn greedy_vs_milp(lab: &Lab) -> Result<Report, Failure> {
    let mut table = Table::new(&[
        "problem",
        "greedy cost",
        "missed",
        "milp cost",
        "missed",
        "milp, no queue factor",
        "missed",
        "greedy/milp",
        "greedy has",
    ]);
    let (mut ratios, mut relaxed, mut points) = (Vec::new(), Vec::new(), Vec::new());
    let (mut held, mut total) = ((0, 0), 0);
    for (name, problem) in samples(lab)? {
        lab.now(format!("greedy-vs-milp: {name}"));
        let greedy = checked(lab, &problem, Planner::Greedy)?;
        let exact = checked(lab, &problem, Planner::Milp)?;
        let loose = checked(lab, &with_pipeline(&problem, 0, |d| d.queue_factor = 1.0)?, Planner::Milp)?;
        let cost = |c: &Option<Checked>| optional(c.as_ref().map(|c| c.plan.cost_per_hour));
        let missed = |c: &Option<Checked>| c.as_ref().map_or_else(|| "-".into(), |c| percent(c.missed));
        let ratio_to = |c: &Option<Checked>| match (&greedy, c) {
            (Some(g), Some(e)) if e.plan.cost_per_hour > 0.0 => Some(g.plan.cost_per_hour / e.plan.cost_per_hour),
            _ => None,
        };
        let ratio = ratio_to(&exact);
        total += 1;
        held.0 += usize::from(greedy.as_ref().is_some_and(|c| c.missed <= MISSES_MAX));
        held.1 += usize::from(exact.as_ref().is_some_and(|c| c.missed <= MISSES_MAX));
        points.extend(ratio.map(|r| (points.len() as f64, r)));
        let holds = |c: &Option<Checked>| c.as_ref().is_some_and(|c| c.missed <= MISSES_MAX);
        if holds(&greedy) && holds(&exact) {
            ratios.extend(ratio);
        }
        if holds(&greedy) && holds(&loose) {
            relaxed.extend(ratio_to(&loose));
        }
        let why = match (&greedy, &exact) {
            (Some(g), Some(e)) => difference(&g.plan, &e.plan),
            (None, Some(_)) => "no plan in time".into(),
            (Some(_), None) => "a plan where the rule allows none".into(),
            (None, None) => "-".into(),
        };
        table.row(vec![
            name,
            cost(&greedy),
            missed(&greedy),
            cost(&exact),
            missed(&exact),
            cost(&loose),
            missed(&loose),
            ratio.map_or_else(|| "-".into(), |r| format!("{r:.2}")),
            why,
        ]);
    }
    let (all, loose) = (geometric_mean(&ratios), geometric_mean(&relaxed));
    Ok(Report {
        name: "greedy-vs-milp",
        title: "The greedy planner against the exact one",
        source: "InferLine, section 4.3; our own aim",
        method: "Every problem of one pipeline, reduced to the most accurate variant of each task, least cost, no counts, so that both \
                 choose hardware, batches and replicas alone. Both are held to the SLO's percentile on one Poisson sample at the \
                 demand and judged on the next. The third column plans exactly with queue factor 1: the formulation then charges a \
                 query no wait, and the check loop alone finds the headroom."
            .into(),
        claims: vec![Claim {
            claimed: "After the same check the greedy planner's cost is near the exact one's, and the gap is explained (aim)".into(),
            seen: format!(
                "greedy costs {} times the exact plan on the mean of the {} problems where both hold, {} times against queue factor 1; held out, \
                 at most 1 % missed: greedy {} of {total}, exact {} of {total}",
                optional(all),
                ratios.len(),
                optional(loose),
                held.0,
                held.1
            ),
            verdict: Verdict::of(all.is_some_and(|r| (0.5..=1.25).contains(&r))),
            why: "Where they differ, the last column says in what: the greedy planner stops where no single step is cheaper, often at \
                  smaller batches on more replicas. No plan in time: it simulates the whole load for each step, which 5 s are too few \
                  for at the largest demands. Problems where a plan misses are left out of the mean: at a fifth of a minute of load, one \
                  that just holds on one sample may miss on the next, and a plan that is too small is cheap."
                .into(),
        }],
        tables: vec![Titled { title: "Costs and missed requests".into(), table }],
        plots: vec![Plot {
            title: "Greedy cost over exact cost, by problem (rows with both, in order)".into(),
            x: "problem".into(),
            y: "ratio".into(),
            series: vec![Series { name: "greedy / milp".into(), points }],
            places: vec![],
        }],
    })
}
