//! What does the host of a steward decide, and which measurements does it hear?
//!
//! Example: every tenth of a second each agent reports its arrivals to the host. Then the host's steward may decide that a
//! group needs one more replica, and the host tells all agents where it is.

use super::state::{DueReport, SteeringState};
use super::view::FleetView;
use crate::node::counts::BIN_NS;
use crate::node::event::{Action, RefusedMessage};
use crate::node::fleet::FleetState;
use crate::node::site::Site;
use crate::node::traffic::TrafficState;
use crate::steering::{measurement_of, monitor_of, steering_message, why_impossible};
use crate::wire::Message;
use apportion_domain::{Fence, TimeSpan};
use apportion_protocol::v1;
use apportion_serving::steward::StewardInput;

impl SteeringState {
    /// Tells the host the measurements: arrivals, and once in a period the rest.
    pub(super) fn report(&mut self, host: u64, due: DueReport, traffic: &mut TrafficState) {
        let fence = self.plan.fence.map(v1::Fence::from);
        let (agent, now_ns) = (traffic.site.agent(), traffic.site.now_ns());
        for pipeline in self.steered.iter().cloned().collect::<Vec<_>>() {
            let age_ns = |bin: u64| now_ns.saturating_sub(bin * BIN_NS);
            let offered = traffic.tallies.take_offered(&pipeline).into_iter();
            let offered = offered.map(|(bin, count)| v1::OfferedBin { age_ns: age_ns(bin), count }).collect();
            let (mut made, mut stations) = (Vec::new(), Vec::new());
            if due == DueReport::Everything {
                let ended = traffic.tallies.take_made(&pipeline).into_iter();
                made.extend(ended.map(|(group, made)| {
                    let (queries, children) = (made.queries, made.children);
                    v1::MadeCount { group, queries, children }
                }));
                let of_replicas = traffic.replicas.iter_mut().filter(|r| r.pipeline == pipeline);
                let of_queues = traffic.queues.iter_mut().filter(|q| q.pipeline == pipeline);
                let monitors = of_replicas.map(|r| (r.group.task, r.station.monitor()));
                for (task, monitor) in monitors.chain(of_queues.map(|q| (q.task(), q.monitor()))) {
                    if let Some(monitor) = monitor.filter(|m| m.arrived + m.entered > 0) {
                        stations.push(measurement_of(task, monitor));
                        monitor.clear();
                    }
                }
            }
            let ended = self.follows_misses(&pipeline).then(|| traffic.tallies.ended(&pipeline));
            let measured = v1::Measured { agent, pipeline, fence, offered, made, stations, ended };
            if host == agent {
                self.receive_measurement(&measured, &mut traffic.site, &traffic.fleet);
            } else if is_worth_telling(&measured, due) {
                traffic.site.send(host, Message::Measured(measured));
            }
        }
    }

    /// Whether the misses move the headroom of a pipeline's ladder.
    fn follows_misses(&self, pipeline: &str) -> bool {
        self.plan.pipelines.get(pipeline).is_some_and(|of| of.missed_share_max.is_some())
    }

    /// An agent has measured something, and takes this one for the host.
    pub fn receive_measurement(&mut self, told: &v1::Measured, site: &mut Site, fleet: &FleetState) {
        let Some(of) = self.plan.pipelines.get(&told.pipeline) else { return };
        let Some(hosted) = self.hosted.get_mut(&told.pipeline) else { return };
        if told.fence.map(Fence::from) != self.plan.fence {
            return;
        }
        let is_stranger = told.agent != site.agent() && !fleet.layout().agents.contains_key(&told.agent);
        let why = why_impossible(told).or(is_stranger.then_some("its agent is not in the target"));
        if let Some(why) = why {
            site.push(Action::CountRefused(RefusedMessage::Measurement));
            return tracing::warn!(agent = told.agent, pipeline = told.pipeline, why, "a measurement is refused");
        }
        let now = site.now();
        for bin in &told.offered {
            let bin_at = now - TimeSpan::from_nanos(bin.age_ns.min(site.now_ns()));
            hosted.steward.handle(now, StewardInput::Offered { bin: bin_at, count: bin.count });
        }
        let staffed = of.staffed();
        for made in &told.made {
            let Some(group) = staffed.iter().position(|staffed| staffed.id == made.group) else { continue };
            let input = StewardInput::Made { group, queries: made.queries, children: &made.children };
            hosted.steward.handle(now, input);
        }
        for station in told.stations.iter().filter(|s| (s.task as usize) < of.tasks.len()) {
            let mut monitor = monitor_of(station);
            let task = station.task as usize;
            hosted.steward.handle(now, StewardInput::Measured { task, monitor: &mut monitor });
        }
        if let Some(ended) = told.ended {
            hosted.outcomes.count(told.agent, ended);
        }
    }

    /// Lets a steward act, and tells all agents what it has decided.
    pub(super) fn decide(&mut self, name: &str, due: DueReport, traffic: &mut TrafficState) {
        let (site, fleet, replicas) = (&traffic.site, &traffic.fleet, &traffic.replicas);
        let (Some(of), Some(steered)) = (self.plan.pipelines.get(name), fleet.pipeline(name)) else { return };
        let view = FleetView { site, fleet, replicas, lost: &self.lost };
        let Some(hosted) = self.hosted.get_mut(name) else { return };
        let now = site.now();
        let ready = view.ready_by_group(steered);
        for (group, staffed) in of.staffed().iter().enumerate() {
            let replicas = ready.get(&staffed.id).copied().unwrap_or(0);
            hosted.steward.handle(now, StewardInput::Ready { group, replicas });
        }
        let ended = hosted.outcomes.take();
        hosted.steward.handle(now, StewardInput::Ended(ended));
        if hosted.steward.poll_timeout() <= now {
            hosted.steward.handle(now, StewardInput::Tick);
        }
        let mut next = hosted.last.clone();
        if let Some(decided) = hosted.steward.poll_output() {
            if !decided.replicas.is_empty() {
                hosted.wanted = of.allowed_replicas(&decided.replicas);
            }
            let v1::Steering { extras, moved, released, .. } = next;
            next = v1::Steering { extras, moved, released, ..steering_message(of, &decided) };
        }
        hosted.begin_move(&view, name, of);
        next.released = hosted.replicas_to_release(&view, of, &next.released);
        next.extras = hosted.place_extras(&view, of, next.extras, &next.released);
        next.moved = hosted.end_moves(&view, of, &next.extras);
        next.host = site.agent();
        next.pipeline = name.to_string();
        next.fence = self.plan.fence.map(v1::Fence::from);
        // A host counts its epochs itself: replicas come and go between two of the steward's.
        next.epoch = hosted.last.epoch;
        let is_new = next != hosted.last;
        next.epoch += u64::from(is_new);
        hosted.last = next.clone();
        if is_new || due == DueReport::Everything {
            for (agent, _) in traffic.fleet.peers().connected() {
                traffic.site.send(agent, Message::Steering(next.clone()));
            }
        }
        self.receive_steering(next, traffic);
    }
}

/// Whether the host needs this measurement now. Sums of ended requests can wait for the end of the period.
fn is_worth_telling(measured: &v1::Measured, due: DueReport) -> bool {
    let v1::Measured { offered, made, stations, ended, .. } = measured;
    let has_sums = due == DueReport::Everything && ended.is_some();
    has_sums || !(offered.is_empty() && made.is_empty() && stations.is_empty())
}
