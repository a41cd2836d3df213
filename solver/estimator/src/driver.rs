//! The loop: the next moment, what happens at it in its order, and nothing about policy.

use crate::agenda::{Agenda, Running, Transit};
use crate::changes::{Changes, Slow};
use crate::children::{From, Parent, send_released};
use crate::collect::Collect;
use crate::fleet::{Fleet, Group, Line, NO_BUDGET, Place, Query};
use crate::floor::{Dropped, Floor, NO_PICK, Sending};
use crate::joins::{NO_SCOPE, Scopes};
use crate::random::Stream;
use crate::requests::{Request, Requests};
use crate::steering::Steering;
use crate::workload::Arrivals;
use crate::{SimulateError, SimulateOptions};
use apportion_domain::{Moment, Span};
use apportion_serving::replica::Input;
use apportion_serving::{DropReason, Progress, Waiting};

/// A run in progress.
#[derive(Debug)]
pub struct Run<'a> {
    pub(crate) lines: Vec<Line>,
    pub(crate) groups: Vec<Group>,
    pub(crate) floor: Floor,
    pub(crate) streams: Vec<Stream>,
    arrivals: Vec<Arrivals<'a>>,
    next_arrivals: Vec<Moment>,
    agenda: Agenda,
    pub(crate) requests: Requests,
    scopes: Scopes,
    pub(crate) steering: Steering,
    pub(crate) collect: Collect,
    /// What changes during the run, if anything does.
    pub(crate) changes: Option<Changes<'a>>,
    /// Replicas that were slow at some time.
    pub(crate) slow: Vec<Slow>,
    /// Servers whose death the agenda does not know of.
    pub(crate) stale: Vec<(u32, u32)>,
    /// Members of the batch that ends, reused.
    members: Vec<Waiting<Query>>,
    pub(crate) now: Moment,
}

impl<'a> Run<'a> {
    /// Before the first event.
    #[must_use]
    pub fn new(fleet: Fleet<'a>, mut arrivals: Vec<Arrivals<'a>>, options: &SimulateOptions) -> Self {
        let next_arrivals = arrivals.iter_mut().map(|a| a.next().unwrap_or(Moment::NEVER)).collect();
        let requests = Requests::new(fleet.lines.iter().map(|l| l.weights.len()).max().unwrap_or(0));
        let collect = Collect::new(&fleet, options);
        let Fleet { lines, groups, floor, streams, steered, .. } = fleet;
        Self {
            lines,
            groups,
            floor,
            streams,
            arrivals,
            next_arrivals,
            agenda: Agenda::default(),
            requests,
            scopes: Scopes::default(),
            steering: Steering::new(steered),
            collect,
            changes: None,
            slow: Vec::new(),
            stale: Vec::new(),
            members: Vec::new(),
            now: Moment::ZERO,
        }
    }

    /// With changes.
    ///
    /// # Errors
    /// If a steward cannot serve its pipeline.
    pub fn with_changes(mut self, mut changes: Changes<'a>) -> Result<Self, SimulateError> {
        self.plan_routers(&changes);
        self.start_stewards(&mut changes)?;
        self.changes = Some(changes);
        Ok(self)
    }

    /// Runs until nothing is left to happen, or enough requests have missed.
    #[must_use]
    pub fn finish(mut self) -> Collect {
        self.run();
        self.collect
    }

    /// The same, without taking the run apart.
    pub fn run(&mut self) {
        loop {
            let (line, arrival) = self.next_arrival();
            let work = self.agenda.next_end().min(self.floor.network.next_due()).min(arrival).min(self.floor.next_wake());
            let changes = self.next_change(work);
            if work.min(changes) == Moment::NEVER || self.collect.is_enough() {
                return;
            }
            let steering = self.steering.next(work);
            let now = work.min(steering).min(changes);
            self.now = now;
            while let Some(batch) = self.agenda.ended(now) {
                self.end(batch);
            }
            // Of several arrivals at one moment each takes a turn of the loop; replicas start after the last.
            let is_last = arrival > now || {
                self.arrive(line);
                self.next_arrival().1 > now
            };
            while let Some(transit) = self.floor.network.arrived(now) {
                self.joins_station(transit);
            }
            self.floor.wake(now);
            if steering == now {
                self.steering.act(now, &mut self.floor);
            }
            if self.changes.as_ref().is_some_and(|c| changes <= now || c.crews.is_draining()) {
                self.change();
                if self.changes.as_ref().is_some_and(|c| c.failed.is_some()) {
                    return;
                }
            }
            // A drop may let others start, and a start drop others.
            loop {
                self.account();
                if !is_last || !self.floor.is_due() {
                    break;
                }
                self.start();
            }
        }
    }

