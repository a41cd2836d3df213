//! PARD's comparisons (sections 5.2 to 5.4): dropping policies on one plan, so that nothing but the policy differs.

use super::lab::{Lab, bursts, load, replay};
use super::metrics::{Seconds, drop_rate, geometric_mean, invalid_rate};
use super::plot::{Plot, Series};
use super::report::{Claim, Report, Titled, Verdict};
use super::{lab, percent};
use crate::exit::Failure;
use crate::output::{Table, number, optional};
use apportion_domain::{Assignment, Dropping, Estimate, Plan, Problem};
use apportion_estimator::{ArrivalProcess, Workload};
use apportion_planning::Planner;

const PROBLEM: &str = include_str!("../../../../examples/reproduce/pard.yaml");
/// Who is compared, the paper's policy first.
const POLICIES: [Dropping; 4] = [Dropping::Pard, Dropping::Nexus, Dropping::ClipperPlusPlus, Dropping::Naive];
const ABLATIONS: [Dropping; 11] = [
    Dropping::PardBack,
    Dropping::PardSf,
    Dropping::PardOc,
    Dropping::PardSplit,
    Dropping::PardWcl,
    Dropping::PardLower,
    Dropping::PardUpper,
    Dropping::PardFcfs,
    Dropping::PardHbf,
    Dropping::PardLbf,
    Dropping::PardInstant,
];
/// The rate that plans are made for; they serve somewhat more, for replicas are whole.
const PLANNED_QPS: f64 = 300.0;
/// A second is overloaded if it offers more than the plan was made for, and so many seconds after it: the length of the
/// window over which PARD averages.
const DRAIN_SECONDS: usize = 5;

/// A load with a name.
struct Bursty {
    name: String,
    rates: Vec<f64>,
}

/// Traces whose rate rises faster than a plan could follow.
fn traces(lab: &Lab) -> Result<Vec<Bursty>, Failure> {
    let seconds = lab.pick(300, 12);
    let mut traces = vec![
        Bursty { name: "bursts x1.5".into(), rates: bursts(seconds, 30.min(seconds / 2), 4, 1.5) },
        Bursty { name: "bursts x2".into(), rates: bursts(seconds, 30.min(seconds / 2), 4, 2.0) },
        Bursty { name: "bursts x4".into(), rates: bursts(seconds, 30.min(seconds / 2), 2, 4.0) },
    ];
    let files = [
        ("traces/ipa_window_bursty_1301160_1302360.csv", "qps", "twitter bursty"),
        ("traces/proteus_twitter_zipf_flat_bursty_300.csv", "qps", "twitter x zipf"),
        ("traces/anchor_ta300.csv", "qps", "twitter day in 300 s"),
    ];
    for (file, column, name) in files {
        if let Some(path) = lab.data_file(file) {
            traces.push(Bursty { name: name.into(), rates: lab.rates(&path, Some(column), seconds)? });
        }
    }
    traces.truncate(lab.pick(usize::MAX, 1));
    Ok(traces)
}

/// Queries per second that a plan serves with full batches, for pipelines in which every request visits every task once.
fn capacity_qps(problem: &Problem, plan: &Plan) -> f64 {
    let pipeline = &problem.pipelines[0];
    let of = |a: &Assignment| -> f64 {
        let place = pipeline.task_named(&a.group.task).zip(problem.hardware_named(&a.group.hardware));
        let variant = place.and_then(|(t, h)| {
            let variant = pipeline.task(t).variants.iter().find(|v| v.name == a.group.variant)?;
            variant.profile.row(h, a.group.share, a.batch)
        });
        variant.map_or(0.0, |row| f64::from(a.replicas) * row.throughput_qps())
    };
    let assignments = &plan.pipelines[0].assignments;
    let task = |name: &str| -> f64 { assignments.iter().filter(|a| a.group.task == name).map(of).sum() };
    pipeline.tasks.iter().map(|t| task(&t.name)).fold(f64::INFINITY, f64::min)
}

/// A pipeline with its plan and a load that exceeds what the plan serves in a quarter of the seconds.
struct Case {
    problem: Problem,
    plan: Plan,
    capacity_qps: f64,
    workload: Workload,
}

