//! Which result did each setting of each contender have?

use super::contest::{Contest, ContestLoad, ContestPoint, ContestScaler, with_late_step};
use super::system::Setting;
use crate::reproduce::lab::{Lab, in_parallel};
use crate::reproduce::report::{Plot, Series};
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, optional, percent};

/// The attainment that all contenders must reach.
pub const ATTAINMENT: f64 = 0.99;

/// Factors on rates before the system looks them up on its plan's ladder.
pub const SYSTEM_HEADROOMS: [f64; 22] =
    [0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.4, 1.5, 1.7, 2.0, 2.5, 3.0];

/// Factors on the rates of the ladder alone.
const HEADROOMS: [f64; 8] = [0.9, 1.0, 1.05, 1.1, 1.2, 1.4, 1.7, 2.0];

/// Factors on the replicas that the tuner asks for.
const TUNER_FACTORS: [f64; 5] = [0.35, 0.4, 0.5, 0.7, 1.0];

/// Targets of utilisation.
pub const HPA_TARGETS: [f64; 11] = [0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9];

/// Ongoing requests for each replica; Ray's default is 2.
pub const RAY_TARGETS: [f64; 6] = [0.25, 0.5, 0.75, 1.0, 2.0, 4.0];

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

/// A setting of a contender with its result on one load.
#[derive(Clone, Copy)]
pub struct Trial {
    /// The scaler with its setting.
    pub scaler: ContestScaler,
    /// The result.
    pub point: ContestPoint,
}

/// The results of all settings on one stretch, by contender in the order of [`NAMES`].
pub struct StretchResult {
    /// Pipeline and stretch.
    pub name: String,
    /// The plan that all start from, in words.
    pub plan: String,
    curves: ContenderCurves,
    /// The results of the settings that were the cheapest to reach the attainment on the earlier stretch.
    pub set_before: [Option<Trial>; CONTENDERS],
    /// The results if the load then steps up, under the best setting in hindsight; ours has the setting of the earlier
    /// stretch.
    pub surprised: [Option<ContestPoint>; CONTENDERS],
}

fn all_settings(lab: &Lab) -> [Vec<ContestScaler>; CONTENDERS] {
    let floored = |targets: &[f64], of: fn(f64, f64) -> ContestScaler| -> Vec<ContestScaler> {
        FLOORS.iter().flat_map(|&floor| targets.iter().map(move |&target| of(target, floor))).collect()
    };
    let mut all = [
        SYSTEM_HEADROOMS.map(|headroom| ContestScaler::System(Setting { headroom })).to_vec(),
        HEADROOMS.map(ContestScaler::Ladder).to_vec(),
        TUNER_FACTORS.map(ContestScaler::Tuner).to_vec(),
        floored(&HPA_TARGETS, ContestScaler::Hpa),
        floored(&RAY_TARGETS, ContestScaler::Ray),
        FIXED.map(ContestScaler::Fixed).to_vec(),
    ];
    all.iter_mut().for_each(|tried| tried.truncate(lab.full_or_quick(tried.len(), 1)));
    all
}

/// Every setting of every contender on one load.
pub type ContenderCurves = [Vec<Trial>; CONTENDERS];

/// Runs every setting of every contender on one load.
pub fn run_settings(lab: &Lab, contest: &Contest<'_>, load: &ContestLoad) -> Result<ContenderCurves, Failure> {
    let all = all_settings(lab);
    let scalers: Vec<ContestScaler> = all.iter().flatten().copied().collect();
    let mut points = in_parallel(&scalers, |scaler| contest.run(load, *scaler))?.into_iter();
    let trial = |(scaler, point)| Trial { scaler, point };
    Ok(all.map(|scalers| scalers.into_iter().zip(points.by_ref()).map(trial).collect()))
}

/// Position of the cheapest that reaches the attainment.
fn cheapest_reaching(curve: &[Trial]) -> Option<usize> {
    let reaching = (0..curve.len()).filter(|&at| curve[at].point.attainment >= ATTAINMENT);
    reaching.min_by(|&a, &b| curve[a].point.cost_per_hour.total_cmp(&curve[b].point.cost_per_hour))
}

