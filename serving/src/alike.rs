//! Queries that must not share a batch. A driver whose queries are of several kinds (the agents: of several shapes) says of which
//! kind each one is; a batch then has queries of one kind only.
//!
//! The query that is served first, by the station's own order, gives a batch its kind, and the next ones of that kind fill it. So the
//! oldest query is always in the next batch, whatever the others are: a kind that comes often cannot keep one that comes rarely waiting.
//! Those of other kinds keep their places. A driver without kinds (the estimator) never comes here.

use crate::batcher::Batcher;
use crate::dropper::{Chance, DropReason, Dropper, Priority};
use crate::fill::Into;
use crate::queue::Waiting;
use crate::replica::{ServerState, Station};
use apportion_domain::{Moment, Span};

/// Of which kind a query is.
pub type KindOf<Q> = fn(&Q) -> u64;

/// How many of those that wait are looked at for a batch of one kind, from the one that is served first.
pub const LOOK_AHEAD_MAX: usize = 1_024;
/// Under `wait_until`: when so many kinds wait, nothing waits for a full batch of any of them.
const KINDS_MAX: usize = 8;

impl<Q: Copy + PartialEq> Station<Q> {
    /// With queries of several kinds, of which only those of one kind share a batch.
    #[must_use]
    pub fn apart(mut self, kind_of: KindOf<Q>) -> Self {
        assert!(self.queue.is_empty(), "before the first query");
        self.kind_of = Some(kind_of);
        self.settle_ways();
        self
    }

    /// Moves queries of one kind from the queue into a batch, until it is full or none of that kind is left; those that the policy
    /// gives up are dropped on the way.
    #[cold]
    #[inline(never)]
    pub(crate) fn fill_alike(&mut self, batch: &mut Vec<Waiting<Q>>, into: Into, kind_of: KindOf<Q>) {
        let most = self.batcher.batch_max() as usize;
        let is_high_first = self.is_sorted && self.view.priority == Priority::HighBudgetFirst;
        if is_high_first {
            self.give_up_hopeless();
        }
        let mut places = std::mem::take(&mut self.places);
        while batch.len() < most {
            let waiting = self.queue.waiting();
            let head = if is_high_first { waiting.last() } else { waiting.first() };
            let Some(kind) = batch.first().or(head).map(|w| kind_of(&w.query)) else { break };
            // Where nothing is given up on the way, no more are needed than fit.
            let is_judged = self.dropper.inspects();
            let enough = if is_judged { LOOK_AHEAD_MAX } else { most - batch.len() };
            places.clear();
            let is_alike = |at: &usize| kind_of(&waiting[*at].query) == kind;
            if is_high_first {
                places.extend((0..waiting.len()).rev().take(LOOK_AHEAD_MAX).filter(is_alike).take(enough));
            } else {
                places.extend((0..waiting.len()).take(LOOK_AHEAD_MAX).filter(is_alike).take(enough));
            }
            if places.is_empty() {
                break;
            }
            let gone = self.take_alike(batch, into, &places);
            places.truncate(gone);
            places.sort_unstable();
            self.queue.remove_at(&places);
            // Only where all of a kind were given up, the next one has its turn.
            if !batch.is_empty() {
                break;
            }
        }
        self.places = places;
    }

    /// Fills a batch with those that wait at `places`, in this order; how many of them have left the queue for it or were dropped.
    fn take_alike(&mut self, batch: &mut Vec<Waiting<Q>>, into: Into, places: &[usize]) -> usize {
        let most = self.batcher.batch_max() as usize;
        let waiting = self.queue.waiting();
        let is_window = self.dropper == Dropper::Window;
        let mut gone = 0;
        if is_window {
            let alike: Vec<Waiting<Q>> = places.iter().map(|at| waiting[*at]).collect();
            gone = self.window(&alike, most - batch.len(), batch.len(), into);
            self.dropped.extend(alike[..gone].iter().map(|w| (w.query, DropReason::Deadline)));
        }
        let waiting = self.queue.waiting();
        let is_judged = self.dropper.inspects() && !is_window;
        while batch.len() < most && gone < places.len() {
            let next = waiting[places[gone]];
            let largest = if into.may_grow { most } else { most.min(batch.len() + places.len() - gone) };
            gone += 1;
            let chance = Chance { now: self.now, start: into.start, execution: self.service(largest) };
            match self.dropper.verdict(chance, &self.view, &next).filter(|_| is_judged) {
                Some(reason) => self.dropped.push((next.query, reason)),
                None => batch.push(next),
            }
        }
        gone
    }

    /// Under `wait_until`, when a free server starts with what waits: at once if a kind fills a batch, else when the batches of all kinds,
    /// one after the other, would just be in time for the query that is first.
    pub(crate) fn due_apart(&self, kind_of: KindOf<Q>) -> Option<Moment> {
        let Batcher::WaitUntil { batch_max, delay, reserve } = self.batcher else { return None };
        let waiting = self.queue.waiting();
        let first = waiting.first()?;
        let (mut deadline, mut arrived) = (first.deadline, first.arrived);
        let (mut kinds, mut known) = ([(0, 0); KINDS_MAX], 0);
        for w in waiting {
            if self.queue.is_mixed() {
                (deadline, arrived) = (deadline.min(w.deadline), arrived.min(w.arrived));
            }
            let kind = kind_of(&w.query);
            let at = kinds[..known].iter().position(|(other, _)| *other == kind).unwrap_or(known);
            if at == KINDS_MAX {
                return Some(self.now);
            }
            known = known.max(at + 1);
            kinds[at] = (kind, kinds[at].1 + 1);
            if kinds[at].1 >= batch_max as usize {
                return Some(self.now);
            }
        }
        let needed = kinds[..known].iter().fold(Span::ZERO, |sum, (_, count)| sum + self.service(*count));
        let last = deadline - reserve - needed;
        Some(delay.map_or(last, |delay| last.min(arrived + delay)))
    }

    /// Whether a query that has just come can enter the next batch of a busy server.
    pub(crate) fn can_enter(&self, query: &Q, kind_of: KindOf<Q>) -> bool {
        let most = self.batcher.batch_max() as usize;
        let is_alike = |w: &Waiting<Q>| kind_of(&w.query) == kind_of(query);
        let mut busy = self.servers.iter().filter(|s| s.state == ServerState::Busy && s.forming.len() < most);
        busy.any(|s| s.forming.first().is_none_or(is_alike))
    }
}
