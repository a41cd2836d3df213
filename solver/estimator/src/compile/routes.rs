//! Which share of a sender's queries goes to which group? By the plan's tables, otherwise by its flows, otherwise by
//! capacity.

use crate::error::SimulateError;
use apportion_domain::{Assignment, Edge, GroupName, Pipeline, PipelinePlan, TaskIndex, VariantIndex};
use std::collections::BTreeMap;

/// Weights of the groups of a task for one sender.
#[derive(Debug)]
pub struct PlannedRoutes<'a> {
    plan: &'a PipelinePlan,
    capacities: &'a BTreeMap<GroupName, f64>,
    flows: BTreeMap<(Option<&'a GroupName>, &'a GroupName), f64>,
}

impl<'a> PlannedRoutes<'a> {
    /// `capacities` in queries per second, of every group of the plan.
    ///
    /// # Errors
    /// If a table or a flow names a group that the plan does not assign.
    pub fn new(
        pipeline: &Pipeline,
        plan: &'a PipelinePlan,
        capacities: &'a BTreeMap<GroupName, f64>,
    ) -> Result<Self, SimulateError> {
        let named = plan.routing.tables.iter().flat_map(|t| t.from.iter().chain(t.entries.iter().map(|e| &e.to)));
        for group in named.chain(plan.flows.iter().flat_map(|f| &f.path)) {
            if !capacities.contains_key(group) {
                return Err(SimulateError::Plan(format!("routing names {group}, which has no replicas in {}", plan.name)));
            }
        }
        let mut flows = BTreeMap::new();
        for flow in &plan.flows {
            let mut queries = flow.share;
            let mut from: Option<&GroupName> = None;
            for group in &flow.path {
                if let Some(sender) = from {
                    queries *= mean_children(pipeline, sender, group);
                }
                *flows.entry((from, group)).or_default() += queries;
                from = Some(group);
            }
        }
        Ok(Self { plan, capacities, flows })
    }

    /// The plan's assignments.
    #[must_use]
    pub fn assignments(&self) -> &'a [Assignment] {
        &self.plan.assignments
    }

    /// Whether a group has capacity to spare.
    #[must_use]
    pub fn is_backup(&self, group: &GroupName) -> bool {
        self.plan.routing.backup.iter().any(|b| b.group == *group && b.capacity_qps > 0.0)
    }

    /// Weights of `groups`, all of one task, for the queries of `from` (`None` is the frontend). Not all are 0.
    #[must_use]
    pub fn weights(&self, from: Option<&GroupName>, groups: &[&GroupName]) -> Vec<f64> {
        let by_table = |g: &&GroupName| {
            let tables = self.plan.routing.tables.iter().filter(|t| t.from.as_ref() == from && t.to_task == g.task);
            tables.flat_map(|t| &t.entries).filter(|e| e.to == **g).map(|e| e.fraction).sum::<f64>()
        };
        let by_flow = |g: &&GroupName| self.flows.get(&(from, *g)).copied().unwrap_or(0.0);
        let by_capacity = |g: &&GroupName| self.capacities[*g];
        let weights: Vec<f64> = groups.iter().map(by_table).collect();
        let some = |w: &[f64]| w.iter().any(|w| *w > 0.0);
        if some(&weights) {
            return weights;
        }
        let weights: Vec<f64> = groups.iter().map(by_flow).collect();
        if some(&weights) { weights } else { groups.iter().map(by_capacity).collect() }
    }
}

fn mean_children(pipeline: &Pipeline, from: &GroupName, to: &GroupName) -> f64 {
    let (Some(sender), Some(child)) = (pipeline.task_named(&from.task), pipeline.task_named(&to.task)) else { return 0.0 };
    let Some(variant) = variant_named(pipeline, sender, &from.variant) else { return 0.0 };
    let edge: Option<&Edge> = pipeline.children(sender).find(|e| e.to == child);
    edge.map_or(0.0, |edge| pipeline.fanout(edge, variant))
}

/// The variant of this name.
pub fn variant_named(pipeline: &Pipeline, task: TaskIndex, name: &str) -> Option<VariantIndex> {
    pipeline.task(task).variants.iter().position(|v| v.name == name).map(VariantIndex)
}
