//! Which settings do the planners of an analysis have?

use apportion_planning::PlanningOptions;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The settings of a search with this gap and limit. Its clock starts now.
pub(super) fn planning_options(gap: f64, time_limit_s: f64, cancel: &Arc<AtomicBool>) -> PlanningOptions {
    let start = Instant::now();
    PlanningOptions {
        gap,
        time_limit: Some(Duration::from_secs_f64(time_limit_s)),
        cancel: cancel.clone(),
        ..PlanningOptions::new(Arc::new(move || start.elapsed()))
    }
}
