//! The run carries changes out: replicas come, go, die and slow down.

use crate::changes::{Changes, Due, Slow};
use crate::crews::{Dead, Leaving, Manner, Seat};
use crate::driver::Run;
use crate::fleet::Place;
use crate::floor::{Dropped, Sending};
use crate::reconcile::Step;
use crate::scenario::{Event, OnFailure};
use apportion_domain::{Moment, Span};
use apportion_serving::replica::Input;
use apportion_serving::{DropReason, Waiting};
use std::ops::Range;

impl<'a> Run<'a> {
    /// Does all that is due by now.
    #[cold]
    pub(crate) fn change(&mut self) {
        let Some(mut changes) = self.changes.take() else { return };
        changes.crews.pay(self.now);
        while let Some(due) = changes.pop(self.now) {
            self.change_one(&mut changes, due);
        }
        let mut is_changed = true;
        while is_changed {
            is_changed = self.release(&mut changes);
            while let Some(step) = changes.crews.reconcile(self.now) {
                match step {
                    Step::LetGo(crew, manner) => self.let_go(&mut changes, crew, manner),
                    Step::Recall(crew) => self.recall(&mut changes, crew),
                }
                is_changed = true;
            }
            is_changed |= self.seat_loaded(&mut changes);
        }
        self.empty_abandoned(&mut changes);
        self.floor.count_new();
        self.changes = Some(changes);
    }

    fn change_one(&mut self, changes: &mut Changes<'a>, due: Due) {
        match due {
            Due::Event(event) => self.happen(changes, &event),
            Due::Measure(controller) => changes.measure(controller, self.now, &self.floor, &self.collect),
            Due::Report(controller, seen) => changes.report(controller, self.now, &seen),
            Due::Noticed { crew, station, server } => self.notice(changes, crew, Seat { station, server }),
            Due::Tell => self.tell_stewards(changes),
            Due::Told(report) => self.told(changes, *report),
            Due::Steer(answer) => self.steer(changes, *answer),
            Due::Quiet => {}
            Due::Window => {
                changes.close_window(self.now, &self.collect);
                changes.open_window();
            }
        }
    }

    fn happen(&mut self, changes: &mut Changes<'a>, event: &Event) {
        if let Event::Plan { plan } = event {
            if let Err(error) = self.adopt(changes, plan) {
                changes.failed.get_or_insert(error);
            }
            return;
        }
        let Some(at) = event.group().and_then(|(pipeline, group)| changes.crews.find(pipeline, group)) else { return };
        let crew = &mut changes.crews.crews[at];
        let seat = |number: u32| crew.ready.get(number.checked_rem(crew.ready.len() as u32)? as usize).copied();
        match *event {
            Event::Plan { .. } => {}
            // A command that was given before the plan changed may speak of a group that is no longer in it.
            Event::Replicas { .. } if !crew.is_planned => {}
            Event::Replicas { replicas, .. } => {
                changes.changed += u64::from(crew.wanted != replicas.max(1));
                crew.wanted = replicas.max(1);
            }
            Event::Slow { replica, factor, until, .. } => {
                if let Some(seat) = seat(replica) {
                    self.slow.retain(|s| s.until > self.now);
                    self.slow.push(Slow { station: seat.station, servers: crew.servers(seat), factor, until });
                }
            }
            Event::Fail { replica, .. } => {
                let Some(seat) = seat(replica) else { return };
                crew.ready.retain(|s| *s != seat);
                let mut lost = Vec::new();
                for server in crew.servers(seat) {
                    if self.floor.stations[seat.station as usize].fail(server, &mut lost) {
                        self.stale.push((seat.station, server));
                    }
                }
                crew.dead.push(Dead { seat, is_known: false, quiet: None, lost, is_closed: false });
                let noticed = Due::Noticed { crew: at, station: seat.station, server: seat.server };
                let detection = changes.scenario.detection;
                changes.push(self.now + detection, noticed);
            }
        }
    }

    /// Senders notice that a replica is dead: its queries go elsewhere as soon as there is another.
    fn notice(&mut self, changes: &mut Changes<'a>, at: usize, seat: Seat) {
        for dead in &mut changes.crews.crews[at].dead {
            dead.is_known |= dead.seat == seat;
        }
        self.retarget_task(changes, at);
        self.rehome(changes, at);
    }

    /// How long a query of a pipeline travels.
    fn hop(&self, line: u32) -> Span {
        self.lines[line as usize].network.map_or(Span::ZERO, |line| self.floor.network.delay(line))
    }

