//! What do autoscalers ask, and how are they answered?
//!
//! KEDA asks by gRPC (`keda`), and Kubernetes' HorizontalPodAutoscaler by the external metrics API (`external_metrics`).
//! Both are answered on one port, from a [`Board`] in memory. A number that is not known is an error, and
//! never zero: an autoscaler then leaves the replicas as they are.
//!
//! What belongs here: the protocols, their bounds, and the board. What never does: the database, plans, the decision which
//! replicas are right. The commonest addition is a protocol: a module with its messages, and a route in `server`.

pub mod board;
mod connections;
mod external_metrics;
mod keda;
pub mod limits;
mod selector;
mod server;

pub use board::{Board, DesiredGroup, GroupQuery, METRIC, PipelineAdvice};
pub use server::{ScalersError, serve};

/// Messages that `executor/tests/generated.rs` writes from `proto/externalscaler.proto`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
pub mod proto;
