//! How does each contender serve loads that the plan was not made for?

use crate::reproduce::lab::{Lab, drop_rate, in_parallel, load};
use crate::reproduce::report::{Plot, Series};
use anyhow::anyhow;
use apportion_domain::{Plan, Problem};
use apportion_estimator::controllers::{Coarse, CoarseConfig};
use apportion_estimator::{ArrivalProcess, Controller, Replay, Scenario, SimulateOptions, Workload, controllers, replay};
use apportion_planning::Planner;
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, number, percent};

/// The planned rate.
pub const PLANNED_QPS: f64 = 150.0;

/// SLO: the middle of Fig. 5.
pub const SLO_MS: f64 = 300.0;

/// Replicas load in the paper in 5 s (section 5.1).
pub const LOAD_MS: f64 = 5000.0;

/// A planner with a scaler: those of the paper, and its comparators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunerContender {
    /// The planner and the tuner.
    Ours,
    /// The planner with the baseline's tuner (Fig. 12).
    PlanCoarse,
    /// The planner alone (Fig. 10).
    Plan,
    /// The planner alone, on the same load that it is judged on (Fig. 10).
    Oracle,
    /// Coarse-grained for the peak, with their tuner (Fig. 6, 7).
    PeakCoarse,
    /// Coarse-grained for the mean, with their tuner (Fig. 6, 7).
    MeanCoarse,
    /// Coarse-grained for the peak.
    Peak,
    /// Coarse-grained for the mean.
    Mean,
}

impl TunerContender {
    const ALL: [Self; 8] = [
        Self::Ours,
        Self::PlanCoarse,
        Self::Plan,
        Self::Oracle,
        Self::PeakCoarse,
        Self::MeanCoarse,
        Self::Peak,
        Self::Mean,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Ours => "greedy and tuner",
            Self::PlanCoarse => "greedy and coarse tuner",
            Self::Plan => "greedy alone",
            Self::Oracle => "oracle",
            Self::PeakCoarse => "cg-peak and coarse tuner",
            Self::MeanCoarse => "cg-mean and coarse tuner",
            Self::Peak => "cg-peak",
            Self::Mean => "cg-mean",
        }
    }

    const fn planner(self) -> Planner {
        match self {
            Self::Ours | Self::PlanCoarse | Self::Plan | Self::Oracle => Planner::Greedy,
            Self::PeakCoarse | Self::Peak => Planner::CgPeak,
            Self::MeanCoarse | Self::Mean => Planner::CgMean,
        }
    }

    /// The controllers that scale its plan.
    fn controller(self, problem: &Problem, plan: &Plan, sample: &Workload) -> Result<Vec<Box<dyn Controller>>, Failure> {
        let fails = |e| anyhow!("{e}");
        Ok(match self {
            Self::Ours => vec![controllers::tuner(problem, plan, sample).map_err(fails)?],
            Self::PlanCoarse | Self::PeakCoarse | Self::MeanCoarse => {
                vec![Box::new(Coarse::new(problem, plan, CoarseConfig::default()).map_err(fails)?)]
            }
            Self::Plan | Self::Oracle | Self::Peak | Self::Mean => Vec::new(),
        })
    }
}

/// The result of one contender on one load.
#[derive(Clone, Copy, Debug)]
struct ContenderResult {
    /// Share of requests that missed.
    missed: f64,
    /// Paid per hour.
    cost_per_hour: f64,
    /// Cost per hour of the first plan.
    planned_cost_per_hour: f64,
}

/// One contender's run of one load.
struct ContenderRun {
    run: Replay,
    /// Cost per hour of the first plan.
    planned_cost_per_hour: f64,
}

/// The results of all contenders on one load.
pub struct LoadResult {
    /// Whether its rate exceeds the planned rate.
    pub rises: bool,
    /// By contender, in the order of [`TunerContender`]; `None` without a plan.
    by: Vec<Option<ContenderResult>>,
}

impl LoadResult {
    /// Missed, 0 to 1.
    pub fn missed(&self, who: TunerContender) -> Option<f64> {
        self.by[who as usize].map(|result| result.missed)
    }

    /// Paid per hour.
    pub fn cost(&self, who: TunerContender) -> Option<f64> {
        self.by[who as usize].map(|result| result.cost_per_hour)
    }

    /// Cost per hour of the plan that it began with.
    pub fn planned_cost(&self, who: TunerContender) -> Option<f64> {
        self.by[who as usize].map(|result| result.planned_cost_per_hour)
    }
}

/// A load that differs from the planned one.
struct ChangedLoad {
    name: String,
    rates: Vec<f64>,
    arrivals: ArrivalProcess,
}

