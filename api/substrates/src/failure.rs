//! Why has a substrate not done or said something?

use apportion_kubernetes::KubernetesError;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a substrate has not done or said something.
#[derive(Debug, thiserror::Error)]
pub enum SubstrateError {
    /// The settings have no such hardware type.
    #[error("the settings of substrate {substrate} have no hardware type {hardware}")]
    UnknownHardware {
        /// The substrate.
        substrate: &'static str,
        /// The type.
        hardware: String,
    },
    /// The settings have no such substrate.
    #[error("the settings have no substrate {0}")]
    UnknownSubstrate(&'static str),
    /// A program cannot be started.
    #[error("{program} cannot be started")]
    Start {
        /// The program.
        program: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A command has failed.
    #[error("{command} has failed: {said}")]
    Failed {
        /// The command's name.
        command: &'static str,
        /// Its words.
        said: String,
    },
    /// A command has not ended in time.
    #[error("{command} has not ended within {} s", .within.as_secs())]
    Late {
        /// The command's name.
        command: &'static str,
        /// The longest time.
        within: Duration,
    },
    /// An output has another form than expected.
    #[error("{command}: {found:?}: expected {expected}")]
    Output {
        /// The command's name.
        command: &'static str,
        /// The text.
        found: String,
        /// The right form.
        expected: &'static str,
    },
    /// Kubernetes has not done or said something.
    #[error(transparent)]
    Kubernetes(#[from] KubernetesError),
    /// A file cannot be read or written.
    #[error("{path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}
