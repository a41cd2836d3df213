//! How does the whole system fare, which counts its misses and plans again?

use super::disturbance::MachineDisturbance;
use super::pipelines::TriedPipeline;
use crate::reproduce::contenders::{CONTENDERS, TWO_STEP};
use crate::reproduce::lab::{Lab, constant, in_parallel};
use crate::reproduce::replanning::PlansByDemand;
use crate::reproduce::report::TitledTable;
use apportion_domain::{Moment, Plan, Queueing, RoutingPolicy, ServingPolicy, TimeSpan};
use apportion_estimator::{
    ArrivalProcess, Controller, Observation, RequestOutcome, RequestRecord, Scenario, ScenarioEvent, SimulateOptions,
    replay,
};
use apportion_planning::change::{IMPROVE_AFTER_SECONDS, Loads, PERIOD_SECONDS, keep_headroom};
use apportion_planning::ladder;
use apportion_serving::error_budget::OutcomeCount;
use apportion_serving::headroom_controller::{HeadroomController, PROMISE};
use apportion_serving::ladder::Headroom;
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, number, percent};
use apportion_wire::ReplanSpec;

/// Length of a run.
pub const SECONDS: usize = 300;

/// A round, the loading of its replicas and the queue before it are over after this time.
const SETTLED: Moment = Moment::from_nanos(60_000_000_000);

/// From a measurement to the plan that it leads to.
const PLANNING: TimeSpan = TimeSpan::from_nanos(5_000_000_000);

/// Ladders reach this factor over a plan's demand.
const LADDER_UP_TO: f64 = 4.0;

/// The factor between two demands that plans are made for.
const GRID: f64 = 1.12;

/// No round changes a plan that has been in force for less time: its replicas load meanwhile.
const YOUNG: TimeSpan = TimeSpan::from_nanos(IMPROVE_AFTER_SECONDS * 1_000_000_000);

/// Agents report each second.
const REPORTS: TimeSpan = TimeSpan::from_nanos(1_000_000_000);

/// Rounds of replanning whose demand rises with the misses, as the service's do, with the service's default headroom.
///
/// The misses count whether or not the plan has a ladder, which follows them as well. Another plan comes if the ladder in
/// force ends below the load, if requests miss and it serves more, or if it saves more than the change costs.
struct Rounds<'a> {
    plans: &'a PlansByDemand<'a>,
    plan: Plan,
    /// The number of the demand on the grid.
    step: i32,
    /// Planned demand over load.
    headroom: f64,
    loads: Loads,
    /// Follows the misses.
    feedback: HeadroomController,
    /// Outcomes up to the last report.
    counted: OutcomeCount,
    /// Outcomes up to the last round.
    counted_in_round: OutcomeCount,
    /// Requests since the last round.
    offered: u64,
    /// Seconds since the last round.
    seconds: usize,
    /// No plan is changed before.
    young_until: Moment,
}

impl<'a> Rounds<'a> {
    fn new(plans: &'a PlansByDemand<'a>, plan: Plan, step: i32) -> Self {
        Self {
            plans,
            plan,
            step,
            headroom: planned_headroom(),
            loads: Loads::default(),
            feedback: HeadroomController::new(PROMISE),
            counted: OutcomeCount::default(),
            counted_in_round: OutcomeCount::default(),
            offered: 0,
            seconds: 0,
            young_until: Moment::ZERO,
        }
    }

    /// The plan that replaces the one in force at this load, if one does. `of_round` are the requests that ended in the
    /// round. Ladders have the headroom `ladder_headroom`.
    fn next_plan(&mut self, qps: f64, of_round: OutcomeCount, ladder_headroom: f64) -> Option<Plan> {
        let factor = self.feedback.demand_factor();
        let wanted = self.plans.grid_step(qps * self.headroom * factor);
        let (step, plan) = self.plans.plan_below(wanted).filter(|(step, _)| *step != self.step)?;
        let (in_force, new) = (&self.plan.pipelines[0], &plan.pipelines[0]);
        let is_outgrown = ladder::is_outgrown(in_force, new, qps * keep_headroom(self.headroom) * factor);
        let serves_more = PROMISE.is_broken_by(of_round) && step > self.step;
        let plans = self.plans;
        let price = |plan| move |qps: f64| plans.price_per_hour(plan, ladder_headroom * qps);
        let saves = || self.loads.compare(price(&self.plan), price(&plan)).is_worth_it();
        if !is_outgrown && !serves_more && !saves() {
            return None;
        }
        (self.step, self.plan) = (step, plan.clone());
        Some(plan)
    }
}

