//! Where is each replica of this agent in its life, from the target that names it to its failure or its draining?

use super::room::load_what_fits;
use crate::layout::difference;
use crate::node::event::Action;
use crate::node::fleet::FleetState;
use crate::node::replicas::{BatchPlace, LocalReplica, ReplicaPhase};
use crate::node::traffic::TrafficState;
use crate::replica_event::ReplicaEvent;
use std::collections::BTreeSet;

/// How long a draining replica waits for queries on their way, in nanoseconds.
const LINGER_NS: u64 = 500_000_000;

/// Brings the replicas of one pipeline, or of all, in line with the layout in force.
pub fn follow_layout(traffic: &mut TrafficState, only: Option<&str>) {
    let layout = traffic.fleet.layout().clone();
    let loaded: BTreeSet<u64> = traffic.replicas.iter().map(|r| r.id).collect();
    let (agent, now) = (traffic.site.agent(), traffic.site.now());
    for id in difference(&loaded, &layout, agent).retire {
        traffic.replicas.get_mut(id).expect("it is loaded").retired = true;
    }
    for (name, of) in layout.pipelines.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        // Whether there are too many paths was checked with the target.
        let states = of.outline().state_planner().ok().flatten();
        for place in of.replicas.iter().filter(|r| r.agent == agent) {
            let view = states.as_ref().map(|s| s.view(of.groups[&place.group].task));
            match traffic.replicas.get_mut(place.id) {
                Some(replica) => {
                    replica.retired = false;
                    if matches!(replica.state, ReplicaPhase::Draining(_)) {
                        replica.state = ReplicaPhase::Ready;
                    }
                    replica.follow_pipeline(of, view, now);
                    traffic.replace_stale_station(place.id);
                }
                None => {
                    traffic.replicas.insert(LocalReplica::new(place, name, of, view));
                }
            }
        }
    }
    load_what_fits(&mut traffic.site, &mut traffic.replicas);
    traffic.publish_replica_changes();
}

/// A replica's thread has reported something.
pub fn handle_replica_event(traffic: &mut TrafficState, id: u64, event: ReplicaEvent) {
    let Some(replica) = traffic.replicas.get_mut(id) else { return };
    match event {
        ReplicaEvent::Ready => {
            if replica.state == ReplicaPhase::Loading {
                let site = &traffic.site;
                replica.state = if site.is_leaving() { ReplicaPhase::Draining(site.now_ns()) } else { ReplicaPhase::Ready };
                traffic.publish_replica_changes();
            }
        }
        ReplicaEvent::Failed(reason) => {
            tracing::error!(replica = id, reason, "a replica failed");
            replica.state = ReplicaPhase::Failed(reason.clone());
            traffic.publish_replica_changes();
            traffic.abandon_replica(id, &reason);
        }
        ReplicaEvent::BatchEnded { server, result, took } => {
            traffic.handle_batch_end(BatchPlace { replica: id, server }, result, took);
        }
        ReplicaEvent::Left { server, took } => traffic.handle_slot_left(BatchPlace { replica: id, server }, took),
    }
}

/// Unloads the replicas that have failed: a new target is a new try for them.
pub fn unload_failed_replicas(traffic: &mut TrafficState) {
    for id in traffic.replicas.ids(LocalReplica::has_failed) {
        traffic.replicas.remove(id);
        traffic.site.push(Action::Unload(id));
    }
}

/// The agent is about to stop: no replica takes new queries.
pub fn drain_all_replicas(traffic: &mut TrafficState) {
    let now_ns = traffic.site.now_ns();
    for replica in traffic.replicas.iter_mut() {
        replica.retired = true;
        if replica.state == ReplicaPhase::Ready {
            replica.state = ReplicaPhase::Draining(now_ns);
        }
    }
    traffic.publish_replica_changes();
    traffic.replicas.ids(|_| true).into_iter().for_each(|id| traffic.pass_on_offline(id));
}

/// Unloads old replicas. Each first drains, when other replicas take its queries.
pub fn unload_retired_replicas(traffic: &mut TrafficState) {
    let (site, replicas) = (&traffic.site, &traffic.replicas);
    let (now_ns, settled) = (site.now_ns(), replicas.is_target_applied());
    let (mut stop, mut unload) = (Vec::new(), Vec::new());
    for replica in replicas.iter().filter(|r| r.retired) {
        match &replica.state {
            ReplicaPhase::Blocked | ReplicaPhase::Loading | ReplicaPhase::Failed(_) if replica.len() == 0 => {
                unload.push(replica.id)
            }
            ReplicaPhase::Ready if settled && is_replaced(&traffic.fleet, replica) => stop.push(replica.id),
            // While the agent leaves, requests of its own gateway may still need it.
            ReplicaPhase::Draining(since)
                if replica.len() == 0
                    && now_ns >= since + LINGER_NS
                    && (!site.is_leaving() || traffic.gateway.is_empty()) =>
            {
                unload.push(replica.id);
            }
            _ => {}
        }
    }
    let any = !stop.is_empty() || !unload.is_empty();
    for id in &stop {
        traffic.replicas.get_mut(*id).expect("it is there").state = ReplicaPhase::Draining(now_ns);
    }
    for id in unload {
        traffic.replicas.remove(id);
        traffic.site.push(Action::Unload(id));
    }
    if any {
        load_what_fits(&mut traffic.site, &mut traffic.replicas);
        traffic.publish_replica_changes();
    }
    stop.into_iter().for_each(|id| traffic.pass_on_offline(id));
}

/// Whether the target has no use for an old replica: its pipeline or task is gone, or a ready replica of the target serves
/// it.
fn is_replaced(fleet: &FleetState, old: &LocalReplica) -> bool {
    let Some(pipeline) = fleet.pipeline(&old.pipeline) else { return true };
    let task = &old.task().name;
    let wanted = |id: u64| pipeline.replicas.iter().any(|r| r.id == id);
    fleet.routes().replicas(&old.pipeline, task).any(wanted) || pipeline.tasks.iter().all(|t| t.name != *task)
}
