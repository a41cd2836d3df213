//! A bounded queue in front of one or several servers: first in, first out, or by remaining time with both ends open.

use apportion_domain::Moment;

/// A query that waits or runs at a station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting<Q> {
    /// The driver's handle.
    pub query: Q,
    /// When it joined the queue.
    pub arrived: Moment,
    /// When its request should be answered.
    pub deadline: Moment,
}

/// A queue in order of arrival. A queue that is only filled by [`Queue::insert`] is in order of deadline. The buffer is
/// reused: once it has grown, a query costs no allocation.
///
/// The buffer has a moving front and back instead of being a ring. So the waiting queries are one slice, and one copy takes
/// a batch. When the back reaches the end, the queries move to the start if half of the buffer is free; otherwise the
/// buffer doubles. Either way each query moves at most once.
#[derive(Clone, Debug)]
pub struct Queue<Q> {
    /// The waiting queries are `front..back`; the other places are unused.
    buffer: Vec<Waiting<Q>>,
    front: usize,
    back: usize,
    len_max: usize,
    /// Whether queries stand before older ones, because they were put back or have passed others.
    is_mixed: bool,
}

impl<Q: Copy + PartialEq> Queue<Q> {
    /// An empty queue that holds at most `len_max` queries.
    #[must_use]
    pub fn new(len_max: usize) -> Self {
        Self { buffer: Vec::new(), front: 0, back: 0, len_max, is_mixed: false }
    }

