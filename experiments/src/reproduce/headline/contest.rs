//! How do autoscalers compare on one pipeline and one load?

use super::system;
use super::system::{Setting, System};
use crate::reproduce::contenders::{CONTENDERS, TWO_STEP};
use crate::reproduce::lab::{Lab, constant, load, mean, most_accurate, rate_quantile, with_pipeline};
use crate::reproduce::replanning::PlansByDemand;
use anyhow::anyhow;
use apportion_domain::{Batching, Dropping, GroupName, Plan, Problem, RoutingPolicy, TimeSpan};
use apportion_estimator::controllers::{Hpa, HpaConfig, RayServe, RayServeConfig, TUNER_PERIOD, tuner};
use apportion_estimator::{
    ArrivalProcess, Controller, Observation, Scenario, ScenarioEvent, SimulateOptions, Workload, replay,
};
use apportion_planning::{Planner, ladder};
use apportion_serving::Ladder;
use apportion_serving::ladder::LadderStep;
use apportion_support::exit::Failure;
use std::time::Duration;

/// Loading time of a replica if the problem file has none. A container with a model file takes about as long.
const LOAD_MS: f64 = 5000.0;

/// Length of the Poisson samples that plans are made on, in seconds.
const SAMPLE_SECONDS: usize = 30;

/// Limit on the planning time of the first plan. It is so long that a busy machine makes the same plan.
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// The least rate of the ladder over the planned rate.
const STEP_LEAST: f64 = 0.4;
/// The factor from one rate of the ladder to the next.
const STEP_RATIO: f64 = 1.15;
/// How many rates the ladder has.
const STEP_COUNT: i32 = 23;

/// The largest number of replicas of a group, over that of the plan, that a scaler may ask for.
const REPLICAS_MAX: u32 = 10;

/// A scaler of replicas with its setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ContestScaler {
    /// The plan's replicas times this.
    Fixed(f64),
    /// InferLine's tuner, with this factor on the replicas that it asks for.
    Tuner(f64),
    /// The whole system: it plans again, and follows the plan's ladder between two plans.
    System(Setting),
    /// The ladder alone, above and below one plan; rates are multiplied by this.
    Ladder(f64),
    /// HPA with a target of utilisation, and least replicas over those of the plan.
    Hpa(f64, f64),
    /// Ray Serve with a target of ongoing requests, and least replicas over those of the plan.
    Ray(f64, f64),
}

impl ContestScaler {
    /// The setting, for tables.
    pub fn setting(self) -> String {
        let least = |floor: f64| if floor > 0.0 { format!(", at least {floor} of the plan") } else { String::new() };
        match self {
            Self::Fixed(factor) => format!("{factor} of the plan"),
            Self::System(Setting { headroom }) | Self::Tuner(headroom) | Self::Ladder(headroom) => {
                format!("times {headroom}")
            }
            Self::Hpa(target, floor) => format!("{:.0} %{}", 100.0 * target, least(floor)),
            Self::Ray(target, floor) => format!("{target} ongoing{}", least(floor)),
        }
    }
}

/// The result of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContestPoint {
    /// Share of the requests that were answered in time.
    pub attainment: f64,
    /// Cost of all devices, including devices that load or finish.
    pub cost_per_hour: f64,
    /// Busy time over the time of the replicas that served.
    pub utilisation: f64,
    /// Changes of replica counts.
    pub changes: u64,
}

/// One pipeline with the common first plan, and with the preparations of each scaler.
pub struct Contest<'a> {
    /// The pipeline.
    pub name: String,
    problem: Problem,
    plan: Plan,
    sample: Workload,
    steps: Vec<LadderStep>,
    /// The system's plans by demand.
    plans: PlansByDemand<'a>,
}

/// A load that scalers are judged on.
pub struct ContestLoad {
    workload: Workload,
    /// The mean rate of its first seconds.
    first_qps: f64,
}

impl ContestLoad {
    /// Poisson arrivals at these rates, one for each second.
    pub fn new(rates: &[f64], seed: u64) -> Self {
        let first_qps = mean(&rates[..rates.len().min(FIRST_SECONDS)]);
        Self { workload: load(rates, ArrivalProcess::Poisson, seed), first_qps }
    }
}

/// The same rates with those of the last third multiplied by [`STEP_FACTOR`].
pub fn with_late_step(rates: &[f64]) -> Vec<f64> {
    let last_third = 2 * rates.len() / 3;
    let rate = |(at, rate): (usize, &f64)| if at < last_third { *rate } else { STEP_FACTOR * rate };
    rates.iter().enumerate().map(rate).collect()
}

