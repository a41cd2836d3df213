//! What happens to a query in a slot when nobody waits for its request any more?
//!
//! Example: slots 0 and 1 of `generate` hold queries that need 500 more steps. The client of the first one goes away. Its
//! query leaves after the step in hand, a waiting query takes slot 0, and the query in slot 1 notices nothing.
//!
//! The slot's thread reports exactly one end of each query: that it left, or that it ended just before. Until then the slot
//! counts as taken, so no report is mistaken for that of the slot's next query.

use super::deliver::notify_sender;
use super::state::TrafficState;
use crate::node::event::Action;
use crate::node::replicas::{BatchPlace, QueuedMember};
use crate::node::spans::VisitEnd;
use crate::node::work::LocalQuery;
use apportion_serving::DropReason;
use apportion_serving::replica::StationInput;
use std::time::Duration;

impl TrafficState {
    /// Has the queries of a cancelled request leave the slots of a replica.
    pub(super) fn leave_slots(&mut self, id: u64, origin: u64, request: u64) {
        let slots = self.replicas.get(id).map(|replica| replica.slots_of(origin, request)).unwrap_or_default();
        slots.into_iter().for_each(|server| self.site.push(Action::LeaveSlot { replica: id, server }));
    }

    /// The query of a slot has left it. Its time counts as used, and says nothing of the profile.
    pub fn handle_slot_left(&mut self, place: BatchPlace, took: Duration) {
        let (now, took_ns, BatchPlace { replica: id, server }) = (self.site.now(), took.as_nanos() as u64, place);
        let Some(replica) = self.replicas.get_mut(id).filter(|replica| replica.is_running(server)) else { return };
        replica.station.handle(now, StationInput::BatchFinished { server });
        let members: Vec<QueuedMember> = replica.batch_members(server).collect();
        let left: Vec<LocalQuery> = members.iter().filter_map(|member| replica.works.remove(&member.key)).collect();
        replica.measure_failed(took_ns);
        let busy_ns = replica.busy_ns(took_ns);
        let counts = replica.group_counts(self.tallies.counts());
        counts.busy_ns += busy_ns;
        *counts.drops.entry(DropReason::Cancelled.name()).or_default() += left.len() as u64;
        self.batch_runs.touch(id);
        self.drain_station(id);
        self.replace_stale_station(id);
        for mut work in left {
            let end = VisitEnd::Left { error: Some(DropReason::Cancelled.name()) };
            self.tracing.end_visit(&mut self.site, &self.replicas, id, &mut work, end);
            notify_sender(&mut self.site, &mut self.fleet, &work);
        }
        self.run_offline();
    }
}
