//! The slow simulator. It holds all future events in one list, searches the list for the earliest, and knows no serving
//! machine. Queues are vectors, and turns are counted by hand. The queries that a join waits for are found by following
//! every query's ancestors. Fan-outs are whole, so that nothing is drawn.

mod case;
mod events;

use crate::common::Fan;
use apportion_domain::{Batching, Dropping};
pub use case::Case;
use case::MS;
use events::{EventKind, Filling, GivenUp, Pace, SlowEvent, State};

#[derive(Clone, Debug)]
struct Query {
    request: usize,
    task: usize,
    maker: Option<usize>,
    state: State,
    joined: u64,
    entered: u64,
    deadline: u64,
    pace: Pace,
    target: usize,
}

#[derive(Clone, Debug, Default)]
struct Replica {
    task: usize,
    queue: Vec<usize>,
    forming: Vec<usize>,
    running: Option<Vec<usize>>,
    ends: u64,
}

#[derive(Clone, Debug)]
struct Request {
    open: usize,
    end: u64,
    leaves: usize,
    dropped: Option<(usize, &'static str)>,
}

pub struct Oracle<'a> {
    case: &'a Case,
    events: Vec<SlowEvent>,
    made: u64,
    replicas: Vec<Replica>,
    /// Next turn of each sender (a replica, or the frontend at the end) for each task.
    turns: Vec<Vec<usize>>,
    queries: Vec<Query>,
    requests: Vec<Request>,
    held: Vec<usize>,
    given_up: Vec<GivenUp>,
    spent: Vec<Spent>,
}

/// A request's end, or where and why it was dropped.
pub type Fate = Result<u64, (usize, &'static str)>;

/// The time that the queries of one task spent there, summed in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    pub queries: u64,
    pub queueing: u64,
    pub batch_wait: u64,
    pub execution: u64,
}

impl<'a> Oracle<'a> {
    pub fn new(case: &'a Case) -> Self {
        let mut replicas = Vec::new();
        let mut turns = Vec::new();
        for (task, stage) in case.stages.iter().enumerate() {
            for r in 0..stage.replicas as usize {
                replicas.push(Replica { task, ..Replica::default() });
                // Senders begin at different turns: the replicas of one task by their index.
                turns.push(vec![r; case.stages.len()]);
            }
        }
        turns.push(vec![0; case.stages.len()]);
        let (events, queries, requests, held, given_up) = (vec![], vec![], vec![], vec![], vec![]);
        let spent = vec![Spent::default(); case.stages.len()];
        Self { case, events, made: 0, replicas, turns, queries, requests, held, given_up, spent }
    }

    fn replicas_of(&self, task: usize) -> Vec<usize> {
        (0..self.replicas.len()).filter(|&r| self.replicas[r].task == task).collect()
    }

    fn push_event(&mut self, at: u64, what: EventKind) {
        self.made += 1;
        self.events.push(SlowEvent { at, order: self.made, what });
    }

    /// The fate of each request, and the time that was spent at each task.
    pub fn play(mut self, at: &[u64]) -> (Vec<Fate>, Vec<Spent>) {
        for (request, &moment) in at.iter().enumerate() {
            self.requests.push(Request { open: 1, end: 0, leaves: 0, dropped: None });
            self.push_event(moment, EventKind::Arrives { request });
            if let Some(patience) = self.case.patience {
                self.push_event(moment + patience, EventKind::GivesUp { request });
            }
        }
        while let Some(now) = self.events.iter().map(|e| e.at).min() {
            while let Some(EventKind::BatchEnds { replica }) = self.next(now, |w| matches!(w, EventKind::BatchEnds { .. }))
            {
                self.end(now, replica);
            }
            let mut is_first = true;
            loop {
                let arrival = self.next(now, |w| matches!(w, EventKind::Arrives { .. }));
                let is_last = arrival.is_none();
                if let Some(EventKind::Arrives { request }) = arrival {
                    let deadline = now + self.case.slo_ms * MS;
                    let query = self.make(request, 0, None, deadline, Pace::OnTime);
                    self.send(now, query, self.replicas.len());
                }
                while let Some(EventKind::Joins { query }) = self.next(now, |w| matches!(w, EventKind::Joins { .. })) {
                    self.join(now, query);
                }
                while let Some(EventKind::GivesUp { request }) = self.next(now, |w| matches!(w, EventKind::GivesUp { .. }))
                {
                    self.give_up_request(now, request);
                }
                if is_first || !is_last {
                    self.account(now);
                }
                is_first = false;
                if is_last {
                    break;
                }
            }
            self.events.retain(|e| e.at > now);
            loop {
                let before = (self.events.len(), self.given_up.len());
                self.start(now);
                let is_same = (self.events.len(), self.given_up.len()) == before;
                self.account(now);
                if is_same {
                    break;
                }
            }
            self.wake(now);
        }
        let result = |r: &Request| match r.dropped {
            Some(dropped) if !(self.case.partial && r.leaves > 0) => Err(dropped),
            _ => Ok(r.end),
        };
        (self.requests.iter().map(result).collect(), self.spent)
    }