/// The factor of the late step.
pub const STEP_FACTOR: f64 = 2.0;

/// The system's first plan is for the mean of this many seconds.
const FIRST_SECONDS: usize = 10;

/// A controller that follows the ladder of the only pipeline.
struct LadderController(Ladder);

impl Controller for LadderController {
    fn period(&self) -> TimeSpan {
        TUNER_PERIOD
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(TimeSpan, ScenarioEvent)> {
        seen.arrivals.iter().flatten().for_each(|a| self.0.arrived(a.bin, a.count));
        let Some(replicas) = self.0.decide(seen.at) else { return Vec::new() };
        seen.groups.iter().zip(replicas).map(|(group, &n)| (TimeSpan::ZERO, group.to_have(n))).collect()
    }
}

/// The replicas that a controller may ask for in one group.
struct ReplicaBounds {
    group: GroupName,
    least: u32,
    most: u32,
}

/// A controller whose commands are multiplied by a factor and kept within bounds.
struct BoundedController {
    inner: Box<dyn Controller>,
    factor: f64,
    /// One entry for each group of the plan's only pipeline.
    bounds: Vec<ReplicaBounds>,
}

/// A controller before its bounds are known.
struct ScalerSetup {
    controller: Box<dyn Controller>,
    /// Commands are multiplied by this factor.
    factor: f64,
    /// The least replicas over those of the plan.
    floor: f64,
}

/// The start of a run.
struct RunStart<'a> {
    /// The first plan.
    plan: Plan,
    /// The controller that changes it, if any.
    controller: Option<Box<dyn Controller + 'a>>,
}

impl Controller for BoundedController {
    fn period(&self) -> TimeSpan {
        self.inner.period()
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(TimeSpan, ScenarioEvent)> {
        let mut commands = self.inner.observe(seen);
        for (_, event) in &mut commands {
            if let ScenarioEvent::Replicas { group, replicas, .. } = event {
                let bounds = self.bounds.iter().find(|b| b.group == *group);
                let (least, most) = bounds.map_or((1, u32::MAX), |b| (b.least, b.most));
                *replicas = ((f64::from(*replicas) * self.factor - 1e-9).ceil() as u32).clamp(least, most);
            }
        }
        commands
    }
}

/// The problem of a contest: the most accurate variants, least cost, no limits on devices, and replicas that take time to
/// load.
pub fn contest_problem(problem: &Problem) -> Result<Problem, Failure> {
    let reduced = most_accurate(problem)?;
    with_pipeline(&reduced, 0, |d| {
        d.survive = 0;
        // As agents serve, and with the early dropping that every contender needs in a burst.
        d.serving.batching = Some(Batching::AtStart);
        d.serving.routing = Some(RoutingPolicy::Stride);
        d.serving.dropping = Some(Dropping::PerTask);
        for variant in d.tasks.iter_mut().flat_map(|t| &mut t.variants) {
            variant.load_ms = if variant.load_ms > 0.0 { variant.load_ms } else { LOAD_MS };
        }
    })
}

impl<'a> Contest<'a> {
    /// Prepares a contest on `seen`, the rates of an earlier stretch. The plan is for their median. `None` without a plan.
    pub fn new(lab: &'a Lab, name: String, problem: &Problem, seen: &[f64]) -> Result<Option<Self>, Failure> {
        let planned_qps = rate_quantile(seen, 0.5);
        let problem = with_pipeline(problem, 0, |d| d.demand_qps = planned_qps)?;
        let steady = |qps: f64| constant(qps, SAMPLE_SECONDS, ArrivalProcess::Poisson, lab.seed);
        let sample = steady(planned_qps);
        let plan_by = |planner| lab.plan_within(START_TIME_MAX, &problem, planner, Some(sample.clone()));
        let plans = [Planner::Greedy, Planner::Milp].map(plan_by);
        let holding = plans.into_iter().flatten().filter(|plan| {
            let run = apportion_estimator::simulate(&problem, plan, &sample, &SimulateOptions::default());
            run.is_ok_and(|r| r.total.attainment >= problem.pipelines[0].percentile / 100.0)
        });
        let Some(plan) = holding.min_by(|a, b| a.cost_per_hour.total_cmp(&b.cost_per_hour)) else { return Ok(None) };
        let rates_qps: Vec<f64> = (0..STEP_COUNT).map(|k| STEP_LEAST * planned_qps * STEP_RATIO.powi(k)).collect();
        let least = vec![1; plan.pipelines[0].assignments.len()];
        let steps = ladder::steps(&problem, &plan, rates_qps, &least, steady);
        if steps.is_empty() {
            return Ok(None);
        }
        let plans = PlansByDemand::new(lab, &problem, CONTENDERS[TWO_STEP])
            .with_check_loop()
            .with_ladders(system::GRID, system::UP_TO);
        Ok(Some(Self { name, problem, plan, sample, steps, plans }))
    }

