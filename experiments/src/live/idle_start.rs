//! When does the load of a run of the estimator begin?
//!
//! Stewards of the estimator begin without a past, and those of agents have been idle. So the load begins after an idle
//! time, [`LEAD`] as a rule. Nor do requests wait for a steward: it measures in periods, and the load begins at any moment
//! of one.

use super::figures::{RequestResult, longest_ms};
use anyhow::Result;
use apportion_domain::{ArrivalTrace, Moment, PipelineIndex, Problem, TimeSpan};
use apportion_estimator::{ArrivalProcess, DropReason, RequestOutcome, RequestRecord, Simulation, Workload};
use apportion_serving::steward::PERIOD;
use std::time::Duration;

/// Runs of the estimator for each load.
pub const RUNS: u64 = 40;

/// The idle time before a load, if nobody says another one.
pub const LEAD: Duration = Duration::from_secs(10);

/// Runs begin at so many moments of the steward's period, in turns.
const BEGINNINGS: u64 = 8;

/// The beginning of the load of one run.
#[derive(Clone, Copy, Debug)]
pub struct IdleStart {
    /// The number of the run, and the seed of its draws.
    seed: u64,
    /// The idle time before the load.
    idle: Duration,
}

impl IdleStart {
    /// Of the run with this number, whose load begins after so long an idle time.
    #[must_use]
    pub fn of_run(idle: Duration, seed: u64) -> Self {
        let within = PERIOD.as_nanos() * (seed % BEGINNINGS) / BEGINNINGS;
        Self { seed, idle: idle + Duration::from_nanos(within) }
    }

    /// The moment of the run at which the load is so old.
    #[must_use]
    pub fn moment(self, at: Duration) -> Moment {
        Moment::from_nanos((at + self.idle).as_nanos() as u64)
    }

    /// These arrivals at one pipeline, and none at the others. There may be none at all.
    ///
    /// # Errors
    /// If the arrivals do not rise.
    pub fn workload(self, problem: &Problem, index: PipelineIndex, arrivals: &[Duration]) -> Result<Workload> {
        let mut traces = vec![ArrivalTrace::Rates(vec![(0, 0.0)]); problem.pipelines.len()];
        if !arrivals.is_empty() {
            traces[index.get()] = ArrivalTrace::arrivals(arrivals.iter().map(|at| self.moment(*at)).collect())?;
        }
        Ok(Workload { traces, arrivals: ArrivalProcess::Poisson, seed: self.seed })
    }

    /// The pipeline's requests in the run, from the beginning of the load.
    #[must_use]
    pub fn results(self, simulation: &Simulation, problem: &Problem, index: PipelineIndex) -> Vec<RequestResult> {
        let longest_ms = longest_ms(problem.pipeline(index).slo_ms);
        let result = |request: &RequestRecord| {
            let took = request.finish.map(|finish| finish.since(request.arrival));
            let is_given_up = request.reason == Some(DropReason::Cancelled);
            let took_ms = took.map(TimeSpan::as_millis).or(is_given_up.then_some(longest_ms));
            RequestResult {
                at: Duration::from_nanos(request.arrival.as_nanos()).saturating_sub(self.idle),
                in_time: request.outcome == RequestOutcome::Ok,
                took_ms: took_ms.map(|ms| ms.min(longest_ms)),
            }
        };
        simulation.requests.iter().filter(|request| request.pipeline == index).map(result).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn loads_begin_at_several_moments_of_the_period_after_an_idle_time() {
        let within = |seed| (IdleStart::of_run(LEAD, seed).idle - LEAD).as_nanos();
        let beginnings: BTreeSet<u128> = (1..=RUNS).map(within).collect();
        assert_eq!(beginnings.len() as u64, BEGINNINGS);
        assert!(beginnings.iter().all(|&nanos| nanos < PERIOD.as_nanos().into()), "{beginnings:?}");
    }
}