    fn next(&mut self, now: u64, is: impl Fn(&EventKind) -> bool) -> Option<EventKind> {
        let due = (0..self.events.len()).filter(|&i| self.events[i].at == now && is(&self.events[i].what));
        let earliest = due.min_by_key(|&i| self.events[i].order)?;
        Some(self.events.remove(earliest).what)
    }

    fn make(&mut self, request: usize, task: usize, maker: Option<usize>, deadline: u64, pace: Pace) -> usize {
        self.queries.push(Query {
            request,
            task,
            maker,
            state: State::Away,
            joined: 0,
            entered: 0,
            deadline,
            pace,
            target: 0,
        });
        self.queries.len() - 1
    }

    fn send(&mut self, now: u64, query: usize, sender: usize) {
        let Query { task, pace, maker, .. } = self.queries[query];
        if pace == Pace::Behind {
            self.give_up(query, self.queries[maker.expect("it has one")].task, "budget");
            return;
        }
        let targets = self.replicas_of(task);
        let turn = self.turns[sender][task];
        self.turns[sender][task] += 1;
        self.queries[query].target = if self.case.central { targets[0] } else { targets[turn % targets.len()] };
        match self.case.hop(task) {
            0 => self.join(now, query),
            hop => self.push_event(now + hop, EventKind::Joins { query }),
        }
    }

    fn join(&mut self, now: u64, query: usize) {
        let Query { request, task, target, .. } = self.queries[query];
        if !self.case.partial && self.requests[request].dropped.is_some() {
            return self.give_up(query, task, "cancelled");
        }
        self.queries[query].state = State::Queued;
        self.queries[query].joined = now;
        self.replicas[target].queue.push(query);
    }

    fn give_up(&mut self, query: usize, at: usize, why: &'static str) {
        self.queries[query].state = State::GivenUp;
        self.given_up.push(GivenUp { query, at, why });
    }

    /// The gateway of a request waits no longer: its queries that wait are dropped.
    fn give_up_request(&mut self, now: u64, request: usize) {
        self.account(now);
        let of_request = &mut self.requests[request];
        if of_request.open == 0 || (of_request.dropped.is_some() && !self.case.partial) {
            return;
        }
        of_request.dropped.get_or_insert((0, "cancelled"));
        let held: Vec<usize> = self.held.iter().copied().filter(|&q| self.queries[q].request == request).collect();
        let is_waiting = |q: &usize| {
            let query = &self.queries[*q];
            query.request == request && matches!(query.state, State::Queued | State::Forming)
        };
        let waiting: Vec<usize> = (0..self.queries.len()).filter(is_waiting).chain(held).collect();
        for replica in &mut self.replicas {
            replica.queue.retain(|q| !waiting.contains(q));
            replica.forming.retain(|q| !waiting.contains(q));
        }
        self.held.retain(|q| !waiting.contains(q));
        for query in waiting {
            self.give_up(query, self.queries[query].task, "cancelled");
        }
        self.account(now);
    }

    fn end(&mut self, now: u64, replica: usize) {
        for query in self.replicas[replica].running.take().expect("a batch ends once") {
            let Query { request, task, joined, deadline, .. } = self.queries[query];
            let is_behind = matches!(self.case.dropping, Dropping::PerTask | Dropping::Reroute)
                && now - joined > 2 * self.case.full(task);
            let pace = if is_behind { Pace::Behind } else { Pace::OnTime };
            let mut children = Vec::new();
            if self.case.partial || self.requests[request].dropped.is_none() {
                for child in self.case.children(task) {
                    let Fan::Mean(count) = self.case.stages[child].fanout else { panic!("whole means only") };
                    for _ in 0..count as usize {
                        children.push(self.make(request, child, Some(query), deadline, pace));
                    }
                }
            }
            self.queries[query].state = State::Gone;
            let of_request = &mut self.requests[request];
            of_request.open += children.len();
            of_request.open -= 1;
            if children.is_empty() {
                of_request.end = now;
                of_request.leaves += 1;
            }
            self.release(now);
            for child in children {
                if self.waits(child) {
                    self.held.push(child);
                } else {
                    self.send(now, child, self.sender_of(child));
                }
            }
        }
    }

