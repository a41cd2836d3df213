//! How does `plan --formulation reference` solve a problem?

use anyhow::anyhow;
use apportion_domain::{
    Estimate, Explanation, ObjectiveValue, Plan, PlanOutcome, PlanningReport, Problem, ScalingOutcome, ScalingProblem,
    SecondsOf, StopReason,
};
use apportion_estimator::{SimulateOptions, Workload, simulate};
use apportion_planning::{Planner, REPLAY_VISITS_MAX};
use apportion_reference::{ReferenceAnswer, ReferenceError, ReferenceSettings, Solver};
use apportion_support::exit::Failure;
use apportion_wire::BadInput;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use std::time::{Duration, Instant};

/// Which statement of a problem is solved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FormulationFlag {
    /// The planner's own, with its searches.
    #[default]
    Production,
    /// The papers' algebra in `good_lp`, slow and obvious: docs/explanation/reference-formulations.md.
    Reference,
}

/// The arguments that choose a formulation and its solver.
#[derive(Args, Debug)]
pub struct FormulationArgs {
    /// Which statement of the problem is solved.
    #[arg(long, value_enum, default_value_t)]
    pub formulation: FormulationFlag,
    /// Which solver solves the reference formulation. Default: highs.
    #[arg(long, value_name = "SOLVER", value_parser = PossibleValuesParser::new(Solver::ALL.map(Solver::name)))]
    pub reference_solver: Option<String>,
}

/// Arguments of `plan` that the reference formulations do not support, and those that they use.
pub struct ReferenceArguments<'a> {
    /// Name of the planner.
    pub planner: &'a str,
    /// Traces on which the plan must hold.
    pub trace: &'a [String],
    /// Factor of the ladder.
    pub ladder: Option<f64>,
    /// Relative gap at which a plan counts as optimal.
    pub gap: f64,
    /// Longest time of one stage.
    pub time_limit: Option<Duration>,
}

impl FormulationArgs {
    /// Returns an error if the formulation does not support an argument.
    ///
    /// # Errors
    /// The argument, and the permitted values.
    pub fn check(&self, request: &ReferenceArguments<'_>) -> Result<(), BadInput> {
        let refuse = |flag: &str, value: &str, formulation: &str, expected: &str| {
            Err(BadInput::one(flag, format!("with --formulation {formulation}"), value, expected))
        };
        match self.formulation {
            FormulationFlag::Production => match &self.reference_solver {
                Some(solver) => refuse("--reference-solver", solver, "production", "--formulation reference beside it"),
                None => Ok(()),
            },
            FormulationFlag::Reference if request.planner != Planner::Milp.name() => {
                refuse("--planner", request.planner, "reference", Planner::Milp.name())
            }
            FormulationFlag::Reference if !request.trace.is_empty() => {
                let expected = "no --trace: the reference formulations have no check loop";
                refuse("--trace", &request.trace[0], "reference", expected)
            }
            FormulationFlag::Reference if request.ladder.is_some() => {
                let expected = "no --ladder: the reference formulations plan for one demand";
                refuse("--ladder", &request.ladder.unwrap_or_default().to_string(), "reference", expected)
            }
            FormulationFlag::Reference => Ok(()),
        }
    }

    /// How the reference formulations are solved.
    #[must_use]
    pub fn settings(&self, request: &ReferenceArguments<'_>) -> ReferenceSettings {
        let solver = self.reference_solver.as_deref().and_then(Solver::from_name).unwrap_or_default();
        ReferenceSettings { solver, gap: request.gap, time_limit: request.time_limit }
    }
}

/// Plans by the reference formulations: the plan is checked and replayed as the planner's are, and has routing tables.
///
/// # Errors
/// If the problem is too large, the solver failed, or the checker rejects the plan.
pub fn plan(settings: &ReferenceSettings, problem: &Problem) -> Result<(PlanOutcome, PlanningReport), Failure> {
    let start = Instant::now();
    let answer = apportion_reference::solve(problem, settings);
    let mut report = report(settings, start.elapsed());
    let outcome = match answer {
        Ok(ReferenceAnswer::Optimal(found)) => {
            report.objective = ObjectiveValue { step: found.step, value: Some(found.value), bound: Some(found.bound) };
            let plan = with_routing(problem, found.plan)?;
            report.estimate = replayed(problem, &plan, &mut report.explanation);
            PlanOutcome::Optimal(plan)
        }
        Ok(ReferenceAnswer::Infeasible) => {
            report.explanation.left_out.push(reason_for_missing_shortfalls());
            PlanOutcome::Infeasible { shortfalls: Vec::new() }
        }
        Err(error) => PlanOutcome::Unknown { stopped: stop_reason(error)? },
    };
    Ok((outcome, report))
}

