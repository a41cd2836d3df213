//! How does a plan serve a load?

use super::load::{check_arrivals, default_arrivals, default_seed, with_demand, workload};
use super::series::{SERIES_WINDOWS_MAX, SeriesWindows};
use crate::ladder_headroom::LadderHeadroom;
use apportion_domain::{ArrivalTrace, Batching, Dropping, Invalid, Plan, Problem, Queueing};
use apportion_estimator::{
    Controller, INGRESSES_MAX, IngressChoice, IngressSettings, Replay, Scenario, ServiceTimes, SimulateError,
    SimulateOptions, Simulation, Workload, controllers, replay, simulate,
};
use apportion_serving::ladder::Headroom;
use apportion_wire::{EstimateFile, SimulatedChangesFile, SimulatedPipelineFile, SimulatedSeriesFile, SimulationFile};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// The times of batches in a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SimulatedTimes {
    /// The profile's median.
    Median,
    /// A draw for each batch with the profile's median and 99th percentile, where it has one.
    #[default]
    P99Matched,
}

impl SimulatedTimes {
    /// The problem with these times, for a plan that is checked on them.
    #[must_use]
    pub fn planned(self, problem: Problem) -> Problem {
        match self {
            Self::Median => problem.on_medians(),
            Self::P99Matched => problem,
        }
    }
}

/// The scaler of replicas during a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SimulatedScaler {
    /// No scaler: the plan's replicas stay.
    None,
    /// The plan's own ladder, if it has one.
    #[default]
    Plan,
    /// InferLine's tuner.
    Tuner,
    /// Kubernetes' horizontal pod autoscaler.
    Hpa,
    /// Ray Serve's autoscaler.
    RayServe,
    /// The coarse-grained tuner of InferLine's evaluation.
    Coarse,
}

/// How clients choose the ingress of a request in a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SimulatedClients {
    /// Each ingress in its turn.
    #[default]
    InTurn,
    /// Each ingress with the same probability.
    AtRandom,
    /// Each of 16 clients keeps an ingress, which is drawn from the seed.
    Sticky,
}

/// A request for a simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SimulationRequest {
    /// A plan of the service, with its problem. Instead of `problem` and `plan_file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Uuid>,
    /// A whole problem file, with `plan_file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<apportion_wire::ProblemSpec>)]
    pub problem: Option<Value>,
    /// A plan file for this problem. Only the keys that `apportion simulate` needs are required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub plan_file: Option<Value>,
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
    /// Policy for a query that will be late, instead of the plan's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Where queries wait, instead of the plan's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queueing: Option<String>,
    /// When a batch is closed, instead of the plan's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batching: Option<String>,
    /// Times of batches; default `p99-matched`.
    #[serde(default)]
    pub service: SimulatedTimes,
    /// Ingresses at which requests come in, 1 to 4,096; default 1. Each chooses replicas by itself, as each agent does.
    #[serde(default = "default_ingresses")]
    #[schema(minimum = 1, maximum = 4096)]
    pub ingresses: u32,
    /// How clients choose among several ingresses; default `in-turn`.
    #[serde(default)]
    pub clients: SimulatedClients,
    /// The scaler of replicas during the run; default `plan`.
    #[serde(default)]
    pub autoscaler: SimulatedScaler,
    /// The headroom of the plan's ladder: a factor from 0.1 to 10, or `feedback`: the misses move it, as in agents.
    /// Default: `feedback` for a plan of the service whose options have no `ladder_headroom`, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder_headroom: Option<LadderHeadroom>,
    /// The loads that the plan was made for, by pipeline, as in `traces`. The tuner compares arrivals with them. Default:
    /// the demand, for 60 s.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub samples: BTreeMap<String, String>,
    /// Target of utilisation of `hpa`, above 0, at most 1; default 0.7.
    #[serde(default = "default_hpa_target")]
    pub hpa_target: f64,
    /// Whether module states, and routing tables from the measured load, are computed again once a second; default false.
    #[serde(default)]
    pub steward: bool,
    /// Whether requests without an answer are given up after ten times their SLO, and after 2 s at least, as agents do.
    /// Default false: they wait for ever.
    #[serde(default)]
    pub give_up: bool,
    /// Most windows of `series` in the result, 1 to 1,000: the requests by class over time. Default: no series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub series_windows: Option<u32>,
}

fn default_ingresses() -> u32 {
    1
}

fn default_hpa_target() -> f64 {
    0.7
}

