//! What is a plan? It is immutable and complete. To change a plan, make another.
//!
//! A plan uses names, not positions in a problem, so that it can outlive the problem that it was made for. The checker says
//! which names a problem does not know.

use crate::{ServingPolicy, Share};
use std::collections::BTreeMap;
use std::fmt;

/// Position of a plan in the history of its fleet; a higher one replaces a lower one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// Agents compare it before they accept a target. A restored database starts a new incarnation, and a new target a new
/// generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence {
    /// Changes when a database is restored.
    pub incarnation: u64,
    /// Changes with each target.
    pub generation: Generation,
}

/// A group by name: (task, variant, hardware, share). It runs one batch size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName {
    /// Task.
    pub task: String,
    /// Variant.
    pub variant: String,
    /// Hardware type.
    pub hardware: String,
    /// Fraction of a device that each replica has.
    pub share: Share,
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.task, self.variant, self.hardware)?;
        if self.share == Share::WHOLE { Ok(()) } else { write!(f, "/{}", self.share) }
    }
}

/// How many replicas of one group run, with which batch size.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// The group.
    pub group: GroupName,
    /// Its batch size.
    pub batch: u32,
    /// Its replicas.
    pub replicas: u32,
    /// Share of the task's queries that it serves.
    pub traffic_share: f64,
    /// The time that one query may spend there, in milliseconds: `queue_factor * latency_ms + hop`.
    pub latency_budget_ms: f64,
    /// Load over capacity, 0 to 1.
    pub utilisation: f64,
}

/// Share of the traffic that takes one path of groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// From the root on.
    pub path: Vec<GroupName>,
    /// For each sink the shares sum to 1.
    pub share: f64,
}

/// One target of a sender.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutingEntry {
    /// The group that receives the queries.
    pub to: GroupName,
    /// Share of the sender's queries for this task; the shares of one table sum to 1.
    pub fraction: f64,
}

/// The routing table of one sender for one task (Loki, Algorithm 1).
#[derive(Clone, Debug, PartialEq)]
pub struct RoutingTable {
    /// The sending group; `None` is the frontend.
    pub from: Option<GroupName>,
    /// The task that the entries serve.
    pub to_task: String,
    /// Most accurate first.
    pub entries: Vec<RoutingEntry>,
}

/// Capacity that the tables leave unused. Late queries may be rerouted to it (Loki 5.2).
#[derive(Clone, Debug, PartialEq)]
pub struct BackupEntry {
    /// The group with capacity to spare.
    pub group: GroupName,
    /// How much of it.
    pub capacity_qps: f64,
}

/// Tables of all senders and the capacity left over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routing {
    /// One for each (sender, task).
    pub tables: Vec<RoutingTable>,
    /// Most accurate first within a task.
    pub backup: Vec<BackupEntry>,
}

/// The part of a plan that serves one pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelinePlan {
    /// The pipeline's name.
    pub name: String,
    /// The demand that it was made for.
    pub demand_qps: f64,
    /// Accuracy that it promises.
    pub accuracy: f64,
    /// Policies that it is served with.
    pub serving: ServingPolicy,
    /// Groups with at least one replica, no group twice, in the order of the problem's tasks.
    pub assignments: Vec<Assignment>,
    /// Paths with traffic; empty means in proportion to capacity.
    pub flows: Vec<Flow>,
    /// Tables that realise the flows.
    pub routing: Routing,
    /// Replicas of the groups at other rates, by rising rate; empty if they were not computed. Below the plan's demand, it
    /// says which replicas may be released until the load rises again.
    pub ladder: Vec<LadderStep>,
}

/// The replicas that one rate needs.
#[derive(Clone, Debug, PartialEq)]
pub struct LadderStep {
    /// Up to this rate at the root, in queries per second.
    pub rate_qps: f64,
    /// Replicas of each assignment.
    pub replicas: Vec<u32>,
}

/// A complete allocation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// One for each pipeline of the problem.
    pub pipelines: Vec<PipelinePlan>,
    /// Price of the whole devices that it needs.
    pub cost_per_hour: f64,
}

