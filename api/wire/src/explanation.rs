//! The `explanation` of a plan file: why the plan is as it is, what else there was, what more would buy, and what is missing.

use crate::plan::finite;
use apportion_domain::{
    Alternative, Binding, Change, Consequence, Decision, Explanation, PlanOutcome, Price, Relaxation, Shortfall,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a plan is as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplanationFile {
    /// One for each group.
    pub decisions: Vec<DecisionFile>,
    /// Constraints without room.
    pub binding: Vec<BindingFile>,
    /// Constraints that cannot be met.
    pub shortfalls: Vec<ShortfallFile>,
    /// What more of each resource would buy.
    #[serde(default)]
    pub prices: Vec<PriceFile>,
    /// What was not worked out, and why.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// Why one group is as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionFile {
    /// Pipeline and group.
    pub what: String,
    /// In a sentence.
    pub why: String,
    /// The constraints that keep it from being otherwise.
    #[serde(default)]
    pub binding: Vec<BindingFile>,
    /// What else it could be.
    #[serde(default)]
    pub alternatives: Vec<AlternativeFile>,
}

/// Another way to run a group, and what it would cost or lose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AlternativeFile {
    /// `batch` (everything else stays), `variant` or `hardware` (all of the task on it, everything else planned again).
    pub kind: String,
    /// The batch size, variant or hardware type.
    pub to: String,
    /// Whether there is a plan with it.
    pub feasible: bool,
    /// How that plan differs; null without one.
    pub change: Option<ChangeFile>,
    /// In words: what it costs or loses, or why there is no plan.
    pub effect: String,
}

/// How a plan differs from the one chosen: more where positive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeFile {
    /// Replicas.
    pub replicas: i64,
    /// Cost.
    pub cost_per_hour: f64,
    /// Accuracy, the mean by weight over all pipelines.
    pub accuracy: f64,
}

/// What one unit more of a resource would buy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceFile {
    /// Hardware type, `budget` or pipeline.
    #[serde(rename = "where")]
    pub place: String,
    /// `1 device`, `1 per hour` or `10 ms`.
    pub unit: String,
    /// The change of the problem file.
    pub change: RelaxFile,
    /// By how much the objective's value gets better; null where another step of the mode is reached.
    pub gain: Option<f64>,
    /// How the best plan differs then.
    pub buys: ChangeFile,
    /// The same in words.
    pub effect: String,
}

/// A constraint without room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BindingFile {
    /// `latency`, `capacity`, `accuracy`, `budget`, `memory` or `load`.
    pub constraint: String,
    /// Of which pipeline, task or hardware.
    #[serde(rename = "where")]
    pub place: String,
    /// What is used.
    pub used: Option<f64>,
    /// What there is.
    pub limit: Option<f64>,
}

/// A constraint that cannot be met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShortfallFile {
    /// `latency`, `capacity`, `accuracy`, `budget`, `memory` or `load`.
    pub constraint: String,
    /// Of which pipeline, task or hardware.
    #[serde(rename = "where")]
    pub place: String,
    /// What was asked for.
    pub asked: Option<f64>,
    /// The best that can be had.
    pub best: Option<f64>,
    /// The smallest single change that makes it feasible.
    pub relax: Option<RelaxFile>,
}

/// A change of the problem file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RelaxFile {
    /// Where.
    pub pointer: String,
    /// What it is.
    pub from: Option<f64>,
    /// What it would have to be.
    pub to: Option<f64>,
}

/// The shortfalls of an infeasible outcome are the outcome's own; the report may repeat them.
pub(crate) fn file(e: &Explanation, outcome: &PlanOutcome) -> ExplanationFile {
    let shortfalls = match outcome {
        PlanOutcome::Infeasible { shortfalls } => shortfalls,
        _ => &e.shortfalls,
    };
    explained(e, shortfalls)
}

/// An explanation with the shortfalls of its outcome.
pub(crate) fn explained(e: &Explanation, shortfalls: &[Shortfall]) -> ExplanationFile {
    ExplanationFile {
        decisions: e.decisions.iter().map(decision).collect(),
        binding: e.binding.iter().map(binding).collect(),
        shortfalls: shortfalls.iter().map(shortfall).collect(),
        prices: e.prices.iter().map(price).collect(),
        left_out: e.left_out.clone(),
    }
}

fn decision(d: &Decision) -> DecisionFile {
    DecisionFile {
        what: d.what.clone(),
        why: d.why.clone(),
        binding: d.binding.iter().map(binding).collect(),
        alternatives: d.alternatives.iter().map(alternative).collect(),
    }
}

fn alternative(a: &Alternative) -> AlternativeFile {
    let plan = match &a.consequence {
        Consequence::Plan(c) => Some(change(c)),
        Consequence::MissesSlo { .. }
        | Consequence::TooFewDevices { .. }
        | Consequence::TooLittleMemory
        | Consequence::NoPlan => None,
    };
    AlternativeFile {
        kind: a.kind.name().to_owned(),
        to: a.to.clone(),
        feasible: plan.is_some(),
        change: plan,
        effect: a.consequence.to_string(),
    }
}

fn change(c: &Change) -> ChangeFile {
    ChangeFile { replicas: c.replicas, cost_per_hour: c.cost_per_hour, accuracy: c.accuracy }
}

fn price(p: &Price) -> PriceFile {
    PriceFile {
        place: p.place.clone(),
        unit: p.unit.clone(),
        change: relax(&p.change),
        gain: p.gain.and_then(finite),
        buys: change(&p.buys),
        effect: p.buys.to_string(),
    }
}

fn binding(b: &Binding) -> BindingFile {
    BindingFile {
        constraint: b.constraint.name().to_owned(),
        place: b.place.clone(),
        used: finite(b.used),
        limit: finite(b.limit),
    }
}

fn shortfall(s: &Shortfall) -> ShortfallFile {
    ShortfallFile {
        constraint: s.constraint.name().to_owned(),
        place: s.place.clone(),
        asked: finite(s.asked),
        best: finite(s.best),
        relax: s.relax.as_ref().map(relax),
    }
}

fn relax(r: &Relaxation) -> RelaxFile {
    RelaxFile { pointer: r.pointer.clone(), from: finite(r.from), to: finite(r.to) }
}
