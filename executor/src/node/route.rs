//! Where a query goes: the target's tables over the replicas that are ready now, chosen by the policies of crate `serving`.

use crate::layout::Pipeline;
use crate::wire::Announced;
use apportion_serving::router::{Router, Within};
use std::collections::HashMap;

/// A ready replica and its agent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Its agent.
    pub agent: u64,
    /// The replica.
    pub replica: u64,
    /// Its group.
    pub group: u64,
    accuracy_ppm: u32,
}

/// What a choice was, to say when its query has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    epoch: u64,
    from: Option<u64>,
    slot: u32,
}

/// The ready replicas of one task, and the router of each group here that sends to it (none: the gateway).
#[derive(Default)]
struct Ready {
    places: Vec<Place>,
    senders: HashMap<Option<u64>, Router>,
}

/// Ready replicas of all tasks.
#[derive(Default)]
pub struct Routes {
    tasks: HashMap<String, HashMap<String, Ready>>,
    /// Changes with what is ready or with the tables; routers of an earlier one are gone.
    epoch: u64,
}

impl Routes {
    /// Replaces what is ready. Routers begin anew, with the tables of the target in force when they are first asked.
    pub fn set(&mut self, ready: impl Iterator<Item = (u64, Announced)>) {
        self.epoch += 1;
        self.tasks.clear();
        for (agent, r) in ready {
            self.of_mut(r.pipeline, r.task).places.push(place(agent, r.replica, r.group, r.accuracy_ppm));
        }
    }

    /// Adds a replica if no other of its task is there.
    pub fn add_last(&mut self, agent: u64, r: Announced) {
        let ready = self.of_mut(r.pipeline, r.task);
        if ready.places.is_empty() {
            ready.places.push(place(agent, r.replica, r.group, r.accuracy_ppm));
        }
    }

    fn of_mut(&mut self, pipeline: String, task: String) -> &mut Ready {
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

    /// A place for a query of `task` from a replica of group `from` (none: from the gateway). The group in proportion to the
    /// table's fractions over its ready groups, the replica within it as the plan's routing says. If no group of the table
    /// is ready, the task's most accurate ready group, be it of an earlier target.
    pub fn place(&mut self, name: &str, of: Option<&Pipeline>, task: &str, from: Option<u64>) -> Option<(Place, Ticket)> {
        let epoch = self.epoch;
        let ready = self.tasks.get_mut(name)?.get_mut(task)?;
        let router = match ready.senders.entry(from) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => new.insert(router(&ready.places, of, task, from)?),
        };
        let picked = router.pick();
        Some((ready.places[picked.target as usize], Ticket { epoch, from, slot: picked.slot }))
    }

    /// A query that was given a place by this ticket has left it.
    pub fn ended(&mut self, pipeline: &str, task: &str, ticket: Ticket) {
        if ticket.epoch == self.epoch
            && let Some(ready) = self.tasks.get_mut(pipeline).and_then(|tasks| tasks.get_mut(task))
            && let Some(router) = ready.senders.get_mut(&ticket.from)
        {
            router.ended(ticket.slot);
        }
    }
}

fn place(agent: u64, replica: u64, group: u64, accuracy_ppm: u32) -> Place {
    Place { agent, replica, group, accuracy_ppm }
}

