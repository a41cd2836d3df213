//! What do the scenario tests share? Clusters of processes, databases, a browser, a Prometheus, a Triton, loads, commands
//! of documents, the built programs, free ports.
//!
//! What belongs here: helpers of tests that need more than one crate. The tests themselves are in `tests/tests/`.

pub mod backend;
pub mod browser;
pub mod cluster;
mod database_template;
pub mod digits;
pub mod documents;
mod http;
pub mod kubectl_proxy;
pub mod kubelet;
pub mod kubernetes;
pub mod load;
mod machine;
pub mod machines;
pub mod onnx;
pub mod process;
pub mod prometheus;
pub mod rag;
pub mod ray;
pub mod relay;
pub mod slurm;
pub mod triton;
pub mod wiretap;

pub use machine::{free_port, printed, programs, root};
pub use process::resources;
