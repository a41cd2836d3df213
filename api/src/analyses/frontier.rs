//! How do cost, accuracy and replicas change while one value of a problem varies?

use super::options::planning_options;
use apportion_domain::{
    Assignment, HardwareIndex, Invalid, Invalids, Mode, PipelineIndex, Plan, Problem, Shortfall, StopReason,
};
use apportion_planning::PlanningOptions;
use apportion_planning::frontier::{FrontierPoint, NoRange, Sweep, SweepRange, default_range, frontier, values};
use apportion_wire::explanation::{BindingFile, ShortfallFile};
use apportion_wire::plan::ObjectiveFile;
use apportion_wire::{FrontierFile, FrontierGroupFile, FrontierPointFile};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use utoipa::ToSchema;
use uuid::Uuid;

/// Largest value of a sweep.
const VALUE_MAX: f64 = 1e9;

/// The value that a frontier varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SweptValue {
    /// Queries per second.
    Demand,
    /// Milliseconds within which a request must be answered.
    Slo,
    /// Limit on the cost per hour.
    Budget,
    /// Devices of one hardware type.
    Count,
}

/// A request for a frontier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FrontierRequest {
    /// A whole problem file. Instead of `plan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<apportion_wire::ProblemSpec>)]
    pub problem: Option<Value>,
    /// A plan of the service, for its problem. Instead of `problem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Uuid>,
    /// The value that varies.
    pub sweep: SweptValue,
    /// First value, 0 to 1e9; default: where the plan begins to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<f64>,
    /// Last value, 0 to 1e9; default: beyond it no plan changes, or there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<f64>,
    /// How many values, 1 to 1000; default 20. Whole numbers appear once each in a sweep of the count.
    #[serde(default = "default_points")]
    pub points: u32,
    /// Whose demand or SLO; default: the demand of all pipelines together, the SLO of the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// The hardware type of a count; default: the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Limit on the time spent searching at each value, above 0, at most 3600; default 10.
    #[serde(default = "default_time_limit_s")]
    pub time_limit_s: f64,
    /// Relative gap at which a plan counts as optimal, 0 to 1; default 1e-4.
    #[serde(default = "default_gap")]
    pub gap: f64,
}

fn default_points() -> u32 {
    20
}

fn default_time_limit_s() -> f64 {
    10.0
}

fn default_gap() -> f64 {
    1e-4
}

/// How a run is followed, and stopped.
pub struct FrontierWatch<'a> {
    /// Stops the run when it is set.
    pub cancel: Arc<AtomicBool>,
    /// Receives the number of points, once it is known.
    pub on_total: &'a dyn Fn(usize),
    /// Receives each point as it becomes known, from any thread. The result may have a better plan or bound for it.
    pub on_point: &'a (dyn Fn(FrontierPointFile) + Sync),
}

/// Why there is no frontier.
#[derive(Debug, thiserror::Error)]
pub enum FrontierError {
    /// An option does not fit the problem. Its place is that of the request.
    #[error("{0}")]
    BadOption(Invalid),
    /// The problem refuses a value of the sweep.
    #[error("from, to: {0}")]
    BadValue(Invalids),
    /// No range of values was found.
    #[error("no range of values was found ({0}): give from and to")]
    NoRange(StopReason),
}

impl FrontierRequest {
    /// A request with default options, without a problem.
    #[must_use]
    pub fn new(sweep: SweptValue) -> Self {
        Self {
            problem: None,
            plan: None,
            sweep,
            from: None,
            to: None,
            points: default_points(),
            pipeline: None,
            hardware: None,
            time_limit_s: default_time_limit_s(),
            gap: default_gap(),
        }
    }

