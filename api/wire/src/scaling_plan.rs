//! How is the plan of a scaling problem written and read?

use crate::bad_input::BadInput;
use crate::check::read;
use crate::explanation::{ExplanationFile, explained};
use crate::plan::{PlanFile, PlannerFile, ScalingEntry};
use crate::plan_read::plan_from_tree;
use crate::plan_write::objective;
use crate::problem::check_version;
use crate::record::FileKind;
use crate::tree::parse_tree;
use apportion_domain::{
    Explanation, Invalid, Plan, PlanStatus, PlanningReport, ScalingAction, ScalingOutcome, ScalingPlan, ScalingProblem,
    ScalingVariant,
};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// Seconds of an hour: running cost is per second, a plan's cost per hour.
const SECONDS_PER_HOUR: f64 = 3600.0;

/// The content of a plan file.
#[derive(Clone, Debug, PartialEq)]
pub enum AnyPlan {
    /// A plan for pipelines.
    Allocation(Plan),
    /// The plan of a scaling problem.
    Scaling(ScalingPlan),
}

#[derive(Deserialize)]
struct Read {
    status: Option<String>,
    objective: Option<ReadObjective>,
    scaling: Vec<ScalingEntry>,
}

#[derive(Deserialize)]
struct ReadObjective {
    value: Option<f64>,
}

/// Reads a plan file of either kind, JSON or YAML. A file with the key `scaling` is the plan of a scaling problem.
///
/// # Errors
/// Every refused value, and a file that says that there is no plan.
pub fn read_any_plan(file: &str, text: &str) -> Result<AnyPlan, BadInput> {
    let tree = parse_tree(file, text)?;
    if is_scaling(&tree) {
        return Ok(AnyPlan::Scaling(scaling_plan_from_tree(file, tree)?.plan));
    }
    plan_from_tree(file, tree).map(AnyPlan::Allocation)
}

/// Reads the plan of a scaling problem. A missing value is that of its actions in the problem.
///
/// # Errors
/// As [`read_any_plan`], and a plan for pipelines.
pub fn read_scaling_plan_for(problem: &ScalingProblem, file: &str, text: &str) -> Result<ScalingPlan, BadInput> {
    let tree = parse_tree(file, text)?;
    let StoredPlan { mut plan, has_value } = scaling_plan_from_tree(file, tree)?;
    if !has_value {
        plan.value = value_of(problem, &plan);
    }
    Ok(plan)
}

/// Whether a plan file is that of a scaling problem.
fn is_scaling(tree: &Value) -> bool {
    tree.get("scaling").is_some_and(|s| !s.is_null())
}

/// The plan of a file.
struct StoredPlan {
    plan: ScalingPlan,
    /// Whether the file has its value. Otherwise the value is 0.
    has_value: bool,
}

fn scaling_plan_from_tree(file: &str, tree: Value) -> Result<StoredPlan, BadInput> {
    check_version(file, &tree)?;
    if !is_scaling(&tree) {
        let expected = "the actions of a scaling plan: [{application, variant, running, delta}]";
        return Err(BadInput::one(file, "/scaling", "missing", expected));
    }
    let parsed: Read = read(file, tree, FileKind::ScalingPlan, &PlanFile::RECORD)?;
    let none = [PlanStatus::Infeasible, PlanStatus::Unknown].map(PlanStatus::name);
    if let Some(status) = parsed.status.as_deref().filter(|s| none.contains(s)) {
        return Err(BadInput::one(file, "/status", format!("{status:?}"), "a plan: this file says that there is none"));
    }
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, e) in parsed.scaling.iter().enumerate() {
        if !seen.insert((&e.application, &e.variant)) {
            let found = format!("{}/{}", e.application, e.variant);
            problems.push(Invalid::new(format!("/scaling/{i}"), found, "each variant once"));
        }
    }
    if !problems.is_empty() {
        return Err(BadInput { file: file.to_owned(), problems });
    }
    let value = parsed.objective.and_then(|o| o.value);
    let action = |e: ScalingEntry| ScalingAction {
        application: e.application,
        variant: e.variant,
        running: e.running,
        delta: e.delta,
    };
    let actions = parsed.scaling.into_iter().map(action).collect();
    let plan = ScalingPlan { actions, value: value.unwrap_or(0.0) };
    Ok(StoredPlan { plan, has_value: value.is_some() })
}

/// The cost of a plan's actions. Actions of unknown variants count nothing.
fn value_of(problem: &ScalingProblem, plan: &ScalingPlan) -> f64 {
    known_actions(problem, plan).map(|(v, a)| v.cost(problem.lambda, a.delta)).sum()
}

/// Running cost per second of all replicas after the actions.
fn running_cost(problem: &ScalingProblem, plan: &ScalingPlan) -> f64 {
    known_actions(problem, plan).map(|(v, a)| v.cost_per_s * f64::from(a.running)).sum()
}

/// The actions of variants that the problem knows.
fn known_actions<'a>(
    problem: &'a ScalingProblem,
    plan: &'a ScalingPlan,
) -> impl Iterator<Item = (&'a ScalingVariant, &'a ScalingAction)> {
    let variant =
        |a: &ScalingAction| problem.application_named(&a.application)?.variants.iter().find(|v| v.name == a.variant);
    plan.actions.iter().filter_map(move |a| Some((variant(a)?, a)))
}

impl PlanFile {
    /// The file of a scaling problem's outcome; `objective.value` may be negative, `cost_per_hour` is the running cost of
    /// all replicas after the actions.
    #[must_use]
    pub fn from_scaling(problem: &ScalingProblem, outcome: &ScalingOutcome, report: &PlanningReport) -> Self {
        let plan = outcome.plan();
        let entry = |a: &ScalingAction| ScalingEntry {
            application: a.application.clone(),
            variant: a.variant.clone(),
            running: a.running,
            delta: a.delta,
        };
        Self {
            version: crate::problem::VERSION,
            status: outcome.status().name().to_owned(),
            objective: objective(None, &report.objective),
            cost_per_hour: plan.map(|p| running_cost(problem, p) * SECONDS_PER_HOUR),
            replicas: plan.map(ScalingPlan::replicas),
            pipelines: Vec::new(),
            scaling: Some(plan.map(|p| p.actions.iter().map(entry).collect()).unwrap_or_default()),
            estimate: None,
            planner: PlannerFile {
                name: report.planner.clone(),
                seconds: report.seconds,
                seconds_of: None,
                stopped: outcome.stopped().map(|s| s.name().to_owned()),
                rounds: Vec::new(),
                warnings: report.warnings.clone(),
            },
            explanation: explanation(&report.explanation, outcome),
        }
    }
}

fn explanation(e: &Explanation, outcome: &ScalingOutcome) -> ExplanationFile {
    match outcome {
        ScalingOutcome::Infeasible { shortfalls } => explained(e, shortfalls),
        _ => explained(e, &e.shortfalls),
    }
}
