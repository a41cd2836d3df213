//! Which event is next, and what does it do?
//!
//! [`Run`] is the loop: batches end ([`completion`]), requests arrive ([`ingress`]), queries come out of the network,
//! stations wake, module states arrive, replicas and plans change ([`crate::change`]), and at last batches start. The loop
//! decides nothing about policy.

mod agenda;
mod children;
mod completion;
mod ingress;

use crate::change::Changes;
use crate::input::workload::Arrivals;
use crate::state::network::QueryInTransit;
use crate::state::serving::{Dropped, StationInfo};
use crate::state::statistics::StartedBatch;
use crate::state::{RunState, ServerId};
use agenda::Agenda;
use apportion_domain::{Moment, Span};
use apportion_serving::DropReason;
use apportion_serving::station::Input;
use completion::Completion;
use ingress::Ingress;

/// A run in progress.
#[derive(Debug)]
pub struct Run<'a> {
    /// The present state.
    pub state: RunState,
    /// What changes during the run, if anything does.
    pub changes: Option<Changes<'a>>,
    ingress: Ingress<'a>,
    agenda: Agenda,
    completion: Completion,
}

impl<'a> Run<'a> {
    /// Before the first event.
    #[must_use]
    pub fn new(state: RunState, arrivals: Vec<Arrivals<'a>>, changes: Option<Changes<'a>>) -> Self {
        let (ingress, agenda) = (Ingress::new(arrivals), Agenda::default());
        Self { state, changes, ingress, agenda, completion: Completion::default() }
    }

    /// Runs until no event is left, or the run is cut short.
    pub fn run(&mut self) {
        loop {
            self.state.serving.bounds.count_work(1);
            if !self.state.is_within_bounds() {
                return;
            }
            let arrival = self.ingress.next();
            let serving = &self.state.serving;
            let others = self.agenda.next_end().min(serving.network.next_due()).min(serving.next_wake());
            let work = others.min(arrival.at);
            let change = self.next_change(work);
            if work.min(change) == Moment::NEVER || self.state.statistics.is_enough() {
                return;
            }
            let views = self.state.modules.next(work);
            let before = others.min(views).min(change);
            let is_draining = self.changes.as_ref().is_some_and(|c| c.is_draining());
            let is_last = if arrival.at < before && !is_draining {
                self.arrive_before(before);
                true
            } else {
                let now = before.min(arrival.at);
                self.state.now = now;
                while let Some(batch) = self.agenda.pop_ended(now) {
                    self.completion.end_batch(&mut self.state, batch);
                    if !self.state.is_within_bounds() {
                        return;
                    }
                }
                // Each of several arrivals at one moment takes a turn of the loop. Batches start after the last.
                let is_last = arrival.at > now || {
                    self.arrive(arrival.pipeline);
                    self.ingress.next().at > now
                };
                while let Some(transit) = self.state.serving.network.pop_arrived(now) {
                    self.join_station(transit);
                }
                self.state.serving.wake(now);
                if views == now {
                    self.state.modules.act(now, &mut self.state.serving);
                }
                if (is_draining || change <= now) && !self.change() {
                    return;
                }
                is_last
            };
            self.start_batches(is_last);
        }
    }

    #[inline]
    fn next_change(&mut self, work: Moment) -> Moment {
        match &mut self.changes {
            None => Moment::NEVER,
            Some(changes) => changes.next(work, self.state.now, self.state.requests.in_flight()),
        }
    }

    /// Carries out the changes that are due. Returns whether the run can go on.
    #[cold]
    fn change(&mut self) -> bool {
        let Some(changes) = &mut self.changes else { return true };
        changes.carry_out(&mut self.state);
        changes.failed.is_none()
    }

    #[inline]
    fn arrive(&mut self, pipeline: usize) {
        if let Some(changes) = &mut self.changes {
            changes.count_arrival(pipeline, self.state.now);
        }
        self.ingress.arrive(&mut self.state, pipeline);
    }

    /// Requests arrive until a station wants a tick, a query is on its way, or `moment` comes. No other event is earlier.
    #[inline]
    fn arrive_before(&mut self, moment: Moment) {
        let is_quiet = self.state.serving.is_quiet();
        if is_quiet && self.ingress.arrive_in_bulk(&mut self.state, moment) && self.ingress.next().at > self.state.now {
            return;
        }
        loop {
            let arrival = self.ingress.next();
            self.state.now = arrival.at;
            self.arrive(arrival.pipeline);
            self.state.serving.bounds.count_work(1);
            let is_quiet = self.state.serving.is_quiet();
            if !is_quiet {
                self.state.account_for_drops();
            }
            let next = self.ingress.next().at;
            let serving = &self.state.serving;
            let may_go_on =
                is_quiet && !serving.bounds.is_due() && serving.next_wake().min(serving.network.next_due()) >= moment;
            if next > arrival.at && !(may_go_on && next < moment) {
                return;
            }
        }
    }

    /// Starts what can start, after the last arrival of a moment. A drop may let other batches start, and a start may drop
    /// queries.
    #[inline]
    fn start_batches(&mut self, is_last: bool) {
        loop {
            self.state.account_for_drops();
            if !is_last || !self.state.serving.is_due() {
                return;
            }
            self.tick_stations();
        }
    }

    #[inline]
    fn tick_stations(&mut self) {
        let RunState { now, groups, serving, streams, requests, statistics, has_changes, slow, .. } = &mut self.state;
        let (now, agenda) = (*now, &mut self.agenda);
        for at in 0..serving.begin_ticks() {
            let station = serving.ticking(at);
            let info = serving.infos[station as usize];
            let group = &groups[info.group as usize];
            serving.stations[station as usize].handle(now, Input::Tick);
            serving.take_outputs(now, station, |machine, server, size| {
                let mut service = group.service[size as usize - 1];
                if let Some(variation) = &group.spread {
                    service = variation.draw(streams, size, service);
                }
                if !slow.is_empty() {
                    service = RunState::slowed(slow, now, ServerId { station, server }, service);
                }
                if *has_changes {
                    statistics.spent(service);
                    let each = Span::from_nanos(service.as_nanos() / u64::from(size));
                    for member in machine.batch(server) {
                        let request = requests.get_mut(member.query.request);
                        request.spent = request.spent + each;
                    }
                }
                agenda.start(now + service, station, server);
                let (task, batch_wait) = (group.task, machine.batch_wait(server));
                let started = StartedBatch { task, server: info.server + server, now, service, batch_wait };
                statistics.started(started, machine.batch(server));
            });
        }
    }

    /// A query arrives over the network. It is dropped if its request lost another query meanwhile.
    fn join_station(&mut self, transit: QueryInTransit) {
        let StationInfo { pipeline, task_in_pipeline: task, .. } = self.state.serving.infos[transit.station as usize];
        let query = transit.query;
        let is_partial = self.state.pipelines[pipeline as usize].partial;
        let is_wanted = is_partial || self.state.requests.get_mut(query.request).drop_task.is_none();
        if is_wanted {
            self.state.serving.join(self.state.now, transit.station, query, transit.deadline);
        } else {
            let dropped = Dropped { pipeline, at: task, task, query, reason: DropReason::Cancelled };
            self.state.serving.dropped.push(dropped);
        }
    }
}