fn case(lab: &Lab, pipeline: usize, slo_ms: Option<f64>, trace: &Bursty) -> Result<Option<Case>, Failure> {
    let Some((problem, plan)) = planned(lab, pipeline, slo_ms, PLANNED_QPS)? else { return Ok(None) };
    let capacity_qps = capacity_qps(&problem, &plan);
    let at = lab::rate_quantile(&trace.rates, PROVISIONED);
    let rates: Vec<f64> = trace.rates.iter().map(|r| r * capacity_qps / at).collect();
    let workload = load(&rates, ArrivalProcess::Poisson, lab.held_out());
    Ok(Some(Case { problem, plan, capacity_qps, workload }))
}

/// One pipeline of the four, planned for a rate, by itself.
fn planned(lab: &Lab, pipeline: usize, slo_ms: Option<f64>, qps: f64) -> Result<Option<(Problem, Plan)>, Failure> {
    let all = lab::built_in_problem("examples/reproduce/pard.yaml", PROBLEM)?;
    let problem = lab::with_pipeline(&all, pipeline, |d| {
        d.demand_qps = qps;
        d.slo_ms = slo_ms.unwrap_or(d.slo_ms);
    })?;
    Ok(lab.plan(&problem, Planner::Milp, None).map(|plan| (problem, plan)))
}

/// How one policy fared on one load.
struct Fared {
    policy: Dropping,
    goodput: Option<f64>,
    estimate: Estimate,
}

fn fared(case: &Case, policies: &[Dropping]) -> Result<Vec<Fared>, Failure> {
    let one = |&policy: &Dropping| {
        let run = replay(&case.problem, &case.plan, &case.workload, policy, true)?;
        let seconds = Seconds::of(&run.requests);
        let overloaded = seconds.overloaded(case.capacity_qps, DRAIN_SECONDS);
        Ok(Fared { policy, goodput: seconds.goodput_qps(&overloaded), estimate: run.total })
    };
    policies.iter().map(one).collect()
}

/// Goodput of `a` over that of `b`, where both are known.
fn ratio(a: &Fared, b: &Fared) -> Option<f64> {
    Some(a.goodput? / b.goodput.filter(|g| *g > 0.0)?)
}

/// This share of the seconds stays below what the plan serves: bursts exceed it, the rest of the trace does not.
const PROVISIONED: f64 = 0.75;

/// PARD Fig. 8 and 10: goodput, drop rate and invalid rate.
pub fn goodput(lab: &Lab) -> Result<Report, Failure> {
    let mut table = Table::new(&["pipeline", "trace", "policy", "goodput qps", "of naive", "drop rate", "invalid rate"]);
    let mut duels = Vec::new();
    let mut series: Vec<Series> = POLICIES.iter().map(|p| Series { name: p.name().into(), points: vec![] }).collect();
    let mut places = Vec::new();
    for pipeline in 0..lab.pick(4, 1) {
        for trace in traces(lab)? {
            let Some(made) = case(lab, pipeline, None, &trace)? else { continue };
            let name = made.problem.pipelines[0].name.clone();
            lab.now(format!("pard-goodput: {name} on {}", trace.name));
            let rows = fared(&made, &POLICIES)?;
            for (i, row) in rows.iter().enumerate() {
                let (dropped, invalid) = (drop_rate(&row.estimate), invalid_rate(&row.estimate));
                series[i].points.push((places.len() as f64, 100.0 * dropped));
                table.row(vec![
                    name.clone(),
                    trace.name.clone(),
                    row.policy.name().into(),
                    optional(row.goodput),
                    optional(ratio(row, &rows[3])),
                    percent(dropped),
                    percent(invalid),
                ]);
            }
            places.push(format!("{name} {}", places.len() + 1));
            let case_name = format!("{name} on {}", trace.name);
            duels.extend(rows[1..3].iter().filter_map(|other| duel(&case_name, &rows[0], other)));
        }
    }
    Ok(Report {
        name: "pard-goodput",
        title: "Proactive dropping against reactive dropping on bursts",
        source: "PARD, Fig. 8 and 10",
        method: format!(
            "Four pipelines of invented profiles in the shape of the paper's, planned for {PLANNED_QPS} queries/s; every trace is scaled so \
             that {:.0} % of its seconds stay below what the plan serves with full batches. Batching is `forming` for all; only the \
             dropping policy differs. Goodput is over the seconds above that rate and the {DRAIN_SECONDS} after each; drop \
             rate (late counts as dropped) and invalid rate (device time of requests not in time) are over the whole run.",
            100.0 * PROVISIONED
        ),
        claims: goodput_claims(&duels),
        tables: vec![Titled { title: "Every run".into(), table }],
        plots: vec![Plot {
            title: "Drop rate by workload (rows of the table, in order)".into(),
            x: "workload".into(),
            y: "drop rate (%)".into(),
            series,
            places,
        }],
    })
}