impl Controller for Rounds<'_> {
    fn period(&self) -> TimeSpan {
        REPORTS
    }

    fn observe(&mut self, seen: &Observation) -> Vec<(TimeSpan, ScenarioEvent)> {
        self.feedback.report(seen.at, seen.outcomes[0].since(self.counted));
        self.counted = seen.outcomes[0];
        self.offered += seen.arrivals.iter().flatten().map(|a| u64::from(a.count)).sum::<u64>();
        self.seconds += 1;
        if self.seconds < PERIOD_SECONDS {
            return Vec::new();
        }
        let qps = std::mem::take(&mut self.offered) as f64 / std::mem::take(&mut self.seconds) as f64;
        self.loads.push(qps);
        let of_round = self.counted.since(std::mem::replace(&mut self.counted_in_round, self.counted));
        if seen.at < self.young_until {
            return Vec::new();
        }
        let Some(plan) = self.next_plan(qps, of_round, seen.headrooms[0]) else { return Vec::new() };
        self.young_until = seen.at + PLANNING + YOUNG;
        vec![(PLANNING, ScenarioEvent::Plan { plan })]
    }
}

/// Planned demand over load: the service's default.
pub fn planned_headroom() -> f64 {
    ReplanSpec::default().headroom
}

/// How queries are shared among the replicas of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplicaSharing {
    /// As the plan says.
    Planned,
    /// A sender takes the replica with the fewest of its queries (`jsq`).
    LeastOutstanding,
    /// A group has one queue, and each free replica takes from it.
    CentralQueue,
}

impl ReplicaSharing {
    fn name(self) -> &'static str {
        match self {
            Self::Planned => "as planned: in turn",
            Self::LeastOutstanding => "routing: jsq",
            Self::CentralQueue => "queueing: central",
        }
    }

    /// The policies in the place of the planned ones.
    fn serving(self, planned: ServingPolicy) -> Option<ServingPolicy> {
        match self {
            Self::Planned => None,
            Self::LeastOutstanding => Some(ServingPolicy { routing: RoutingPolicy::Jsq, ..planned }),
            Self::CentralQueue => Some(ServingPolicy { queueing: Queueing::Central, ..planned }),
        }
    }
}

/// What a run plays.
#[derive(Clone, Copy)]
struct LoopTrial {
    disturbance: MachineDisturbance,
    sharing: ReplicaSharing,
}

/// Every disturbance as planned, and one slow replica under each way to share queries.
fn trials() -> Vec<LoopTrial> {
    let planned = |disturbance| LoopTrial { disturbance, sharing: ReplicaSharing::Planned };
    let slow = |sharing| LoopTrial { disturbance: MachineDisturbance::SLOW_REPLICA, sharing };
    let others = [ReplicaSharing::LeastOutstanding, ReplicaSharing::CentralQueue].map(slow);
    MachineDisturbance::ALL.map(planned).into_iter().chain(others).collect()
}

/// Requests of a part of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopResult {
    /// The pipeline.
    pub pipeline: String,
    /// Share of the requests that were in time.
    pub attainment: f64,
    /// Mean accuracy of the answers.
    pub accuracy: f64,
}

/// One run.
struct LoopRun {
    trial: LoopTrial,
    whole: LoopResult,
    settled: LoopResult,
    plans: u64,
    cost_per_hour: f64,
}

/// All runs.
pub struct ClosedLoop {
    /// By pipeline, then by disturbance. A pipeline without a plan has no answers.
    runs: Vec<LoopRun>,
}

