//! How does a plan fare on several independent samples of a load?

use crate::error::SimulateError;
use crate::input::fresh::FreshLoad;
use crate::input::options::SimulateOptions;
use crate::interval::RunCount;
use crate::random::RandomStream;
use crate::result::Simulation;
use crate::simulate::statistics_of;
use crate::state::statistics::Statistics;
use apportion_domain::{Plan, Problem};

/// Bits of a seed that a caller reads in a file: JSON's numbers keep 53.
const SEED_BITS: u32 = 52;

/// The first seed of the samples of this purpose under a root seed; the others follow it. Samples of two purposes share no
/// random stream.
#[must_use]
pub fn first_seed(root: u64, purpose: &str) -> u64 {
    RandomStream::new(root, &format!("samples/{purpose}")).bits() >> (u64::BITS - SEED_BITS)
}

/// The run of one sample.
#[derive(Debug)]
pub struct Sample(Statistics);

/// Runs a plan on the sample of this seed.
///
/// # Errors
/// As [`simulate`](crate::simulate()).
pub fn run_sample(
    problem: &Problem,
    plan: &Plan,
    load: &FreshLoad<'_>,
    seed: u64,
    options: &SimulateOptions,
) -> Result<Sample, SimulateError> {
    statistics_of(problem, plan, &load.sample(problem, seed), options).map(Sample)
}

/// The runs of several samples together.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    merged: Option<Statistics>,
    /// By pipeline, then by sample.
    counts: Vec<Vec<RunCount>>,
}

impl Samples {
    /// One sample more.
    pub fn add(&mut self, sample: Sample) {
        let Sample(statistics) = sample;
        self.counts.resize(statistics.requests().len(), Vec::new());
        for (counts, (requests, ok)) in self.counts.iter_mut().zip(statistics.requests()) {
            counts.push(RunCount { requests, missed: requests - ok });
        }
        match &mut self.merged {
            Some(merged) => merged.merge(&statistics),
            None => self.merged = Some(statistics),
        }
    }

    /// The number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.counts.first().map_or(0, Vec::len)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The requests by pipeline, then by sample. Pipelines have the problem's order.
    #[must_use]
    pub fn counts(&self) -> &[Vec<RunCount>] {
        &self.counts
    }

    /// The results over all samples, as if they were one run; `None` without a sample. `first_seed` is the seed of the
    /// first one.
    #[must_use]
    pub fn into_simulation(self, problem: &Problem, plan: &Plan, first_seed: u64) -> Option<Simulation> {
        Some(self.merged?.result(problem, plan, first_seed))
    }
}
