//! Who adapts a pipeline to its load between two plans, and by which measurements?
//!
//! The first live agent of the target's list hosts the steward of each steered pipeline. All agents send it their
//! measurements and apply its decisions. So the fleet follows a changing load while the control plane is away. When the
//! host is lost, the next agent takes over with a higher term. A new target ends the steering of the last one. It keeps
//! the observed load and the extra replicas ([`super::release`]).

use super::counts::BIN_NS;
use super::steers::{Hosted, Moves, Steers};
use super::{Action, Node, RefusedMessage};
use crate::layout::{Layout, Pipeline};
use crate::steering::{self, SLACK, TERM_BITS, free_shares, has_spare, routes_alike};
use crate::wire::Message;
use apportion_domain::{Fence, Moment, Span};
use apportion_protocol::v1;
use apportion_serving::Steward;
use apportion_serving::steward::Input;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How often arrivals are told to the host.
const REPORT_NS: u64 = 100_000_000;
/// How often the rest is told, and what is in force said again.
const PERIOD_NS: u64 = 1_000_000_000;
/// An agent that is lost for so long is taken to be gone, and its replicas are replaced.
const GONE_NS: u64 = 3_000_000_000;

/// What is due for a steered pipeline.
#[derive(Clone, Copy, PartialEq)]
enum Due {
    /// Its arrivals are reported.
    Arrivals,
    /// Everything is reported, and the steering in force is sent again.
    Everything,
}

impl Node {
    /// A target has come: what was steered for the last one is over, but for what [`Self::carry`] keeps.
    pub(super) fn begin_steering(&mut self, layout: &Arc<Layout>) {
        let free = free_shares(layout, |_| true);
        let has_spare = has_spare(layout, &free);
        let is_steered = |p: &&String| layout.pipelines[*p].is_steered(has_spare);
        let steered: BTreeSet<String> = layout.pipelines.keys().filter(is_steered).cloned().collect();
        let mut last = std::mem::take(&mut self.steers);
        let (plan, obeyed_ns, lost_ns) = (layout.clone(), self.now_ns, std::mem::take(&mut last.lost_ns));
        self.steers = Steers { plan, steered, obeyed_ns, lost_ns, ..Steers::default() };
        self.carry_over_steering(last);
        // A replica that is added later should not have to wait for its file.
        let has_room = free.iter().any(|((agent, _), left)| *agent == self.agent && *left > SLACK);
        let hardware = layout.devices.get(&self.agent).map(|(hardware, _)| hardware);
        let of_steered = self.steers.steered.iter().flat_map(|p| layout.pipelines[p].groups.values());
        let digests = of_steered.filter(|g| Some(&g.hardware) == hardware && !g.digest.is_empty());
        let digests: BTreeSet<String> = digests.map(|g| g.digest.clone()).collect();
        if has_room && !digests.is_empty() {
            self.actions.push(Action::Prefetch(digests.into_iter().collect()));
        }
    }

    /// Requests were offered.
    pub(super) fn count_offered(&mut self, pipeline: &str, rows: u32) {
        if self.steers.steered.contains(pipeline) {
            let tally = self.steers.tallies.entry(pipeline.to_string()).or_default();
            *tally.bins.entry(self.now_ns / BIN_NS).or_default() += rows;
        }
    }

    /// Queries of a group have ended, and made so many at each child.
    pub(super) fn count_made(&mut self, pipeline: &str, group: u64, queries: u64, children: &[u64]) {
        if self.steers.steered.contains(pipeline) {
            let tally = self.steers.tallies.entry(pipeline.to_string()).or_default();
            let (ended, made) = tally.made.entry(group).or_default();
            *ended += queries;
            made.resize(children.len(), 0);
            made.iter_mut().zip(children).for_each(|(sum, n)| *sum += n);
        }
    }

    /// The agent that hosts the stewards: the first of the target's list that lives.
    fn host(&self) -> Option<u64> {
        self.layout.agents.keys().copied().find(|agent| self.is_live(*agent))
    }

