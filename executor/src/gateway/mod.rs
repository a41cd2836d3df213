//! How do clients reach the agent? By the Open Inference Protocol over HTTP (JSON and binary tensors) and gRPC.
//!
//! What belongs here: reading requests, checking them against the inputs of a pipeline, writing answers, and describing
//! the pipelines. What never does: policies. HTTP and gRPC share [`Gateway::infer`], so both count, bound and refuse
//! alike.

pub mod about;
mod admission;
pub mod bodies;
mod certificate;
pub mod codec;
mod coding;
pub mod connections;
pub mod contents;
pub mod error;
pub mod grpc;
pub mod http;
pub mod inference;
pub mod json;
pub mod ledger;
mod limits;
mod meter;
pub mod metrics;
mod parameters;
pub mod prescan;
pub mod refusal;
mod secure;
mod unread;

/// Messages of the protocol over gRPC, which `tests/generated.rs` writes from `proto/inference.proto`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
pub mod proto;

pub use crate::open_inference::{BODY_BYTES_MAX, numbers};
pub use admission::{Gateway, NotReady, find, version};
pub use certificate::GatewayTls;
pub use limits::{EXTENSIONS, GatewayLimits, PLATFORM, REQUESTS_MAX, RETRY_AFTER_S, VARIANTS, WAITING_BYTES_MAX};
