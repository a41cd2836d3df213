//! Which waiting queries enter a batch, which are dropped on the way, and when a batch is due.
//!
//! Some drivers have queries of several kinds, of which only queries of one kind may share a batch (the agents: queries of
//! one shape). The query that is served first, by the station's own order, gives a batch its kind, and the next queries of
//! that kind fill it. So the oldest query is always in the next batch: a frequent kind cannot keep a rare one waiting.
//! Queries of other kinds keep their places. The estimator has no kinds.

use super::batcher::Batcher;
use super::dropper::{DropReason, Dropper, ExpectedBatch, Priority, StationView};
use super::queue::{Queue, Waiting};
use apportion_domain::{Moment, TimeSpan};

/// The kind of a query.
pub type KindOf<Q> = fn(&Q) -> u64;

/// How many waiting queries are examined for a batch of one kind, counted from the query that is served first.
pub const LOOK_AHEAD_MAX: usize = 1_024;
/// Under `wait_until`: with this many kinds in the queue, no kind waits for a full batch.
const KINDS_MAX: usize = 8;

/// A batch that is being filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchSlot {
    /// The present.
    pub(super) now: Moment,
    /// When the batch starts.
    pub(super) start: Moment,
    /// Whether more queries may enter before it starts.
    pub(super) may_grow: bool,
}

/// A query that was dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct DroppedQuery<Q> {
    pub(super) query: Q,
    pub(super) reason: DropReason,
}

/// The waiting queries of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct KindCount {
    kind: u64,
    count: usize,
}

/// A queue with the policies that decide which queries leave it.
#[derive(Clone, Debug)]
pub(super) struct Intake<Q> {
    pub(super) queue: Queue<Q>,
    pub(super) batcher: Batcher,
    pub(super) dropper: Dropper,
    /// Expected time of a batch of `i + 1` queries. Larger batches take the last entry.
    pub(super) service: Vec<TimeSpan>,
    /// Whether the queue is kept by remaining time.
    pub(super) is_sorted: bool,
    pub(super) view: StationView,
    /// The kind of a query, if the driver has kinds.
    pub(super) kind_of: Option<KindOf<Q>>,
    /// Queries that were dropped and have not been reported.
    pub(super) dropped: Vec<DroppedQuery<Q>>,
    /// Places in the queue of the queries that enter a batch: a buffer.
    places: Vec<usize>,
}

impl<Q: Copy + PartialEq> Intake<Q> {
    pub(super) fn new(batcher: Batcher, dropper: Dropper, queue_len_max: usize) -> Self {
        Self {
            queue: Queue::new(queue_len_max),
            batcher,
            dropper,
            service: Vec::new(),
            is_sorted: false,
            view: StationView::default(),
            kind_of: None,
            dropped: Vec::new(),
            places: Vec::new(),
        }
    }

    fn batch_max(&self) -> usize {
        self.batcher.batch_max() as usize
    }

    fn is_high_budget_first(&self) -> bool {
        self.is_sorted && self.view.priority == Priority::HighBudgetFirst
    }

    /// Expected time of a batch of this size, at least 1.
    #[inline]
    pub(super) fn service(&self, size: usize) -> TimeSpan {
        let last = self.service.len().wrapping_sub(1);
        self.service.get((size - 1).min(last)).copied().unwrap_or(TimeSpan::ZERO)
    }

    /// Under `wait_until`, when a free server starts with the waiting queries. `None` if none waits.
    pub(super) fn due(&self, now: Moment) -> Option<Moment> {
        if let Some(kind_of) = self.kind_of {
            return self.due_by_kind(now, kind_of);
        }
        let Batcher::WaitUntil { batch_max, delay, reserve } = self.batcher else { return None };
        let waiting = self.queue.waiting();
        let first = waiting.first()?;
        if waiting.len() >= batch_max as usize {
            return Some(now);
        }
        let (mut deadline, mut arrived) = (first.deadline, first.arrived);
        if self.queue.is_mixed() {
            deadline = waiting.iter().map(|w| w.deadline).min().unwrap_or(deadline);
            arrived = waiting.iter().map(|w| w.arrived).min().unwrap_or(arrived);
        }
        let last = deadline - reserve - self.service(waiting.len());
        Some(delay.map_or(last, |delay| last.min(arrived + delay)))
    }