fn listed(cases: &[String]) -> String {
    const SHOWN_MAX: usize = 6;
    let shown = cases.iter().take(SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
    if cases.len() > SHOWN_MAX { format!("{shown}, and {} more", cases.len() - SHOWN_MAX) } else { shown }
}

/// One comparison of the paper's policy with a reactive one.
struct Duel {
    case: String,
    gain: f64,
    /// Drop rate of the other policy.
    dropped: f64,
    wastes_less: bool,
}

fn duel(case: &str, pard: &Fared, other: &Fared) -> Option<Duel> {
    Some(Duel {
        case: format!("{case} ({})", other.policy.name()),
        gain: ratio(pard, other)?,
        dropped: drop_rate(&other.estimate),
        wastes_less: invalid_rate(&pard.estimate) <= invalid_rate(&other.estimate),
    })
}

/// The paper is about loads that require dropping: the reactive policy loses at least this share.
const DROPPING_REQUIRED: f64 = 0.05;

fn goodput_claims(duels: &[Duel]) -> Vec<Claim> {
    let gain = |r: f64| format!("{:+.1} %", 100.0 * (r - 1.0));
    let required: Vec<&Duel> = duels.iter().filter(|d| d.dropped >= DROPPING_REQUIRED).collect();
    let gains: Vec<f64> = required.iter().map(|d| d.gain).collect();
    let (least, most) =
        (gains.iter().copied().fold(f64::INFINITY, f64::min), gains.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    let below: Vec<String> = required.iter().filter(|d| d.gain < 1.16).map(|d| d.case.clone()).collect();
    let lost: Vec<&Duel> = duels.iter().filter(|d| d.gain < 1.0).collect();
    let wasted: Vec<&Duel> = duels.iter().filter(|d| !d.wastes_less).collect();
    let of = |what: &str, behind: &[&Duel]| match behind {
        [] => format!("{what} in all {} comparisons", duels.len()),
        _ => format!("not {what} in {} of {}: {}", behind.len(), duels.len(), listed(&names(behind))),
    };
    let open_or = |holds: bool| if required.is_empty() { Verdict::Open } else { Verdict::of(holds) };
    vec![
        Claim {
            claimed: "Goodput 16 % to 176 % above nexus and clipper++ (abstract)".into(),
            seen: match geometric_mean(&gains) {
                Some(mean) => format!(
                    "{} to {}, mean {}, in the {} comparisons in which the other drops at least 5 %; below 16 % in {}: {}",
                    gain(least),
                    gain(most),
                    gain(mean),
                    gains.len(),
                    below.len(),
                    listed(&below)
                ),
                None => "the others drop less than 5 % everywhere".into(),
            },
            verdict: open_or(below.is_empty()),
            why: "The plan is static, where the paper adds workers that start cold: overload ends with the burst. No policy's goodput \
                  exceeds what the plan serves, so where the other policy drops 10 % beyond the inevitable, the gain is about 10 %."
                .into(),
        },
        Claim {
            claimed: "More goodput than nexus and clipper++ on every bursty trace (aim)".into(),
            seen: of("ahead", &lost),
            verdict: open_or(lost.is_empty()),
            why: milder(&lost),
        },
        Claim {
            claimed: "Less computation wasted than nexus and clipper++ (abstract: 1.5 to 62 times less)".into(),
            seen: of("lower", &wasted),
            verdict: open_or(wasted.is_empty()),
            why: milder(&wasted),
        },
    ]
}

fn names(duels: &[&Duel]) -> Vec<String> {
    duels.iter().map(|d| d.case.clone()).collect()
}

/// How hard the loads are on which the paper's policy is behind.
fn milder(behind: &[&Duel]) -> String {
    let most = behind.iter().map(|d| d.dropped).fold(0.0, f64::max);
    match behind {
        [] => String::new(),
        _ => format!(
            "On those the other policy loses {} at most: there is little to drop, and an estimate of later waits errs on the safe side \
             of a few requests that would have been in time.",
            percent(most)
        ),
    }
}

/// Over the runs of one policy: drop rates, invalid rates, goodputs over that of the full policy, runs with more drops.
type Sum = (f64, f64, Vec<f64>, usize);

/// PARD Fig. 11: each part of the policy taken away.
pub fn ablations(lab: &Lab) -> Result<Report, Failure> {
    let mut table = Table::new(&["policy", "drop rate", "invalid rate", "goodput of pard's", "worse on", "runs"]);
    let policies: Vec<Dropping> = std::iter::once(Dropping::Pard).chain(ABLATIONS).collect();
    let mut sums: Vec<Sum> = vec![(0.0, 0.0, Vec::new(), 0); policies.len()];
    let mut runs = 0;
    for pipeline in lab.pick(vec![0, 1], vec![0]) {
        for trace in traces(lab)? {
            let Some(made) = case(lab, pipeline, None, &trace)? else { continue };
            lab.now(format!("pard-ablations: {} on {}", made.problem.pipelines[0].name, trace.name));
            let rows = fared(&made, &policies)?;
            runs += 1;
            for (sum, row) in sums.iter_mut().zip(&rows) {
                sum.0 += drop_rate(&row.estimate);
                sum.1 += invalid_rate(&row.estimate);
                sum.2.extend(ratio(row, &rows[0]));
                sum.3 += usize::from(drop_rate(&row.estimate) > drop_rate(&rows[0].estimate));
            }
        }
    }
    let n = f64::from(runs.max(1));
    let mut better = Vec::new();
    for (policy, (dropped, invalid, goodputs, worse)) in policies.iter().zip(&sums) {
        if *dropped < sums[0].0 {
            better.push(format!("{} ({} against {})", policy.name(), percent(dropped / n), percent(sums[0].0 / n)));
        }
        table.row(vec![
            policy.name().into(),
            percent(dropped / n),
            percent(invalid / n),
            optional(geometric_mean(goodputs)),
            worse.to_string(),
            runs.to_string(),
        ]);
    }
    let dots = |name: &str, of: fn(&Sum) -> f64| Series {
        name: name.into(),
        points: sums.iter().enumerate().map(|(i, s)| (i as f64, 100.0 * of(s) / n)).collect(),
    };
    let places = policies.iter().map(|p| p.name().trim_start_matches("pard-").to_owned()).collect();
    Ok(Report {
        name: "pard-ablations",
        title: "What each part of PARD is worth",
        source: "PARD, Fig. 11 and Table 1",
        method: "Pipelines tm and lv, plans and traces as in pard-goodput; means over the runs.".into(),
        claims: vec![Claim {
            claimed: "Each ablation drops more than the full policy (section 5.3)".into(),
            seen: match better.is_empty() {
                true => "so for all eleven, on the mean over the runs".into(),
                false => format!("these drop less on the mean: {}", listed(&better)),
            },
            verdict: Verdict::of(better.is_empty()),
            why: match better.is_empty() {
                true => String::new(),
                false => "The parts that decide the order of the queue are worth the least here. A delayed change of order guards \
                          against loads that swing around the capacity; with a static plan and exact profiles an early change costs \
                          little. Differences below half a percentage point are within what another seed changes."
                    .into(),
            },
        }],
        tables: vec![Titled { title: "Means over the runs".into(), table }],
        plots: vec![Plot {
            title: "Ablations: drop rate and invalid rate".into(),
            x: "policy".into(),
            y: "share (%)".into(),
            series: vec![dots("drop rate", |s| s.0), dots("invalid rate", |s| s.1)],
            places,
        }],
    })
}

/// A sweep's rows: one value of what is varied, and how the policies fared.
struct Swept {
    value: f64,
    rows: Vec<Fared>,
}

fn swept_report(rows: &[Swept], unit: &str) -> (Table, Vec<Series>) {
    let mut table = Table::new(&[unit, "policy", "drop rate", "invalid rate", "goodput qps"]);
    let mut series: Vec<Series> = Vec::new();
    for swept in rows {
        for (i, row) in swept.rows.iter().enumerate() {
            if series.len() <= i {
                series.push(Series { name: row.policy.name().into(), points: vec![] });
            }
            series[i].points.push((swept.value, 100.0 * drop_rate(&row.estimate)));
            table.row(vec![
                number(swept.value),
                row.policy.name().into(),
                percent(drop_rate(&row.estimate)),
                percent(invalid_rate(&row.estimate)),
                optional(row.goodput),
            ]);
        }
    }
    (table, series)
}

/// PARD Fig. 14(c): the quantile of the later batch waits.
pub fn lambda(lab: &Lab) -> Result<Report, Failure> {
    let mut rows = Vec::new();
    let trace = traces(lab)?.remove(lab.pick(1, 0));
    if let Some(made) = case(lab, 1, None, &trace)? {
        for (value, policy) in [(0.0, Dropping::PardLower), (0.1, Dropping::Pard), (1.0, Dropping::PardUpper)] {
            lab.now(format!("pard-lambda: {value}"));
            rows.push(Swept { value, rows: fared(&made, &[policy])? });
        }
    }
    let (table, mut series) = swept_report(&rows, "lambda");
    series.iter_mut().for_each(|s| s.name = "drop rate".into());
    let rates: Vec<f64> = rows.iter().map(|r| drop_rate(&r.rows[0].estimate)).collect();
    let shown = rates.iter().map(|r| percent(*r)).collect::<Vec<_>>().join(", ");
    Ok(Report {
        name: "pard-lambda",
        title: "The quantile of later batch waits that PARD reckons with",
        source: "PARD, Fig. 14(c)",
        method: format!(
            "Pipeline lv on {:?}, as in pard-goodput. The serving policy has its quantile built in, so the sweep has three \
             points: none of the later batch wait (pard-lower), the default 0.1, and all of it (pard-upper).",
            trace.name
        ),
        claims: vec![Claim {
            claimed: "The best quantile lies between 0.075 and 0.15 (section 5.4), so 0.1 beats both ends".into(),
            seen: format!("drop rates at 0, 0.1, 1: {shown}"),
            verdict: match rates.iter().any(|r| *r > 0.0) {
                true => Verdict::of(rates.len() == 3 && rates[1] <= rates[0] && rates[1] <= rates[2]),
                false => Verdict::Open,
            },
            why: "The place of the optimum within (0, 1) is not resolved by three points.".into(),
        }],
        tables: vec![Titled { title: "Three quantiles".into(), table }],
        plots: vec![Plot {
            title: "Drop rate by quantile".into(),
            x: "lambda".into(),
            y: "drop rate (%)".into(),
            series,
            places: vec![],
        }],
    })
}

/// PARD Fig. 14(b): the SLO, with a plan of its own at each value.
pub fn slo(lab: &Lab) -> Result<Report, Failure> {
    let values: Vec<f64> = lab.pick(vec![200.0, 300.0, 400.0, 500.0, 600.0], vec![400.0]);
    let trace = traces(lab)?.remove(lab.pick(1, 0));
    let mut rows = Vec::new();
    for value in values {
        lab.now(format!("pard-slo: {value} ms"));
        if let Some(made) = case(lab, 1, Some(value), &trace)? {
            rows.push(Swept { value, rows: fared(&made, &POLICIES)? });
        }
    }
    let (table, series) = swept_report(&rows, "SLO ms");
    let least = |r: &&Swept| r.rows[1..].iter().all(|o| drop_rate(&r.rows[0].estimate) <= drop_rate(&o.estimate));
    let wins = rows.iter().filter(least).count();
    Ok(Report {
        name: "pard-slo",
        title: "Dropping policies under tight and loose SLOs",
        source: "PARD, Fig. 14(b)",
        method: format!("Pipeline lv on {:?}; each SLO has its own plan and batch sizes, as in the paper.", trace.name),
        claims: vec![Claim {
            claimed: "The lowest drop rate at every SLO from 200 to 600 ms (section 5.4)".into(),
            seen: format!("lowest at {wins} of {} SLOs", rows.len()),
            verdict: Verdict::of(wins == rows.len()),
            why: "clipper++ rises and falls with how its fixed parts of the SLO fall beside the batch times of the plan; where they \
                  fall well it drops at the first tasks only, as early as PARD does."
                .into(),
        }],
        tables: vec![Titled { title: "By SLO".into(), table }],
        plots: vec![Plot {
            title: "Drop rate by SLO".into(),
            x: "SLO (ms)".into(),
            y: "drop rate (%)".into(),
            series,
            places: vec![],
        }],
    })
}