    /// The plan that all start from, in words.
    pub fn plan_in_words(&self) -> String {
        let part = &self.plan.pipelines[0];
        let group = |a: &apportion_domain::Assignment| format!("{} x {} (batch {})", a.replicas, a.group, a.batch);
        let groups: Vec<String> = part.assignments.iter().map(group).collect();
        format!("{:.0} queries/s: {}", part.demand_qps, groups.join(", "))
    }

    /// Runs a load under one scaler.
    pub fn run(&self, load: &ContestLoad, scaler: ContestScaler) -> Result<ContestPoint, Failure> {
        let RunStart { plan, controller } = self.start_of_run(load.first_qps, scaler)?;
        let is_system = matches!(scaler, ContestScaler::System(_));
        let controllers = controller.into_iter().collect();
        let scenario = Scenario { controllers, ladders: is_system, ..Scenario::default() };
        let run = replay(&self.problem, &plan, &load.workload, &SimulateOptions::default(), scenario)
            .map_err(|e| anyhow!("{}: {e}", self.name))?;
        Ok(ContestPoint {
            attainment: run.simulation.total.attainment,
            cost_per_hour: run.cost_per_hour,
            utilisation: run.utilisation,
            changes: run.changes,
        })
    }

    fn start_of_run(&self, first_qps: f64, scaler: ContestScaler) -> Result<RunStart<'_>, Failure> {
        let mut plan = self.plan.clone();
        let assignments = &mut plan.pipelines[0].assignments;
        let setup = |controller: Box<dyn Controller>, factor, floor| Some(ScalerSetup { controller, factor, floor });
        let inner: Option<ScalerSetup> = match scaler {
            ContestScaler::Fixed(factor) => {
                assignments.iter_mut().for_each(|a| a.replicas = (f64::from(a.replicas) * factor).ceil().max(1.0) as u32);
                None
            }
            ContestScaler::Tuner(factor) => {
                let tuner = tuner(&self.problem, &self.plan, &self.sample).map_err(|e| anyhow!("{e}"))?;
                setup(tuner, factor, 0.0)
            }
            ContestScaler::System(setting) => {
                let system = System::new(&self.plans, setting, first_qps);
                let system = system.ok_or_else(|| anyhow!("{}: no plan for {first_qps} queries/s", self.name))?;
                return Ok(RunStart { plan: system.plan().clone(), controller: Some(Box::new(system)) });
            }
            ContestScaler::Ladder(headroom) => {
                let start = assignments.iter().map(|a| a.replicas).collect();
                setup(Box::new(LadderController(Ladder::new(self.steps.clone(), start, headroom))), 1.0, 0.0)
            }
            ContestScaler::Hpa(target, floor) => {
                setup(Box::new(Hpa::new(HpaConfig { target, ..HpaConfig::default() })), 1.0, floor)
            }
            ContestScaler::Ray(target_ongoing, floor) => {
                let config = RayServeConfig { target_ongoing, ..RayServeConfig::default() };
                setup(Box::new(RayServe::new(config)), 1.0, floor)
            }
        };
        let controller = inner.map(|setup| -> Box<dyn Controller + '_> { Box::new(self.bounded(setup)) });
        Ok(RunStart { plan, controller })
    }

    /// A controller kept within bounds around the plan's replicas.
    fn bounded(&self, setup: ScalerSetup) -> BoundedController {
        let ScalerSetup { controller: inner, factor, floor } = setup;
        let bounds = |a: &apportion_domain::Assignment| ReplicaBounds {
            group: a.group.clone(),
            least: ((f64::from(a.replicas) * floor).ceil() as u32).max(1),
            most: a.replicas * REPLICAS_MAX,
        };
        let bounds = self.plan.pipelines[0].assignments.iter().map(bounds).collect();
        BoundedController { inner, factor, bounds }
    }
}