/// The router of one sender over the places of one task.
fn router(places: &[Place], pipeline: Option<&Pipeline>, task: &str, from: Option<u64>) -> Option<Router> {
    let position = pipeline.and_then(|p| p.tasks.iter().position(|t| t.name == task));
    let table = position.and_then(|task| pipeline?.tables.get(&(from, task)));
    let of_group = |group: u64| -> Vec<u32> {
        (0..).zip(places).filter(|(_, p)| p.group == group).map(|(position, _)| position).collect()
    };
    let entries = table.into_iter().flatten().map(|(group, fraction)| (*fraction, of_group(*group)));
    let groups: Vec<(f64, Vec<u32>)> = entries.collect();
    let groups: Vec<(f64, &[u32])> = groups.iter().map(|(fraction, positions)| (*fraction, positions.as_slice())).collect();
    let within = pipeline.map_or(Within::Turns, |p| p.within);
    // Senders that begin together should not all begin with the same replica.
    let phase = from.unwrap_or(0) as u32;
    Router::new(within, &groups, phase).or_else(|| {
        let best = of_group(places.iter().max_by_key(|p| p.accuracy_ppm)?.group);
        Router::new(within, &[(1.0, &best)], phase)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{lay_out, tests::chain};

    fn ready(agent: u64, replica: u64, group: u64, accuracy_ppm: u32) -> (u64, Announced) {
        (agent, Announced { replica, group, pipeline: "p".into(), task: "b".into(), accuracy_ppm })
    }

    fn pipeline() -> Pipeline {
        lay_out(&chain()).expect("valid").pipelines["p"].clone()
    }

    #[test]
    fn queries_are_spread_in_the_tables_proportion_and_in_turns_within_a_group() {
        let mut pipeline = pipeline();
        pipeline.tables.insert((Some(1), 1), vec![(2, 0.75), (3, 0.25)]);
        let mut routes = Routes::default();
        routes.set([ready(1, 20, 2, 5), ready(2, 21, 2, 5), ready(2, 30, 3, 6)].into_iter());
        let mut count = HashMap::new();
        for _ in 0..800 {
            let (place, _) = routes.place("p", Some(&pipeline), "b", Some(1)).expect("ready");
            *count.entry(place.replica).or_insert(0) += 1;
        }
        assert_eq!([20, 21, 30].map(|r| count[&r]), [300, 300, 200]);
    }

    #[test]
    fn without_a_ready_group_of_the_table_the_most_accurate_takes_over() {
        let pipeline = pipeline();
        let mut routes = Routes::default();
        routes.set([ready(1, 80, 8, 5), ready(2, 90, 9, 6)].into_iter());
        assert_eq!(routes.place("p", Some(&pipeline), "b", Some(1)).map(|(p, _)| p.replica), Some(90));
        assert_eq!(routes.place("p", None, "b", None).map(|(p, _)| p.replica), Some(90));
        assert_eq!(routes.place("p", Some(&pipeline), "a", None), None);
    }

    #[test]
    fn under_jsq_the_replica_with_the_least_outstanding_is_taken_be_it_here_or_there() {
        let mut pipeline = pipeline();
        pipeline.within = Within::LeastOutstanding;
        let mut routes = Routes::default();
        routes.set([ready(1, 20, 2, 5), ready(2, 21, 2, 5)].into_iter());
        let pick = |routes: &mut Routes| routes.place("p", Some(&pipeline), "b", Some(1)).expect("ready");
        let tickets: Vec<_> = (0..4).map(|_| pick(&mut routes)).collect();
        assert_eq!(tickets.iter().filter(|(p, _)| p.replica == 20).count(), 2);
        let of_20 = tickets.iter().filter(|(p, _)| p.replica == 20).map(|(_, ticket)| *ticket);
        of_20.for_each(|ticket| routes.ended("p", "b", ticket));
        assert_eq!([pick(&mut routes).0.replica, pick(&mut routes).0.replica], [20, 20]);
        // A ticket of an earlier epoch says nothing about the routers of this one.
        let (_, old) = pick(&mut routes);
        routes.set([ready(1, 20, 2, 5)].into_iter());
        routes.ended("p", "b", old);
        assert_eq!(pick(&mut routes).0.replica, 20);
    }

    #[test]
    fn a_draining_replica_is_chosen_only_if_there_is_no_other() {
        let mut routes = Routes::default();
        routes.set([ready(1, 20, 2, 5)].into_iter());
        routes.add_last(1, ready(1, 30, 3, 9).1);
        assert_eq!(routes.replicas("p", "b").collect::<Vec<_>>(), [20]);
        routes.set(std::iter::empty());
        routes.add_last(1, ready(1, 30, 3, 9).1);
        assert_eq!(routes.place("p", None, "b", None).map(|(p, _)| p.replica), Some(30));
    }
}
