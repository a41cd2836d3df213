//! What comes of a batch that has ended, and of queries that were dropped or lost.

use crate::agenda::Running;
use crate::children::{From, Parent, send_released};
use crate::driver::Run;
use crate::fleet::{NO_BUDGET, Place, Query};
use crate::floor::{Dropped, Sending};
use apportion_serving::replica::Input;
use apportion_serving::{DropReason, Waiting};

impl Run<'_> {
    /// A batch has ended.
    #[inline]
    pub(crate) fn end(&mut self, Running { station, server, .. }: Running) {
        if !self.stale.is_empty()
            && let Some(at) = self.stale.iter().position(|s| *s == (station, server))
        {
            self.stale.swap_remove(at);
            return;
        }
        let machine = &mut self.floor.stations[station as usize];
        machine.handle(self.now, Input::BatchFinished { server });
        machine.swap_batch(server, &mut self.members);
        self.floor.gauge.end(self.members.len() as u64);
        self.floor.settle(self.now, station, |_, _| {});
        let place = self.floor.places[station as usize];
        let group = &self.groups[place.group as usize];
        let line = &self.lines[group.line as usize];
        // A request of which a part was dropped makes no more queries, unless partial answers are allowed.
        let are_wanted = line.partial || !self.requests.has_dropped();
        let is_alike = match are_wanted {
            true if group.passes_on && line.passes_on() => self.pass_on(place),
            true if line.is_single && group.edges.is_empty() && !line.counts_outstanding => self.answer(place),
            _ => false,
        };
        if !is_alike {
            self.end_each(station, place);
        }
        self.members.clear();
    }

    /// All members of the batch that ended here go on to the same task, and nothing else comes of it; `false` if each must be looked at.
    #[inline(always)]
    fn pass_on(&mut self, place: Place) -> bool {
        let (group, now) = (&self.groups[place.group as usize], self.now);
        let is_on_time = |m: &Waiting<Query>| m.arrived + group.budget >= now;
        if self.floor.is_watched() || !(group.budget == NO_BUDGET || self.members.iter().all(is_on_time)) {
            return false;
        }
        let stage = self.lines[group.line as usize].paths.stage(group.step, group.accuracy);
        self.floor.gauge.pass(self.members.len() as u64);
        self.floor.pass_on(now, place.router, stage, &self.members);
        true
    }

    /// All members of the batch that ended here are the answers to their requests, of which only sums are kept; `false` if more is.
    #[inline(always)]
    fn answer(&mut self, place: Place) -> bool {
        if !self.collect.keeps_sums_only() || self.changes.is_some() {
            return false;
        }
        let group = &self.groups[place.group as usize];
        let paths = &self.lines[group.line as usize].paths;
        let stage = paths.stage(group.step, group.accuracy);
        let requests = &mut self.requests;
        let answers = self.members.iter().map(|m| {
            let (node, stages) = stage.pass(&m.query);
            let arrival = requests.close_single(m.query.request);
            (arrival, m.deadline, paths.accuracy(node, stages, group.depth))
        });
        self.collect.answered(group.line as usize, self.now, answers);
        true
    }

    /// Each member of the batch that ended here makes its children, or ends as a leaf.
    #[inline]
    fn end_each(&mut self, station: u32, place: Place) {
        let group = &self.groups[place.group as usize];
        let line = &self.lines[group.line as usize];
        for &Waiting { query, deadline, arrived } in &self.members {
            if self.floor.gauge.cut().is_some() {
                return;
            }
            if line.counts_outstanding {
                self.floor.ended(&query);
            }
            let (node, stages) = line.paths.stage(group.step, group.accuracy).pass(&query);
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
    }

    /// A query is lost with the replica that held it: its request fails.
    #[cold]
    pub(crate) fn lose(&mut self, line_at: u32, task: u32, query: Query) {
        let line = &self.lines[line_at as usize];
        if line.counts_outstanding {
            self.floor.ended(&query);
        }
        self.requests.get_mut(query.request).progress.failed(self.now, 1);
        self.given_up(line_at, task, query);
    }

    #[cold]
    pub(crate) fn dropped(&mut self, Dropped { line: line_at, at, task, query, reason }: Dropped) {
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
                self.floor.gauge.spend(self.scopes.held_count() as u64);
                while let Some(held) = self.scopes.cancel(query.request) {
                    self.floor.gauge.spend(self.scopes.held_count() as u64);
                    let reason = DropReason::Cancelled;
                    let dropped = Dropped { line: line_at, at: held.task, task: held.task, query: held.query, reason };
                    self.floor.dropped.push(dropped);
                }
            }
        }
        self.given_up(line_at, task, query);
    }

    /// A query that was lost or dropped is waited for no more, which may send others, or end its request.
    fn given_up(&mut self, line_at: u32, task: u32, query: Query) {
        self.floor.gauge.end(1);
        let line = &self.lines[line_at as usize];
        if let Some(joins) = &line.joins {
            self.scopes.ended(joins, query.scope, task);
            send_released(&mut self.scopes, &mut self.floor, (line, line_at), self.now);
        }
        if self.requests.get_mut(query.request).progress.is_complete() {
            let (request, accuracy) = self.requests.close(query.request, &line.weights);
            self.collect.completed(request, line.partial, accuracy);
        }
    }
}