/// A plan with its problem and its load.
pub struct SimulationInput<'a> {
    /// The problem.
    pub problem: &'a Problem,
    /// The plan. Its policies are not those of the request yet.
    pub plan: &'a Plan,
    /// The trace of each pipeline, in the problem's order.
    pub traces: Vec<ArrivalTrace>,
    /// The traces that the plan was made for; `None` for a pipeline: its demand.
    pub samples: Vec<Option<ArrivalTrace>>,
    /// What the run keeps, and its bounds. The times of batches are those of the request.
    pub settings: SimulateOptions,
    /// Whether the run keeps its time series, even if replicas do not change.
    pub keeps_windows: bool,
}

/// A simulated run.
pub struct SimulatedRun {
    /// The results.
    pub simulation: Simulation,
    /// The replay, if replicas could change, requests could be given up, or the time series was kept.
    pub replay: Option<Replay>,
    /// The requests by class over time, if they were asked for.
    pub series: Option<SimulatedSeriesFile>,
}

impl Default for SimulationRequest {
    fn default() -> Self {
        Self {
            plan: None,
            problem: None,
            plan_file: None,
            trace: None,
            traces: BTreeMap::new(),
            seed: default_seed(),
            arrivals: default_arrivals(),
            policy: None,
            queueing: None,
            batching: None,
            service: SimulatedTimes::default(),
            ingresses: default_ingresses(),
            clients: SimulatedClients::default(),
            autoscaler: SimulatedScaler::default(),
            ladder_headroom: None,
            samples: BTreeMap::new(),
            hpa_target: default_hpa_target(),
            steward: false,
            give_up: false,
            series_windows: None,
        }
    }
}

impl SimulationRequest {
    /// The options that are out of their bounds.
    #[must_use]
    pub fn check(&self) -> Vec<Invalid> {
        let mut refused: Vec<Invalid> = check_arrivals(&self.arrivals).into_iter().collect();
        let mut check_word = |option: &str, word: &Option<String>, is_known: &dyn Fn(&str) -> bool, known: &[&str]| {
            if let Some(word) = word.as_deref().filter(|word| !is_known(word)) {
                refused.push(Invalid::new(option, format!("{word:?}"), format!("one of {}", known.join(", "))));
            }
        };
        check_word("/policy", &self.policy, &|word| Dropping::from_name_or_alias(word).is_some(), Dropping::NAMES);
        check_word("/queueing", &self.queueing, &|word| Queueing::from_name(word).is_some(), Queueing::NAMES);
        check_word("/batching", &self.batching, &|word| Batching::from_name(word).is_some(), Batching::NAMES);
        if !(1..=INGRESSES_MAX).contains(&self.ingresses) {
            refused.push(Invalid::new("/ingresses", self.ingresses, format!("1 to {INGRESSES_MAX}")));
        }
        if !(self.hpa_target > 0.0 && self.hpa_target <= 1.0) {
            refused.push(Invalid::new("/hpa_target", self.hpa_target, "above 0, at most 1"));
        }
        if let Some(windows) = self.series_windows.filter(|windows| !(1..=SERIES_WINDOWS_MAX).contains(windows)) {
            refused.push(Invalid::new("/series_windows", windows, format!("1 to {SERIES_WINDOWS_MAX}")));
        }
        refused
    }

    /// The plan with the policies of the request.
    fn with_policies(&self, plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        for serving in plan.pipelines.iter_mut().map(|p| &mut p.serving) {
            let dropping = self.policy.as_deref().and_then(Dropping::from_name_or_alias);
            serving.dropping = dropping.unwrap_or(serving.dropping);
            serving.queueing = self.queueing.as_deref().and_then(Queueing::from_name).unwrap_or(serving.queueing);
            serving.batching = self.batching.as_deref().and_then(Batching::from_name).unwrap_or(serving.batching);
        }
        plan
    }

