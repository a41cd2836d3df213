//! How are batches run? One trait, and one file for each way.

mod batch;
mod emulated;
pub mod error;
mod glued;
mod interface;
mod library;
mod loader;
mod onnx;
mod provider;
mod python;
mod remote;
mod stepped;
mod values;

pub use apportion_domain::Provider;
pub use emulated::EmulatedBackend;
pub use glued::GluedBackend;
pub use interface::{Backend, BackendError, EndedQuery, ReplicaVariant, Signature, SteppedQuery, Stepping};
pub use library::find_library;
pub use loader::{BackendKind, BackendLoader, FileLoader};
pub use onnx::{OnnxBackend, THREADS_DEFAULT};
pub use provider::{ExecutionSettings, Placed};
pub use python::{PythonBackend, PythonSettings, STAGE_TIMEOUT_DEFAULT};
pub use remote::{RemoteBackend, RemoteStatistics, RemoteVariantError, SignatureRefusal};
pub use stepped::{DONE, PAST, PRESENT, STEPS_MAX, SteppedBackend, SteppingError};