    /// As [`Intake::due`], with kinds. A kind that fills a batch starts at once. Otherwise the batches of all kinds, one
    /// after the other, must just be in time for the first query.
    fn due_by_kind(&self, now: Moment, kind_of: KindOf<Q>) -> Option<Moment> {
        let Batcher::WaitUntil { batch_max, delay, reserve } = self.batcher else { return None };
        let waiting = self.queue.waiting();
        let first = waiting.first()?;
        let (mut deadline, mut arrived) = (first.deadline, first.arrived);
        let (mut kinds, mut known) = ([KindCount::default(); KINDS_MAX], 0);
        for w in waiting {
            if self.queue.is_mixed() {
                (deadline, arrived) = (deadline.min(w.deadline), arrived.min(w.arrived));
            }
            let kind = kind_of(&w.query);
            let at = kinds[..known].iter().position(|other| other.kind == kind).unwrap_or(known);
            if at == KINDS_MAX {
                return Some(now);
            }
            known = known.max(at + 1);
            kinds[at] = KindCount { kind, count: kinds[at].count + 1 };
            if kinds[at].count >= batch_max as usize {
                return Some(now);
            }
        }
        let needed = kinds[..known].iter().fold(TimeSpan::ZERO, |sum, of_kind| sum + self.service(of_kind.count));
        let last = deadline - reserve - needed;
        Some(delay.map_or(last, |delay| last.min(arrived + delay)))
    }

    /// Moves queries from the queue into a batch until it is full or the queue is empty. Queries that the policy refuses
    /// are dropped on the way.
    #[inline]
    pub(super) fn fill(&mut self, batch: &mut Vec<Waiting<Q>>, slot: BatchSlot) {
        if let Some(kind_of) = self.kind_of {
            return self.fill_with_one_kind(batch, slot, kind_of);
        }
        let most = self.batch_max();
        if self.dropper.slides() {
            self.slide_window(most - batch.len(), batch.len(), slot);
        }
        if !self.is_sorted && (!self.dropper.inspects() || self.dropper.slides()) {
            self.queue.take(most - batch.len(), batch);
            return;
        }
        let is_high_first = self.is_high_budget_first();
        if is_high_first {
            self.drop_hopeless(slot.now);
        }
        while batch.len() < most {
            let largest = if slot.may_grow { most } else { most.min(batch.len() + self.queue.len()) };
            let next = if is_high_first { self.queue.pop_last() } else { self.queue.pop() };
            let Some(waiting) = next else { break };
            let chance = ExpectedBatch { now: slot.now, start: slot.start, execution: self.service(largest) };
            match self.dropper.verdict(chance, &self.view, &waiting) {
                Some(reason) => self.dropped.push(DroppedQuery { query: waiting.query, reason }),
                None => batch.push(waiting),
            }
        }
    }

    /// As [`Intake::fill`], with queries of one kind: until the batch is full or no query of that kind is left.
    #[cold]
    #[inline(never)]
    fn fill_with_one_kind(&mut self, batch: &mut Vec<Waiting<Q>>, slot: BatchSlot, kind_of: KindOf<Q>) {
        let most = self.batch_max();
        let is_high_first = self.is_high_budget_first();
        if is_high_first {
            self.drop_hopeless(slot.now);
        }
        let mut places = std::mem::take(&mut self.places);
        while batch.len() < most {
            let waiting = self.queue.waiting();
            let head = if is_high_first { waiting.last() } else { waiting.first() };
            let Some(kind) = batch.first().or(head).map(|w| kind_of(&w.query)) else { break };
            // Policies that drop nothing on the way need no more queries than fit.
            let enough = if self.dropper.inspects() { LOOK_AHEAD_MAX } else { most - batch.len() };
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
            let left = self.take_places(batch, slot, &places);
            places.truncate(left);
            places.sort_unstable();
            self.queue.remove_at(&places);
            // The next kind has its turn only if every query of this kind was dropped.
            if !batch.is_empty() {
                break;
            }
        }
        self.places = places;
    }

