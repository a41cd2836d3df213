//! Which planner gives the best plan for a load?

use super::load::{check_arrivals, default_arrivals, default_seed, workload};
use super::options::planning_options;
use apportion_domain::{ArrivalTrace, Invalid, JudgedVerdict, Mode, PipelinePlan, Plan, Problem, StopReason};
use apportion_planning::compare::{ComparisonStep, Contender, PlannerComparison, compare};
use apportion_wire::plan::ObjectiveFile;
use apportion_wire::{
    ComparedEstimateFile, ComparedPlannerFile, ComparisonFile, ComparisonSamplesFile, JudgedOnFile, PromisedPipelineFile,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use utoipa::ToSchema;
use uuid::Uuid;

/// Most planners of a comparison: each of them once.
pub const CONTENDERS_MAX: usize = Contender::ALL.len();

/// A request for a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ComparisonRequest {
    /// A whole problem file. Instead of `plan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<apportion_wire::ProblemSpec>)]
    pub problem: Option<Value>,
    /// A plan of the service, for its problem. Instead of `problem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Uuid>,
    /// The load of each pipeline: an uploaded trace by its identifier or its name. Of several with this name the newest
    /// counts. Default: the demand, for 60 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The loads of some pipelines by name, instead of `trace`. A pipeline without one gets its demand.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub traces: BTreeMap<String, String>,
    /// Root seed of all random streams; default 1.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// How arrivals are drawn from rates: `poisson` (default), `uniform` or `gamma:CV`.
    #[serde(default = "default_arrivals")]
    pub arrivals: String,
    /// Which planners, each once; default: all. `milp-unchecked` is `milp` without the check loop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub planners: Vec<String>,
    /// Limit on the time of each planner, above 0, at most 3600; default 60.
    #[serde(default = "default_time_limit_s")]
    pub time_limit_s: f64,
    /// Relative gap at which a plan counts as optimal, 0 to 1; default 1e-4.
    #[serde(default = "default_gap")]
    pub gap: f64,
}

fn default_time_limit_s() -> f64 {
    60.0
}

fn default_gap() -> f64 {
    1e-4
}

impl Default for ComparisonRequest {
    fn default() -> Self {
        Self {
            problem: None,
            plan: None,
            trace: None,
            traces: BTreeMap::new(),
            seed: default_seed(),
            arrivals: default_arrivals(),
            planners: Vec::new(),
            time_limit_s: default_time_limit_s(),
            gap: default_gap(),
        }
    }
}

/// How a run is followed, and stopped.
pub struct ComparisonWatch<'a> {
    /// Stops the run when it is set.
    pub cancel: Arc<AtomicBool>,
    /// Receives the name of each planner that begins.
    pub on_begin: &'a dyn Fn(&'static str),
    /// Receives the result of each planner that ended, before the plans are judged.
    pub on_planned: &'a dyn Fn(ComparedPlannerFile),
}

impl ComparisonRequest {
    /// The options that are out of their bounds, for a limit of at most `time_limit_s_max`.
    #[must_use]
    pub fn check(&self, time_limit_s_max: f64) -> Vec<Invalid> {
        let mut refused: Vec<Invalid> = check_arrivals(&self.arrivals).into_iter().collect();
        let mut seen = BTreeSet::new();
        for (at, name) in self.planners.iter().enumerate() {
            let place = format!("/planners/{at}");
            if Contender::from_name(name).is_none() {
                let known = Contender::ALL.map(Contender::name).join(", ");
                refused.push(Invalid::new(place, format!("{name:?}"), format!("one of {known}")));
            } else if !seen.insert(name) {
                refused.push(Invalid::new(place, format!("{name:?} again"), "each planner once"));
            }
        }
        let limit = self.time_limit_s;
        if !(limit > 0.0 && limit <= time_limit_s_max) {
            refused.push(Invalid::new("/time_limit_s", limit, format!("above 0, at most {time_limit_s_max}")));
        }
        if !(0.0..=1.0).contains(&self.gap) {
            refused.push(Invalid::new("/gap", self.gap, "0 to 1"));
        }
        refused
    }

