//! Which plan do INFaaS's scaling actions give, from the groups that run? Model-horizontal and model-vertical scaling of
//! pipelines (section 4.2).
//!
//! The module `statement` states the scaling problem of a problem and its deployed groups. The integer programme or the
//! heuristic answers it, and the answer becomes a plan that the checker accepts. The programme knows throughputs only. So
//! the plan is also judged on fresh samples, and the slack grows until it holds.
//!
//! The programme has no accuracy. A variant with an accuracy below the pipeline's floor is left out. If a mixture is
//! still below the floor, the least accurate variant of the plan is left out too, and the problem is stated again.

mod budgets;
mod statement;
#[cfg(test)]
mod tests;

use crate::answer::{infeasible, report};
use crate::baselines::assemble::{self, BaselineGroup};
use crate::baselines::common::{LargestPart, PART_PRECISION, demands, largest_part, unserved_load, with_part};
use crate::exact::search::attempt::CheckedPlan;
use crate::held_out::search::search_until_held;
use crate::options::{Planner, PlanningOptions};
use crate::replay;
use crate::scaling::greedy;
use crate::scaling::program::{Program, ReplicaCounts};
use crate::scaling::search::{self, MinimumResult};
use crate::warnings::warnings_of;
use apportion_domain::{
    Decision, ObjectiveValue, Pipeline, PipelineIndex, Plan, PlanOutcome, PlanningReport, Problem, SLACK, StopReason,
    TaskIndex, VariantIndex,
};
use apportion_estimator::{Workload, expected_requests};
use apportion_mip::RunLimits;
use budgets::LeftOutVariant;
use statement::{StatedProblem, StatementTerms, state};
use std::collections::BTreeSet;

pub use statement::price_per_hour;

/// Statements of one problem: each leaves out one more variant, or raises the load of a task.
const STATEMENTS_MAX: usize = 32;

/// The capacity for each query grows by this power of the search's headroom: to 2.9 times the load at 1.3. The programme
/// knows no queues, and a replica of a tight SLO must be idle half of the time.
const SLACK_POWER: i32 = 4;

/// The settings of scaling actions that the problem does not have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RescaleSettings {
    /// Weight of load latency, 1/s (INFaaS section 4.2.1). At 0.1 a replica that loads for 10 s counts twice.
    pub lambda: f64,
}

/// The problem at the highest part of its demands that the devices can serve by scaling actions. If no part can be
/// served, it is the problem itself.
#[must_use]
pub fn servable(problem: &Problem, options: &PlanningOptions, settings: &RescaleSettings) -> Problem {
    let limits = options.limits().for_search();
    let rescaler = Rescaler { problem, planner: options.planner, settings, limits: &limits };
    // an exhausted time limit ends each statement, so the error does not occur
    match largest_part(PART_PRECISION, |part| Ok(rescaler.plan_at(part, 1.0))) {
        Ok(Some(LargestPart { part, .. })) => with_part(problem, part),
        _ => problem.clone(),
    }
}

/// Plans by scaling actions from the problem's deployed groups. The planner is [`Planner::Greedy`] (the heuristic of
/// section 4.2.2), or else the integer programme of section 4.2.1.
///
/// The objective of the plan is its price. It has no bound: the programme optimises the price of the actions at the
/// traffic of the groups that run. A problem whose demand the devices cannot serve has the outcome unknown, with the
/// shortfall.
pub fn rescale(problem: &Problem, options: &PlanningOptions, settings: &RescaleSettings) -> (PlanOutcome, PlanningReport) {
    let planned = options.trace.clone().unwrap_or_else(|| replay::default_workload(problem));
    let requests = requests_of(&planned);
    let (outcome, mut report) = search_until_held(problem, options, |options| {
        let heavier = options.trace.as_ref().map_or(requests, requests_of);
        let headroom = if requests > 0.0 { (heavier / requests).max(1.0) } else { 1.0 };
        let slack_factor = headroom.powi(SLACK_POWER);
        plan_with_slack(problem, options, settings, slack_factor)
    });
    report.warnings = warnings_of(problem);
    report.seconds = (options.elapsed)().as_secs_f64();
    report.seconds_of = options.stopwatch.seconds_of((options.elapsed)());
    (outcome, report)
}

fn requests_of(workload: &Workload) -> f64 {
    workload.traces.iter().map(expected_requests).sum()
}

