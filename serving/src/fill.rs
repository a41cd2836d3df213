//! How a station's servers get their batches: what starts when, what enters which batch, and what is dropped on the way in.

use crate::batcher::Batcher;
use crate::dropper::{Chance, DropReason, Dropper, Priority};
use crate::queue::Waiting;
use crate::replica::{Output, ServerState, Station};
use apportion_domain::{Moment, Span};

/// A batch that is filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Into {
    /// When it starts.
    pub(crate) start: Moment,
    /// Whether more may enter before it starts.
    pub(crate) may_grow: bool,
}

impl<Q: Copy + PartialEq> Station<Q> {
    /// Expected time of a batch of this size, at least 1.
    #[inline]
    pub(crate) fn service(&self, size: usize) -> Span {
        let last = self.service.len().wrapping_sub(1);
        self.service.get((size - 1).min(last)).copied().unwrap_or(Span::ZERO)
    }

    /// Under `wait_until`, when a free server starts with what waits; `None` if nothing does.
    pub(crate) fn due(&self) -> Option<Moment> {
        if let Some(kind_of) = self.kind_of {
            return self.due_apart(kind_of);
        }
        let Batcher::WaitUntil { batch_max, delay, reserve } = self.batcher else { return None };
        let waiting = self.queue.waiting();
        let first = waiting.first()?;
        if waiting.len() >= batch_max as usize {
            return Some(self.now);
        }
        let (mut deadline, mut arrived) = (first.deadline, first.arrived);
        if self.queue.is_mixed() {
            deadline = waiting.iter().map(|w| w.deadline).min().unwrap_or(deadline);
            arrived = waiting.iter().map(|w| w.arrived).min().unwrap_or(arrived);
        }
        let last = deadline - reserve - self.service(waiting.len());
        Some(delay.map_or(last, |delay| last.min(arrived + delay)))
    }

    /// An idle server starts a batch with what waits, of which there is something; its size.
    #[inline]
    pub(crate) fn start_eagerly(&mut self, server: u32) -> u32 {
        let of_server = &mut self.servers[server as usize];
        of_server.members.clear();
        self.queue.take(self.batcher.batch_max() as usize, &mut of_server.members);
        of_server.state = ServerState::Busy;
        of_server.ends = self.now;
        self.idle.remove(server);
        of_server.members.len() as u32
    }

    /// The next batch that starts in this tick.
    #[inline]
    pub(crate) fn start_next(&mut self) -> Option<Output<Q>> {
        if self.batcher.is_forming() {
            return self.start_formed();
        }
        let server = self.idle.first()?;
        let waits = || self.batcher.may_wait() && self.due().is_some_and(|due| due > self.now);
        if self.queue.is_empty() || waits() {
            return None;
        }
        self.start_with(server, |station, members| {
            members.clear();
            station.fill(members, Into { start: station.now, may_grow: false });
        })
    }

    /// Starts a batch of an idle server with what `fill` puts into its buffer, if anything.
    #[inline]
    fn start_with(&mut self, server: u32, fill: impl FnOnce(&mut Self, &mut Vec<Waiting<Q>>)) -> Option<Output<Q>> {
        let mut members = std::mem::take(&mut self.servers[server as usize].members);
        fill(self, &mut members);
        let size = members.len();
        let now = self.now;
        if size > 0 {
            if let Some(monitor) = self.monitor.as_mut().filter(|_| !self.batcher.is_forming()) {
                for member in &members {
                    monitor.enter(now.since(member.arrived));
                    monitor.note(now, now.since(member.arrived), member.deadline);
                    monitor.start(Span::ZERO);
                }
            }
            self.idle.remove(server);
            let execution = self.service(size);
            if let Some(monitor) = &mut self.monitor {
                monitor.run(execution, size);
            }
        }
        let ends = if self.batcher.is_forming() && size > 0 { now + self.service(size) } else { now };
        let of_server = &mut self.servers[server as usize];
        // What was taken left a vector without a buffer: to drop that would cost two calls for each batch.
        std::mem::forget(std::mem::replace(&mut of_server.members, members));
        if size == 0 {
            return None;
        }
        of_server.state = ServerState::Busy;
        of_server.ends = ends;
        Some(Output::StartBatch { server, size: size as u32 })
    }

