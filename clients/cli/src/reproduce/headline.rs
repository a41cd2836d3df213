//! Our own headline: cost at equal attainment against what users run today on each stage, HPA target tracking and Ray Serve's
//! autoscaler, on real traces.
//!
//! All start from the same plan, on the same devices, under the same serving policies. Ours is set on an earlier stretch of the
//! trace; what the others are told (target, least replicas) is the best in hindsight on the very load that is reported.

use super::contest::{Contest, Load, Point, STEP_FACTOR, Scaler, cloud, stepped};
use super::headline_claims::claims;
use super::lab::{Lab, bursts, in_parallel};
use super::plot::{Plot, Series};
use super::report::{Report, Titled};
use super::system::{self, Setting};
use super::{lab, overload, percent};
use crate::exit::Failure;
use crate::output::{Table, optional};
use apportion_domain::Problem;

const TRAFFIC: &str = include_str!("../../../../examples/traffic.yaml");
/// What all contenders are held to.
pub const ATTAINMENT: f64 = 0.99;
/// What the system multiplies rates with before it looks them up on its plan's ladder.
const SYSTEM_HEADROOMS: [f64; 22] =
    [0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5, 1.7, 2.0, 2.5, 3.0];
/// What the rates of the ladder alone are multiplied with.
const HEADROOMS: [f64; 8] = [0.9, 1.0, 1.05, 1.1, 1.2, 1.4, 1.7, 2.0];
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
/// Contenders, ours first.
pub const NAMES: [&str; CONTENDERS] = ["ours", "ladder alone", "InferLine's tuner", "HPA", "Ray Serve", "fixed"];
const CONTENDERS: usize = 6;
/// Position among [`NAMES`].
pub const OURS: usize = 0;
/// See [`OURS`].
pub const HPA: usize = 3;
/// See [`OURS`].
pub const RAY: usize = 4;