    pub(super) fn is_live(&self, agent: u64) -> bool {
        let may_come = || self.steers.is_settling(self.now_ns) && !self.steers.lost_ns.contains_key(&agent);
        self.is_reached(agent) || may_come()
    }

    /// Whether an agent is known to be there.
    pub(super) fn is_reached(&self, agent: u64) -> bool {
        agent == self.agent || self.peers.is_connected(agent)
    }

    /// Notices who is lost, and who is back.
    fn note_lost_agents(&mut self) {
        let now_ns = self.now_ns;
        for agent in self.layout.agents.keys().copied().collect::<Vec<_>>() {
            if self.is_live(agent) {
                self.steers.lost_ns.remove(&agent);
            } else {
                self.steers.lost_ns.entry(agent).or_insert(now_ns);
            }
        }
        let agents = &self.layout.agents;
        self.steers.lost_ns.retain(|agent, _| agents.contains_key(agent));
    }

    pub(super) fn is_agent_lost(&self, agent: u64) -> bool {
        self.steers.lost_ns.get(&agent).is_some_and(|since| self.now_ns >= since + GONE_NS)
    }

    /// Time has passed: reports, and for the host, the stewards' next steps.
    pub(super) fn steer(&mut self) {
        if self.steers.steered.is_empty() || self.leaving {
            return;
        }
        self.note_lost_agents();
        let Some(host) = self.host() else { return };
        if host == self.agent {
            self.take_over();
        } else {
            self.steers.hosted.clear();
        }
        // By the clock and not by the time since the last: a tick that comes late must not lengthen all periods after it.
        let is_period = self.now_ns / PERIOD_NS > self.steers.period_ns / PERIOD_NS;
        let due = if is_period { Due::Everything } else { Due::Arrivals };
        if self.now_ns / REPORT_NS > self.steers.reported_ns / REPORT_NS {
            self.steers.reported_ns = self.now_ns;
            self.report(host, due);
            for pipeline in self.steers.hosted.keys().cloned().collect::<Vec<_>>() {
                self.decide(&pipeline, due);
            }
            if is_period {
                self.steers.period_ns = self.now_ns;
            }
        }
    }

    /// Hosts what is not hosted here yet, above all epochs that were seen.
    fn take_over(&mut self) {
        let now = Moment::from_nanos(self.now_ns);
        let has_spare = has_spare(&self.steers.plan, &free_shares(&self.steers.plan, |_| true));
        let idle = self.steers.steered.iter().filter(|name| !self.steers.hosted.contains_key(*name)).cloned();
        for name in idle.collect::<Vec<_>>() {
            let Some(of) = self.steers.plan.pipelines.get(&name) else { continue };
            let last = self.steers.applied.get(&name).cloned().unwrap_or_default();
            let epoch = ((last.epoch >> TERM_BITS) + 1) << TERM_BITS;
            // What another host has added, or released, stays so until this one has seen the load.
            let wanted = of.held(&last);
            match Steward::new(of.steward_config(has_spare, &last), now, epoch) {
                Ok(mut steward) => {
                    if let Some((former, groups)) = self.steers.former.remove(&name) {
                        let was = |id: u64| groups.iter().position(|g| *g == id);
                        steward.inherit(&former, &of.staffed().iter().map(|(id, ..)| was(*id)).collect::<Vec<_>>());
                    }
                    tracing::info!(pipeline = name, term = epoch >> TERM_BITS, "this agent steers");
                    let last = v1::Steering { host: self.agent, epoch, ..last };
                    let moves = Moves::of(&last, self.now_ns);
                    let hosted = Hosted { steward, wanted, last, numbered: 0, moves, refused: BTreeSet::new() };
                    self.steers.hosted.insert(name, hosted);
                }
                Err(error) => tracing::error!(pipeline = name, %error, "it cannot be steered"),
            }
        }
    }

