//! To which replica does a query go?
//!
//! The target's tables give a fraction to each group, over the replicas that are ready now. The policies of crate
//! `serving` choose.

use crate::layout::{LayoutGroup, LayoutPipeline};
use crate::wire::Announced;
use apportion_domain::TimeSpan;
use apportion_serving::router::{Router, Within};
use std::collections::BTreeMap;

/// A ready replica and its agent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadyReplica {
    /// Its agent.
    pub agent: u64,
    /// The replica.
    pub replica: u64,
    /// Its group.
    pub group: u64,
    accuracy_ppm: u32,
}

/// Identifies a routing choice. The node hands it back when the query has left the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    epoch: u64,
    sender: Sender,
    slot: u32,
}

/// A sender of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sender {
    /// Its group here; none: the gateway.
    from: Option<u64>,
    /// The group that its queries have chosen, if they have.
    only: Option<u64>,
}

/// Where a query goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RouteDecision {
    /// To this replica.
    Place(ReadyReplica, Ticket),
    /// Nowhere: the query is too late for every replica.
    Behind,
    /// No replica is ready.
    Nowhere,
}

impl RouteDecision {
    /// The replica and the ticket, if there is one.
    #[must_use]
    pub fn place(self) -> Option<(ReadyReplica, Ticket)> {
        if let Self::Place(place, ticket) = self { Some((place, ticket)) } else { None }
    }
}

/// The ready replicas of one task, and the router of each sender to it.
#[derive(Default)]
struct Ready {
    places: Vec<ReadyReplica>,
    senders: BTreeMap<Sender, Router>,
}

/// Ready replicas of all tasks.
#[derive(Default)]
pub struct ReadyRoutes {
    /// The agent whose senders use these routes.
    agent: u64,
    tasks: BTreeMap<String, BTreeMap<String, Ready>>,
    /// Tasks that had a ready replica at any time, and until when they are known to have had one, in nanoseconds.
    reached: BTreeMap<String, BTreeMap<String, u64>>,
    /// Increases with each change of tables or ready replicas. Routers of an earlier epoch are gone.
    epoch: u64,
}

impl ReadyRoutes {
    /// Empty routes for the senders of one agent.
    #[must_use]
    pub fn of(agent: u64) -> Self {
        Self { agent, ..Self::default() }
    }

    /// Replaces the ready replicas. Each router begins anew at its next query, with the tables that are then in force.
    ///
    /// All agents order the replicas of a task by their numbers. If each had its own replicas first, the agents' starting
    /// points would not be far from each other: two of them could begin at the same replica, and stay in step.
    pub fn set(&mut self, now_ns: u64, ready: impl Iterator<Item = (u64, Announced)>) {
        self.epoch += 1;
        for (pipeline, tasks) in std::mem::take(&mut self.tasks) {
            let Some(seen) = self.reached.get_mut(&pipeline) else { continue };
            seen.iter_mut().filter(|(task, _)| tasks.contains_key(*task)).for_each(|(_, seen_ns)| *seen_ns = now_ns);
        }
        for (agent, r) in ready {
            self.of_mut(r.pipeline, r.task).places.push(place(agent, r.replica, r.group, r.accuracy_ppm));
        }
        let ready = self.tasks.values_mut().flat_map(BTreeMap::values_mut);
        ready.for_each(|ready| ready.places.sort_by_key(|place| place.replica));
    }

    /// Adds a replica if no other of its task is there.
    pub fn add_last(&mut self, agent: u64, r: Announced) {
        let ready = self.of_mut(r.pipeline, r.task);
        if ready.places.is_empty() {
            ready.places.push(place(agent, r.replica, r.group, r.accuracy_ppm));
        }
    }

    /// When the task, if it has no ready replica now, lost its last one, in nanoseconds; none if none was ready since the
    /// pipeline was last forgotten.
    #[must_use]
    pub fn lost_ns(&self, pipeline: &str, task: &str) -> Option<u64> {
        self.reached.get(pipeline)?.get(task).copied()
    }

    /// Forgets all pipelines but these.
    pub fn keep(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.reached.retain(|pipeline, _| is_kept(pipeline));
    }

    fn of_mut(&mut self, pipeline: String, task: String) -> &mut Ready {
        if self.lost_ns(&pipeline, &task).is_none() {
            self.reached.entry(pipeline.clone()).or_default().insert(task.clone(), 0);
        }
        self.tasks.entry(pipeline).or_default().entry(task).or_default()
    }

