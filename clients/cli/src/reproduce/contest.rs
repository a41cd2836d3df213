//! Autoscalers on one pipeline and one load: who scales, and what came of it.

use super::inferline::most_accurate;
use super::lab::{Lab, constant, load, with_pipeline};
use crate::exit::Failure;
use anyhow::anyhow;
use apportion_domain::{Batching, Dropping, Plan, Problem, RoutingPolicy, Span};
use apportion_estimator::controllers::{Hpa, HpaConfig, RayServe, RayServeConfig, tuner};
use apportion_estimator::{ArrivalProcess, Controller, Event, Observation, Scenario, SimulateOptions, Workload, replay};
use apportion_planning::Planner;

/// Time in which a replica of a variant loads that the file has no time for: about what a container with a model file takes.
const LOAD_MS: f64 = 5000.0;
/// Length of the Poisson sample that plans are made on, in seconds.
const SAMPLE_SECONDS: usize = 60;

/// Most replicas of a group, over those of the plan, that any scaler may ask for.
const REPLICAS_MAX: u32 = 10;

/// Who scales replicas, and what it is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scaler {
    /// The plan's replicas times this.
    Fixed(f64),
    /// InferLine's tuner; what it asks for is multiplied by this.
    Tuner(f64),
    /// HPA with a target of utilisation, and least replicas over those of the plan.
    Hpa(f64, f64),
    /// Ray Serve with a target of ongoing requests, and least replicas over those of the plan.
    Ray(f64, f64),
}

impl Scaler {
    /// What it was told, for tables.
    pub fn setting(self) -> String {
        let least = |floor: f64| if floor > 0.0 { format!(", at least {floor} of the plan") } else { String::new() };
        match self {
            Self::Fixed(factor) => format!("{factor} of the plan"),
            Self::Tuner(headroom) => format!("times {headroom}"),
            Self::Hpa(target, floor) => format!("{:.0} %{}", 100.0 * target, least(floor)),
            Self::Ray(target, floor) => format!("{target} ongoing{}", least(floor)),
        }
    }
}

/// What came of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Share of the requests that were answered in time.
    pub attainment: f64,
    /// All devices paid for, those that load or finish included.
    pub cost_per_hour: f64,
    /// Busy time over the time of the replicas that served.
    pub utilisation: f64,
    /// Changes of replica counts.
    pub changes: u64,
}

/// One pipeline with its plan and the load that the scalers are judged on.
pub struct Contest {
    /// Pipeline and trace.
    pub name: String,
    problem: Problem,
    plan: Plan,
    sample: Workload,
    judged: Workload,
}

/// A controller whose commands are multiplied and kept above floors.
struct Adjusted {
    inner: Box<dyn Controller>,
    factor: f64,
    /// Least and most replicas by group of the plan: its pipeline is the only one.
    bounds: Vec<(apportion_domain::GroupName, (u32, u32))>,
}

