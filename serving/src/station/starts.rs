//! Which server starts a batch next, and which next batch does a waiting query enter?

use super::intake::BatchSlot;
use super::machine::Station;
use super::messages::StationOutput;
use super::queue::Waiting;
use super::servers::ServerState;
use apportion_domain::TimeSpan;

impl<Q: Copy + PartialEq> Station<Q> {
    /// An idle server starts a batch with the waiting queries, of which there is at least one. Returns the batch's size.
    #[inline]
    pub(super) fn start_at_once(&mut self, server: u32) -> u32 {
        let of_server = self.servers.get_mut(server);
        of_server.members.clear();
        self.intake.queue.take(self.intake.batcher.batch_max() as usize, &mut of_server.members);
        of_server.state = ServerState::Busy;
        of_server.ends = self.now;
        let size = of_server.members.len() as u32;
        self.servers.idle.remove(server);
        size
    }

    /// The next batch that starts in this tick.
    #[inline]
    pub(super) fn start_next(&mut self) -> Option<StationOutput<Q>> {
        if self.is_forming {
            return self.start_formed();
        }
        let server = self.servers.idle.first()?;
        let waits = || self.intake.batcher.may_wait() && self.intake.due(self.now).is_some_and(|due| due > self.now);
        if self.intake.queue.is_empty() || waits() {
            return None;
        }
        self.start_with(server, |station, members| {
            members.clear();
            let slot = BatchSlot { now: station.now, start: station.now, may_grow: false };
            station.intake.fill(members, slot);
        })
    }

    /// Starts a batch of an idle server with the queries that `fill` puts into its buffer, if there are any.
    #[inline]
    fn start_with(&mut self, server: u32, fill: impl FnOnce(&mut Self, &mut Vec<Waiting<Q>>)) -> Option<StationOutput<Q>> {
        let mut members = std::mem::take(&mut self.servers.get_mut(server).members);
        fill(self, &mut members);
        let size = members.len();
        let now = self.now;
        if size > 0 {
            if let Some(monitor) = self.monitor.as_mut().filter(|_| !self.is_forming) {
                for member in &members {
                    monitor.enter(now.since(member.arrived));
                    monitor.keep_entry(now, now.since(member.arrived), member.deadline);
                    monitor.start(TimeSpan::ZERO);
                }
            }
            self.servers.idle.remove(server);
            let execution = self.intake.service(size);
            if let Some(monitor) = &mut self.monitor {
                monitor.keep_executions(execution, size);
            }
        }
        let ends = if self.is_forming && size > 0 { now + self.intake.service(size) } else { now };
        let of_server = self.servers.get_mut(server);
        // The vector that was taken left one without a buffer: dropping that would cost two calls for each batch.
        std::mem::forget(std::mem::replace(&mut of_server.members, members));
        if size == 0 {
            return None;
        }
        of_server.state = ServerState::Busy;
        of_server.ends = ends;
        Some(StationOutput::StartBatch { server, size: size as u32 })
    }

    /// Under `forming`: free servers start their next batches, with waiting queries. Then the next batches of busy servers
    /// are filled.
    fn start_formed(&mut self) -> Option<StationOutput<Q>> {
        while let Some(server) = self.servers.idle.first_from(self.cursor) {
            self.cursor = server + 1;
            self.fill_next_batch(server, BatchSlot { now: self.now, start: self.now, may_grow: false });
            let started = self.start_with(server, Self::take_formed(server));
            if started.is_some() {
                return started;
            }
        }
        self.is_open = false;
        self.fill_next_batches();
        None
    }

    /// Moves the next batch of a server into the buffer of the batch that starts now.
    fn take_formed(server: u32) -> impl FnOnce(&mut Self, &mut Vec<Waiting<Q>>) {
        move |station, members| {
            members.clear();
            let (now, of_server) = (station.now, station.servers.get_mut(server));
            std::mem::swap(members, &mut of_server.forming);
            of_server.batch_wait = TimeSpan::ZERO;
            for entered in of_server.entered.drain(..) {
                let waited = now.since(entered);
                of_server.batch_wait = of_server.batch_wait + waited;
                if let Some(monitor) = &mut station.monitor {
                    monitor.start(waited);
                }
            }
        }
    }

    /// Waiting queries enter the next batches of busy servers, the batch that starts soonest first.
    fn fill_next_batches(&mut self) {
        let most = self.intake.batcher.batch_max() as usize;
        // Servers whose next batch is of another kind than the waiting queries.
        let mut stuck: Vec<usize> = Vec::new();
        while !self.intake.queue.is_empty() {
            let open = self.servers.with_room(most).filter(|(at, _)| !stuck.contains(at));
            let soonest = open.min_by_key(|(at, s)| (s.ends, *at));
            let Some((at, ends)) = soonest.map(|(at, s)| (at, s.ends)) else {
                self.has_room = false;
                return;
            };
            let before = self.intake.queue.len();
            self.fill_next_batch(at as u32, BatchSlot { now: self.now, start: ends.max(self.now), may_grow: true });
            if self.intake.queue.len() == before {
                stuck.push(at);
            }
        }
        self.has_room = self.servers.with_room(most).next().is_some();
    }

    fn fill_next_batch(&mut self, server: u32, slot: BatchSlot) {
        let mut forming = std::mem::take(&mut self.servers.get_mut(server).forming);
        let before = forming.len();
        self.intake.fill(&mut forming, slot);
        let now = self.now;
        let of_server = self.servers.get_mut(server);
        of_server.entered.resize(forming.len(), now);
        if let Some(monitor) = &mut self.monitor {
            for entered in &forming[before..] {
                monitor.enter(now.since(entered.arrived));
                monitor.keep_entry(now, now.since(entered.arrived), entered.deadline);
            }
        }
        of_server.forming = forming;
    }
}