    /// The replica at which a query's maker ran (of a central queue, the first).
    fn sender_of(&self, query: usize) -> usize {
        self.queries[self.queries[query].maker.expect("it has one")].target
    }

    fn release(&mut self, now: u64) {
        for query in self.held.clone() {
            if !self.waits(query) {
                self.held.retain(|&h| h != query);
                self.send(now, query, self.sender_of(query));
            }
        }
    }

    /// A query and its ancestors, itself first.
    fn ancestors(&self, query: usize) -> Vec<usize> {
        let mut line = vec![query];
        while let Some(maker) = self.queries[line[line.len() - 1]].maker {
            line.push(maker);
        }
        line
    }

    fn lineage(&self, task: usize) -> Vec<usize> {
        let mut line = vec![task];
        while line[line.len() - 1] != 0 {
            line.push(self.case.stages[line[line.len() - 1]].parent);
        }
        line
    }

    fn waits(&self, query: usize) -> bool {
        let line = self.ancestors(query);
        let waits_over = |&(from, _): &(usize, usize)| {
            let way = self.lineage(from);
            let above = |t: &usize| self.lineage(self.queries[query].task).contains(t);
            let at = way.iter().position(above).expect("the root is above all");
            let ancestor = line.iter().copied().find(|&q| self.queries[q].task == way[at]).expect("it stems from there");
            let counts = |&q: &usize| {
                self.queries[q].state != State::Gone
                    && way[..at].contains(&self.queries[q].task)
                    && self.ancestors(q).contains(&ancestor)
            };
            (0..self.queries.len()).any(|q| counts(&q))
        };
        self.case.delays.iter().filter(|&&(_, to)| to == self.queries[query].task).any(waits_over)
    }

    fn account(&mut self, now: u64) {
        while !self.given_up.is_empty() {
            let GivenUp { query, at, why } = self.given_up.remove(0);
            let request = self.queries[query].request;
            let of_request = &mut self.requests[request];
            of_request.open -= 1;
            of_request.end = now;
            let is_first = of_request.dropped.is_none();
            of_request.dropped.get_or_insert((at, why));
            if is_first && !self.case.partial {
                self.cancel(request);
            }
            self.queries[query].state = State::Gone;
            self.release(now);
        }
    }

    fn cancel(&mut self, request: usize) {
        let is_of = |q: &Query| q.request == request;
        let queries = &self.queries;
        self.held.retain(|&q| !is_of(&queries[q]));
        for replica in &mut self.replicas {
            replica.queue.retain(|&q| !is_of(&queries[q]));
            replica.forming.retain(|&q| !is_of(&queries[q]));
        }
        for query in self.queries.iter_mut().filter(|q| is_of(q)) {
            if matches!(query.state, State::Queued | State::Forming) {
                query.state = State::Gone;
            }
        }
    }

