//! Queries on their way between stations.

use super::query::SimulatedQuery;
use apportion_domain::{Moment, TimeSpan};
use std::collections::VecDeque;

/// A query on its way to a station.
#[derive(Clone, Copy, Debug)]
pub struct QueryInTransit {
    /// When it arrives.
    pub due: Moment,
    /// Where.
    pub station: u32,
    /// The query.
    pub query: SimulatedQuery,
    /// When its request should be answered.
    pub deadline: Moment,
}

/// All hops of one delay.
#[derive(Debug)]
struct Link {
    delay: TimeSpan,
    /// Its queries, in the order in which they arrive.
    queue: VecDeque<QueryInTransit>,
}

impl Link {
    /// When its next query arrives; `NEVER` if none is on its way.
    #[inline]
    fn next_due(&self) -> Moment {
        self.queue.front().map_or(Moment::NEVER, |transit| transit.due)
    }
}

/// Network hops. Each link has a constant delay. So queries arrive in the order in which they were sent, and a queue
/// replaces a heap.
#[derive(Debug)]
pub struct Network {
    links: Vec<Link>,
    next: Moment,
}

impl Default for Network {
    fn default() -> Self {
        Self { links: Vec::new(), next: Moment::NEVER }
    }
}

impl Network {
    /// The link with this delay, which is not 0.
    pub fn link(&mut self, delay: TimeSpan) -> usize {
        self.links.iter().position(|link| link.delay == delay).unwrap_or_else(|| {
            self.links.push(Link { delay, queue: VecDeque::new() });
            self.links.len() - 1
        })
    }

    /// How long queries of a link are on their way.
    pub fn delay(&self, link: usize) -> TimeSpan {
        self.links[link].delay
    }

    /// Sends a query at `now`.
    pub fn send(&mut self, link: usize, now: Moment, station: u32, query: SimulatedQuery, deadline: Moment) {
        let Link { delay, queue } = &mut self.links[link];
        let due = now + *delay;
        queue.push_back(QueryInTransit { due, station, query, deadline });
        self.next = self.next.min(due);
    }

    /// When the next query arrives; `NEVER` if none is on its way.
    #[inline]
    pub fn next_due(&self) -> Moment {
        self.next
    }

    /// The next query, if it arrives by `now`.
    #[inline]
    pub fn pop_arrived(&mut self, now: Moment) -> Option<QueryInTransit> {
        if self.next_due() > now {
            return None;
        }
        let link = self.links.iter_mut().min_by_key(|link| link.next_due())?;
        let transit = link.queue.pop_front();
        self.next = self.links.iter().map(Link::next_due).min().unwrap_or(Moment::NEVER);
        transit
    }
}