    /// The planners of the request, in its order. A planner that is named twice is there once.
    #[must_use]
    pub fn contenders(&self) -> Vec<Contender> {
        if self.planners.is_empty() {
            return Contender::ALL.to_vec();
        }
        let mut contenders: Vec<Contender> = Vec::with_capacity(CONTENDERS_MAX);
        for contender in self.planners.iter().filter_map(|name| Contender::from_name(name)) {
            if !contenders.contains(&contender) {
                contenders.push(contender);
            }
        }
        contenders
    }

    /// Plans with each planner for the traces, one for each pipeline, and judges the plans on fresh samples of them.
    #[must_use]
    pub fn run(&self, problem: &Problem, traces: Vec<ArrivalTrace>, watch: &ComparisonWatch<'_>) -> ComparisonFile {
        let options = planning_options(self.gap, self.time_limit_s, &watch.cancel);
        let load = workload(traces, &self.arrivals, self.seed);
        let mode = problem.objective.mode;
        let on_step = |step: ComparisonStep<'_>| match step {
            ComparisonStep::Begins(contender) => (watch.on_begin)(contender.name()),
            // A planner that was cancelled has found nothing.
            ComparisonStep::Planned(_) if watch.cancel.load(Ordering::Relaxed) => {}
            ComparisonStep::Planned(row) => (watch.on_planned)(planner_file(mode, row)),
        };
        let rows = compare(problem, &self.contenders(), &options, &load, on_step);
        let samples = rows.iter().find_map(PlannerComparison::judged_on).map(JudgedOnFile::from);
        let samples = samples.map(|JudgedOnFile { load, samples, first_seed, .. }| ComparisonSamplesFile {
            load,
            samples,
            first_seed,
        });
        let planners = rows.iter().map(|row| planner_file(mode, row)).collect();
        ComparisonFile { version: 1, seed: self.seed, judged_on: samples, planners }
    }
}

fn planner_file(mode: Mode, row: &PlannerComparison) -> ComparedPlannerFile {
    let promise = |p: &PipelinePlan| PromisedPipelineFile {
        name: p.name.clone(),
        demand_qps: p.demand_qps,
        accuracy: Some(p.accuracy),
    };
    ComparedPlannerFile {
        planner: row.contender.name().to_owned(),
        status: row.outcome.status().name().to_owned(),
        stopped: row.outcome.stopped().map(StopReason::name).map(str::to_owned),
        objective: ObjectiveFile::of(mode, &row.report.objective),
        cost_per_hour: row.plan().map(|p| p.cost_per_hour),
        replicas: row.plan().map(Plan::replicas),
        pipelines: row.plan().map(|plan| plan.pipelines.iter().map(promise).collect()),
        estimate: row.estimate.as_ref().map(ComparedEstimateFile::from),
        holds: row.verdict().map(|verdict| verdict == JudgedVerdict::Holds),
        verdict: row.verdict().map(|verdict| verdict.name().to_owned()),
        pipelines_judged: row.judged_on().map(|judged| JudgedOnFile::from(judged).pipelines),
        rounds: row.report.rounds.len() as u64,
        seconds: row.report.seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_planners_are_refused_with_their_place() {
        let of = |planners: &[&str]| ComparisonRequest {
            planners: planners.iter().map(|name| (*name).to_owned()).collect(),
            ..ComparisonRequest::default()
        };
        let places = |request: &ComparisonRequest| -> Vec<String> {
            request.check(60.0).into_iter().map(|refused| refused.pointer).collect()
        };
        assert_eq!(places(&of(&["milp", "oracle", "milp"])), ["/planners/1", "/planners/2"]);
        assert_eq!(places(&of(&[])), [""; 0]);
        assert_eq!(places(&ComparisonRequest { time_limit_s: 61.0, ..of(&[]) }), ["/time_limit_s"]);
        assert_eq!(of(&[]).contenders().len(), CONTENDERS_MAX);
        assert_eq!(of(&["greedy"]).contenders().len(), 1);
    }
}