    /// Replays the load through the plan.
    ///
    /// # Errors
    /// If the plan does not fit the problem, or the run is too large, or stopped.
    pub fn run(&self, input: SimulationInput<'_>) -> Result<SimulatedRun, SimulateError> {
        let SimulationInput { problem, plan, traces, samples, settings, keeps_windows } = input;
        let plan = self.with_policies(plan);
        let windows = self.series_windows.map(|windows_max| SeriesWindows::over(&traces, windows_max));
        let load = workload(traces, &self.arrivals, self.seed);
        let service = match self.service {
            SimulatedTimes::Median => ServiceTimes::Median,
            SimulatedTimes::P99Matched => ServiceTimes::P99Matched,
        };
        let class_window = windows.map(SeriesWindows::length);
        let choice = match self.clients {
            SimulatedClients::InTurn => IngressChoice::InTurn,
            SimulatedClients::AtRandom => IngressChoice::AtRandom,
            SimulatedClients::Sticky => IngressChoice::Sticky,
        };
        let ingresses = IngressSettings { choice, ..IngressSettings::in_turn(self.ingresses) };
        let settings = SimulateOptions { service, class_window, ingresses, ..settings };
        let ladders = self.autoscaler == SimulatedScaler::Plan && plan.pipelines.iter().any(|part| !part.ladder.is_empty());
        let scales = ladders || !matches!(self.autoscaler, SimulatedScaler::Plan | SimulatedScaler::None);
        if !(scales || keeps_windows || self.steward || self.give_up) {
            let simulation = simulate(problem, &plan, &load, &settings)?;
            let series = windows.map(|windows| windows.file(problem, &simulation, None));
            return Ok(SimulatedRun { simulation, replay: None, series });
        }
        let sample = workload(with_demand(problem, samples), &self.arrivals, self.seed);
        let controllers = self.controllers(problem, &plan, &sample)?;
        let headroom = self.ladder_headroom.map_or(Headroom::Constant(1.0), LadderHeadroom::headroom);
        let (steward, gives_up) = (self.steward, self.give_up);
        let scenario = Scenario { controllers, steward, ladders, headroom, gives_up, ..Scenario::default() };
        let replay = replay(problem, &plan, &load, &settings, scenario)?;
        let series = windows.map(|windows| windows.file(problem, &replay.simulation, scales.then_some(&replay)));
        Ok(SimulatedRun { simulation: replay.simulation.clone(), replay: Some(replay), series })
    }

    fn controllers(
        &self,
        problem: &Problem,
        plan: &Plan,
        sample: &Workload,
    ) -> Result<Vec<Box<dyn Controller>>, SimulateError> {
        let controllers: Vec<Box<dyn Controller>> = match self.autoscaler {
            SimulatedScaler::Plan | SimulatedScaler::None => Vec::new(),
            SimulatedScaler::Tuner => vec![controllers::tuner(problem, plan, sample)?],
            SimulatedScaler::Hpa => {
                let config = controllers::HpaConfig { target: self.hpa_target, ..Default::default() };
                vec![Box::new(controllers::Hpa::new(config))]
            }
            SimulatedScaler::RayServe => {
                vec![Box::new(controllers::RayServe::new(controllers::RayServeConfig::default()))]
            }
            SimulatedScaler::Coarse => {
                vec![Box::new(controllers::Coarse::new(problem, plan, controllers::CoarseConfig::default())?)]
            }
        };
        Ok(controllers)
    }
}

impl SimulatedRun {
    /// The run as JSON has it. `problem` is that of the run.
    #[must_use]
    pub fn file(&self, problem: &Problem) -> SimulationFile {
        let pipelines = problem
            .pipelines
            .iter()
            .zip(&self.simulation.pipelines)
            .map(|(p, estimate)| SimulatedPipelineFile { name: p.name.clone(), estimate: EstimateFile::from(estimate) });
        let changes = |replay: &Replay| SimulatedChangesFile {
            cost: replay.cost,
            cost_per_hour: replay.cost_per_hour,
            utilisation: replay.utilisation,
            invalid_rate: replay.invalid_rate,
            changes: replay.changes,
            plans: replay.plans,
            steerings: replay.steerings,
        };
        SimulationFile {
            total: EstimateFile::from(&self.simulation.total),
            pipelines: pipelines.collect(),
            replay: self.replay.as_ref().map(changes),
            series: self.series.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_words_are_refused_with_the_known_ones() {
        assert_eq!(SimulationRequest::default().check(), []);
        let wrong = SimulationRequest {
            arrivals: "often".into(),
            policy: Some("luck".into()),
            queueing: Some("nowhere".into()),
            batching: Some("never".into()),
            ingresses: INGRESSES_MAX + 1,
            hpa_target: 0.0,
            series_windows: Some(SERIES_WINDOWS_MAX + 1),
            ..SimulationRequest::default()
        };
        let places: Vec<String> = wrong.check().into_iter().map(|refused| refused.pointer).collect();
        let first = ["/arrivals", "/policy", "/queueing", "/batching"];
        assert_eq!(places, [&first[..], &["/ingresses", "/hpa_target", "/series_windows"]].concat());
        let nowhere = SimulationRequest { ingresses: 0, ..SimulationRequest::default() };
        assert_eq!(nowhere.check().len(), 1, "requests come in somewhere");
        for windows in [0, SERIES_WINDOWS_MAX] {
            let asked = SimulationRequest { series_windows: Some(windows), ..SimulationRequest::default() };
            assert_eq!(asked.check().len(), usize::from(windows == 0), "{windows}");
        }
        let none = SimulationRequest { policy: Some("none".into()), ..SimulationRequest::default() };
        assert_eq!(none.check(), [], "as on the command line");
    }

    #[test]
    fn an_empty_request_has_the_default_options() {
        let empty: SimulationRequest = serde_json::from_str("{}").expect("every key has a default");
        assert_eq!(empty, SimulationRequest::default());
    }
}
