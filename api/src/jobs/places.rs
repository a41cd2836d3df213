//! How many plans are solved at once, and which plans wait for which?
//!
//! A plan begins in a *quick* place. After [`QUICK_MAX`] it moves to a *long* place, if one is free. A plan with a time
//! limit above the default begins in a long place. So slow plans fill the quick places only if more of them come at once
//! than there are long places. Then each of them is held for the default limit at most.

use crate::store::jobs::SolveTime;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A plan that takes longer leaves its quick place, if a long one is free.
pub(super) const QUICK_MAX: Duration = Duration::from_secs(2);
/// Most quick places, however many processors there are.
const PLACES_MAX: usize = 8;

/// The places of one process.
pub(super) struct JobPlaces {
    quick: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

/// One place. It is free again when every clone is dropped. The planner's thread holds a clone until it ends.
#[derive(Clone)]
pub(super) struct JobPlace(Arc<Mutex<Held>>);

struct Held {
    _permit: OwnedSemaphorePermit,
    is_quick: bool,
}

/// Places that are free.
pub(super) struct FreePlaces {
    quick: Option<OwnedSemaphorePermit>,
    long: Option<OwnedSemaphorePermit>,
}

impl JobPlaces {
    /// A quick place for each processor, two at least, and half as many long ones, one at least.
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let quick = processors.clamp(2, PLACES_MAX);
        Self::with_counts(quick, quick / 2)
    }

    fn with_counts(quick: usize, long: usize) -> Self {
        Self { quick: Arc::new(Semaphore::new(quick)), long: Arc::new(Semaphore::new(long)) }
    }

    /// The free places; `None` if there is none.
    pub(super) fn free(&self) -> Option<FreePlaces> {
        let (quick, long) = (self.quick.clone().try_acquire_owned().ok(), self.long.clone().try_acquire_owned().ok());
        (quick.is_some() || long.is_some()).then_some(FreePlaces { quick, long })
    }

    /// Waits until a place is free.
    pub(super) async fn freed(&self) {
        // The semaphores are never closed.
        let _permit = tokio::select! {
            quick = self.quick.acquire() => quick,
            long = self.long.acquire() => long,
        };
    }

    /// Moves a plan from a quick place to a long one, if one is free.
    pub(super) fn move_to_long(&self, place: &JobPlace) {
        let mut held = place.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_quick
            && let Ok(permit) = self.long.clone().try_acquire_owned()
        {
            *held = Held { _permit: permit, is_quick: false };
        }
    }
}

impl FreePlaces {
    /// Whether a plan that may take long has a place here.
    pub(super) fn takes_long(&self) -> bool {
        self.long.is_some()
    }

    /// Takes a place for a plan. A plan that may take long gets a long place. Any other plan gets a quick place, or a long
    /// one if no quick one is free. `None`: none fits.
    pub(super) fn take(self, solve_time: SolveTime) -> Option<JobPlace> {
        let quick = self.quick.filter(|_| solve_time == SolveTime::Usual);
        let is_quick = quick.is_some();
        let permit = quick.or(self.long)?;
        Some(JobPlace(Arc::new(Mutex::new(Held { _permit: permit, is_quick }))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_plans_never_fill_the_quick_places() {
        let places = JobPlaces::with_counts(2, 1);
        let take = |solve_time| places.free().and_then(|free| free.take(solve_time));
        let first = take(SolveTime::Usual).expect("a quick place");
        let long = take(SolveTime::Long).expect("a long place");
        assert!(take(SolveTime::Long).is_none(), "the one long place is taken");
        let second = take(SolveTime::Usual).expect("the other quick place");
        assert!(places.free().is_none());
        places.move_to_long(&first);
        assert!(places.free().is_none(), "it keeps its quick place");
        drop(long);
        places.move_to_long(&first);
        let quick = take(SolveTime::Usual).expect("the first one's place");
        assert!(places.free().is_none());
        let clone = second.clone();
        drop(second);
        assert!(places.free().is_none(), "its thread still runs");
        drop((clone, quick, first));
        assert!(places.free().is_some_and(|free| free.takes_long()));
    }
}
