//! Which files make another system run a plan?
//!
//! What belongs here: writers of the files of foreign systems, one file each, as functions from a plan and its problem to
//! [`Export`]; names that these systems accept. What never does: reading or writing files on disk, printing, planning.
//!
//! The commonest addition is a target: a file with the source of its format in its first lines, and a variant of
//! [`ExportTarget`]. What a target cannot express belongs into [`Export::notes`].

mod agents;
mod compose;
mod groups;
mod kubernetes;
mod names;
mod ray_serve;
mod request;
mod settings;
mod slurm;
mod text;
mod triton;

pub use groups::{ExportGroup, export_groups};
pub use names::{NameRule, SafeNames};
pub use request::{Export, ExportContent, ExportRequest, ModelFile};
pub use settings::{DeviceSettings, ExportSettings, ImageSettings, read_settings};

use apportion_wire::BadInput;

/// The system that a plan is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportTarget {
    /// Manifests of Kubernetes, with ScaledObjects of KEDA.
    Kubernetes,
    /// Model repositories of Triton.
    Triton,
    /// Scripts of Slurm.
    Slurm,
    /// A configuration of Ray Serve.
    RayServe,
    /// A file of Docker Compose.
    Compose,
}

impl ExportTarget {
    /// All targets.
    pub const ALL: [Self; 5] = [Self::Kubernetes, Self::Triton, Self::Slurm, Self::RayServe, Self::Compose];
    /// Their names.
    pub const NAMES: [&'static str; 5] = ["kubernetes", "triton", "slurm", "ray-serve", "compose"];

    /// The target with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().position(|n| *n == name).map(|at| Self::ALL[at])
    }
}

/// The file with the notes in the output folder.
pub const NOTES_FILE: &str = "NOTES.txt";

/// Writes a plan for a target.
///
/// # Errors
/// If the plan names what the problem does not have, if it is empty, or if a setting names no hardware type or variant of
/// the problem.
pub fn export(request: &ExportRequest<'_>, target: ExportTarget) -> Result<Export, BadInput> {
    let groups = export_groups(request.problem, request.plan, request.plan_file)?;
    request.settings.check(request.problem)?;
    let mut export = match target {
        ExportTarget::Kubernetes => kubernetes::write(request, &groups),
        ExportTarget::Triton => triton::write(request, &groups),
        ExportTarget::Slurm => slurm::write(request, &groups),
        ExportTarget::RayServe => ray_serve::write(request, &groups),
        ExportTarget::Compose => compose::write(request, &groups),
    };
    let lines: Vec<String> = export.notes.iter().map(|note| format!("- {note}\n")).collect();
    export.text(NOTES_FILE, lines.concat());
    Ok(export)
}
