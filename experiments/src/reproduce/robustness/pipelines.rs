//! Which pipelines are tried?

use crate::reproduce::headline::protocol::{HeadlineProtocol, PipelineEntry};
use crate::reproduce::lab::{Lab, OwnPipeline, TRAFFIC, own_pipelines, with_pipeline};
use apportion_domain::{Dropping, Problem};
use apportion_support::exit::Failure;

/// A pipeline of the comparison.
pub struct TriedPipeline {
    /// Its name in tables.
    pub name: String,
    /// Its problem.
    pub problem: Problem,
}

/// The headline's pipelines, or the user's, at the demands of their files, as agents serve them. Replicas take time to
/// load.
pub fn pipelines(lab: &Lab) -> Result<Vec<TriedPipeline>, Failure> {
    let protocol = HeadlineProtocol::committed()?;
    let read = |OwnPipeline { name, problem }: OwnPipeline| {
        let problem = with_pipeline(&problem, 0, |d| {
            d.serving.dropping = Some(Dropping::PerTask);
            for variant in d.tasks.iter_mut().flat_map(|t| &mut t.variants) {
                variant.load_ms = if variant.load_ms > 0.0 { variant.load_ms } else { protocol.constants.load_ms };
            }
        })?;
        Ok(TriedPipeline { name, problem })
    };
    let found = found(lab, &protocol)?;
    found.into_iter().take(lab.full_or_quick(usize::MAX, 1)).map(read).collect()
}

/// The user's pipelines, or else those of the protocol.
fn found(lab: &Lab, protocol: &HeadlineProtocol) -> Result<Vec<OwnPipeline>, Failure> {
    if !lab.problems.is_empty() {
        return own_pipelines(&lab.problems);
    }
    if lab.data.is_none() {
        return Ok(vec![OwnPipeline { name: protocol.built_in.name.clone(), problem: TRAFFIC.problem()? }]);
    }
    let read = |entry: &PipelineEntry| {
        let problem = lab.problem(&entry.problem, &TRAFFIC)?;
        Ok(OwnPipeline { name: entry.name.clone(), problem })
    };
    protocol.pipelines.iter().map(read).collect()
}