/// Plans a scaling problem by its reference formulation.
///
/// # Errors
/// As [`plan`].
pub fn plan_scaling(
    settings: &ReferenceSettings,
    problem: &ScalingProblem,
) -> Result<(ScalingOutcome, PlanningReport), Failure> {
    let start = Instant::now();
    let answer = apportion_reference::solve_scaling(problem, settings);
    let mut report = report(settings, start.elapsed());
    let outcome = match answer {
        Ok(Some(plan)) => {
            let bound = Some(plan.value - settings.gap * plan.value.abs());
            report.objective = ObjectiveValue { step: None, value: Some(plan.value), bound };
            require_no_findings(&apportion_checker::check_scaling(problem, &plan))?;
            ScalingOutcome::Optimal(plan)
        }
        Ok(None) => {
            report.explanation.left_out.push(reason_for_missing_shortfalls());
            ScalingOutcome::Infeasible { shortfalls: Vec::new() }
        }
        Err(error) => ScalingOutcome::Unknown { stopped: stop_reason(error)? },
    };
    Ok((outcome, report))
}

fn report(settings: &ReferenceSettings, took: Duration) -> PlanningReport {
    PlanningReport {
        planner: format!("reference-{}", settings.solver.name()),
        objective: ObjectiveValue { step: None, value: None, bound: None },
        seconds: took.as_secs_f64(),
        seconds_of: SecondsOf { search: took.as_secs_f64(), ..SecondsOf::default() },
        rounds: Vec::new(),
        explanation: Explanation::default(),
        estimate: None,
        warnings: Vec::new(),
    }
}

fn reason_for_missing_shortfalls() -> String {
    "shortfalls: the reference formulations prove that there is no plan and do not say why; `--formulation production` does"
        .into()
}

/// A limit is an answer; anything else is a failure.
fn stop_reason(error: ReferenceError) -> Result<StopReason, Failure> {
    match error {
        ReferenceError::TimeLimit => Ok(StopReason::TimeLimit),
        ReferenceError::TooManyPrefixes(_) | ReferenceError::TooManyReplicas(_) => {
            eprintln!("apportion: {error}");
            Ok(StopReason::Unsupported)
        }
        ReferenceError::Solver(_) => Err(Failure::Broken(error.into())),
    }
}

fn require_no_findings(findings: &[apportion_checker::Finding]) -> Result<(), Failure> {
    match findings.first() {
        None => Ok(()),
        Some(finding) => {
            Err(Failure::Broken(anyhow!("the checker rejects the plan of the reference formulation: {finding}")))
        }
    }
}

/// The plan with Loki's routing tables (section 5.1), as the checker accepts it.
fn with_routing(problem: &Problem, mut plan: Plan) -> Result<Plan, Failure> {
    for (pipeline, part) in problem.pipelines.iter().zip(&mut plan.pipelines) {
        let tables =
            apportion_serving::most_accurate_first(pipeline, &problem.hardware, &part.assignments, pipeline.demand_qps);
        part.routing = tables.map_err(|error| Failure::Broken(error.into()))?;
    }
    require_no_findings(&apportion_checker::check(problem, &plan))?;
    Ok(plan)
}

/// The estimate of the plan on the default trace. If it is missing, the explanation has the reason.
fn replayed(problem: &Problem, plan: &Plan, explanation: &mut Explanation) -> Option<Estimate> {
    let options = SimulateOptions { visits_max: Some(REPLAY_VISITS_MAX), ..SimulateOptions::default() };
    match simulate(problem, plan, &Workload::default_for(problem), &options) {
        Ok(run) => Some(run.total),
        Err(error) => {
            explanation.left_out.push(format!("the estimate: {error}"));
            None
        }
    }
}
