//! Loki's Algorithm 1: who sends how much of its traffic to whom, most accurate first.

use apportion_domain::{
    Assignment, BackupEntry, Edge, GroupName, Hardware, HardwareIndex, Pipeline, Routing, RoutingEntry, RoutingTable,
    SLACK, TaskIndex, VariantIndex,
};

/// An assignment names what the pipeline or the problem does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{group}: {unknown}")]
pub struct UnknownGroup {
    /// The group as the plan names it.
    pub group: GroupName,
    /// What of it is unknown.
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

struct Worker<'a> {
    group: &'a GroupName,
    variant: VariantIndex,
    accuracy: f64,
    capacity_qps: f64,
    left_qps: f64,
    incoming_qps: f64,
}

/// Routing tables for a demand, and the capacity that they leave unused (Loki section 5.1, Algorithm 1).
///
/// The algorithm's workers are here whole groups, whose replicas are alike: within a group, traffic is even. Where demand
/// exceeds the capacity of a task, the paper leaves the rest without a target; here it is spread in proportion to capacity, so
/// that a table's fractions always sum to 1. A group that no traffic reaches gets a table too, in proportion to capacity, for
/// queries that are rerouted to it.
///
/// # Errors
/// If an assignment names what the pipeline or the hardware does not have.
pub fn most_accurate_first(
    pipeline: &Pipeline,
    hardware: &[Hardware],
    assignments: &[Assignment],
    demand_qps: f64,
) -> Result<Routing, UnknownGroup> {
    let mut workers = workers_by_task(pipeline, hardware, assignments)?;
    let mut tables = Vec::new();
    let root = pipeline.root();
    let entries = route(demand_qps, &mut workers[root.get()]);
    tables.push(RoutingTable { from: None, to_task: pipeline.task(root).name.clone(), entries });
    for &task in pipeline.order() {
        let senders = std::mem::take(&mut workers[task.get()]);
        for sender in &senders {
            for edge in pipeline.children(task) {
                tables.push(table(pipeline, edge, sender, &mut workers[edge.to.get()]));
            }
        }
        workers[task.get()] = senders;
    }
    tables.retain(|t| !t.entries.is_empty());
    let left = |w: &Worker<'_>| BackupEntry { group: w.group.clone(), capacity_qps: w.left_qps };
    let spare = |w: &&Worker<'_>| w.left_qps > SLACK * w.capacity_qps;
    Ok(Routing { tables, backup: workers.iter().flatten().filter(spare).map(left).collect() })
}

fn workers_by_task<'a>(
    pipeline: &Pipeline,
    hardware: &[Hardware],
    assignments: &'a [Assignment],
) -> Result<Vec<Vec<Worker<'a>>>, UnknownGroup> {
    let mut workers: Vec<Vec<Worker<'a>>> = pipeline.tasks.iter().map(|_| Vec::new()).collect();
    for a in assignments.iter().filter(|a| a.replicas > 0) {
        let (task, variant) = find(pipeline, &a.group)?;
        let capacity_qps = group_capacity_qps(pipeline, hardware, a)?;
        let accuracy = pipeline.variant(task, variant).accuracy;
        let group = &a.group;
        workers[task.get()].push(Worker {
            group,
            variant,
            accuracy,
            capacity_qps,
            left_qps: capacity_qps,
            incoming_qps: 0.0,
        });
    }
    for of_task in &mut workers {
        of_task.sort_by(|a, b| b.accuracy.total_cmp(&a.accuracy));
    }
    Ok(workers)
}

fn table(pipeline: &Pipeline, edge: &Edge, sender: &Worker<'_>, to: &mut [Worker<'_>]) -> RoutingTable {
    let outgoing_qps = sender.incoming_qps * pipeline.fanout(edge, sender.variant);
    let to_task = pipeline.task(edge.to).name.clone();
    RoutingTable { from: Some(sender.group.clone()), to_task, entries: route(outgoing_qps, to) }
}

/// Lines 10 to 19 of the algorithm for one sender and one task; `to` is sorted, most accurate first.
fn route(outgoing_qps: f64, to: &mut [Worker<'_>]) -> Vec<RoutingEntry> {
    let mut routed = vec![0.0; to.len()];
    let mut rest = outgoing_qps;
    for (worker, part) in to.iter_mut().zip(&mut routed) {
        *part = rest.min(worker.left_qps).max(0.0);
        rest -= *part;
        worker.left_qps -= *part;
    }
    let capacity: f64 = to.iter().map(|w| w.capacity_qps).sum();
    if outgoing_qps <= 0.0 {
        routed = to.iter().map(|w| w.capacity_qps).collect();
    } else if rest > SLACK * outgoing_qps {
        for (worker, part) in to.iter().zip(&mut routed) {
            *part += rest * worker.capacity_qps / capacity;
        }
    }
    let total: f64 = routed.iter().sum();
    let mut entries = Vec::new();
    for (worker, &part) in to.iter_mut().zip(&routed).filter(|(_, part)| **part > SLACK * total) {
        if outgoing_qps > 0.0 {
            worker.incoming_qps += part;
        }
        entries.push(RoutingEntry { to: worker.group.clone(), fraction: part / total });
    }
    let kept: f64 = entries.iter().map(|e| e.fraction).sum();
    entries.iter_mut().for_each(|e| e.fraction /= kept);
    entries
}