/// The plan with this capacity for each query, replayed on the load of the options.
fn plan_with_slack(
    problem: &Problem,
    options: &PlanningOptions,
    settings: &RescaleSettings,
    slack_factor: f64,
) -> (PlanOutcome, PlanningReport) {
    let limits = options.limits().for_search();
    let rescaler = Rescaler { problem, planner: options.planner, settings, limits: &limits };
    let Some(plan) = rescaler.plan_at(1.0, slack_factor) else {
        return rescaler.no_plan(options);
    };
    let default = replay::default_workload(problem);
    let workload = options.trace.as_ref().unwrap_or(&default);
    let estimate = replay::replay_alone(problem, &plan, workload, &options.limits().for_finishing()).map(|s| s.total);
    let objective = ObjectiveValue { step: None, value: Some(plan.cost_per_hour), bound: None };
    let why = rescaler.describe(slack_factor);
    let candidate = CheckedPlan { plan, objective, stopped: Some(StopReason::Finished), provenance: None };
    let (outcome, mut report) = report::report_plan(problem, options, candidate, estimate, Vec::new());
    let decision = Decision { what: "scaling".into(), why, binding: Vec::new(), alternatives: Vec::new() };
    report.explanation.decisions.insert(0, decision);
    (outcome, report)
}

/// Finds scaling actions for parts of a problem's demands.
struct Rescaler<'a> {
    problem: &'a Problem,
    planner: Planner,
    settings: &'a RescaleSettings,
    limits: &'a RunLimits,
}

impl Rescaler<'_> {
    /// The plan for a part of the demands with this capacity for each query; `None` if there is none.
    fn plan_at(&self, part: f64, slack_factor: f64) -> Option<Plan> {
        let problem = with_part(self.problem, part);
        let mut visits = running_visits(&problem);
        let mut left_out = below_floor(&problem);
        for _ in 0..STATEMENTS_MAX {
            let lambda = self.settings.lambda;
            let terms = StatementTerms { visits: &visits, left_out: &left_out, slack_factor, lambda };
            let stated = state(&problem, &terms)?;
            let groups = stated.groups_of(&problem, &self.counts(&stated)?);
            // other variants make other numbers of queries
            if raise(&mut visits, &visits_of(&problem, &groups)) {
                continue;
            }
            let plan = assemble::plan(&problem, &groups, &demands(&problem))?;
            match least_accurate(&problem, &plan, &groups) {
                Some(place) => left_out.insert(place),
                None => return apportion_checker::check(&problem, &plan).is_empty().then_some(plan),
            };
        }
        None
    }

    /// The replicas after the actions of one statement.
    fn counts(&self, stated: &StatedProblem) -> Option<ReplicaCounts> {
        let program = Program::new(&stated.scaling);
        let heuristic = greedy::counts(&program, self.limits).ok();
        if self.planner == Planner::Greedy {
            return heuristic;
        }
        match search::minimise(&program, heuristic.as_ref(), self.limits) {
            MinimumResult::Found { counts, .. } => Some(program.prefer_running(counts)),
            MinimumResult::Infeasible | MinimumResult::Unknown(_) => None,
        }
    }

    /// Outcome and report of a problem without a plan: the part of the demands that has one.
    fn no_plan(&self, options: &PlanningOptions) -> (PlanOutcome, PlanningReport) {
        if infeasible::is_hopeless(self.problem) {
            return report::report_infeasible(self.problem, options);
        }
        let largest = largest_part(PART_PRECISION, |part| Ok(self.plan_at(part, 1.0)));
        let part = largest.ok().flatten().map_or(0.0, |largest| largest.part);
        let (outcome, mut report) = report::report_unknown(options, StopReason::DemandNotMet);
        if part < 1.0 {
            report.explanation.shortfalls = unserved_load(self.problem, &demands(self.problem), part);
        }
        (outcome, report)
    }

    /// How the plan was found.
    fn describe(&self, slack_factor: f64) -> String {
        let by = match self.planner {
            Planner::Greedy => "the heuristic of INFaaS section 4.2.2",
            _ => "the integer programme of INFaaS section 4.2.1",
        };
        let RescaleSettings { lambda } = self.settings;
        format!("by {by} from the replicas that run, with lambda {lambda} and {slack_factor:.2} times the load as capacity")
    }
}

/// Queries that reach each task for one of the root, by pipeline.
fn visits_of(problem: &Problem, groups: &[Vec<BaselineGroup>]) -> Vec<Vec<f64>> {
    problem.pipelines.iter().zip(groups).map(|(pipeline, own)| assemble::visits(pipeline, own)).collect()
}

