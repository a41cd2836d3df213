//! Messages between the control plane and the agents, versioned and fenced by (incarnation, generation).
//!
//! What belongs here: the messages of `proto/apportion.proto`, their bounds, and conversions that both ends need. What
//! never does: connections, policies, tensors.
//!
//! The commonest addition is a field. Append it to its message with the next number. Give its default value a meaning,
//! because an older peer does not send it. Raise [`PROTOCOL_VERSION`] only if an older peer would misbehave.

mod transforms;

pub use transforms::UnknownTransform;

use apportion_domain::tensor::TensorSignature;
use apportion_domain::{Fence, Generation};

/// Version of the protocol. The service refuses an agent with another version.
pub const PROTOCOL_VERSION: u32 = 1;
/// Largest control message in bytes: a target for thousands of replicas fits.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Largest message of an agent in bytes: a report of a minute for hundreds of pipelines fits. The bound is below that of a
/// target, because a decoded message of many empty parts takes fifty times its size.
pub const AGENT_MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Largest number of devices of one agent.
pub const DEVICES_MAX: u32 = 1_024;
/// Longest name or address of an agent, in bytes.
pub const TEXT_BYTES_MAX: usize = 256;

/// Messages that `executor/tests/generated.rs` writes from `proto/apportion.proto`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
pub mod v1;

impl From<Fence> for v1::Fence {
    fn from(fence: Fence) -> Self {
        Self { incarnation: fence.incarnation, generation: fence.generation.0 }
    }
}

impl From<v1::Fence> for Fence {
    fn from(fence: v1::Fence) -> Self {
        Self { incarnation: fence.incarnation, generation: Generation(fence.generation) }
    }
}

impl From<&TensorSignature> for v1::TensorSpec {
    /// As the control plane tells it.
    fn from(spec: &TensorSignature) -> Self {
        Self { name: spec.name.clone(), datatype: spec.datatype.name().into(), shape: spec.shape.clone() }
    }
}
