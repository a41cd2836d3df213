//! What a query that has ended makes.

use crate::fleet::{Group, Line, Place, Query};
use crate::floor::{Dropped, Floor, NO_PICK, Sending};
use crate::joins::{Joins, Scopes};
use crate::random::Stream;
use apportion_domain::Moment;
use apportion_serving::DropReason;

/// A query that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Parent {
    /// As its children inherit it.
    pub query: Query,
    /// What they are sent with.
    pub to: Sending,
    /// Whether it makes any at all.
    pub makes: bool,
}

/// Where it ended.
#[derive(Clone, Copy, Debug)]
pub struct From<'a> {
    /// Its pipeline.
    pub line: &'a Line,
    /// Its group.
    pub group: &'a Group,
    /// Its station.
    pub place: Place,
    /// The present.
    pub now: Moment,
}

impl From<'_> {
    /// How many queries it makes, each of them sent or given up. A run that is cut short makes no more.
    #[inline]
    pub fn make(&self, floor: &mut Floor, streams: &mut [Stream], parent: Parent) -> u64 {
        let mut made = 0;
        for at in self.group.chosen(streams) {
            let edge = &self.group.edges[at];
            let count = edge.fanout.draw(&mut streams[edge.stream as usize]);
            let child = Query { router: self.place.router + at as u32, ..parent.query };
            let mut left = u64::from(count);
            while left > 0 {
                let now = floor.gauge.make(left);
                if now == 0 {
                    return made;
                }
                (0..now).for_each(|_| self.send(floor, child, parent.to, edge.to));
                left -= now;
            }
            made += u64::from(count);
            if let Some(of_edge) = floor.made.get_mut(child.router as usize) {
                *of_edge += u64::from(count);
            }
        }
        made
    }

    #[inline(always)]
    fn send(&self, floor: &mut Floor, child: Query, to: Sending, task: u32) {
        if !floor.send(self.now, self.line.network, child, to) {
            give_up(floor, self.place, child, task);
        }
    }

    /// The same in a pipeline with joins: all children are counted first; then the parent no longer is, which may release others;
    /// then children are sent, or held for what they wait for.
    pub fn make_joined(
        &self,
        joins: &Joins,
        scopes: &mut Scopes,
        floor: &mut Floor,
        streams: &mut [Stream],
        parent: Parent,
    ) -> u64 {
        let task = self.group.task_of_line;
        if !parent.makes {
            scopes.ended(joins, parent.query.scope, task);
            send_released(scopes, floor, (self.line, self.group.line), self.now);
            return 0;
        }
        let scope = scopes.enter(joins, task, parent.query.scope);
        let chosen = self.group.chosen(streams);
        let mut made = 0;
        scopes.counts.clear();
        for edge_at in chosen.clone() {
            let edge = &self.group.edges[edge_at];
            let count = edge.fanout.draw(&mut streams[edge.stream as usize]);
            scopes.counts.push(count);
            if let Some(of_edge) = floor.made.get_mut(self.place.router as usize + edge_at) {
                *of_edge += u64::from(count);
            }
            scopes.made(joins, scope, edge.to, count);
            made += u64::from(count);
        }
        scopes.ended(joins, parent.query.scope, task);
        send_released(scopes, floor, (self.line, self.group.line), self.now);
        let first = chosen.start;
        for at in chosen {
            let edge = &self.group.edges[at];
            let child = Query { router: self.place.router + at as u32, scope, pick: NO_PICK, ..parent.query };
            let mut left = u64::from(scopes.counts[at - first]);
            while left > 0 {
                let now = floor.gauge.make(left);
                if now == 0 {
                    return made;
                }
                for _ in 0..now {
                    if !(joins.waits(edge.to) && scopes.hold(joins, child, parent.to, (task, edge.to))) {
                        self.send(floor, child, parent.to, edge.to);
                    }
                }
                left -= now;
            }
        }
        scopes.leave(scope);
        made
    }
}

#[cold]
fn give_up(floor: &mut Floor, place: Place, query: Query, task: u32) {
    let Place { line, task_of_line: at, .. } = place;
    let query = Query { pick: NO_PICK, ..query };
    floor.dropped.push(Dropped { line, at, task, query, reason: DropReason::Budget });
}

/// Sends the queries that need not wait any longer.
pub fn send_released(scopes: &mut Scopes, floor: &mut Floor, (line, line_at): (&Line, u32), now: Moment) {
    for held in scopes.released.drain(..) {
        if !floor.send(now, line.network, held.query, held.to) {
            let (at, task, query) = (held.maker, held.task, held.query);
            floor.dropped.push(Dropped { line: line_at, at, task, query, reason: DropReason::Budget });
        }
    }
}