fn changed_loads(lab: &Lab) -> Vec<ChangedLoad> {
    let (calm, seconds) = lab.full_or_quick((30, 300), (4, 12));
    let ramp = |to: f64, over: usize| -> Vec<f64> {
        let at = |s: usize| PLANNED_QPS + (to - PLANNED_QPS) * (s.saturating_sub(calm) as f64 / over as f64).min(1.0);
        (0..seconds).map(at).collect()
    };
    let poisson = |name: String, rates| ChangedLoad { name, rates, arrivals: ArrivalProcess::Poisson };
    let mut all = vec![poisson("as planned".into(), vec![PLANNED_QPS; seconds])];
    for (to, over) in [(250.0, 60), (250.0, 10), (400.0, 60)] {
        all.push(poisson(format!("to {to:.0} queries/s over {over} s"), ramp(to, over)));
    }
    let (burst, over) = (lab.full_or_quick(60, 4), 10);
    let up = ramp(250.0, over);
    let there_and_back = (0..seconds).map(|s| up[s.min((2 * (calm + over) + burst).saturating_sub(s))]);
    all.push(poisson("to 250 queries/s over 10 s, and back after 60".into(), there_and_back.collect()));
    all.push(poisson("down to 50 queries/s over 30 s".into(), ramp(50.0, 30)));
    all.push(ChangedLoad {
        name: "CV 4 at the planned rate".into(),
        rates: vec![PLANNED_QPS; seconds],
        arrivals: ArrivalProcess::Gamma(4.0),
    });
    all.truncate(lab.full_or_quick(usize::MAX, 2));
    all
}

fn replay_contender(
    lab: &Lab,
    problem: &Problem,
    who: TunerContender,
    plan: &Plan,
    change: &ChangedLoad,
    sample: &Workload,
) -> Result<Replay, Failure> {
    let workload = load(&change.rates, change.arrivals, lab.held_out_seed());
    let scenario = Scenario { controllers: who.controller(problem, plan, sample)?, ..Scenario::default() };
    Ok(replay(problem, plan, &workload, &SimulateOptions::default(), scenario).map_err(anyhow::Error::new)?)
}

/// Missed by window of 5 s, in percent.
fn over_time(run: &Replay) -> Vec<(f64, f64)> {
    let joined = run.windows.chunks(5).map(|w| w[1..].iter().fold(w[0], |a, b| a.with(b)));
    joined.map(|w| (w.start.as_millis() / 1e3, 100.0 * (1.0 - w.attainment()))).collect()
}

/// Runs one pipeline under every load, in the order of [`changed_loads`].
pub fn run_pipeline(
    lab: &Lab,
    problem: &Problem,
    table: &mut TextTable,
    plots: &mut Vec<Plot>,
) -> Result<Vec<LoadResult>, Failure> {
    let name = &problem.pipelines[0].name;
    let sample = load(&vec![PLANNED_QPS; lab.full_or_quick(60, 4)], ArrivalProcess::Poisson, lab.seed);
    let plans = TunerContender::ALL.map(|who| match who {
        TunerContender::Oracle => None,
        _ => lab.plan(problem, who.planner(), Some(sample.clone())),
    });
    let mut all = Vec::new();
    for change in changed_loads(lab) {
        lab.show_step(format!("inferline-tuner: {name}, {}", change.name));
        let runs = in_parallel(&TunerContender::ALL, |&who| {
            let plan_for_change =
                || lab.plan(problem, who.planner(), Some(load(&change.rates, change.arrivals, lab.held_out_seed())));
            let plan = if who == TunerContender::Oracle { plan_for_change() } else { plans[who as usize].clone() };
            let Some(plan) = plan else { return Ok(None) };
            let run = replay_contender(lab, problem, who, &plan, &change, &sample)?;
            Ok(Some(ContenderRun { run, planned_cost_per_hour: plan.cost_per_hour }))
        })?;
        let mut series = Vec::new();
        for (who, run) in TunerContender::ALL.iter().zip(&runs) {
            let Some(ContenderRun { run, planned_cost_per_hour }) = run else { continue };
            table.row(vec![
                name.clone(),
                change.name.clone(),
                who.name().into(),
                percent(drop_rate(&run.simulation.total)),
                number(run.cost_per_hour),
                number(*planned_cost_per_hour),
                run.changes.to_string(),
            ]);
            series.push(Series { name: who.name().into(), points: over_time(run) });
        }
        let title = format!("{name}, {}: missed over time", change.name);
        plots.push(Plot { title, x: "time (s)".into(), y: "missed (%)".into(), series, places: vec![] });
        let result = |ContenderRun { run, planned_cost_per_hour }: ContenderRun| ContenderResult {
            missed: drop_rate(&run.simulation.total),
            cost_per_hour: run.cost_per_hour,
            planned_cost_per_hour,
        };
        let rises = change.rates.iter().any(|&qps| qps > PLANNED_QPS);
        all.push(LoadResult { rises, by: runs.into_iter().map(|run| run.map(result)).collect() });
    }
    Ok(all)
}