    /// Under `forming`: free servers start what they have and what waits; then the next batches are filled.
    fn start_formed(&mut self) -> Option<Output<Q>> {
        while let Some(server) = self.idle.first_from(self.cursor) {
            self.cursor = server + 1;
            self.enter(server, Into { start: self.now, may_grow: false });
            let started = self.start_with(server, |station, members| {
                members.clear();
                let (now, of_server) = (station.now, &mut station.servers[server as usize]);
                std::mem::swap(members, &mut of_server.forming);
                of_server.batch_wait = Span::ZERO;
                for entered in of_server.entered.drain(..) {
                    let waited = now.since(entered);
                    of_server.batch_wait = of_server.batch_wait + waited;
                    if let Some(monitor) = &mut station.monitor {
                        monitor.start(waited);
                    }
                }
            });
            if started.is_some() {
                return started;
            }
        }
        self.is_open = false;
        // Servers whose next batch is of another kind than what waits.
        let mut stuck: Vec<usize> = Vec::new();
        while !self.queue.is_empty() {
            let most = self.batcher.batch_max() as usize;
            let open = |(at, s): &(usize, &crate::replica::Server<Q>)| {
                s.state == ServerState::Busy && s.forming.len() < most && !stuck.contains(at)
            };
            let soonest = self.servers.iter().enumerate().filter(open).min_by_key(|(at, s)| (s.ends, *at));
            let Some((at, ends)) = soonest.map(|(at, s)| (at, s.ends)) else {
                self.has_room = false;
                return None;
            };
            let before = self.queue.len();
            self.enter(at as u32, Into { start: ends.max(self.now), may_grow: true });
            if self.queue.len() == before {
                stuck.push(at);
            }
        }
        let most = self.batcher.batch_max() as usize;
        self.has_room = self.servers.iter().any(|s| s.state == ServerState::Busy && s.forming.len() < most);
        None
    }

    /// Fills the next batch of a server.
    fn enter(&mut self, server: u32, into: Into) {
        let mut forming = std::mem::take(&mut self.servers[server as usize].forming);
        let before = forming.len();
        self.fill(&mut forming, into);
        let now = self.now;
        let of_server = &mut self.servers[server as usize];
        of_server.entered.resize(forming.len(), now);
        if let Some(monitor) = &mut self.monitor {
            for entered in &forming[before..] {
                monitor.enter(now.since(entered.arrived));
                monitor.note(now, now.since(entered.arrived), entered.deadline);
            }
        }
        of_server.forming = forming;
    }

    /// Moves queries from the queue into a batch until it is full or the queue is empty; those that the policy gives up are
    /// dropped on the way.
    #[inline]
    fn fill(&mut self, batch: &mut Vec<Waiting<Q>>, into: Into) {
        if let Some(kind_of) = self.kind_of {
            return self.fill_alike(batch, into, kind_of);
        }
        let most = self.batcher.batch_max() as usize;
        if self.dropper == Dropper::Window {
            self.slide(most - batch.len(), batch.len(), into);
        }
        if !self.is_sorted && (!self.dropper.inspects() || self.dropper == Dropper::Window) {
            self.queue.take(most - batch.len(), batch);
            return;
        }
        let is_high_first = self.is_sorted && self.view.priority == Priority::HighBudgetFirst;
        if is_high_first {
            self.give_up_hopeless();
        }
        while batch.len() < most {
            let largest = if into.may_grow { most } else { most.min(batch.len() + self.queue.len()) };
            let next = if is_high_first { self.queue.pop_last() } else { self.queue.pop() };
            let Some(waiting) = next else { break };
            let chance = Chance { now: self.now, start: into.start, execution: self.service(largest) };
            match self.dropper.verdict(chance, &self.view, &waiting) {
                Some(reason) => self.dropped.push((waiting.query, reason)),
                None => batch.push(waiting),
            }
        }
    }

    /// While the queries with the most time left come first, those with the least would wait for ever: the ones that cannot
    /// be on time even alone and at once are dropped.
    pub(crate) fn give_up_hopeless(&mut self) {
        let soonest = self.now + self.service(1);
        while let Some(waiting) = self.queue.waiting().first().filter(|w| w.deadline < soonest).copied() {
            self.queue.pop();
            self.dropped.push((waiting.query, DropReason::Predicted));
        }
    }

    /// Nexus's window: drops the queries before the first place from which the next `room` queries, or all that are left,
    /// would end by their deadlines together with the `before` queries that are in the batch already.
    fn slide(&mut self, room: usize, before: usize, into: Into) {
        for _ in 0..self.window(self.queue.waiting(), room, before, into) {
            let waiting = self.queue.pop().expect("it is there");
            self.dropped.push((waiting.query, DropReason::Deadline));
        }
    }

    /// How many of those that wait stand before that place.
    pub(crate) fn window(&self, waiting: &[Waiting<Q>], room: usize, before: usize, into: Into) -> usize {
        let mut first = 0;
        while first < waiting.len() && room > 0 {
            let window = room.min(waiting.len() - first);
            let size = if into.may_grow { room + before } else { window + before };
            let end = into.start + self.service(size);
            let is_late = |w: &Waiting<Q>| w.deadline < end;
            let Some(late) = waiting[first..][..window].iter().rposition(is_late) else { break };
            // Where windows get no shorter up to the late one, each of them has it.
            first = if into.may_grow || first + late + room <= waiting.len() { first + late + 1 } else { first + 1 };
        }
        first
    }
}