    /// The options that are out of their bounds, for at most `points_max` points and a limit of `time_limit_s_max`.
    #[must_use]
    pub fn check(&self, points_max: u32, time_limit_s_max: f64) -> Vec<Invalid> {
        let mut refused = Vec::new();
        let mut check = |is_right: bool, option: &str, found: String, expected: String| {
            if !is_right {
                refused.push(Invalid::new(option, found, expected));
            }
        };
        for (option, value) in [("/from", self.from), ("/to", self.to)] {
            let value = value.unwrap_or_default();
            check((0.0..=VALUE_MAX).contains(&value), option, value.to_string(), format!("0 to {VALUE_MAX}"));
        }
        check((1..=points_max).contains(&self.points), "/points", self.points.to_string(), format!("1 to {points_max}"));
        let limit = self.time_limit_s;
        let expected = format!("above 0, at most {time_limit_s_max}");
        check(limit > 0.0 && limit <= time_limit_s_max, "/time_limit_s", limit.to_string(), expected);
        check((0.0..=1.0).contains(&self.gap), "/gap", self.gap.to_string(), "0 to 1".to_owned());
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from > to
        {
            refused.push(range_ends_early(from, to));
        }
        refused
    }

    /// The sweep of the options.
    ///
    /// # Errors
    /// If they name no pipeline or hardware of the problem, or do not fit the sweep.
    pub fn sweep(&self, problem: &Problem) -> Result<Sweep, Invalid> {
        let listed = |names: Vec<&str>| names.iter().map(|n| format!("{n:?}")).collect::<Vec<_>>().join(", ");
        let pipelines = || format!("one of {}", listed(problem.pipelines.iter().map(|p| p.name.as_str()).collect()));
        let hardware = || format!("one of {}", listed(problem.hardware.iter().map(|h| h.name.as_str()).collect()));
        let pipeline = match &self.pipeline {
            Some(_) if matches!(self.sweep, SweptValue::Budget | SweptValue::Count) => {
                return Err(Invalid::new("/pipeline", "a pipeline", "none: it goes with sweep demand or slo"));
            }
            Some(name) => match problem.pipeline_named(name) {
                Some(p) => Some(p),
                None => return Err(Invalid::new("/pipeline", format!("{name:?}"), pipelines())),
            },
            None => (problem.pipelines.len() == 1).then_some(PipelineIndex(0)),
        };
        let device = match &self.hardware {
            Some(_) if self.sweep != SweptValue::Count => {
                return Err(Invalid::new("/hardware", "a hardware type", "none: it goes with sweep count"));
            }
            Some(name) => match problem.hardware_named(name) {
                Some(h) => Some(h),
                None => return Err(Invalid::new("/hardware", format!("{name:?}"), hardware())),
            },
            None => (problem.hardware.len() == 1).then_some(HardwareIndex(0)),
        };
        match self.sweep {
            SweptValue::Demand => Ok(Sweep::Demand(pipeline)),
            SweptValue::Budget => Ok(Sweep::Budget),
            SweptValue::Slo => pipeline.map(Sweep::Slo).ok_or_else(|| Invalid::new("/pipeline", "nothing", pipelines())),
            SweptValue::Count => device.map(Sweep::Count).ok_or_else(|| Invalid::new("/hardware", "nothing", hardware())),
        }
    }

    /// Plans the problem at each value. If no value has a plan, the file has no points, and the shortfalls say why.
    ///
    /// # Errors
    /// If an option or a value does not fit the problem, or if no range of values was found.
    pub fn run(&self, problem: &Problem, watch: &FrontierWatch<'_>) -> Result<FrontierFile, FrontierError> {
        let sweep = self.sweep(problem).map_err(FrontierError::BadOption)?;
        let options = planning_options(self.gap, self.time_limit_s, &watch.cancel);
        let range = match self.range(problem, sweep, &options)? {
            Ok(range) => range,
            Err(NoRange::Infeasible(shortfalls)) => return Ok(file(problem, sweep, Vec::new(), &shortfalls)),
            Err(NoRange::Stopped(stopped)) => return Err(FrontierError::NoRange(stopped)),
        };
        let values = values(sweep, range, self.points as usize);
        (watch.on_total)(values.len());
        let mode = problem.objective.mode;
        let (cancel, hand_out) = (options.cancel.clone(), watch.on_point);
        let on_point = |point: &FrontierPoint| {
            // A search that was cancelled has found nothing.
            if !cancel.load(Ordering::Relaxed) {
                hand_out(point_file(mode, point));
            }
        };
        let points = frontier(problem, sweep, &values, &options, &on_point).map_err(FrontierError::BadValue)?;
        Ok(file(problem, sweep, points.iter().map(|point| point_file(mode, point)).collect(), &[]))
    }

