//! For which replicas is there room on their devices?

use crate::node::event::Action;
use crate::node::replicas::{LocalReplica, LocalReplicas, ReplicaPhase};
use crate::node::site::Site;

/// How many times the planned shares of a device may be loaded at once where memory is not known: the new replicas, and
/// the replicas that they replace.
const SHARES_MAX: f64 = 2.0;
/// How far sums of shares may be from whole numbers.
const SLACK: f64 = 1e-6;

/// Loads the blocked replicas for which there is room, in the order of their numbers.
pub fn load_what_fits(site: &mut Site, replicas: &mut LocalReplicas) {
    let blocked: Vec<u64> = replicas.blocked().map(|r| r.id).collect();
    for id in blocked {
        if !replicas.get(id).is_some_and(|new| has_room(replicas, new)) {
            continue;
        }
        if let Some(replica) = replicas.get_mut(id) {
            replica.state = ReplicaPhase::Loading;
            site.push(Action::Load { replica: id, digest: replica.group.digest.clone() });
        }
    }
}

/// Whether a replica fits on its device beside the loaded ones: by memory if that of all is known, else by shares.
fn has_room(replicas: &LocalReplicas, new: &LocalReplica) -> bool {
    let is_loaded = |r: &LocalReplica| !matches!(r.state, ReplicaPhase::Blocked | ReplicaPhase::Failed(_));
    let is_there = |r: &&LocalReplica| r.device == new.device && is_loaded(r);
    let mut there = replicas.iter().filter(is_there).peekable();
    if there.peek().is_none() {
        return true;
    }
    let all = || replicas.iter().filter(is_there).chain([new]);
    // Replicas that the target itself puts on the device must go there, be it too much.
    let wanted = || replicas.iter().filter(|r| r.device == new.device && !r.retired);
    let memory: Option<f64> = all().map(|r| r.group.memory_mib.map(|(own, _)| own)).sum();
    match (memory, new.group.memory_mib) {
        (Some(needed), Some((_, device))) => {
            let planned: f64 = wanted().filter_map(|r| r.group.memory_mib).map(|(own, _)| own).sum();
            needed <= device.max(planned)
        }
        _ => {
            let planned: f64 = wanted().map(|r| r.group.share).sum();
            all().map(|r| r.group.share).sum::<f64>() <= SHARES_MAX * planned.max(1.0) + SLACK
        }
    }
}
