//! Which registered pipelines are replanned, and where does their demand come from?

use crate::documents;
use crate::store::pipelines::PipelineRow;
use apportion_wire::{PipelineSpec, ReplanMode, TaskSpec};

/// Where the demand of a replanned pipeline comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DemandOrigin {
    /// Agents report arrivals.
    Agents,
    /// The replan settings name a source.
    Elsewhere,
}

/// The spec with its profile, if the pipeline is replanned for a demand of this origin and each task has a profile.
pub(super) fn replanned_spec(row: &PipelineRow, origin: DemandOrigin) -> Option<PipelineSpec> {
    let settings = &row.spec["replan"];
    let is_on = settings["mode"].as_str().is_some_and(|mode| mode != ReplanMode::Off.name());
    let found = if settings["demand"].is_null() { DemandOrigin::Agents } else { DemandOrigin::Elsewhere };
    if !is_on || found != origin {
        return None;
    }
    let spec = documents::measured(row)
        .inspect_err(|error| tracing::warn!(pipeline = row.name, %error, "not replanned: spec and profile do not fit"));
    spec.ok().filter(|spec| spec.tasks.iter().all(is_measured))
}

/// The spec with its profile, whatever its replan mode, unless its demand comes from elsewhere or a task has no profile.
pub(super) fn scheduled_spec(row: &PipelineRow) -> Option<PipelineSpec> {
    let is_elsewhere = !row.spec["replan"]["demand"].is_null();
    let spec = documents::measured(row).ok().filter(|_| !is_elsewhere);
    spec.filter(|spec| spec.tasks.iter().all(is_measured))
}

fn is_measured(task: &TaskSpec) -> bool {
    task.variants.iter().any(|v| v.profile.as_ref().is_some_and(|rows| !rows.is_empty()))
}
