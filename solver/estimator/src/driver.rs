//! The loop: the next moment, what happens at it in its order, and nothing about policy.

use crate::agenda::{Agenda, Transit};
use crate::bounds::Cut;
use crate::changes::{Changes, Slow};
use crate::collect::Collect;
use crate::fleet::{Fleet, Group, Line, Place, Query};
use crate::floor::{Dropped, Floor, NO_PICK, Sending};
use crate::joins::{NO_SCOPE, Scopes};
use crate::random::Stream;
use crate::requests::Requests;
use crate::steering::Steering;
use crate::workload::Arrivals;
use crate::{SimulateError, SimulateOptions};
use apportion_domain::{Moment, Span};
use apportion_serving::replica::Input;
use apportion_serving::{DropReason, Router, Waiting};

/// Arrivals between two looks at what else there is.
const ARRIVALS_AT_ONCE: u64 = 1 << 12;

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
    pub(crate) scopes: Scopes,
    pub(crate) steering: Steering,
    pub(crate) collect: Collect,
    /// What changes during the run, if anything does.
    pub(crate) changes: Option<Changes<'a>>,
    /// Replicas that were slow at some time.
    pub(crate) slow: Vec<Slow>,
    /// Servers whose death the agenda does not know of.
    pub(crate) stale: Vec<(u32, u32)>,
    /// Members of the batch that ends, reused.
    pub(crate) members: Vec<Waiting<Query>>,
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

    /// Runs until nothing is left to happen.
    ///
    /// # Errors
    /// Why, if it is cut short.
    pub fn finish(mut self) -> Result<Collect, Cut> {
        self.run();
        self.cut().map_or(Ok(self.collect), Err)
    }

    /// Why the run was cut short, if it was.
    #[must_use]
    pub fn cut(&self) -> Option<Cut> {
        self.floor.gauge.cut().or_else(|| self.collect.too_many_missed().map(|missed| Cut::Missed { missed }))
    }

    /// Whether the run goes on, by its bounds.
    #[inline]
    fn is_within_bounds(&mut self) -> bool {
        !self.floor.gauge.is_due() || {
            let tracked = self.floor.joined_count * 2 * size_of::<(u32, Moment)>();
            let other_bytes = self.requests.bytes() + self.scopes.bytes() + tracked;
            self.floor.gauge.look_at(self.collect.sums().0, other_bytes)
        }
    }

    /// Runs until nothing is left to happen, or the run is cut short.
    pub fn run(&mut self) {
        loop {
            self.floor.gauge.spend(1);
            if !self.is_within_bounds() {
                return;
            }
            let (line, arrival) = self.next_arrival();
            let others = self.agenda.next_end().min(self.floor.network.next_due()).min(self.floor.next_wake());
            let work = others.min(arrival);
            let changes = self.next_change(work);
            if work.min(changes) == Moment::NEVER || self.collect.is_enough() {
                return;
            }
            let steering = self.steering.next(work);
            let before = others.min(steering).min(changes);
            let is_draining = self.changes.as_ref().is_some_and(|c| c.crews.is_draining());
            let is_last = if arrival < before && !is_draining {
                self.arrive_before(before);
                true
            } else {
                let now = before.min(arrival);
                self.now = now;
                while let Some(batch) = self.agenda.ended(now) {
                    self.end(batch);
                    if !self.is_within_bounds() {
                        return;
                    }
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
                if is_draining || changes <= now {
                    self.change();
                    if self.changes.as_ref().is_some_and(|c| c.failed.is_some()) {
                        return;
                    }
                }
                is_last
            };
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

    /// Requests arrive, and nothing else happens before this moment, until a station is to be ticked or wants to be, or a query is on
    /// its way.
    #[inline]
    fn arrive_before(&mut self, moment: Moment) {
        if self.floor.is_quiet() && self.arrive_at_only(moment) && self.next_arrival().1 > self.now {
            return;
        }
        loop {
            let (line, arrival) = self.next_arrival();
            self.now = arrival;
            self.arrive(line);
            self.floor.gauge.spend(1);
            let is_quiet = self.floor.is_quiet();
            if !is_quiet {
                self.account();
            }
            let next = self.next_arrival().1;
            let may_go_on = is_quiet
                && !self.floor.gauge.is_due()
                && self.floor.next_wake().min(self.floor.network.next_due()) >= moment;
            if next > arrival && !(may_go_on && next < moment) {
                return;
            }
        }
    }

    /// The same where there is one pipeline, all that arrives joins one queue at once, and nobody else hears of it; `false` elsewhere.
    /// What does not depend on the request is looked up once for all of them. It may stop while others arrive at the same moment.
    #[inline]
    fn arrive_at_only(&mut self, moment: Moment) -> bool {
        let ([line], [arrivals], [next]) = (&*self.lines, &mut *self.arrivals, &mut *self.next_arrivals) else {
            return false;
        };
        let router = line.frontend.expect("traffic of a pipeline without replicas is refused before the run");
        let only = self.floor.routers[router as usize].as_ref().and_then(Router::only);
        let is_alone = line.passes_on() && !line.is_tracked && !self.floor.is_watched() && self.changes.is_none();
        let Some(picked) = only.filter(|_| is_alone) else { return false };
        let (node, stages) = line.paths.start();
        let station = &mut self.floor.stations[picked.target as usize];
        let mut arrived = 0;
        loop {
            let now = *next;
            let deadline = now + line.slo;
            let request = self.requests.open(0, self.collect.arrived(0, now), (now, deadline));
            let query = Query { request, node, stages, router, pick: picked.slot, scope: NO_SCOPE };
            station.handle(now, Input::Arrive { query, deadline });
            self.now = now;
            *next = arrivals.next().unwrap_or(Moment::NEVER);
            arrived += 1;
            if !station.is_quiet() || *next >= moment || arrived == ARRIVALS_AT_ONCE {
                break;
            }
        }
        self.floor.gauge.spend(arrived);
        self.floor.settle(self.now, picked.target, |_, _| {});
        self.account();
        true
    }

    #[inline]
    fn arrive(&mut self, pipeline: usize) {
        self.next_arrivals[pipeline] = self.arrivals[pipeline].next().unwrap_or(Moment::NEVER);
        let line = &self.lines[pipeline];
        let (node, stages) = line.paths.start();
        let router = line.frontend.expect("traffic of a pipeline without replicas is refused before the run");
        let deadline = self.now + line.slo;
        let number = self.collect.arrived(pipeline, self.now);
        let request = self.requests.open(pipeline, number, (self.now, deadline));
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

    /// Accounts for what was dropped, in the order in which it was; cancelling what else the request has may drop more.
    #[inline]
    fn account(&mut self) {
        let mut next = 0;
        while let Some(&dropped) = self.floor.dropped.get(next) {
            next += 1;
            self.dropped(dropped);
            if !self.is_within_bounds() {
                break;
            }
        }
        self.floor.dropped.clear();
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