    /// Whether any replica of the task is ready.
    #[must_use]
    pub fn reaches(&self, pipeline: &str, task: &str) -> bool {
        self.tasks.get(pipeline).is_some_and(|tasks| tasks.contains_key(task))
    }

    /// The ready replicas of the task.
    pub fn replicas(&self, pipeline: &str, task: &str) -> impl Iterator<Item = u64> {
        let ready = self.tasks.get(pipeline).and_then(|tasks| tasks.get(task));
        ready.into_iter().flat_map(|r| &r.places).map(|p| p.replica)
    }

    /// A place for a query of `task` from a replica of group `from` (none: from the gateway), `behind` by so much. The
    /// group in proportion to the table's fractions over its ready groups, the replica within it as the plan's routing
    /// says. A sender without a table has the mean of all others'. If no group of the table is ready, the task's most
    /// accurate ready group, be it of an earlier target. A query that has chosen a group (`only`) goes there and nowhere
    /// else.
    pub fn place(&mut self, name: &str, of: Option<&LayoutPipeline>, task: &str, way: &RouteConstraints) -> RouteDecision {
        let sender = Sender { from: way.from, only: way.only };
        let (epoch, phase) = (self.epoch, phase(self.agent, way.from));
        let Some(ready) = self.tasks.get_mut(name).and_then(|tasks| tasks.get_mut(task)) else {
            return RouteDecision::Nowhere;
        };
        let router = match ready.senders.entry(sender) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                let made = match way.only {
                    Some(group) => router_to(&ready.places, group, of, phase),
                    None => router(&ready.places, of, task, way.from, phase),
                };
                let Some(router) = made else { return RouteDecision::Nowhere };
                new.insert(router)
            }
        };
        match router.pick_behind(way.behind) {
            Some(picked) => {
                RouteDecision::Place(ready.places[picked.target as usize], Ticket { epoch, sender, slot: picked.slot })
            }
            None => RouteDecision::Behind,
        }
    }

    /// Counts one query less as outstanding at the replica of its ticket.
    pub fn ended(&mut self, pipeline: &str, task: &str, ticket: Ticket) {
        if ticket.epoch == self.epoch
            && let Some(ready) = self.tasks.get_mut(pipeline).and_then(|tasks| tasks.get_mut(task))
            && let Some(router) = ready.senders.get_mut(&ticket.sender)
        {
            router.ended(ticket.slot);
        }
    }
}

/// What the choice of a replica depends on, beyond the task.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteConstraints {
    /// The group that sends it; none: the gateway.
    pub from: Option<u64>,
    /// The group that it must go to, if its request has chosen one.
    pub only: Option<u64>,
    /// By how much it is behind.
    pub behind: TimeSpan,
}

fn place(agent: u64, replica: u64, group: u64, accuracy_ppm: u32) -> ReadyReplica {
    ReadyReplica { agent, replica, group, accuracy_ppm }
}

/// The places of a group, by position. Of a group with a central queue, only one counts: the first of its replicas at the
/// agent that holds the queue, which is the lowest agent that has any.
fn of_group(places: &[ReadyReplica], group: u64, of: Option<&LayoutPipeline>) -> Vec<u32> {
    let all = (0..).zip(places).filter(|(_, p)| p.group == group);
    if of.is_some_and(LayoutPipeline::is_central) {
        let holder = all.min_by_key(|(_, p)| (p.agent, p.replica));
        return holder.map(|(position, _)| position).into_iter().collect();
    }
    all.map(|(position, _)| position).collect()
}

/// The number of a sender. Senders with different numbers begin at replicas that are far from each other.
fn phase(agent: u64, from: Option<u64>) -> u32 {
    agent.wrapping_add(from.unwrap_or(0)) as u32
}

/// The router of one sender over the places of one group.
fn router_to(places: &[ReadyReplica], group: u64, pipeline: Option<&LayoutPipeline>, phase: u32) -> Option<Router> {
    let within = pipeline.map_or(Within::Turns, |p| p.within);
    let places = of_group(places, group, pipeline);
    if places.is_empty() { None } else { Router::new(within, &[(1.0, &places)], phase) }
}

/// A group of a task, as backup tables order it.
struct Candidate {
    group: u64,
    execution: TimeSpan,
    accuracy: f64,
}

