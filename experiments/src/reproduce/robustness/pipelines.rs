//! Which pipelines are tried?

use crate::reproduce::headline::pipelines::{PlayedPipeline, played_pipelines};
use crate::reproduce::headline::protocol::HeadlineProtocol;
use crate::reproduce::lab::{Lab, with_pipeline};
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
    let read = |PlayedPipeline { name, problem, .. }: PlayedPipeline| {
        let problem = with_pipeline(&problem, 0, |d| {
            d.serving.dropping = Some(Dropping::PerTask);
            for variant in d.tasks.iter_mut().flat_map(|t| &mut t.variants) {
                variant.load_ms = if variant.load_ms > 0.0 { variant.load_ms } else { protocol.constants.load_ms };
            }
        })?;
        Ok(TriedPipeline { name, problem })
    };
    played_pipelines(lab, &protocol)?.into_iter().map(read).collect()
}