/// The same with the groups that run. A task without any counts with its most accurate variant.
fn running_visits(problem: &Problem) -> Vec<Vec<f64>> {
    let of_pipeline = |(i, pipeline): (usize, &Pipeline)| {
        let tasks = (0..pipeline.tasks.len()).map(TaskIndex);
        tasks.flat_map(|t| running_groups(problem, PipelineIndex(i), t)).collect::<Vec<BaselineGroup>>()
    };
    let groups: Vec<Vec<BaselineGroup>> = problem.pipelines.iter().enumerate().map(of_pipeline).collect();
    visits_of(problem, &groups)
}

/// The groups of a task that run, each with its part of the traffic in proportion to its throughput.
fn running_groups(problem: &Problem, p: PipelineIndex, t: TaskIndex) -> Vec<BaselineGroup> {
    let pipeline = problem.pipeline(p);
    let own = problem.deployed.iter().filter(|d| d.pipeline == p && d.task == t && d.replicas > 0);
    let mut groups: Vec<BaselineGroup> = own
        .filter_map(|d| {
            let row = pipeline.variant(t, d.variant).profile.row(d.hardware, d.share, d.batch)?;
            let (variant, hardware, share) = (d.variant, d.hardware, d.share);
            let traffic = f64::from(d.replicas) * row.throughput_qps();
            Some(BaselineGroup { task: t, variant, hardware, share, batch: d.batch, replicas: d.replicas, traffic })
        })
        .collect();
    let all: f64 = groups.iter().map(|g| g.traffic).sum();
    groups.iter_mut().for_each(|g| g.traffic /= all);
    if groups.is_empty()
        && let Some(variant) = pipeline.most_accurate(t).next()
        && let Some(row) = pipeline.variant(t, variant).profile.rows().first()
    {
        let (hardware, share, batch) = (row.hardware, row.share, row.batch);
        groups.push(BaselineGroup { task: t, variant, hardware, share, batch, replicas: 1, traffic: 1.0 });
    }
    groups
}

/// Raises visits to those that are seen; returns whether one grew.
fn raise(visits: &mut [Vec<f64>], seen: &[Vec<f64>]) -> bool {
    let mut grew = false;
    for (has, &sees) in visits.iter_mut().flatten().zip(seen.iter().flatten()) {
        if sees > *has + SLACK * has.max(1.0) {
            (*has, grew) = (sees, true);
        }
    }
    grew
}

/// Variants with which a pipeline is below its floor even if all other tasks run their most accurate variants.
fn below_floor(problem: &Problem) -> BTreeSet<LeftOutVariant> {
    let mut left_out = BTreeSet::new();
    for (i, pipeline) in problem.pipelines.iter().enumerate() {
        let Some(floor) = pipeline.min_accuracy else { continue };
        let tasks = || (0..pipeline.tasks.len()).map(TaskIndex);
        let best: Option<Vec<VariantIndex>> = tasks().map(|t| pipeline.most_accurate(t).next()).collect();
        let Some(best) = best else { continue };
        for t in tasks() {
            for v in (0..pipeline.task(t).variants.len()).map(VariantIndex) {
                let mut chosen = best.clone();
                chosen[t.get()] = v;
                if pipeline.accuracy_of(&chosen) < floor - SLACK {
                    left_out.insert((PipelineIndex(i), t, v));
                }
            }
        }
    }
    left_out
}

/// The variant of a plan below its floor that is farthest below the most accurate one of its task. `None` if each
/// pipeline has its floor, or no variant is left to leave out.
fn least_accurate(problem: &Problem, plan: &Plan, groups: &[Vec<BaselineGroup>]) -> Option<LeftOutVariant> {
    for (i, (pipeline, part)) in problem.pipelines.iter().zip(&plan.pipelines).enumerate() {
        if pipeline.min_accuracy.is_none_or(|floor| part.accuracy >= floor - SLACK) {
            continue;
        }
        let loss = |g: &BaselineGroup| {
            let best = pipeline.most_accurate(g.task).next().map_or(0.0, |v| pipeline.variant(g.task, v).accuracy);
            best - pipeline.variant(g.task, g.variant).accuracy
        };
        let lossy = groups[i].iter().filter(|g| loss(g) > 0.0);
        let worst = lossy.max_by(|a, b| loss(a).total_cmp(&loss(b)));
        return worst.map(|g| (PipelineIndex(i), g.task, g.variant));
    }
    None
}
