//! How do autoscalers compare on one pipeline and one load?

use super::protocol::{HeadlineProtocol, LadderRates, QueryService, ScalerKind, USUAL_SERVICE};
use super::scalers::{ContestScaler, GroupFacts, groups_of};
use super::system::System;
use crate::reproduce::contenders::{CONTENDERS, TWO_STEP};
use crate::reproduce::lab::{
    HeldOutPlan, Lab, constant, in_parallel, judge_plans, load, mean, most_accurate, rate_quantile, with_pipeline,
};
use crate::reproduce::replanning::PlansByDemand;
use anyhow::anyhow;
use apportion_domain::{Dropping, GroupName, Plan, Problem, RoutingPolicy, ServingPolicy, TimeSpan};
use apportion_estimator::controllers::{TUNER_PERIOD, tuner};
use apportion_estimator::{
    ArrivalProcess, Controller, CutReason, Observation, Replay, Scenario, ScenarioEvent, SimulateError, SimulateOptions,
    Workload, expected_requests, replay,
};
use apportion_planning::{Planner, ladder};
use apportion_serving::Ladder;
use apportion_serving::ladder::{Headroom, LadderStep};
use apportion_support::exit::Failure;
use std::time::Duration;

/// The result of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContestPoint {
    /// Share of the requests that were answered in time.
    pub attainment: f64,
    /// Cost of all devices, including devices that load or finish.
    pub cost_per_hour: f64,
    /// Busy time over the time of the replicas that served.
    pub utilisation: f64,
}

impl ContestPoint {
    /// Of a run.
    pub fn of(run: &Replay) -> Self {
        Self { attainment: run.simulation.total.attainment, cost_per_hour: run.cost_per_hour, utilisation: run.utilisation }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunOutcome {
    /// It was played to its end.
    Done(ContestPoint),
    /// Too many requests had missed, or it had cost more than another setting that holds.
    GivenUp,
    /// There was no plan to play.
    NoPlan,
}

impl RunOutcome {
    /// The result, if it was played to its end.
    pub fn point(self) -> Option<ContestPoint> {
        match self {
            Self::Done(point) => Some(point),
            Self::GivenUp | Self::NoPlan => None,
        }
    }

    /// Share of the requests that were answered in time; none without a plan.
    pub fn attainment(self) -> f64 {
        self.point().map_or(0.0, |p| p.attainment)
    }
}

/// Exceptions from the usual way of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunWish {
    /// Another dropping policy.
    pub dropping: Option<Dropping>,
    /// The run is given up once this share of the expected requests has missed.
    pub missed_share_max: Option<f64>,
    /// The run is given up once it must come to more than this cost per hour.
    pub cost_per_hour_max: Option<f64>,
}

/// Longest that a run lasts beyond its load, in seconds: queries are dropped at their deadlines.
const RUN_END_S: f64 = 30.0;

/// The plan from which all contenders start whose queries are served alike, but for those that plan.
pub struct CommonStart {
    service: QueryService,
    /// The plan.
    pub plan: Plan,
    /// Its groups.
    groups: Vec<GroupFacts>,
    /// Its ladder.
    pub steps: Vec<LadderStep>,
}

/// One pipeline with the common first plan, and with the preparations of each scaler.
pub struct Contest<'a> {
    /// The pipeline.
    pub name: String,
    /// Its problem.
    pub problem: Problem,
    /// Where contenders start whose queries are served in the usual way.
    pub start: CommonStart,
    /// The starts of the others: one for each other service of queries.
    other_starts: Vec<CommonStart>,
    plans: &'a [ServicePlans<'a>],
    /// What is compared.
    pub protocol: &'a HeadlineProtocol,
    sample: Workload,
}

/// A load that scalers are judged on.
pub struct ContestLoad {
    /// The arrivals.
    pub workload: Workload,
    /// The mean rate of its first seconds.
    first_qps: f64,
    /// Its length.
    seconds: usize,
}

impl ContestLoad {
    /// Poisson arrivals at these rates, one for each second. The first `first_s` seconds say how a run begins.
    pub fn new(rates: &[f64], first_s: usize, seed: u64) -> Self {
        let first_qps = mean(&rates[..rates.len().min(first_s)]);
        Self { workload: load(rates, ArrivalProcess::Poisson, seed), first_qps, seconds: rates.len() }
    }
}

/// The same rates with those of the last third multiplied by `factor`.
pub fn with_late_step(rates: &[f64], factor: f64) -> Vec<f64> {
    let last_third = 2 * rates.len() / 3;
    let rate = |(at, rate): (usize, &f64)| if at < last_third { *rate } else { factor * rate };
    rates.iter().enumerate().map(rate).collect()
}

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

