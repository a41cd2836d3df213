//! Our own headline: cost at equal attainment against what users run today on each stage, HPA target tracking and Ray Serve's
//! autoscaler, on real traces.
//!
//! All start from the same plan, on the same devices, under the same serving policies. Ours is set on an earlier stretch of the
//! trace; what the others are told (target, least replicas) is the best in hindsight on the very load that is reported.

use super::contest::{Contest, Point, Scaler, cloud};
use super::lab::{Lab, bursts, in_parallel};
use super::metrics::geometric_mean;
use super::plot::{Plot, Series};
use super::report::{Claim, Report, Titled, Verdict};
use super::{lab, percent};
use crate::exit::Failure;
use crate::output::{Table, optional};
use apportion_domain::Problem;

const TRAFFIC: &str = include_str!("../../../../examples/traffic.yaml");
/// What all contenders are held to.
const ATTAINMENT: f64 = 0.99;
/// What ours must reach on the stretch that it is set on: half of the misses that are allowed.
const REHEARSED: f64 = 0.995;
/// What the rates of our ladder are multiplied with.
const HEADROOMS: [f64; 8] = [0.9, 1.0, 1.1, 1.2, 1.4, 1.7, 2.0, 2.5];
/// The same for what the tuner asks for.
const TUNER_FACTORS: [f64; 5] = [0.35, 0.4, 0.5, 0.7, 1.0];
/// Targets of utilisation.
const HPA_TARGETS: [f64; 11] = [0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9];
/// Ongoing requests for each replica; Ray's default is 2.
const RAY_TARGETS: [f64; 6] = [0.25, 0.5, 0.75, 1.0, 2.0, 4.0];
/// Least replicas of each group over the plan's.
const FLOORS: [f64; 2] = [0.0, 2.0];
/// Replicas over the plan's without any scaling.
const FIXED: [f64; 6] = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0];
const NAMES: [&str; 5] = ["ours", "InferLine's tuner", "HPA", "Ray Serve", "fixed"];

/// A stretch of a trace to report on, and an earlier one to prepare on.
struct Stretch {
    name: &'static str,
    seen: Vec<f64>,
    judged: Vec<f64>,
}

/// Twitter's first day and windows of other days, of mean 64 queries/s over the day, as they are.
fn stretches(lab: &Lab) -> Result<Vec<Stretch>, Failure> {
    const HOUR: usize = 3600;
    let Some(day) = lab.data_file("traces/ipa_twitter_day1.csv") else {
        let trace = |seconds| bursts(seconds, seconds / 4, seconds / 16, 4.0).iter().map(|r| 64.0 * r).collect();
        let seconds = lab.pick(1200, 60);
        return Ok(vec![Stretch { name: "bursts x4", seen: trace(seconds), judged: trace(seconds) }]);
    };
    let day = lab.rates(&day, Some("qps"), 24 * HOUR)?;
    let hours = |from: f64, to: f64| day[(from * HOUR as f64) as usize..(to * HOUR as f64) as usize].to_vec();
    let window = |file: &str| -> Result<Vec<f64>, Failure> {
        let path = lab.data_file(file).ok_or_else(|| anyhow::anyhow!("no data folder"))?;
        lab.rates(&path, Some("qps"), HOUR)
    };
    let mut all = vec![
        Stretch { name: "day 1, 4:00", seen: hours(1.5, 2.0), judged: hours(4.0, 4.5) },
        Stretch { name: "day 16, bursty", seen: hours(1.5, 2.0), judged: window("traces/ipa_window_bursty_1301160_1302360.csv")? },
        Stretch { name: "day 16, steady", seen: hours(1.5, 2.0), judged: window("traces/ipa_window_steady_1299600_1300800.csv")? },
    ];
    if lab.quick {
        all.truncate(1);
        all[0].seen.truncate(30);
        all[0].judged.truncate(30);
    }
    Ok(all)
}

/// Pipelines of the problem files with what the trace's rates are multiplied with, so that some ten to twenty replicas serve them.
fn pipelines(lab: &Lab) -> Result<Vec<(String, Problem, f64)>, Failure> {
    if lab.data.is_none() {
        let traffic = lab::built_in_problem("examples/traffic.yaml", TRAFFIC)?;
        return Ok(vec![("traffic".into(), cloud(&traffic)?, 0.3)]);
    }
    let files = [("loki_traffic_00", 0.4), ("ext_share_00", 2.0), ("ext_dag_00", 1.0), ("loki_rand_03", 1.0)];
    let of = |(name, factor): (&str, f64)| {
        let problem = lab.problem(&format!("problems/{name}.json"), "examples/traffic.yaml", TRAFFIC)?;
        Ok((name.to_owned(), cloud(&problem)?, factor))
    };
    files.into_iter().take(lab.pick(files.len(), 1)).map(of).collect()
}

/// Everything that was tried on one contest.
struct Tried {
    name: String,
    plan: String,
    /// By contender, in the order of [`NAMES`].
    curves: [Vec<(Scaler, Point)>; 5],
    /// Ours with the setting that the earlier stretch asked for.
    ours: (Scaler, Point),
}

