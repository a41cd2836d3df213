//! Where a query goes: the target's tables over the replicas that are ready now.

use crate::layout::Pipeline;
use crate::wire::Announced;
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

/// Ready replicas, what this sender has with each of them, and the state of its strides.
#[derive(Default)]
pub struct Router {
    places: HashMap<String, HashMap<String, Vec<Place>>>,
    outstanding: HashMap<u64, usize>,
    /// By sender's group, and by group: the stride's balance.
    balances: HashMap<(Option<u64>, u64), f64>,
    turn: usize,
}

impl Router {
    /// Replaces what is ready.
    pub fn set(&mut self, ready: impl Iterator<Item = (u64, Announced)>) {
        self.places.clear();
        for (agent, r) in ready {
            let place = Place { agent, replica: r.replica, group: r.group, accuracy_ppm: r.accuracy_ppm };
            self.places.entry(r.pipeline).or_default().entry(r.task).or_default().push(place);
        }
    }

    /// Adds a replica if no other of its task is there.
    pub fn add_last(&mut self, agent: u64, r: Announced) {
        let places = self.places.entry(r.pipeline).or_default().entry(r.task).or_default();
        if places.is_empty() {
            places.push(Place { agent, replica: r.replica, group: r.group, accuracy_ppm: r.accuracy_ppm });
        }
    }

    /// Whether any replica of the task is ready.
    #[must_use]
    pub fn reaches(&self, pipeline: &str, task: &str) -> bool {
        self.of(pipeline, task).is_some()
    }

    /// The ready replicas of the task.
    pub fn replicas(&self, pipeline: &str, task: &str) -> impl Iterator<Item = u64> {
        self.of(pipeline, task).into_iter().flatten().map(|p| p.replica)
    }

    fn of(&self, pipeline: &str, task: &str) -> Option<&Vec<Place>> {
        self.places.get(pipeline)?.get(task)
    }

    /// A query was given to the replica.
    pub fn sent(&mut self, replica: u64) {
        *self.outstanding.entry(replica).or_default() += 1;
    }

    /// A query that was given to the replica is finished or lost.
    pub fn finished(&mut self, replica: u64) {
        if let Some(count) = self.outstanding.get_mut(&replica) {
            *count -= 1;
            if *count == 0 {
                self.outstanding.remove(&replica);
            }
        }
    }

    /// A place for a query of `task` from a replica of group `from` (none: from the gateway). The group by stride, in proportion
    /// to the table's fractions; in it, the replica with which this sender has the least. If no group of the table is
    /// ready, the task's most accurate ready group, be it of an earlier target.
    pub fn place(&mut self, name: &str, pipeline: Option<&Pipeline>, task: &str, from: Option<u64>) -> Option<Place> {
        let places = self.of(name, task)?;
        let position = pipeline.and_then(|p| p.tasks.iter().position(|t| t.name == task));
        let table = position.and_then(|task| pipeline?.tables.get(&(from, task)));
        let entries = table.map_or(&[][..], Vec::as_slice);
        let ready = |group: u64| places.iter().any(|p| p.group == group);
        let open: Vec<(u64, f64)> = entries.iter().filter(|(g, f)| *f > 0.0 && ready(*g)).copied().collect();
        let best = places.iter().max_by_key(|p| p.accuracy_ppm)?.group;
        let group = self.stride(from, &open).unwrap_or(best);
        self.turn = self.turn.wrapping_add(1);
        let mut of_group: Vec<Place> = self.of(name, task)?.iter().filter(|p| p.group == group).copied().collect();
        let turn = self.turn % of_group.len();
        of_group.rotate_left(turn);
        of_group.into_iter().min_by_key(|p| self.outstanding.get(&p.replica).copied().unwrap_or(0))
    }

    /// The group whose share is furthest behind.
    fn stride(&mut self, from: Option<u64>, open: &[(u64, f64)]) -> Option<u64> {
        let total: f64 = open.iter().map(|(_, fraction)| fraction).sum();
        let mut chosen: Option<(u64, f64)> = None;
        for (group, fraction) in open {
            let balance = self.balances.entry((from, *group)).or_default();
            *balance += fraction;
            if chosen.is_none_or(|(_, most)| *balance > most) {
                chosen = Some((*group, *balance));
            }
        }
        let (group, _) = chosen?;
        *self.balances.get_mut(&(from, group)).expect("it was entered above") -= total;
        Some(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{lay_out, tests::chain};

    fn ready(agent: u64, replica: u64, group: u64, accuracy_ppm: u32) -> (u64, Announced) {
        (agent, Announced { replica, group, pipeline: "p".into(), task: "b".into(), accuracy_ppm })
    }

    #[test]
    fn queries_are_spread_in_the_tables_proportion() {
        let mut pipeline = lay_out(&chain()).expect("valid").pipelines["p"].clone();
        pipeline.tables.insert((Some(1), 1), vec![(2, 0.75), (3, 0.25)]);
        let mut router = Router::default();
        router.set([ready(1, 20, 2, 5), ready(2, 30, 3, 6)].into_iter());
        let picks: Vec<u64> =
            (0..8).map(|_| router.place("p", Some(&pipeline), "b", Some(1)).expect("ready").group).collect();
        assert_eq!(picks.iter().filter(|g| **g == 2).count(), 6, "{picks:?}");
    }

    #[test]
    fn without_a_ready_group_of_the_table_the_most_accurate_takes_over() {
        let pipeline = lay_out(&chain()).expect("valid").pipelines["p"].clone();
        let mut router = Router::default();
        router.set([ready(1, 80, 8, 5), ready(2, 90, 9, 6)].into_iter());
        assert_eq!(router.place("p", Some(&pipeline), "b", Some(1)).map(|p| p.replica), Some(90));
        assert_eq!(router.place("p", Some(&pipeline), "a", None), None);
    }

    #[test]
    fn the_replica_with_the_least_outstanding_is_taken() {
        let pipeline = lay_out(&chain()).expect("valid").pipelines["p"].clone();
        let mut router = Router::default();
        router.set([ready(1, 20, 2, 5), ready(2, 21, 2, 5)].into_iter());
        router.sent(20);
        let picks: Vec<_> = (0..3).map(|_| router.place("p", Some(&pipeline), "b", Some(1)).map(|p| p.replica)).collect();
        assert_eq!(picks, [Some(21); 3]);
        router.finished(20);
        router.sent(21);
        assert_eq!(router.place("p", Some(&pipeline), "b", Some(1)).map(|p| p.replica), Some(20));
    }
}