/// The router of one sender over the places of one task.
fn router(
    places: &[ReadyReplica],
    pipeline: Option<&LayoutPipeline>,
    task: &str,
    from: Option<u64>,
    phase: u32,
) -> Option<Router> {
    let of_group = |group: u64| of_group(places, group, pipeline);
    let position = pipeline.and_then(|p| p.tasks.iter().position(|t| t.name == task));
    let planned = pipeline.zip(position).and_then(|(pipeline, task)| {
        let table = table(pipeline, task, from);
        let of_task = pipeline.groups.iter().filter(|(_, g)| g.task == task);
        let candidate =
            |(group, g): (&u64, &LayoutGroup)| Candidate { group: *group, execution: g.execution(), accuracy: g.accuracy };
        let groups: Vec<Candidate> = of_task.map(candidate).collect();
        let weights = groups.iter().map(|c| (table.get(&c.group).copied().unwrap_or(0.0), of_group(c.group)));
        let weights: Vec<(f64, Vec<u32>)> = weights.collect();
        let weights: Vec<(f64, &[u32])> = weights.iter().map(|(w, positions)| (*w, positions.as_slice())).collect();
        let router = Router::new(pipeline.within, &weights, phase)?;
        let router = if from.is_none() { router.of_ingress() } else { router };
        if !pipeline.serving.dropping.reroutes() {
            return Some(router);
        }
        let accuracy = |at: &u32| groups[*at as usize].accuracy;
        let backup = (0..).zip(&groups).filter(|(_, c)| pipeline.backup.contains(&c.group));
        let mut backup: Vec<u32> = backup.map(|(at, _)| at).collect();
        backup.sort_by(|a, b| accuracy(b).total_cmp(&accuracy(a)));
        Some(router.with_backup(groups.iter().map(|c| c.execution).collect(), backup))
    });
    planned.or_else(|| {
        let best = of_group(places.iter().max_by_key(|p| p.accuracy_ppm)?.group);
        Router::new(pipeline.map_or(Within::Turns, |p| p.within), &[(1.0, &best)], phase)
    })
}

