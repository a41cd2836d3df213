//! How do independent runs share the processors?

use apportion_support::exit::Failure;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Fewest threads for independent runs.
const THREADS_MIN: usize = 2;

/// Most threads for independent runs: each may take half a GiB.
const THREADS_MAX: usize = 8;

/// Threads for independent runs: one for each processor.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(THREADS_MIN, |found| found.get().clamp(THREADS_MIN, THREADS_MAX))
}

/// Applies `of` to each item, on a thread for each processor. Results are in the order of the items.
///
/// # Errors
/// The first failure of an item.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], of: impl Fn(&T) -> Result<R, Failure> + Sync) -> Result<Vec<R>, Failure> {
    let next = AtomicUsize::new(0);
    let work = || -> Vec<(usize, Result<R, Failure>)> {
        let run_next = || {
            let at = next.fetch_add(1, Ordering::Relaxed);
            items.get(at).map(|item| (at, of(item)))
        };
        std::iter::from_fn(run_next).collect()
    };
    let mut done = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads().min(items.len())).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect::<Vec<_>>()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn parallel_results_keep_their_order() {
        let items: Vec<u64> = (0..100).collect();
        assert_eq!(in_parallel(&items, |i| Ok(i * i)).ok(), Some(items.iter().map(|i| i * i).collect()));
        assert!(in_parallel(&items, |i| if *i == 57 { Err(anyhow!("no").into()) } else { Ok(*i) }).is_err());
        assert_eq!(in_parallel(&[] as &[u64], |i| Ok(*i)).ok(), Some(vec![]));
    }
}