/// Runs one stretch. `before` are the results of the earlier stretch.
pub fn run_stretch(
    lab: &Lab,
    contest: &Contest<'_>,
    before: &ContenderCurves,
    name: String,
    rates: &[f64],
) -> Result<StretchResult, Failure> {
    let curves = run_settings(lab, contest, &ContestLoad::new(rates, lab.held_out_seed()))?;
    let mut set_before = [None; CONTENDERS];
    for (i, set) in set_before.iter_mut().enumerate() {
        *set = cheapest_reaching(&before[i]).map(|at| curves[i][at]);
    }
    let mut tried =
        StretchResult { name, plan: contest.plan_in_words(), curves, set_before, surprised: [None; CONTENDERS] };
    let stepped = ContestLoad::new(&with_late_step(rates), lab.held_out_seed());
    for i in 0..CONTENDERS {
        let best = if i == OURS { tried.set_before[i] } else { tried.cheapest(i).copied() };
        tried.surprised[i] = best.map(|trial| contest.run(&stepped, trial.scaler)).transpose()?;
    }
    Ok(tried)
}

impl StretchResult {
    /// The cheapest setting of a contender that reaches the attainment.
    pub fn cheapest(&self, contender: usize) -> Option<&Trial> {
        cheapest_reaching(&self.curves[contender]).map(|at| &self.curves[contender][at])
    }

    /// The cost of a contender over ours, both at their cheapest setting that reaches the attainment.
    pub fn ratio(&self, contender: usize) -> Option<f64> {
        Some(self.cheapest(contender)?.point.cost_per_hour / self.cheapest(OURS)?.point.cost_per_hour)
    }

    /// The same ratio with our setting of the earlier stretch, if that reaches the attainment.
    pub fn ratio_set_before(&self, contender: usize) -> Option<f64> {
        let ours = self.set_before[OURS].filter(|trial| trial.point.attainment >= ATTAINMENT)?.point;
        Some(self.cheapest(contender)?.point.cost_per_hour / ours.cost_per_hour)
    }

    /// The best attainment of a contender at no more than our cost.
    pub fn at_our_cost(&self, contender: usize) -> Option<f64> {
        let ours = self.cheapest(OURS)?.point.cost_per_hour;
        let affordable = self.curves[contender].iter().map(|trial| trial.point).filter(|p| p.cost_per_hour <= ours);
        affordable.map(|p| p.attainment).max_by(f64::total_cmp)
    }

    /// Adds a row for each contender.
    pub fn rows(&self, table: &mut TextTable) {
        for (i, name) in NAMES.iter().enumerate() {
            let (best, before) = (self.cheapest(i), self.set_before[i]);
            let share = |p: Option<f64>| p.map_or_else(|| "-".into(), percent);
            table.row(vec![
                self.name.clone(),
                (*name).into(),
                best.map_or_else(|| "none reaches it".into(), |b| b.scaler.setting()),
                optional(best.map(|b| b.point.cost_per_hour)),
                share(best.map(|b| b.point.attainment)),
                self.ratio(i).map_or_else(|| "-".into(), |r| format!("{r:.2}")),
                share(self.at_our_cost(i)),
                share(best.map(|b| b.point.utilisation)),
                before.map_or_else(|| "none reached it".into(), |b| b.scaler.setting()),
                optional(before.map(|b| b.point.cost_per_hour)),
                share(before.map(|b| b.point.attainment)),
                share(self.surprised[i].map(|p| p.attainment)),
            ]);
        }
    }

    /// Attainment by cost.
    pub fn plot(&self) -> Plot {
        let curve = |(name, trials): (&&str, &Vec<Trial>)| {
            let point = |trial: &Trial| (trial.point.cost_per_hour, 100.0 * trial.point.attainment);
            let mut points: Vec<(f64, f64)> = trials.iter().map(point).collect();
            points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            // A setting that costs more and attains less than another is not on the curve.
            let mut best = f64::NEG_INFINITY;
            points.retain(|&(_, percent)| {
                percent > best && {
                    best = percent;
                    true
                }
            });
            points.retain(|&(_, percent)| percent >= SHOWN_MIN);
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