/// The fractions of one sender's table; for a sender without one, the mean of all others', by what the senders can send.
fn table(pipeline: &LayoutPipeline, task: usize, from: Option<u64>) -> BTreeMap<u64, f64> {
    if let Some(own) = pipeline.tables.get(&(from, task)) {
        return own.iter().copied().collect();
    }
    let mut sum = BTreeMap::new();
    for ((sender, _), entries) in pipeline.tables.iter().filter(|((_, to), _)| *to == task) {
        let group = sender.and_then(|id| pipeline.groups.get(&id).map(|g| (id, g)));
        let replicas = |id: u64| pipeline.replicas.iter().filter(|r| r.group == id).count() as f64;
        let weight = group.map_or(1.0, |(id, g)| (g.capacity_qps() * replicas(id)).max(f64::MIN_POSITIVE));
        entries.iter().for_each(|(to, fraction)| *sum.entry(*to).or_insert(0.0) += weight * fraction);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{lay_out, tests::chain};
    use apportion_domain::{Dropping, Queueing};

    fn ready(agent: u64, replica: u64, group: u64, accuracy_ppm: u32) -> (u64, Announced) {
        (agent, Announced { replica, group, pipeline: "p".into(), task: "b".into(), accuracy_ppm })
    }

    fn to_b(routes: &mut ReadyRoutes, of: Option<&LayoutPipeline>, from: Option<u64>, behind_ns: u64) -> RouteDecision {
        routes.place("p", of, "b", &RouteConstraints { from, only: None, behind: TimeSpan::from_nanos(behind_ns) })
    }

    #[test]
    fn a_query_with_a_chosen_group_goes_only_there() {
        let pipeline = pipeline();
        let mut routes = ReadyRoutes::default();
        routes.set(0, [ready(1, 20, 2, 5), ready(1, 30, 3, 6), ready(2, 31, 3, 6)].into_iter());
        let mut to = |group: u64| {
            let way = RouteConstraints { only: Some(group), ..RouteConstraints::default() };
            routes.place("p", Some(&pipeline), "b", &way).place().map(|(place, _)| place.replica)
        };
        let mut seen = [to(3), to(3)];
        seen.sort_unstable();
        assert_eq!((seen, to(2), to(4)), ([Some(30), Some(31)], Some(20), None));
    }

    fn pipeline() -> LayoutPipeline {
        LayoutPipeline::clone(&lay_out(&chain()).expect("valid").pipelines["p"])
    }

    #[test]
    fn groups_share_by_the_table_and_replicas_take_turns() {
        let mut pipeline = pipeline();
        pipeline.groups.insert(3, pipeline.groups[&2].clone());
        pipeline.tables.insert((Some(1), 1), vec![(2, 0.75), (3, 0.25)]);
        let mut routes = ReadyRoutes::default();
        routes.set(0, [ready(1, 20, 2, 5), ready(2, 21, 2, 5), ready(2, 30, 3, 6)].into_iter());
        let mut count = BTreeMap::new();
        for _ in 0..800 {
            let (place, _) = to_b(&mut routes, Some(&pipeline), Some(1), 0).place().expect("ready");
            *count.entry(place.replica).or_insert(0) += 1;
        }
        assert_eq!([20, 21, 30].map(|r| count[&r]), [300, 300, 200]);
    }

    #[test]
    fn a_central_queue_stands_at_the_lowest_agent_with_a_replica() {
        let mut pipeline = pipeline();
        pipeline.serving.queueing = Queueing::Central;
        pipeline.groups.insert(3, pipeline.groups[&2].clone());
        pipeline.tables.insert((Some(1), 1), vec![(2, 0.75), (3, 0.25)]);
        let mut routes = ReadyRoutes::of(5);
        routes.set(0, [ready(3, 22, 2, 5), ready(2, 25, 2, 5), ready(2, 24, 2, 5), ready(4, 30, 3, 6)].into_iter());
        let mut count = BTreeMap::new();
        for _ in 0..800 {
            let (place, _) = to_b(&mut routes, Some(&pipeline), Some(1), 0).place().expect("ready");
            *count.entry((place.agent, place.replica)).or_insert(0) += 1;
        }
        assert_eq!(count, [((2, 24), 600), ((4, 30), 200)].into(), "groups share as the table says, whatever their size");
        let way = RouteConstraints { only: Some(2), ..RouteConstraints::default() };
        let pinned = routes.place("p", Some(&pipeline), "b", &way).place().expect("ready").0;
        assert_eq!((pinned.agent, pinned.replica), (2, 24));
    }

    #[test]
    fn agents_begin_with_different_replicas() {
        let pipeline = pipeline();
        let first = |agent: u64| {
            let mut routes = ReadyRoutes::of(agent);
            routes.set(0, (0..3).map(|n| ready(1, 20 + n, 2, 5)));
            let senders = [Some(1), None];
            senders.map(|from| to_b(&mut routes, Some(&pipeline), from, 0).place().expect("ready").0.replica)
        };
        assert_eq!([1, 2, 3].map(first), [[22, 21], [20, 22], [21, 20]]);
    }

    #[test]
    fn agents_that_list_their_own_replicas_first_begin_apart() {
        let pipeline = pipeline();
        let first = |agent: u64, listed: [u64; 3]| {
            let mut routes = ReadyRoutes::of(agent);
            routes.set(0, listed.map(|replica| ready(replica - 19, replica, 2, 5)).into_iter());
            to_b(&mut routes, Some(&pipeline), None, 0).place().expect("ready").0.replica
        };
        assert_eq!([first(1, [20, 21, 22]), first(2, [21, 20, 22]), first(3, [22, 20, 21])], [21, 22, 20]);
    }

    #[test]
    fn gateways_begin_at_different_groups() {
        let mut pipeline = pipeline();
        pipeline.groups.insert(3, pipeline.groups[&2].clone());
        pipeline.tables.insert((None, 1), vec![(2, 0.5), (3, 0.5)]);
        let first = |agent: u64| {
            let mut routes = ReadyRoutes::of(agent);
            routes.set(0, [ready(1, 20, 2, 5), ready(2, 30, 3, 6)].into_iter());
            to_b(&mut routes, Some(&pipeline), None, 0).place().expect("ready").0.replica
        };
        assert_eq!([1, 2, 3].map(first), [30, 20, 30]);
    }

    #[test]
    fn without_a_ready_group_the_most_accurate_one_serves() {
        let pipeline = pipeline();
        let mut routes = ReadyRoutes::default();
        routes.set(0, [ready(1, 80, 8, 5), ready(2, 90, 9, 6)].into_iter());
        assert_eq!(to_b(&mut routes, Some(&pipeline), Some(1), 0).place().map(|(p, _)| p.replica), Some(90));
        assert_eq!(to_b(&mut routes, None, None, 0).place().map(|(p, _)| p.replica), Some(90));
        assert_eq!(routes.place("p", Some(&pipeline), "a", &RouteConstraints::default()), RouteDecision::Nowhere);
    }

    #[test]
    fn jsq_takes_the_replica_with_the_least_outstanding_queries() {
        let mut pipeline = pipeline();
        pipeline.within = Within::LeastOutstanding;
        let mut routes = ReadyRoutes::default();
        routes.set(0, [ready(1, 20, 2, 5), ready(2, 21, 2, 5)].into_iter());
        let pick = |routes: &mut ReadyRoutes| to_b(routes, Some(&pipeline), Some(1), 0).place().expect("ready");
        let tickets: Vec<_> = (0..4).map(|_| pick(&mut routes)).collect();
        assert_eq!(tickets.iter().filter(|(p, _)| p.replica == 20).count(), 2);
        let of_20 = tickets.iter().filter(|(p, _)| p.replica == 20).map(|(_, ticket)| *ticket);
        of_20.for_each(|ticket| routes.ended("p", "b", ticket));
        assert_eq!([pick(&mut routes).0.replica, pick(&mut routes).0.replica], [20, 20]);
        // A ticket of an earlier epoch says nothing about the routers of this one.
        let (_, old) = pick(&mut routes);
        routes.set(0, [ready(1, 20, 2, 5)].into_iter());
        routes.ended("p", "b", old);
        assert_eq!(pick(&mut routes).0.replica, 20);
    }

    #[test]
    fn a_draining_replica_is_the_last_choice() {
        let mut routes = ReadyRoutes::default();
        routes.set(0, [ready(1, 20, 2, 5)].into_iter());
        routes.add_last(1, ready(1, 30, 3, 9).1);
        assert_eq!(routes.replicas("p", "b").collect::<Vec<_>>(), [20]);
        routes.set(0, std::iter::empty());
        routes.add_last(1, ready(1, 30, 3, 9).1);
        assert_eq!(to_b(&mut routes, None, None, 0).place().map(|(p, _)| p.replica), Some(30));
    }

    #[test]
    fn a_late_query_goes_to_a_faster_backup_or_nowhere() {
        let mut pipeline = pipeline();
        // Batches of group 2 take 20 ns, those of group 3 take 5 ns; group 3 is not in the table, but has capacity to
        // spare.
        pipeline.groups.insert(
            3,
            crate::layout::LayoutGroup {
                service: vec![crate::layout::LayoutPoint { batch: 4, latency_ns: 5, p99_ns: 0 }],
                ..pipeline.groups[&2].clone()
            },
        );
        pipeline.serving.dropping = Dropping::Reroute;
        pipeline.backup = [3].into();
        let mut routes = ReadyRoutes::default();
        let all = || [ready(1, 20, 2, 5), ready(2, 30, 3, 4)].into_iter();
        routes.set(0, all());
        let mut pick = |of: &LayoutPipeline, behind| {
            let choice = to_b(&mut routes, Some(of), Some(1), behind);
            (choice.place().map(|(place, _)| place.replica), choice == RouteDecision::Behind)
        };
        assert_eq!([0, 15, 16].map(|b| pick(&pipeline, b)), [(Some(20), false), (Some(30), false), (None, true)]);
        pipeline.serving.dropping = Dropping::PerTask;
        routes.set(0, all());
        let choice = to_b(&mut routes, Some(&pipeline), Some(1), 1);
        assert_eq!(choice, RouteDecision::Behind, "without rerouting there is no backup");
    }

    #[test]
    fn a_sender_without_a_table_uses_the_others_mean() {
        let mut pipeline = pipeline();
        pipeline.groups.insert(3, pipeline.groups[&2].clone());
        pipeline.groups.insert(4, pipeline.groups[&1].clone());
        pipeline.replicas.push(crate::layout::LayoutReplica { id: 9, group: 4, agent: 1, device: 0 });
        pipeline.tables.insert((Some(4), 1), vec![(2, 0.5), (3, 0.5)]);
        let mut routes = ReadyRoutes::default();
        routes.set(0, [ready(1, 20, 2, 5), ready(2, 30, 3, 4)].into_iter());
        let picks = (0..400).map(|_| to_b(&mut routes, Some(&pipeline), None, 0).place().expect("ready").0);
        assert_eq!(picks.filter(|place| place.replica == 30).count(), 100);
    }
}
