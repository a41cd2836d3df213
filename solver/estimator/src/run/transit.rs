//! Queries come out of the network.

use crate::state::RunState;
use crate::state::network::QueryInTransit;
use crate::state::serving::{SimulatedDrop, StationInfo};
use apportion_domain::Partial;
use apportion_serving::DropReason;

/// Each query that arrives now joins the queue of its station.
#[inline]
pub fn join_stations(run: &mut RunState) {
    while let Some(transit) = run.serving.network.pop_arrived(run.now) {
        join_station(run, transit);
    }
}

/// A query arrives over the network. It is dropped if its request lost another query meanwhile.
fn join_station(run: &mut RunState, transit: QueryInTransit) {
    let StationInfo { pipeline, task_in_pipeline: task, .. } = run.serving.infos[transit.station as usize];
    let query = transit.query;
    let is_partial = run.pipelines[pipeline as usize].partial == Partial::Allow;
    let is_wanted = is_partial || run.requests.is_whole(query.request);
    if is_wanted {
        run.serving.join(run.now, transit.station, query, transit.deadline);
    } else {
        let dropped = SimulatedDrop { pipeline, at: task, task, query, reason: DropReason::Cancelled };
        run.serving.dropped.push(dropped);
    }
}