    /// Tells the host what was measured: arrivals, and once in a period the rest.
    fn report(&mut self, host: u64, due: Due) {
        let fence = self.steers.plan.fence.map(v1::Fence::from);
        for name in self.steers.steered.iter().cloned().collect::<Vec<_>>() {
            let tally = self.steers.tallies.entry(name.clone()).or_default();
            let offered = std::mem::take(&mut tally.bins);
            let age_ns = |bin: u64| self.now_ns.saturating_sub(bin * BIN_NS);
            let offered = offered.into_iter().map(|(bin, count)| v1::OfferedBin { age_ns: age_ns(bin), count }).collect();
            let (mut made, mut stations) = (Vec::new(), Vec::new());
            if due == Due::Everything {
                let ended = std::mem::take(&mut tally.made).into_iter();
                made.extend(ended.map(|(group, (queries, children))| v1::MadeCount { group, queries, children }));
                for replica in self.replicas.values_mut().filter(|r| r.pipeline == name) {
                    let task = replica.group.task;
                    if let Some(monitor) = replica.station.monitor().filter(|m| m.arrived + m.entered > 0) {
                        stations.push(steering::measured(task, monitor));
                        monitor.clear();
                    }
                }
            }
            let agent = self.agent;
            let measured = v1::Measured { agent, pipeline: name, fence, offered, made, stations };
            if host == self.agent {
                self.receive_measurement(&measured);
            } else if !(measured.offered.is_empty() && measured.made.is_empty() && measured.stations.is_empty()) {
                self.actions.push(Action::Send(host, Message::Measured(measured)));
            }
        }
    }

    /// An agent has measured something, and takes this one for the host.
    pub(super) fn receive_measurement(&mut self, told: &v1::Measured) {
        let Some(of) = self.steers.plan.pipelines.get(&told.pipeline) else { return };
        let Some(hosted) = self.steers.hosted.get_mut(&told.pipeline) else { return };
        if told.fence.map(Fence::from) != self.steers.plan.fence {
            return;
        }
        let is_stranger = told.agent != self.agent && !self.layout.agents.contains_key(&told.agent);
        let why = steering::immeasurable(told).or(is_stranger.then_some("its agent is not in the target"));
        if let Some(why) = why {
            self.actions.push(Action::CountRefused(RefusedMessage::Measurement));
            return tracing::warn!(agent = told.agent, pipeline = told.pipeline, why, "a measurement is refused");
        }
        let now = Moment::from_nanos(self.now_ns);
        for bin in &told.offered {
            let bin_at = now - Span::from_nanos(bin.age_ns.min(self.now_ns));
            hosted.steward.handle(now, Input::Offered { bin: bin_at, count: bin.count });
        }
        let staffed = of.staffed();
        for made in &told.made {
            let Some(group) = staffed.iter().position(|(id, ..)| *id == made.group) else { continue };
            let input = Input::Made { group, queries: made.queries, children: &made.children };
            hosted.steward.handle(now, input);
        }
        for station in told.stations.iter().filter(|s| (s.task as usize) < of.tasks.len()) {
            let mut monitor = steering::monitor(station);
            let task = station.task as usize;
            hosted.steward.handle(now, Input::Measured { task, monitor: &mut monitor });
        }
    }

    /// Lets a steward act, and tells all agents what it has decided.
    fn decide(&mut self, name: &str, due: Due) {
        let (now, layout) = (Moment::from_nanos(self.now_ns), self.layout.clone());
        let (Some(of), Some(steered)) = (self.steers.plan.pipelines.get(name).cloned(), layout.pipelines.get(name)) else {
            return;
        };
        let ready = self.ready_by_group(steered);
        let Some(hosted) = self.steers.hosted.get_mut(name) else { return };
        for (at, (id, ..)) in of.staffed().iter().enumerate() {
            let replicas = ready.get(id).copied().unwrap_or(0);
            hosted.steward.handle(now, Input::Ready { group: at, replicas });
        }
        if hosted.steward.poll_timeout() <= now {
            hosted.steward.handle(now, Input::Tick);
        }
        let mut next = hosted.last.clone();
        if let Some(decided) = hosted.steward.poll_output() {
            if !decided.replicas.is_empty() {
                hosted.wanted = of.allowed(&decided.replicas);
            }
            let v1::Steering { extras, moved, released, .. } = next;
            next = v1::Steering { extras, moved, released, ..steering::tell(&of, &decided) };
        }
        self.begin_move(name, &of);
        next.released = self.replicas_to_release(name, &of, &next.released);
        next.extras = self.place_extras(name, &of, next.extras, &next.released);
        next.moved = self.end_moves(name, &of, &next.extras);
        let Some(hosted) = self.steers.hosted.get_mut(name) else { return };
        next.host = self.agent;
        next.pipeline = name.to_string();
        next.fence = self.steers.plan.fence.map(v1::Fence::from);
        // A host counts its epochs itself: replicas come and go between two of the steward's.
        next.epoch = hosted.last.epoch;
        let is_new = next != hosted.last;
        next.epoch += u64::from(is_new);
        hosted.last = next.clone();
        if is_new || due == Due::Everything {
            for (agent, _) in self.peers.connected() {
                self.actions.push(Action::Send(agent, Message::Steering(next.clone())));
            }
        }
        self.receive_steering(next);
    }

