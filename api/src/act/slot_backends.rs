//! How is a continuous task kept from agents that would refuse it?
//!
//! Such agents run their variants on another server. A pipeline or a profile that would bring them a continuous task is
//! refused. An agent is never refused for a pipeline: a user who stores pipelines must not keep agents out of the fleet. An
//! agent that comes later refuses the target that has such a task, and says why.

use crate::decide::slot_backends::{AgentBackend, refused_row, refused_task};
use crate::documents;
use crate::store::agents::{self, AgentRow};
use crate::store::pipelines::{self, PipelineRow};
use crate::store::{self, PgConnection};
use apportion_wire::{AgentState, BadInput, MeasuredRow, PipelineSpec, ProfileSet, TaskSpec};

/// Why a stored pipeline is refused, with the profile that it has; `None` if it is good.
///
/// # Errors
/// The database's.
pub async fn refuse_pipeline(tx: &mut PgConnection, spec: &PipelineSpec) -> store::Result<Option<BadInput>> {
    if !spec.tasks.iter().any(TaskSpec::is_continuous) {
        return Ok(None);
    }
    let agents = known_agents(tx).await?;
    let profile = pipelines::get(tx, &spec.name).await?.as_ref().map(profile_of).unwrap_or_default();
    Ok(refused_task(spec, &profile, &agents).map(|found| {
        let expected =
            format!("\"batch\", because {}; or `--backend onnx` at the agents of {}", found.agent, found.agent.hardware);
        BadInput::one("pipeline", format!("/tasks/{}/kind", found.at), "\"continuous\"", expected)
    }))
}

/// Why latencies of a pipeline are refused; `None` if they are good.
///
/// # Errors
/// The database's.
pub async fn refuse_rows(
    tx: &mut PgConnection,
    spec: &PipelineSpec,
    rows: &[MeasuredRow],
) -> store::Result<Option<BadInput>> {
    if !spec.tasks.iter().any(TaskSpec::is_continuous) {
        return Ok(None);
    }
    let agents = known_agents(tx).await?;
    Ok(refused_row(spec, rows, &agents).map(|found| {
        let row = &rows[found.at];
        let expected = format!(
            "another type for the continuous task {:?}, because {}; or `--backend onnx` at these agents",
            row.task, found.agent
        );
        BadInput::one("profiles", format!("/rows/{}/hardware", found.at), format!("{:?}", row.hardware), expected)
    }))
}

/// The agents that have not left. A lost one may come back.
async fn known_agents(tx: &mut PgConnection) -> store::Result<Vec<AgentBackend>> {
    let rows = agents::list(tx).await?.into_iter().filter(|row| row.state != AgentState::Left);
    let agent = |row: AgentRow| AgentBackend { name: row.name, hardware: row.hardware, backend: row.backend };
    Ok(rows.map(agent).collect())
}

/// The measurements of a pipeline. Those that this release cannot read count as absent: they are reported where they are
/// planned.
fn profile_of(row: &PipelineRow) -> ProfileSet {
    let stored = row.profile.as_ref().map(|profile| documents::profiles("profiles", profile));
    stored.and_then(Result::ok).unwrap_or_default()
}
