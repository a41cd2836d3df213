//! Which queries belong to requests that were answered before all of their parts came back?
//!
//! Such queries leave their queues at once. Queries that arrive later are dropped on arrival. Queries that run make no
//! children.

use super::{Action, Node};
use crate::policies::Handle;
use crate::wire::Message;
use apportion_domain::Moment;
use apportion_serving::replica::Input;
use std::collections::{BTreeSet, VecDeque};

/// Cancelled requests that are remembered, for what is still on its way: the youngest ones.
pub const CANCELLED_MAX: usize = 65_536;

/// The youngest cancelled requests, by their gateway's agent and its number.
#[derive(Debug, Default)]
pub(super) struct Cancelled {
    known: BTreeSet<(u64, u64)>,
    order: VecDeque<(u64, u64)>,
    /// Those whose queries are still in queues here.
    in_queues: Vec<(u64, u64)>,
}

impl Cancelled {
    pub fn contains(&self, origin: u64, request: u64) -> bool {
        !self.known.is_empty() && self.known.contains(&(origin, request))
    }

    /// Whether it is new.
    fn insert(&mut self, origin: u64, request: u64) -> bool {
        let is_new = self.known.insert((origin, request));
        if is_new {
            self.in_queues.push((origin, request));
            self.order.push_back((origin, request));
            if self.order.len() > CANCELLED_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
        is_new
    }
}

impl Node {
    /// A request of this gateway is answered although parts of it are still under way: all agents forget them.
    pub(super) fn cancel_everywhere(&mut self, request: u64) {
        let origin = self.agent;
        for (agent, _) in self.peers.connected() {
            self.actions.push(Action::Send(agent, Message::Cancel { origin, request }));
        }
        self.cancel(origin, request);
    }

    /// Nothing of a request is wanted any more here. Its queries leave their queues after what happens now.
    pub(super) fn cancel(&mut self, origin: u64, request: u64) {
        self.cancelled.insert(origin, request);
    }

    /// Takes what was cancelled out of all queues.
    pub(super) fn cancel_queued_queries(&mut self) {
        let now = Moment::from_nanos(self.now_ns);
        while let Some((origin, request)) = self.cancelled.in_queues.pop() {
            let ids: Vec<u64> = self.replicas.values().filter(|r| r.len() > 0).map(|r| r.id).collect();
            for id in ids {
                if let Some(replica) = self.replicas.get_mut(&id) {
                    replica
                        .station
                        .handle(now, Input::Cancel { query: Handle { key: 0, origin, request, level: 0, kind: 0 } });
                    self.touched.insert(id);
                    self.drain_station(id);
                }
                self.cancel_offline(id, origin, request);
            }
            self.parked.cancel(origin, request);
            self.cancel_meetings(origin, request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_youngest_are_remembered() {
        let mut cancelled = Cancelled::default();
        assert!((0..=CANCELLED_MAX as u64).all(|request| cancelled.insert(1, request)));
        assert!(!cancelled.insert(1, 7), "known");
        assert!(!cancelled.contains(1, 0) && cancelled.contains(1, 1) && !cancelled.contains(2, 1));
        assert_eq!((cancelled.known.len(), cancelled.order.len()), (CANCELLED_MAX, CANCELLED_MAX));
    }
}
