//! Which pipelines are played, and what multiplies the rates of traces for each?

use super::contest::planned_rate;
use super::protocol::{HeadlineProtocol, PipelineEntry};
use crate::reproduce::lab::{Lab, OwnPipeline, TRAFFIC, own_pipelines};
use apportion_domain::Problem;
use apportion_support::exit::Failure;

/// A pipeline of the protocol, or one of the user's.
pub struct PlayedPipeline {
    /// Its name in tables.
    pub name: String,
    /// Its problem. The first pipeline there is played.
    pub problem: Problem,
    /// What multiplies the rates of traces.
    pub factor: RateFactor,
}

/// What multiplies the rates of traces for a pipeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RateFactor {
    /// This number.
    Fixed(f64),
    /// What makes the planned rate of the stretch that chooses equal to this demand.
    ToDemand(f64),
}

impl RateFactor {
    /// The number for a stretch that chooses.
    pub fn on(self, train: &[f64]) -> f64 {
        match self {
            Self::Fixed(factor) => factor,
            Self::ToDemand(qps) => qps / planned_rate(train),
        }
    }
}

/// The user's pipelines, or else those of the protocol. A run with tiny settings has one.
///
/// # Errors
/// If a problem file cannot be read, or a pipeline of the user's has no demand.
pub fn played_pipelines(lab: &Lab, protocol: &HeadlineProtocol) -> Result<Vec<PlayedPipeline>, Failure> {
    let most = lab.full_or_quick(usize::MAX, 1);
    if !lab.problems.is_empty() {
        let played = |OwnPipeline { name, problem }: OwnPipeline| {
            let factor = RateFactor::ToDemand(problem.pipelines[0].demand_qps);
            PlayedPipeline { name, problem, factor }
        };
        return Ok(own_pipelines(&lab.problems)?.into_iter().take(most).map(played).collect());
    }
    if lab.data.is_none() {
        let (name, factor) = (protocol.built_in.name.clone(), RateFactor::Fixed(protocol.built_in.factor));
        return Ok(vec![PlayedPipeline { name, problem: TRAFFIC.problem()?, factor }]);
    }
    let read = |entry: &PipelineEntry| {
        let problem = lab.problem(&entry.problem, &TRAFFIC)?;
        Ok(PlayedPipeline { name: entry.name.clone(), problem, factor: RateFactor::Fixed(entry.factor) })
    };
    protocol.pipelines.iter().take(most).map(read).collect()
}
