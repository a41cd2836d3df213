//! Where does a planner keep what it remembers from one round to the next?

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

/// The memory of a planner that plans one fleet again and again. It holds one round, the last fleet that was planned fast.
/// Only the search that has filled it reads it.
///
/// The plan of a round depends on the rounds before. It is checked like any other plan, and its bound is proven.
#[derive(Clone, Debug, Default)]
pub struct FleetMemory(Arc<Mutex<Option<Arc<dyn Any + Send + Sync>>>>);

impl FleetMemory {
    /// The last round, if it is one of type `R`.
    pub(crate) fn last<R: Any + Send + Sync>(&self) -> Option<Arc<R>> {
        let round = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        round.downcast().ok()
    }

    /// Forgets the last round for this one.
    pub(crate) fn replace<R: Any + Send + Sync>(&self, round: R) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(round));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_the_last_round() {
        let memory = FleetMemory::default();
        assert_eq!(memory.last::<u32>(), None);
        memory.clone().replace(1_u32);
        memory.replace(2_u32);
        assert_eq!(memory.clone().last::<u32>().as_deref(), Some(&2));
        assert_eq!(memory.last::<u64>(), None, "it is of another type");
    }
}
