//! How many replicas of each variant of each application run? INFaaS's scaling problem (section 4.2.1).

use crate::{PlannerAnswer, SLACK};
use std::collections::{BTreeMap, BTreeSet};

/// One variant of one application.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingVariant {
    /// Unique in its application.
    pub name: String,
    /// Load at which it saturates, in queries per second.
    pub saturation_qps: f64,
    /// Inference latency in milliseconds.
    pub latency_ms: f64,
    /// Load latency in seconds.
    pub load_s: f64,
    /// Running cost per second.
    pub cost_per_s: f64,
    /// By resource: the amount that one replica uses. A missing resource is 0.
    pub resources: BTreeMap<String, f64>,
    /// Replicas running now.
    pub running: u32,
}

/// One application (a model architecture).
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// Unique in the problem.
    pub name: String,
    /// Its load in queries per second.
    pub load_qps: f64,
    /// Spare load to provide for, in queries per second.
    pub slack_qps: f64,
    /// Its latency objective in milliseconds.
    pub slo_ms: f64,
    /// Its variants.
    pub variants: Vec<ScalingVariant>,
}

/// The whole problem.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingProblem {
    /// Weight of load latency, 1/s.
    pub lambda: f64,
    /// By resource: the total amount.
    pub resources: BTreeMap<String, f64>,
    /// Applications.
    pub applications: Vec<Application>,
}

/// The action for one variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalingAction {
    /// Its application.
    pub application: String,
    /// The variant.
    pub variant: String,
    /// Replicas after the action.
    pub running: u32,
    /// The change: positive loads replicas, negative unloads them.
    pub delta: i64,
}

/// The actions of all variants of all applications, in the problem's order where a planner made it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScalingPlan {
    /// One for each variant, with or without a change.
    pub actions: Vec<ScalingAction>,
    /// Cost of the actions by [`ScalingProblem::cost`], in cost units per second. It is negative if unloading saves more
    /// than loading costs.
    pub value: f64,
}

/// One variant's change between two scaling plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalingChange {
    /// The application.
    pub application: String,
    /// The variant.
    pub variant: String,
    /// Replicas before; `None` if the plan does not list it.
    pub from: Option<u32>,
    /// Replicas after; `None` if the plan does not list it.
    pub to: Option<u32>,
}

/// The answer of a planner to a scaling problem.
pub type ScalingOutcome = PlannerAnswer<ScalingPlan>;

impl ScalingVariant {
    /// Cost of `delta` more replicas (INFaaS section 4.2.1, the unnumbered objective): `C (delta + lambda T_load max(delta,
    /// 0))`, in cost units per second.
    #[must_use]
    pub fn cost(&self, lambda: f64, delta: i64) -> f64 {
        self.cost_per_s * (delta as f64 + lambda * self.load_s * delta.max(0) as f64)
    }

    /// How much of a resource one replica uses.
    #[must_use]
    pub fn uses(&self, resource: &str) -> f64 {
        self.resources.get(resource).copied().unwrap_or(0.0)
    }
}

impl Application {
    /// The load to provide for: `L + slack` in queries per second.
    #[must_use]
    pub fn needed_qps(&self) -> f64 {
        self.load_qps + self.slack_qps
    }

    /// Whether replicas of a variant may be added (constraint 2): its latency is within the SLO.
    #[must_use]
    pub fn may_grow(&self, variant: &ScalingVariant) -> bool {
        variant.latency_ms <= self.slo_ms + SLACK * self.slo_ms.max(1.0)
    }
}

impl ScalingProblem {
    /// The objective: the summed cost of all changes, in cost units per second. `deltas` are by application and variant.
    #[must_use]
    pub fn cost(&self, deltas: &[Vec<i64>]) -> f64 {
        let of = |(a, deltas): (&Application, &Vec<i64>)| -> f64 {
            a.variants.iter().zip(deltas).map(|(v, &delta)| v.cost(self.lambda, delta)).sum()
        };
        self.applications.iter().zip(deltas).map(of).sum()
    }

    /// The application with this name.
    #[must_use]
    pub fn application_named(&self, name: &str) -> Option<&Application> {
        self.applications.iter().find(|a| a.name == name)
    }
}

impl ScalingPlan {
    /// All replicas after the actions.
    #[must_use]
    pub fn replicas(&self) -> u64 {
        self.actions.iter().map(|a| u64::from(a.running)).sum()
    }

    /// The changes from the replicas after `self` to the replicas after `to`, by application and variant. A variant without
    /// replicas counts like a variant that is not listed.
    #[must_use]
    pub fn diff(&self, to: &ScalingPlan) -> Vec<ScalingChange> {
        let (before, after) = (self.by_variant(), to.by_variant());
        let keys: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
        let change = |(application, variant): (&str, &str)| {
            let from = before.get(&(application, variant)).copied();
            let to = after.get(&(application, variant)).copied();
            let differs = from.unwrap_or(0) != to.unwrap_or(0);
            differs.then(|| ScalingChange { application: application.into(), variant: variant.into(), from, to })
        };
        keys.into_iter().filter_map(change).collect()
    }

    fn by_variant(&self) -> BTreeMap<(&str, &str), u32> {
        self.actions.iter().map(|a| ((a.application.as_str(), a.variant.as_str()), a.running)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(entries: &[(&str, u32)]) -> ScalingPlan {
        let action = |&(variant, running): &(&str, u32)| ScalingAction {
            application: "a".into(),
            variant: variant.into(),
            running,
            delta: 0,
        };
        ScalingPlan { actions: entries.iter().map(action).collect(), value: 0.0 }
    }

    #[test]
    fn a_diff_names_what_runs_differently() {
        let changes = plan(&[("u", 1), ("v", 2), ("w", 0)]).diff(&plan(&[("u", 1), ("v", 3), ("x", 1)]));
        let seen: Vec<_> = changes.iter().map(|c| (c.variant.as_str(), c.from, c.to)).collect();
        assert_eq!(seen, [("v", Some(2), Some(3)), ("x", None, Some(1))]);
    }

    #[test]
    fn loading_costs_time_and_unloading_saves() {
        let v = ScalingVariant {
            name: "v".into(),
            saturation_qps: 1.0,
            latency_ms: 1.0,
            load_s: 5.0,
            cost_per_s: 2.0,
            resources: BTreeMap::new(),
            running: 3,
        };
        assert_eq!((v.cost(0.1, 2), v.cost(0.1, -3), v.cost(0.1, 0)), (6.0, -6.0, 0.0));
    }
}
