//! The loop: the next moment, what happens at it in its order, and nothing about policy.

use crate::SimulateOptions;
use crate::agenda::{Agenda, Running};
use crate::collect::Collect;
use crate::fleet::{Fleet, Query};
use crate::requests::{Request, Requests};
use crate::workload::Arrivals;
use apportion_domain::Moment;
use apportion_serving::replica::{Input, Output};
use apportion_serving::{DropReason, Progress, Waiting};

/// A run in progress.
#[derive(Debug)]
pub struct Run<'a> {
    fleet: Fleet,
    arrivals: Vec<Arrivals<'a>>,
    next_arrivals: Vec<Moment>,
    agenda: Agenda,
    requests: Requests,
    collect: Collect,
    /// Stations that asked to be ticked now.
    due: Vec<u32>,
    is_due: Vec<bool>,
    now: Moment,
}

impl<'a> Run<'a> {
    /// Before the first event.
    #[must_use]
    pub fn new(fleet: Fleet, mut arrivals: Vec<Arrivals<'a>>, options: &SimulateOptions) -> Self {
        let next_arrivals = arrivals.iter_mut().map(|a| a.next().unwrap_or(Moment::NEVER)).collect();
        let requests = Requests::new(fleet.lines.iter().map(|l| l.weights.len()).max().unwrap_or(0));
        let is_due = vec![false; fleet.stations.len()];
        let collect = Collect::new(&fleet, options);
        let (due, now) = (Vec::new(), Moment::ZERO);
        Self { fleet, arrivals, next_arrivals, agenda: Agenda::default(), requests, collect, due, is_due, now }
    }