impl Controller for Adjusted {
    fn period(&self) -> Span {
        self.inner.period()
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(Span, Event)> {
        let mut commands = self.inner.observe(seen);
        for (_, event) in &mut commands {
            if let Event::Replicas { group, replicas, .. } = event {
                let (least, most) = self.bounds.iter().find(|b| b.0 == *group).map_or((1, u32::MAX), |b| b.1);
                *replicas = ((f64::from(*replicas) * self.factor - 1e-9).ceil() as u32).clamp(least, most);
            }
        }
        commands
    }
}

/// The pipeline for the contest: the most accurate variants, least cost, no counts, replicas that take time to load.
pub fn cloud(problem: &Problem, serving: (Batching, Dropping)) -> Result<Problem, Failure> {
    let reduced = most_accurate(problem)?;
    with_pipeline(&reduced, 0, |d| {
        d.survive = 0;
        d.serving.batching = Some(serving.0);
        d.serving.dropping = Some(serving.1);
        d.serving.routing = Some(if std::env::var("JSQ").is_ok() { RoutingPolicy::Jsq } else { RoutingPolicy::Stride });
        for variant in d.tasks.iter_mut().flat_map(|t| &mut t.variants) {
            variant.load_ms = if variant.load_ms > 0.0 { variant.load_ms } else { LOAD_MS };
        }
    })
}

impl Contest {
    /// A contest on `rates`, with a plan for `planned_qps`; `None` if there is no plan.
    pub fn new(
        lab: &Lab,
        name: String,
        problem: &Problem,
        planned_qps: f64,
        sample: &[f64],
        rates: &[f64],
    ) -> Result<Option<Self>, Failure> {
        let planned_qps =
            if std::env::var("CONST").is_ok() { planned_qps } else { sample.iter().sum::<f64>() / sample.len() as f64 };
        let problem = with_pipeline(problem, 0, |d| d.demand_qps = planned_qps)?;
        let sample = if std::env::var("CONST").is_ok() {
            constant(planned_qps, SAMPLE_SECONDS, ArrivalProcess::Poisson, lab.seed)
        } else {
            load(sample, ArrivalProcess::Poisson, lab.seed)
        };
        let plans = [Planner::Greedy, Planner::Milp].map(|planner| lab.plan(&problem, planner, Some(sample.clone())));
        let held = plans.into_iter().flatten().filter(|plan| {
            let run = apportion_estimator::simulate(&problem, plan, &sample, &SimulateOptions::default());
            run.is_ok_and(|r| r.total.attainment >= problem.pipelines[0].percentile / 100.0)
        });
        let Some(plan) = held.min_by(|a, b| a.cost_per_hour.total_cmp(&b.cost_per_hour)) else { return Ok(None) };
        let judged = load(rates, ArrivalProcess::Poisson, lab.held_out());
        Ok(Some(Self { name, problem, plan, sample, judged }))
    }

    /// The plan that all start from.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The pipeline as it is served.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Runs the load under one scaler.
    pub fn run(&self, scaler: Scaler) -> Result<Point, Failure> {
        let mut plan = self.plan.clone();
        let assignments = &mut plan.pipelines[0].assignments;
        let inner: Option<(Box<dyn Controller>, f64, f64)> = match scaler {
            Scaler::Fixed(factor) => {
                assignments.iter_mut().for_each(|a| a.replicas = (f64::from(a.replicas) * factor).ceil().max(1.0) as u32);
                None
            }
            Scaler::Tuner(factor) => {
                let tuner = tuner(&self.problem, &self.plan, &self.sample).map_err(|e| anyhow!("{e}"))?;
                Some((tuner, factor, 0.0))
            }
            Scaler::Hpa(target, floor) => {
                Some((Box::new(Hpa::new(HpaConfig { target, ..HpaConfig::default() })), 1.0, floor))
            }
            Scaler::Ray(target_ongoing, floor) => {
                let config = RayServeConfig { target_ongoing, ..RayServeConfig::default() };
                Some((Box::new(RayServe::new(config)), 1.0, floor))
            }
        };
        let controllers = inner.into_iter().map(|(inner, factor, floor)| -> Box<dyn Controller> {
            let bounds = |n: u32| (((f64::from(n) * floor).ceil() as u32).max(1), n * REPLICAS_MAX);
            let bounds = self.plan.pipelines[0].assignments.iter().map(|a| (a.group.clone(), bounds(a.replicas)));
            Box::new(Adjusted { inner, factor, bounds: bounds.collect() })
        });
        let scenario = Scenario { controllers: controllers.collect(), ..Scenario::default() };
        let run = replay(&self.problem, &plan, &self.judged, &SimulateOptions::default(), scenario)
            .map_err(|e| anyhow!("{}: {e}", self.name))?;
        Ok(Point {
            attainment: run.simulation.total.attainment,
            cost_per_hour: run.cost_per_hour,
            utilisation: run.utilisation,
            changes: run.changes,
        })
    }
}
