//! How are batches run? One trait, and one file for each way.

mod batch;
mod emulated;
pub mod error;
mod interface;
mod library;
mod loader;
mod onnx;
mod provider;
mod remote;
mod values;

pub use emulated::EmulatedBackend;
pub use interface::{Backend, BackendError, Signature, Wanted};
pub use library::find_library;
pub use loader::{FileLoader, Kind, Loader};
pub use onnx::{OnnxBackend, THREADS_DEFAULT};
pub use provider::{Placed, Provider, Running};
pub use remote::RemoteBackend;
