//! On which processors does a thread run?
//!
//! The copies of a variant that share a device stay on the processors of one device, as many as it has threads. Otherwise
//! the system would give each copy a processor of its own, and none would disturb another.

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The calling thread, bound to some processors. Threads and processes that it starts are bound to the same ones. Dropping
/// this gives the thread the processors back that it had.
pub(crate) struct BoundThread {
    before: CpuSet,
}

impl BoundThread {
    /// Binds the calling thread to the first `count` of its processors, or to all if it has fewer.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn to_first(count: usize) -> Result<Self, Errno> {
        let before = sched_getaffinity(None)?;
        let mut bound = CpuSet::new();
        (0..CpuSet::MAX_CPU).filter(|&processor| before.is_set(processor)).take(count).for_each(|p| bound.set(p));
        sched_setaffinity(None, &bound)?;
        Ok(Self { before })
    }
}

impl Drop for BoundThread {
    fn drop(&mut self) {
        // A thread that stays bound measures on: nothing better can be done here.
        let _stays = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The processors of the calling thread, by number.
    fn processors() -> Vec<usize> {
        let set = sched_getaffinity(None).expect("the system says it");
        (0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect()
    }

    #[test]
    fn a_thread_and_its_threads_are_bound_until_the_end() {
        let before = processors();
        {
            let _bound = BoundThread::to_first(1).expect("one of its own processors");
            assert_eq!(processors(), before[..1]);
            assert_eq!(std::thread::spawn(processors).join().expect("no panic"), before[..1]);
        }
        assert_eq!(processors(), before);
    }

    #[test]
    fn a_device_with_more_threads_has_all_processors() {
        let before = processors();
        let _bound = BoundThread::to_first(CpuSet::MAX_CPU + 1).expect("its own processors");
        assert_eq!(processors(), before);
    }

    #[test]
    fn a_device_without_processors_is_refused() {
        assert!(BoundThread::to_first(0).is_err());
        assert!(!processors().is_empty());
    }
}
