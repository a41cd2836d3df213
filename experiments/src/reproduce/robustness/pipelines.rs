//! Which pipelines are tried?

use crate::reproduce::headline::protocol::HeadlineProtocol;
use crate::reproduce::lab::{Lab, TRAFFIC, with_pipeline};
use apportion_domain::{Dropping, Problem};
use apportion_support::exit::Failure;
use apportion_support::input;

/// A pipeline of the comparison.
pub struct TriedPipeline {
    /// Its name in tables.
    pub name: String,
    /// Its problem.
    pub problem: Problem,
}

/// The headline's pipelines at the demands of their files, as agents serve them. Replicas take time to load.
pub fn pipelines(lab: &Lab) -> Result<Vec<TriedPipeline>, Failure> {
    let protocol = HeadlineProtocol::committed()?;
    let entries: Vec<_> = protocol.pipelines.iter().map(|p| (p.name.clone(), Some(p.problem.clone()))).collect();
    let entries = if lab.data.is_some() { entries } else { vec![(protocol.built_in.name.clone(), None)] };
    let read = |(name, file): (String, Option<String>)| {
        let problem = match file.and_then(|file| lab.data_file(&file)) {
            Some(file) => input::read_allocation_problem(&file.display().to_string())?,
            None => TRAFFIC.problem()?,
        };
        let problem = with_pipeline(&problem, 0, |d| {
            d.serving.dropping = Some(Dropping::PerTask);
            for variant in d.tasks.iter_mut().flat_map(|t| &mut t.variants) {
                variant.load_ms = if variant.load_ms > 0.0 { variant.load_ms } else { protocol.constants.load_ms };
            }
        })?;
        Ok(TriedPipeline { name, problem })
    };
    entries.into_iter().take(lab.full_or_quick(usize::MAX, 1)).map(read).collect()
}
