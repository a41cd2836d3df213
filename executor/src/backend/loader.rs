//! How an agent comes to its backends.

use super::{Backend, BackendError, EmulatedBackend, RemoteBackend};
use crate::layout::{Group, Task};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A variant that a replica needs.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its model file; none for backends that need none (see [`Loader::needs_file`]).
    pub file: Option<PathBuf>,
    /// The task that it does.
    pub task: Task,
    /// The variant, its batches and their latencies.
    pub group: Group,
}

/// Loads a model file.
pub type FileLoader = dyn Fn(&Path) -> Result<Box<dyn Backend>, BackendError> + Send + Sync;

/// One way to run batches, for all replicas of an agent.
#[derive(Clone)]
pub enum Loader {
    /// The variants' own files, run here.
    Files(Arc<FileLoader>),
    /// Their profiles, played back.
    Emulated,
    /// A server at this URL that has them under their names.
    Remote(String),
}

/// Which way it is, as metadata, logs and metrics say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// The variants run here.
    #[default]
    Local,
    /// No variant runs: profiles are played back, and answers are zeros.
    Emulated,
    /// The variants run on another server.
    Remote,
}

impl Kind {
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

impl Loader {
    /// Variants' own files, by this function.
    pub fn files(load: impl Fn(&Path) -> Result<Box<dyn Backend>, BackendError> + Send + Sync + 'static) -> Self {
        Self::Files(Arc::new(load))
    }

    /// Which way it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Files(_) => Kind::Local,
            Self::Emulated => Kind::Emulated,
            Self::Remote(_) => Kind::Remote,
        }
    }

    /// Whether the variant's model file must be here.
    #[must_use]
    pub const fn needs_file(&self) -> bool {
        matches!(self, Self::Files(_))
    }

    /// Loads a variant.
    ///
    /// # Errors
    /// [`BackendError`] by cause.
    pub fn load(&self, wanted: &Wanted) -> Result<Box<dyn Backend>, BackendError> {
        match self {
            Self::Files(load) => {
                let file = wanted.file.as_deref().expect("a loader of files is given a file");
                load(file)
            }
            Self::Emulated => Ok(Box::new(EmulatedBackend::new(wanted)?)),
            Self::Remote(url) => Ok(Box::new(RemoteBackend::connect(url, wanted)?)),
        }
    }
}
