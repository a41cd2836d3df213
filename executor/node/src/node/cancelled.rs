//! Which requests were cancelled lately?
//!
//! Example: a request of three queries is dropped with its first one. The other two leave their queues, and a query of it
//! that arrives later is dropped on arrival.

use std::collections::{BTreeSet, VecDeque};

/// Cancelled requests that are remembered, for what is still on its way: the youngest ones.
pub const CANCELLED_MAX: usize = 65_536;

/// The youngest cancelled requests, by their gateway's agent and its number.
#[derive(Debug, Default)]
pub(super) struct CancelledRequests {
    known: BTreeSet<(u64, u64)>,
    order: VecDeque<(u64, u64)>,
    /// Those whose queries are still in queues here.
    in_queues: Vec<(u64, u64)>,
}

impl CancelledRequests {
    /// Whether a request is among them.
    pub fn contains(&self, origin: u64, request: u64) -> bool {
        !self.known.is_empty() && self.known.contains(&(origin, request))
    }

    /// Adds a request, whose queries leave their queues and slots after the event in hand. Whether it is new.
    pub fn insert(&mut self, origin: u64, request: u64) -> bool {
        let is_new = self.known.insert((origin, request));
        if is_new {
            self.in_queues.push((origin, request));
            self.order.push_back((origin, request));
            if self.order.len() > CANCELLED_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
        }
        is_new
    }

    /// Takes out a request whose queries may still be in queues here, the latest first; none if there is no more.
    pub fn next_in_queues(&mut self) -> Option<(u64, u64)> {
        self.in_queues.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_youngest_are_remembered() {
        let mut cancelled = CancelledRequests::default();
        assert!((0..=CANCELLED_MAX as u64).all(|request| cancelled.insert(1, request)));
        assert!(!cancelled.insert(1, 7), "known");
        assert!(!cancelled.contains(1, 0) && cancelled.contains(1, 1) && !cancelled.contains(2, 1));
        assert_eq!((cancelled.known.len(), cancelled.order.len()), (CANCELLED_MAX, CANCELLED_MAX));
    }
}
