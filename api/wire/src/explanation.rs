//! How is the `explanation` of a plan file written and read? It has the reasons, the alternatives, the prices of resources
//! and the missing parts.

use crate::record::record;
use crate::row_measurement::GroupProfileFile;
use apportion_domain::{
    Alternative, AlternativeKind, Binding, Change, Consequence, Constraint, Decision, Explanation, PlanOutcome, Price,
    Relaxation, Shortfall,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The value, if it is finite: JSON has no other numbers.
pub(crate) fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

record! {
    /// Why a plan is as it is.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ExplanationFile {
        /// One decision for each group.
        pub decisions: Vec<DecisionFile> => optional,
        /// Binding constraints.
        pub binding: Vec<BindingFile> => optional,
        /// Constraints that cannot be met.
        pub shortfalls: Vec<ShortfallFile> => optional,
        /// The gain from one more unit of each resource.
        #[serde(default)]
        pub prices: Vec<PriceFile> => optional,
        /// The parts that were not computed, with the reasons.
        #[serde(default)]
        pub left_out: Vec<String> => optional,
        /// Age and error of the profiles of the plan's groups.
        #[serde(default)]
        pub profiles: Vec<GroupProfileFile> => optional,
    }
}

record! {
    /// Why one group is as it is.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct DecisionFile {
        /// Pipeline and group.
        pub what: String => required,
        /// The reason in one sentence.
        pub why: String => required,
        /// The constraints that prevent another choice.
        #[serde(default)]
        pub binding: Vec<BindingFile> => optional,
        /// The alternatives.
        #[serde(default)]
        pub alternatives: Vec<AlternativeFile> => optional,
    }
}

record! {
    /// Another way to run a group, with its effect.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct AlternativeFile {
        /// `batch` (all else stays), `variant` or `hardware` (the whole task uses it, and all else is planned again).
        pub kind: String => required.words(AlternativeKind::NAMES),
        /// The batch size, variant or hardware type.
        pub to: String => required,
        /// Whether there is a plan with it.
        pub feasible: bool => required,
        /// The difference of that plan; null without one.
        pub change: Option<ChangeFile> => required.or_null(),
        /// The effect in words: its cost or loss, or why there is no plan.
        pub effect: String => required,
    }
}

record! {
    /// The difference of a plan from the chosen one; positive values mean more.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ChangeFile {
        /// Difference in replicas.
        pub replicas: i64 => required,
        /// Difference in cost.
        pub cost_per_hour: f64 => required,
        /// Difference in accuracy, the mean by weight over all pipelines.
        pub accuracy: f64 => required,
    }
}

record! {
    /// The gain from one more unit of a resource.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct PriceFile {
        /// Hardware type, `budget` or pipeline.
        #[serde(rename = "where")]
        pub place: String => required.named("where"),
        /// `1 device`, `1 per hour` or `10 ms`.
        pub unit: String => required,
        /// The change of the problem file.
        pub change: RelaxFile => required,
        /// The improvement of the objective's value; null if another step of the mode is reached.
        pub gain: Option<f64> => required.or_null(),
        /// The difference of the best plan then.
        pub buys: ChangeFile => required,
        /// The same in words.
        pub effect: String => required,
    }
}

record! {
    /// A binding constraint.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct BindingFile {
        /// `latency`, `capacity`, `accuracy`, `budget`, `memory` or `load`.
        pub constraint: String => required.words(Constraint::NAMES),
        /// Its pipeline, task or hardware.
        #[serde(rename = "where")]
        pub place: String => required.named("where"),
        /// The used amount.
        pub used: Option<f64> => required.or_null(),
        /// The available amount.
        pub limit: Option<f64> => required.or_null(),
    }
}

record! {
    /// A constraint that cannot be met.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct ShortfallFile {
        /// `latency`, `capacity`, `accuracy`, `budget`, `memory` or `load`.
        pub constraint: String => required.words(Constraint::NAMES),
        /// Its pipeline, task or hardware.
        #[serde(rename = "where")]
        pub place: String => required.named("where"),
        /// The requested value.
        pub asked: Option<f64> => required.or_null(),
        /// The best possible value.
        pub best: Option<f64> => required.or_null(),
        /// The smallest single change that makes it feasible.
        pub relax: Option<RelaxFile> => required.or_null(),
    }
}

record! {
    /// A change of the problem file.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
    #[serde(deny_unknown_fields)]
    pub struct RelaxFile {
        /// JSON pointer of the value.
        pub pointer: String => required,
        /// The present value.
        pub from: Option<f64> => required.or_null(),
        /// The necessary value.
        pub to: Option<f64> => required.or_null(),
    }
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
        binding: e.binding.iter().map(BindingFile::from).collect(),
        shortfalls: shortfalls.iter().map(ShortfallFile::from).collect(),
        prices: e.prices.iter().map(price).collect(),
        left_out: e.left_out.clone(),
        profiles: Vec::new(),
    }
}

fn decision(d: &Decision) -> DecisionFile {
    DecisionFile {
        what: d.what.clone(),
        why: d.why.clone(),
        binding: d.binding.iter().map(BindingFile::from).collect(),
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

impl From<&Binding> for BindingFile {
    fn from(b: &Binding) -> Self {
        Self {
            constraint: b.constraint.name().to_owned(),
            place: b.place.clone(),
            used: finite(b.used),
            limit: finite(b.limit),
        }
    }
}

impl From<&Shortfall> for ShortfallFile {
    fn from(s: &Shortfall) -> Self {
        Self {
            constraint: s.constraint.name().to_owned(),
            place: s.place.clone(),
            asked: finite(s.asked),
            best: finite(s.best),
            relax: s.relax.as_ref().map(relax),
        }
    }
}

fn relax(r: &Relaxation) -> RelaxFile {
    RelaxFile { pointer: r.pointer.clone(), from: finite(r.from), to: finite(r.to) }
}