    /// Sends on, or gives up, what known dead replicas of a task held.
    fn rehome(&mut self, changes: &mut Changes<'a>, at: usize) {
        if !changes.crews.has_colleague(at) {
            return;
        }
        let (line, task) = (changes.crews.crews[at].line, changes.crews.crews[at].task);
        let hop = self.hop(line);
        for crew_at in 0..changes.crews.crews.len() {
            let crew = &mut changes.crews.crews[crew_at];
            if (crew.line, crew.task) != (line, task) {
                continue;
            }
            let (mut lost, mut moved) = (Vec::new(), Vec::new());
            let mut later = Vec::new();
            for dead in crew.dead.iter_mut().filter(|d| d.is_known) {
                let held = if dead.is_closed { &mut moved } else { &mut lost };
                held.append(&mut dead.lost);
                if !crew.is_central {
                    self.floor.stations[dead.seat.station as usize].evacuate(held);
                }
                if dead.quiet.is_none() {
                    dead.quiet = Some(self.now + hop);
                    later.push(Due::Noticed { crew: crew_at, station: dead.seat.station, server: dead.seat.server });
                }
            }
            crew.dead.retain(|d| d.quiet.is_none_or(|quiet| quiet > self.now));
            if hop > Span::ZERO {
                later.into_iter().for_each(|due| changes.push(self.now + hop, due));
            }
            moved.into_iter().for_each(|waiting| self.send_again(waiting, (line, task), OnFailure::SendAgain));
            for waiting in lost {
                self.send_again(waiting, (line, task), changes.scenario.on_failure);
            }
        }
    }

    /// Central queues to which no replica will come any more: what waits there goes to the task's other groups, once one serves.
    fn empty_abandoned(&mut self, changes: &mut Changes<'a>) {
        for at in 0..changes.crews.crews.len() {
            let crew = &changes.crews.crews[at];
            if !crew.is_central || !crew.is_gone() || !crew.leaving.is_empty() || !changes.crews.has_colleague(at) {
                continue;
            }
            let (line, task, mut moved) = (crew.line, crew.task, Vec::new());
            for &station in &crew.stations {
                self.floor.stations[station as usize].evacuate(&mut moved);
            }
            moved.into_iter().for_each(|waiting| self.send_again(waiting, (line, task), OnFailure::SendAgain));
        }
    }

    fn send_again(&mut self, waiting: Waiting<crate::fleet::Query>, (line_at, task): (u32, u32), on_failure: OnFailure) {
        let Waiting { query, deadline, .. } = waiting;
        let line = &self.lines[line_at as usize];
        let is_dropped = self.requests.get_mut(query.request).drop_task.is_some();
        if is_dropped && !line.partial {
            let reason = DropReason::Cancelled;
            self.floor.dropped.push(Dropped { line: line_at, at: task, task, query, reason });
            return;
        }
        if on_failure == OnFailure::Lose {
            self.lose(line_at, task, query);
            return;
        }
        if line.counts_outstanding {
            self.floor.ended(&query);
        }
        let is_sent = self.floor.send(self.now, line.network, query, Sending { deadline, behind: Span::ZERO });
        debug_assert!(is_sent, "whoever is not behind is sent");
    }

    /// Replicas that have loaded begin to serve. Whether there were any.
    fn seat_loaded(&mut self, changes: &mut Changes<'a>) -> bool {
        let mut is_any = false;
        for at in 0..changes.crews.crews.len() {
            let crew = &mut changes.crews.crews[at];
            let before = crew.loading.len();
            crew.loading.retain(|&ready| ready > self.now);
            let (loaded, is_central) = (before - crew.loading.len(), crew.is_central);
            for _ in 0..loaded {
                let seat = if is_central { self.add_server(changes, at) } else { self.add_station(changes, at) };
                changes.crews.crews[at].ready.push(seat);
            }
            if loaded > 0 {
                is_any = true;
                self.retarget_task(changes, at);
                self.rehome(changes, at);
                // What was sent before may still arrive where no replica is.
                let hop = self.hop(changes.crews.crews[at].line);
                if hop > Span::ZERO {
                    changes.push(self.now + hop, Due::Quiet);
                }
            }
        }
        is_any
    }

    fn add_server(&mut self, changes: &mut Changes<'a>, at: usize) -> Seat {
        let crew = &mut changes.crews.crews[at];
        let station = crew.stations[0];
        let machine = &self.floor.stations[station as usize];
        let slots = crew.slots;
        let is_free = |s: u32| machine.is_gone(s) && !self.stale.contains(&(station, s));
        // The station knows no more servers than were ever numbered, so one of the first numbers is free.
        let mut firsts = (0..crew.numbered).step_by(slots as usize);
        let first = firsts.find(|&s| (s..s + slots).all(is_free)).unwrap_or(crew.numbered);
        if first >= crew.numbered {
            let place: &mut Place = &mut self.floor.places[station as usize];
            place.server = self.collect.more_servers(place.server, crew.numbered, 2 * crew.numbered + slots);
            crew.numbered = 2 * crew.numbered + slots;
        }
        for server in first..first + slots {
            self.floor.stations[station as usize].handle(self.now, Input::AddServer { server });
            self.floor.settle(self.now, station, |_, _| {});
        }
        Seat { station, server: first }
    }