/// Stretches of a trace to report on, and an earlier one to prepare on; rates by second.
struct Stretches {
    seen: Vec<f64>,
    judged: Vec<(&'static str, Vec<f64>)>,
}

/// Twitter's first day and windows of other days, of mean 64 queries/s over the day, as they are.
fn stretches(lab: &Lab) -> Result<Stretches, Failure> {
    const HOUR: usize = 3600;
    let Some(day) = lab.data_file("traces/ipa_twitter_day1.csv") else {
        let trace = |seconds| bursts(seconds, seconds / 4, seconds / 16, 4.0).iter().map(|r| 64.0 * r).collect();
        let seconds = lab.pick(1200, 60);
        return Ok(Stretches { seen: trace(seconds), judged: vec![("bursts x4", trace(seconds))] });
    };
    let day = lab.rates(&day, Some("qps"), 24 * HOUR)?;
    let hours = |from: f64, to: f64| day[(from * HOUR as f64) as usize..(to * HOUR as f64) as usize].to_vec();
    let window = |file: &str| -> Result<Vec<f64>, Failure> {
        let path = lab.data_file(file).ok_or_else(|| anyhow::anyhow!("no data folder"))?;
        lab.rates(&path, Some("qps"), HOUR)
    };
    let mut judged = vec![
        ("day 1, 4:00", hours(4.0, 4.5)),
        ("day 16, bursty", window("traces/ipa_window_bursty_1301160_1302360.csv")?),
        ("day 16, steady", window("traces/ipa_window_steady_1299600_1300800.csv")?),
    ];
    let mut seen = hours(1.5, 2.0);
    if lab.quick {
        judged.truncate(1);
        judged[0].1.truncate(30);
        seen.truncate(30);
    }
    Ok(Stretches { seen, judged })
}

/// Pipelines of the problem files with what the trace's rates are multiplied with, so that some ten to twenty replicas serve them.
fn pipelines(lab: &Lab) -> Result<Vec<(String, Problem, f64)>, Failure> {
    if lab.data.is_none() {
        let traffic = lab::built_in_problem("examples/traffic.yaml", TRAFFIC)?;
        return Ok(vec![("traffic".into(), cloud(&traffic)?, 0.3)]);
    }
    let files = [
        ("loki_traffic_00", 0.4),
        ("ext_share_00", 2.0),
        ("heterotight_02", 2.0),
        ("hetero_00", 2.0),
        ("ext_dag_00", 2.0),
        ("ext_switch_00", 2.0),
    ];
    let of = |(name, factor): (&str, f64)| {
        let problem = lab.problem(&format!("problems/{name}.json"), "examples/traffic.yaml", TRAFFIC)?;
        Ok((name.to_owned(), cloud(&problem)?, factor))
    };
    files.into_iter().take(lab.pick(files.len(), 1)).map(of).collect()
}

/// Everything that was tried on one contest, by contender in the order of [`NAMES`].
pub struct Tried {
    /// Pipeline and stretch.
    pub name: String,
    plan: String,
    curves: Curves,
    /// With the setting that was the cheapest to reach the attainment on the earlier stretch.
    pub set_before: [Option<(Scaler, Point)>; CONTENDERS],
    /// What the best setting in hindsight does where the load then steps up; for ours what was set on the earlier stretch.
    pub surprised: [Option<Point>; CONTENDERS],
}

fn settings(lab: &Lab) -> [Vec<Scaler>; CONTENDERS] {
    let floored = |targets: &[f64], of: fn(f64, f64) -> Scaler| -> Vec<Scaler> {
        FLOORS.iter().flat_map(|&floor| targets.iter().map(move |&target| of(target, floor))).collect()
    };
    let mut all = [
        SYSTEM_HEADROOMS.map(|headroom| Scaler::System(Setting { headroom })).to_vec(),
        HEADROOMS.map(Scaler::Ladder).to_vec(),
        TUNER_FACTORS.map(Scaler::Tuner).to_vec(),
        floored(&HPA_TARGETS, Scaler::Hpa),
        floored(&RAY_TARGETS, Scaler::Ray),
        FIXED.map(Scaler::Fixed).to_vec(),
    ];
    all.iter_mut().for_each(|tried| tried.truncate(lab.pick(tried.len(), 1)));
    all
}

/// Every setting of every contender on one load.
type Curves = [Vec<(Scaler, Point)>; CONTENDERS];

fn curves(lab: &Lab, contest: &Contest<'_>, load: &Load) -> Result<Curves, Failure> {
    let all = settings(lab);
    let scalers: Vec<Scaler> = all.iter().flatten().copied().collect();
    let mut points = in_parallel(&scalers, |scaler| contest.run(load, *scaler))?.into_iter();
    Ok(all.map(|scalers| scalers.into_iter().zip(points.by_ref()).collect()))
}

/// Position of the cheapest that reaches the attainment.
fn cheapest(curve: &[(Scaler, Point)]) -> Option<usize> {
    let reaching = (0..curve.len()).filter(|&at| curve[at].1.attainment >= ATTAINMENT);
    reaching.min_by(|&a, &b| curve[a].1.cost_per_hour.total_cmp(&curve[b].1.cost_per_hour))
}

/// One stretch, for a pipeline on which this was seen before.
fn tried(lab: &Lab, contest: &Contest<'_>, before: &Curves, name: String, rates: &[f64]) -> Result<Tried, Failure> {
    let curves = curves(lab, contest, &Load::new(rates, lab.held_out()))?;
    let mut set_before = [None; CONTENDERS];
    for (i, set) in set_before.iter_mut().enumerate() {
        *set = cheapest(&before[i]).map(|at| curves[i][at]);
    }
    let mut tried = Tried { name, plan: contest.planned(), curves, set_before, surprised: [None; CONTENDERS] };
    let stepped = Load::new(&stepped(rates), lab.held_out());
    for i in 0..CONTENDERS {
        let best = if i == OURS { tried.set_before[i] } else { tried.cheapest(i).copied() };
        tried.surprised[i] = best.map(|(scaler, _)| contest.run(&stepped, scaler)).transpose()?;
    }
    Ok(tried)
}

impl Tried {
    /// The cheapest setting of a contender that reaches the attainment.
    pub fn cheapest(&self, contender: usize) -> Option<&(Scaler, Point)> {
        cheapest(&self.curves[contender]).map(|at| &self.curves[contender][at])
    }

    /// What a contender costs over what ours costs, both at their cheapest that reaches the attainment.
    pub fn ratio(&self, contender: usize) -> Option<f64> {
        Some(self.cheapest(contender)?.1.cost_per_hour / self.cheapest(OURS)?.1.cost_per_hour)
    }

    /// The same over ours as it was set on the earlier stretch, if that reaches the attainment.
    pub fn ratio_set_before(&self, contender: usize) -> Option<f64> {
        let ours = self.set_before[OURS].filter(|(_, p)| p.attainment >= ATTAINMENT)?.1;
        Some(self.cheapest(contender)?.1.cost_per_hour / ours.cost_per_hour)
    }