impl ClosedLoop {
    /// The results after the first minute under one disturbance, by pipeline.
    pub fn settled(&self, disturbance: MachineDisturbance) -> Vec<LoopResult> {
        let is_asked = |run: &&LoopRun| run.trial.disturbance == disturbance;
        self.planned().filter(is_asked).map(|run| run.settled.clone()).collect()
    }

    /// The runs whose queries are shared as the plan says.
    fn planned(&self) -> impl Iterator<Item = &LoopRun> {
        self.runs.iter().filter(|run| run.trial.sharing == ReplicaSharing::Planned)
    }

    /// The figures.
    pub fn tables(&self) -> Vec<TitledTable> {
        let header = [
            "pipeline",
            "disturbance",
            "in time",
            "in time, after 60 s",
            "accuracy",
            "accuracy, after 60 s",
            "plans",
            "cost/h",
        ];
        let mut table = TextTable::new(&header);
        for run in self.planned() {
            table.row(vec![
                run.whole.pipeline.clone(),
                run.trial.disturbance.name(),
                percent(run.whole.attainment),
                percent(run.settled.attainment),
                number(run.whole.accuracy),
                number(run.settled.accuracy),
                run.plans.to_string(),
                number(run.cost_per_hour),
            ]);
        }
        vec![TitledTable { title: "The closed loop".into(), table }, self.slow_replicas()]
    }

    /// One slow replica, by how queries are shared among replicas.
    fn slow_replicas(&self) -> TitledTable {
        let mut table = TextTable::new(&["pipeline", "queries", "in time", "in time, after 60 s", "accuracy, after 60 s"]);
        for run in self.runs.iter().filter(|run| run.trial.disturbance == MachineDisturbance::SLOW_REPLICA) {
            table.row(vec![
                run.whole.pipeline.clone(),
                run.trial.sharing.name().into(),
                percent(run.whole.attainment),
                percent(run.settled.attainment),
                number(run.settled.accuracy),
            ]);
        }
        TitledTable { title: "The closed loop with one replica at half speed, by who chooses the replica".into(), table }
    }
}

/// The requests that arrived from `from` on.
fn result_from(pipeline: &str, records: &[RequestRecord], from: Moment) -> LoopResult {
    let (mut requests, mut in_time, mut answered, mut accuracy) = (0_u64, 0_u64, 0_u64, 0.0);
    for record in records.iter().filter(|r| r.arrival >= from) {
        requests += 1;
        in_time += u64::from(record.outcome == RequestOutcome::Ok);
        if record.finish.is_some() {
            answered += 1;
            accuracy += record.accuracy;
        }
    }
    LoopResult {
        pipeline: pipeline.to_owned(),
        attainment: in_time as f64 / requests.max(1) as f64,
        accuracy: accuracy / answered.max(1) as f64,
    }
}

/// Runs every pipeline under every disturbance.
pub fn compare(lab: &Lab, tried: &[TriedPipeline]) -> Result<ClosedLoop, Failure> {
    let mut runs = Vec::new();
    for of in tried {
        lab.show_step(format!("robustness: the closed loop of {}", of.name));
        let plans =
            PlansByDemand::new(lab, &of.problem, CONTENDERS[TWO_STEP]).with_check_loop().with_ladders(GRID, LADDER_UP_TO);
        runs.extend(in_parallel(&trials(), |&trial| run(lab, of, &plans, trial))?);
    }
    Ok(ClosedLoop { runs })
}

