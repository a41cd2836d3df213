//! The batches that run: which one starts, and which one ends next?

use super::agenda::{Agenda, RunningBatch};
use crate::state::statistics::StartedBatch;
use crate::state::{RunState, ServerId};
use apportion_domain::{Moment, TimeSpan};
use apportion_serving::station::StationInput;

/// Starts batches, and says which one ends next.
#[derive(Debug, Default)]
pub struct RunningBatches {
    agenda: Agenda,
}

impl RunningBatches {
    /// When the next batch ends; `NEVER` if none runs.
    #[inline]
    pub fn next_end(&self) -> Moment {
        self.agenda.next_end()
    }

    /// The next batch, if it ends by `now`.
    #[inline]
    pub fn pop_ended(&mut self, now: Moment) -> Option<RunningBatch> {
        self.agenda.pop_ended(now)
    }

    /// Starts every batch that can start now, after the last arrival of a moment. A drop may let other batches start, and a
    /// start may drop queries. Queries that have left their slots have no end to come.
    #[inline]
    pub fn start_due(&mut self, run: &mut RunState) {
        loop {
            run.account_for_drops();
            for ServerId { station, server } in run.serving.left.drain(..) {
                let end = self.agenda.remove(station, server).unwrap_or(run.now);
                let number = run.serving.infos[station as usize].server + server;
                run.statistics.count_left(number, end.since(run.now));
            }
            if !run.serving.is_due() {
                return;
            }
            self.tick_stations(run);
        }
    }

    /// Ticks the stations that asked for it. Their batches start.
    #[inline]
    fn tick_stations(&mut self, run: &mut RunState) {
        let RunState { now, groups, serving, streams, requests, statistics, journal, has_changes, slow, .. } = run;
        let (now, agenda) = (*now, &mut self.agenda);
        let marks_fallbacks = statistics.keeps_classes();
        for at in 0..serving.begin_ticks() {
            let station = serving.ticking(at);
            let info = serving.infos[station as usize];
            let group = &groups[info.group as usize];
            serving.stations[station as usize].handle(now, StationInput::Tick);
            serving.take_outputs(now, station, |machine, server, size| {
                let mut service = group.service[size as usize - 1];
                if let Some(variation) = &group.spread {
                    service = variation.draw(streams, size, service);
                }
                if !slow.is_empty() {
                    service = slow.prolong(now, ServerId { station, server }, service);
                }
                if *has_changes {
                    statistics.count_device_time(service);
                    let each = TimeSpan::from_nanos(service.as_nanos() / u64::from(size));
                    for member in machine.batch(server) {
                        let request = requests.get_mut(member.query.request);
                        request.spent = request.spent + each;
                    }
                }
                if marks_fallbacks && group.is_fallback {
                    for member in machine.batch(server) {
                        requests.get_mut(member.query.request).on_fallback = true;
                    }
                }
                agenda.start(now + service, station, server);
                let (task, batch_wait) = (group.task, machine.batch_wait(server));
                let started = StartedBatch { task, server: info.server + server, now, service, batch_wait };
                statistics.count_start(started, machine.batch(server), journal.as_mut());
            });
        }
    }
}
