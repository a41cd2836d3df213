//! The run carries changes out: replicas come, go, die and slow down.

use crate::changes::{Changes, Due, Slow, routers_to};
use crate::crews::{Dead, Leaving, Seat};
use crate::driver::Run;
use crate::fleet::Place;
use crate::floor::{Dropped, Sending};
use crate::scenario::{Event, OnFailure};
use apportion_domain::{Moment, Span};
use apportion_serving::replica::Input;
use apportion_serving::{DropReason, Waiting};

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
            while let Some(crew) = changes.crews.reconcile(self.now) {
                self.let_go(&mut changes, crew);
                is_changed = true;
            }
            is_changed |= self.seat_loaded(&mut changes);
        }
        self.changes = Some(changes);
    }

    fn change_one(&mut self, changes: &mut Changes<'a>, due: Due) {
        match due {
            Due::Event(event) => self.happen(changes, &event),
            Due::Measure(controller) => changes.measure(controller, self.now, &self.floor, &self.collect),
            Due::Report(controller, seen) => changes.report(controller, self.now, &seen),
            Due::Noticed { crew, station, server } => self.notice(changes, crew, Seat { station, server }),
            Due::Window => {
                changes.close_window(self.now, &self.collect);
                changes.open_window();
            }
        }
    }

    fn happen(&mut self, changes: &mut Changes<'a>, event: &Event) {
        let (pipeline, group) = event.group();
        let Some(at) = changes.crews.find(pipeline, group) else { return };
        let crew = &mut changes.crews.crews[at];
        let seat = |number: u32| crew.ready.get(number.checked_rem(crew.ready.len() as u32)? as usize).copied();
        match *event {
            Event::Replicas { replicas, .. } => {
                changes.changed += u64::from(crew.wanted != replicas.max(1));
                crew.wanted = replicas.max(1);
            }
            Event::Slow { replica, factor, until, .. } => {
                if let Some(Seat { station, server }) = seat(replica) {
                    self.slow.retain(|s| s.until > self.now);
                    self.slow.push(Slow { station, server, factor, until });
                }
            }
            Event::Fail { replica, .. } => {
                let Some(seat) = seat(replica) else { return };
                crew.ready.retain(|s| *s != seat);
                let mut lost = Vec::new();
                if self.floor.stations[seat.station as usize].fail(seat.server, &mut lost) {
                    self.stale.push((seat.station, seat.server));
                }
                crew.dead.push(Dead { seat, is_known: false, quiet: None, lost });
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
        self.retarget(changes, at);
        self.rehome(changes, at);
    }

    /// Sends on, or gives up, what known dead replicas of a task held.
    fn rehome(&mut self, changes: &mut Changes<'a>, at: usize) {
        if !changes.crews.has_colleague(at) {
            return;
        }
        let (line, task) = (changes.crews.crews[at].line, changes.crews.crews[at].task);
        let hop = self.lines[line as usize].network.map_or(Span::ZERO, |line| self.floor.network.delay(line));
        for crew_at in 0..changes.crews.crews.len() {
            let crew = &mut changes.crews.crews[crew_at];
            if (crew.line, crew.task) != (line, task) {
                continue;
            }
            let (is_central, mut lost, mut later) = (crew.is_central, Vec::new(), Vec::new());
            for dead in crew.dead.iter_mut().filter(|d| d.is_known) {
                lost.append(&mut dead.lost);
                if !is_central {
                    self.floor.stations[dead.seat.station as usize].evacuate(&mut lost);
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
            for waiting in lost {
                self.send_again(waiting, (line, task), changes.scenario.on_failure);
            }
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
                self.retarget(changes, at);
                self.rehome(changes, at);
            }
        }
        is_any
    }

    fn add_server(&mut self, changes: &mut Changes<'a>, at: usize) -> Seat {
        let crew = &mut changes.crews.crews[at];
        let station = crew.stations[0];
        let machine = &mut self.floor.stations[station as usize];
        let is_free = |s: &u32| machine.is_gone(*s) && !self.stale.contains(&(station, *s));
        // The station knows no more servers than were ever numbered, so one of the first numbers is free.
        let server = (0..=crew.numbered).find(is_free).unwrap_or(crew.numbered);
        if server >= crew.numbered {
            let place: &mut Place = &mut self.floor.places[station as usize];
            place.server = self.collect.more_servers(place.server, crew.numbered, 2 * crew.numbered + 1);
            crew.numbered = 2 * crew.numbered + 1;
        }
        machine.handle(self.now, Input::AddServer { server });
        self.floor.settle(self.now, station, |_, _| {});
        Seat { station, server }
    }

    fn add_station(&mut self, changes: &mut Changes<'a>, at: usize) -> Seat {
        let crew = &mut changes.crews.crews[at];
        if let Some(station) = crew.free.pop() {
            return Seat { station, server: 0 };
        }
        let (sibling, station) = (crew.stations[0], self.floor.stations.len() as u32);
        let view = self.floor.stations[sibling as usize].view();
        let place = self.floor.places[sibling as usize];
        let router = self.floor.routers.len() as u32;
        for edge in 0..self.groups[crew.group_at as usize].edges.len() {
            let copy = self.floor.routers[place.router as usize + edge].as_ref().map(|r| r.for_another_sender());
            self.floor.routers.push(copy);
        }
        let server = self.collect.more_servers(0, 0, 1);
        self.floor.stations.push(crew.prototype.clone());
        self.floor.places.push(Place { router, server, ..place });
        self.floor.stations[station as usize].handle(self.now, Input::Steer { view });
        self.floor.settle(self.now, station, |_, _| {});
        crew.stations.push(station);
        self.lines[crew.line as usize].stations.push(station);
        self.steering.joined(sibling, station);
        Seat { station, server: 0 }
    }

    /// One replica of a crew takes no new queries.
    fn let_go(&mut self, changes: &mut Changes<'a>, at: usize) {
        let crew = &mut changes.crews.crews[at];
        let last = if crew.is_central {
            let station = crew.stations[0];
            let server = self.floor.stations[station as usize].removable();
            server.and_then(|s| crew.ready.iter().position(|seat| seat.server == s))
        } else {
            // The youngest goes first.
            crew.ready.len().checked_sub(1)
        };
        let Some(seat) = last.map(|at| crew.ready.swap_remove(at)) else { return };
        let hop = self.lines[crew.line as usize].network.map_or(Span::ZERO, |line| self.floor.network.delay(line));
        crew.leaving.push(Leaving { seat, quiet: self.now + hop });
        if crew.is_central {
            self.floor.stations[seat.station as usize].handle(self.now, Input::RemoveServer { server: seat.server });
            self.floor.settle(self.now, seat.station, |_, _| {});
        } else {
            self.retarget(changes, at);
        }
    }

    /// Replicas that have finished what they had free their devices. Whether there were any.
    fn release(&mut self, changes: &mut Changes<'a>) -> bool {
        let mut is_any = false;
        for crew in changes.crews.crews.iter_mut().filter(|c| !c.leaving.is_empty()) {
            let (is_central, now) = (crew.is_central, self.now);
            let is_done = |l: &mut Leaving| {
                let machine = &self.floor.stations[l.seat.station as usize];
                let is_empty = || machine.queued() == 0 && machine.running() == 0;
                if is_central { machine.is_gone(l.seat.server) } else { now > l.quiet && is_empty() }
            };
            for left in crew.leaving.extract_if(.., is_done) {
                is_any = true;
                if !is_central {
                    crew.free.push(left.seat.station);
                }
            }
        }
        is_any
    }

    /// Senders of a task learn where the replicas of a crew are.
    fn retarget(&mut self, changes: &mut Changes<'a>, at: usize) {
        let crew = &changes.crews.crews[at];
        if crew.is_central {
            return;
        }
        let (line, targets) = (&self.lines[crew.line as usize], crew.targets());
        let root = self.roots[crew.line as usize];
        for router in routers_to(line, root, crew.task, &self.floor, &self.groups) {
            if let Some(router) = &mut self.floor.routers[router as usize] {
                // Without any target, queries keep going where they went, and wait for the next replica.
                let _ = router.retarget(crew.position, &targets);
            }
        }
    }

    /// Time of a batch that a server starts now, if it is slow.
    #[cold]
    pub(crate) fn slowed(slow: &[Slow], now: Moment, (station, server): (u32, u32), service: Span) -> Span {
        let of_server = slow.iter().filter(|s| s.station == station && s.server == server && s.until > now);
        let factor: f64 = of_server.map(|s| s.factor).product();
        Span::from_nanos((service.as_nanos() as f64 * factor).round_ties_even() as u64)
    }
}