    /// Queries that wait.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.back - self.front
    }

    /// Whether none waits.
    #[inline(always)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.back == self.front
    }

    /// Whether there is a place behind the last query for another one.
    #[inline(always)]
    pub fn has_place(&self) -> bool {
        self.back < self.buffer.len() && self.back - self.front < self.len_max
    }

    /// Appends a query where [`Queue::has_place`].
    #[inline(always)]
    pub fn put(&mut self, query: Q, arrived: Moment, deadline: Moment) {
        let place = &mut self.buffer[self.back];
        place.query = query;
        place.arrived = arrived;
        place.deadline = deadline;
        self.back += 1;
    }

    /// Whether there are `count` places behind the last query.
    #[inline(always)]
    pub fn has_places(&self, count: usize) -> bool {
        self.back + count <= self.buffer.len() && self.back - self.front + count <= self.len_max
    }

    /// Appends queries where [`Queue::has_places`] for them.
    #[inline(always)]
    pub fn put_all(&mut self, arrived: Moment, queries: impl ExactSizeIterator<Item = (Q, Moment)>) {
        let count = queries.len();
        let places = &mut self.buffer[self.back..][..count];
        // Not a `for` loop, whose `next` becomes a call for each.
        places.iter_mut().zip(queries).for_each(|(place, (query, deadline))| {
            place.query = query;
            place.arrived = arrived;
            place.deadline = deadline;
        });
        self.back += count;
    }

    /// Appends a query; `false` if the queue is full and the query was not taken.
    #[inline(always)]
    #[must_use]
    pub fn push(&mut self, waiting: Waiting<Q>) -> bool {
        if let Some(place) = self.buffer.get_mut(self.back)
            && self.back - self.front < self.len_max
        {
            *place = waiting;
            self.back += 1;
            return true;
        }
        self.push_at_end(waiting.query, waiting.arrived, waiting.deadline)
    }

    /// Puts a query before the last `passes` ones; `false` if the queue is full and the query was not taken.
    #[must_use]
    pub fn push_before(&mut self, waiting: Waiting<Q>, passes: usize) -> bool {
        if !self.push(waiting) {
            return false;
        }
        let passes = passes.min(self.len() - 1);
        self.buffer[self.back - 1 - passes..self.back].rotate_right(1);
        self.is_mixed |= passes > 0;
        true
    }

    /// Whether queries may stand before older ones.
    #[must_use]
    pub const fn is_mixed(&self) -> bool {
        self.is_mixed
    }

    /// Appends a query where there is no place behind the last one. The parts are separate arguments: a caller that finds a
    /// place need not put them together in memory first.
    #[cold]
    #[inline(never)]
    fn push_at_end(&mut self, query: Q, arrived: Moment, deadline: Moment) -> bool {
        if self.len() >= self.len_max {
            return false;
        }
        let waiting = Waiting { query, arrived, deadline };
        self.make_room(waiting);
        self.buffer[self.back] = waiting;
        self.back += 1;
        true
    }

    /// Makes room for one more behind the last one; `filler` is any query.
    fn make_room(&mut self, filler: Waiting<Q>) {
        /// Smallest buffer.
        const LEN_MIN: usize = 16;
        if self.back < self.buffer.len() {
            return;
        }
        if self.front > 0 && 2 * self.front >= self.buffer.len() {
            self.buffer.copy_within(self.front..self.back, 0);
            self.back -= self.front;
            self.front = 0;
        } else {
            self.buffer.resize((2 * self.buffer.len()).max(LEN_MIN), filler);
        }
    }

    /// Puts a query where its deadline belongs, after equal ones; `false` if the queue is full and the query was not taken.
    ///
    /// A double-ended priority queue (PARD section 4.3) as a sorted buffer: either end costs one load. Deadlines nearly
    /// follow arrivals, so a query passes few others on its way in. The time left is the deadline less the present, so the
    /// order of deadlines is the order of remaining budgets at any moment.
    #[inline]
    #[must_use]
    pub fn insert(&mut self, waiting: Waiting<Q>) -> bool {
        if self.len() >= self.len_max {
            return false;
        }
        self.make_room(waiting);
        let (front, back) = (self.front, self.back);
        let is_last = back == front || self.buffer[back - 1].deadline <= waiting.deadline;
        let at = if is_last {
            back
        } else {
            front + self.buffer[front..back].partition_point(|w| w.deadline <= waiting.deadline)
        };
        self.buffer.copy_within(at..back, at + 1);
        self.buffer[at] = waiting;
        self.back += 1;
        true
    }

    /// Puts queries back in front of all others, in their order.
    pub fn put_back(&mut self, waiting: &[Waiting<Q>]) {
        let is_older = |last: &Waiting<Q>| self.waiting().first().is_none_or(|first| last.arrived <= first.arrived);
        self.is_mixed |= !(waiting.is_sorted_by_key(|w| w.arrived) && waiting.last().is_none_or(is_older));
        self.buffer.truncate(self.back);
        self.buffer.splice(self.front..self.front, waiting.iter().copied());
        self.back = self.buffer.len();
    }

    /// The waiting queries, first to last.
    #[inline]
    #[must_use]
    pub fn waiting(&self) -> &[Waiting<Q>] {
        &self.buffer[self.front..self.back]
    }

    /// Takes the last query.
    #[inline]
    pub fn pop_last(&mut self) -> Option<Waiting<Q>> {
        if self.is_empty() {
            return None;
        }
        self.back -= 1;
        let last = self.buffer.get(self.back).copied();
        self.advance(0);
        last
    }

    /// Takes the first query.
    #[inline]
    pub fn pop(&mut self) -> Option<Waiting<Q>> {
        let first = self.waiting().first().copied();
        if first.is_some() {
            self.advance(1);
        }
        first
    }

    /// Takes the `count` oldest queries, or all, to the end of `into`.
    #[inline]
    pub fn take(&mut self, count: usize, into: &mut Vec<Waiting<Q>>) {
        let count = count.min(self.len());
        // Not `extend_from_slice`, which clones a generic type field by field.
        into.extend(self.buffer[self.front..][..count].iter().copied());
        self.advance(count);
    }

    /// Takes out the queries at these places, counted from the first waiting query. The places are distinct and ascending.
    pub fn remove_at(&mut self, places: &[usize]) {
        let Some(last) = places.last() else { return };
        let (mut left, mut to) = (places.len(), self.front + last + 1);
        // Queries between these places move back, so that the front can move up.
        for at in (0..=*last).rev() {
            if left > 0 && places[left - 1] == at {
                left -= 1;
            } else {
                to -= 1;
                self.buffer.copy_within(self.front + at..=self.front + at, to);
            }
        }
        self.advance(places.len());
    }

    /// Removes every query that equals this one, to the end of `gone`, each with the handle that it came with.
    pub fn remove(&mut self, query: Q, gone: &mut Vec<Q>) {
        self.remove_in(self.front..self.back, query, gone);
    }

    /// As [`Queue::remove`], for queries that joined at one moment, in a queue that was filled by [`Queue::push`]. Other
    /// queries are not searched.
    pub fn remove_arrived(&mut self, arrived: Moment, query: Q, gone: &mut Vec<Q>) {
        if self.is_mixed {
            return self.remove(query, gone);
        }
        let waiting = self.waiting();
        let first = waiting.partition_point(|w| w.arrived < arrived);
        let many = waiting[first..].partition_point(|w| w.arrived == arrived);
        self.remove_in(self.front + first..self.front + first + many, query, gone);
    }

    /// As [`Queue::remove`], for queries with one deadline, in a queue that was filled by [`Queue::insert`].
    pub fn remove_due(&mut self, deadline: Moment, query: Q, gone: &mut Vec<Q>) {
        let waiting = self.waiting();
        let first = waiting.partition_point(|w| w.deadline < deadline);
        let many = waiting[first..].partition_point(|w| w.deadline == deadline);
        self.remove_in(self.front + first..self.front + first + many, query, gone);
    }

    fn remove_in(&mut self, range: std::ops::Range<usize>, query: Q, gone: &mut Vec<Q>) {
        let mut kept = range.start;
        for at in range.clone() {
            if self.buffer[at].query == query {
                gone.push(self.buffer[at].query);
            } else {
                self.buffer.swap(kept, at);
                kept += 1;
            }
        }
        if kept == range.end {
            return;
        }
        // The shorter side moves up.
        if range.start - self.front < self.back - range.end {
            self.buffer.copy_within(self.front..kept, self.front + range.end - kept);
            self.front += range.end - kept;
        } else {
            self.buffer.copy_within(range.end..self.back, kept);
            self.back -= range.end - kept;
        }
        self.advance(0);
    }

    #[inline(always)]
    fn advance(&mut self, count: usize) {
        self.front += count;
        if self.front == self.back {
            self.front = 0;
            self.back = 0;
            self.is_mixed = false;
        }
    }
}