    /// The first and the last value of the sweep, as the options have them or by default.
    fn range(
        &self,
        problem: &Problem,
        sweep: Sweep,
        options: &PlanningOptions,
    ) -> Result<Result<SweepRange, NoRange>, FrontierError> {
        let found = match (self.from, self.to) {
            (Some(from), Some(to)) => Ok(SweepRange { from, to }),
            _ => default_range(problem, sweep, options),
        };
        let Ok(SweepRange { from, to }) = found else { return Ok(found) };
        let (from, to) = (self.from.unwrap_or(from), self.to.unwrap_or(to));
        if from <= to {
            return Ok(Ok(SweepRange { from, to }));
        }
        Err(FrontierError::BadOption(match self.to {
            Some(_) => range_ends_early(from, to),
            None => Invalid::new("/from", from, format!("at most {to}, or to as well")),
        }))
    }
}

/// The refusal of a last value below the first one.
fn range_ends_early(from: f64, to: f64) -> Invalid {
    Invalid::new("/to", to, format!("at least {from}, the first value"))
}

fn file(problem: &Problem, sweep: Sweep, points: Vec<FrontierPointFile>, shortfalls: &[Shortfall]) -> FrontierFile {
    let of = match sweep {
        Sweep::Demand(p) => p.map(|p| problem.pipeline(p).name.clone()),
        Sweep::Slo(p) => Some(problem.pipeline(p).name.clone()),
        Sweep::Budget => None,
        Sweep::Count(h) => Some(problem.hardware_at(h).name.clone()),
    };
    FrontierFile {
        version: 1,
        sweep: sweep.name().to_owned(),
        unit: sweep.unit().to_owned(),
        of,
        present: sweep.present(problem),
        points,
        shortfalls: shortfalls.iter().map(ShortfallFile::from).collect(),
    }
}

fn point_file(mode: Mode, p: &FrontierPoint) -> FrontierPointFile {
    let devices = |plan: &Plan| plan.devices().into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    FrontierPointFile {
        value: p.value,
        status: p.status.name().to_owned(),
        stopped: p.stopped.map(|stopped| stopped.name().to_owned()),
        origin: p.origin.name().to_owned(),
        objective: ObjectiveFile::of(mode, &p.objective),
        cost_per_hour: p.cost_per_hour(),
        accuracy: p.accuracy,
        replicas: p.replicas(),
        devices: p.plan.as_ref().map(devices),
        assignments: p.plan.as_ref().map(groups),
        binding: p.binding.iter().map(BindingFile::from).collect(),
        shortfalls: p.shortfalls.iter().map(ShortfallFile::from).collect(),
    }
}

fn groups(plan: &Plan) -> Vec<FrontierGroupFile> {
    let group = |pipeline: &str, a: &Assignment| FrontierGroupFile {
        replicas: a.replicas,
        batch: a.batch,
        pipeline: pipeline.to_owned(),
        task: a.group.task.clone(),
        variant: a.group.variant.clone(),
        hardware: a.group.hardware.clone(),
        share: a.group.share.value(),
    };
    plan.pipelines.iter().flat_map(|part| part.assignments.iter().map(move |a| group(&part.name, a))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_bounds_are_refused_with_their_place() {
        let right = FrontierRequest::new(SweptValue::Demand);
        assert_eq!(right.check(100, 60.0), []);
        let cases = [
            (FrontierRequest { points: 101, ..right.clone() }, "/points"),
            (FrontierRequest { points: 0, ..right.clone() }, "/points"),
            (FrontierRequest { from: Some(-1.0), ..right.clone() }, "/from"),
            (FrontierRequest { to: Some(f64::NAN), ..right.clone() }, "/to"),
            (FrontierRequest { from: Some(9.0), to: Some(3.0), ..right.clone() }, "/to"),
            (FrontierRequest { gap: 2.0, ..right.clone() }, "/gap"),
            (FrontierRequest { time_limit_s: 61.0, ..right.clone() }, "/time_limit_s"),
        ];
        for (wrong, place) in cases {
            let places: Vec<String> = wrong.check(100, 60.0).into_iter().map(|refused| refused.pointer).collect();
            assert_eq!(places, [place]);
        }
    }
}