    pub(crate) fn add_station(&mut self, changes: &mut Changes<'a>, at: usize) -> Seat {
        let crew = &mut changes.crews.crews[at];
        if let Some(station) = crew.free.pop() {
            return Seat { station, server: 0 };
        }
        let station = self.floor.stations.len() as u32;
        let router = self.floor.routers.len() as u32;
        let edges = self.groups[crew.group_at as usize].edges.len();
        let phase = crew.stations.len() as u32;
        let sibling = crew.stations.first().map(|&s| self.floor.places[s as usize].router as usize);
        for edge in 0..edges {
            let copy = match sibling {
                Some(first) => self.floor.routers[first + edge].as_ref().map(|r| r.for_another_sender(phase)),
                None => self.new_router(changes, at, self.groups[changes.crews.crews[at].group_at as usize].edges[edge].to),
            };
            self.floor.routers.push(copy);
        }
        let crew = &mut changes.crews.crews[at];
        let server = self.collect.more_servers(0, 0, crew.slots);
        crew.stations.push(station);
        let place = Place { group: crew.group_at, line: crew.line, task_of_line: crew.task, router, server };
        let prototype = crew.prototype.clone();
        self.put_station(changes, at, prototype, place);
        Seat { station, server: 0 }
    }

    /// One replica of a crew takes no new queries.
    fn let_go(&mut self, changes: &mut Changes<'a>, at: usize, manner: Manner) {
        let crew = &mut changes.crews.crews[at];
        let last = if crew.is_central {
            // The one whose leaving is felt least: one that is idle, else one that is busy.
            let is_idle = |station: u32, server: u32| self.floor.stations[station as usize].is_idle(server);
            let idle = |seat: Seat| crew.servers(seat).filter(|&server| is_idle(seat.station, server)).count();
            (0..crew.ready.len()).max_by_key(|&at| (idle(crew.ready[at]), crew.ready[at].server))
        } else {
            // The youngest goes first.
            crew.ready.len().checked_sub(1)
        };
        let Some(seat) = last.map(|at| crew.ready.swap_remove(at)) else { return };
        let hop = self.hop(crew.line);
        let quiet = self.now + hop;
        crew.leaving.push(Leaving { seat, quiet, manner });
        if manner == Manner::Close {
            crew.dead.push(Dead::closed(seat));
        }
        let ends_now = manner == Manner::Close || (crew.is_central && manner == Manner::Finish);
        if hop > Span::ZERO {
            changes.push(quiet, Due::Quiet);
        }
        if ends_now {
            self.end_servers(seat.station, changes.crews.crews[at].servers(seat));
        }
        self.retarget_task(changes, at);
    }

    pub(crate) fn end_servers(&mut self, station: u32, servers: Range<u32>) {
        for server in servers {
            self.floor.stations[station as usize].handle(self.now, Input::RemoveServer { server });
            self.floor.settle(self.now, station, |_, _| {});
        }
    }

    /// A replica that was about to go stays.
    fn recall(&mut self, changes: &mut Changes<'a>, at: usize) {
        let crew = &mut changes.crews.crews[at];
        let Some(place) = crew.returning() else { return };
        let left = crew.leaving.swap_remove(place);
        crew.ready.push(left.seat);
        self.retarget_task(changes, at);
        self.rehome(changes, at);
    }

    /// Replicas that have finished what they had free their devices. Whether there were any.
    fn release(&mut self, changes: &mut Changes<'a>) -> bool {
        let mut is_any = false;
        for at in 0..changes.crews.crews.len() {
            let (now, crew) = (self.now, &mut changes.crews.crews[at]);
            let queued = |s: u32| self.floor.stations[s as usize].queued();
            let drained = crew.leaving.iter_mut().filter(|l| l.manner == Manner::Drain && now >= l.quiet);
            let mut ended: Vec<Seat> = Vec::new();
            for left in drained.filter(|l| queued(l.seat.station) == 0) {
                left.manner = Manner::Finish;
                ended.push(left.seat);
            }
            for seat in ended {
                self.end_servers(seat.station, changes.crews.crews[at].servers(seat));
            }
            let crew = &mut changes.crews.crews[at];
            let slots = crew.slots;
            let is_done = |l: &mut Leaving| {
                let machine = &self.floor.stations[l.seat.station as usize];
                match l.manner {
                    Manner::Drain => false,
                    Manner::Finish if !crew.is_central => now >= l.quiet && machine.queued() == 0 && machine.running() == 0,
                    Manner::Finish | Manner::Close => {
                        (l.seat.server..l.seat.server + slots).all(|server| machine.is_gone(server))
                    }
                }
            };
            for left in crew.leaving.extract_if(.., is_done) {
                is_any = true;
                if !crew.is_central && left.manner == Manner::Finish {
                    crew.free.push(left.seat.station);
                }
            }
        }
        is_any
    }

    /// Time of a batch that a server starts now, if it is slow.
    #[cold]
    pub(crate) fn slowed(slow: &[Slow], now: Moment, (station, server): (u32, u32), service: Span) -> Span {
        let of_server = slow.iter().filter(|s| s.station == station && s.servers.contains(&server) && s.until > now);
        let factor: f64 = of_server.map(|s| s.factor).product();
        Span::from_nanos((service.as_nanos() as f64 * factor).round_ties_even() as u64)
    }
}
