//! The loop: the next moment, what happens at it in its order, and nothing about policy.

use crate::SimulateOptions;
use crate::agenda::{Agenda, Running};
use crate::collect::Collect;
use crate::fleet::{Fleet, Group, Line, Place, Query};
use crate::floor::{Dropped, Floor};
use crate::random::Stream;
use crate::requests::{Request, Requests};
use crate::workload::Arrivals;
use apportion_domain::Moment;
use apportion_serving::replica::Input;
use apportion_serving::{Progress, Waiting};

/// A run in progress.
#[derive(Debug)]
pub struct Run<'a> {
    lines: Vec<Line>,
    groups: Vec<Group>,
    floor: Floor,
    streams: Vec<Stream>,
    arrivals: Vec<Arrivals<'a>>,
    next_arrivals: Vec<Moment>,
    agenda: Agenda,
    requests: Requests,
    collect: Collect,
    /// Members of the batch that ends, reused.
    members: Vec<Waiting<Query>>,
    now: Moment,
}

impl<'a> Run<'a> {
    /// Before the first event.
    #[must_use]
    pub fn new(fleet: Fleet, mut arrivals: Vec<Arrivals<'a>>, options: &SimulateOptions) -> Self {
        let next_arrivals = arrivals.iter_mut().map(|a| a.next().unwrap_or(Moment::NEVER)).collect();
        let requests = Requests::new(fleet.lines.iter().map(|l| l.weights.len()).max().unwrap_or(0));
        let collect = Collect::new(&fleet, options);
        let Fleet { lines, groups, floor, streams, .. } = fleet;
        let (agenda, members, now) = (Agenda::default(), Vec::new(), Moment::ZERO);
        Self { lines, groups, floor, streams, arrivals, next_arrivals, agenda, requests, collect, members, now }
    }

    /// Runs until nothing is left to happen, or enough requests have missed.
    #[must_use]
    pub fn finish(mut self) -> Collect {
        loop {
            let (line, arrival) = self.next_arrival();
            let now = self.agenda.next_end().min(self.floor.network.next_due()).min(arrival).min(self.floor.next_wake());
            if now == Moment::NEVER || self.collect.is_enough() {
                return self.collect;
            }
            self.now = now;
            while let Some(batch) = self.agenda.ended(now) {
                self.end(batch);
            }
            if arrival == now {
                self.arrive(line);
            }
            while let Some(t) = self.floor.network.arrived(now) {
                self.floor.join(now, t.station, t.query, t.deadline);
            }
            self.floor.wake(now);
            // Of several arrivals at one moment each takes a turn of the loop; replicas start after the last. A drop may let
            // others start, and a start drop others.
            let is_last = self.next_arrival().1 > now;
            loop {
                while let Some(dropped) = self.floor.dropped.pop() {
                    self.dropped(dropped);
                }
                if !is_last || !self.floor.is_due() {
                    break;
                }
                self.start();
            }
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
        });
        self.floor.send(self.now, line.network, Query { request, node, stages, router, pick: 0 }, deadline);
    }

    #[inline]
    fn start(&mut self) {
        let due = self.floor.due();
        for &station in &due {
            let place = self.floor.places[station as usize];
            let group = &self.groups[place.group as usize];
            self.floor.stations[station as usize].handle(self.now, Input::Tick);
            self.floor.settle(self.now, station, |machine, (server, size)| {
                let service = group.service[size as usize - 1];
                self.agenda.start(self.now + service, station, server);
                self.collect.started(group.task, place.server + server, self.now, service, machine.batch(server));
            });
        }
        self.floor.ticked(due);
    }

    /// A batch has ended: each of its queries makes its children, or ends as a leaf.
    #[inline]
    fn end(&mut self, Running { station, server, .. }: Running) {
        let machine = &mut self.floor.stations[station as usize];
        machine.handle(self.now, Input::BatchFinished { server });
        machine.swap_batch(server, &mut self.members);
        self.floor.settle(self.now, station, |_, _| {});
        let place = self.floor.places[station as usize];
        let group = &self.groups[place.group as usize];
        let line = &self.lines[group.line as usize];
        for &Waiting { query, deadline, .. } in &self.members {
            if line.counts_outstanding {
                self.floor.ended(&query);
            }
            let (node, stages) = line.paths.pass(&query, group.step, group.accuracy);
            let request = self.requests.get_mut(query.request);
            let mut made = 0;
            // A request of which a part was dropped makes no more queries, unless partial answers are allowed.
            if !group.edges.is_empty() && (line.partial || request.drop_task.is_none()) {
                let child = Query { node, stages, ..query };
                made = make_children(&mut self.floor, &mut self.streams, (line, group), place, self.now, (child, deadline));
            }
            if made > 0 {
                request.progress.pass(1, made);
            } else {
                request.progress.leaf(self.now, 1);
            }
            let is_complete = request.progress.is_complete();
            if made == 0 || group.is_scored {
                let accuracy = line.paths.accuracy(node, stages, group.depth);
                self.requests.score(query.request, group, accuracy);
            }
            if is_complete {
                let (request, accuracy) = self.requests.close(query.request, &line.weights);
                self.collect.completed(request, line.partial, accuracy);
            }
        }
        self.members.clear();
    }

    #[cold]
    fn dropped(&mut self, Dropped { station, query, reason }: Dropped) {
        let group = &self.groups[self.floor.places[station as usize].group as usize];
        if self.lines[group.line as usize].counts_outstanding {
            self.floor.ended(&query);
        }
        let request = self.requests.get_mut(query.request);
        request.drop_task.get_or_insert(group.task_of_line);
        request.progress.dropped(self.now, 1, reason);
        if request.progress.is_complete() {
            let line = &self.lines[group.line as usize];
            let (request, accuracy) = self.requests.close(query.request, &line.weights);
            self.collect.completed(request, line.partial, accuracy);
        }
    }
}

/// How many queries a query makes, each of them sent.
#[inline]
fn make_children(
    floor: &mut Floor,
    streams: &mut [Stream],
    (line, group): (&Line, &Group),
    place: Place,
    now: Moment,
    (query, deadline): (Query, Moment),
) -> u64 {
    let mut made = 0;
    for at in group.chosen(streams) {
        let edge = &group.edges[at];
        let count = edge.fanout.draw(&mut streams[edge.stream as usize]);
        let child = Query { router: place.router + at as u32, ..query };
        for _ in 0..count {
            floor.send(now, line.network, child, deadline);
        }
        made += u64::from(count);
    }
    made
}