/// The most replicas of one group.
struct ReplicaBound {
    group: GroupName,
    most: u32,
}

/// A controller whose commands are multiplied by a factor and bounded.
struct BoundedController {
    inner: Box<dyn Controller>,
    factor: f64,
    /// One entry for each group of the plan's only pipeline.
    bounds: Vec<ReplicaBound>,
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
                let most = self.bounds.iter().find(|b| b.group == *group).map_or(u32::MAX, |b| b.most);
                *replicas = ((f64::from(*replicas) * self.factor - 1e-9).ceil() as u32).clamp(1, most);
            }
        }
        commands
    }
}

/// The system's plans by demand for one way to serve queries.
pub struct ServicePlans<'a> {
    service: QueryService,
    plans: PlansByDemand<'a>,
}

/// The problem of a contest: the most accurate variants, least cost, no limits on devices, and replicas that take time to
/// load.
pub fn contest_problem(problem: &Problem, load_ms: f64) -> Result<Problem, Failure> {
    let reduced = most_accurate(problem)?;
    with_pipeline(&reduced, 0, |d| {
        d.survive = 0;
        d.serving.batching = Some(USUAL_SERVICE.batching);
        d.serving.routing = Some(RoutingPolicy::Stride);
        d.serving.dropping = Some(USUAL_SERVICE.dropping);
        for variant in d.tasks.iter_mut().flat_map(|t| &mut t.variants) {
            variant.load_ms = if variant.load_ms > 0.0 { variant.load_ms } else { load_ms };
        }
    })
}

/// The problem whose queries are served in this way.
fn served_by(problem: &Problem, service: QueryService) -> Result<Problem, Failure> {
    with_pipeline(problem, 0, |d| {
        d.serving.batching = Some(service.batching);
        d.serving.dropping = Some(service.dropping);
    })
}

/// Caches of the system's plans for one pipeline, for each way in which a contender's queries are served.
///
/// # Errors
/// If the protocol names an unknown policy, or the changed problem is invalid.
pub fn plans_by_demand<'a>(
    lab: &'a Lab,
    protocol: &HeadlineProtocol,
    problem: &Problem,
) -> Result<Vec<ServicePlans<'a>>, Failure> {
    let mut services = vec![USUAL_SERVICE];
    for contender in &protocol.contenders {
        let service = contender.service()?;
        if !services.contains(&service) {
            services.push(service);
        }
    }
    let of = |service: QueryService| {
        let problem = served_by(problem, service)?;
        let plans = PlansByDemand::new(lab, &problem, CONTENDERS[TWO_STEP])
            .with_check_loop()
            .with_ladders(protocol.ours.grid, protocol.ours.ladder_up_to);
        Ok(ServicePlans { service, plans })
    };
    services.into_iter().map(of).collect()
}

/// The rate that the plan of all contenders is for: the median of the stretch that chooses. If most of its seconds have no
/// query, the median is 0, and the mean counts.
pub fn planned_rate(rates: &[f64]) -> f64 {
    let median = rate_quantile(rates, 0.5);
    if median > 0.0 { median } else { mean(rates) }
}

/// Requests that a sample has at least, on the mean, unless it would be longer than [`SAMPLE_SECONDS_MAX`].
const SAMPLE_REQUESTS_MIN: f64 = 100.0;

/// Longest sample that is made longer for its requests.
const SAMPLE_SECONDS_MAX: usize = 3_600;

/// The length of a sample at this rate. At low rates it is longer than the protocol's.
///
/// Example: at 0.5 queries/s, 30 s have 15 requests. A sample has 200 s.
fn sample_seconds(usual: usize, qps: f64) -> usize {
    let enough = (SAMPLE_REQUESTS_MIN / qps).ceil();
    usual.max((enough as usize).min(SAMPLE_SECONDS_MAX))
}

/// What a contest is prepared from.
pub struct ContestInput<'a> {
    /// The pipeline's name.
    pub name: String,
    /// Its contest problem.
    pub problem: &'a Problem,
    /// The system's plans for it.
    pub plans: &'a [ServicePlans<'a>],
    /// The rates of the stretch that chooses.
    pub train: &'a [f64],
}

/// A search for the plans that contenders start from.
struct StartSearch<'s> {
    lab: &'s Lab,
    protocol: &'s HeadlineProtocol,
    /// The problem at the planned rate.
    problem: &'s Problem,
    planned_qps: f64,
}