fn settings() -> [Vec<Scaler>; 5] {
    let floored = |targets: &[f64], of: fn(f64, f64) -> Scaler| -> Vec<Scaler> {
        FLOORS.iter().flat_map(|&floor| targets.iter().map(move |&target| of(target, floor))).collect()
    };
    [
        HEADROOMS.map(Scaler::Ladder).to_vec(),
        TUNER_FACTORS.map(Scaler::Tuner).to_vec(),
        floored(&HPA_TARGETS, Scaler::Hpa),
        floored(&RAY_TARGETS, Scaler::Ray),
        FIXED.map(Scaler::Fixed).to_vec(),
    ]
}

fn tried(contest: &Contest) -> Result<Tried, Failure> {
    let run = |scaler: &Scaler| Ok((*scaler, contest.run(*scaler)?));
    let mut curves = Vec::new();
    for scalers in settings() {
        curves.push(in_parallel(&scalers, run)?);
    }
    let rehearsed = in_parallel(&HEADROOMS, |&h| contest.rehearse(Scaler::Ladder(h)))?;
    let enough = rehearsed.iter().position(|p| p.attainment >= REHEARSED).unwrap_or(HEADROOMS.len() - 1);
    let curves: [Vec<(Scaler, Point)>; 5] = curves.try_into().map_err(|_| anyhow::anyhow!("a curve for each contender"))?;
    let ours = curves[0][enough];
    Ok(Tried { name: contest.name.clone(), plan: contest.planned(), curves, ours })
}

impl Tried {
    /// The cheapest setting of a contender that reaches an attainment.
    fn cheapest(&self, contender: usize, attainment: f64) -> Option<&(Scaler, Point)> {
        let reaching = self.curves[contender].iter().filter(|(_, p)| p.attainment >= attainment);
        reaching.min_by(|a, b| a.1.cost_per_hour.total_cmp(&b.1.cost_per_hour))
    }

    /// What a contender costs at the attainment that all are held to, over what ours costs as it was set.
    fn ratio(&self, contender: usize) -> Option<f64> {
        let other = self.cheapest(contender, ATTAINMENT)?.1.cost_per_hour;
        (self.ours.1.attainment >= ATTAINMENT).then_some(other / self.ours.1.cost_per_hour)
    }

    /// The best attainment of a contender at no more than what ours costs.
    fn at_our_cost(&self, contender: usize) -> Option<f64> {
        let affordable = self.curves[contender].iter().filter(|(_, p)| p.cost_per_hour <= self.ours.1.cost_per_hour);
        affordable.map(|(_, p)| p.attainment).max_by(f64::total_cmp)
    }

    fn rows(&self, table: &mut Table) {
        let mut row = |who: &str, best: Option<&(Scaler, Point)>, ratio: Option<f64>, affordable: Option<f64>| {
            let point = best.map(|b| b.1);
            table.row(vec![
                self.name.clone(),
                who.into(),
                best.map_or_else(|| "none reaches it".into(), |b| b.0.setting()),
                optional(point.map(|p| p.cost_per_hour)),
                point.map_or_else(|| "-".into(), |p| percent(p.attainment)),
                ratio.map_or_else(|| "-".into(), |r| format!("{r:.2}")),
                affordable.map_or_else(|| "-".into(), percent),
                point.map_or_else(|| "-".into(), |p| percent(p.utilisation)),
                point.map_or_else(|| "-".into(), |p| p.changes.to_string()),
            ]);
        };
        row("ours, set before", Some(&self.ours), Some(1.0), None);
        for (i, name) in NAMES.iter().enumerate() {
            let name = if i == 0 { "ours, in hindsight" } else { name };
            row(name, self.cheapest(i, ATTAINMENT), self.ratio(i), self.at_our_cost(i).filter(|_| i > 0));
        }
    }

