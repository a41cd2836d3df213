//! How does an agent load its variants?

use super::batch::check_rows;
use super::interface::{Backend, BackendError, ReplicaVariant};
use super::{
    EmulatedBackend, ExecutionSettings, GluedBackend, OnnxBackend, PythonBackend, PythonSettings, RemoteBackend,
    RemoteVariantError, SteppedBackend,
};
use crate::causes::describe;
use apportion_domain::{Provider, VariantRuntime};
use apportion_node::layout::LayoutTask;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Loads a model file.
pub type FileLoader = dyn Fn(&Path) -> Result<Box<dyn Backend>, BackendError> + Send + Sync;

/// One way to run batches, for all replicas of an agent.
#[derive(Clone)]
pub enum BackendLoader {
    /// The variants' own files, run by ONNX Runtime on the agent's devices.
    Onnx {
        /// The runtime's library.
        library: PathBuf,
        /// What it runs them on; the agent's devices are the provider's by number.
        provider: Provider,
        /// Threads of one batch on the CPU.
        threads: usize,
        /// How stages in Python run. None: they do not.
        python: Option<PythonSettings>,
    },
    /// The variants' own files, run here in another way.
    Files(Arc<FileLoader>),
    /// Their profiles, played back.
    Emulated,
    /// A server at this URL that has them under their names.
    Remote(String),
}

/// Which way it is, as metadata, logs and metrics say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendKind {
    /// The variants run here.
    #[default]
    Local,
    /// No variant runs: profiles are played back, and answers are zeros.
    Emulated,
    /// The variants run on another server.
    Remote,
}

impl BackendKind {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "onnx",
            Self::Emulated => "emulated",
            Self::Remote => "remote",
        }
    }
}

impl BackendLoader {
    /// Variants' own files, by this function.
    pub fn files(load: impl Fn(&Path) -> Result<Box<dyn Backend>, BackendError> + Send + Sync + 'static) -> Self {
        Self::Files(Arc::new(load))
    }

    /// Which way it is.
    #[must_use]
    pub const fn kind(&self) -> BackendKind {
        match self {
            Self::Onnx { .. } | Self::Files(_) => BackendKind::Local,
            Self::Emulated => BackendKind::Emulated,
            Self::Remote(_) => BackendKind::Remote,
        }
    }

    /// Whether the variant's model file must be here.
    #[must_use]
    pub fn needs_file(&self) -> bool {
        self.kind() == BackendKind::Local
    }

    /// What variants are run on; none where that is not this agent's to say.
    #[must_use]
    pub const fn provider(&self) -> Option<Provider> {
        match self {
            Self::Onnx { provider, .. } => Some(*provider),
            _ => None,
        }
    }

    /// Loads a variant, with the transforms of its task around it. That of a continuous task runs step by step.
    ///
    /// # Errors
    /// [`BackendError::Variant`], and its cause.
    pub fn load(&self, wanted: &ReplicaVariant) -> Result<Box<dyn Backend>, BackendError> {
        let is_stepped = wanted.task.is_continuous && self.kind() != BackendKind::Emulated;
        let loaded = if is_stepped {
            refuse_whole_batches(wanted)
                .and_then(|()| self.load_alone(wanted))
                .and_then(refuse_large_rows)
                .and_then(stepped)
        } else {
            self.load_alone(wanted)
                .and_then(refuse_large_rows)
                .and_then(|variant| self.with_transforms(variant, &wanted.task))
        };
        let (variant, task) = (wanted.group.variant.clone(), wanted.task.name.clone());
        loaded.map_err(|source| BackendError::Variant { variant, task, source: Box::new(source) })
    }

    fn load_alone(&self, wanted: &ReplicaVariant) -> Result<Box<dyn Backend>, BackendError> {
        let file = || wanted.file.as_deref().expect("a loader of files is given a file");
        match self {
            Self::Onnx { library, provider, threads, python } => {
                let here = ExecutionSettings { provider: *provider, device: wanted.device, threads: *threads };
                let running = here.of_variant(wanted.group.execution)?;
                match wanted.group.runtime {
                    VariantRuntime::Onnx => OnnxBackend::load(library, file(), running).map(|b| Box::new(b) as _),
                    VariantRuntime::Python => start_stage(python.as_ref(), file(), running.threads),
                }
            }
            Self::Files(load) => load(file()),
            Self::Emulated => EmulatedBackend::new(wanted).map(|b| Box::new(b) as _),
            // The plan says the tensors of the task. Those of the variant are the server's to say.
            Self::Remote(url) if !wanted.task.glue.is_empty() => {
                let refused = |e: RemoteVariantError| BackendError::Load { file: url.clone(), detail: describe(&e) };
                RemoteBackend::find(url, &wanted.group.variant).map_err(refused).map(|b| Box::new(b) as _)
            }
            Self::Remote(url) => RemoteBackend::connect(url, wanted).map(|b| Box::new(b) as _),
        }
    }

    /// A variant with the transforms of its task, if there are any. A profile that is played back contains their time.
    fn with_transforms(&self, variant: Box<dyn Backend>, task: &LayoutTask) -> Result<Box<dyn Backend>, BackendError> {
        if task.glue.is_empty() || self.kind() == BackendKind::Emulated {
            return Ok(variant);
        }
        let glued = GluedBackend::new(variant, task.glue.clone(), &task.inputs);
        let refused = |e: apportion_domain::transform::GlueError| BackendError::Load {
            file: format!("the transforms of task {}", task.name),
            detail: e.to_string(),
        };
        glued.map_err(refused).map(|b| Box::new(b) as _)
    }
}

/// Starts a stage in Python with this number of threads.
fn start_stage(settings: Option<&PythonSettings>, file: &Path, threads: usize) -> Result<Box<dyn Backend>, BackendError> {
    let Some(settings) = settings else {
        let expected = "its file is Python, and this agent runs none: expected apportion-agent --python PROGRAM";
        return Err(BackendError::Runtime(expected.to_owned()));
    };
    let stage = PythonBackend::start(PythonSettings { threads, ..settings.clone() }, file)?;
    Ok(Box::new(stage))
}

/// Refuses a variant whose tensors nobody can send, whatever its file, its process or its server says.
fn refuse_large_rows(variant: Box<dyn Backend>) -> Result<Box<dyn Backend>, BackendError> {
    let signature = variant.signature();
    match check_rows(signature.inputs.iter().chain(&signature.outputs)) {
        Ok(()) => Ok(variant),
        Err(error) => Err(BackendError::Load { file: "its signature".to_owned(), detail: error.to_string() }),
    }
}

/// Refuses a continuous task whose variant would run whole batches.
fn refuse_whole_batches(wanted: &ReplicaVariant) -> Result<(), BackendError> {
    if wanted.group.runtime == VariantRuntime::Python {
        return Err(not_stepped("a stage in Python runs whole batches: expected an ONNX file".to_owned()));
    }
    if !wanted.task.glue.is_empty() {
        return Err(not_stepped("transforms run on whole batches: expected none at this task and its edges".to_owned()));
    }
    Ok(())
}

/// A variant of a continuous task.
fn stepped(variant: Box<dyn Backend>) -> Result<Box<dyn Backend>, BackendError> {
    SteppedBackend::new(variant).map_err(|error| not_stepped(error.to_string())).map(|b| Box::new(b) as _)
}

fn not_stepped(detail: String) -> BackendError {
    BackendError::Load { file: "its model of a continuous task".to_owned(), detail }
}