    /// Fills a batch with the queries at `places`, in this order. Returns how many of them have left the queue, for the
    /// batch or because they were dropped.
    fn take_places(&mut self, batch: &mut Vec<Waiting<Q>>, slot: BatchSlot, places: &[usize]) -> usize {
        let most = self.batch_max();
        let waiting = self.queue.waiting();
        let is_window = self.dropper.slides();
        let mut left = 0;
        if is_window {
            let alike: Vec<Waiting<Q>> = places.iter().map(|at| waiting[*at]).collect();
            left = self.window_start(&alike, most - batch.len(), batch.len(), slot);
            let reason = self.dropper.window_reason();
            let late = |w: &Waiting<Q>| DroppedQuery { query: w.query, reason };
            self.dropped.extend(alike[..left].iter().map(late));
        }
        let waiting = self.queue.waiting();
        let is_judged = self.dropper.inspects() && !is_window;
        while batch.len() < most && left < places.len() {
            let next = waiting[places[left]];
            let largest = if slot.may_grow { most } else { most.min(batch.len() + places.len() - left) };
            left += 1;
            let chance = ExpectedBatch { now: slot.now, start: slot.start, execution: self.service(largest) };
            match self.dropper.verdict(chance, &self.view, &next).filter(|_| is_judged) {
                Some(reason) => self.dropped.push(DroppedQuery { query: next.query, reason }),
                None => batch.push(next),
            }
        }
        left
    }

    /// Drops the queries that would be late even alone and at once. While the queries with the most time left come first,
    /// the queries with the least would otherwise wait for ever.
    fn drop_hopeless(&mut self, now: Moment) {
        let soonest = now + self.service(1);
        while let Some(waiting) = self.queue.waiting().first().filter(|w| w.deadline < soonest).copied() {
            self.queue.pop();
            self.dropped.push(DroppedQuery { query: waiting.query, reason: DropReason::Predicted });
        }
    }

    /// Nexus's window: drops the queries before [`Intake::window_start`].
    fn slide_window(&mut self, room: usize, before: usize, slot: BatchSlot) {
        let reason = self.dropper.window_reason();
        for _ in 0..self.window_start(self.queue.waiting(), room, before, slot) {
            let waiting = self.queue.pop().expect("the window is within the queue");
            self.dropped.push(DroppedQuery { query: waiting.query, reason });
        }
    }

    /// The first place from which the next `room` queries, or all that are left, would end in time, together with the
    /// `before` queries that are in the batch already. In time is by their deadlines, or within their task's part of the
    /// SLO.
    fn window_start(&self, waiting: &[Waiting<Q>], room: usize, before: usize, slot: BatchSlot) -> usize {
        let mut first = 0;
        while first < waiting.len() && room > 0 {
            let window = room.min(waiting.len() - first);
            let size = if slot.may_grow { room + before } else { window + before };
            let chance = ExpectedBatch { now: slot.now, start: slot.start, execution: self.service(size) };
            let is_late = |w: &Waiting<Q>| self.dropper.verdict(chance, &self.view, w).is_some();
            let Some(late) = waiting[first..][..window].iter().rposition(is_late) else { break };
            // Windows up to the late query that get no shorter all contain it.
            first = if slot.may_grow || first + late + room <= waiting.len() { first + late + 1 } else { first + 1 };
        }
        first
    }
}
