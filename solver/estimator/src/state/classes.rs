//! The requests of a run by class and by window of their arrival, in memory that does not grow with the requests.

use super::requests::SimulatedRequest;
use crate::result::{RequestClasses, WINDOWS_MAX};
use apportion_domain::{Moment, TimeSpan};
use apportion_serving::RequestOutcome;

/// The counts so far, by pipeline and window.
#[derive(Clone, Debug)]
pub struct ClassSeries {
    window: TimeSpan,
    pipelines: Vec<Vec<RequestClasses>>,
}

impl ClassSeries {
    /// Nothing yet, in windows of this length.
    pub fn new(pipelines: usize, window: TimeSpan) -> Self {
        Self { window, pipelines: vec![Vec::new(); pipelines] }
    }

    /// The window of an arrival. What arrives after the last window counts there.
    fn window_of(&mut self, pipeline: usize, arrival: Moment) -> &mut RequestClasses {
        let number = arrival.as_nanos() / self.window.as_nanos().max(1);
        let at = usize::try_from(number).unwrap_or(usize::MAX).min(WINDOWS_MAX - 1);
        let windows = &mut self.pipelines[pipeline];
        if windows.len() <= at {
            windows.resize(at + 1, RequestClasses::default());
        }
        &mut windows[at]
    }

    /// A request of this pipeline arrives.
    pub fn count_arrival(&mut self, pipeline: usize, now: Moment) {
        self.window_of(pipeline, now).arrived += 1;
    }

    /// A request has its outcome.
    pub fn count_outcome(&mut self, request: &SimulatedRequest, outcome: RequestOutcome) {
        let window = self.window_of(request.pipeline as usize, request.arrival);
        match outcome {
            RequestOutcome::Ok => {
                window.ok += 1;
                window.fallback += u64::from(request.on_fallback);
            }
            RequestOutcome::Late => window.late += 1,
            RequestOutcome::Dropped => window.dropped += 1,
            RequestOutcome::Failed => window.failed += 1,
        }
    }

    /// Requests that never got an outcome have failed.
    pub fn fail_unfinished(&mut self) {
        for window in self.pipelines.iter_mut().flatten() {
            window.failed = window.arrived - window.ok - window.late - window.dropped;
        }
    }

    /// All counts, by pipeline, then by window.
    pub fn finish(self) -> Vec<Vec<RequestClasses>> {
        self.pipelines
    }
}