    #[inline]
    fn next_change(&mut self, work: Moment) -> Moment {
        match &mut self.changes {
            None => Moment::NEVER,
            Some(changes) => changes.next(work, self.now, self.requests.in_flight()),
        }
    }

    #[inline]
    fn next_arrival(&self) -> (usize, Moment) {
        match self.next_arrivals.as_slice() {
            [only] => (0, *only),
            many => many.iter().copied().enumerate().min_by_key(|&(_, at)| at).unwrap_or((0, Moment::NEVER)),
        }
    }

    #[inline]
    fn arrive(&mut self, pipeline: usize) {
        self.next_arrivals[pipeline] = self.arrivals[pipeline].next().unwrap_or(Moment::NEVER);
        let line = &self.lines[pipeline];
        let (node, stages) = line.paths.start();
        let router = line.frontend.expect("traffic of a pipeline without replicas is refused before the run");
        let deadline = self.now + line.slo;
        let request = self.requests.open(Request {
            number: self.collect.arrived(pipeline, self.now),
            pipeline: pipeline as u32,
            drop_task: None,
            arrival: self.now,
            deadline,
            progress: Progress::new(1),
            spent: Span::ZERO,
            is_scored: false,
        });
        self.floor.track(request, line.is_tracked);
        if let Some(changes) = &mut self.changes {
            changes.arrived(pipeline, self.now);
        }
        let query = Query { request, node, stages, router, pick: NO_PICK, scope: NO_SCOPE };
        let is_sent = self.floor.send(self.now, line.network, query, Sending { deadline, behind: Span::ZERO });
        debug_assert!(is_sent, "whoever is not behind is sent");
    }

    #[inline]
    fn start(&mut self) {
        for at in 0..self.floor.begin_ticks() {
            let station = self.floor.ticking(at);
            let place = self.floor.places[station as usize];
            let group = &self.groups[place.group as usize];
            self.floor.stations[station as usize].handle(self.now, Input::Tick);
            self.floor.settle(self.now, station, |machine, (server, size)| {
                let mut service = group.service[size as usize - 1];
                if let Some(spread) = &group.spread {
                    service = spread.draw(&mut self.streams, size, service);
                }
                if !self.slow.is_empty() {
                    service = Self::slowed(&self.slow, self.now, (station, server), service);
                }
                if self.changes.is_some() {
                    self.collect.spent(service);
                    let each = Span::from_nanos(service.as_nanos() / u64::from(size));
                    for member in machine.batch(server) {
                        let request = self.requests.get_mut(member.query.request);
                        request.spent = request.spent + each;
                    }
                }
                self.agenda.start(self.now + service, station, server);
                let spent = (service, machine.batch_wait(server));
                self.collect.started((group.task, place.server + server), self.now, spent, machine.batch(server));
            });
        }
    }

    /// A batch has ended: each of its queries makes its children, or ends as a leaf.
    #[inline]
    fn end(&mut self, Running { station, server, .. }: Running) {
        if !self.stale.is_empty()
            && let Some(at) = self.stale.iter().position(|s| *s == (station, server))
        {
            self.stale.swap_remove(at);
            return;
        }
        let machine = &mut self.floor.stations[station as usize];
        machine.handle(self.now, Input::BatchFinished { server });
        machine.swap_batch(server, &mut self.members);
        self.floor.settle(self.now, station, |_, _| {});
        let place = self.floor.places[station as usize];
        let group = &self.groups[place.group as usize];
        let line = &self.lines[group.line as usize];
        // A request of which a part was dropped makes no more queries, unless partial answers are allowed.
        let are_wanted = line.partial || !self.requests.has_dropped();
        if are_wanted && group.passes_on() && line.passes_on() && !self.floor.is_watched() {
            let (members, now) = (&self.members, self.now);
            let is_unbounded = group.budget == NO_BUDGET;
            if is_unbounded || members.iter().all(|m| m.arrived + group.budget >= now) {
                let child = |m: &Waiting<Query>| {
                    let (node, stages) = line.paths.pass(&m.query, group.step, group.accuracy);
                    (Query { node, stages, router: place.router, ..m.query }, m.deadline)
                };
                self.floor.send_all(now, place.router, members.iter().map(child));
                self.members.clear();
                return;
            }
        }
        for &Waiting { query, deadline, arrived } in &self.members {
            if line.counts_outstanding {
                self.floor.ended(&query);
            }
            let (node, stages) = line.paths.pass(&query, group.step, group.accuracy);
            let request = self.requests.get_mut(query.request);
            let makes = !group.edges.is_empty() && (line.partial || request.drop_task.is_none());
            let mut made = 0;
            if makes && let Some(done) = self.floor.done.get_mut(station as usize) {
                *done += 1;
            }
            if makes || line.joins.is_some() {
                let behind = self.now.since(arrived + group.budget);
                let parent = Parent { query: Query { node, stages, ..query }, to: Sending { deadline, behind }, makes };
                let from = From { line, group, place, now: self.now };
                made = match &line.joins {
                    None => from.make(&mut self.floor, &mut self.streams, parent),
                    Some(joins) => from.make_joined(joins, &mut self.scopes, &mut self.floor, &mut self.streams, parent),
                };
            }
            if made > 0 {
                request.progress.pass(1, made);
            } else {
                request.progress.leaf(self.now, 1);
            }
            let is_complete = request.progress.is_complete();
            if made == 0 || group.is_scored {
                let accuracy = line.paths.accuracy(node, stages, group.depth);
                // The only path of a request with one sink.
                if is_complete && !request.is_scored && line.weights.len() == 1 && group.stage_channel.is_none() {
                    let request = self.requests.close_unscored(query.request);
                    self.collect.completed(request, line.partial, Some(accuracy));
                    continue;
                }
                request.is_scored = true;
                self.requests.score(query.request, group, accuracy);
            }
            if is_complete {
                let (request, accuracy) = self.requests.close(query.request, &line.weights);
                self.collect.completed(request, line.partial, accuracy);
            }
        }
        self.members.clear();
    }