    fn plot(&self) -> Plot {
        let curve = |(name, points): (&&str, &Vec<(Scaler, Point)>)| {
            let mut points: Vec<(f64, f64)> = points.iter().map(|(_, p)| (p.cost_per_hour, 100.0 * p.attainment)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            // the best at no more than a cost: settings that cost more for less are not on the curve
            let mut best = f64::NEG_INFINITY;
            points.retain(|p| p.1 > best && { best = p.1; true });
            points.retain(|p| p.1 >= SHOWN_MIN);
            Series { name: (*name).into(), points }
        };
        Plot {
            title: format!("{}: attainment by cost", self.name),
            x: "cost per hour".into(),
            y: "attainment (%)".into(),
            series: NAMES.iter().zip(&self.curves).map(curve).collect(),
            places: vec![],
        }
    }
}

/// Plots start at this attainment, in percent.
const SHOWN_MIN: f64 = 80.0;

fn claims(all: &[Tried]) -> Vec<Claim> {
    let against = |contender: usize, name: &str, why: &str| {
        let ratios: Vec<f64> = all.iter().filter_map(|t| t.ratio(contender)).collect();
        let never = all.iter().filter(|t| t.cheapest(contender, ATTAINMENT).is_none()).count();
        let halved = ratios.iter().filter(|r| **r >= 2.0).count() + never;
        let below: Vec<String> = all
            .iter()
            .filter_map(|t| t.ratio(contender).filter(|r| *r < 2.0).map(|r| format!("{} ({r:.2})", t.name)))
            .collect();
        Claim {
            claimed: format!("At most half the cost of {name} at equal attainment, or an attainment that it cannot reach (aim)"),
            seen: format!(
                "so in {halved} of {}; it costs {} times as much on the mean, and never reaches {} in {never}{}",
                all.len(),
                optional(geometric_mean(&ratios)),
                percent(ATTAINMENT),
                if below.is_empty() { String::new() } else { format!("; less than twice: {}", below.join(", ")) }
            ),
            verdict: Verdict::of(halved == all.len()),
            why: why.into(),
        }
    };
    let held = all.iter().filter(|t| t.ours.1.attainment >= ATTAINMENT).count();
    vec![
        against(
            2,
            "HPA",
            "HPA looks every 15 s and then waits for replicas to load, so the load must fit what is there until then: its target              must be low all the time. What it adds it keeps for five minutes. And it sees how busy replicas are, not how              much more they would serve with fuller batches. Where the load is steady none of this costs much.",
        ),
        against(
            3,
            "Ray Serve",
            "Ray Serve decides on means of half a minute, half a minute late, and keeps what it added for ten minutes.",
        ),
        Claim {
            claimed: "What was set on an earlier stretch holds on the one that is reported (aim)".into(),
            seen: format!("{} reached in {held} of {}", percent(ATTAINMENT), all.len()),
            verdict: Verdict::of(held == all.len()),
            why: "While replicas load, a burst that starts within a second is lost beyond what the replicas of before serve: its                   height and how often it comes decide, and these differ between stretches."
                .into(),
        },
    ]
}

/// Cost at equal attainment against HPA and Ray Serve.
pub fn report(lab: &Lab) -> Result<Report, Failure> {
    let stretches = stretches(lab)?;
    let mut all = Vec::new();
    let mut plans = Table::new(&["pipeline and trace", "the plan that all start from"]);
    for (pipeline, problem, factor) in pipelines(lab)? {
        for stretch in &stretches {
            let name = format!("{pipeline}, {}", stretch.name);
            lab.now(format!("headline: {name}"));
            let [seen, judged] = [&stretch.seen, &stretch.judged].map(|rates| rates.iter().map(|r| r * factor).collect::<Vec<_>>());
            match Contest::new(lab, name.clone(), &problem, &seen, &judged)? {
                Some(contest) => {
                    let start = std::time::Instant::now();
                    all.push(tried(&contest)?);
                    eprintln!("TIME {name} {:?} {}", start.elapsed(), contest.planned());
                    let mut t = Table::new(&["a","b","c","d","e","f","g","h","i"]);
                    all.last().unwrap().rows(&mut t);
                    eprintln!("{}", t.text("  "));
                }
                None => plans.row(vec![name, "none holds".into()]),
            }
        }
    }
    let mut table = Table::new(&[
        "pipeline and trace",
        "who",
        "setting",
        "cost/h",
        "attainment",
        "of ours",
        "attainment at our cost",
        "utilisation",
        "changes",
    ]);
    for tried in &all {
        tried.rows(&mut table);
        plans.row(vec![tried.name.clone(), tried.plan.clone()]);
    }
    Ok(Report {
        name: "headline",
        title: "Cost at equal attainment against HPA and Ray Serve",
        source: "our own aim",
        method: format!(
            "Pipelines of the problem files, the most accurate variants alone, prices as given, no limit of devices, replicas that load              in {} (the file's time where it has one), on stretches of a real Twitter stream whose rates are multiplied by one number for              each pipeline. All contenders start from the same plan and keep its hardware and batch sizes, queries are served alike              (batches at start, per-task dropping), reports come 100 ms late and commands take 100 ms. Ours: a plan for the median              rate of an earlier stretch, and a ladder of replica counts that the estimator found for {} rates, climbed as arrivals rise; its              headroom is the least that misses at most {} on the earlier stretch. HPA and Ray Serve: the documented algorithms with every              combination of {} targets and {} targets with {} floors on the replicas, of which the cheapest that reaches {} on the              reported load itself is shown: hindsight that ours does not have (its own best in hindsight is shown beside it).",
            "5 s",
            super::contest::STEPS.2,
            percent(1.0 - REHEARSED),
            HPA_TARGETS.len(),
            RAY_TARGETS.len(),
            FLOORS.len(),
            percent(ATTAINMENT),
        ),
        claims: claims(&all),
        plots: all.iter().step_by(stretches.len().max(1)).chain(all.iter().skip(2).step_by(stretches.len().max(1))).take(6).map(Tried::plot).collect(),
        tables: vec![
            Titled { title: "The cheapest setting that reaches 99 %".into(), table },
            Titled { title: "Plans".into(), table: plans },
        ],
    })
}