    /// Runs until nothing is left to happen, or enough requests have missed.
    #[must_use]
    pub fn finish(mut self) -> Collect {
        loop {
            let (line, arrival) = self.next_arrival();
            let now = self.agenda.next_end().min(self.fleet.network.next_due()).min(arrival);
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
            while let Some(t) = self.fleet.network.arrived(now) {
                self.join(t.station, t.query, t.deadline);
            }
            // Of several arrivals at one moment each takes a turn of the loop; replicas start after the last.
            if self.next_arrival().1 > now {
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
        let line = &self.fleet.lines[pipeline];
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
        self.send(router, pipeline, Query { request, node, stages, router, pick: 0 }, deadline);
    }

    /// A query leaves its sender for whichever station the router picks.
    #[inline]
    fn send(&mut self, router: u32, pipeline: usize, mut query: Query, deadline: Moment) {
        let picked = self.fleet.routers[router as usize].as_mut().expect("a sender with children has a router").pick();
        (query.router, query.pick) = (router, picked.slot);
        match self.fleet.lines[pipeline].network {
            None => self.join(picked.target, query, deadline),
            Some(line) => self.fleet.network.send(line, self.now, picked.target, query, deadline),
        }
    }

    #[inline]
    fn join(&mut self, station: u32, query: Query, deadline: Moment) {
        self.fleet.stations[station as usize].handle(self.now, Input::Arrive { query, deadline });
        self.drain(station);
    }

    /// Carries out what a station asks for.
    #[inline]
    fn drain(&mut self, station: u32) {
        let at = station as usize;
        while let Some(output) = self.fleet.stations[at].poll_output() {
            match output {
                Output::StartBatch { server, size } => {
                    let place = self.fleet.places[at];
                    let group = &self.fleet.groups[place.group as usize];
                    let service = group.service[size as usize - 1];
                    self.agenda.start(self.now + service, station, server);
                    let members = self.fleet.stations[at].batch(server);
                    self.collect.started(group.task, place.server + server, self.now, service, members);
                }
                Output::Drop { query, reason } => self.dropped(station, query, reason),
                Output::ServerGone { .. } => {}
            }
        }
        if !self.is_due[at] && self.fleet.stations[at].poll_timeout().is_some() {
            self.is_due[at] = true;
            self.due.push(station);
        }
    }

    #[inline]
    fn start(&mut self) {
        if self.due.len() > 1 {
            self.due.sort_unstable();
        }
        let mut due = std::mem::take(&mut self.due);
        for station in due.drain(..) {
            self.is_due[station as usize] = false;
            self.fleet.stations[station as usize].handle(self.now, Input::Tick);
            self.drain(station);
        }
        debug_assert!(self.due.is_empty(), "a station that ticked has nothing more to start");
        self.due = due;
    }

    #[inline]
    fn end(&mut self, batch: Running) {
        let at = batch.station as usize;
        self.fleet.stations[at].handle(self.now, Input::BatchFinished { server: batch.server });
        self.drain(batch.station);
        for member in 0..self.fleet.stations[at].batch(batch.server).len() {
            let waiting = self.fleet.stations[at].batch(batch.server)[member];
            self.pass_on(at, waiting);
        }
    }

    /// A query has been served: it makes its children, or ends as a leaf.
    #[inline]
    fn pass_on(&mut self, station: usize, Waiting { query, deadline, .. }: Waiting<Query>) {
        let place = self.fleet.places[station];
        let group = &self.fleet.groups[place.group as usize];
        let line = &self.fleet.lines[group.line as usize];
        let pipeline = group.line as usize;
        if line.counts_outstanding
            && let Some(router) = &mut self.fleet.routers[query.router as usize]
        {
            router.ended(query.pick);
        }
        let (node, stages) = line.paths.pass(&query, group.step, group.accuracy);
        if line.by_task {
            self.requests.score(query.request, group.channel, group.accuracy);
        }
        for &channel in &group.closes {
            self.requests.score(query.request, channel, line.paths.accuracy(node, stages, group.depth));
        }
        let child = Query { node, stages, ..query };
        let made = self.make_children(place.group as usize, place.router, pipeline, child, deadline);
        let progress = &mut self.requests.get_mut(query.request).progress;
        if made > 0 {
            progress.pass(1)
        } else {
            progress.leaf(self.now, 1)
        }
        let complete = progress.is_complete();
        let group = &self.fleet.groups[place.group as usize];
        if made == 0 && group.closes.is_empty() {
            let accuracy = self.fleet.lines[pipeline].paths.accuracy(node, stages, group.depth);
            self.requests.score_ended(query.request, accuracy);
        }
        if complete {
            self.complete(query.request);
        }
    }

    /// How many it made. A request of which a part was dropped makes no more, unless partial answers are allowed.
    #[inline]
    fn make_children(&mut self, group: usize, router: u32, pipeline: usize, child: Query, deadline: Moment) -> u64 {
        let edges = self.fleet.groups[group].edges.len();
        if edges == 0 || self.is_given_up(pipeline, child.request) {
            return 0;
        }
        let chosen = match &self.fleet.groups[group].one_of {
            None => 0..edges,
            Some(choice) => {
                let bits = self.fleet.streams[choice.stream as usize].bits();
                let at = choice.cumulated.partition_point(|&c| c <= bits).min(edges - 1);
                at..at + 1
            }
        };
        let mut made = 0;
        for at in chosen {
            let edge = &self.fleet.groups[group].edges[at];
            let count = edge.fanout.draw(&mut self.fleet.streams[edge.stream as usize]);
            self.requests.get_mut(child.request).progress.grant(u64::from(count));
            for _ in 0..count {
                self.send(router + at as u32, pipeline, child, deadline);
            }
            made += u64::from(count);
        }
        made
    }

    #[inline]
    fn is_given_up(&mut self, pipeline: usize, request: u32) -> bool {
        self.requests.get_mut(request).drop_task.is_some() && !self.fleet.lines[pipeline].partial
    }

    fn dropped(&mut self, station: u32, query: Query, reason: DropReason) {
        let group = &self.fleet.groups[self.fleet.places[station as usize].group as usize];
        if self.fleet.lines[group.line as usize].counts_outstanding
            && let Some(router) = &mut self.fleet.routers[query.router as usize]
        {
            router.ended(query.pick);
        }
        let request = self.requests.get_mut(query.request);
        request.drop_task.get_or_insert(group.channel);
        request.progress.dropped(self.now, 1, reason);
        if request.progress.is_complete() {
            self.complete(query.request);
        }
    }

    #[inline]
    fn complete(&mut self, slot: u32) {
        let line = &self.fleet.lines[self.requests.get_mut(slot).pipeline as usize];
        let (request, accuracy) = self.requests.close(slot, &line.weights);
        self.collect.completed(&request, request.progress.outcome(request.deadline, line.partial), accuracy);
    }
}