    /// Ready replicas of each group, of this target.
    pub(super) fn ready_by_group(&self, of: &Pipeline) -> BTreeMap<u64, u32> {
        let here = self.replicas.values().filter(|r| r.takes()).map(|r| r.id);
        let there = self.peers.connected().flat_map(|(_, announced)| announced.ready.iter().map(|r| r.replica));
        let ready: BTreeSet<u64> = here.chain(there).collect();
        let mut counts = BTreeMap::new();
        for replica in of.replicas.iter().filter(|r| ready.contains(&r.id)) {
            *counts.entry(replica.group).or_default() += 1;
        }
        counts
    }

    /// A host has decided; what is older than what is in force, or of another target, is not for this agent.
    pub(super) fn receive_steering(&mut self, told: v1::Steering) {
        let is_of_plan = told.fence.map(Fence::from) == self.steers.plan.fence;
        let (Some(of), true) = (self.steers.plan.pipelines.get(&told.pipeline).cloned(), is_of_plan) else { return };
        let order = |s: &v1::Steering| (s.epoch, Reverse(s.host));
        let last = self.steers.applied.get(&told.pipeline);
        let is_stranger = told.host != self.agent && !self.layout.agents.contains_key(&told.host);
        let why = steering::implausible(&told, last.map_or(0, |last| last.epoch));
        if let Some(why) = why.or(is_stranger.then_some("its host is not in the target")) {
            self.actions.push(Action::CountRefused(RefusedMessage::Steering));
            return tracing::warn!(
                host = told.host,
                pipeline = told.pipeline,
                epoch = told.epoch,
                why,
                "a steering is refused"
            );
        }
        if let Some(last) = last.filter(|last| order(last) >= order(&told)) {
            // A host that begins anew hears how far others are, and takes a term above.
            if order(last) > order(&told) && told.host != self.agent {
                self.actions.push(Action::Send(told.host, Message::Steering(last.clone())));
            }
            return;
        }
        if self.steers.hosted.get(&told.pipeline).is_some_and(|hosted| hosted.last.epoch < told.epoch) {
            self.steers.hosted.remove(&told.pipeline);
        }
        let is_rerouted = last.map_or(told != v1::Steering::default(), |last| !routes_alike(last, &told));
        let views = steering::views(&told);
        let name = told.pipeline.clone();
        if is_rerouted {
            let mut layout = Layout::clone(&self.layout);
            layout.pipelines.insert(name.clone(), Arc::new(of.steered(&told)));
            self.layout = Arc::new(layout);
            self.choosers.remove(&name);
        }
        self.steers.applied.insert(name.clone(), told);
        if is_rerouted {
            self.follow_layout(Some(&name));
        }
        let now = Moment::from_nanos(self.now_ns);
        for replica in self.replicas.values_mut().filter(|r| r.pipeline == name) {
            if let Some(view) = views.get(replica.group.task) {
                replica.view = Some(*view);
                if !replica.is_stale {
                    replica.steer(now, *view);
                }
            }
        }
    }
}
