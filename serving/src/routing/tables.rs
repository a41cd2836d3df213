//! Loki's Algorithm 1 over numbers: tasks and groups by position, capacities in queries per second.
//!
//! [`crate::routing::most_accurate_first::most_accurate_first`] asks it for a plan, in names; the
//! [`crate::scaling::steward`] asks it again between plans, for the load that it sees.

use apportion_domain::SLACK;

/// One group, as routing sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutedGroup {
    /// Its task, by position.
    pub task: usize,
    /// Accuracy of its variant, 0 to 1.
    pub accuracy: f64,
    /// The load that all of its replicas may get together, in queries per second.
    pub capacity_qps: f64,
    /// Queries that one query makes here, for each child of its task in that order.
    pub fanout: Vec<f64>,
}

/// Tasks, and the tasks that their queries go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskGraph {
    /// Positions of the tasks, the root first and each before its children.
    pub order: Vec<usize>,
    /// By task: the tasks whose queries it makes.
    pub children: Vec<Vec<usize>>,
}

/// The routing table of one sender for one task.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterTable {
    /// The sending group; `None` is the frontend.
    pub from: Option<u32>,
    /// The task that the entries serve.
    pub to_task: u32,
    /// (group, share of the sender's queries for this task), most accurate first; the shares sum to 1.
    pub entries: Vec<(u32, f64)>,
}

/// Tables of all senders, and the capacity that they leave unused.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouterTables {
    /// One for each (sender, task) that has a group to send to.
    pub tables: Vec<RouterTable>,
    /// Capacity left by group, in queries per second.
    pub left_qps: Vec<f64>,
    /// The load that the tables send to each group, in queries per second.
    pub incoming_qps: Vec<f64>,
}

/// The part of a sender's queries that a group gets.
#[derive(Clone, Copy, Debug)]
struct Part {
    group: usize,
    qps: f64,
}

struct Routing<'a> {
    servers: &'a [RoutedGroup],
    /// By task, most accurate first.
    of_task: Vec<Vec<usize>>,
    /// By task: the table of a sender without traffic, in proportion to capacity.
    idle: Vec<Vec<(u32, f64)>>,
    capacity_qps: Vec<f64>,
    /// By task: the first group with capacity left.
    first: Vec<usize>,
    incoming_qps: Vec<f64>,
    left_qps: Vec<f64>,
}

/// Tables for a demand at the root (Loki section 5.1, Algorithm 1). The algorithm's workers are here whole groups, whose
/// replicas are alike; a group of capacity 0 gets nothing.
///
/// Where demand exceeds the capacity of a task, the paper leaves the rest without a target. Here the rest is spread in
/// proportion to capacity, so that a table's shares always sum to 1. A group that no traffic reaches gets a table too, in
/// proportion to capacity, for queries that are rerouted to it.
#[must_use]
pub fn route(graph: &TaskGraph, servers: &[RoutedGroup], demand_qps: f64) -> RouterTables {
    let mut of_task = vec![Vec::new(); graph.children.len()];
    for (at, server) in servers.iter().enumerate().filter(|(_, s)| s.capacity_qps > 0.0) {
        of_task[server.task].push(at);
    }
    for of_task in &mut of_task {
        of_task.sort_by(|&a, &b| servers[b].accuracy.total_cmp(&servers[a].accuracy));
    }
    let parts = |of: &Vec<usize>| of.iter().map(|&g| Part { group: g, qps: servers[g].capacity_qps }).collect::<Vec<_>>();
    let mut routing = Routing {
        servers,
        idle: of_task.iter().map(|of| shares(&parts(of))).collect(),
        capacity_qps: of_task.iter().map(|of| of.iter().map(|&g| servers[g].capacity_qps).sum()).collect(),
        first: vec![0; of_task.len()],
        of_task,
        incoming_qps: vec![0.0; servers.len()],
        left_qps: servers.iter().map(|s| s.capacity_qps).collect(),
    };
    let mut tables = Vec::new();
    if let Some(&root) = graph.order.first() {
        tables.push(RouterTable { from: None, to_task: root as u32, entries: routing.send(demand_qps, root) });
    }
    for &task in &graph.order {
        for sender in routing.of_task[task].clone() {
            for (child, &to) in graph.children[task].iter().enumerate() {
                let outgoing_qps = routing.incoming_qps[sender] * servers[sender].fanout[child];
                let entries = routing.send(outgoing_qps, to);
                tables.push(RouterTable { from: Some(sender as u32), to_task: to as u32, entries });
            }
        }
    }
    tables.retain(|t| !t.entries.is_empty());
    RouterTables { tables, left_qps: routing.left_qps, incoming_qps: routing.incoming_qps }
}

impl Routing<'_> {
    /// Lines 10 to 19 of the algorithm for one sender and one task.
    fn send(&mut self, outgoing_qps: f64, task: usize) -> Vec<(u32, f64)> {
        if outgoing_qps <= 0.0 {
            return self.idle[task].clone();
        }
        let to = &self.of_task[task];
        let mut parts = Vec::new();
        let mut rest = outgoing_qps;
        // Earlier groups have no capacity left.
        let mut at = self.first[task];
        while at < to.len() && rest > 0.0 {
            let left = &mut self.left_qps[to[at]];
            let part = rest.min(*left).max(0.0);
            rest -= part;
            *left -= part;
            parts.push(Part { group: to[at], qps: part });
            if *left > 0.0 {
                break;
            }
            at += 1;
        }
        self.first[task] = at;
        if rest > SLACK * outgoing_qps {
            let capacity = self.capacity_qps[task];
            let given = std::mem::take(&mut parts);
            let before = |g: usize| given.iter().find(|p| p.group == g).map_or(0.0, |p| p.qps);
            let part = |&g: &usize| Part { group: g, qps: before(g) + rest * self.servers[g].capacity_qps / capacity };
            parts = to.iter().map(part).collect();
        }
        let total: f64 = parts.iter().map(|p| p.qps).sum();
        parts.retain(|p| p.qps > SLACK * total);
        parts.iter().for_each(|p| self.incoming_qps[p.group] += p.qps);
        shares(&parts)
    }
}

/// Parts as shares that sum to 1.
fn shares(parts: &[Part]) -> Vec<(u32, f64)> {
    let total: f64 = parts.iter().map(|p| p.qps).sum();
    parts.iter().map(|p| (p.group as u32, p.qps / total)).collect()
}
