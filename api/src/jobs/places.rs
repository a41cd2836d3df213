//! How many plans are solved at once, and which may wait for which.
//!
//! A plan begins in a *quick* place. One that has taken [`QUICK_MAX`] moves to a *long* place if one is free, and a plan
//! with a limit beyond the default one begins there. So plans that take long never fill the quick places, unless more of
//! them come at once than there are long ones; and then none is held for longer than the default limit.

use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A plan that takes longer leaves its quick place, if it can.
pub(super) const QUICK_MAX: Duration = Duration::from_secs(2);
/// Most quick places, however many processors there are.
const PLACES_MAX: usize = 8;

/// The places of one process.
pub(super) struct Places {
    quick: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

/// One place, free again once every clone is dropped: the planner's thread holds one until it has ended.
#[derive(Clone)]
pub(super) struct Place(Arc<Mutex<Held>>);

struct Held {
    _permit: OwnedSemaphorePermit,
    is_quick: bool,
}

/// Places that are free.
pub(super) struct Free {
    quick: Option<OwnedSemaphorePermit>,
    long: Option<OwnedSemaphorePermit>,
}

impl Places {
    /// A quick place for each processor, two at least, and half as many long ones, one at least.
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let quick = processors.clamp(2, PLACES_MAX);
        Self::with(quick, quick / 2)
    }

    fn with(quick: usize, long: usize) -> Self {
        Self { quick: Arc::new(Semaphore::new(quick)), long: Arc::new(Semaphore::new(long)) }
    }

    /// What is free now; `None`: nothing is.
    pub(super) fn free(&self) -> Option<Free> {
        let (quick, long) = (self.quick.clone().try_acquire_owned().ok(), self.long.clone().try_acquire_owned().ok());
        (quick.is_some() || long.is_some()).then_some(Free { quick, long })
    }

    /// Waits until a place is free.
    pub(super) async fn freed(&self) {
        // The semaphores are never closed.
        let _permit = tokio::select! {
            quick = self.quick.acquire() => quick,
            long = self.long.acquire() => long,
        };
    }

    /// Moves to a long place, if one is free, from a quick one.
    pub(super) fn lengthen(&self, place: &Place) {
        let mut held = place.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_quick
            && let Ok(permit) = self.long.clone().try_acquire_owned()
        {
            *held = Held { _permit: permit, is_quick: false };
        }
    }
}

impl Free {
    /// Whether a plan that may take long has a place here.
    pub(super) fn takes_long(&self) -> bool {
        self.long.is_some()
    }

    /// Takes the place for a plan: a long one if it may take long, else a quick one if there is one. `None`: it has none
    /// here.
    pub(super) fn take(self, is_long: bool) -> Option<Place> {
        let quick = self.quick.filter(|_| !is_long);
        let is_quick = quick.is_some();
        let permit = quick.or(self.long)?;
        Some(Place(Arc::new(Mutex::new(Held { _permit: permit, is_quick }))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_plans_never_fill_the_quick_places() {
        let places = Places::with(2, 1);
        let take = |is_long| places.free().and_then(|free| free.take(is_long));
        let (first, long) = (take(false).expect("a quick place"), take(true).expect("a long place"));
        assert!(take(true).is_none(), "the one long place is taken");
        let second = take(false).expect("the other quick place");
        assert!(places.free().is_none());
        places.lengthen(&first);
        assert!(places.free().is_none(), "it keeps its quick place");
        drop(long);
        places.lengthen(&first);
        let quick = take(false).expect("the first one's place");
        assert!(places.free().is_none());
        let clone = second.clone();
        drop(second);
        assert!(places.free().is_none(), "its thread still runs");
        drop((clone, quick, first));
        assert!(places.free().is_some_and(|free| free.takes_long()));
    }
}