    /// Accounts for what was dropped, in the order in which it was; cancelling what else the request has may drop more.
    #[inline]
    fn account(&mut self) {
        let mut next = 0;
        while let Some(&dropped) = self.floor.dropped.get(next) {
            next += 1;
            self.dropped(dropped);
        }
        self.floor.dropped.clear();
    }

    /// A query is lost with the replica that held it: its request fails.
    #[cold]
    pub(crate) fn lose(&mut self, line_at: u32, task: u32, query: Query) {
        let line = &self.lines[line_at as usize];
        if line.counts_outstanding {
            self.floor.ended(&query);
        }
        self.requests.get_mut(query.request).progress.failed(self.now, 1);
        if let Some(joins) = &line.joins {
            self.scopes.ended(joins, query.scope, task);
            send_released(&mut self.scopes, &mut self.floor, (line, line_at), self.now);
        }
        if self.requests.get_mut(query.request).progress.is_complete() {
            let (request, accuracy) = self.requests.close(query.request, &line.weights);
            self.collect.completed(request, line.partial, accuracy);
        }
    }

    #[cold]
    fn dropped(&mut self, Dropped { line: line_at, at, task, query, reason }: Dropped) {
        let line = &self.lines[line_at as usize];
        if line.counts_outstanding {
            self.floor.ended(&query);
        }
        let is_first = self.requests.drop_at(query.request, at);
        let request = self.requests.get_mut(query.request);
        request.progress.dropped(self.now, 1, reason);
        if is_first && !line.partial && !request.progress.is_complete() {
            if line.is_tracked && line.untracked_until.is_none_or(|until| request.arrival > until) {
                self.floor.cancel_tracked(self.now, query, request.deadline);
            } else {
                self.floor.cancel(self.now, &line.stations, query);
            }
            if line.joins.is_some() {
                while let Some(held) = self.scopes.cancel(query.request) {
                    let reason = DropReason::Cancelled;
                    let dropped = Dropped { line: line_at, at: held.task, task: held.task, query: held.query, reason };
                    self.floor.dropped.push(dropped);
                }
            }
        }
        if let Some(joins) = &line.joins {
            self.scopes.ended(joins, query.scope, task);
            send_released(&mut self.scopes, &mut self.floor, (line, line_at), self.now);
        }
        if self.requests.get_mut(query.request).progress.is_complete() {
            let (request, accuracy) = self.requests.close(query.request, &line.weights);
            self.collect.completed(request, line.partial, accuracy);
        }
    }

    /// A query arrives over the network, unless its request was dropped on the way.
    fn joins_station(&mut self, transit: Transit) {
        let Place { line, task_of_line: task, .. } = self.floor.places[transit.station as usize];
        let query = transit.query;
        let is_wanted = self.lines[line as usize].partial || self.requests.get_mut(query.request).drop_task.is_none();
        if is_wanted {
            self.floor.join(self.now, transit.station, query, transit.deadline);
        } else {
            self.floor.dropped.push(Dropped { line, at: task, task, query, reason: DropReason::Cancelled });
        }
    }
}