    /// Why a query may not enter a batch that starts at `start` and takes `service`.
    fn refusal(&self, now: u64, start: u64, service: u64, query: &Query) -> Option<&'static str> {
        let task = query.task;
        let end = start + service;
        let is_last = self.case.children(task).is_empty();
        let forward = |t: usize| self.case.full(t) + self.case.hop(t);
        match self.case.dropping {
            Dropping::LastTask if is_last => (query.deadline < end).then_some("deadline"),
            Dropping::ClipperPlusPlus => (now - query.joined > self.case.part(task)).then_some("budget"),
            Dropping::PardBack => (query.deadline < end).then_some("predicted"),
            Dropping::PardSf | Dropping::PardFcfs => {
                (query.deadline < end + self.case.after(task, &forward)).then_some("predicted")
            }
            _ => None,
        }
    }

    /// Whether a query may be in the window if its batch ends at `end`.
    fn is_good(&self, task: usize, end: u64, query: usize) -> bool {
        let query = &self.queries[query];
        match self.case.dropping {
            Dropping::NexusSplit => end - query.joined <= self.case.part(task),
            _ => query.deadline >= end,
        }
    }

    /// Moves queries from a queue into a batch that has `batch` already.
    fn fill(&mut self, now: u64, holder: usize, mut batch: Vec<usize>, start: u64, filling: Filling) -> Vec<usize> {
        let may_grow = filling == Filling::NextBatch;
        let task = self.replicas[holder].task;
        let most = self.case.stages[task].batch as usize;
        let mut queue = std::mem::take(&mut self.replicas[holder].queue);
        if matches!(self.case.dropping, Dropping::PardSf | Dropping::PardBack) {
            queue.sort_by_key(|&q| self.queries[q].deadline);
        }
        if let Dropping::Nexus | Dropping::NexusSplit = self.case.dropping {
            let room = most - batch.len();
            let is_good = |first: &usize| {
                let window = &queue[*first..queue.len().min(first + room)];
                let size = if may_grow { most } else { batch.len() + window.len() };
                size == 0 || window.iter().all(|&q| self.is_good(task, start + self.case.service(task, size), q))
            };
            let first = (0..=queue.len()).find(is_good).expect("an empty window is good");
            let why = if self.case.dropping == Dropping::Nexus { "deadline" } else { "budget" };
            for query in queue.drain(..first).collect::<Vec<_>>() {
                self.give_up(query, task, why);
            }
        }
        while batch.len() < most && !queue.is_empty() {
            let size = if may_grow { most } else { most.min(batch.len() + queue.len()) };
            let query = queue.remove(0);
            match self.refusal(now, start, self.case.service(task, size), &self.queries[query]) {
                Some(why) => self.give_up(query, task, why),
                None => batch.push(query),
            }
        }
        self.replicas[holder].queue = queue;
        for &query in &batch {
            let query = &mut self.queries[query];
            if query.state == State::Queued {
                query.entered = now;
            }
        }
        batch
    }

    /// When a free replica starts with the queries in this queue, under `wait_until`.
    fn due(&self, now: u64, holder: usize) -> u64 {
        let Replica { task, queue, .. } = &self.replicas[holder];
        if self.case.batching != Batching::WaitUntil || queue.len() >= self.case.stages[*task].batch as usize {
            return now;
        }
        let mut first = queue[0];
        if matches!(self.case.dropping, Dropping::PardSf | Dropping::PardBack) {
            first = *queue.iter().min_by_key(|&&q| self.queries[q].deadline).expect("it is not empty");
        }
        let charge = |t: usize| 2 * self.case.full(t) + self.case.hop(t);
        let needed = self.case.service(*task, queue.len()) + self.case.after(*task, &charge);
        self.queries[first].deadline.saturating_sub(needed).max(now)
    }

    fn holder(&self, replica: usize) -> usize {
        if self.case.central { self.replicas_of(self.replicas[replica].task)[0] } else { replica }
    }

    fn start(&mut self, now: u64) {
        for replica in 0..self.replicas.len() {
            let (holder, is_forming) = (self.holder(replica), self.case.batching == Batching::Forming);
            if self.replicas[replica].running.is_none() {
                let mut batch = std::mem::take(&mut self.replicas[replica].forming);
                if !self.replicas[holder].queue.is_empty() && self.due(now, holder) <= now {
                    batch = self.fill(now, holder, batch, now, Filling::ThisBatch);
                }
                self.run(now, replica, batch);
            }
            let is_last = replica + 1 == self.replicas.len() || self.holder(replica + 1) != holder;
            if is_forming && is_last {
                self.form(now, holder);
            }
        }
    }

    fn run(&mut self, now: u64, replica: usize, batch: Vec<usize>) {
        if batch.is_empty() {
            return;
        }
        let service = self.case.service(self.replicas[replica].task, batch.len());
        let ends = now + service;
        for query in batch.iter().map(|&q| &self.queries[q]) {
            let spent = &mut self.spent[query.task];
            spent.queries += 1;
            spent.queueing += query.entered - query.joined;
            spent.batch_wait += now - query.entered;
            spent.execution += service;
        }
        batch.iter().for_each(|&q| self.queries[q].state = State::Running);
        (self.replicas[replica].running, self.replicas[replica].ends) = (Some(batch), ends);
        self.push_event(ends, EventKind::BatchEnds { replica });
    }

    /// Waiting queries of a queue enter the batches that start soonest.
    fn form(&mut self, now: u64, holder: usize) {
        let task = self.replicas[holder].task;
        while !self.replicas[holder].queue.is_empty() {
            let most = self.case.stages[task].batch as usize;
            let is_open = |&r: &usize| {
                self.holder(r) == holder && self.replicas[r].running.is_some() && self.replicas[r].forming.len() < most
            };
            let open = (0..self.replicas.len()).filter(is_open).min_by_key(|&r| (self.replicas[r].ends, r));
            let Some(replica) = open else { return };
            let batch = std::mem::take(&mut self.replicas[replica].forming);
            let start = self.replicas[replica].ends;
            let batch = self.fill(now, holder, batch, start, Filling::NextBatch);
            batch.iter().for_each(|&q| self.queries[q].state = State::Forming);
            self.replicas[replica].forming = batch;
        }
    }

    fn wake(&mut self, now: u64) {
        for replica in 0..self.replicas.len() {
            let holder = self.holder(replica);
            if self.replicas[replica].running.is_none() && !self.replicas[holder].queue.is_empty() {
                let due = self.due(now, holder);
                assert!(due > now, "it would have started");
                self.push_event(due, EventKind::Nothing);
            }
        }
    }
}