impl StartSearch<'_> {
    /// A steady load at this rate.
    fn steady(&self, qps: f64) -> Workload {
        let sample_s = sample_seconds(self.protocol.constants.sample_s, self.planned_qps);
        constant(qps, sample_s, ArrivalProcess::Poisson, self.protocol.seeds.plan)
    }

    /// The cheapest plan that holds on a fresh sample, where queries are served in this way; `None` without one.
    fn start(&self, service: QueryService) -> Result<Option<CommonStart>, Failure> {
        let problem = served_by(self.problem, service)?;
        let sample = self.steady(self.planned_qps);
        let search = Duration::from_secs_f64(self.protocol.constants.start_search_s);
        let found = in_parallel(&[Planner::Greedy, Planner::Milp], |&planner| {
            Ok(self.lab.plan_within(search, &problem, planner, Some(sample.clone())))
        })?;
        // neither planner has seen the samples that choose between them
        let holding = judge_plans(&problem, found, &sample, None).into_iter().flatten().filter(HeldOutPlan::is_accepted);
        let cheapest = holding.map(|of| of.plan).min_by(|a, b| a.cost_per_hour.total_cmp(&b.cost_per_hour));
        let Some(plan) = cheapest else { return Ok(None) };
        let LadderRates { least, ratio, count } = self.protocol.constants.single_ladder;
        let rates_qps: Vec<f64> = (0..count).map(|k| least * self.planned_qps * ratio.powi(k)).collect();
        let fewest = vec![1; plan.pipelines[0].assignments.len()];
        let steps = ladder::steps(&problem, &plan, rates_qps, &fewest, |qps| self.steady(qps));
        if steps.is_empty() {
            return Ok(None);
        }
        let groups = groups_of(&problem, &plan)?;
        Ok(Some(CommonStart { service, plan, groups, steps }))
    }
}

impl<'a> Contest<'a> {
    /// Prepares a contest. Plans to start from are for the [`planned_rate`] of the stretch that chooses. `None` without one
    /// for the usual service.
    ///
    /// # Errors
    /// If the changed problem is invalid, or the protocol names an unknown policy.
    pub fn new(lab: &Lab, protocol: &'a HeadlineProtocol, input: ContestInput<'a>) -> Result<Option<Self>, Failure> {
        let ContestInput { name, problem, plans, train } = input;
        let planned_qps = planned_rate(train);
        let problem = with_pipeline(problem, 0, |d| d.demand_qps = planned_qps)?;
        let search = StartSearch { lab, protocol, problem: &problem, planned_qps };
        let Some(start) = search.start(USUAL_SERVICE)? else { return Ok(None) };
        let mut others: Vec<QueryService> = Vec::new();
        for contender in protocol.contenders.iter().filter(|contender| !contender.scaler.makes_plans()) {
            let service = contender.service()?;
            if service != USUAL_SERVICE && !others.contains(&service) {
                others.push(service);
            }
        }
        let other_starts = others.into_iter().map(|service| search.start(service)).collect::<Result<Vec<_>, _>>()?;
        let other_starts = other_starts.into_iter().flatten().collect();
        let sample = search.steady(planned_qps);
        Ok(Some(Self { name, problem, start, other_starts, plans, protocol, sample }))
    }

    /// The plan that all start from, in words.
    pub fn plan_in_words(&self) -> String {
        let part = &self.start.plan.pipelines[0];
        let group = |a: &apportion_domain::Assignment| format!("{} x {} (batch {})", a.replicas, a.group, a.batch);
        let groups: Vec<String> = part.assignments.iter().map(group).collect();
        format!("{:.0} queries/s: {}", part.demand_qps, groups.join(", "))
    }

    /// Runs a load under one scaler.
    ///
    /// # Errors
    /// If a setting of the scaler is incomplete, or the run fails.
    pub fn run(&self, load: &ContestLoad, scaler: &ContestScaler, wish: RunWish) -> Result<RunOutcome, Failure> {
        let Some(RunStart { plan, controller }) = self.start_of_run(load.first_qps, scaler)? else {
            return Ok(RunOutcome::NoPlan);
        };
        let headroom = scaler.headroom()?;
        let ladders = headroom.is_some();
        let headroom = headroom.unwrap_or(Headroom::Constant(1.0));
        let scenario = Scenario { controllers: controller.into_iter().collect(), ladders, headroom, ..self.scenario() };
        match self.replay(&plan, load, scenario, wish) {
            Ok(run) => Ok(RunOutcome::Done(ContestPoint::of(&run))),
            Err(SimulateError::Cut(CutReason::Missed { .. } | CutReason::Cost)) => Ok(RunOutcome::GivenUp),
            Err(e) => Err(anyhow!("{}: {e}", self.name).into()),
        }
    }

