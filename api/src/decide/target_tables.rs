//! Where does each group of a plan send its queries, in the target's numbers?

use apportion_domain::{GroupName, Pipeline, PipelinePlan, TaskIndex};
use apportion_protocol::v1;

/// The tables of every sender that has replicas, one for each task that it sends to. A table is the plan's own if the plan
/// has one, else proportional to the groups' traffic. Groups without replicas are left out, and the others share their
/// part.
pub(super) fn tables(plan: &PipelinePlan, pipeline: &Pipeline, id: &dyn Fn(&GroupName) -> Option<u64>) -> Vec<v1::Table> {
    let root = pipeline.root();
    let mut all = vec![table(plan, pipeline, None, root, id)];
    for a in &plan.assignments {
        let (Some(from), Some(task)) = (id(&a.group), pipeline.task_named(&a.group.task)) else { continue };
        for edge in pipeline.edges_from(task) {
            all.push(table(plan, pipeline, Some(Sender { id: from, group: &a.group }), edge.to, id));
        }
    }
    all
}

/// A group that sends queries.
struct Sender<'a> {
    /// Its number in the placement.
    id: u64,
    /// Its name.
    group: &'a GroupName,
}

/// The table of a sender for one task that it sends to; without a sender the frontend's.
fn table(
    plan: &PipelinePlan,
    pipeline: &Pipeline,
    from: Option<Sender<'_>>,
    to: TaskIndex,
    id: &dyn Fn(&GroupName) -> Option<u64>,
) -> v1::Table {
    let to_task = &pipeline.task(to).name;
    let sender = from.as_ref().map(|sender| sender.group);
    let planned = plan.routing.tables.iter().find(|t| t.from.as_ref() == sender && &t.to_task == to_task);
    let entry = |group: &GroupName, fraction: f64| Some(v1::TableEntry { group: id(group)?, fraction });
    let from_table = planned.into_iter().flat_map(|t| &t.entries).filter_map(|e| entry(&e.to, e.fraction));
    let mut entries: Vec<_> = from_table.filter(|e| e.fraction > 0.0).collect();
    if entries.is_empty() {
        let groups = plan.assignments.iter().filter(|a| &a.group.task == to_task);
        entries = groups.filter_map(|a| entry(&a.group, a.traffic_share)).collect();
        if entries.iter().all(|e| e.fraction <= 0.0) {
            entries.iter_mut().for_each(|e| e.fraction = 1.0);
        }
    }
    let total: f64 = entries.iter().map(|e| e.fraction).sum();
    entries.iter_mut().for_each(|e| e.fraction /= total);
    v1::Table { from: from.map(|sender| sender.id), to_task: to.0 as u32, entries }
}