fn run(lab: &Lab, of: &TriedPipeline, plans: &PlansByDemand<'_>, trial: LoopTrial) -> Result<LoopRun, Failure> {
    let LoopTrial { disturbance, sharing } = trial;
    let demand_qps = of.problem.pipelines[0].demand_qps;
    let wanted = plans.grid_step(demand_qps * planned_headroom());
    let Some((step, plan)) = plans.plan_below(wanted) else {
        let nothing = || LoopResult { pipeline: of.name.clone(), attainment: 0.0, accuracy: 0.0 };
        return Ok(LoopRun { trial, whole: nothing(), settled: nothing(), plans: 0, cost_per_hour: 0.0 });
    };
    let seconds = lab.full_or_quick(SECONDS, 62);
    let workload = constant(demand_qps, seconds, ArrivalProcess::Poisson, lab.held_out_seed());
    let machine = disturbance.disturbed(&of.problem)?;
    let rounds = Rounds::new(plans, plan.clone(), step);
    let scenario = Scenario {
        events: disturbance.events(&plan, seconds),
        controllers: vec![Box::new(rounds)],
        ladders: true,
        tuners: true,
        headroom: Headroom::Feedback(Box::new(HeadroomController::new(PROMISE))),
        ..Scenario::default()
    };
    let serving = sharing.serving(plan.pipelines[0].serving);
    let options = SimulateOptions { requests: true, serving, ..SimulateOptions::default() };
    let run = replay(&machine, &plan, &workload, &options, scenario).map_err(anyhow::Error::new)?;
    let records = &run.simulation.requests;
    Ok(LoopRun {
        trial,
        whole: result_from(&of.name, records, Moment::ZERO),
        settled: result_from(&of.name, records, SETTLED),
        plans: run.plans,
        cost_per_hour: run.cost_per_hour,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::robustness::pipelines::pipelines;
    use apportion_domain::PipelineIndex;

    #[test]
    fn the_loop_keeps_what_a_fixed_plan_loses() {
        let lab = Lab { quick: false, ..Lab::quick() };
        let of = &pipelines(&lab).expect("the built-in pipeline")[0];
        let plans =
            PlansByDemand::new(&lab, &of.problem, CONTENDERS[TWO_STEP]).with_check_loop().with_ladders(GRID, LADDER_UP_TO);
        let disturbance = MachineDisturbance::Latencies(2.0);
        let kept = run(&lab, of, &plans, LoopTrial { disturbance, sharing: ReplicaSharing::Planned }).expect("a run");
        let demand_qps = of.problem.pipelines[0].demand_qps;
        let plan = plans.plan_at(demand_qps * planned_headroom()).expect("a plan");
        let machine = disturbance.disturbed(&of.problem).expect("a machine");
        let workload = constant(demand_qps, SECONDS, ArrivalProcess::Poisson, lab.held_out_seed());
        let fixed = replay(&machine, &plan, &workload, &SimulateOptions::default(), Scenario::default()).expect("a run");
        let lost = fixed.simulation.total.attainment;
        assert!(lost < 0.9 && kept.settled.attainment >= 0.95, "{lost} by the plan, {:?} by the loop", kept.settled);
    }

    #[test]
    fn only_a_slow_replica_is_tried_with_other_queues() {
        let of =
            |sharing: ReplicaSharing| trials().into_iter().filter(|trial| trial.sharing == sharing).collect::<Vec<_>>();
        assert_eq!(of(ReplicaSharing::Planned).len(), MachineDisturbance::ALL.len());
        for sharing in [ReplicaSharing::LeastOutstanding, ReplicaSharing::CentralQueue] {
            let disturbances: Vec<MachineDisturbance> = of(sharing).iter().map(|trial| trial.disturbance).collect();
            assert_eq!(disturbances, [MachineDisturbance::SLOW_REPLICA]);
            assert_ne!(sharing.serving(ServingPolicy::default()), Some(ServingPolicy::default()));
        }
    }

    #[test]
    fn a_result_counts_requests_from_its_moment() {
        let record = |at_s: u64, outcome, accuracy, is_answered: bool| RequestRecord {
            pipeline: PipelineIndex(0),
            request: at_s,
            arrival: Moment::from_nanos(at_s * 1_000_000_000),
            finish: is_answered.then_some(Moment::from_nanos(at_s * 1_000_000_000 + 5)),
            outcome,
            drop_task: None,
            reason: None,
            accuracy,
        };
        let records = [
            record(1, RequestOutcome::Dropped, 0.0, false),
            record(70, RequestOutcome::Ok, 0.8, true),
            record(71, RequestOutcome::Late, 0.6, true),
        ];
        let result = result_from("p", &records, SETTLED);
        assert_eq!((result.attainment, result.accuracy), (0.5, 0.7));
        assert!((result_from("p", &records, Moment::ZERO).attainment - 1.0 / 3.0).abs() < 1e-12);
    }
}