impl Plan {
    /// All replicas.
    #[must_use]
    pub fn replicas(&self) -> u64 {
        self.pipelines.iter().flat_map(|p| &p.assignments).map(|a| u64::from(a.replicas)).sum()
    }

    /// Whole devices of each hardware type. Shares divide each other, so the sum rounded up can be packed.
    #[must_use]
    pub fn devices(&self) -> BTreeMap<&str, u64> {
        let mut eighths: BTreeMap<&str, u64> = BTreeMap::new();
        for a in self.pipelines.iter().flat_map(|p| &p.assignments) {
            *eighths.entry(&a.group.hardware).or_default() += u64::from(a.replicas) * u64::from(a.group.share.eighths());
        }
        eighths.into_iter().map(|(name, e)| (name, e.div_ceil(8))).collect()
    }

    /// The part for one pipeline.
    #[must_use]
    pub fn pipeline(&self, name: &str) -> Option<&PipelinePlan> {
        self.pipelines.iter().find(|p| p.name == name)
    }

    /// The changes from `self` to `to`, ordered by pipeline and group.
    #[must_use]
    pub fn diff(&self, to: &Plan) -> Vec<PlanChange> {
        let (before, after) = (self.by_group(), to.by_group());
        let keys: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).cloned().collect();
        let change = |key: (String, GroupName)| {
            let from = before.get(&key).copied();
            let to = after.get(&key).copied();
            let (pipeline, group) = key;
            (from != to).then_some(PlanChange { pipeline, group, from, to })
        };
        keys.into_iter().filter_map(change).collect()
    }

    /// The size of each group, by pipeline and group.
    fn by_group(&self) -> BTreeMap<(String, GroupName), GroupSize> {
        let entry = |p: &PipelinePlan, a: &Assignment| {
            ((p.name.clone(), a.group.clone()), GroupSize { replicas: a.replicas, batch: a.batch })
        };
        self.pipelines.iter().flat_map(|p| p.assignments.iter().map(move |a| entry(p, a))).collect()
    }
}

/// The size of a group in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSize {
    /// Replicas.
    pub replicas: u32,
    /// Batch size.
    pub batch: u32,
}

/// One group's change between two plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanChange {
    /// The pipeline.
    pub pipeline: String,
    /// The group.
    pub group: GroupName,
    /// Its size in the first plan; `None` if the plan does not have it.
    pub from: Option<GroupSize>,
    /// Its size in the second plan; `None` if the plan does not have it.
    pub to: Option<GroupSize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(groups: &[(&str, u32, u32)]) -> Plan {
        let assignment = |&(variant, batch, replicas): &(&str, u32, u32)| Assignment {
            group: GroupName { task: "t".into(), variant: variant.into(), hardware: "h".into(), share: Share::WHOLE },
            batch,
            replicas,
            traffic_share: 0.0,
            latency_budget_ms: 0.0,
            utilisation: 0.0,
        };
        let p = PipelinePlan {
            name: "p".into(),
            demand_qps: 1.0,
            accuracy: 1.0,
            serving: ServingPolicy::default(),
            assignments: groups.iter().map(assignment).collect(),
            flows: vec![],
            routing: Routing::default(),
            ladder: vec![],
        };
        Plan { pipelines: vec![p], cost_per_hour: 0.0 }
    }

    #[test]
    fn a_diff_names_what_came_what_went_and_what_changed() {
        let changes = plan(&[("a", 1, 2), ("b", 4, 1), ("d", 1, 1)]).diff(&plan(&[("b", 8, 1), ("c", 1, 3), ("d", 1, 1)]));
        let seen: Vec<_> = changes.iter().map(|c| (c.group.variant.as_str(), c.from, c.to)).collect();
        let size = |replicas, batch| Some(GroupSize { replicas, batch });
        assert_eq!(seen, [("a", size(2, 1), None), ("b", size(1, 4), size(1, 8)), ("c", None, size(3, 1))]);
    }
}
