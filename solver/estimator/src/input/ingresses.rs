//! At how many ingresses do requests come in, and how do clients choose among them?
//!
//! Example: three agents serve a pipeline, and its clients send their requests to them in turn. Each agent chooses replicas
//! by itself, so two requests in a row may come to the same replica while another one is idle. A single ingress would send
//! them to different ones.

use std::num::NonZeroU32;

/// Most ingresses of a run.
pub const INGRESSES_MAX: u32 = 4_096;

/// How a client chooses the ingress of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IngressChoice {
    /// Each in its turn, as one client does that knows all of them.
    #[default]
    InTurn,
    /// Each with the same probability, as many clients do that know nothing of each other.
    AtRandom,
}

/// The ingresses of each pipeline in a run. Each has a router of its own, as each agent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IngressSettings {
    /// Their number, at most [`INGRESSES_MAX`].
    pub count: NonZeroU32,
    /// How clients choose among them.
    pub choice: IngressChoice,
}

impl Default for IngressSettings {
    /// A single one.
    fn default() -> Self {
        Self { count: NonZeroU32::MIN, choice: IngressChoice::default() }
    }
}

impl IngressSettings {
    /// This number of them, at least one, which clients use in turn.
    #[must_use]
    pub fn in_turn(count: u32) -> Self {
        Self { count: NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN), choice: IngressChoice::InTurn }
    }

    /// Whether chance decides which one a request comes to.
    pub(crate) fn are_drawn(self) -> bool {
        self.count > NonZeroU32::MIN && self.choice == IngressChoice::AtRandom
    }
}
