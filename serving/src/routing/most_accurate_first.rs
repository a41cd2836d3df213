//! Loki's Algorithm 1: which part of its traffic does each sender send to each group? The most accurate group comes first.

use crate::routing::tables::{RoutedGroup, RouterTable, TaskGraph, route};
use apportion_domain::{
    Assignment, BackupEntry, GroupName, Hardware, HardwareIndex, Pipeline, Routing, RoutingEntry, RoutingTable, SLACK,
    TaskIndex, VariantIndex,
};

/// An assignment has a name that the pipeline or the problem does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{group}: {unknown}")]
pub struct UnknownGroup {
    /// The group as the plan names it.
    pub group: GroupName,
    /// The unknown part of it.
    pub unknown: &'static str,
}

/// Queries per second that a group can serve with full batches: `replicas * 1000 * batch / latency_ms`.
///
/// # Errors
/// If the pipeline does not have its task or variant, the hardware is not listed, or the variant has no profile there.
pub fn group_capacity_qps(pipeline: &Pipeline, hardware: &[Hardware], a: &Assignment) -> Result<f64, UnknownGroup> {
    let unknown = |unknown| UnknownGroup { group: a.group.clone(), unknown };
    let (task, variant) = find(pipeline, &a.group)?;
    let place = hardware.iter().position(|h| h.name == a.group.hardware).map(HardwareIndex);
    let place = place.ok_or_else(|| unknown("no such hardware"))?;
    let profile = &pipeline.variant(task, variant).profile;
    let service = profile.service(place, a.group.share, a.batch).ok_or_else(|| unknown("no profile on this hardware"))?;
    Ok(f64::from(a.replicas) * 1000.0 * f64::from(a.batch) / service.as_millis())
}

fn find(pipeline: &Pipeline, group: &GroupName) -> Result<(TaskIndex, VariantIndex), UnknownGroup> {
    let unknown = |unknown| UnknownGroup { group: group.clone(), unknown };
    let task = pipeline.task_named(&group.task).ok_or_else(|| unknown("no such task"))?;
    let variant = pipeline.task(task).variants.iter().position(|v| v.name == group.variant);
    Ok((task, VariantIndex(variant.ok_or_else(|| unknown("no such variant"))?)))
}

/// Tasks of a pipeline and their children, as [`crate::routing::tables`] numbers them.
#[must_use]
pub fn graph(pipeline: &Pipeline) -> TaskGraph {
    let children = |t: usize| pipeline.children(TaskIndex(t)).map(|e| e.to.get()).collect();
    let order = pipeline.order().iter().map(|t| t.get()).collect();
    TaskGraph { order, children: (0..pipeline.tasks.len()).map(children).collect() }
}

/// A group of a plan, as [`crate::routing::tables`] sees it: its capacity with full batches.
///
/// # Errors
/// As [`group_capacity_qps`].
pub fn server(pipeline: &Pipeline, hardware: &[Hardware], a: &Assignment) -> Result<RoutedGroup, UnknownGroup> {
    let (task, variant) = find(pipeline, &a.group)?;
    Ok(RoutedGroup {
        task: task.get(),
        accuracy: pipeline.variant(task, variant).accuracy,
        capacity_qps: group_capacity_qps(pipeline, hardware, a)?,
        fanout: pipeline.children(task).map(|edge| pipeline.fanout(edge, variant)).collect(),
    })
}

/// Routing tables for a demand, and the capacity that they leave unused: [`crate::routing::tables::route`] in the names of
/// a plan. Groups of one task with the capacity to spare come most accurate first.
///
/// # Errors
/// If an assignment has a name that the pipeline or the hardware does not know.
pub fn most_accurate_first(
    pipeline: &Pipeline,
    hardware: &[Hardware],
    assignments: &[Assignment],
    demand_qps: f64,
) -> Result<Routing, UnknownGroup> {
    let used: Vec<&Assignment> = assignments.iter().filter(|a| a.replicas > 0).collect();
    let servers: Vec<RoutedGroup> = used.iter().map(|a| server(pipeline, hardware, a)).collect::<Result<_, _>>()?;
    let routed = route(&graph(pipeline), &servers, demand_qps);
    let name = |group: u32| used[group as usize].group.clone();
    let table = |t: RouterTable| RoutingTable {
        from: t.from.map(name),
        to_task: pipeline.task(TaskIndex(t.to_task as usize)).name.clone(),
        entries: t.entries.into_iter().map(|(to, fraction)| RoutingEntry { to: name(to), fraction }).collect(),
    };
    let left = &routed.left_qps;
    let mut spare: Vec<usize> = (0..used.len()).filter(|&g| left[g] > SLACK * servers[g].capacity_qps).collect();
    spare.sort_by(|&a, &b| {
        let (a, b) = (&servers[a], &servers[b]);
        a.task.cmp(&b.task).then(b.accuracy.total_cmp(&a.accuracy))
    });
    let backup = spare.iter().map(|&g| BackupEntry { group: name(g as u32), capacity_qps: left[g] }).collect();
    Ok(Routing { tables: routed.tables.into_iter().map(table).collect(), backup })
}
