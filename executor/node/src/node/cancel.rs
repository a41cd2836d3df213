//! Which queries belong to requests that were answered before all of their parts came back?
//!
//! Such queries leave their queues at once. Queries that arrive later are dropped on arrival. Queries that run make no
//! children.

use super::{Action, Node};
use crate::policies::Handle;
use crate::wire::Message;
use apportion_domain::Moment;
use apportion_serving::replica::Input;

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