    /// A scenario with the protocol's delays.
    pub fn scenario<'s>(&self) -> Scenario<'s> {
        let constants = &self.protocol.constants;
        Scenario {
            report_delay: TimeSpan::from_millis(constants.report_delay_ms),
            command_delay: TimeSpan::from_millis(constants.command_delay_ms),
            ..Scenario::default()
        }
    }

    /// Plays a load through a plan.
    ///
    /// # Errors
    /// As [`replay`].
    pub fn replay(
        &self,
        plan: &Plan,
        load: &ContestLoad,
        scenario: Scenario<'_>,
        wish: RunWish,
    ) -> Result<Replay, SimulateError> {
        let expected: f64 = load.workload.traces.iter().map(expected_requests).sum();
        let planned = plan.pipelines[0].serving;
        let serving = wish.dropping.map(|dropping| ServingPolicy { dropping, ..planned });
        let misses_max = wish.missed_share_max.map(|share| (share * expected) as u64);
        let options = SimulateOptions { misses_max, serving, ..SimulateOptions::default() };
        let hours_max = (load.seconds as f64 + RUN_END_S) / 3600.0;
        let cost_max = wish.cost_per_hour_max.map(|most| most * hours_max);
        let scenario = Scenario { cost_max, ..scenario };
        replay(&self.problem, plan, &load.workload, &options, scenario)
    }

    /// The system's plans for a way to serve queries.
    pub fn plans_of(&self, service: QueryService) -> &PlansByDemand<'a> {
        let of = self.plans.iter().find(|of| of.service == service);
        &of.unwrap_or(&self.plans[0]).plans
    }

    /// The common start of contenders whose queries are served in this way; `None` if no plan was found for them.
    fn start_of(&self, service: QueryService) -> Option<&CommonStart> {
        std::iter::once(&self.start).chain(&self.other_starts).find(|start| start.service == service)
    }

    fn start_of_run(&self, first_qps: f64, scaler: &ContestScaler) -> Result<Option<RunStart<'_>>, Failure> {
        if scaler.kind.makes_plans() {
            let headroom = scaler.headroom()?.map_or(1.0, |headroom| headroom.factor());
            let system = System::new(self.plans_of(scaler.service), self.protocol.ours, headroom, first_qps);
            return Ok(system.map(|s| RunStart { plan: s.plan().clone(), controller: Some(Box::new(s)) }));
        }
        let Some(start) = self.start_of(scaler.service) else { return Ok(None) };
        let mut plan = start.plan.clone();
        let assignments = &mut plan.pipelines[0].assignments;
        let controller: Option<Box<dyn Controller>> = match scaler.kind {
            ScalerKind::Fixed => {
                let factor = scaler.value("factor")?;
                assignments.iter_mut().for_each(|a| a.replicas = (f64::from(a.replicas) * factor).ceil().max(1.0) as u32);
                None
            }
            ScalerKind::Tuner => {
                let tuner = tuner(&self.problem, &start.plan, &self.sample).map_err(|e| anyhow!("{e}"))?;
                Some(Box::new(self.bounded(start, tuner, scaler.value("factor")?)))
            }
            ScalerKind::Ladder => {
                let replicas = assignments.iter().map(|a| a.replicas).collect();
                let headroom = Headroom::Constant(scaler.value("headroom")?);
                let ladder = Ladder::new(start.steps.clone(), replicas, headroom);
                Some(Box::new(self.bounded(start, Box::new(LadderController(ladder)), 1.0)))
            }
            _ => {
                assignments.iter_mut().for_each(|a| a.replicas = a.replicas.max(scaler.least(a.replicas)));
                scaler.autoscaler(&start.groups, self.protocol.constants.replicas_factor_max)?
            }
        };
        Ok(Some(RunStart { plan, controller }))
    }

    /// A controller that stays below a multiple of the start's replicas.
    fn bounded(&self, start: &CommonStart, inner: Box<dyn Controller>, factor: f64) -> BoundedController {
        let bound = |a: &apportion_domain::Assignment| ReplicaBound {
            group: a.group.clone(),
            most: a.replicas * self.protocol.constants.replicas_factor_max,
        };
        BoundedController { inner, factor, bounds: start.plan.pipelines[0].assignments.iter().map(bound).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_for_the_median_rate_above_zero() {
        assert_eq!([planned_rate(&[1.0, 2.0, 9.0]), planned_rate(&[0.0, 0.0, 9.0])], [2.0, 3.0]);
    }

    #[test]
    fn samples_at_low_rates_are_longer() {
        let lengths = [1000.0, 10.0, 3.4, 0.5, 0.001].map(|qps| sample_seconds(30, qps));
        assert_eq!(lengths, [30, 30, 30, 200, SAMPLE_SECONDS_MAX]);
    }
}
