//! How much may a search do, if no clock may decide its result? So many units of counted work.
//!
//! Example: a budget of one thousand million units ends a search after about a second, on any machine at the same step. A
//! unit is a step of about a nanosecond: one entry of a tableau in one pivot, or a part of an iteration of HiGHS.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A budget of counted work. The searches that share it run one after another, so the same step spends it each time.
#[derive(Debug)]
pub struct WorkBudget {
    units_max: u64,
    done: AtomicU64,
    is_lifted: AtomicBool,
    /// What is counted here counts there too.
    outer: Option<Arc<WorkBudget>>,
}

impl WorkBudget {
    /// A budget of so many units. It is a part of an outer one, where there is one.
    #[must_use]
    pub fn new(units_max: u64, outer: Option<Arc<Self>>) -> Self {
        Self { units_max, done: AtomicU64::new(0), is_lifted: AtomicBool::new(false), outer }
    }

    /// Counts work that was done.
    pub fn count(&self, units: u64) {
        self.done.fetch_add(units, Ordering::Relaxed);
        if let Some(outer) = &self.outer {
            outer.count(units);
        }
    }

    /// Whether this budget, or an outer one, is spent.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        let own = self.done() >= self.units_max && !self.is_lifted.load(Ordering::Relaxed);
        own || self.outer.as_ref().is_some_and(|outer| outer.is_spent())
    }

    /// The units that were counted.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Takes the limit of this budget away. An outer one stays.
    pub fn lift(&self) {
        self.is_lifted.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_spent_by_its_own_work_or_by_that_of_its_outer_one() {
        let outer = Arc::new(WorkBudget::new(100, None));
        let (first, second) = (WorkBudget::new(60, Some(outer.clone())), WorkBudget::new(60, Some(outer.clone())));
        first.count(59);
        assert!(!first.is_spent());
        first.count(1);
        assert!(first.is_spent() && !second.is_spent() && !outer.is_spent());
        second.count(40);
        assert!(second.is_spent() && outer.is_spent());
        assert_eq!((first.done(), second.done(), outer.done()), (60, 40, 100));
    }

    #[test]
    fn a_lifted_budget_ends_with_its_outer_one_only() {
        let outer = Arc::new(WorkBudget::new(100, None));
        let inner = WorkBudget::new(10, Some(outer));
        inner.count(50);
        assert!(inner.is_spent());
        inner.lift();
        assert!(!inner.is_spent());
        inner.count(50);
        assert!(inner.is_spent());
    }
}