    /// The best attainment of a contender at no more than what ours costs.
    pub fn at_our_cost(&self, contender: usize) -> Option<f64> {
        let ours = self.cheapest(OURS)?.1.cost_per_hour;
        let affordable = self.curves[contender].iter().filter(|(_, p)| p.cost_per_hour <= ours);
        affordable.map(|(_, p)| p.attainment).max_by(f64::total_cmp)
    }

    fn rows(&self, table: &mut Table) {
        for (i, name) in NAMES.iter().enumerate() {
            let (best, before) = (self.cheapest(i), self.set_before[i]);
            let share = |p: Option<f64>| p.map_or_else(|| "-".into(), percent);
            table.row(vec![
                self.name.clone(),
                (*name).into(),
                best.map_or_else(|| "none reaches it".into(), |b| b.0.setting()),
                optional(best.map(|b| b.1.cost_per_hour)),
                share(best.map(|b| b.1.attainment)),
                self.ratio(i).map_or_else(|| "-".into(), |r| format!("{r:.2}")),
                share(self.at_our_cost(i)),
                share(best.map(|b| b.1.utilisation)),
                before.map_or_else(|| "none reached it".into(), |b| b.0.setting()),
                optional(before.map(|b| b.1.cost_per_hour)),
                share(before.map(|b| b.1.attainment)),
                share(self.surprised[i].map(|p| p.attainment)),
            ]);
        }
    }

    fn plot(&self) -> Plot {
        let curve = |(name, points): (&&str, &Vec<(Scaler, Point)>)| {
            let mut points: Vec<(f64, f64)> = points.iter().map(|(_, p)| (p.cost_per_hour, 100.0 * p.attainment)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            // the best at no more than a cost: settings that cost more for less are not on the curve
            let mut best = f64::NEG_INFINITY;
            points.retain(|p| {
                p.1 > best && {
                    best = p.1;
                    true
                }
            });
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
        "Pipelines of the problem files, the most accurate variants alone, prices as given, no limit of devices, replicas that load in 5 s \
         (the file's time where it has one), on stretches of a real Twitter stream whose rates are multiplied by one number for each \
         pipeline. All contenders start from the same plan, for the median rate of an earlier stretch with a burst in it, and keep its \
         hardware and batch sizes; queries are served alike (batches at start, per-task dropping), reports come 100 ms late and commands \
         take 100 ms. Ours is the whole system: every 10 s the load is looked at and, if it has reached another demand of a grid \
         (factor {}), planned for again, which takes {} s: by the exact planner with its check loop and by the greedy one, whichever has the cheaper \
         ladder at the demand. The new plan replaces the last where it would have been cheaper over the last minute, by the prices of their \
         ladders, by more than ten seconds of it. Each plan has a ladder of \
         replica counts, from its demand over {} to {} times it, found by the estimator. Stewards, the machines that agents run, climb it: up at once \
         when arrivals are more than chance explains, down after half a minute, below the plan as well; under a new plan they go on \
         from what they have seen. It begins with the replicas of its first plan's ladder for the first load, and has {} settings: what the rates \
         of ladders are divided by. The ladder alone has one plan for all of the run and no steward. HPA and Ray Serve are the documented algorithms with \
         {} targets and {} targets, with and without a floor on the replicas. Each contender has every setting tried; the cheapest that \
         reaches {} on the reported load is compared, and beside it what the earlier stretch would have chosen. The last column is the same \
         load, but {} times as much in its last third, under the cheapest setting, and for ours under that of the earlier stretch.",
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
    let stretches = stretches(lab)?;
    let mut all = Vec::new();
    let mut plans = Table::new(&["pipeline and trace", "the plan that all start from"]);
    for (pipeline, problem, factor) in pipelines(lab)? {
        let scaled = |rates: &[f64]| rates.iter().map(|r| r * factor).collect::<Vec<_>>();
        lab.now(format!("headline: {pipeline}, the earlier stretch"));
        let seen = scaled(&stretches.seen);
        let Some(contest) = Contest::new(lab, pipeline.clone(), &problem, &seen)? else {
            plans.row(vec![pipeline, "none holds".into()]);
            continue;
        };
        let before = curves(lab, &contest, &Load::new(&seen, lab.seed))?;
        for (stretch, rates) in &stretches.judged {
            let name = format!("{pipeline}, {stretch}");
            lab.now(format!("headline: {name}"));
            all.push(tried(lab, &contest, &before, name, &scaled(rates))?);
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
        plots: all.iter().map(Tried::plot).collect(),
        tables: vec![
            Titled { title: "The cheapest setting that reaches 99 %".into(), table },
            beyond_table,
            Titled { title: "Plans".into(), table: plans },
        ],
    })
}
